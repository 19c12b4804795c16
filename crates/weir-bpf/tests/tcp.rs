//! Which TCP segments belong to a connection, and whose it is: real connections, and packets run through the
//! loaded gate.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use common::{FAR_IP4, NEAR_IP4, NEAR_IP6, Network, wait_until};
use etherparse::TcpHeader;
use rustix::net::{AddressFamily, SocketType, bind, connect, listen, socket};
use weir_bpf::abi::REMEMBERED;
use weir_bpf::attach::AttachMode;
use weir_bpf::channels::Channel;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched;
use weir_bpf::traffic::{FlowSpec, Transport};
use weir_bpf::units::{CpuId, PacketsPerSec};
use weir_bpf::verdict::{Kind, Reason};

/// A listener's, and of the host's that are protected at the far end.
const SERVICE: u16 = 7000;
const PROTECTED: u16 = 179;
/// Whoever has sent nothing but strays: no port that the kernel gives to a connection (net.ipv4.ip_local_port_range).
const STRANGER: u16 = 20_000;

const ACK: u8 = 0x10;

struct Bench {
    network: Network,
    gate: Gate,
    cpu: CpuId,
    _probe: QueueProbe,
}

impl Bench {
    fn new() -> Self {
        let network = Network::new();
        network.make_far_a_host();
        let (mut gate, probe) = network.gate(AttachMode::Native, &[NEAR_IP4, NEAR_IP6], &[]);
        network.near.run(|| gate.stand_for(network.near_ifindex)).unwrap().unwrap();
        gate.set_protected_ports([PROTECTED]);
        Self { network, gate, cpu: *sched::online_cpus().unwrap().last().unwrap(), _probe: probe }
    }

    fn segment(&self, from: SocketAddr, to: SocketAddr, flags: u8) -> Vec<u8> {
        let mut header = TcpHeader::new(from.port(), to.port(), 1, 1024);
        (header.fin, header.syn, header.rst) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        (header.psh, header.ack) = (flags & 8 != 0, flags & 16 != 0);
        self.network.segment(from.ip(), to.ip(), header)
    }

    /// What the gate says of these packets, one after the other on one CPU. Every one passes.
    fn judge(&self, packets: &[Vec<u8>]) -> Vec<Reason> {
        let judge = || {
            sched::pin_current_thread(self.cpu).unwrap();
            packets.iter().map(|packet| self.network.judge(&self.gate, packet)).collect()
        };
        self.network.near.run(judge).unwrap()
    }

    /// What it says of an ACK once it looks again: before the first stray is seen, one segment stands for the
    /// [`REMEMBERED`] after it, as no NAPI poll ends here.
    fn judge_ack(&self, from: SocketAddr, to: SocketAddr) -> Reason {
        let acks = vec![self.segment(from, to, ACK); REMEMBERED + 1];
        self.judge(&acks)[REMEMBERED]
    }

    /// A connection that the far end opened to a listener of the near one, by both ends.
    fn accept(&self, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let address = listener.local_addr().unwrap();
        let far = self.network.far.run(|| TcpStream::connect(address).unwrap()).unwrap();
        (listener.accept().unwrap().0, far)
    }

