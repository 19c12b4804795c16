//! The meter and the limits, on a real NAPI thread: what each channel's packets cost, and that a limit is
//! kept.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use common::threaded::{Bench, MS, PORT};
use common::{BEYOND_IP4, FAR_IP4, NEAR_IP4, wait_until};
use weir_bpf::accounts::{Account, monotonic_now, until};
use weir_bpf::attach::AttachMode;
use weir_bpf::channels::Channel;
use weir_bpf::input::Input;
use weir_bpf::lazy::{LazyRings, LazySocket};
use weir_bpf::sys::divert::{PortProtocol, Ports};
use weir_bpf::sys::{ethtool, sched};
use weir_bpf::traffic::FlowSpec;
use weir_bpf::units::{Nanos, Permille};
use weir_bpf::verdict::{Kind, Reason};

const OTHER_PORT: u16 = 5001;
const CLOSED_PORT: u16 = 5002;
/// A limit that holds for as long as any test lasts.
const LASTING: Nanos = Nanos(600_000 * MS);

fn udp(port: u16) -> Channel {
    let local = Some((NEAR_IP4.parse().unwrap(), port));
    Channel { local, ..Channel::of_kind(Kind::Udp) }
}

fn account_of(bench: &Bench, input: &Input, channel: Channel) -> Option<Account> {
    input.accounts().read(bench.cpu).into_iter().find(|account| account.channel == channel)
}

fn count(bench: &Bench, reason: Reason) -> u64 {
    bench.gate.counters().unwrap().get(reason).packets
}

#[test]
fn what_is_charged_adds_up_to_what_the_scheduler_saw() {
    let bench = Bench::new();
    let input = bench.watch();
    let _sockets = [PORT, OTHER_PORT].map(|port| bench.network.bind(NEAR_IP4, port));
    let flows = [
        bench.flow(PORT, 20_000.0),
        bench.flow(OTHER_PORT, 100_000.0),
        bench.flow(CLOSED_PORT, 200_000.0),
    ];
    bench.send(&mut bench.generator(), &flows, || input.read().ran.0 > 300 * MS);
    let ran = input.read();
    let accounts = input.accounts().read(bench.cpu);
    let charged: u64 = accounts.iter().map(|account| account.charged.0).sum();
    let all = (charged + ran.wasted.0) as f64 / ran.ran.0 as f64;
    // The rest are polls that found nothing, and the way into the first one and out of the last.
    println!("charged {all:.3} of {:?}: {accounts:?}", ran.ran);
    assert!((0.9..1.01).contains(&all), "{all}: {accounts:?}");
    // Sockets that nobody reads are full at once: what is admitted is for the closed port.
    let closed = account_of(&bench, &input, Channel::of_kind(Kind::Closed)).unwrap();
    assert!(closed.charged.0 > charged / 2, "{accounts:?}");
    // Those of a poll that was not seen as the thread's are charged with its next one.
    let admitted = count(&bench, Reason::UdpNoSocket);
    assert!(
        (admitted - admitted / 50..=admitted).contains(&closed.packets),
        "{admitted}: {closed:?}"
    );
    for port in [PORT, OTHER_PORT] {
        let admitted = account_of(&bench, &input, udp(port)).unwrap();
        assert!(admitted.packets > 0 && admitted.cost.is_some(), "{accounts:?}");
    }
}

