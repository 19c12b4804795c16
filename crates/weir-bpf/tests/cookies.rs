//! SYN cookies at the gate: what it answers, what it leaves to the kernel, and that the kernel takes the cookies for its
//! own, on real connections.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use common::{FAR_IP6, NEAR_IP4, NEAR_IP6, Network, alone, wait_until};
use etherparse::{
    Ethernet2Header, NetSlice, SlicedPacket, TcpHeader, TcpOptionElement, TransportSlice,
};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::ipproto::MPTCP;
use rustix::net::{AddressFamily, Protocol, SocketType, bind, listen, socket, sockopt};
use weir_bpf::accounts::{Accounts, until};
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Cookies, Gate, QueueProbe};
use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::sched;
use weir_bpf::sys::snmp::tcp_stats;
use weir_bpf::traffic::{FlowSpec, Generator, Sources, Transport};
use weir_bpf::units::{CpuId, PacketsPerSec};
use weir_bpf::verdict::{Kind, Reason};

const SERVICE: u16 = 7000;
const COOKIES: Cookies = Cookies { mtu: 1500, ttl: 61, hops: 62 };
const SEQUENCE: u32 = 0xffff_ffff;
/// A client's that is far away, and of no importance to this host.
const STRANGERS: [&str; 2] = ["198.18.0.200", "2001:2::200"];
const FLOOD_PPS: f64 = 300_000.0;
const PATIENCE: Duration = Duration::from_secs(10);

/// What is set on a socket.
type With = fn(&OwnedFd);

struct Bench {
    network: Network,
    gate: Gate,
    cpu: CpuId,
    generator: Mutex<Generator>,
    _probe: QueueProbe,
    /// A flood takes a CPU.
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(mode: AttachMode) -> Self {
        let alone = alone();
        let network = Network::new();
        network.make_far_a_host();
        let far = || {
            let links = Links::open().unwrap();
            // Else it takes no frames of XDP's.
            ethtool::set_gro("far", true).unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/far/disable_ipv6", "0").unwrap();
            links.add_address(network.far_ifindex, FAR_IP6.parse().unwrap(), 64).unwrap();
            let near = NEAR_IP6.parse().unwrap();
            links.add_neighbour(network.far_ifindex, near, network.near_mac).unwrap();
        };
        network.far.run(far).unwrap();
        let known = || {
            let links = Links::open().unwrap();
            for stranger in STRANGERS {
                let stranger = stranger.parse().unwrap();
                links.add_neighbour(network.near_ifindex, stranger, network.far_mac).unwrap();
            }
        };
        network.near.run(known).unwrap();
        let (mut gate, probe) = network.gate(mode, &[NEAR_IP4, NEAR_IP6], &[]);
        network.near.run(|| gate.stand_for(network.near_ifindex)).unwrap().unwrap();
        gate.set_cookies(Some(COOKIES));
        let cpus = sched::online_cpus().unwrap();
        let generator = Mutex::new(network.generator());
        let cpu = *cpus.last().unwrap();
        let bench = Self { network, gate, cpu, generator, _probe: probe, _alone: alone };
        bench.short_for(Duration::from_secs(600));
        bench
    }

    /// Tells that each CPU is short.
    fn short_for(&self, time: Duration) {
        let accounts = Accounts::open(self.gate.channel_map_ids().unwrap().accounts).unwrap();
        for cpu in sched::online_cpus().unwrap() {
            accounts.short(cpu, Kind::TcpRequest, until(time));
        }
    }

    /// A listener whose queue of requests is full: nobody answers the first one.
    fn full_listener(&self, ip: &str, with: With) -> OwnedFd {
        self.full_listener_of(ip, None, with)
    }

    fn full_listener_of(&self, ip: &str, protocol: Option<Protocol>, with: With) -> OwnedFd {
        let listener = self.filled_listener(ip, protocol, with);
        self.have_a_cookie_sent(ip);
        listener
    }

