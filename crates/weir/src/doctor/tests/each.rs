//! Each trouble by itself.

use super::*;

/// A finding, and a word of: what it is, whose, the advice.
type Expected = ((Cause, Sureness, Help), [&'static str; 3]);

struct Case {
    reading: Reading,
    expected: Vec<Expected>,
}

fn case(reading: Reading) -> Case {
    Case { reading, expected: vec![] }
}

impl Case {
    /// What is wrong, how sure, and whether weir helps...
    fn told(mut self, cause: Cause, sureness: Sureness, weir: Help) -> Self {
        self.expected.push(((cause, sureness, weir), [""; 3]));
        self
    }

    /// ...and how that is said.
    fn saying(mut self, what: &'static str, whose: &'static str, advice: &'static str) -> Self {
        self.expected.last_mut().unwrap().1 = [what, whose, advice];
        self
    }
}

#[test]
fn each_host_is_told_its_own_trouble_and_no_other() {
    use Cause::*;
    use Help::{Contains, Cures, None as No};
    use Sureness::{Likely, Measured, Possible};
    let owner = |ran, waited| {
        move |socket: &mut SocketReading| {
            (socket.owners[0].ran, socket.owners[0].waited) = (Some(ran), Some(waited));
        }
    };
    let cases = [
        case(healthy()),
        case(livelock(0.97)).told(Livelock, Measured, Cures).saying(
            "97% of CPU 1",
            "",
            "sudo weir run eth0",
        ),
        case(changed(livelock(0.97), |host| {
            (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(1), Some(8));
        }))
        .told(Livelock, Measured, Cures)
        .saying("800,000 packets/s by eth0", "", "weir run eth0")
        .told(OneCpuReceives, Likely, No)
        .saying("1 receive queue", "eth0", "sudo ethtool -L eth0 combined 4"),
        case(changed(livelock(0.0), |host| {
            host.cpus[1].napi_threads = 1.04;
            (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(1), Some(8));
            host.interfaces[0].queues_apart = true;
        }))
        .told(OneCpuReceives, Likely, No)
        .saying("1 receive queue", "eth0", "sudo ethtool -L eth0 rx 4"),
        case(changed(livelock(0.0), |host| {
            host.cpus[1].napi_threads = 1.04;
            (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(1), Some(1));
        }))
        .told(OneCpuReceives, Likely, No)
        .saying("CPU 1 spends 100%", "eth0", "echo d | sudo tee"),
        // weir switches RPS off.
        case(changed(livelock(0.0), |host| {
            host.cpus[1].napi_threads = 1.04;
            host.protected = vec!["eth0".into()];
            (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(1), Some(1));
        }))
        .told(OneCpuReceives, Likely, No)
        .saying("CPU 1 spends 100%", "eth0", ""),
        // More queues would not help.
        case(changed(livelock(0.0), |host| {
            host.cpus[1].napi_threads = 1.04;
            (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(2), Some(4));
        }))
        .told(OneCpuReceives, Likely, No)
        .saying("2 receive queues", "eth0", "ethtool -N eth0 rx-flow-hash udp4 sdfn"),
        // A router at its limit.
        case(changed(livelock(0.97), |host| {
            host.sockets = healthy().sockets;
            host.ip = Some(IpReading {
                received_pps: 800_000.0,
                forwarded_pps: 790_000.0,
                ..IpReading::default()
            });
        }))
        .told(Livelock, Possible, Contains)
        .saying("800,000 packets/s by eth0, most of them forwarded", "", "weir run eth0"),
        // Half of a CPU is too much only if something is lost.
        case(livelock(0.6)),
        case(conntrack(262_144, 5_000.0)).told(ConntrackFull, Measured, No).saying(
            "262,144 of 262,144 entries; 5,000 packets/s",
            "",
            "nf_conntrack_max=524288",
        ),
        case(conntrack(262_144, 0.0))
            .told(ConntrackFull, Likely, No)
            .saying("is full", "", "notrack"),
        case(conntrack(250_000, 0.0)),
        // Invalid packets.
        case(conntrack(1_000, 5_000.0)),
        case(change(|host| {
            let fragment_memory = Some(4_194_304);
            let ip =
                IpReading { fragment_drop_pps: 6_000.0, fragment_memory, ..IpReading::default() };
            host.ip = Some(ip);
        }))
        .told(FragmentsLost, Likely, No)
        .saying(
            "6,000/s are dropped, and 0 datagrams/s",
            "",
            "ipfrag_high_thresh=8388608",
        ),
        case(change(|host| {
            let lost = losing(owner(0.3, 0.6));
            (host.udp, host.sockets) = (lost.udp, lost.sockets);
            host.cpus[0] = CpuReading { softirq: 0.6, packets_pps: 1e5, ..CpuReading::default() };
        }))
        .told(Livelock, Measured, Cures)
        .saying("9,000 packets/s are dropped after", "named (pid 812", "weir run")
        .told(SocketFull, Likely, Cures)
        .saying("waits for a CPU", "udp 198.18.0.1:53", "weir run eth0"),
        case(losing(owner(0.97, 0.01))).told(SocketFull, Likely, Contains).saying(
            "208 KiB is full, as its reader is busy",
            "named.service",
            "SO_REUSEPORT",
        ),
        case(losing(owner(0.0, 0.0))).told(SocketFull, Likely, Contains).saying(
            "nobody reads it",
            "pid 812",
            "/proc/812/stack",
        ),
        case(losing(owner(0.004, 0.0))).told(SocketFull, Likely, Contains).saying(
            "is full, as its reader hardly reads",
            "pid 812",
            "/proc/812/stack",
        ),
        // However full: what is large fills no queue to the end.
        case(losing(|socket| {
            owner(0.0, 0.0)(socket);
            socket.queued = socket.limit / 4 * 3;
            socket.owners[0].stopped = true;
        }))
        .told(SocketFull, Likely, Contains)
        .saying("is stopped, by a signal", "pid 812", "sudo kill -CONT 812"),
        case(losing(|socket| {
            owner(0.0, 0.0)(socket);
            socket.owners[0].frozen = Some("/sys/fs/cgroup/a".into());
        }))
        .told(SocketFull, Likely, Contains)
        .saying("control group is frozen", "pid 812", "thaw /sys/fs/cgroup/a "),
        // SIGCONT would not continue it.
        case(losing(|socket| {
            owner(0.0, 0.0)(socket);
            let owner = &mut socket.owners[0];
            (owner.stopped, owner.held_by) = (true, Some("gdb (pid 77)".into()));
        }))
        .told(SocketFull, Likely, Contains)
        .saying(
            "a debugger holds its process",
            "pid 812",
            "continue pid 812 in its debugger, gdb (pid 77), or end that",
        ),
        // Another worker of the same port is busy, and this is told of that one.
        case(changed(losing(owner(0.97, 0.01)), |host| {
            let mut other = SocketReading { drop_pps: 4_000.0, queued: 212_000, ..server() };
            other.owners[0] =
                OwnerReading { pid: 813, stopped: true, ran: Some(0.0), ..other.owners[0].clone() };
            host.udp.as_mut().unwrap().queue_full_pps = 13_000.0;
            host.sockets.as_mut().unwrap().push(other);
        }))
        .told(SocketFull, Likely, Contains)
        .saying("9,000 packets/s", "pid 812", "SO_REUSEPORT")
        .told(SocketFull, Likely, Contains)
        .saying("4,000 packets/s", "pid 813", "kill -CONT 813"),
        // Of multicast each has a copy, and one of them keeps up between bursts.
        case(changed(losing(owner(0.0, 0.0)), |host| {
            host.udp.as_mut().unwrap().queue_full_pps = 13_000.0;
            let sockets = host.sockets.as_mut().unwrap();
            sockets.push(SocketReading { drop_pps: 4_000.0, ..server() });
            sockets[2].owners[0].pid = 813;
            for socket in [0, 2] {
                sockets[socket].local = "239.1.1.1:5000".into();
            }
        }))
        .told(SocketFull, Likely, Contains)
        .saying(
            "9,000 packets/s: its queue of 208 KiB is full, as nobody reads",
            "pid 812",
            "/proc/812",
        )
        .told(SocketFull, Likely, No)
        .saying("4,000 packets/s", "pid 813", "SO_RCVBUF"),
        // As `cpulimit` does it.
        case(losing(|socket| {
            owner(0.3, 0.01)(socket);
            socket.owners[0].stopped = true;
        }))
        .told(SocketFull, Likely, Contains)
        .saying("waits, but not for a CPU", "pid 812", "/proc/812/stack"),
        case(losing(owner(0.3, 0.01))).told(SocketFull, Likely, Contains).saying(
            "waits, but not for a CPU",
            "pid 812",
            "/proc/812/stack",
        ),
        case(losing(|socket| {
            owner(0.3, 0.01)(socket);
            socket.queued = 3000;
        }))
        .told(SocketFull, Likely, No)
        .saying("bursts", "named", "net.core.rmem_max=524288"),
        // A game server, one of whose threads is always busy, and it is not the one that reads.
        case(losing(|socket| {
            owner(1.0, 0.0)(socket);
            socket.queued = 3000;
        }))
        .told(SocketFull, Likely, No)
        .saying("bursts", "named", "a larger SO_RCVBUF"),
        // What was read was freed a moment ago.
        case(losing(|socket| {
            owner(1.0, 0.0)(socket);
            socket.queued = socket.limit / 4 * 3;
        }))
        .told(SocketFull, Likely, Contains)
        .saying("its reader is busy", "named", "SO_REUSEPORT"),
        case(changed(losing(|socket| socket.owners.clear()), |host| {
            host.unseen = vec![format!("{OWNERS} (run it as root)")];
        }))
        .told(SocketFull, Possible, Contains)
        .saying("cannot be seen", "whose process is not seen", "sudo weir doctor"),
        // Root sees all that processes of this PID namespace have open.
        case(losing(|socket| socket.owners.clear()))
            .told(SocketFull, Possible, Contains)
            .saying("cannot be seen", "", "io_uring"),
        case(changed(losing(owner(0.3, 0.0)), |host| {
            let udp = host.udp.as_mut().unwrap();
            (udp.memory_pps, udp.queue_full_pps) = (9_000.0, 0.0);
            udp.memory_pages = Some(395);
        }))
        .told(UdpMemory, Measured, No)
        .saying("395 of 400 pages", "198.18.0.1:53", "udp_mem='200 400 800'"),
        // As Linux 6.18 does: counted nowhere but at the socket.
        case(changed(losing(owner(0.3, 0.0)), |host| {
            let udp = host.udp.as_mut().unwrap();
            (udp.queue_full_pps, udp.memory_pages) = (0.0, Some(u64::MAX));
            udp.memory_limit_pages = Some([100, 200, u64::MAX]);
        }))
        .told(UdpMemory, Likely, No)
        .saying(
            "9,000 datagrams/s",
            "198.18.0.1:53",
            "udp_mem='200 400 18446744073709551615'",
        ),
        case(changed(losing(owner(0.3, 0.0)), |host| {
            let udp = host.udp.as_mut().unwrap();
            (udp.queue_full_pps, udp.memory_limit_pages) = (0.0, None);
        }))
        .told(UdpMemory, Possible, No)
        .saying("9,000 datagrams/s", "198.18.0.1:53", "memory.max"),
        // A filter of its own; told in a note.
        case(changed(losing(owner(0.3, 0.0)), |host| {
            host.udp.as_mut().unwrap().queue_full_pps = 0.0;
        })),
        // Which hides nobody's full queue.
        case(changed(losing(owner(0.0, 0.0)), |host| {
            host.sockets.as_mut().unwrap().push(filtered());
        }))
        .told(SocketFull, Likely, Contains)
        .saying("9,000 packets/s", "named", "/proc/812/stack"),
        // Nor is its own queue one, if it drops less.
        case(changed(losing(owner(0.0, 0.0)), |host| {
            let filtered = SocketReading { drop_pps: 1_500.0, ..filtered() };
            host.sockets.as_mut().unwrap().push(filtered);
        }))
        .told(SocketFull, Likely, Contains)
        .saying("9,000 packets/s", "named", "/proc/812/stack"),
        // By sockets that were closed meanwhile.
        case(change(|host| host.udp.as_mut().unwrap().queue_full_pps = 4_060.0))
            .told(SocketFull, Measured, Contains)
            .saying("4,060 packets/s", "", "weir run eth0"),
        // Told in a note.
        case(changed(losing(owner(0.3, 0.0)), |host| {
            let udp = host.udp.as_mut().unwrap();
            (udp.queue_full_pps, udp.checksum_pps) = (0.0, 9_000.0);
        })),
        // Hardly anything is received on its CPU: it is other processes that have it.
        case(changed(losing(owner(0.05, 0.9)), |host| {
            host.cpus[0] = CpuReading { softirq: 0.02, ..CpuReading::default() };
        }))
        .told(SocketFull, Likely, Contains)
        .saying("other processes have", "named", "CPUWeight="),
        // It waits while its CPU is idle.
        case(losing(owner(0.1, 0.9)))
            .told(SocketFull, Likely, Contains)
            .saying("CPU quota", "named", "CPUQuota="),
        case(losing(|socket| socket.owners[0].ran = None))
            .told(SocketFull, Possible, Contains)
            .saying("just begun", "named", "again"),
        // Once in four seconds.
        case(changed(losing(|socket| socket.drop_pps = 0.25), |host| {
            host.udp.as_mut().unwrap().queue_full_pps = 0.25;
        })),
        case(change(|host| host.udp.as_mut().unwrap().memory_pps = 10.0))
            .told(UdpMemory, Likely, No)
            .saying("a control group's limit must be", "198.18.0.1:53", "memory.max"),
        case(change(|host| {
            host.tcp.as_mut().unwrap().cookies_per_sec = 90_000.0;
            host.sockets.as_mut().unwrap()[1].half_open = 511;
        }))
        .told(SynFlood, Measured, Contains)
        .saying(
            "90,000/s are answered with SYN cookies",
            "tcp 0.0.0.0:443, nginx",
            "weir run",
        ),
        case(change(|host| {
            let tcp = host.tcp.as_mut().unwrap();
            (tcp.request_drops_per_sec, tcp.syncookies) = (500.0, Some(0));
        }))
        .told(SynFlood, Measured, Contains)
        .saying("500/s are dropped", "", "tcp_syncookies=1"),
        // They do not find the queue full.
        case(change(|host| {
            let tcp = host.tcp.as_mut().unwrap();
            (tcp.request_drops_per_sec, tcp.syncookies) = (500.0, Some(1));
        }))
        .told(SynFlood, Possible, Contains)
        .saying("no route back", "", "sudo weir run"),
        // With net.ipv4.tcp_syncookies=2 every request gets one, and none is half open.
        case(change(|host| host.tcp.as_mut().unwrap().cookies_per_sec = 48.0)),
        // One burst.
        case(change(|host| host.tcp.as_mut().unwrap().cookies_per_sec = 3.0)),
        case(change(|host| {
            host.tcp.as_mut().unwrap().accept_queue_full_per_sec = 40.0;
            let sockets = host.sockets.as_mut().unwrap();
            (sockets[1].queued, sockets[1].drop_pps) = (512, 40.0);
            // As full, and nobody connects to it.
            sockets.push(SocketReading { queued: 512, local: "[::]:80".into(), ..listener() });
        }))
        .told(AcceptQueueFull, Measured, Contains)
        .saying("512 connections", "443, nginx (pid 900)", "somaxconn=4096"),
        // By a listener that has closed since.
        case(change(|host| host.tcp.as_mut().unwrap().accept_queue_full_per_sec = 40.0))
            .told(AcceptQueueFull, Measured, Contains)
            .saying("40 connections/s", "", "not accept"),
        case(change(|host| host.interfaces[0].ring_drop_pps = 77.0))
            .told(RingFull, Measured, Contains)
            .saying("77 packets/s", "eth0", "ethtool -G eth0 rx"),
        // A bond repeats what its ports count.
        case(change(|host| {
            host.interfaces[0].ring_drop_pps = 77.0;
            host.interfaces.push(InterfaceReading {
                name: "bond0".into(),
                lower: vec!["eth0".into()],
                ..host.interfaces[0].clone()
            });
        }))
        .told(RingFull, Measured, Contains)
        .saying("77 packets/s", "eth0", "ethtool -G eth0 rx"),
        case(change(|host| {
            host.cpus[2].backlog_drop_pps = 4_000.0;
            host.interfaces[0].steered = vec!["rx-0".into()];
        }))
        .told(BacklogFull, Measured, Contains)
        .saying("CPU 2 cannot keep up", "RPS is on for rx-0 of eth0", "--rps-off"),
        // As of a veth, which has no thread for it: there is no RPS to switch off.
        case(change(|host| {
            host.interfaces[0].receive_pps = 50_000.0;
            host.cpus[2].backlog_drop_pps = 4_000.0;
        }))
        .told(BacklogFull, Measured, Contains)
        .saying("CPU 2 cannot keep up", "", "netdev_max_backlog"),
        // A router that forwards more than an egress takes, and that of the interface by which most comes in.
        case(forwarding(&["tbf"], 30_000.0)).told(EgressFull, Measured, Contains).saying(
            "eth0 sends (tbf) is full: it drops 30,000 packets/s, 75%",
            "eth0",
            "weir run eth1",
        ),
        case(forwarding(&["htb", "fq_codel"], 30_000.0)).told(EgressFull, Measured, No).saying(
            "(htb, fq_codel)",
            "eth0",
            "tc -s -d qdisc show dev eth0",
        ),
        // What tells TCP how fast to send.
        case(forwarding(&["tbf"], 9.0)),
        case(forwarding(&["fq_codel"], 300.0)),
        case(forwarding(&["tbf"], 1_000.0)),
        case(changed(forwarding(&["tbf"], 2_000.0), |host| {
            host.interfaces[0].egress.as_mut().unwrap().waiting_bytes = 2_000;
        })),
        case(changed(forwarding(&["tbf"], 2_000.0), |host| {
            let queue = host.interfaces[0].egress.as_mut().unwrap();
            (queue.waiting_bytes, queue.waiting_bytes_most) = (0, 0);
        })),
        case(forwarding(&["tbf"], 2_000.0)).told(EgressFull, Measured, Contains).saying(
            "20 packets (29 KiB) wait in it",
            "eth0",
            "weir run eth1",
        ),
        // A class of which most is lost, and little of the whole.
        case(changed(forwarding(&["htb", "pfifo"], 500.0), |host| {
            let whole = host.interfaces[0].egress.clone().unwrap();
            let class = |class: &str, sent_pps| EgressReading {
                class: Some(class.into()),
                sent_pps,
                ..whole.clone()
            };
            host.interfaces[0].egress_classes = vec![class("1:10", 9_900.0), class("1:20", 100.0)];
        }))
        .told(EgressFull, Measured, No)
        .saying(
            "(htb, pfifo; class 1:20) is full: it drops 500 packets/s, 83%",
            "eth0",
            "tc -s",
        ),
        // What it sends itself.
        case(changed(forwarding(&["tbf"], 30_000.0), |host| host.ip = None))
            .told(EgressFull, Measured, No)
            .saying("30,000 packets/s", "eth0", "tc -s"),
        // Other network namespaces' trouble.
        case(changed(livelock(0.97), |host| {
            host.interfaces[0].receive_pps = 10.0;
            host.cpus[1].backlog_drop_pps = 100.0;
        })),
    ];
    for Case { reading, expected } in cases {
        let diagnosis = Diagnosis::of(&reading);
        let found = &diagnosis.findings;
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (finding, (judged, words)) in found.iter().zip(expected) {
            let found = (finding.cause, finding.sureness, finding.weir);
            assert_eq!(found, judged, "{finding:#?}");
            let said = [
                &finding.what,
                &finding.whose.clone().unwrap_or_default(),
                &finding.advice.join("; "),
            ];
            for (said, word) in said.into_iter().zip(words) {
                assert!(said.contains(word), "{word:?} in {finding:#?}");
            }
            let steered = reading.interfaces.iter().any(|each| !each.steered.is_empty());
            assert!(steered || !finding.weir_does.contains("--rps-off"), "{finding:#?}");
        }
        let wrong = if found.is_empty() { Verdict::Well } else { Verdict::Wrong };
        assert_eq!(diagnosis.verdict, wrong);
        let lines = print::lines(&reading, &diagnosis);
        assert!(lines.len() <= 12, "{lines:#?}");
    }
}
