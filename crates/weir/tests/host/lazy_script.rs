//! Scripts whose socket is lazy or ordinary, and what they print.

use std::io::{BufRead, BufReader};
use std::ops::RangeBounds;
use std::process::{Command, Stdio};

use crate::common::lazy::*;
use crate::common::*;

/// `send(N, ...)` has the peer send datagrams of so many bytes, and returns when they are there: the last comes by an
/// ordinary socket, of the same queue.
const PRELUDE: &str = r"
import fcntl,os,select,socket,struct,sys,termios,threading
s=socket.socket(2,2); s.bind(('198.18.0.1',9995))
last=socket.socket(2,2); last.bind(('198.18.0.1',9996))
def send(*lengths):
    print('send',*lengths,flush=True)
    last.recv(9)
";

/// What a program prints, whose socket is lazy or ordinary.
fn printed(network: &Network, lazy: bool, script: &str) -> String {
    let script = format!("{PRELUDE}{script}");
    let mut command = Command::new("timeout");
    command.args(["30", "python3", "-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    if lazy {
        command.env("LD_PRELOAD", artifact("libweir_preload.so")).env("WEIR_PORTS", "9995");
    }
    let mut python = network.near.run(|| command.spawn().unwrap()).unwrap();
    let sender = network.far_socket("198.18.0.2:0");
    let mut printed = String::new();
    for line in BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap) {
        let Some(lengths) = line.strip_prefix("send") else {
            printed += &format!("{line}\n");
            continue;
        };
        for length in lengths.split_whitespace() {
            sender.send_to(&vec![b'x'; length.parse().unwrap()], LAZY).unwrap();
        }
        sender.send_to(b"last", "198.18.0.1:9996").unwrap();
    }
    let output = python.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}{printed}");
    printed
}

/// Datagrams of 3,000 bytes come in fragments, by the kernel's socket; others by the ring.
pub fn assert_printed(script: &str, wanted: &str) {
    assert_printed_by_ring(script, wanted, 1..);
}

/// So many came by the ring.
pub fn assert_printed_by_ring(script: &str, wanted: &str, by_ring: impl RangeBounds<u64>) {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    for lazy in [false, true] {
        assert_eq!(printed(&network, lazy, script), wanted, "lazy: {lazy}");
    }
    wait_until("they came by the ring", || by_ring.contains(&network.count("lazy")));
}

/// Another thread that receives has slept for a while: it does not ask again and again.
pub const ASLEEP: &str = r"
def asleep(thread):
    with open('/proc/self/task/%d/stat'%thread.native_id) as stat:
        return stat.read().rsplit(')')[1].split()[0]=='S'
def receiving():
    thread=threading.Thread(target=receive); thread.start()
    while not all(asleep(thread) for _ in range(100)): pass
    return thread
def receive():
    try: print(s.recv(9999)[:1])
    except OSError as error: print(error.strerror)
";

/// An error waits in the queue of errors, and has been told.
pub const WITH_ERROR: &str = r"
s.setsockopt(socket.IPPROTO_IP,11,1)
s.sendto(b'nobody',('198.18.0.2',1))
poll=select.poll(); poll.register(s,0); poll.poll()
receive()
";

/// `struct iovec` and `struct mmsghdr`.
pub const MESSAGES: &str = r"
import ctypes
class Part(ctypes.Structure): _fields_=[('at',ctypes.c_char_p),('length',ctypes.c_size_t)]
class Message(ctypes.Structure):
    _fields_=[('name',ctypes.c_void_p),('name_length',ctypes.c_uint),('parts',ctypes.POINTER(Part)),
        ('count',ctypes.c_size_t),('control',ctypes.c_size_t*2),('flags',ctypes.c_size_t),('length',ctypes.c_size_t)]
";
