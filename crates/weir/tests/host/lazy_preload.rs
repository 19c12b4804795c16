//! The preload library beside what a program does itself: with standard error, or with the crate.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStderr, Stdio};

use crate::common::lazy::*;
use crate::common::*;

/// What a script prints in whose socket, bound by `bind()`, the user is told of something; standard error is a pipe.
fn printed(script: &str, prepare: impl FnOnce(ChildStderr) -> Option<ChildStderr>) -> String {
    let network = Network::ipv4_only();
    let script = format!(
        "import os,signal,socket\nsignal.signal(signal.SIGPIPE,signal.SIG_DFL)\n\
         def bind():\n s=socket.socket(2,2); s.bind(('0.0.0.0',5001))\ninput()\n{script}"
    );
    let mut command = preloading("timeout", &["20", "python3", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut python = network.near.run(|| command.spawn().unwrap()).unwrap();
    let _stderr = prepare(python.stderr.take().unwrap());
    python.stdin.take().unwrap().write_all(b"\n").unwrap();
    String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn a_program_whose_standard_error_nobody_reads_goes_on() {
    assert_eq!(printed("bind(); print('bound',signal.sigpending())", |_| None), "bound set()\n");
    let full = "os.set_blocking(2,False)\n\
        try:\n while True: os.write(2,bytes(4096))\n\
        except BlockingIOError: os.set_blocking(2,True)\n\
        bind(); print('bound')";
    assert_eq!(printed(full, Some), "bound\n");
}

#[test]
fn a_file_that_has_standard_errors_number_is_the_programs() {
    let script = "os.close(2); data=os.memfd_create('data'); os.write(data,b'own')\n\
        bind(); print(data,os.pread(data,99,0))";
    assert_eq!(printed(script, Some), "2 b'own'\n");
}

/// The standard library's bind(2) has made the socket lazy before the crate can.
#[test]
fn the_crate_receives_in_a_preloaded_program() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let example = artifact("../examples/receive");
    let mut receiver = preloaded(&network, "timeout", &["20", &example, LAZY]);
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.contains("lazy already"), "{first}");
    network.far_socket("198.18.0.2:0").send_to(b"here", LAZY).unwrap();
    wait_until("it came by the ring", || network.count("lazy") == 1);
    let counted = lines.take(3).find(|line| line.starts_with("1 datagrams, 4 bytes"));
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    assert!(counted.is_some());
}
