//! A place for sockets, and processes that have them open.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use weir_bpf::sys::link::Links;
use weir_bpf::sys::netns::NetNs;

/// Runs it in a network namespace of its own, which has a loopback interface alone.
pub fn sandbox(test: impl FnOnce() + Send) {
    NetNs::create()
        .expect("the tests need root")
        .run(|| {
            let links = Links::open().unwrap();
            links.set_up(links.index("lo").unwrap()).unwrap();
            test();
        })
        .unwrap();
}

/// A process that sleeps, and is killed on drop.
pub struct Sleeper(Child);

impl Sleeper {
    /// Has a socket open, as its standard input.
    pub fn with(socket: impl Into<OwnedFd>) -> Self {
        Self::run(&["sleep", "100"], socket)
    }

    pub fn run(command: &[&str], stdin: impl Into<OwnedFd>) -> Self {
        let mut spawned = Command::new(command[0]);
        spawned.args(&command[1..]).stdout(Stdio::null());
        Self::spawn(spawned, stdin)
    }

    /// Takes the command, which has the sockets open as long as it is there.
    pub fn spawn(mut command: Command, stdin: impl Into<OwnedFd>) -> Self {
        Self(command.stdin(Stdio::from(stdin.into())).spawn().unwrap())
    }

    pub fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn bound(address: &str) -> UdpSocket {
    UdpSocket::bind(address).unwrap()
}
