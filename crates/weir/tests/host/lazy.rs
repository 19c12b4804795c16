//! Lazy sockets: their programs receive what they would receive without weir, whatever becomes of it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::lazy::*;
use crate::common::router::tag_what_leaves;
use crate::common::*;
use etherparse::PacketBuilder;
use rustix::net::sockopt;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::packet::PacketSocket;
use weir_socket::{LazyUdpSocket, Ordinary};

pub const LAZY_PORT: u16 = 9995;
pub const ORDINARY_PORT: u16 = 9996;
pub const LAST: &[u8] = b"the last";

/// One line of the status' notes.
pub fn summary(network: &Network) -> String {
    let status = network.interface_status();
    let notes = status["notes"].as_array().unwrap();
    let notes: Vec<&str> = notes.iter().filter_map(|note| note.as_str()).collect();
    notes.into_iter().find(|note| note.starts_with("lazy sockets")).unwrap_or_default().to_owned()
}

/// A frame for a port, with a payload that tells it from all others.
pub fn frame(network: &Network, v6: bool, port: u16, payload: &[u8]) -> Vec<u8> {
    let from = if v6 { FAR_IP6 } else { FAR_IP };
    frame_from(network, from.parse().unwrap(), port, payload)
}

pub fn frame_from(network: &Network, from: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let (far, near) = network.macs();
    let builder = PacketBuilder::ethernet2(far.0, near.0);
    let builder = match from {
        IpAddr::V4(from) => builder.ipv4(from.octets(), [198, 18, 0, 1], 64),
        IpAddr::V6(from) => {
            let to: Ipv6Addr = NEAR_IP6.parse().unwrap();
            builder.ipv6(from.octets(), to.octets(), 64)
        }
    };
    let mut frame = Vec::new();
    builder.udp(4096, port).write(&mut frame, payload).unwrap();
    frame
}

/// Each wrong in another way, or right; the same for every port.
fn cases(network: &Network, port: u16) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut random = fastrand::Rng::with_seed(7);
    for case in 0..600_u32 {
        let v6 = case % 3 == 2;
        let length = random.usize(0..120);
        let mut payload = case.to_ne_bytes().to_vec();
        payload.extend((0..length).map(|_| random.u8(..)));
        let mut frame = frame(network, v6, port, &payload);
        let udp = if v6 { 54 } else { 34 };
        match random.u8(0..8) {
            // As it is.
            0 => {}
            // One bit, but not of Ethernet's header, which says whose it is, nor of the port.
            1..=3 => {
                let at = random.usize(14..frame.len());
                if !(udp + 2..udp + 4).contains(&at) {
                    frame[at] ^= 1 << random.u8(0..8);
                }
            }
            // Without a checksum.
            4 => frame[udp + 6..udp + 8].fill(0),
            // Another length of the datagram, with which the checksum is as wrong as it is.
            5 => frame[udp + 5] = random.u8(..),
            // Cut short, or longer than its IP packet.
            6 => frame.truncate(random.usize(14..frame.len())),
            _ => frame.extend([0x5a; 20]),
        }
        frames.push(frame);
    }
    frames
}

pub fn frame_sender(network: &Network) -> PacketSocket {
    let open = || PacketSocket::sender(Links::open().unwrap().index("far").unwrap()).unwrap();
    network.far.run(open).unwrap()
}

/// A veth whose ring is full says so.
pub fn send_frame(sender: &PacketSocket, frame: &[u8]) {
    wait_until("there is room for a frame", || sender.send(frame).is_ok());
}

/// A socket there is refused a ring, for this reason.
pub fn assert_refused(network: &Network, address: &str, reason: &str) {
    let socket = lazy_socket(network, address);
    let ordinary = socket.ordinary();
    let is_refused = matches!(ordinary, Some(Ordinary::Refused(why)) if why.contains(reason));
    assert!(is_refused, "{ordinary:?}");
}

