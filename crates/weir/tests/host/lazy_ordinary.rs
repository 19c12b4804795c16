//! Lazy sockets that become ordinary ones, as what a program does with them cannot be seen; and sockets that stay
//! ordinary, as the program has no room for more, or weir does not answer.

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::lazy::*;
use crate::common::*;
use rustix::process::Signal;

/// The ring's own epoll set, in the program's, would be one level too deep.
const NESTED: &str = r"
import os,select,socket,sys
def nested(fd,depth):
    sets=[select.epoll() for _ in range(depth)]
    for inner,outer in zip(sets,sets[1:]): outer.register(inner,select.EPOLLIN)
    sets[0].register(fd,select.EPOLLIN)
    return sets
depth=1; pipe=os.pipe()[0]
try:
    while nested(pipe,depth+1): depth+=1
except OSError: pass
def bound():
    s=socket.socket(2,2); s.bind(('198.18.0.1',9995))
    return s
";

fn nested(network: &Network, script: &str) -> Child {
    preloaded(network, "timeout", &["60", "python3", "-c", &format!("{NESTED}{script}")])
}

#[test]
fn a_socket_whose_ring_cannot_be_waited_for_is_an_ordinary_one() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = r"
s=bound(); same=s.dup(); sets=nested(s,depth); print('waits',flush=True)
print(len(sets[-1].poll(9)),same.recv(9).decode())
";
    let mut python = nested(&network, script);
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("waits"));
    network.far_socket("198.18.0.2:0").send_to(b"here", LAZY).unwrap();
    assert_eq!(lines.next().as_deref(), Some("1 here"));
    let said = String::from_utf8(python.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("its ring cannot be added to an epoll set"), "{said}");
}

/// Two halves could not disarm each other.
#[test]
fn a_socket_that_is_told_of_once_for_reading_and_writing_is_an_ordinary_one() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = r"
import fcntl,struct,termios
s=bound(); once=select.EPOLLIN|select.EPOLLOUT|select.EPOLLONESHOT
first,epoll=select.epoll(),select.epoll()
first.register(s,select.EPOLLIN); first.modify(s,once); epoll.register(s,once); print('waits',flush=True)
while struct.unpack('i',fcntl.ioctl(s,termios.FIONREAD,b'....'))[0]==0: pass
for epoll in (first,epoll):
    for _ in range(2):
        print(epoll.poll(0)==[(s.fileno(),select.EPOLLIN|select.EPOLLOUT)],epoll.poll(0))
        epoll.modify(s,once)
print(s.recv(9).decode(),epoll.poll(0)==[(s.fileno(),select.EPOLLOUT)],epoll.poll(0))
";
    let mut python = nested(&network, script);
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("waits"));
    let notes = || network.interface_status()["notes"].to_string();
    // What was published before it came says the same.
    network.wait_until_published_again();
    wait_until("weir has left", || notes().contains("lazy sockets: 0,"));
    network.far_socket("198.18.0.2:0").send_to(b"here", LAZY).unwrap();
    assert_eq!(
        lines.collect::<Vec<_>>(),
        ["True []", "True []", "True []", "True []", "here True []"]
    );
    let said = String::from_utf8(python.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("EPOLLONESHOT is asked for with more than EPOLLIN"), "{said}");
}

#[test]
fn a_socket_that_is_read_past_the_library_is_an_ordinary_one() {
    let stream = r"
import ctypes
libc=ctypes.CDLL(None); libc.fdopen.restype=ctypes.c_void_p
s=bound(); file=ctypes.c_void_p(libc.fdopen(s.fileno(),b'r+')); print('waits',flush=True)
line=ctypes.create_string_buffer(9); libc.fgets(line,9,file); print(line.value.decode(),end='')
";
    let spliced = r"
s=bound(); read,write=os.pipe(); s.setblocking(False)
try: os.splice(s.fileno(),write,9)
except BlockingIOError: print('waits',flush=True)
while True:
    try: print(os.splice(s.fileno(),write,9),os.read(read,9)); break
    except BlockingIOError: select.select([s],[],[])
";
    let passed = r"
one,other=socket.socketpair()
if os.fork()==0:
    _,fd=socket.recv_fds(one,1,2)[1]
    print('waits',flush=True); print(os.read(fd,9).decode(),end=''); sys.exit()
s=bound(); socket.send_fds(other,[b'x'],[0,s.fileno()]); os.wait()
";
    for (script, heard, why) in [
        (stream, "here", "it is read as a stream"),
        (spliced, "5 b'here\\n'", "it is spliced"),
        (passed, "here", "it is passed on"),
    ] {
        let (network, _daemon) = protected_ipv4(&["--lazy"]);
        let mut python = nested(&network, script);
        let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("waits"));
        network.wait_until_published_again();
        wait_until("weir has left", || {
            network.interface_status()["notes"].to_string().contains("lazy sockets: 0,")
        });
        network.far_socket("198.18.0.2:0").send_to(b"here\n", LAZY).unwrap();
        assert_eq!(lines.next().as_deref(), Some(heard));
        let said = String::from_utf8(python.wait_with_output().unwrap().stderr).unwrap();
        assert!(said.contains(why), "{said}");
    }
}