    /// The kernel has answered none of its requests by cookie.
    fn filled_listener(&self, ip: &str, protocol: Option<Protocol>, with: With) -> OwnedFd {
        let address = SocketAddr::new(ip.parse().unwrap(), SERVICE);
        let open = || {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let listener = socket(family, SocketType::STREAM, protocol).unwrap();
            sockopt::set_socket_reuseaddr(&listener, true).unwrap();
            with(&listener);
            bind(&listener, &address).unwrap();
            listen(&listener, 1).unwrap();
            listener
        };
        let listener = self.network.near.run(open).unwrap();
        let asked = || self.judge(&self.syn(ip, &[]));
        // What is known of another listener there holds for a moment.
        wait_until("the queue is empty", || asked() == Reason::TcpSyn);
        self.send_cookies(false);
        self.while_sent(self.few_requests(ip), || {
            // The second of a poll is answered already.
            let is_full = || matches!(asked(), Reason::TcpRequest | Reason::TcpCookie);
            wait_until("the queue is full", is_full);
        });
        self.send_cookies(true);
        listener
    }

    fn send_cookies(&self, sends: bool) {
        let set =
            || std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", ["0", "1"][usize::from(sends)]);
        self.network.near.run(set).unwrap().unwrap();
    }

    /// By the kernel.
    fn have_a_cookie_sent(&self, ip: &str) {
        let sent = || self.network.near.run(|| tcp_stats().unwrap()).unwrap().syn_cookies_sent;
        let before = sent();
        self.while_sent(self.few_requests(ip), || {
            wait_until("the kernel has sent a cookie", || sent() > before);
        });
    }

    fn few_requests(&self, ip: &str) -> FlowSpec {
        FlowSpec { rate: Some(PacketsPerSec(100.0)), ..self.requests(ip) }
    }

    fn while_sent(&self, flow: FlowSpec, body: impl FnOnce()) {
        let mut generator = self.generator.lock().unwrap();
        self.network.while_sent(&mut generator, &[flow], None, |_| body());
    }

    /// A flood of them, from one stranger.
    fn requests(&self, ip: &str) -> FlowSpec {
        let near: IpAddr = ip.parse().unwrap();
        let stranger = STRANGERS[usize::from(near.is_ipv6())].parse().unwrap();
        let macs = (self.network.far_mac, self.network.near_mac);
        FlowSpec {
            transport: Transport::TcpSyn,
            sources: Sources::Random { address_bits: 0, port_bits: 12 },
            rate: Some(PacketsPerSec(FLOOD_PPS)),
            ..FlowSpec::udp(macs, (stranger, near), (4096, SERVICE))
        }
    }

    /// Another stranger's request.
    fn syn(&self, ip: &str, options: &[TcpOptionElement]) -> Vec<u8> {
        self.syn_from(["198.18.0.77", "2001:2::77"][usize::from(ip.contains(':'))], ip, options)
    }

    fn syn_from(&self, from: &str, to: &str, options: &[TcpOptionElement]) -> Vec<u8> {
        self.request(from, to, |header| header.set_options(options).unwrap())
    }

    fn request(&self, from: &str, to: &str, set: impl FnOnce(&mut TcpHeader)) -> Vec<u8> {
        let mut header = TcpHeader::new(5123, SERVICE, SEQUENCE, 1024);
        (header.syn, header.ece, header.cwr) = (true, true, true);
        set(&mut header);
        self.network.segment(from.parse().unwrap(), to.parse().unwrap(), header)
    }

    /// On one CPU, as all packets of a poll are; no NAPI poll ends here.
    fn here<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let pinned = || {
            sched::pin_current_thread(self.cpu).unwrap();
            run()
        };
        self.network.near.run(pinned).unwrap()
    }

    fn judge(&self, packet: &[u8]) -> Reason {
        self.here(|| self.network.judge(&self.gate, packet))
    }

    /// What the gate sends for the second such request of a poll: the first is the kernel's. Another interface's poll
    /// on this CPU may come between the two, but not each time.
    fn answer_to(&self, packet: &[u8]) -> Option<Vec<u8>> {
        self.here(|| {
            let answer = || self.gate.answer_to(packet, self.network.near_ifindex).unwrap();
            (0..3).find_map(|_| {
                let (_, second) = (answer(), answer());
                second
            })
        })
    }

    fn counted(&self, reason: Reason) -> u64 {
        self.gate.counters().unwrap().get(reason).packets
    }
}

fn headers<'a>(packet: &SlicedPacket<'a>) -> (Ethernet2Header, NetSlice<'a>, TcpHeader, usize) {
    let link = packet.link.clone().unwrap().to_header().unwrap().ethernet2().unwrap();
    let Some(TransportSlice::Tcp(tcp)) = packet.transport.clone() else { panic!("no TCP") };
    (link, packet.net.clone().unwrap(), tcp.to_header(), tcp.payload().len())
}