/// As many channels as take every place, and then a connection to a protected port.
#[test]
fn a_protected_channel_has_an_account_whatever_else_comes() {
    const PROTECTED: u16 = 2222;
    const OTHERS: u16 = 200;
    let mut bench = Bench::new();
    bench.gate.set_protected_ports([PROTECTED]);
    let input = bench.watch();
    let sockets: Vec<_> = (0..OTHERS).map(|n| bench.network.bind(NEAR_IP4, 6000 + n)).collect();
    let far = bench.network.far.run(|| UdpSocket::bind((FAR_IP4, 0)).unwrap()).unwrap();
    let listener = || TcpListener::bind((NEAR_IP4, PROTECTED)).unwrap();
    let _listener = bench.network.near.run(listener).unwrap();
    let local = Some((NEAR_IP4.parse().unwrap(), PROTECTED));
    let protected = Channel { local, ..Channel::of_kind(Kind::Tcp) };
    let others = || {
        for socket in &sockets {
            far.send_to(b"\n", socket.local_addr().unwrap()).unwrap();
        }
        let accounts = input.accounts().read(bench.cpu);
        accounts.iter().filter(|account| account.channel.kind == Kind::Udp).count()
    };
    let (mut before, mut same) = (0, 0);
    wait_until("every place is taken", || {
        let now = others();
        same = if now > 0 && now == before { same + 1 } else { 0 };
        before = now;
        same == 20
    });
    assert!(before > 16, "{before}");
    let connect = || TcpStream::connect((NEAR_IP4, PROTECTED)).unwrap();
    let _connection = bench.network.far.run(connect).unwrap();
    others();
    assert!(account_of(&bench, &input, protected).is_some());
}

/// What a thread sends in `body` arrives in one poll: nothing else runs on its CPU meanwhile.
fn in_one_poll(bench: &Bench, body: impl FnOnce() + Send) {
    let alone = || {
        sched::pin_current_thread(bench.cpu).unwrap();
        sched::set_fifo_current_thread(1).unwrap();
        body();
    };
    std::thread::scope(|scope| scope.spawn(alone).join().unwrap());
}

#[test]
fn the_last_of_many_channels_in_a_poll_is_charged() {
    const CHANNELS: usize = 9;
    const POLLS: u64 = 50;
    let bench = Bench::new();
    let input = bench.watch();
    let far = bench.network.far.run(|| UdpSocket::bind((FAR_IP4, 0)).unwrap()).unwrap();
    let sockets: Vec<_> = (0..16).map(|n| bench.network.bind(NEAR_IP4, 6000 + n)).collect();
    let of =
        |socket: &UdpSocket| account_of(&bench, &input, udp(socket.local_addr().unwrap().port()));
    let send = |socket: &UdpSocket| {
        far.send_to(b"\n", socket.local_addr().unwrap()).unwrap();
    };
    for socket in &sockets {
        send(socket);
        wait_until("it is received", || socket.recv(&mut [0; 64]).is_ok());
    }
    // Some may have found no place.
    let own: Vec<_> = sockets.iter().filter(|socket| of(socket).is_some()).take(CHANNELS).collect();
    assert_eq!(own.len(), CHANNELS);
    let last = own[CHANNELS - 1];
    let before = of(last).unwrap();
    for _ in 0..POLLS {
        in_one_poll(&bench, || own.iter().for_each(|socket| send(socket)));
        wait_until("they are received", || {
            own.iter().all(|socket| socket.recv(&mut [0; 64]).is_ok())
        });
    }
    let after = of(last).unwrap();
    // A poll in which something else was admitted may have come between.
    assert!(after.packets - before.packets > POLLS / 2, "{before:?}, {after:?}");
    assert!(after.charged.0 > before.charged.0, "{before:?}, {after:?}");
}

