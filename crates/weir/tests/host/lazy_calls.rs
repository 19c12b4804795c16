//! Lazy sockets: several readers at once, and calls that answer as those of an ordinary socket do.

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::channel;

use crate::common::lazy::*;
use crate::common::*;
use crate::lazy_script::*;
use nix::libc;
use rustix::net::Shutdown;
use rustix::process::Pid;

#[test]
fn what_was_peeked_at_is_what_is_received() {
    let script = r"
def waits(): return struct.unpack('i',fcntl.ioctl(s,termios.FIONREAD,b'....'))[0]
for look in (lambda: len(s.recv(9999,socket.MSG_PEEK)), waits):
    for first,second in ((3000,100),(100,3000)):
        send(first)
        looked=look()
        send(second)
        print(looked,len(s.recv(9999)),len(s.recv(9999)),waits())
";
    let wanted = "3000 3000 100 0\n100 100 3000 0\n";
    assert_printed(script, &wanted.repeat(2));
}

/// `sockmap(FD)` gives a socket to a program that drops all that comes (`BPF_SK_SKB_VERDICT`).
const SOCKMAP: &str = r"
import ctypes
libc=ctypes.CDLL(None,use_errno=True)
def bpf(command,*parts):
    attr=b''.join(parts); fd=libc.syscall(321,command,attr,len(attr))
    if fd<0: raise OSError(ctypes.get_errno(),f'bpf({command})')
    return fd
def sockmap(fd):
    sockets=bpf(0,struct.pack('IIII',15,4,4,1))
    drop=ctypes.create_string_buffer(bytes.fromhex('b7000000000000009500000000000000'))
    license=ctypes.create_string_buffer(b'GPL')
    code=struct.pack('IIQQ',14,2,ctypes.addressof(drop),ctypes.addressof(license))
    program=bpf(5,code,bytes(44),struct.pack('I',38))
    bpf(8,struct.pack('IIII',sockets,program,38,0))
    key,value=ctypes.c_uint(0),ctypes.c_uint(fd)
    bpf(2,struct.pack('IIQQQ',sockets,0,ctypes.addressof(key),ctypes.addressof(value),0))
    return lambda: bpf(3,struct.pack('IIQ',sockets,0,ctypes.addressof(key)))
";

#[test]
fn a_socket_in_a_sockmap_is_left_to_its_program() {
    let script = r"
def received():
    try: return len(s.recv(99,socket.MSG_DONTWAIT))
    except BlockingIOError: return 'nothing'
send(10); print(received())
leave=sockmap(s.fileno())
send(20); print(received())
leave()
send(30); print(received())
";
    assert_printed(&format!("{SOCKMAP}{script}"), "10\nnothing\n30\n");
}

#[test]
fn a_signal_does_not_keep_a_socket_from_becoming_lazy() {
    let script = r"
import signal
signal.signal(signal.SIGALRM,lambda *_: None); signal.siginterrupt(signal.SIGALRM,False)
signal.setitimer(signal.ITIMER_REAL,0.0003,0.0003)
for _ in range(20):
    s.close(); s=socket.socket(2,2); s.bind(('198.18.0.1',9995))
signal.setitimer(signal.ITIMER_REAL,0)
send(1)
print(len(s.recv(9)))
";
    assert_printed(script, "1\n");
}

#[test]
fn what_the_kernel_refuses_is_refused_and_takes_no_datagram() {
    let script = r"
import errno
libc=ctypes.CDLL(None,use_errno=True); room=ctypes.create_string_buffer(16)
def readv(count,*lengths):
    ctypes.set_errno(0)
    parts=(Part*3)(*[Part(b' '*9,length) for length in lengths])
    return libc.readv(s.fileno(),parts,count),ctypes.get_errno()
send(3)
print(readv(0),readv(2),readv(-1)==(-1,errno.EINVAL),readv(1025)==(-1,errno.EINVAL))
print(readv(3,0,2,1),readv(0))
def refused(call,*arguments):
    ctypes.set_errno(0); return call(s.fileno(),*arguments)==-1 and ctypes.get_errno()==errno.EINVAL
negative=Message(name=ctypes.addressof(room),name_length=-1); length=ctypes.c_int(-1)
messages=(Message*2)(Message(),negative)
send(4); print(refused(libc.recvmsg,ctypes.byref(negative),0),len(s.recv(9)))
send(5,6); print(libc.recvmmsg(s.fileno(),messages,2,0,None),refused(libc.recv,b' '*9,9,0),len(s.recv(9)))
# What comes with this the kernel drops.
send(7); print(refused(libc.recvfrom,b' '*9,9,0,room,ctypes.byref(length)))
try: s.recv(9,socket.MSG_DONTWAIT)
except BlockingIOError: pass
# TCP_NODELAY
try: s.setsockopt(6,1,1)
except OSError as error: print(error.errno==errno.ENOPROTOOPT)
";
    assert_printed(
        &format!("{MESSAGES}{script}"),
        "(0, 0) (0, 0) True True\n(3, 0) (0, 0)\nTrue 4\n1 True 6\nTrue\nTrue\n",
    );
}

