//! Lazy sockets: what comes by the ring, what comes by the kernel's socket, and in which order.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;

use crate::common::lazy::*;
use crate::common::*;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use tokio::time::timeout;
use weir_socket::{AsyncLazyUdpSocket, LazyUdpSocket};

/// What waited before it was lazy comes first, and then the ring, though the kernel's socket is never empty.
#[test]
fn a_kernels_socket_that_is_never_empty_does_not_keep_the_ring_waiting() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let sender = network.far_socket("198.18.0.2:0");
    let socket = network.near.run(|| UdpSocket::bind(LAZY).unwrap()).unwrap();
    send_numbers(&sender, 0..8);
    socket.peek(&mut [0; 4]).unwrap();
    let lazy = LazyUdpSocket::with_ring(socket, 64 << 10);
    assert_lazy(&lazy);
    lazy.set_read_timeout(Some(PATIENCE)).unwrap();
    send_numbers(&sender, 8..9);
    wait_until("one is on the ring", || network.count("lazy") == 1);
    let (mut numbers, mut fragments) = (Vec::new(), 0);
    let mut buffer = [0; 4000];
    while numbers.last() != Some(&8) {
        // In two fragments: the kernel's.
        sender.send_to(&[7; 2000], LAZY).unwrap();
        match lazy.recv(&mut buffer).unwrap() {
            4 => numbers.push(u32::from_ne_bytes([buffer[0], buffer[1], buffer[2], buffer[3]])),
            _ => fragments += 1,
        }
        assert!(fragments < 100, "{numbers:?}");
    }
    assert_eq!(numbers, (0..9).collect::<Vec<_>>());
}

/// Those of the ring in their order, those of the kernel's socket in theirs, and none is lost or comes twice.
#[test]
fn fragmented_datagrams_between_whole_ones_keep_their_order() {
    let (network, _daemon, lazy, sender) = with_lazy_socket();
    let (mut whole, mut fragmented) = (Vec::new(), Vec::new());
    let mut buffer = [0; 4000];
    for round in 0..20_u32 {
        for number in round * 25..round * 25 + 25 {
            let length = if number % 5 == 4 { 3000 } else { 8 };
            let mut payload = vec![0; length];
            payload[..4].copy_from_slice(&number.to_ne_bytes());
            sender.send_to(&payload, LAZY).unwrap();
        }
        for _ in 0..25 {
            let length = lazy.recv(&mut buffer).unwrap();
            let number = u32::from_ne_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
            if length == 8 { &mut whole } else { &mut fragmented }.push(number);
        }
    }
    assert_eq!(whole, (0..500).filter(|number| number % 5 != 4).collect::<Vec<_>>());
    assert_eq!(fragmented, (0..500).filter(|number| number % 5 == 4).collect::<Vec<_>>());
    wait_until("the others came by the ring", || network.count("lazy") == 400);
}

/// Its tasks sleep between two datagrams, whether those come by the ring or by the kernel's socket.
#[test]
fn tokio_waits_for_both() {
    let (network, daemon, lazy, sender) = with_lazy_socket();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lazy = AsyncLazyUdpSocket::new(lazy).unwrap();
        let mut buffer = [0; 4000];
        for round in 0..50_u32 {
            let length = if round % 2 == 0 { 8 } else { 3000 };
            let (received, ()) =
                tokio::join!(timeout(PATIENCE, lazy.recv_from(&mut buffer)), async {
                    // The receiver is polled first, and waits.
                    sender.send_to(&vec![round as u8; length], LAZY).unwrap();
                });
            let (received, from) = received.unwrap().unwrap();
            assert_eq!((received, buffer[0]), (length, round as u8));
            assert_eq!(from, sender.local_addr().unwrap());
        }
        send_numbers(&sender, 0..3);
        let mut numbers = Vec::new();
        while numbers.len() < 3 {
            let batch = lazy.recv_batch(8, |datagram| numbers.push(datagram.payload[0]));
            timeout(PATIENCE, batch).await.unwrap().unwrap();
        }
        assert_eq!(numbers, [0, 1, 2]);
        wait_until("the others came by the kernel", || network.count("lazy") == 28);
        daemon.kill();
        send_numbers(&sender, 3..4);
        let received = timeout(PATIENCE, lazy.recv_from(&mut buffer)).await.unwrap().unwrap();
        assert_eq!((received.0, buffer[0]), (4, 3));
    });
}

/// Datagrams to a neighbour that does not answer yet fill the socket's buffer.
#[test]
fn tokio_waits_to_send() {
    let network = Network::ipv4_only();
    for address in [LAZY, "198.18.0.1:9996"] {
        // The second is lazy.
        let _daemon = (address != LAZY).then(|| Daemon::start(&network, &["--lazy"]));
        let socket = lazy_socket(&network, address);
        assert_eq!(socket.ordinary().is_none(), address != LAZY);
        sockopt::set_socket_send_buffer_size(&*socket, 4096).unwrap();
        let silent = "198.18.0.77:9".parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = AsyncLazyUdpSocket::new(socket).unwrap();
            while UdpSocket::send_to(&socket, &[0; 1000], silent).is_ok() {}
            let (sent, ()) =
                tokio::join!(timeout(PATIENCE, socket.send_to(&[0; 1000], silent)), async {
                    // The sender is polled first, and waits.
                    run_in(
                        &network.near,
                        "ip neigh replace 198.18.0.77 lladdr 02:00:00:00:00:77 dev near",
                    );
                });
            assert_eq!(sent.unwrap().unwrap(), 1000);
        });
        run_in(&network.near, "ip neigh del 198.18.0.77 dev near");
    }
}

