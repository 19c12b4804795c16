//! Lazy sockets: several readers at once, and calls that answer as those of an ordinary socket do.

use std::io::{BufRead, BufReader};
use std::sync::mpsc::channel;

use crate::common::lazy::*;
use crate::common::*;
use rustix::process::Pid;

/// Whether a thread of this process is in futex(2).
fn waits_for_a_lock(thread: Pid) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
    call.starts_with(&format!("{} ", nix::libc::SYS_futex))
}

#[test]
fn a_thread_waits_for_another_that_reads() {
    let network = Network::ipv4_only();
    let _daemon = Daemon::start(&network, &["--lazy"]);
    let lazy = lazy_socket(&network, LAZY);
    assert_lazy(&lazy);
    send_numbers(&network.far_socket("198.18.0.2:0"), 0..2);
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

#[test]
fn processes_that_have_forked_share_a_socket() {
    const NUMBERS: u32 = 20_000;
    let network = Network::ipv4_only();
    let _daemon = Daemon::start(&network, &["--lazy"]);
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