#[test]
fn a_blocked_receive_returns_when_the_socket_is_shut_down() {
    let script = r"
send(1)
receive()
receiver=receiving()
try: s.shutdown(socket.SHUT_RDWR)
except OSError: pass
receiver.join()
receive()
";
    assert_printed(&format!("{ASLEEP}{script}"), "b'x'\nb''\nb''\n");
}

#[test]
fn the_crates_receive_returns_when_the_socket_is_shut_down() {
    let network = Network::ipv4_only();
    let ordinary = lazy_socket(&network, "198.18.0.1:9996");
    let _daemon = Daemon::start(&network, &["--lazy"]);
    let lazy = lazy_socket(&network, LAZY);
    assert_lazy(&lazy);
    for socket in [ordinary, lazy] {
        // It says that nothing is connected, and shuts down.
        let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
        assert_eq!(socket.recv(&mut [0; 9]).unwrap(), 0);
        assert_eq!(socket.recv_batch(9, |_| panic!("nothing was sent")).unwrap(), 0);
        assert_eq!(socket.recv_from(&mut [0; 9]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// Also by its number: it is what tells of the ring.
#[test]
fn the_crates_socket_is_polled_by_either_of_its_descriptors() {
    let (_network, _daemon, lazy, _sender) = with_lazy_socket();
    assert_eq!(lazy.as_raw_fd(), lazy.as_fd().as_raw_fd());
    assert_ne!(lazy.as_raw_fd(), (*lazy).as_raw_fd());
}

#[test]
fn a_receive_sleeps_while_errors_wait_in_their_queue() {
    let script = r"
for length in (1,3000,1):
    receiver=receiving()
    send(length)
    receiver.join()
print(poll.poll()==[(s.fileno(),select.POLLERR)])
";
    let wanted = "Connection refused\nb'x'\nb'x'\nb'x'\nTrue\n";
    assert_printed(&format!("{ASLEEP}{WITH_ERROR}{script}"), wanted);
}

#[test]
fn a_receive_needs_no_descriptor() {
    let script = r"
import resource
s.setsockopt(socket.SOL_SOCKET,socket.SO_RCVTIMEO,struct.pack('qq',0,50000))
resource.setrlimit(resource.RLIMIT_NOFILE,(9,9))
try:
    while True: os.dup(0)
except OSError: receive()
send(1)
receive()
";
    let wanted = "Connection refused\nResource temporarily unavailable\nb'x'\n";
    assert_printed(&format!("{ASLEEP}{WITH_ERROR}{script}"), wanted);
}

#[test]
fn an_error_behind_a_datagram_is_the_next_calls() {
    let script = r"
s.setsockopt(socket.IPPROTO_IP,11,1)
part=Part(b' '*9,9)
messages=(Message*2)(*[Message(parts=ctypes.pointer(part),count=1) for _ in range(2)])
def waits(): return struct.unpack('i',fcntl.ioctl(s,termios.FIONREAD,b'....'))[0]
def fail():
    while waits()!=0: pass
    s.sendto(b'nobody',('198.18.0.2',1))
send(1)
threading.Thread(target=fail).start()
print(ctypes.CDLL(None).recvmmsg(s.fileno(),messages,2,0,None))
send(2)
print(waits())
for _ in range(2):
    try: print(len(s.recv(9)))
    except OSError as error: print(error.strerror)
";
    assert_printed(&format!("{MESSAGES}{script}"), "1\n2\nConnection refused\n2\n");
}

#[test]
fn errors_are_asked_for_without_datagrams() {
    let script = r"
part=Part(b' '*9,9)
messages=(Message*2)(*[Message(parts=ctypes.pointer(part),count=1) for _ in range(2)])
send(1)
while struct.unpack('i',fcntl.ioctl(s,termios.FIONREAD,b'....'))[0]!=1: pass
print(ctypes.CDLL(None).recvmmsg(s.fileno(),messages,2,0x2000,None),messages[0].flags&0x2000,messages[0].length)
receive()
";
    let wanted = "Connection refused\n1 8192 6\nb'x'\n";
    assert_printed(&format!("{ASLEEP}{WITH_ERROR}{MESSAGES}{script}"), wanted);
}

#[test]
fn what_is_left_of_a_time_is_told() {
    let script = r"
libc=ctypes.CDLL(None,use_errno=True)
part=Part(b' '*9,9)
message=Message(parts=ctypes.pointer(part),count=1)
for seconds,nanos in ((60,0),(0,0),(-1,0),(1,10**9)):
    time=(ctypes.c_long*2)(seconds,nanos)
    send(1)
    print(libc.recvmmsg(s.fileno(),ctypes.byref(message),1,0,time),ctypes.get_errno(),time[0],0<=time[1]<10**9)
    if seconds<0 or nanos: s.recv(9)
";
    assert_printed(
        &format!("{MESSAGES}{script}"),
        "1 0 59 True\n1 0 0 True\n-1 22 -1 True\n-1 22 1 False\n",
    );
}

#[test]
fn select_sees_a_socket_whatever_number_its_ring_has() {
    let script = r"
import resource
resource.setrlimit(resource.RLIMIT_NOFILE,(2048,2048))
null=os.open('/dev/null',0)
s.close()
while os.dup(null)<1100: pass
os.closerange(null+1,500)
s=socket.socket(2,2); s.bind(('198.18.0.1',9995))
same=s.dup()
print(select.select([s],[s],[],0)==([],[s],[]))
for length in (10,3000):
    send(length)
    print(select.select([s,same,last],[],[s])==([s,same],[],[]),len(s.recv(9999)))
";
    assert_printed(script, "True\nTrue 10\nTrue 3000\n");
}

/// Sets are whole words, and programs leave in them what they have closed.
#[test]
fn select_does_not_look_beyond_the_count() {
    let script = r"
import ctypes
libc=ctypes.CDLL(None,use_errno=True)
for length in (0,10,3000):
    if length: send(length)
    sets=(ctypes.c_ulong*16*3)()
    for each in sets: each[0]=1<<60
    sets[0][0]|=1<<s.fileno()
    found=libc.select(s.fileno()+1,sets[0],sets[1],sets[2],(ctypes.c_long*2)())
    print(found,sets[0][0]>>s.fileno(),sets[1][0],sets[2][0])
    if length: print(len(s.recv(9999)))
";
    assert_printed(script, "0 0 0 0\n1 1 0 0\n10\n1 1 0 0\n3000\n");
}

/// Some programs give poll(2) as many places as they may have descriptors, most of them empty.
#[test]
fn poll_sees_a_socket_among_as_many_places_as_there_may_be() {
    let script = r"
import resource
resource.setrlimit(resource.RLIMIT_NOFILE,(600,600))
libc=ctypes.CDLL(None,use_errno=True)
class Place(ctypes.Structure): _fields_=[('fd',ctypes.c_int),('events',ctypes.c_short),('revents',ctypes.c_short)]
def poll(fds):
    places=(Place*600)(*[Place(fd,1,7) for fd in fds])
    result=libc.poll(places,600,0)
    return result,os.strerror(ctypes.get_errno()) if result<0 else [place.revents for place in places if place.revents]
empty=[-1]*599
for length in (0,10,3000):
    if length: send(length)
    print(poll(empty+[s.fileno()]),poll([s.fileno()]+empty))
    if length: print(len(s.recv(9999)))
";
    assert_printed(
        &format!("{MESSAGES}{script}"),
        "(0, []) (0, [])\n(1, [1]) (1, [1])\n10\n(1, [1]) (1, [1])\n3000\n",
    );
}

#[test]
fn a_ring_whose_number_is_taken_gives_way() {
    let script = r"
send(1)
print(len(s.recv(9)))
null=os.open('/dev/null',0)
epolls=[select.epoll() for _ in range(3)]
for epoll,flags in zip(epolls,(0,select.EPOLLET,select.EPOLLEXCLUSIVE)): epoll.register(s,select.EPOLLIN|flags)
own=[number for number in map(int,os.listdir('/proc/self/fd')) if number>=512] or [600]
for number in own: os.dup2(null,number)
poll=select.poll(); poll.register(s,select.POLLIN); send(2)
print(len(poll.poll(0)),[epoll.poll()==[(s.fileno(),select.EPOLLIN)] for epoll in epolls])
print(len(s.recv(9)),all(os.fstat(number)==os.fstat(null) for number in own))
os.closerange(500,max(own)+100); send(3)
print(len(select.select([s],[],[],0)[0]),[len(epoll.poll()) for epoll in epolls],len(s.recv(9)))
for epoll in epolls: epoll.unregister(s)
send(2)
print([epoll.poll(0) for epoll in epolls])
try: os.fstat(own[0])
except OSError as error: print(error.strerror)
";
    let wanted =
        "1\n1 [True, True, True]\n2 True\n1 [1, 1, 1] 3\n[[], [], []]\nBad file descriptor\n";
    assert_printed_by_ring(script, wanted, 4..=4);
}

/// As a sandbox does that knows no close_range(2).
#[test]
fn what_close_range_cannot_close_stays_open_and_closefrom_closes_without_it() {
    let script = r"
import ctypes
libc=ctypes.CDLL(None,use_errno=True)
def step(code,yes,no,value): return struct.pack('HBBI',code,yes,no,value)
code=step(0x20,0,0,0)+step(0x15,0,1,436)+step(6,0,0,0x50001)+step(6,0,0,0x7fff0000)
code=ctypes.create_string_buffer(code)
libc.prctl(38,*map(ctypes.c_ulong,(1,0,0,0)))
print(libc.prctl(22,2,struct.pack('QQ',4,ctypes.addressof(code))))
print(libc.close_range(s.fileno(),s.fileno(),0),os.strerror(ctypes.get_errno()))
send(1); print(len(s.recv(9)))
for number in (90,600): os.dup2(0,number)
libc.closefrom(80)
for number in (90,600):
    try: os.fstat(number)
    except OSError as error: print(error.strerror)
send(2); print(len(s.recv(9)))
";
    let wanted = "0\n-1 Operation not permitted\n1\nBad file descriptor\nBad file descriptor\n2\n";
    assert_printed_by_ring(script, wanted, 2..=2);
}

#[test]
fn a_duplicate_that_was_made_before_bind_is_lazy_too() {
    let script = r"
s.close(); s=socket.socket(2,2)
copies=[s.dup(),socket.socket(fileno=os.dup2(s.fileno(),90))]; copies[0].dup().close()
copies[1].bind(('198.18.0.1',9995))
for socket in (s,*copies):
    send(1); print(len(select.select([socket],[],[])[0]),len(socket.recv(9)))
";
    assert_printed_by_ring(script, "1 1\n1 1\n1 1\n", 3..=3);
}

/// As libuv receives, waits and closes.
#[test]
fn calls_by_syscall_are_answered_as_those_by_name() {
    let calls = [
        ("close", libc::SYS_close),
        ("recvfrom", libc::SYS_recvfrom),
        ("recvmsg", libc::SYS_recvmsg),
        ("recvmmsg", libc::SYS_recvmmsg),
        ("epoll_ctl", libc::SYS_epoll_ctl),
        ("getpid", libc::SYS_getpid),
    ];
    let script = r"
import ctypes
def call(name,*arguments): return ctypes.CDLL(None).syscall(calls[name],*arguments)
epoll=select.epoll(); event=struct.pack('=IQ',select.EPOLLIN,s.fileno())
print(call('getpid')==os.getpid(),call('epoll_ctl',epoll.fileno(),1,s.fileno(),event))
part=Part(b' '*9,9)
messages=(Message*2)(*[Message(parts=ctypes.pointer(part),count=1) for _ in range(2)])
for length in (1,3000): send(length); print(len(epoll.poll()),call('recvfrom',s.fileno(),b' '*9,9,0,None,None))
send(2); print(call('recvmsg',s.fileno(),messages,0))
send(3,4); print(call('recvmmsg',s.fileno(),messages,2,0,None),messages[0].length,messages[1].length)
number=s.detach(); send(5); print(call('close',number))
read,write=os.pipe(); os.write(write,b'piped')
print(read==number,call('recvfrom',read,b' '*9,9,0,None,None),os.read(read,9))
";
    let wanted = "True 0\n1 1\n1 9\n2\n2 3 4\n0\nTrue -1 b'piped'\n";
    let calls = calls.map(|(name, number)| format!("'{name}':{number}")).join(",");
    assert_printed(&format!("calls={{{calls}}}\n{MESSAGES}{script}"), wanted);
}

/// libuv would wait by it.
#[test]
fn there_is_no_io_uring_by_syscall() {
    let network = Network::ipv4_only();
    let script = format!(
        "import ctypes,errno\nlibc=ctypes.CDLL(None,use_errno=True)\n\
         print(libc.syscall({},8,None),ctypes.get_errno()==errno.ENOSYS)\n",
        libc::SYS_io_uring_setup
    );
    let output = preloaded(&network, "python3", &["-c", &script]).wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "-1 True\n");
}

/// As by a program of its own, or by libuv before this library stood in for syscall(2).
#[test]
fn a_number_that_was_closed_past_libc_is_its_next_owners() {
    let script = r"
import ctypes
epoll=select.epoll()
def by_epoll(fd):
    try: epoll.register(fd,select.EPOLLIN)
    except FileExistsError: pass
    return epoll.poll(0)
def by_poll(fd):
    poll=select.poll(); poll.register(fd,select.POLLIN)
    return poll.poll(0)
def by_select(fd): return select.select([fd],[],[],0)[0]
def by_duplicate(fd): return by_select(os.dup(fd))
for by in (lambda fd: [],by_epoll,by_poll,by_select,by_duplicate):
    send(1)
    number=s.detach()
    ctypes.CDLL('libc.so.6').syscall(3,number)
    read,write=os.pipe()
    print(read==number,bool(by(read)),os.write(write,b'piped'),bool(by(read)),os.read(read,9))
    os.close(read); os.close(write)
    s=socket.socket(2,2); s.bind(('198.18.0.1',9995))
";
    let waited = "True False 5 True b'piped'\n".repeat(4);
    assert_printed(script, &format!("True False 5 False b'piped'\n{waited}"));
}

#[test]
fn a_number_that_was_in_an_epoll_set_may_become_a_lazy_socket() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = "import select,socket\n\
        first=socket.socket(2,2);epoll=select.epoll();epoll.register(first,select.EPOLLIN)\n\
        number=first.fileno();first.close()\n\
        s=socket.socket(2,2);s.bind(('198.18.0.1',9995));print(s.fileno()==number)\n";
    let output = preloaded(&network, "timeout", &["30", "python3", "-c", script]);
    let output = output.wait_with_output().unwrap();
    assert_eq!(
        [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()),
        ["True\n", ""]
    );
}

#[test]
fn a_socket_that_has_left_one_of_two_epoll_sets_is_waited_for_in_the_other() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = "import select,socket\n\
        s=socket.socket(2,2);one,other=select.epoll(),select.epoll()\n\
        one.register(s,select.EPOLLIN);other.register(s,select.EPOLLIN);one.unregister(s)\n\
        s.bind(('198.18.0.1',9995));print('bound',flush=True);print(len(other.poll(9)),s.recv(9).decode())\n";
    let mut python = preloaded(&network, "timeout", &["30", "python3", "-c", script]);
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("bound"));
    network.far_socket("198.18.0.2:0").send_to(b"here", LAZY).unwrap();
    assert_eq!(lines.next().as_deref(), Some("1 here"));
    assert!(python.wait().unwrap().success());
}