/// How often each datagram comes from whom, before the last.
pub fn up_to_the_last(
    recv_from: impl Fn(&mut [u8]) -> std::io::Result<(usize, SocketAddr)>,
) -> BTreeMap<(Vec<u8>, SocketAddr), u32> {
    let (mut received, mut buffer) = (BTreeMap::new(), [0; 512]);
    loop {
        let (length, from) = recv_from(&mut buffer).unwrap();
        if &buffer[..length] == LAST {
            return received;
        }
        *received.entry((buffer[..length].to_vec(), from)).or_insert(0) += 1;
    }
}

#[test]
fn a_lazy_socket_gets_what_an_ordinary_one_gets() {
    for attach in ["native", "tc"] {
        let network = Network::new();
        let _daemon = Daemon::start_sleepy(&network, &["--lazy", "--attach", attach]);
        // Dual-stack, both of them.
        let lazy = lazy_socket(&network, "[::]:9995");
        assert_lazy(&lazy);
        let ordinary = network.near_socket("[::]:9996");
        sockopt::set_socket_recv_buffer_size_force(&ordinary, 8 << 20).unwrap();
        let sender = frame_sender(&network);
        let lazies = cases(&network, LAZY_PORT);
        let ordinaries = cases(&network, ORDINARY_PORT);
        for (lazy_frame, ordinary_frame) in lazies.iter().zip(&ordinaries) {
            send_frame(&sender, lazy_frame);
            send_frame(&sender, ordinary_frame);
        }
        for port in [LAZY_PORT, ORDINARY_PORT] {
            send_frame(&sender, &frame(&network, false, port, LAST));
        }
        let of_lazy = up_to_the_last(|buffer| lazy.recv_from(buffer));
        let of_ordinary = up_to_the_last(|buffer| ordinary.recv_from(buffer));
        assert_eq!(of_lazy, of_ordinary, "{attach}");
        // Both kinds of outcome were there, and lazily.
        assert!((200..590).contains(&of_lazy.len()), "{attach}: {}", of_lazy.len());
        wait_until("the ring is counted", || network.count("lazy") > 200);
        assert!(lazy.dropped() > 100, "{attach}: {}", lazy.dropped());
    }
}

#[test]
fn a_socket_may_take_ipv6_datagrams_without_a_checksum() {
    let (network, _daemon) = protected(&["--lazy"]);
    // UDP_NO_CHECK6_RX
    let script = "import socket\n\
        s=socket.socket(10,2);s.setsockopt(17,102,1);s.bind(('::',9995));print('bound',flush=True)\n\
        print(*sorted(s.recv(9).decode() for _ in range(2)))\n";
    let mut python = preloaded(&network, "timeout", &["20", "python3", "-c", script]);
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "bound");
    let sender = frame_sender(&network);
    let mut bare = frame(&network, true, LAZY_PORT, b"bare");
    bare[60..62].fill(0);
    send_frame(&sender, &bare);
    send_frame(&sender, &frame(&network, true, LAZY_PORT, b"summed"));
    assert_eq!(lines.next().as_deref(), Some("bare summed"));
    assert!(python.wait().unwrap().success());
    wait_until("one came by the ring", || network.count("lazy") == 1);
}

#[test]
fn ipv6_control_messages_come_under_their_old_numbers_too() {
    let (network, _daemon) = protected(&["--lazy"]);
    let script = "import socket\n\
        s=socket.socket(10,2)\n\
        for option in (2,8,49,51): s.setsockopt(41,option,1)\n\
        s.bind(('::',9995));print('bound',flush=True)\n\
        print([(kind,data.hex()) for _,kind,data in s.recvmsg(9,200)[1]])\n";
    let control = |mut python: Command| {
        python.stdout(Stdio::piped());
        let mut python = network.near.run(|| python.spawn().unwrap()).unwrap();
        let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "bound");
        send_frame(&frame_sender(&network), &frame(&network, true, LAZY_PORT, b"here"));
        let control = lines.next();
        assert!(python.wait().unwrap().success());
        control
    };
    let mut ordinary = Command::new("timeout");
    ordinary.args(["20", "python3", "-c", script]);
    assert_eq!(control(ordinary), control(preloading("timeout", &["20", "python3", "-c", script])));
    wait_until("one came by the ring", || network.count("lazy") == 1);
}