/// What a client looks at, checksums included.
fn assert_answers(request: &[u8], answer: &[u8]) {
    let [request, packet] =
        [request, answer].map(|bytes| SlicedPacket::from_ethernet(bytes).unwrap());
    let (theirs, their_ip, asked, _) = headers(&request);
    let (ours, our_ip, answered, payload) = headers(&packet);
    assert_eq!((ours.source, ours.destination), (theirs.destination, theirs.source));
    let sum = match (&their_ip, &our_ip) {
        (NetSlice::Ipv4(theirs), NetSlice::Ipv4(ours)) => {
            let (theirs, ours) = (theirs.header().to_header(), ours.header().to_header());
            assert_eq!((ours.source, ours.destination), (theirs.destination, theirs.source));
            assert_eq!((ours.time_to_live, ours.dont_fragment), (COOKIES.ttl, true));
            assert_eq!(ours.header_checksum, ours.calc_header_checksum());
            assert_eq!((usize::from(ours.total_len), answer.len()), (44, 60));
            answered.calc_checksum_ipv4(&ours, &[]).unwrap()
        }
        (NetSlice::Ipv6(theirs), NetSlice::Ipv6(ours)) => {
            let (theirs, ours) = (theirs.header().to_header(), ours.header().to_header());
            assert_eq!((ours.source, ours.destination), (theirs.destination, theirs.source));
            assert_eq!((ours.hop_limit, ours.payload_length, answer.len()), (COOKIES.hops, 24, 78));
            answered.calc_checksum_ipv6(&ours, &[]).unwrap()
        }
        _ => panic!("another family"),
    };
    assert_eq!(answered.checksum, sum);
    assert_eq!(answered.source_port, asked.destination_port);
    assert_eq!(answered.destination_port, asked.source_port);
    assert_eq!(answered.acknowledgment_number, SEQUENCE.wrapping_add(1));
    assert_eq!(
        (answered.syn, answered.ack, answered.rst, answered.fin),
        (true, true, false, false)
    );
    // Nothing of ECN is kept in a cookie without timestamps.
    assert_eq!((answered.ece, answered.cwr, payload), (false, false, 0));
    assert!(answered.window_size > 1460, "{}", answered.window_size);
    let headers = if matches!(our_ip, NetSlice::Ipv4(_)) { 40 } else { 60 };
    let mss = TcpOptionElement::MaximumSegmentSize(COOKIES.mtu as u16 - headers);
    assert_eq!(answered.options_iterator().collect::<Vec<_>>(), [Ok(mss)]);
}

const OPTIONS: [TcpOptionElement; 4] = [
    TcpOptionElement::MaximumSegmentSize(1400),
    TcpOptionElement::SelectiveAcknowledgementPermitted,
    TcpOptionElement::Timestamp(1, 0),
    TcpOptionElement::WindowScale(7),
];

#[test]
fn a_request_past_the_queue_gets_a_cookie_with_an_mss_and_nothing_else() {
    for mode in [AttachMode::Native, AttachMode::Tcx] {
        let bench = Bench::new(mode);
        for ip in [NEAR_IP4, NEAR_IP6] {
            let _listener = bench.full_listener(ip, |_| ());
            for options in [&OPTIONS[..], &OPTIONS[..1], &[]] {
                let syn = bench.syn(ip, options);
                assert_answers(&syn, &bench.answer_to(&syn).expect("an answer"));
            }
        }
        assert!(bench.counted(Reason::TcpCookie) > 0);
    }
}

#[test]
fn the_first_request_of_a_poll_is_the_kernels_and_so_are_all_while_no_cpu_is_short() {
    let mut bench = Bench::new(AttachMode::Native);
    let _listener = bench.full_listener(NEAR_IP4, |_| ());
    let syn = bench.syn(NEAR_IP4, &OPTIONS);
    let answered = |bench: &Bench| bench.answer_to(&syn).is_some();
    assert!(answered(&bench));
    bench.gate.set_cookies(None);
    assert!(!answered(&bench), "it is told not to");
    bench.gate.set_cookies(Some(COOKIES));
    assert!(answered(&bench));
    bench.short_for(Duration::ZERO);
    // The gate reads the clock once a tick.
    std::thread::sleep(Duration::from_millis(20));
    assert!(!answered(&bench), "no CPU is short");
}