/// Else whoever else has a packet in their polls pays for them.
fn others_are_charged(bench: &Bench, (reason, kind): (Reason, Kind), send_other: impl Fn() + Sync) {
    const OTHERS: u64 = 20;
    const POLLS: u64 = 50;
    let input = bench.watch();
    let socket = bench.network.bind(NEAR_IP4, PORT);
    let sender = bench.network.sender();
    let send_own = || sender.send(&bench.network.datagram(NEAR_IP4, PORT, b"\n")).unwrap();
    let of = |channel| account_of(bench, &input, channel);
    wait_until("both are known", || {
        send_other();
        send_own();
        let _ = socket.recv(&mut [0; 64]);
        count(bench, reason) > 0 && of(udp(PORT)).is_some()
    });
    let others = || of(Channel::of_kind(kind)).map_or((0, 0), charged);
    let (before, own) = (others(), charged(of(udp(PORT)).unwrap()));
    for _ in 0..POLLS {
        in_one_poll(bench, || {
            (0..OTHERS).for_each(|_| send_other());
            send_own();
        });
        wait_until("it is received", || socket.recv(&mut [0; 64]).is_ok());
    }
    let (after, own_after) = (others(), charged(of(udp(PORT)).unwrap()));
    assert!(after.0 - before.0 > POLLS / 2 * OTHERS, "{before:?}, {after:?}");
    assert!(
        after.1 - before.1 > own_after.1 - own.1,
        "{before:?}, {after:?}; {own:?}, {own_after:?}"
    );
}

#[test]
fn what_the_fast_path_forwards_is_charged() {
    let bench = Bench::forwarding();
    let sender = bench.network.sender();
    let datagram = bench.network.datagram(BEYOND_IP4, PORT, b"\n");
    others_are_charged(&bench, (Reason::Forwarded, Kind::Forward), || {
        sender.send(&datagram).unwrap()
    });
}

#[test]
fn what_has_a_vlan_tag_is_charged_on_an_skb() {
    let bench = Bench::at(AttachMode::Clsact);
    // Else a veth without a program has no NAPI poll: veth_skb_is_eligible_for_gro().
    bench.network.far.run(|| ethtool::set_tso("far", false).unwrap()).unwrap();
    let sender = bench.network.sender();
    let frame = bench.network.datagram(NEAR_IP4, PORT, b"\n");
    let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    others_are_charged(&bench, (Reason::Vlan, Kind::Other), || sender.send(&tagged).unwrap());
}

#[test]
fn what_nat_may_send_elsewhere_is_charged() {
    let mut bench = Bench::new();
    let ports = Ports { protocol: PortProtocol::Udp, first: OTHER_PORT, last: OTHER_PORT };
    bench.gate.set_translation(Some(vec![ports]));
    let _full = bench.network.bind(NEAR_IP4, OTHER_PORT);
    let sender = bench.network.sender();
    let datagram = bench.network.datagram(NEAR_IP4, OTHER_PORT, &[0; 1024]);
    others_are_charged(&bench, (Reason::Translated, Kind::Other), || {
        sender.send(&datagram).unwrap()
    });
}

/// It counts towards the channel of its own address, and passes as another's once that is over its share.
#[test]
fn what_nat_may_send_elsewhere_is_held_to_no_share() {
    let mut bench = Bench::new();
    let ports = Ports { protocol: PortProtocol::Udp, first: PORT, last: PORT };
    bench.gate.set_translation(Some(vec![ports]));
    let input = bench.watch();
    let socket = bench.network.bind(NEAR_IP4, PORT);
    let sender = bench.network.sender();
    let datagram = bench.network.datagram(NEAR_IP4, PORT, b"\n");
    let arrives = || {
        sender.send(&datagram).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_ok());
    };
    let of_port = || account_of(&bench, &input, udp(PORT));
    wait_until("there is an account", || {
        arrives();
        of_port().is_some()
    });
    assert_eq!(count(&bench, Reason::Translated), 0);
    input.accounts().limit(bench.cpu, of_port().unwrap().place, Permille(0), until(LASTING));
    wait_until("they pass as another's", || {
        arrives();
        count(&bench, Reason::Translated) > 10
    });
    assert_eq!(count(&bench, Reason::UdpShare), 0);
}

#[test]
fn what_a_lazy_socket_receives_is_charged() {
    let bench = Bench::new();
    let lazy = bench.network.bind(NEAR_IP4, OTHER_PORT);
    let mut rings = LazyRings::of(&bench.probe).unwrap();
    let add = || rings.add(LazySocket::of(lazy.as_fd()).unwrap(), 1 << 20).unwrap();
    let _ring = bench.network.near.run(add).unwrap();
    let sender = bench.network.sender();
    let datagram = bench.network.datagram(NEAR_IP4, OTHER_PORT, b"\n");
    others_are_charged(&bench, (Reason::Lazy, Kind::Other), || sender.send(&datagram).unwrap());
}