/// There, what is several packets in one is not told from one.
#[test]
fn with_generic_xdp_no_socket_is_lazy() {
    let (network, _daemon) = protected_ipv4(&["--lazy", "--attach", "generic"]);
    wait_until("it is refused", || {
        let socket = lazy_socket(&network, LAZY);
        matches!(socket.ordinary(), Some(Ordinary::Refused(why)) if why.contains("merged packets"))
    });
}

/// `SKB_GSO_UDP`, as of a guest: it would be sent as fragments of one datagram.
#[test]
fn a_guests_long_datagram_is_one() {
    const GUEST: &str = "import fcntl,os,struct,sys\n\
        t=os.open('/dev/net/tun',os.O_RDWR)\n\
        fcntl.ioctl(t,0x400454ca,struct.pack('16sH14x',b'guest',0x5002))\n\
        print('made',flush=True);input()\n\
        ips=bytes([198,18,9,2,198,18,9,1])\n\
        for kind,size,length in [(5,1000,3000),(3,1480,8000)]:\n\
        \tudp=8+length;total=sum(struct.unpack('>4H',ips))+17+udp\n\
        \ttotal=(total&0xffff)+(total>>16);total=(total&0xffff)+(total>>16)\n\
        \tip=lambda s:struct.pack('>BBHHHBBH',0x45,0,20+udp,0,0,64,17,s)+ips\n\
        \ts=sum(struct.unpack('>10H',ip(0)));s=(s&0xffff)+(s>>16);s=~((s&0xffff)+(s>>16))&0xffff\n\
        \tos.write(t,struct.pack('<BBHHHH',1,kind,42,size,34,6)+bytes([2,0,0,0,9,1,2,0,0,0,9,2,8,0])\n\
        \t\t+ip(s)+struct.pack('>4H',4096,9995,udp,total)+bytes(length))\n\
        input()\n";
    let network = Network::ipv4_only();
    let mut python = Command::new("timeout");
    python.args(["60", "python3", "-c", GUEST]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = network.near.run(|| python.spawn().unwrap()).unwrap();
    let mut made = BufReader::new(python.stdout.take().unwrap()).lines();
    assert_eq!(made.next().unwrap().unwrap(), "made");
    sh(
        &network,
        "ip link set guest address 02:00:00:00:09:01 up; ip addr add 198.18.9.1/24 dev guest",
    );
    let _daemon = Daemon::start(&network, &["guest", "--lazy", "--attach", "tc"]);
    let lazy = lazy_socket(&network, "198.18.9.1:9995");
    assert_lazy(&lazy);
    let mut input = python.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    let mut buffer = vec![0; 10_000];
    let lengths = [(); 4].map(|()| lazy.recv(&mut buffer).ok());
    assert_eq!(lengths, [1000, 1000, 1000, 8000].map(Some));
    drop(input);
    python.wait().unwrap();
}

/// A tunnel's long packet (`SKB_GSO_UDP_TUNNEL` and `SKB_GSO_UDP_TUNNEL_CSUM`): each piece would have the outer headers.
#[test]
fn a_tunnels_long_packet_is_delivered_in_pieces() {
    const PIECE: usize = 1000;
    // UDP_SEGMENT
    const SENDER: &str = "import socket;s=socket.socket(2,2);s.setsockopt(17,103,1000);\
        s.sendto(bytes(3000),(\"198.19.5.2\",9))";
    /// VXLAN, Ethernet, IPv4, UDP.
    const HEADERS: usize = 8 + 14 + 20 + 8;
    let network = Network::ipv4_only();
    let _daemon = Daemon::start(&network, &["--lazy", "--attach", "tc"]);
    let lazy = lazy_socket(&network, LAZY);
    assert_lazy(&lazy);
    for checksum in ["noudpcsum", "udpcsum"] {
        run_in(
            &network.far,
            &format!(
                "ip link add tunnel type vxlan id 5 local 198.18.0.2 remote 198.18.0.1 dstport 9995 {checksum}
                 echo 1 >/proc/sys/net/ipv6/conf/tunnel/disable_ipv6; ip link set tunnel up
                 ip addr add 198.19.5.1/24 dev tunnel
                 ip neigh add 198.19.5.2 lladdr 02:00:00:00:00:05 dev tunnel"
            ),
        );
        run_in(&network.far, &format!("python3 -c '{SENDER}'"));
        let mut buffer = [0; 4 * PIECE];
        for piece in 0..3 {
            let length = lazy.recv(&mut buffer).unwrap();
            assert_eq!(length, HEADERS + PIECE, "{checksum} {piece}");
            // The VXLAN header, which has the network's number.
            assert_eq!(buffer[..8], [8, 0, 0, 0, 0, 0, 5, 0], "{checksum} {piece}");
        }
        run_in(&network.far, "ip link del tunnel");
    }
}

#[test]
fn fragments_and_options_come_by_the_kernels_socket() {
    let (network, _daemon, lazy, sender) = with_lazy_socket();
    let large = vec![7; 4000];
    sender.send_to(&large, LAZY).unwrap();
    let mut buffer = vec![0; 5000];
    assert_eq!(lazy.recv(&mut buffer).unwrap(), 4000);
    // ...while it goes on being lazy.
    sender.send_to(b"small", LAZY).unwrap();
    let mut arrived = None;
    let received = lazy.recv_batch(8, |datagram| {
        assert_eq!(datagram.payload, b"small");
        arrived = datagram.arrival;
    });
    assert_eq!(received.unwrap(), 1);
    let arrival = arrived.unwrap();
    assert_eq!(
        (arrival.destination.to_string(), arrival.interface),
        (NEAR_IP.into(), network.ifindex.0)
    );
    let age = arrival.time().elapsed().unwrap_or_default();
    assert!(age < Duration::from_secs(5), "{age:?}");
}

/// A veth hands over beside the packet what its peer leaves to the device to write: a tag.
#[test]
fn what_is_of_a_vlan_that_the_kernel_does_not_know_is_delivered_to_nobody() {
    for attach in ["native", "tc"] {
        let (network, _daemon) = protected_ipv4(&["--lazy", "--attach", attach]);
        let lazy = lazy_socket(&network, LAZY);
        assert_lazy(&lazy);
        let sender = frame_sender(&network);
        tag_what_leaves(&network.far, "far");
        send_frame(&sender, &frame(&network, false, LAZY_PORT, b"of VLAN 5"));
        run_in(&network.far, "tc qdisc del dev far clsact");
        send_frame(&sender, &frame(&network, false, LAZY_PORT, LAST));
        assert_eq!(up_to_the_last(|buffer| lazy.recv_from(buffer)), BTreeMap::new(), "{attach}");
    }
}

#[test]
fn a_full_ring_discards_early_and_a_connected_socket_hears_its_peer_alone() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let bind = || UdpSocket::bind(LAZY).unwrap();
    let lazy = LazyUdpSocket::with_ring(network.near.run(bind).unwrap(), 64 << 10);
    assert_lazy(&lazy);
    lazy.set_read_timeout(Some(PATIENCE)).unwrap();
    let sender = network.far_socket("198.18.0.2:0");
    let mut sent = 0;
    wait_until("the ring is full", || {
        for _ in 0..64 {
            sender.send_to(&[1; 20], LAZY).unwrap();
        }
        sent += 64;
        network.count("lazy-full") > 0
    });
    wait_until("all are counted", || network.count("lazy") + network.count("lazy-full") == sent);
    let channels = &network.json(&["channels", "--json", "--interval", "0"])["interfaces"][0];
    for (figure, reason) in [("passed", "lazy"), ("discarded", "lazy-full")] {
        assert_eq!(channels["lazy"][figure]["packets"], network.count(reason), "{channels}");
    }
    let table = network.says(&["channels", "--interval", "0"]);
    assert!(table.contains("(lazy sockets, together)"), "{table}");
    // A record has 96 bytes and a header of 8.
    let on_ring = network.count("lazy");
    assert!((600..=65536 / 104).contains(&on_ring), "{on_ring}");
    let mut received = 0;
    lazy.set_nonblocking(true).unwrap();
    while lazy.recv(&mut [0; 64]).is_ok() {
        received += 1;
    }
    assert_eq!(received, on_ring);
    lazy.set_nonblocking(false).unwrap();
    let other = network.far_socket("198.18.0.2:0");
    lazy.connect(sender.local_addr().unwrap()).unwrap();
    other.send_to(b"not heard", LAZY).unwrap();
    sender.send_to(b"heard", LAZY).unwrap();
    let mut buffer = [0; 64];
    assert_eq!(lazy.peek(&mut buffer).unwrap(), 5);
    assert_eq!(lazy.recv(&mut buffer).unwrap(), 5);
    assert_eq!(&buffer[..5], b"heard");
}

