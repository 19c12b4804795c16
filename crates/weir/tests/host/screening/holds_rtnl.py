# Holds the kernel's lock on network configuration (RTNL) until standard input ends: an ioctl of ethtool's reads, under
# the lock, a page that userfaultfd keeps from it.
import ctypes, fcntl, os, platform, select, socket, struct, sys, threading

USERFAULTFD = {"x86_64": 323, "aarch64": 282}[platform.machine()]
UFFDIO_API, UFFDIO_REGISTER, UFFDIO_ZEROPAGE = 0xC018AA3F, 0xC020AA00, 0xC020AA04
SIOCETHTOOL, ETHTOOL_GSTRINGS = 0x8946, 0x1B

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
page = os.sysconf("SC_PAGESIZE")
base = libc.mmap(None, 2 * page, 3, 0x22, -1, 0)
faults = libc.syscall(USERFAULTFD, os.O_CLOEXEC)
fcntl.ioctl(faults, UFFDIO_API, struct.pack("QQQ", 0xAA, 0, 0))
fcntl.ioctl(faults, UFFDIO_REGISTER, struct.pack("QQQQ", base + page, page, 1, 0))
# The command is in the first page, and what it is about in the second.
command = base + page - 4
ctypes.memmove(command, struct.pack("I", ETHTOOL_GSTRINGS), 4)


def hold():
    request = struct.pack("16sQ16x", sys.argv[1].encode(), command)
    try:
        fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), SIOCETHTOOL, request)
    except OSError:
        pass


holder = threading.Thread(target=hold)
holder.start()
os.read(faults, 32)
print("held", flush=True)
sys.stdin.read()
fcntl.ioctl(faults, UFFDIO_ZEROPAGE, struct.pack("QQQQ", base + page, page, 0, 0))
holder.join()