/// Packets, and nanoseconds.
fn charged(account: Account) -> (u64, u64) {
    (account.packets, account.charged.0)
}

#[test]
fn a_discarded_piece_of_many_packets_is_no_poll_in_vain() {
    const PACKETS: usize = 60;
    const POLLS: u64 = 50;
    let bench = Bench::at(AttachMode::Clsact);
    bench.network.far.run(|| ethtool::set_tso("far", false).unwrap()).unwrap();
    let input = bench.watch();
    let (near, far) = bench.sockets();
    let strange = bench.network.far.run(|| UdpSocket::bind((FAR_IP4, 0)).unwrap()).unwrap();
    strange.connect((NEAR_IP4, CLOSED_PORT)).unwrap();
    set_segment(&strange, 100);
    let piece = || strange.send(&[0; 100 * PACKETS]);
    let closed = || account_of(&bench, &input, Channel::of_kind(Kind::Closed));
    wait_until("there is an account", || {
        let _ = piece();
        closed().is_some()
    });
    let until = until(LASTING);
    input.accounts().limit(bench.cpu, closed().unwrap().place, Permille(0), until);
    wait_until("pieces are discarded", || {
        let _ = piece();
        count(&bench, Reason::ClosedShare) > 0
    });
    far.send(b"\n").unwrap();
    assert!(near.recv(&mut [0; 64]).is_ok());
    let open = || account_of(&bench, &input, udp(PORT)).unwrap();
    let (before, discarded) = (open(), count(&bench, Reason::ClosedShare));
    for _ in 0..POLLS {
        in_one_poll(&bench, || {
            let _ = piece();
            far.send(b"\n").unwrap();
            far.send(b"\n").unwrap();
        });
        assert!(near.recv(&mut [0; 64]).is_ok());
        assert!(near.recv(&mut [0; 64]).is_ok());
    }
    let discarded = count(&bench, Reason::ClosedShare) - discarded;
    assert!(discarded > POLLS / 2 * PACKETS as u64, "{discarded}");
    let after = open();
    assert!(after.packets - before.packets > POLLS, "{before:?}, {after:?}");
    assert!(after.charged.0 > before.charged.0, "{before:?}, {after:?}");
}

/// Datagrams go out whole, to be cut up into so many bytes each.
fn set_segment(socket: &UdpSocket, bytes: libc::c_int) {
    let at = (&raw const bytes).cast();
    let len = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the option is an int, which is there.
    #[allow(unsafe_code)]
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, at, len) };
    assert_eq!(set, 0);
}

#[test]
fn a_limit_is_kept_and_ends() {
    let bench = Bench::new();
    let input = bench.watch();
    let flood = [FlowSpec { rate: None, ..bench.flow(CLOSED_PORT, 1.0) }];
    let closed = || account_of(&bench, &input, Channel::of_kind(Kind::Closed));
    let mut generator = bench.generator();
    bench.send(&mut generator, &flood, || closed().is_some_and(|account| account.packets > 1000));
    assert_eq!(count(&bench, Reason::ClosedShare), 0);

    let place = closed().unwrap().place;
    let limit = |until| input.accounts().limit(bench.cpu, place, Permille(50), until);
    limit(until(LASTING));
    let mut measured = Vec::new();
    // The hypervisor's time is charged to whom it befalls, and what was saved up comes on top.
    let is_kept = (0..5).any(|_| {
        let (from, then) = (closed().unwrap(), monotonic_now());
        let discarded = count(&bench, Reason::ClosedShare);
        bench.send(&mut generator, &flood, || {
            count(&bench, Reason::ClosedShare) > discarded + 100_000
                && monotonic_now().0 - then.0 > 500 * MS
        });
        let (now, elapsed) = (closed().unwrap(), monotonic_now().0 - then.0);
        let used = (now.charged.0 - from.charged.0) as f64 / elapsed as f64;
        measured.push(used);
        assert!(now.shed > from.shed);
        (0.005..0.08).contains(&used)
    });
    assert!(is_kept, "{measured:?}");

    limit(Nanos(0));
    let discarded = count(&bench, Reason::ClosedShare);
    let from = closed().unwrap().packets;
    bench.send(&mut generator, &flood, || closed().unwrap().packets > from + 10_000);
    assert_eq!(count(&bench, Reason::ClosedShare), discarded);
}