/// What others say to the daemon: nobody else notices.
#[test]
fn hostile_clients_harm_nobody_but_themselves() {
    let network = Network::ipv4_only();
    let _daemon =
        Daemon::start(&network, &["--lazy", "--lazy-memory", "1", "--lazy-group", "65534"]);
    let lazy = lazy_socket(&network, LAZY);
    assert_lazy(&lazy);
    let path = daemon_socket(&network);
    // The same methods, for any kind of socket.
    let open = || UnixStream::from(connect_to(&path));
    let silent: Vec<UnixStream> = (0..50).map(|_| open()).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..200 {
        let mut client = open();
        let noise: Vec<u8> = (0..random.usize(1..100)).map(|_| random.u8(..)).collect();
        client.write_all(&noise).unwrap();
        if random.bool() {
            // Refused in words, then the connection ends.
            assert!(client.read(&mut [0; 2000]).unwrap() > 0);
            assert_eq!(client.read(&mut [0; 2000]).unwrap(), 0);
        }
    }
    // One socket has one ring.
    let twice = lazy.try_clone().unwrap();
    let twice = LazyUdpSocket::with_ring(twice, 64 << 10);
    assert!(format!("{:?}", twice.ordinary()).contains("lazy already"), "{:?}", twice.ordinary());
    // A user has a share of memory: 1 MiB, as the daemon was told; root has what there is.
    let first_words_of = |user: u32| {
        let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
        let arguments =
            [uid.as_str(), &gid, "--clear-groups", "socat", "-u", "UDP-RECV:9998", "STDOUT"];
        let mut command = preloading("setpriv", &arguments);
        command.env("WEIR_RING_BYTES", "2097152").stderr(Stdio::piped());
        network.near.run(|| Owned::start(&mut command).first_line(PATIENCE)).unwrap()
    };
    let said = first_words_of(65534);
    assert!(said.contains("rings of uid 65534 have 0 of 1 MiB"), "{said}");
    // Whoever is not in the group is not heard at all.
    let said = first_words_of(65533);
    assert!(said.contains("to root's programs alone"), "{said}");
    drop(silent);
    let sender = network.far_socket("198.18.0.2:0");
    send_numbers(&sender, 0..1);
    assert_eq!(receive_numbers(&lazy, 0), [0]);
    drop((lazy, twice));
    wait_until("no ring is left", || {
        summary(&network).starts_with("lazy sockets: 0, rings of 0 KiB")
    });
}