/// As from liburing, which a plugin may have for itself alone. A kernel may refuse an io_uring.
#[test]
fn the_sockets_of_a_program_that_has_an_io_uring_are_ordinary_ones() {
    let library = std::env::temp_dir().join(format!("weir-test-{}-uring.so", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-Wl,-soname,liburing.so.2", "-xc", "-", "-o"])
        .arg(&library);
    let mut compiler = compiler.stdin(Stdio::piped()).spawn().unwrap();
    let code = b"int io_uring_queue_init(unsigned n, void *r, unsigned f) { return n ? 0 : -22; }";
    compiler.stdin.take().unwrap().write_all(code).unwrap();
    assert!(compiler.wait().unwrap().success());
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = r"
import ctypes
def init(n): return ctypes.CDLL(None).io_uring_queue_init(n,None,0)
s=bound(); print(init(8),flush=True); input()
liburing=ctypes.CDLL(sys.argv[1]); print(init(0),flush=True); input()
print(init(8)); other=socket.socket(2,2); other.bind(('198.18.0.1',9996)); print('waits',flush=True)
line=ctypes.create_string_buffer(9); ctypes.CDLL('libc.so.6').recv(s.fileno(),line,9,0); print(line.value.decode())
";
    let script = format!("{NESTED}{script}");
    let mut python = preloading("timeout", &["60", "python3", "-c", &script]);
    python.arg(&library).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut python = network.near.run(|| python.spawn().unwrap()).unwrap();
    let mut goes_on = python.stdin.take().unwrap();
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    let has = |lazy: &str| {
        network.wait_until_published_again();
        wait_until(lazy, || network.interface_status()["notes"].to_string().contains(lazy));
    };
    for refused in ["-38", "-22"] {
        assert_eq!(lines.next().as_deref(), Some(refused));
        has("lazy sockets: 1,");
        goes_on.write_all(b"\n").unwrap();
    }
    assert_eq!(lines.next().as_deref(), Some("0"));
    assert_eq!(lines.next().as_deref(), Some("waits"));
    std::fs::remove_file(&library).unwrap();
    has("lazy sockets: 0,");
    network.far_socket("198.18.0.2:0").send_to(b"here", LAZY).unwrap();
    assert_eq!(lines.next().as_deref(), Some("here"));
    let said = String::from_utf8(python.wait_with_output().unwrap().stderr).unwrap();
    assert_eq!(said.matches("the program has an io_uring").count(), 1, "{said}");
}

/// `waited()` binds each socket, in turn, and says how it is waited for. Of the numbers that are sent meanwhile, all
/// behind the first that comes are received; where none has come it was too late, and is tried again.
fn assert_none_is_lost(script: &str, why: &str) {
    const NUMBERS: u32 = 200;
    const ROUNDS: usize = 30;
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let rounds = format!(
        r"
rounds=0
for _ in range({ROUNDS}+5):
    if rounds=={ROUNDS}: break
    s=socket.socket(2,2); s.setblocking(False)
    print('binds',flush=True)
    sets=waited(s); poll=sets[-1].poll; missing=set(range({NUMBERS})); first={NUMBERS}
    while missing and first<=max(missing) and poll(9) or first=={NUMBERS} and poll(1):
        try:
            while True:
                number=int.from_bytes(s.recv(9),sys.byteorder)
                missing.remove(number); first=min(first,number)
        except BlockingIOError: pass
    if first<{NUMBERS}:
        rounds+=1; print('lost',len([number for number in missing if number>first]),flush=True)
    s.close()
"
    );
    let mut python = nested(&network, &format!("{script}{rounds}"));
    let lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    let sender = network.far_socket("198.18.0.2:0");
    let mut received = Vec::new();
    for line in lines {
        if line != "binds" {
            received.push(line);
            continue;
        }
        for number in 0..NUMBERS {
            send_numbers(&sender, number..number + 1);
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    let said = String::from_utf8(python.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains(why), "{said}");
    assert_eq!(received, vec!["lost 0"; ROUNDS]);
}

#[test]
fn a_socket_that_becomes_an_ordinary_one_loses_nothing() {
    let script = r"
def waited(s):
    s.bind(('198.18.0.1',9995))
    return nested(s,depth)
";
    assert_none_is_lost(script, "its ring cannot be added to an epoll set");
}

#[test]
fn a_program_that_has_no_room_for_a_ring_loses_nothing() {
    for limit in [
        "resource.RLIMIT_AS,resource.getpagesize()*int(open('/proc/self/statm').read().split()[0])+(1<<20)",
        "resource.RLIMIT_NOFILE,s.fileno()+3",
    ] {
        let script = format!(
            r"
import resource
def waited(s):
    limit,most={limit}
    before=resource.getrlimit(limit); resource.setrlimit(limit,(most,before[1]))
    s.bind(('198.18.0.1',9995)); resource.setrlimit(limit,before)
    return nested(s,1)
"
        );
        assert_none_is_lost(&script, "9995 has an ordinary socket");
    }
}

/// What a program prints whose first sockets are lazy, and what it is told.
fn limited(network: &Network, ring_bytes: &str, script: &str) -> (String, String) {
    let prelude = "import resource,select,socket\n\
        def limit(which,to): resource.setrlimit(which,(to,to))\n\
        def bound(port):\n s=socket.socket(2,2);s.bind(('198.18.0.1',port))\n return s\n";
    let script = format!("{prelude}{script}");
    let mut python = preloading("timeout", &["60", "python3", "-c", &script]);
    python.env("WEIR_RING_BYTES", ring_bytes);
    let output = network.near.run(|| python.output().unwrap()).unwrap();
    let [printed, said] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (printed, said)
}

#[test]
fn a_programs_own_limits_are_left_to_it() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let descriptors = "limit(resource.RLIMIT_NOFILE,128); all=[bound(2000+at) for at in range(100)]\n\
        open('/dev/null'); print(len(all))\n";
    let (printed, said) = limited(&network, "65536", descriptors);
    assert_eq!(printed, "100\n", "{said}");
    assert!(said.contains("2005 has an ordinary socket") && said.contains("`ulimit -n`"), "{said}");

    let selects = "limit(resource.RLIMIT_NOFILE,4096); all=[bound(2000+at) for at in range(50)]\n\
        all+=[socket.socket() for _ in range(900)]; print(select.select(all[-1:],[],[],0)[0]==all[-1:])\n";
    assert_eq!(limited(&network, "65536", selects), ("True\n".into(), String::new()));

    let memory = "used=int(open('/proc/self/statm').read().split()[0])*resource.getpagesize()\n\
        limit(resource.RLIMIT_AS,used+(26<<20)); all=[bound(2000+at) for at in range(3)]\n\
        print(len(bytearray(20<<20))>>20)\n";
    let (printed, said) = limited(&network, "4194304", memory);
    assert_eq!(printed, "20\n", "{said}");
    assert!(said.contains("`ulimit -v`"), "{said}");
}

/// What it does not take of what is sent to it stays open, whoever has sent it.
#[test]
fn a_weir_that_does_not_answer_keeps_no_port_and_is_not_asked_for_each_socket() {
    let (network, daemon) = protected_ipv4(&["--lazy"]);
    daemon.signal(Signal::STOP);
    let script = "import time;begun=time.monotonic()\n\
        for port in range(9990,10000): bound(port).close()\n\
        print(time.monotonic()-begun<5)\n";
    let (printed, said) = limited(&network, "65536", script);
    let bound = network.near.run(|| UdpSocket::bind(LAZY).map(drop)).unwrap();
    daemon.signal(Signal::CONT);
    assert_eq!(bound.map_err(|error| error.kind()), Ok(()));
    assert_eq!(printed, "True\n", "{said}");
    assert!(said.contains("weir does not answer: it is stopped or overloaded"), "{said}");
}