#[test]
fn epoll_tells_of_a_socket_once() {
    let script = r"
epoll=select.epoll(); epoll.register(s,select.EPOLLIN)
send(3000,10)
print(epoll.poll()==[(s.fileno(),select.EPOLLIN)])
print(len(s.recv(9999))+len(s.recv(9999)),epoll.poll(0))
epoll.modify(s,select.EPOLLIN|select.EPOLLET)
for length in (3000,10):
    send(length)
    print(len(epoll.poll()),epoll.poll(0),len(s.recv(9999)))
for length in (3000,10):
    epoll.modify(s,select.EPOLLIN|select.EPOLLONESHOT)
    send(length,100)
    print(len(epoll.poll()),epoll.poll(0),len(s.recv(9999))+len(s.recv(9999)))
epoll.modify(s,select.EPOLLOUT)
send(10)
print(epoll.poll()==[(s.fileno(),select.EPOLLOUT)])
epoll.unregister(s)
print(epoll.poll(0))
epoll.register(s,select.EPOLLIN)
print(epoll.poll()==[(s.fileno(),select.EPOLLIN)],len(s.recv(99)))
";
    let wanted = "True\n3010 []\n1 [] 3000\n1 [] 10\n1 [] 3100\n1 [] 110\nTrue\n[]\nTrue 10\n";
    assert_printed(script, wanted);
}