#[test]
fn unmodified_programs_receive_lazily() {
    let (network, _daemon) = protected(&["--lazy"]);
    let lazies = |count: usize| {
        let wanted = format!("lazy sockets: {count},");
        wait_until(&wanted, || summary(&network).starts_with(&wanted));
    };
    // select() and recvfrom(), and a child for each datagram.
    let mut socat = preloaded(&network, "socat", &["UDP4-RECVFROM:5001,fork", "EXEC:cat"]);
    lazies(1);
    let client = network.far_socket("198.18.0.2:0");
    for round in 0..5_u8 {
        client.send_to(&[round; 9], "198.18.0.1:5001").unwrap();
        let mut answer = [0; 64];
        assert_eq!(client.recv(&mut answer).unwrap(), 9);
        assert_eq!(answer[..9], [round; 9]);
    }
    socat.kill().unwrap();
    socat.wait().unwrap();
    lazies(0);
    wait_until("they came by the ring", || network.count("lazy") == 5);
    // poll(), recvmsg() with control messages, and all the ways to look first.
    let script = "import socket,select,struct,fcntl,termios\n\
        s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.setsockopt(0,8,1);s.bind(('0.0.0.0',5002))\n\
        e=select.epoll();e.register(s.fileno(),select.EPOLLIN);print(len(e.poll(9)))\n\
        print(len(select.select([s],[],[],9)[0]))\n\
        p=select.poll();p.register(s,select.POLLIN);print(len(p.poll(9000)))\n\
        print(struct.unpack('i',fcntl.ioctl(s,termios.FIONREAD,b'....'))[0])\n\
        print(s.recv(100,socket.MSG_PEEK).decode())\n\
        m=s.recvmsg(100,200);print(m[0].decode(),[c[1] for c in m[1]],m[2],m[3][0])\n\
        print(s.recv(2).decode());t=s.dup();s.close();print(t.recv(100,socket.MSG_TRUNC).decode())\n\
        t.setblocking(False)\n\
        try: t.recv(1)\n\
        except BlockingIOError: print('EAGAIN')\n\
        t.settimeout(0.05)\n\
        try: t.recv(1)\n\
        except TimeoutError: print('timeout')\n";
    let python = preloaded(&network, "timeout", &["20", "python3", "-c", script]);
    lazies(1);
    for text in ["first", "second", "third"] {
        client.send_to(text.as_bytes(), "198.18.0.1:5002").unwrap();
    }
    let output = python.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let wanted = "1\n1\n1\n5\nfirst\nfirst [8] 0 198.18.0.2\nse\nthird\nEAGAIN\ntimeout\n";
    assert_eq!(said, wanted, "{}", String::from_utf8_lossy(&output.stderr));
    wait_until("they came by the ring", || network.count("lazy") == 8);
}

