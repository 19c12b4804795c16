//! A network, the applications in it, and what each of them received.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, send, setsockopt, sockopt,
};
use socket2::Socket;
use weir_bpf::attach::DoNothing;
use weir_bpf::gate::Gate;
use weir_bpf::sys::divert::{self, Sight, translation};

use crate::frame::{self, address, udp_packet};
use crate::network::{Network, inside, pipe};
use crate::socket::{self, Udp};

/// Frames sent in one go: with the three that end it, one NAPI poll (64).
pub const BATCH: usize = 60;

/// What one application received, in order.
pub type Log = Vec<Vec<u8>>;

enum App {
    Udp(UdpSocket),
    /// A group of which the kernel picks one by a hash, seeded in each namespace: compared as one, the
    /// senders' ports left out.
    Hashed(Vec<UdpSocket>),
    /// Raw and packet sockets: what they read is what they received.
    Raw(Socket),
    /// Accepts, and reads what the connections bring.
    Tcp(Socket, Vec<(SocketAddr, Socket)>),
}

pub struct World {
    /// The one with weir.
    pub gate: Option<Gate>,
    pub idle: Option<DoNothing>,
    pub network: Network,
    translates: bool,
    sender: Socket,
    /// One of the kernel's own in `far`, which cuts what it sends into datagrams as late as it can.
    segments: UdpSocket,
    /// What reaches the peer's network: answers.
    far: [Socket; 2],
    /// Last of each batch, here and beyond.
    last: [UdpSocket; 2],
    echoes: u16,
    apps: BTreeMap<&'static str, App>,
    log: BTreeMap<&'static str, Log>,
    /// Answers from this host to hand-made TCP clients, whole.
    pub answers: Vec<Vec<u8>>,
    /// Distinct in each run of a case; the same in both worlds.
    pub run: u16,
    bed: u32,
    /// Data is acknowledged now or later, as the kernel's clock has it: mere acknowledgements are no
    /// answers.
    pub delayed_acks: bool,
    pub disregarded: BTreeSet<&'static str>,
}

const LAST_PORT: &str = ":9";
const SEGMENTS_FROM: &str = "198.18.0.128:40002";
const PEER: &str = "198.18.0.200:40000";
/// What `far` receives, in any order.
const ANSWERS: &str = "the peer, by answers";
const ECHO_ID: u16 = 0x7e17;

impl World {
    pub fn new() -> Self {
        let network = Network::new();
        let (sender, far) = inside(&network.far, || {
            let sender = socket::packet("far", 0);
            sender.set_nonblocking(false).unwrap();
            (sender, [0x0800, 0x86dd].map(|ethertype| socket::packet("far", ethertype)))
        });
        let open = || Udp { bind: SEGMENTS_FROM, ..Udp::default() }.open();
        let segments = UdpSocket::from(inside(&network.far, open));
        let last = |namespace| {
            let open = || Udp { bind: &format!("0.0.0.0{LAST_PORT}"), ..Udp::default() }.open();
            let socket = UdpSocket::from(inside(namespace, open));
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket
        };
        let last = [last(&network.near), last(&network.beyond)];
        Self {
            gate: None,
            idle: None,
            network,
            translates: false,
            sender,
            segments,
            far,
            last,
            echoes: 0,
            apps: BTreeMap::new(),
            log: BTreeMap::new(),
            answers: Vec::new(),
            run: 0,
            bed: 0,
            delayed_acks: false,
            disregarded: BTreeSet::new(),
        }
    }