#[test]
fn preadv2_without_an_offset_reads() {
    let script = r"
room=bytearray(9)
for length in (3,3000): send(length); print(os.preadv(s.fileno(),[room],-1))
";
    assert_printed(script, "3\n9\n");
}

/// Whether a thread of this process is in futex(2).
fn waits_for_a_lock(thread: Pid) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
    call.starts_with(&format!("{} ", libc::SYS_futex))
}

#[test]
fn a_thread_waits_for_another_that_reads() {
    let (_network, _daemon, lazy, sender) = with_lazy_socket();
    send_numbers(&sender, 0..2);
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let (lazy, tell) = (&lazy, &tell);
        let received = lazy.recv_batch(1, |datagram| {
            assert_eq!(datagram.payload, 0_u32.to_ne_bytes());
            scope.spawn(move || {
                tell.send(rustix::thread::gettid()).unwrap();
                assert_eq!(receive_numbers(lazy, 1), [1]);
            });
            let other = told.recv().unwrap();
            wait_until("the other waits", || waits_for_a_lock(other));
            assert_eq!(lazy.dropped(), 0);
        });
        assert_eq!(received.unwrap(), 1);
    });
}

/// As a signal handler does that interrupts a receive.
#[test]
fn a_receive_within_a_receive_finds_nothing() {
    let (_network, _daemon, lazy, sender) = with_lazy_socket();
    send_numbers(&sender, 0..2);
    let mut inner = None;
    let received = lazy.recv_batch(1, |datagram| {
        assert_eq!(datagram.payload, 0_u32.to_ne_bytes());
        inner = Some(lazy.recv(&mut [0; 4]).map_err(|error| error.kind()));
    });
    assert_eq!((received.unwrap(), inner), (1, Some(Err(ErrorKind::WouldBlock))));
    assert_eq!(receive_numbers(&lazy, 1), [1]);
}

#[test]
fn processes_that_have_forked_share_a_socket() {
    const NUMBERS: u32 = 20_000;
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = "import socket,os,sys\n\
        s=socket.socket(2,2);s.bind(('198.18.0.1',9995));print('bound',flush=True);child=os.fork()\n\
        while (n:=s.recv(4))!=b'last': os.write(1,b'%d\\n'%int.from_bytes(n,sys.byteorder))\n\
        if child: sys.exit(os.waitpid(child,0)[1])\n";
    let mut python = preloaded(&network, "timeout", &["60", "python3", "-c", script]);
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "bound");
    let sender = network.far_socket("198.18.0.2:0");
    let mut said = Vec::new();
    for number in 0..NUMBERS {
        send_numbers(&sender, number..number + 1);
        // No more are on the way than a veth has room for.
        if number >= 100 {
            said.extend(lines.next());
        }
    }
    for _reader in 0..2 {
        sender.send_to(b"last", LAZY).unwrap();
    }
    said.extend(lines);
    assert!(python.wait().unwrap().success());
    let mut numbers: Vec<u32> = said.iter().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..NUMBERS));
    let sent = u64::from(NUMBERS) + 2;
    wait_until("they came by the ring", || network.count("lazy") == sent);
}