/// A resolver binds to a random port for each query.
#[test]
fn a_clients_port_is_lazy_only_if_it_is_named() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    sh(&network, "echo 20000 60999 > /proc/sys/net/ipv4/ip_local_port_range");
    // A ring's descriptors are out of the way.
    let script = "import os,socket,sys\n\
        s=socket.socket(2,2);s.bind(('0.0.0.0',int(sys.argv[1])))\n\
        print(any(int(fd)>=512 for fd in os.listdir('/proc/self/fd')))\n";
    for (ports, port, lazy) in
        [(None, "20000", false), (None, "19999", true), (Some("53,20000"), "20000", true)]
    {
        let mut python = preloading("python3", &["-c", script, port]);
        python.envs(ports.map(|ports| ("WEIR_PORTS", ports)));
        let output = network.near.run(|| python.output().unwrap()).unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let wanted = if lazy { "True\n" } else { "False\n" };
        assert_eq!(
            (said.as_str(), output.stderr.as_slice()),
            (wanted, &b""[..]),
            "{ports:?} {port}"
        );
    }
}

/// As servers have them that give each client a socket, bound to their own port and then connected: outsiders decide
/// how many.
#[test]
fn of_sockets_that_share_an_address_few_are_lazy() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = r"
import os,socket
def bound(address,option):
    s=socket.socket(2,2); s.setsockopt(socket.IPPROTO_IP,15,1); s.setsockopt(socket.SOL_SOCKET,option,1)
    s.bind((address,9995))
    return s