/// Else it takes none back (`tcp_synq_no_recent_overflow()`), and resets the client.
#[test]
fn the_first_cookie_of_a_listener_is_the_kernels() {
    let bench = Bench::new(AttachMode::Native);
    let with: [With; 2] = [|_| (), |socket| sockopt::set_socket_reuseport(socket, true).unwrap()];
    for ip in [NEAR_IP4, NEAR_IP6] {
        for with in with {
            let _listener = bench.filled_listener(ip, None, with);
            let answered = || bench.answer_to(&bench.syn(ip, &OPTIONS)).is_some();
            assert!(!answered());
            bench.have_a_cookie_sent(ip);
            assert!(answered());
        }
    }
}

#[test]
fn whoever_is_no_plain_client_of_a_plain_listener_is_left_to_the_kernel() {
    let mut bench = Bench::new(AttachMode::Native);
    let answered = |bench: &Bench, from: &str| {
        bench.answer_to(&bench.syn_from(from, NEAR_IP4, &OPTIONS)).is_some()
    };
    let listener = bench.full_listener(NEAR_IP4, |_| ());
    assert!(answered(&bench, "198.18.0.77"));
    // Who cannot be answered.
    for from in ["127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0", NEAR_IP4] {
        assert!(!answered(&bench, from), "{from}");
    }
    // Its address is another interface's: how the answer leaves is not known.
    let others =
        LocalAddresses { of_others: vec![NEAR_IP4.parse().unwrap()], ..Default::default() };
    bench.gate.set_local(&others).unwrap();
    assert!(!answered(&bench, "198.18.0.77"));
    bench.gate.set_local(&common::local(&[NEAR_IP4, NEAR_IP6])).unwrap();
    assert!(answered(&bench, "198.18.0.77"));
    drop(listener);
    // What its options make of its answers, the kernel knows.
    let options: [With; 3] = [
        |socket| sockopt::set_ip_tos(socket, 0x10).unwrap(),
        |socket| sockopt::set_ip_ttl(socket, 10).unwrap(),
        |socket| set_maximum_segment(socket, 1000),
    ];
    for with in options {
        let _listener = bench.full_listener(NEAR_IP4, with);
        assert!(!answered(&bench, "198.18.0.77"));
    }
}

#[test]
fn what_a_socket_asks_of_its_ipv6_packets_the_kernel_sees_to() {
    let bench = Bench::new(AttachMode::Native);
    let syn = bench.syn(NEAR_IP6, &OPTIONS);
    let options: [With; 4] = [
        |socket| sockopt::set_ipv6_unicast_hops(socket, Some(10)).unwrap(),
        |socket| sockopt::set_ipv6_tclass(socket, 0x10).unwrap(),
        |socket| set(socket, libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS, &[0, 0, 1, 4, 0, 0, 0, 0]),
        |socket| set(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &4096_u32.to_ne_bytes()),
    ];
    for with in options {
        let _listener = bench.full_listener(NEAR_IP6, with);
        assert!(bench.answer_to(&syn).is_none());
    }
}

/// What neither rustix nor socket2 sets.
#[allow(unsafe_code)]
fn set(socket: &OwnedFd, level: i32, option: i32, value: &[u8]) {
    let (value, len) = (value.as_ptr().cast(), value.len() as libc::socklen_t);
    // SAFETY: `value` has `len` bytes.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn set_maximum_segment(socket: &OwnedFd, bytes: u32) {
    socket2::SockRef::from(socket).set_tcp_mss(bytes).unwrap();
}

#[test]
fn what_the_kernel_would_drop_is_not_answered() {
    const ETHERNET: usize = 14;
    for mode in [AttachMode::Native, AttachMode::Tcx] {
        let bench = Bench::new(mode);
        for ip in [NEAR_IP4, NEAR_IP6] {
            let _listener = bench.full_listener(ip, |_| ());
            let syn = bench.syn(ip, &OPTIONS);
            let ip_len = if ip == NEAR_IP4 { 20 } else { 40 };
            let changed = |at: usize, bits: u8| {
                let mut changed = syn.clone();
                changed[at] ^= bits;
                bench.answer_to(&changed).is_some()
            };
            // A bit of no meaning: reserved, or the urgent pointer's.
            assert!(!changed(ETHERNET + ip_len + 19, 1), "TCP's checksum is wrong");
            assert!(ip != NEAR_IP4 || !changed(ETHERNET + 5, 1), "IP's checksum is wrong");
            assert!(!changed(6, 1), "it comes from a group of stations");
            assert!(bench.answer_to(&syn).is_some());
        }
    }
}

