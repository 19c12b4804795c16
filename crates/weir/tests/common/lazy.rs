//! Lazy sockets of tests, and numbers that are sent to them.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use weir_bpf::sys::netns;
use weir_socket::LazyUdpSocket;
use weir_socket::protocol::socket_path;

use super::{Daemon, Network, PATIENCE, protected_ipv4, wait_until};

pub const LAZY: &str = "198.18.0.1:9995";

pub fn lazy_socket(network: &Network, address: &str) -> LazyUdpSocket {
    // A socket that had the address is a child's of another test, too, until that begins with its program.
    let mut bound = None;
    wait_until("the address is free", || {
        let bind = || LazyUdpSocket::bind(address);
        match network.near.run(bind).unwrap() {
            Err(error) if error.kind() == ErrorKind::AddrInUse => false,
            socket => {
                bound = Some(socket.unwrap());
                true
            }
        }
    });
    let socket = bound.unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A network with a weir that offers lazy sockets, one of those, and who sends to it.
pub fn with_lazy_socket() -> (Network, Daemon, LazyUdpSocket, UdpSocket) {
    let (network, daemon) = protected_ipv4(&["--lazy"]);
    let lazy = lazy_socket(&network, LAZY);
    assert_lazy(&lazy);
    let sender = network.far_socket("198.18.0.2:0");
    (network, daemon, lazy, sender)
}

pub fn assert_lazy(socket: &LazyUdpSocket) {
    assert_eq!(socket.ordinary(), None);
}

/// Numbers, each sent as four bytes, in the order in which they are received; up to and with this one.
pub fn receive_numbers(socket: &LazyUdpSocket, last: u32) -> Vec<u32> {
    let mut received = Vec::new();
    while received.last() != Some(&last) {
        let mut number = [0; 4];
        assert_eq!(socket.recv(&mut number).unwrap(), 4);
        received.push(u32::from_ne_bytes(number));
    }
    received
}

pub fn send_numbers(sender: &UdpSocket, numbers: std::ops::Range<u32>) {
    for number in numbers {
        sender.send_to(&number.to_ne_bytes(), LAZY).unwrap();
        // A veth's ring has 256 places.
        if number.is_multiple_of(64) {
            std::thread::yield_now();
        }
    }
}

/// Of this build, beside the tests.
pub fn artifact(name: &str) -> String {
    let path = std::env::current_exe().unwrap().with_file_name(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo test -p weir-preload -p weir-socket --no-run` makes it",
        path.display()
    );
    path.to_str().unwrap().to_owned()
}

/// Where a network's weir is asked for rings.
pub fn daemon_socket(network: &Network) -> PathBuf {
    socket_path(network.near.run(|| netns::cookie().unwrap()).unwrap())
}

/// Whoever asks there.
pub fn connect_to(path: &Path) -> OwnedFd {
    let client =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    sockopt::set_socket_timeout(&client, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
    connect(&client, &SocketAddrUnix::new(path).unwrap()).unwrap();
    client
}

/// A program that does not know of weir, to be made lazy.
pub fn preloading(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", artifact("libweir_preload.so"));
    command
}

/// The same, started.
pub fn preloaded(network: &Network, program: &str, arguments: &[&str]) -> Child {
    let mut command = preloading(program, arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    network.near.run(|| command.spawn().unwrap()).unwrap()
}