def lazy(*sockets):
    count=sum(int(fd)>=512 for fd in os.listdir('/proc/self/fd'))//3
    for s in sockets: s.close()
    return count
server=bound('0.0.0.0',socket.SO_REUSEADDR)
clients=[bound('198.18.0.1',socket.SO_REUSEADDR) for _ in range(3)]
print(lazy(*clients),lazy(server),lazy())
print(lazy(*[bound(address,socket.SO_REUSEADDR) for address in ('198.18.0.1','198.18.0.3')]))
cpus=os.sysconf('SC_NPROCESSORS_ONLN')
print(lazy(*[bound('198.18.0.1',socket.SO_REUSEPORT) for _ in range(cpus+3)])-cpus)
";
    let output = preloaded(&network, "timeout", &["30", "python3", "-c", script]);
    let output = output.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1 1 0\n2\n0\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("UDP port 9995 has an ordinary socket: 1 of this process"), "{said}");
    assert!(said.contains("start no more threads than those"), "{said}");
}

/// What cannot be followed is told: the socket would be an ordinary one, or have another ring, in silence.
#[test]
fn settings_of_the_preload_library_that_mean_nothing_are_told() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = "import socket;s=socket.socket(2,2);s.bind(('0.0.0.0',5000))";
    let says = |name: &str, value: &str| {
        let mut python = preloading("python3", &["-c", script]);
        let output = network.near.run(|| python.env(name, value).output().unwrap()).unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    for (name, value, expected) in [
        ("WEIR_PORTS", "53, 5000,", ""),
        ("WEIR_PORTS", "", ""),
        (
            "WEIR_PORTS",
            "4000-6000",
            "weir: WEIR_PORTS=\"4000-6000\" is no list of ports, such as 53,8125\n",
        ),
        (
            "WEIR_RING_BYTES",
            "16M",
            "weir: UDP port 5000 has an ordinary socket: WEIR_RING_BYTES=\"16M\" is no number of bytes, \
             such as 4194304\n",
        ),
        ("WEIR_RING_BYTES", "1048576", ""),
    ] {
        assert_eq!(says(name, value), expected, "{name}={value}");
    }
}