    /// Everything of the last case goes; its log is returned.
    pub fn finish(&mut self) -> BTreeMap<&'static str, Log> {
        self.drain_all();
        let mut log = std::mem::take(&mut self.log);
        // GRO keeps TCP back to the end of a poll; only a veth with XDP has it.
        if let Some(answers) = log.get_mut(ANSWERS) {
            answers.sort();
        }
        for app in std::mem::take(&mut self.apps).into_values() {
            if let App::Tcp(_, connections) = app {
                for (_, connection) in connections {
                    connection.set_linger(Some(Duration::ZERO)).unwrap();
                }
            }
        }
        if std::mem::take(&mut self.translates) {
            self.divert(false, "flush ruleset");
        }
        // What its end had to say is not the next case's.
        self.settle();
        self.log.clear();
        self.answers.clear();
        self.delayed_acks = false;
        self.run += 1;
        log
    }

    /// Translates addresses by nftables' rules; as the daemon would, tells the gate that there are such.
    pub fn translate(&mut self, rules: &str) {
        self.translates = true;
        self.divert(true, rules);
    }

    /// The same of rules that leave some packets to the gate.
    pub fn translate_in_part(&mut self, rules: &str) {
        self.translates = true;
        self.near(|| pipe("nft", &["-f", "-"], rules));
        let found = self.near(|| {
            let (near, own) = (self.network.near_ifindex, Vec::new());
            divert::diversions(near, Sight::at_tc(), &own).unwrap()
        });
        if let Some(gate) = &mut self.gate {
            gate.set_translation(translation(&found));
        }
    }

    fn divert(&mut self, diverted: bool, rules: &str) {
        self.near(|| pipe("nft", &["-f", "-"], rules));
        if let Some(gate) = &mut self.gate {
            gate.set_diverted(diverted);
            gate.set_translation(None);
        }
    }

    /// The application sends something to a peer.
    pub fn udp_sends(&mut self, name: &'static str, to: &str) {
        let Some(App::Udp(socket)) = self.apps.get(name) else { panic!("no application {name:?}") };
        socket.send_to(b"request", to).unwrap();
        self.settle();
    }

    /// A payload of a number of its own.
    pub fn payload(&mut self, len: usize) -> Vec<u8> {
        self.bed += 1;
        frame::payload(self.bed, len)
    }

    pub fn start_numbers(&mut self) {
        self.bed = 0;
        self.echoes = 0;
    }

    /// A number for fragments that no other run has: the kernel keeps those of a datagram that was never
    /// whole for 30 s.
    pub fn fragment_id(&self, number: u16) -> u16 {
        self.run.wrapping_mul(64).wrapping_add(number)
    }

    pub fn near<T>(&self, f: impl FnOnce() -> T) -> T {
        inside(&self.network.near, f)
    }

    fn add(&mut self, name: &'static str, app: App) {
        assert!(self.apps.insert(name, app).is_none(), "two applications {name:?}");
        self.log.entry(name).or_default();
    }

    pub fn udp(&mut self, name: &'static str, description: Udp<'_>) {
        let socket = self.near(|| description.open());
        self.adopt(name, socket);
    }

    pub fn udp_beyond(&mut self, name: &'static str, bind: &str) {
        let open = || Udp { bind, ..Udp::default() }.open();
        let socket = inside(&self.network.beyond, open);
        self.adopt(name, socket);
    }

    pub fn hashed(&mut self, name: &'static str, sockets: Vec<Socket>) {
        let nonblocking = |socket: Socket| {
            socket.set_nonblocking(true).unwrap();
            UdpSocket::from(socket)
        };
        self.add(name, App::Hashed(sockets.into_iter().map(nonblocking).collect()));
    }

    /// What has reached each socket of a group so far, read and forgotten.
    pub fn probe(&mut self, name: &'static str) -> Vec<Vec<Vec<u8>>> {
        let Some(App::Hashed(sockets)) = self.apps.get(name) else { return Vec::new() };
        let mut buffer = [0; 2048];
        let mut read = |socket: &UdpSocket| {
            let mut got = Vec::new();
            while let Ok(len) = socket.recv(&mut buffer) {
                got.push(buffer[..len].to_vec());
            }
            got
        };
        sockets.iter().map(&mut read).collect()
    }

    pub fn adopt(&mut self, name: &'static str, socket: Socket) {
        socket.set_nonblocking(true).unwrap();
        self.add(name, App::Udp(socket.into()));
    }

    pub fn raw(&mut self, name: &'static str, open: impl FnOnce() -> Socket) {
        let socket = self.near(open);
        socket.set_nonblocking(true).unwrap();
        self.add(name, App::Raw(socket));
    }

    pub fn listen(&mut self, name: &'static str, at: &str, backlog: i32) {
        let socket = self.near(|| socket::listener(at, backlog));
        self.add(name, App::Tcp(socket, Vec::new()));
    }

    /// How much it has received so far.
    pub fn received(&self, name: &'static str) -> usize {
        self.log.get(name).map_or(0, Vec::len)
    }

    pub fn has(&self, name: &'static str) -> bool {
        self.apps.contains_key(name)
    }

    /// The application ends.
    pub fn close(&mut self, name: &'static str) {
        self.drain(name);
        self.apps.remove(name);
    }

    /// Its log is not compared, whichever world says so.
    pub fn disregard(&mut self, name: &'static str) {
        self.apps.remove(name);
        self.log.remove(name);
        self.disregarded.insert(name);
    }

    pub fn note(&mut self, name: &'static str, entry: Vec<u8>) {
        self.log.entry(name).or_default().push(entry);
    }

    /// Sends the frames, all before any of them is received, and waits until the last is dealt with.
    pub fn send(&mut self, frames: &[Vec<u8>]) {
        for batch in frames.chunks(BATCH) {
            for frame in batch {
                self.send_one(frame);
            }
            self.settle();
        }
        if frames.is_empty() {
            self.settle();
        }
    }

    /// Sends one frame in a poll of its own. Linux gives the packets of one poll their predecessor's route
    /// if they have its destination (ip_extract_route_hint()), also if that was source-routed.
    pub fn send_apart(&mut self, frame: &[u8]) {
        self.send_one(frame);
        let mark = [0xff, 0xff];
        self.send_one(&udp_packet(PEER, &format!("198.18.1.2{LAST_PORT}"), &mark));
        let mut got = [0; 16];
        self.last[1].recv(&mut got).expect("a packet beyond arrives");
        self.settle();
    }

    /// Sends datagrams of so many bytes, and what is left over in a last one, in one piece as far as it
    /// goes (`UDP_SEGMENT`). They arrive before whatever is sent next.
    pub fn send_segments(&self, to: &str, payload: &[u8], size: u16) {
        setsockopt(&self.segments, sockopt::UdpGsoSegment, &size.into()).unwrap();
        self.segments.send_to(payload, to).expect("segments are sent");
    }

    fn send_one(&self, frame: &[u8]) {
        send(self.sender.as_raw_fd(), frame, MsgFlags::empty()).expect("a frame is sent");
    }

    /// Three packets that arrive after all others: here, beyond, and back in `far`.
    fn settle(&mut self) {
        self.echoes = self.echoes.wrapping_add(1);
        let mark = self.echoes.to_be_bytes();
        let (far, near) = (address(PEER).ip(), address("198.18.0.1:0").ip());
        self.send_one(&udp_packet(PEER, &format!("198.18.1.2{LAST_PORT}"), &mark));
        let echo = frame::echo(far, near, ECHO_ID, &mark);
        self.send_one(&frame::ip(far, near, frame::ICMP, &echo));
        self.send_one(&udp_packet(PEER, &format!("198.18.0.1{LAST_PORT}"), &mark));
        for (place, socket) in ["near", "beyond"].iter().zip(&self.last) {
            let mut got = [0; 16];
            let len = socket.recv(&mut got).unwrap_or_else(|error| {
                panic!("the last packet of a batch did not arrive {place}: {error}")
            });
            assert_eq!(got[..len], mark);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.read_far(mark) {
            assert!(Instant::now() < deadline, "no echo came back");
            std::thread::yield_now();
        }
    }

    /// Files what came to `far`; whether the echo of this mark was among it.
    pub fn read_far(&mut self, mark: [u8; 2]) -> bool {
        let mut seen = false;
        let mut buffer = vec![0; 65536];
        for socket in &self.far {
            while let Ok(len) = (&*socket).read(&mut buffer) {
                let frame = &buffer[..len];
                if len >= 44 && frame[23] == frame::ICMP && frame[34] == 0 {
                    seen |= frame[38..40] == ECHO_ID.to_be_bytes() && frame[42..44] == mark;
                    if frame[38..40] == ECHO_ID.to_be_bytes() {
                        continue;
                    }
                }
                if let Some(answer) = answer(frame) {
                    if self.delayed_acks && answer.len() == MERE_ACK && answer[8] == 0x10 {
                        continue;
                    }
                    let log = self.log.entry(ANSWERS).or_default();
                    // Those to SYNs are repeated after a second.
                    if !log.contains(&answer) {
                        log.push(answer);
                    }
                    self.answers.push(frame.to_vec());
                }
            }
        }
        seen
    }

    /// The application runs until it has read all that there is.
    pub fn drain(&mut self, name: &'static str) {
        let Some(app) = self.apps.get_mut(name) else { return };
        let log = self.log.entry(name).or_default();
        let mut buffer = vec![0; 65536];
        match app {
            App::Udp(socket) => {
                let before = log.len();
                while let Some((len, from, size)) = receive(socket, &mut buffer) {
                    // What was merged is what its packets were.
                    for part in buffer[..len].chunks(size.unwrap_or(len.max(1))) {
                        log.push([from.as_bytes(), b" ", part].concat());
                    }
                }
                // GRO keeps one sender's back while another's go on; only a veth with XDP has it.
                if getsockopt(socket, sockopt::UdpGroSegment).unwrap() {
                    log[before..].sort();
                }
            }
            App::Hashed(sockets) => {
                let mut got = Log::new();
                for socket in sockets {
                    while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                        got.push([from.ip().to_string().as_bytes(), b" ", &buffer[..len]].concat());
                    }
                }
                got.sort();
                log.extend(got);
            }
            App::Raw(socket) => {
                while let Ok(len) = (&*socket).read(&mut buffer) {
                    log.push(buffer[..len].to_vec());
                }
            }
            App::Tcp(listener, connections) => {
                while let Ok((connection, from)) = listener.accept() {
                    connection.set_nonblocking(true).unwrap();
                    let from = from.as_socket().unwrap();
                    log.push(format!("{from} connects").into_bytes());
                    connections.push((from, connection));
                }
                for (from, connection) in connections {
                    while let Ok(len @ 1..) = (&*connection).read(&mut buffer) {
                        log.push([from.to_string().as_bytes(), b" ", &buffer[..len]].concat());
                    }
                }
            }
        }
    }

    pub fn drain_all(&mut self) {
        self.drain_but(&BTreeSet::new());
    }

    pub fn drain_but(&mut self, stopped: &BTreeSet<&'static str>) {
        let names: Vec<_> =
            self.apps.keys().copied().filter(|name| !stopped.contains(name)).collect();
        for name in names {
            self.drain(name);
        }
    }

    /// Ends the sending half of a listener's connections.
    pub fn shut_down(&mut self, name: &'static str) {
        if let Some(App::Tcp(_, connections)) = self.apps.get(name) {
            for (_, connection) in connections {
                let _ = connection.shutdown(Shutdown::Write);
            }
        }
    }
}