/// What was on the ring when weir was killed is read, then what the kernel has received since: nothing is lost,
/// nothing comes twice, and nothing is overtaken.
#[test]
fn a_killed_weir_costs_a_reader_nothing() {
    for attach in ["native", "tc"] {
        let network = Network::ipv4_only();
        let daemon = Daemon::start_sleepy(&network, &["--lazy", "--attach", attach]);
        let lazy = lazy_socket(&network, LAZY);
        assert_lazy(&lazy);
        let sender = network.far_socket("198.18.0.2:0");
        // Nobody reads meanwhile: both queues are longer than all that is sent.
        send_numbers(&sender, 0..100);
        wait_until("they are on the ring", || network.count("lazy") == 100);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| daemon.kill());
            let mut sent = 100;
            while !killer.is_finished() {
                if sent < 200 {
                    send_numbers(&sender, sent..sent + 1);
                    sent += 1;
                }
            }
            send_numbers(&sender, sent..300);
            killer.join().unwrap();
        });
        let mut received = receive_numbers(&lazy, 299);
        if attach == "native" {
            // A veth that loses its XDP program may drop what is in its ring, or let it be overtaken.
            received[100..].sort_unstable();
            let missing =
                (100..200).filter(|number| !received.contains(number)).collect::<Vec<_>>();
            // No more than it takes out of it at a time.
            assert!(missing.len() <= 64, "{missing:?}");
            received.extend(missing);
            received[100..].sort_unstable();
        }
        assert_eq!(received, (0..300).collect::<Vec<_>>(), "{attach}");
        // Another weir makes sockets lazy again; this one stays as it is.
        wait_until("the knobs are back", || network.threaded() == "0");
        let path = daemon_socket(&network);
        wait_until("nobody is asked any more", || !path.exists());
        let _daemon = Daemon::start_sleepy(&network, &["--lazy"]);
        send_numbers(&sender, 300..310);
        assert_eq!(receive_numbers(&lazy, 309), (300..310).collect::<Vec<_>>());
        assert_eq!(network.count("lazy"), 0);
        drop(lazy);
        assert_lazy(&lazy_socket(&network, LAZY));
    }
}

/// What was on the ring comes first, then what the kernel has received since.
#[test]
fn a_socket_that_weir_is_told_to_leave_loses_nothing() {
    let (network, _daemon, lazy, sender) = with_lazy_socket();
    send_numbers(&sender, 0..100);
    wait_until("they are on the ring", || network.count("lazy") == 100);
    let notes = || network.interface_status()["notes"].to_string();
    lazy.leave();
    send_numbers(&sender, 100..200);
    // What was published before it came says the same.
    network.wait_until_published_again();
    wait_until("weir has left", || notes().contains("lazy sockets: 0,"));
    send_numbers(&sender, 200..210);
    assert_eq!(receive_numbers(&lazy, 209), (0..210).collect::<Vec<_>>());
    // The same socket may be lazy again.
    let again = LazyUdpSocket::with_ring(lazy.try_clone().unwrap(), 64 << 10);
    assert_lazy(&again);
    send_numbers(&sender, 210..220);
    assert_eq!(receive_numbers(&again, 219), (210..220).collect::<Vec<_>>());
    wait_until("these came by the ring", || (110..=210).contains(&network.count("lazy")));
}

/// The kernel prefers the member that wants the CPU where it looks, which need not be the gate's (RPS).
#[test]
fn a_group_whose_members_prefer_cpus_is_left_to_the_kernel() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let member = || {
        let socket: OwnedFd = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        sockopt::set_socket_reuseport(&socket, true).unwrap();
        bind(&socket, &LAZY.parse::<std::net::SocketAddr>().unwrap()).unwrap();
        LazyUdpSocket::with_ring(socket.into(), 64 << 10)
    };
    let members = network.near.run(|| [member(), member()]).unwrap();
    members.iter().for_each(assert_lazy);
    let sender = network.far_socket("198.18.0.2:0");
    send_numbers(&sender, 0..1);
    wait_until("one came by the ring", || network.count("lazy") == 1);
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let name = b"\0incoming_cpu\0";
    if !btf.windows(name.len()).any(|at| at == name) {
        return println!("skipped: this kernel's groups do not prefer CPUs (Linux 6.2 has it)");
    }
    let prefer = |cpu| sockopt::set_socket_incoming_cpu(&*members[0], cpu).unwrap();
    prefer(0);
    send_numbers(&sender, 1..11);
    let received = || {
        let received = |member: &LazyUdpSocket| {
            member.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| member.recv(&mut [0; 4]).ok()).count()
        };
        members.iter().map(received).sum::<usize>()
    };
    let mut count = 0;
    wait_until("all have come", || {
        count += received();
        count == 11
    });
    // None.
    prefer(u32::MAX);
    send_numbers(&sender, 11..12);
    wait_until("the first and the last came by the ring", || network.count("lazy") == 2);
}