    /// A connection that the near end opened to this port, by both ends.
    fn open(&self, port: u16) -> (TcpStream, TcpStream) {
        let at = far(port);
        let listener = self.network.far.run(|| TcpListener::bind(at).unwrap()).unwrap();
        let near = self.network.near.run(|| TcpStream::connect(at).unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn listen(&self, port: u16) -> TcpListener {
        self.network.near.run(|| TcpListener::bind(near(port)).unwrap()).unwrap()
    }

    fn passed(&self, kind: Kind, port: u16) -> u64 {
        let channel = Channel { local: Some(pair(near(port))), ..Channel::of_kind(kind) };
        let channels = self.gate.channels().unwrap();
        channels.by_channel.get(&channel).map_or(0, |seen| seen.passed.packets)
    }
}

fn near(port: u16) -> SocketAddr {
    SocketAddr::new(NEAR_IP4.parse().unwrap(), port)
}

fn far(port: u16) -> SocketAddr {
    SocketAddr::new(FAR_IP4.parse().unwrap(), port)
}

fn pair(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip(), address.port())
}

#[test]
fn whatever_belongs_to_no_connection_is_a_stray() {
    let bench = Bench::new();
    let _listener = bench.listen(SERVICE);
    // FIN, RST, data, SYN-ACK, nothing at all; only a SYN is a request.
    for flags in [ACK, 0x11, 0x04, 0x14, 0x18, 0x12, 0x00, 0x29] {
        let segment = bench.segment(far(STRANGER), near(SERVICE), flags);
        assert_eq!(bench.judge(&[segment])[0], Reason::TcpStray, "flags {flags:#x}");
    }
    let syn = bench.segment(far(STRANGER), near(SERVICE), 0x02);
    assert_eq!(bench.judge(&[syn])[0], Reason::TcpSyn);
    let to_nobody = bench.segment(far(STRANGER), near(SERVICE + 1), ACK);
    assert_eq!(bench.judge(&[to_nobody])[0], Reason::TcpNoSocket);
    assert_eq!(bench.passed(Kind::TcpStray, SERVICE), 8);
    assert_eq!(bench.passed(Kind::Tcp, SERVICE), 1);
}

#[test]
fn ipv6_segments_are_told_apart_too() {
    let bench = Bench::new();
    let ip: IpAddr = NEAR_IP6.parse().unwrap();
    let connect = || {
        let links = Links::open().unwrap();
        links.set_up(links.index("lo").unwrap()).unwrap();
        let listener = TcpListener::bind((ip, SERVICE)).unwrap();
        let client = TcpStream::connect((ip, SERVICE)).unwrap();
        (listener.accept().unwrap().0, client, listener)
    };
    let (_server, client, _listener) = bench.network.near.run(connect).unwrap();
    let (client, service) = (client.local_addr().unwrap(), SocketAddr::new(ip, SERVICE));
    let stranger = SocketAddr::new(ip, STRANGER);
    assert_eq!(bench.judge_ack(stranger, service), Reason::TcpStray);
    assert_eq!(bench.judge_ack(client, service), Reason::TcpSegment);
    assert_eq!(bench.judge_ack(service, client), Reason::TcpClient);
    assert_eq!(bench.judge_ack(stranger, client), Reason::TcpNoSocket);
}

/// From the first stray that is seen on, each segment is looked for, and the two are counted apart.
#[test]
fn strays_and_a_connections_segments_are_counted_apart() {
    let bench = Bench::new();
    let listener = bench.listen(SERVICE);
    let (_server, client) = bench.accept(&listener);
    let client = client.local_addr().unwrap();
    let first = bench.segment(far(STRANGER), near(SERVICE), ACK);
    assert_eq!(bench.judge(&[first])[0], Reason::TcpStray);
    let own = bench.segment(client, near(SERVICE), ACK);
    let packets: Vec<_> = (0..200_u16)
        .flat_map(|n| {
            [own.clone(), bench.segment(far(STRANGER + n), near(SERVICE), ACK), own.clone()]
        })
        .collect();
    for (number, reason) in bench.judge(&packets).into_iter().enumerate() {
        let expected = if number % 3 == 1 { Reason::TcpStray } else { Reason::TcpSegment };
        assert_eq!(reason, expected, "packet {number}");
    }
    assert_eq!(bench.passed(Kind::TcpStray, SERVICE), 201);
    assert_eq!(bench.passed(Kind::Tcp, SERVICE), 400);
}

#[test]
fn a_connection_that_is_closing_is_a_connection() {
    let bench = Bench::new();
    let listener = bench.listen(SERVICE);
    let (server, client) = bench.accept(&listener);
    let from = client.local_addr().unwrap();
    // Who closes first is in TIME_WAIT once both have.
    drop(server);
    (&client).read_exact(&mut [0]).unwrap_err();
    drop(client);
    let in_time_wait = || {
        let text = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        text.lines().any(|line| line.contains(" 06 "))
    };
    bench.network.near.run(|| wait_until("it is in TIME_WAIT", in_time_wait)).unwrap();
    assert_eq!(bench.judge_ack(from, near(SERVICE)), Reason::TcpSegment);
    assert_eq!(bench.judge_ack(far(STRANGER), near(SERVICE)), Reason::TcpStray);
}

/// Nobody answers the listener, so the request stays.
#[test]
fn a_handshake_under_way_is_a_connection() {
    let bench = Bench::new();
    let _listener = bench.listen(SERVICE);
    let network = &bench.network;
    let nobody = Ipv4Addr::new(198, 18, 0, 200);
    let known = || {
        let links = Links::open().unwrap();
        links.add_neighbour(network.near_ifindex, nobody.into(), network.far_mac).unwrap();
    };
    network.near.run(known).unwrap();
    let flow = FlowSpec {
        transport: Transport::TcpSyn,
        rate: Some(PacketsPerSec(100.0)),
        ..FlowSpec::udp(
            (network.far_mac, network.near_mac),
            (nobody.into(), NEAR_IP4.parse().unwrap()),
            (STRANGER, SERVICE),
        )
    };
    let requested = || {
        let text = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        text.lines().any(|line| line.contains(" 03 "))
    };
    network.while_sent(&mut network.generator(), &[flow], None, |_| {
        network.near.run(|| wait_until("the request is there", requested)).unwrap();
    });
    let client = SocketAddr::new(nobody.into(), STRANGER);
    assert_eq!(bench.judge_ack(client, near(SERVICE)), Reason::TcpSegment);
    let other = SocketAddr::new(nobody.into(), STRANGER + 1);
    assert_eq!(bench.judge_ack(other, near(SERVICE)), Reason::TcpStray);
}

#[test]
fn connections_to_a_protected_port_have_channels_of_their_own() {
    let mut bench = Bench::new();
    let (usual, _usual_peer) = bench.open(8080);
    let (bgp, _bgp_peer) = bench.open(PROTECTED);
    let (usual, bgp) = (usual.local_addr().unwrap(), bgp.local_addr().unwrap());
    assert_eq!(bench.judge_ack(far(8080), usual), Reason::TcpClient);
    assert_eq!(bench.judge_ack(far(PROTECTED), bgp), Reason::TcpPeer);
    assert_eq!(bench.passed(Kind::TcpPeer, PROTECTED), REMEMBERED as u64 + 1);
    // The port alone is no claim to it: not to the connection's own port, nor to another's.
    let other = SocketAddr::new("198.18.0.77".parse().unwrap(), PROTECTED);
    assert_eq!(bench.judge_ack(other, bgp), Reason::TcpNoSocket);
    assert_eq!(bench.judge_ack(far(PROTECTED), usual), Reason::TcpNoSocket);
    assert_eq!(bench.judge_ack(far(PROTECTED), near(SERVICE)), Reason::TcpNoSocket);
    assert_eq!(bench.judge_ack(far(PROTECTED), bgp), Reason::TcpPeer, "beside strays too");
    // Other ports from now on.
    bench.gate.set_protected_ports([8080]);
    assert_eq!(bench.judge_ack(far(8080), usual), Reason::TcpPeer);
    assert_eq!(bench.judge_ack(far(PROTECTED), bgp), Reason::TcpClient);
}

/// Who connects from a protected port, for which it takes no more than root at his own host, is no peer: also
/// when the listener has gone, as an FTP server's has.
#[test]
fn a_connection_that_was_accepted_is_no_peers() {
    let bench = Bench::new();
    let dial = |to: SocketAddr| {
        let dial = || {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            bind(&socket, &far(PROTECTED)).unwrap();
            connect(&socket, &to).unwrap();
            socket
        };
        bench.network.far.run(dial).unwrap()
    };
    let listener = bench.listen(SERVICE);
    let _dialled = dial(near(SERVICE));
    let accepted = listener.accept().unwrap();
    assert_eq!(bench.judge_ack(far(PROTECTED), near(SERVICE)), Reason::TcpSegment);
    drop(listener);
    assert_eq!(bench.judge_ack(far(PROTECTED), near(SERVICE)), Reason::TcpSegment);
    drop(accepted);
}

/// Its connections look as if this host had opened them, but for the listener.
#[test]
fn a_listener_without_a_backlog_is_a_listener() {
    let bench = Bench::new();
    let make = || {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &near(SERVICE)).unwrap();
        listen(&socket, 0).unwrap();
        TcpListener::from(socket)
    };
    let listener = bench.network.near.run(make).unwrap();
    let (_server, client) = bench.accept(&listener);
    assert_eq!(bench.judge_ack(client.local_addr().unwrap(), near(SERVICE)), Reason::TcpSegment);
}

/// A listener that answers every request by SYN cookie has nothing to know the client's ACK by.
#[test]
fn the_answer_to_a_syn_cookie_is_admitted() {
    let mut bench = Bench::new();
    let listener = bench.listen(SERVICE);
    bench.network.attach(&mut bench.gate, AttachMode::Native);
    let always = || std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap();
    bench.network.near.run(always).unwrap();
    let (mut server, mut client) = bench.accept(&listener);
    client.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    server.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    let counters = bench.gate.counters().unwrap();
    assert!(counters.get(Reason::TcpStray).packets >= 1);
    assert_eq!(counters.get(Reason::TcpStrayShare).packets, 0);
}