/// `tcp `, two ports, flags, and no data.
const MERE_ACK: usize = 9;

/// What an answer says, but for what differs between any two hosts: TCP's numbers. Nothing of what
/// hosts say unasked (ARP, MLD).
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let (protocol, at) = match frame.get(12..14)? {
        [0x08, 0x00] => (*frame.get(23)?, 34),
        [0x86, 0xdd] => (*frame.get(20)?, 54),
        _ => return None,
    };
    match protocol {
        frame::TCP => {
            let (ports, flags) = (frame.get(at..at + 4)?, *frame.get(at + 13)?);
            let data = at + usize::from(frame.get(at + 12)? >> 4) * 4;
            Some([b"tcp ", ports, &[flags], frame.get(data..)?].concat())
        }
        frame::UDP => Some([b"udp ", frame.get(at..)?].concat()),
        // Neighbours that do not answer are given up by the clock; that there is no route is told so
        // often in a second (ip_error()).
        frame::ICMP if matches!(frame.get(at..at + 2)?, [3, 0 | 1]) => None,
        58 if frame.get(at..at + 2)? == [1, 3] => None,
        frame::ICMP => Some([b"icmp ", frame.get(at..)?].concat()),
        // Errors and echo replies, not neighbour discovery.
        58 if *frame.get(at)? < 130 => Some([b"icmpv6 ", frame.get(at..)?].concat()),
        _ => None,
    }
}

/// What an application receives in one call: bytes, who sent them, and the size of the packets that they
/// were, if several.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, String, Option<usize>)> {
    let mut control = nix::cmsg_space!(i32);
    let mut parts = [IoSliceMut::new(buffer)];
    let fd = socket.as_raw_fd();
    let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), MsgFlags::empty());
    let message = match got {
        Ok(message) => message,
        // An answer to what it has sent.
        Err(Errno::EAGAIN | Errno::ECONNREFUSED) => return None,
        Err(errno) => panic!("an application cannot receive: {errno}"),
    };
    let size = message.cmsgs().unwrap().find_map(|one| match one {
        ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
        _ => None,
    });
    Some((message.bytes, message.address.map(|from| from.to_string()).unwrap_or_default(), size))
}