#[test]
fn a_limit_begins_without_a_debt() {
    let bench = Bench::new();
    let input = bench.watch();
    let flood = [FlowSpec { rate: None, ..bench.flow(CLOSED_PORT, 1.0) }];
    let closed = || account_of(&bench, &input, Channel::of_kind(Kind::Closed));
    let charged = || closed().map_or(0, |account| account.charged.0);
    let mut generator = bench.generator();
    // What takes a minute at the limit.
    bench.send(&mut generator, &flood, || charged() > 300 * MS);
    let from = closed().unwrap();
    let until = until(LASTING);
    input.accounts().limit(bench.cpu, from.place, Permille(5), until);
    bench.send(&mut generator, &flood, || closed().unwrap().packets > from.packets + 1000);
    assert!(count(&bench, Reason::ClosedShare) > 0);
}

#[test]
fn a_limit_on_one_channel_is_no_other_s() {
    let bench = Bench::new();
    let input = bench.watch();
    let (near, far) = bench.sockets();
    let open = || account_of(&bench, &input, udp(PORT));
    wait_until("the channel has an account", || {
        far.send(b"\n").unwrap();
        open().is_some()
    });
    let flood = [bench.flow(CLOSED_PORT, 100_000.0)];
    let closed = || account_of(&bench, &input, Channel::of_kind(Kind::Closed));
    let mut generator = bench.generator();
    bench.send(&mut generator, &flood, || closed().is_some());
    let until = until(LASTING);
    input.accounts().limit(bench.cpu, closed().unwrap().place, Permille(1), until);
    near.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    while near.recv(&mut [0; 64]).is_ok() {}
    bench.send(&mut generator, &flood, || {
        far.send(b"\n").unwrap();
        count(&bench, Reason::ClosedShare) > 10_000
    });
    assert_eq!(count(&bench, Reason::UdpShare), 0);
    assert!(near.recv(&mut [0; 64]).is_ok());
}

#[test]
fn a_connected_socket_is_not_in_the_share_of_strangers_to_its_port() {
    let bench = Bench::new();
    let input = bench.watch();
    // The flood's source port is another.
    let (near, far) = bench.sockets();
    near.set_nonblocking(true).unwrap();
    let closed = || account_of(&bench, &input, Channel::of_kind(Kind::Closed));
    let mut generator = bench.generator();
    let flood = [bench.flow(PORT, 20_000.0)];
    bench.send(&mut generator, &flood, || closed().is_some());
    let until = until(LASTING);
    input.accounts().limit(bench.cpu, closed().unwrap().place, Permille(1), until);
    let (mut sent, mut received) = (0, 0);
    let refused_before = bench.network.ring_full();
    let read = || {
        let each = std::iter::repeat_with(|| near.recv(&mut [0; 64]));
        each.take_while(|it| it.is_ok()).count()
    };
    bench.send(&mut generator, &flood, || {
        far.send(b"\n").unwrap();
        sent += 1;
        received += read();
        sent >= 100 && count(&bench, Reason::ClosedShare) > 10_000
    });
    wait_until("all but what the ring dropped is received", || {
        received += read();
        let refused = (bench.network.ring_full() - refused_before) as usize;
        received + refused > sent - sent / 20
    });
}