#[test]
fn who_asks_for_mptcp_gets_tcp_but_joins_by_the_kernel() {
    const CAPABLE: [u8; 4] = [30, 4, 0x01, 0];
    const JOIN: [u8; 16] = [1, 1, 1, 1, 30, 12, 0x10, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    let bench = Bench::new(AttachMode::Native);
    let syn = |options: &[u8]| {
        bench.request("198.18.0.77", NEAR_IP4, |header| header.set_options_raw(options).unwrap())
    };
    let listener = bench.full_listener(NEAR_IP4, |_| ());
    assert!(bench.answer_to(&syn(&JOIN)).is_some());
    drop(listener);
    let _listener = bench.full_listener_of(NEAR_IP4, Some(MPTCP), |_| ());
    assert_answers(&syn(&CAPABLE), &bench.answer_to(&syn(&CAPABLE)).expect("an answer"));
    assert!(bench.answer_to(&syn(&JOIN)).is_none());
}

/// As Docker writes them: conntrack follows every connection.
const NAT: &str = "add table ip nat; \
    add chain ip nat PREROUTING { type nat hook prerouting priority dstnat; }; \
    add chain ip nat DOCKER; add rule ip nat PREROUTING fib daddr type local jump DOCKER; \
    add rule ip nat DOCKER tcp dport 8080 dnat to 198.18.5.2:80";

/// Whoever answers them: few of the clients' requests are the first of their poll.
fn assert_clients_are_served(mode: AttachMode, ip: &str, nat: bool) {
    const CLIENTS: usize = 200;
    let mut bench = Bench::new(mode);
    if nat {
        let rules = || Command::new("nft").arg(NAT).status().unwrap().success();
        assert!(bench.network.near.run(rules).unwrap());
        bench.gate.set_translation(Some(Vec::new()));
    }
    let address = SocketAddr::new(ip.parse().unwrap(), SERVICE);
    bench.network.attach(&mut bench.gate, mode);
    let listener = bench.network.near.run(|| TcpListener::bind(address).unwrap()).unwrap();
    // Fewer than the flood leaves unanswered.
    listen(&listener, 16).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 4];
            // A client that has gone is not the server's affair.
            let _ = stream.read_exact(&mut asked).and_then(|()| stream.write_all(&asked));
        }
    });
    let flood = bench.requests(ip);
    let bench = &bench;
    bench.while_sent(flood, || {
        wait_until("the gate answers", || bench.counted(Reason::TcpCookie) > 1000);
        let counted = || [Reason::TcpCookie, Reason::TcpRequest].map(|it| bench.counted(it));
        let before = counted();
        let clients = || {
            for client in 0..CLIENTS as u32 {
                let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut heard = [0; 4];
                stream.write_all(&client.to_ne_bytes()).unwrap();
                stream.read_exact(&mut heard).unwrap();
                assert_eq!(heard, client.to_ne_bytes());
            }
        };
        bench.network.far.run(clients).unwrap();
        let now = counted();
        let [answered, passed] = [0, 1].map(|at| now[at] - before[at]);
        assert!(2 * answered > passed, "{answered} answered, {passed} passed");
    });
}

#[test]
fn clients_are_served_beside_a_flood_of_their_server_in_the_driver() {
    assert_clients_are_served(AttachMode::Native, NEAR_IP4, false);
    assert_clients_are_served(AttachMode::Native, NEAR_IP6, false);
}

#[test]
fn clients_are_served_beside_a_flood_of_their_server_at_tc() {
    assert_clients_are_served(AttachMode::Tcx, NEAR_IP4, false);
    assert_clients_are_served(AttachMode::Tcx, NEAR_IP6, false);
}

#[test]
fn clients_are_served_where_connections_are_followed() {
    assert_clients_are_served(AttachMode::Native, NEAR_IP4, true);
    assert_clients_are_served(AttachMode::Tcx, NEAR_IP4, true);
}
