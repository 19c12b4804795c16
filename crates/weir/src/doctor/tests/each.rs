//! Each trouble by itself.

use super::*;

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
    // What is wrong, how sure, whether weir helps, and a word of: what it is, whose, the advice.
    type Expected = ((Cause, Sureness, Help), [&'static str; 3]);
    let table: Vec<(Reading, Vec<Expected>)> = vec![
        (healthy(), vec![]),
        (
            livelock(0.97),
            vec![((Livelock, Measured, Cures), ["97% of CPU 1", "", "sudo weir run eth0"])],
        ),
        (
            changed(livelock(0.97), |host| {
                (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(1), Some(8));
            }),
            vec![
                ((Livelock, Measured, Cures), ["800,000 packets/s by eth0", "", "weir run eth0"]),
                (
                    (OneCpuReceives, Likely, No),
                    ["1 receive queue", "eth0", "sudo ethtool -L eth0 combined 4"],
                ),
            ],
        ),
        (
            changed(livelock(0.0), |host| {
                host.cpus[1].napi_threads = 1.04;
                (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(1), Some(1));
            }),
            vec![(
                (OneCpuReceives, Likely, No),
                ["CPU 1 spends 100%", "eth0", "echo d | sudo tee"],
            )],
        ),
        // weir switches RPS off.
        (
            changed(livelock(0.0), |host| {
                host.cpus[1].napi_threads = 1.04;
                host.protected = vec!["eth0".into()];
                (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(1), Some(1));
            }),
            vec![((OneCpuReceives, Likely, No), ["CPU 1 spends 100%", "eth0", ""])],
        ),
        // More queues would not help.
        (
            changed(livelock(0.0), |host| {
                host.cpus[1].napi_threads = 1.04;
                (host.interfaces[0].queues, host.interfaces[0].queues_max) = (Some(2), Some(4));
            }),
            vec![(
                (OneCpuReceives, Likely, No),
                ["2 receive queues", "eth0", "ethtool -N eth0 rx-flow-hash udp4 sdfn"],
            )],
        ),
        // A router at its limit.
        (
            changed(livelock(0.97), |host| {
                host.sockets = healthy().sockets;
                host.ip = Some(IpReading { received_pps: 800_000.0, forwarded_pps: 790_000.0 });
            }),
            vec![(
                (Livelock, Possible, Contains),
                ["800,000 packets/s by eth0, most of them forwarded", "", "weir run eth0"],
            )],
        ),
        // Half of a CPU is too much only if something is lost.
        (livelock(0.6), vec![]),
        (
            conntrack(262_144, 5_000.0),
            vec![(
                (ConntrackFull, Measured, No),
                ["262,144 of 262,144 entries; 5,000 packets/s", "", "nf_conntrack_max=524288"],
            )],
        ),
        (conntrack(262_144, 0.0), vec![((ConntrackFull, Likely, No), ["is full", "", "notrack"])]),
        (conntrack(250_000, 0.0), vec![]),
        // Invalid packets.
        (conntrack(1_000, 5_000.0), vec![]),
        (
            change(|host| {
                let lost = losing(owner(0.3, 0.6));
                (host.udp, host.sockets) = (lost.udp, lost.sockets);
                host.cpus[0] =
                    CpuReading { softirq: 0.6, packets_pps: 1e5, ..CpuReading::default() };
            }),
            vec![
                (
                    (Livelock, Measured, Cures),
                    ["9,000 packets/s are dropped after", "named (pid 812", "weir run"],
                ),
                (
                    (SocketFull, Likely, Cures),
                    ["waits for a CPU", "udp 198.18.0.1:53", "weir run eth0"],
                ),
            ],
        ),
        (
            losing(owner(0.97, 0.01)),
            vec![(
                (SocketFull, Likely, Contains),
                ["208 KiB is full, as its reader is busy", "named.service", "SO_REUSEPORT"],
            )],
        ),
        (
            losing(owner(0.0, 0.0)),
            vec![(
                (SocketFull, Likely, Contains),
                ["nobody reads it", "pid 812", "/proc/812/stack"],
            )],
        ),
        (
            losing(owner(0.3, 0.01)),
            vec![(
                (SocketFull, Likely, Contains),
                ["waits, but not for a CPU", "pid 812", "/proc/812/stack"],
            )],
        ),
        (
            losing(|socket| {
                owner(0.3, 0.01)(socket);
                socket.queued = 3000;
            }),
            vec![((SocketFull, Likely, No), ["bursts", "named", "net.core.rmem_max=524288"])],
        ),
        (
            changed(losing(|socket| socket.owners.clear()), |host| {
                host.unseen = vec![format!("{OWNERS} (run it as root)")];
            }),
            vec![(
                (SocketFull, Possible, Contains),
                ["cannot be seen", "whose process is not seen", "sudo weir doctor"],
            )],
        ),
        // Root sees all that processes of this PID namespace have open.
        (
            losing(|socket| socket.owners.clear()),
            vec![((SocketFull, Possible, Contains), ["cannot be seen", "", "io_uring"])],
        ),
        (
            changed(losing(owner(0.3, 0.0)), |host| {
                let udp = host.udp.as_mut().unwrap();
                (udp.memory_pps, udp.queue_full_pps) = (9_000.0, 0.0);
                udp.memory_pages = Some(395);
            }),
            vec![(
                (UdpMemory, Measured, No),
                ["395 of 400 pages", "198.18.0.1:53", "udp_mem='200 400 800'"],
            )],
        ),
        // As Linux 6.18 does: counted nowhere but at the socket.
        (
            changed(losing(owner(0.3, 0.0)), |host| {
                let udp = host.udp.as_mut().unwrap();
                (udp.queue_full_pps, udp.memory_pages) = (0.0, Some(u64::MAX));
                udp.memory_limit_pages = Some([100, 200, u64::MAX]);
            }),
            vec![(
                (UdpMemory, Likely, No),
                ["9,000 datagrams/s", "198.18.0.1:53", "udp_mem='200 400 18446744073709551615'"],
            )],
        ),
        (
            changed(losing(owner(0.3, 0.0)), |host| {
                let udp = host.udp.as_mut().unwrap();
                (udp.queue_full_pps, udp.memory_limit_pages) = (0.0, None);
            }),
            vec![((UdpMemory, Possible, No), ["9,000 datagrams/s", "198.18.0.1:53", "memory.max"])],
        ),
        // A filter of its own; told in a note.
        (
            changed(losing(owner(0.3, 0.0)), |host| {
                host.udp.as_mut().unwrap().queue_full_pps = 0.0;
            }),
            vec![],
        ),
        // Which hides nobody's full queue.
        (
            changed(losing(owner(0.0, 0.0)), |host| {
                host.sockets.as_mut().unwrap().push(filtered());
            }),
            vec![((SocketFull, Likely, Contains), ["9,000 packets/s", "named", "/proc/812/stack"])],
        ),
        // Nor is its own queue one, if it drops less.
        (
            changed(losing(owner(0.0, 0.0)), |host| {
                let filtered = SocketReading { drop_pps: 1_500.0, ..filtered() };
                host.sockets.as_mut().unwrap().push(filtered);
            }),
            vec![((SocketFull, Likely, Contains), ["9,000 packets/s", "named", "/proc/812/stack"])],
        ),
        // By sockets that were closed meanwhile.
        (
            change(|host| host.udp.as_mut().unwrap().queue_full_pps = 4_060.0),
            vec![((SocketFull, Measured, Contains), ["4,060 packets/s", "", "weir run eth0"])],
        ),
        // Told in a note.
        (
            changed(losing(owner(0.3, 0.0)), |host| {
                let udp = host.udp.as_mut().unwrap();
                (udp.queue_full_pps, udp.checksum_pps) = (0.0, 9_000.0);
            }),
            vec![],
        ),
        // Hardly anything is received on its CPU: it is other processes that have it.
        (
            changed(losing(owner(0.05, 0.9)), |host| {
                host.cpus[0] = CpuReading { softirq: 0.02, ..CpuReading::default() };
            }),
            vec![((SocketFull, Likely, Contains), ["other processes have", "named", "CPUWeight="])],
        ),
        // It waits while its CPU is idle.
        (
            losing(owner(0.1, 0.9)),
            vec![((SocketFull, Likely, Contains), ["CPU quota", "named", "CPUQuota="])],
        ),
        (
            losing(|socket| socket.owners[0].ran = None),
            vec![((SocketFull, Possible, Contains), ["just begun", "named", "again"])],
        ),
        // Once in four seconds.
        (
            changed(losing(|socket| socket.drop_pps = 0.25), |host| {
                host.udp.as_mut().unwrap().queue_full_pps = 0.25;
            }),
            vec![],
        ),
        (
            change(|host| host.udp.as_mut().unwrap().memory_pps = 10.0),
            vec![(
                (UdpMemory, Likely, No),
                ["a control group's limit must be", "198.18.0.1:53", "memory.max"],
            )],
        ),
        (
            change(|host| {
                host.tcp.as_mut().unwrap().cookies_per_sec = 90_000.0;
                host.sockets.as_mut().unwrap()[1].half_open = 511;
            }),
            vec![(
                (SynFlood, Measured, Contains),
                ["90,000/s are answered with SYN cookies", "tcp 0.0.0.0:443, nginx", "weir run"],
            )],
        ),
        (
            change(|host| {
                let tcp = host.tcp.as_mut().unwrap();
                (tcp.request_drops_per_sec, tcp.syncookies) = (500.0, Some(0));
            }),
            vec![((SynFlood, Measured, Contains), ["500/s are dropped", "", "tcp_syncookies=1"])],
        ),
        // They do not find the queue full.
        (
            change(|host| {
                let tcp = host.tcp.as_mut().unwrap();
                (tcp.request_drops_per_sec, tcp.syncookies) = (500.0, Some(1));
            }),
            vec![((SynFlood, Possible, Contains), ["no route back", "", "sudo weir run"])],
        ),
        // With net.ipv4.tcp_syncookies=2 every request gets one, and none is half open.
        (change(|host| host.tcp.as_mut().unwrap().cookies_per_sec = 48.0), vec![]),
        // One burst.
        (change(|host| host.tcp.as_mut().unwrap().cookies_per_sec = 3.0), vec![]),
        (
            change(|host| {
                host.tcp.as_mut().unwrap().accept_queue_full_per_sec = 40.0;
                let sockets = host.sockets.as_mut().unwrap();
                (sockets[1].queued, sockets[1].drop_pps) = (512, 40.0);
                // As full, and nobody connects to it.
                sockets.push(SocketReading { queued: 512, local: "[::]:80".into(), ..listener() });
            }),
            vec![(
                (AcceptQueueFull, Measured, Contains),
                ["512 connections", "443, nginx (pid 900)", "somaxconn=4096"],
            )],
        ),
        // By a listener that has closed since.
        (
            change(|host| host.tcp.as_mut().unwrap().accept_queue_full_per_sec = 40.0),
            vec![((AcceptQueueFull, Measured, Contains), ["40 connections/s", "", "not accept"])],
        ),
        (
            change(|host| host.interfaces[0].ring_drop_pps = 77.0),
            vec![((RingFull, Measured, Contains), ["77 packets/s", "eth0", "ethtool -G eth0 rx"])],
        ),
        // A bond repeats what its ports count.
        (
            change(|host| {
                host.interfaces[0].ring_drop_pps = 77.0;
                host.interfaces.push(InterfaceReading {
                    name: "bond0".into(),
                    lower: vec!["eth0".into()],
                    ..host.interfaces[0].clone()
                });
            }),
            vec![((RingFull, Measured, Contains), ["77 packets/s", "eth0", "ethtool -G eth0 rx"])],
        ),
        (
            change(|host| {
                host.cpus[2].backlog_drop_pps = 4_000.0;
                host.interfaces[0].steered = vec!["rx-0".into()];
            }),
            vec![(
                (BacklogFull, Measured, Contains),
                ["CPU 2 cannot keep up", "RPS is on for rx-0 of eth0", "--rps-off"],
            )],
        ),
        // As of a veth, which has no thread for it: there is no RPS to switch off.
        (
            change(|host| {
                host.interfaces[0].receive_pps = 50_000.0;
                host.cpus[2].backlog_drop_pps = 4_000.0;
            }),
            vec![(
                (BacklogFull, Measured, Contains),
                ["CPU 2 cannot keep up", "", "netdev_max_backlog"],
            )],
        ),
        // Other network namespaces' trouble.
        (
            changed(livelock(0.97), |host| {
                host.interfaces[0].receive_pps = 10.0;
                host.cpus[1].backlog_drop_pps = 100.0;
            }),
            vec![],
        ),
    ];
    for (reading, expected) in table {
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