/// A child of vfork(2) closes all descriptors in the parent's memory; a ring cannot be added to an epoll set that has
/// the socket already.
#[test]
fn children_and_early_epoll_sets_lose_nothing() {
    let (network, _daemon) = protected(&["--lazy"]);
    let client = network.far_socket("198.18.0.2:0");
    let script = "import socket,select,subprocess\n\
        s=socket.socket(2,2);s.bind(('0.0.0.0',5003))\n\
        print(subprocess.run(['true'],close_fds=True).returncode,flush=True)\n\
        print(s.recv(100).decode(),select.select([s],[],[],9)[0]==[s],s.recv(100).decode())\n\
        l=socket.socket(2,2);e=select.epoll();e.register(l.fileno(),select.EPOLLIN);l.bind(('0.0.0.0',5004))\n\
        print('bound',flush=True);print(len(e.poll(9)),l.recv(100).decode())\n";
    let mut python = preloaded(&network, "timeout", &["20", "python3", "-c", script]);
    let mut said = BufReader::new(python.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(line(), "0\n");
    for text in ["first", "second"] {
        client.send_to(text.as_bytes(), "198.18.0.1:5003").unwrap();
    }
    assert_eq!(line(), "first True second\n");
    assert_eq!(line(), "bound\n");
    client.send_to(b"third", "198.18.0.1:5004").unwrap();
    assert_eq!(line(), "1 third\n");
    assert!(python.wait().unwrap().success());
    wait_until("two came by the ring", || network.count("lazy") == 2);
}

#[test]
fn a_c_program_receives_lazily() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let crate_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../weir-socket");
    let library = artifact("libweir_socket.so");
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("receive");
    // As packages have it: the linker's name, and the program's.
    for name in ["libweir_socket.so", "libweir_socket.so.0"] {
        symlink(&library, directory.path().join(name)).unwrap();
    }
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    compiler.arg(format!("-I{crate_dir}/include")).arg(format!("{crate_dir}/examples/receive.c"));
    compiler.arg("-L").arg(directory.path()).arg("-lweir_socket");
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::remove_file(directory.path().join("libweir_socket.so")).unwrap();
    let mut command = Command::new(&program);
    command.args(["9995", "2"]).env("LD_LIBRARY_PATH", directory.path()).stdout(Stdio::piped());
    let child = network.near.run(|| command.spawn().unwrap()).unwrap();
    wait_until("it is lazy", || summary(&network).starts_with("lazy sockets: 1,"));
    let sender = network.far_socket("198.18.0.2:0");
    for text in ["hello", "again"] {
        sender.send_to(text.as_bytes(), LAZY).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let wanted = "a lazy socket\n5 bytes from 198.18.0.2: hello\n5 bytes from 198.18.0.2: again\n";
    assert_eq!(said, wanted);
    wait_until("they came by the ring", || network.count("lazy") == 2);
}

/// As where a program closes a lazy socket and does not say so: another has its number.
#[test]
fn a_c_programs_socket_that_stays_an_ordinary_one_has_nothing_of_a_lazy_one_before_it() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let script = r"
import ctypes,os,select,socket,sys
weir=ctypes.CDLL(sys.argv[1])
lazy=socket.socket(2,2); lazy.bind(('198.18.0.1',9995)); fd=lazy.fileno()
def attach(): return weir.weir_socket_attach(fd,ctypes.c_uint64(0))
def receive():
    select.select([weir.weir_socket_ready_fd(fd)],[],[],9)
    buffer=ctypes.create_string_buffer(9)
    return weir.weir_recvfrom(fd,buffer,ctypes.c_size_t(9),socket.MSG_DONTWAIT,None,None),buffer.value
# The second is refused, and changes nothing.
print(attach(),attach(),flush=True)
print(receive())
other=socket.socket(2,2); select.select([weir.weir_socket_ready_fd(fd)],[],[],9); os.dup2(other.fileno(),fd)
# It is refused as it is not bound.
refused=attach(); other.bind(('198.18.0.1',9996)); print(refused,flush=True)
print(receive())
";
    let mut command = Command::new("timeout");
    command.args(["30", "python3", "-c", script, &artifact("libweir_socket.so")]);
    command.stdout(Stdio::piped());
    let mut python = network.near.run(|| command.spawn().unwrap()).unwrap();
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "0 -1");
    let sender = network.far_socket("198.18.0.2:0");
    for text in ["first", "second"] {
        sender.send_to(text.as_bytes(), LAZY).unwrap();
    }
    assert_eq!(lines.next().unwrap(), "(5, b'first')");
    assert_eq!(lines.next().unwrap(), "-1");
    sender.send_to(b"other", "198.18.0.1:9996").unwrap();
    assert_eq!(lines.next().unwrap(), "(5, b'other')");
    python.wait().unwrap();
    wait_until("they came by the ring", || network.count("lazy") == 2);
}

#[test]
fn without_weir_a_program_has_an_ordinary_socket_and_is_told_once() {
    let network = Network::ipv4_only();
    let lazy = lazy_socket(&network, LAZY);
    assert_eq!(lazy.ordinary(), Some(&Ordinary::NotRunning));
    let sender = network.far_socket("198.18.0.2:0");
    send_numbers(&sender, 0..3);
    assert_eq!(receive_numbers(&lazy, 2), [0, 1, 2]);
    let script =
        "import socket\nfor p in (5001,5002,5003):\n s=socket.socket(2,2);s.bind(('0.0.0.0',p))\n";
    let output = preloaded(&network, "python3", &["-c", script]).wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("has an ordinary socket: no weir offers").count(), 1, "{said}");
    assert_eq!(said.matches("more UDP sockets are ordinary ones").count(), 1, "{said}");
}
