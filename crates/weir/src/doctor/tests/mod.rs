//! Hosts in numbers: each with one thing wrong, and what the diagnosis makes of it.

mod each;

use weir_bpf::sys::divert::{DiversionKind, PortProtocol, Ports};

use super::diagnosis::finding::{Cause, Help, Sureness};
use super::diagnosis::{Diagnosis, Verdict};
use super::print;
use super::reading::*;
use crate::status::DiversionStatus;

/// A host of four CPUs with a name server, on which nothing is wrong.
fn healthy() -> Reading {
    let cpu = |cpu| CpuReading { cpu, softirq: 0.1, idle: 0.6, ..CpuReading::default() };
    Reading {
        seconds: 1.0,
        kernel: "6.18.0".into(),
        cpus: (0..4).map(cpu).collect(),
        udp: Some(UdpReading {
            delivered_pps: 50_000.0,
            memory_pages: Some(10),
            memory_limit_pages: Some([100, 200, 400]),
            ..UdpReading::default()
        }),
        tcp: Some(TcpReading::default()),
        sockets: Some(vec![server(), listener()]),
        rmem_max: Some(212_992),
        somaxconn: Some(128),
        interfaces: vec![InterfaceReading {
            name: "eth0".into(),
            driver: Some("ixgbe".into()),
            takes_gate: true,
            receive_pps: 60_000.0,
            queues: Some(4),
            queues_max: Some(4),
            threaded: Some(false),
            diversions: Some(vec![]),
            ..InterfaceReading::default()
        }],
        ..Reading::default()
    }
}

fn server() -> SocketReading {
    SocketReading {
        local: "198.18.0.1:53".into(),
        port: 53,
        queued: 2000,
        limit: 212_992,
        owners: vec![OwnerReading {
            pid: 812,
            comm: "named".into(),
            place: Some("named.service".into()),
            ran: Some(0.4),
            waited: Some(0.01),
            cpu: Some(0),
            ..OwnerReading::default()
        }],
        ..SocketReading::default()
    }
}

/// Whose own filter drops what it is sent.
fn filtered() -> SocketReading {
    SocketReading { local: "198.18.0.1:99".into(), drop_pps: 20_000.0, queued: 0, ..server() }
}

fn listener() -> SocketReading {
    SocketReading {
        listener: true,
        local: "0.0.0.0:443".into(),
        port: 443,
        limit: 511,
        owners: vec![OwnerReading { pid: 900, comm: "nginx".into(), ..OwnerReading::default() }],
        ..SocketReading::default()
    }
}

/// Its name server loses packets.
fn losing(change: impl FnOnce(&mut SocketReading)) -> Reading {
    let mut reading = healthy();
    let mut socket = SocketReading { drop_pps: 9_000.0, queued: 212_000, ..server() };
    change(&mut socket);
    reading.udp.as_mut().unwrap().queue_full_pps = 9_000.0;
    reading.sockets = Some(vec![socket, listener()]);
    reading
}

fn change(change: impl FnOnce(&mut Reading)) -> Reading {
    changed(healthy(), change)
}

fn changed(mut reading: Reading, change: impl FnOnce(&mut Reading)) -> Reading {
    change(&mut reading);
    reading
}

fn livelock(softirq: f64) -> Reading {
    change(|host| {
        host.cpus[1] =
            CpuReading { cpu: 1, softirq, packets_pps: 800_000.0, ..CpuReading::default() };
        host.interfaces[0].receive_pps = 800_000.0;
        let owner = &mut host.sockets.as_mut().unwrap()[0].owners[0];
        (owner.ran, owner.waited, owner.cpu) = (Some(0.03), Some(0.6), Some(1));
        // Else it would be told, too, that one CPU receives for all.
        host.interfaces[0].queues = None;
    })
}

/// A router, one of whose queues drops some of what it forwards.
fn forwarding(kinds: &[&str], drop_pps: f64) -> Reading {
    change(|host| {
        host.interfaces[0].egress = Some(EgressReading {
            kinds: kinds.iter().map(|&kind| kind.into()).collect(),
            sent_pps: 10_000.0,
            drop_pps,
            waiting: 20,
            waiting_bytes: 29_000,
            waiting_bytes_most: 30_000,
            ..EgressReading::default()
        });
        let other = InterfaceReading {
            name: "eth1".into(),
            egress: None,
            receive_pps: 40_000.0,
            ..host.interfaces[0].clone()
        };
        host.interfaces.push(other);
        host.ip = Some(IpReading { forwarded_pps: 40_000.0, ..IpReading::default() });
    })
}

fn conntrack(entries: u64, drop_pps: f64) -> Reading {
    let table = ConntrackReading { entries, limit: 262_144, drop_pps, given_up_per_sec: 0.0 };
    change(|host| host.conntrack = Some(table))
}

fn nat() -> DiversionStatus {
    DiversionStatus {
        kind: DiversionKind::Nat,
        description: DiversionKind::Nat.what().into(),
        detail: "nftables: table ip nat".into(),
        passes_all: true,
        cost: String::new(),
        ports: vec![],
    }
}

#[test]
fn what_keeps_weir_from_helping_is_said() {
    let mut host = livelock(0.97);
    host.interfaces[0].diversions = Some(vec![nat()]);
    let diagnosis = Diagnosis::of(&host);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
    assert_eq!(finding.weir, Help::Contains);
    assert!(finding.weir_does.contains("but on eth0 packets may be translated"), "{finding:#?}");
    host.protected = vec!["eth0".into()];
    let diagnosis = Diagnosis::of(&host);
    assert!(diagnosis.findings[0].advice[0].contains("sudo weir channels eth0"), "{diagnosis:#?}");
    // Of some ports, it keeps weir from nothing else.
    let mut host = livelock(0.97);
    let some = |port: u16| DiversionStatus {
        kind: DiversionKind::TranslatedPorts,
        description: DiversionKind::TranslatedPorts.what().into(),
        detail: format!("udp {port}: table ip n"),
        passes_all: false,
        cost: DiversionKind::TranslatedPorts.cost(),
        ports: vec![Ports { protocol: PortProtocol::Udp, first: port, last: port }],
    };
    host.interfaces[0].diversions = Some(vec![some(53), some(123)]);
    let diagnosis = Diagnosis::of(&host);
    assert_eq!(diagnosis.findings[0].weir, Help::Cures);
    let note = "on eth0 rules translate what comes to these ports (udp 53: table ip n; udp 123: table ip n): packets \
                to these ports pass";
    assert_eq!(diagnosis.notes, [note]);
    // It is nothing wrong.
    let mut host = healthy();
    host.interfaces[0].diversions = Some(vec![nat()]);
    let diagnosis = Diagnosis::of(&host);
    assert_eq!(diagnosis.verdict, Verdict::Well);
    assert!(diagnosis.notes[0].contains("table ip nat"), "{diagnosis:#?}");
    host.interfaces[0].takes_gate = false;
    let diagnosis = Diagnosis::of(&host);
    assert!(diagnosis.notes[0].contains("packets of eth0 begin with neither"), "{diagnosis:#?}");
}

#[test]
fn what_is_lost_but_not_for_want_of_room_is_told_with_its_cause() {
    let mut host = losing(|_| ());
    host.sockets.as_mut().unwrap().push(filtered());
    let [note] = &Diagnosis::of(&host).notes[..] else { panic!("one note") };
    assert!(note.contains("1:99, named") && note.contains("a filter of its own"), "{note}");
    // Where the limit cannot be seen it may be memory; the full queue is told all the same.
    host.udp.as_mut().unwrap().memory_limit_pages = None;
    let found = Diagnosis::of(&host).findings;
    assert_eq!(
        found.iter().map(|each| each.cause).collect::<Vec<_>>(),
        [Cause::UdpMemory, Cause::SocketFull]
    );
    assert!(found[0].whose.as_ref().unwrap().contains("198.18.0.1:99"), "{found:#?}");
    let mut host = healthy();
    host.sockets.as_mut().unwrap()[1].drop_pps = 500.0;
    let [note] = &Diagnosis::of(&host).notes[..] else { panic!("one note") };
    assert!(note.contains("nginx (pid 900) turns away 500 connection"), "{note}");
    // A load balancer's checks.
    host.tcp.as_mut().unwrap().handshake_resets_per_sec = 490.0;
    assert_eq!(Diagnosis::of(&host).notes, [""; 0]);
    let mut host = losing(|_| ());
    let udp = host.udp.as_mut().unwrap();
    (udp.queue_full_pps, udp.checksum_pps) = (0.0, 9_000.0);
    let [note] = &Diagnosis::of(&host).notes[..] else { panic!("one note") };
    assert!(note.contains("checksums are wrong"), "{note}");
}

/// The kernel checks what is short before it looks for a socket.
#[test]
fn wrong_checksums_are_told_where_no_socket_counts_them() {
    let mut host = healthy();
    host.udp.as_mut().unwrap().checksum_pps = 30.0;
    assert_eq!(Diagnosis::of(&host).notes, ["30 datagrams/s come with wrong checksums"]);
    host.tcp.as_mut().unwrap().checksum_pps = 7.0;
    let diagnosis = Diagnosis::of(&host);
    assert_eq!(diagnosis.notes, ["30 datagrams/s and 7 segments/s come with wrong checksums"]);
    assert_eq!(diagnosis.verdict, Verdict::Well);
}

/// Its sockets are looked at before the kernel's counters: what came between, only they have not counted yet.
#[test]
fn a_flood_that_ends_during_a_look_is_one_of_full_queues() {
    let mut host = losing(|socket| socket.drop_pps = 434.0);
    let udp = host.udp.as_mut().unwrap();
    (udp.queue_full_pps, udp.queue_full_unsure_pps) = (90.0, 360.0);
    let diagnosis = Diagnosis::of(&host);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
    assert_eq!(finding.cause, Cause::SocketFull);
    assert!(finding.whose.as_ref().unwrap().contains("named"), "{finding:#?}");
    assert_eq!(diagnosis.notes, [""; 0]);
    // Its end may be before the sockets are looked at.
    let mut host = healthy();
    let udp = host.udp.as_mut().unwrap();
    (udp.queue_full_pps, udp.queue_full_unsure_pps) = (90.0, 90.0);
    assert_eq!(Diagnosis::of(&host).findings, []);
    let mut host = healthy();
    let tcp = host.tcp.as_mut().unwrap();
    (tcp.accept_queue_full_per_sec, tcp.accept_queue_full_unsure_per_sec) = (10.0, 90.0);
    let listener = &mut host.sockets.as_mut().unwrap()[1];
    (listener.drop_pps, listener.queued) = (100.0, 511);
    let diagnosis = Diagnosis::of(&host);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
    assert_eq!(finding.cause, Cause::AcceptQueueFull);
    assert_eq!(diagnosis.notes, [""; 0]);
}

#[test]
fn what_a_killed_weir_has_left_turned_is_told_first() {
    let mut host = healthy();
    host.interfaces[0].native_cost = Some("native XDP costs something".into());
    host.leftovers = vec!["eth0".into()];
    let diagnosis = Diagnosis::of(&host);
    let note = "eth0: a killed weir has left knobs turned: `sudo weir reset`";
    assert_eq!((diagnosis.verdict, diagnosis.notes[0].as_str()), (Verdict::Well, note));
}

#[test]
fn where_the_gate_would_go_is_said_of_an_interface_that_has_none() {
    let mut host = healthy();
    host.interfaces[0].native_cost = Some("native XDP costs something".into());
    let of_tc =
        |host: &Reading| Diagnosis::of(host).notes.iter().any(|note| note.contains("goes to tc"));
    assert!(of_tc(&host));
    host.protected = vec![host.interfaces[0].name.clone()];
    assert!(!of_tc(&host));
}

/// A port's packets go to its master; what VLANs take is not the interface's own; and at what containers are connected
/// to, only they send.
#[test]
fn each_packet_is_counted_once_and_weir_runs_where_most_go_to_sockets() {
    // Name, packets per second, what it is on top of, its master.
    type Interface = (&'static str, f64, &'static [&'static str], &'static str);
    let interface = |&(name, receive_pps, lower, master): &Interface| InterfaceReading {
        name: name.into(),
        takes_gate: true,
        receive_pps,
        lower: lower.iter().map(|&name| name.into()).collect(),
        master: Some(master.to_owned()).filter(|master| !master.is_empty()),
        outside: !name.starts_with("veth") && name != "docker0",
        ..InterfaceReading::default()
    };
    let hosts: [(&str, &[Interface]); 6] = [
        (
            "bond0",
            &[
                ("eth0", 500e3, &[], "bond0"),
                ("eth1", 300e3, &[], "bond0"),
                ("bond0", 800e3, &["eth0", "eth1"], ""),
            ],
        ),
        (
            "br0",
            &[("eth0", 500e3, &[], "br0"), ("eth1", 300e3, &[], ""), ("br0", 500e3, &["eth0"], "")],
        ),
        ("eth0.7", &[("eth0", 800e3, &[], ""), ("eth0.7", 700e3, &["eth0"], "")]),
        ("ppp0", &[("eth0", 800e3, &[], ""), ("ppp0", 800e3, &["eth0"], "")]),
        ("eth0", &[("eth0", 800e3, &[], ""), ("eth0.7", 100e3, &["eth0"], "")]),
        (
            "eth0",
            &[
                ("veth1", 600e3, &[], "docker0"),
                ("eth0", 200e3, &[], ""),
                ("docker0", 600e3, &["veth1"], ""),
            ],
        ),
    ];
    for (best, interfaces) in hosts {
        let mut host = livelock(0.97);
        host.interfaces = interfaces.iter().map(interface).collect();
        assert_eq!(host.receive_pps(), 800e3);
        let diagnosis = Diagnosis::of(&host);
        let advice = &diagnosis.findings[0].advice[0];
        assert!(advice.starts_with(&format!("sudo weir run {best} ")), "{advice}");
        let threads = diagnosis.findings[0].weir_does.starts_with("has threads");
        assert_eq!(threads, best == "eth0", "{diagnosis:#?}");
    }
    let mut host = livelock(0.97);
    host.interfaces[0].master = Some("br0".into());
    let finding = &Diagnosis::of(&host).findings[0];
    assert_eq!(finding.weir, Help::Contains);
    assert!(finding.weir_does.contains("its master br0"), "{finding:#?}");
    assert!(!finding.advice[0].contains("eth0"), "{finding:#?}");
}

/// What is lost is then in weir's counters, and hardly any of it in the kernel's.
#[test]
fn what_weir_discards_is_lost_and_what_it_has_not_cured_it_does_not_cure() {
    let mut host = healthy();
    host.protected = vec!["eth0".into()];
    host.interfaces[0].discarded_pps = 500_000.0;
    host.interfaces[0].discarded_as = Some("udp-full".into());
    let diagnosis = Diagnosis::of(&host);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
    assert_eq!((diagnosis.verdict, finding.cause), (Verdict::Wrong, Cause::EarlyDiscard));
    assert!(finding.what.contains("500,000 packets/s on eth0, most as udp-full"), "{finding:#?}");
    assert!(finding.what.contains("receive queue is full"), "{finding:#?}");
    assert!(finding.advice[0].contains("sudo weir channels eth0"), "{finding:#?}");
    // Which have no channel.
    host.interfaces[0].discarded_as = Some("lazy-full".into());
    let advice = &Diagnosis::of(&host).findings[0].advice;
    assert!(advice.iter().all(|each| !each.contains("weir channels")), "{advice:#?}");
    assert!(advice.iter().any(|each| each.contains("WEIR_RING_BYTES")), "{advice:#?}");
    let mut host = livelock(0.97);
    host.protected = vec!["eth0".into()];
    let finding = &Diagnosis::of(&host).findings[0];
    assert_eq!(finding.weir, Help::Contains);
    assert!(
        finding.weir_does.ends_with("it protects eth0 already, and this is left"),
        "{finding:#?}"
    );
    host.interfaces[0].steered = vec!["rx-0".into()];
    host.cpus[1].backlog_drop_pps = 100.0;
    let finding = &Diagnosis::of(&host).findings[1];
    assert_eq!(finding.advice, ["stop weir, then: sudo weir run eth0 --rps-off"]);
}

#[test]
fn what_a_gate_passes_is_not_contained() {
    for (unlisted, weir) in [(None, Help::Contains), (Some("the prefix 198.19.8.0/24"), Help::None)]
    {
        let mut host = losing(|socket| socket.owners[0].ran = Some(0.0));
        host.protected = vec!["eth0".into()];
        host.unlisted = unlisted.map(Into::into);
        let finding = &Diagnosis::of(&host).findings[0];
        assert_eq!((finding.cause, finding.weir), (Cause::SocketFull, weir), "{finding:#?}");
        let told = unlisted.is_none_or(|what| finding.weir_does.contains(what));
        assert!(told, "{finding:#?}");
    }
}

/// weir runs on no loopback, and what comes by it passes no other interface.
#[test]
fn what_comes_by_loopback_is_not_weirs_to_help() {
    for (ran, waited) in [(0.3, 0.6), (0.97, 0.01), (0.0, 0.0)] {
        let host = losing(|socket| {
            socket.local = "[::ffff:127.0.0.1]:8125".into();
            (socket.owners[0].ran, socket.owners[0].waited) = (Some(ran), Some(waited));
        });
        let diagnosis = Diagnosis::of(&host);
        let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
        assert_eq!(finding.weir, Help::None);
        assert!(!finding.advice.concat().contains("weir run"), "{finding:#?}");
    }
    // Nor is it what a flood from outside has cost.
    let mut host = livelock(0.97);
    let lost = losing(|socket| socket.local = "127.0.0.1:8125".into());
    (host.udp, host.sockets) = (lost.udp, lost.sockets);
    let finding = &Diagnosis::of(&host).findings[0];
    assert_eq!((finding.cause, &finding.whose), (Cause::Livelock, &None));
    let mut host = livelock(0.97);
    (host.interfaces[0].receive_pps, host.loopback_pps) = (10.0, 90_000.0);
    let notes = Diagnosis::of(&host).notes;
    assert!(notes[0].contains("(lo)"), "{notes:?}");
}

#[test]
fn weir_runs_where_a_sockets_address_is() {
    let mut host = losing(|socket| socket.owners[0].ran = Some(0.97));
    host.interfaces.push(InterfaceReading {
        name: "eth1".into(),
        takes_gate: true,
        addresses: vec!["198.18.0.1".parse().unwrap()],
        ..InterfaceReading::default()
    });
    let finding = &Diagnosis::of(&host).findings[0];
    assert!(finding.advice[1].contains("weir run eth1"), "{finding:#?}");
}

#[test]
fn sockets_that_lose_little_each_are_told_together() {
    let each = |port: u16, local: String| SocketReading {
        drop_pps: 0.9,
        queued: 212_000,
        port,
        local,
        ..server()
    };
    let mut host = losing(|_| ());
    host.udp.as_mut().unwrap().queue_full_pps = 57.6;
    for (local, whose) in
        [(false, "udp 198.18.0.1:53, named (pid 812"), (true, "64 udp sockets, named (pid 812")]
    {
        let local = |port| format!("198.18.0.1:{}", if local { port } else { 53 });
        host.sockets = Some((1..65).map(|port| each(port, local(port))).collect());
        let diagnosis = Diagnosis::of(&host);
        let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
        assert!(finding.what.contains("UDP sockets lose 58 packets/s"), "{finding:#?}");
        assert!(finding.whose.as_ref().unwrap().starts_with(whose), "{finding:#?}");
    }
    // Fifty in a minute.
    let mut host = losing(|socket| socket.drop_pps = 50.0 / 60.0);
    (host.seconds, host.udp.as_mut().unwrap().queue_full_pps) = (60.0, 50.0 / 60.0);
    assert_eq!(Diagnosis::of(&host).verdict, Verdict::Wrong);
}

#[test]
fn interrupts_are_found_by_the_devices_own_list() {
    for (driver, device) in [("mlx5_core", "eth0/device/msi_irqs"), ("virtio_net", "device/../msi")]
    {
        let mut host = livelock(0.0);
        host.cpus[1].napi_threads = 1.04;
        host.interfaces[0].queues = Some(2);
        host.interfaces[0].driver = Some(driver.into());
        let finding = &Diagnosis::of(&host).findings[0];
        assert!(finding.advice[0].contains(device), "{finding:#?}");
    }
}

#[test]
fn no_limit_is_lowered() {
    let mut host = losing(|socket| socket.queued = 3000);
    host.tcp.as_mut().unwrap().accept_queue_full_per_sec = 40.0;
    let commands = |host: &Reading| {
        let findings = Diagnosis::of(host).findings;
        let advice = findings.iter().flat_map(|finding| &finding.advice);
        advice.filter(|advice| advice.contains("sysctl")).count()
    };
    assert_eq!(commands(&host), 2);
    (host.rmem_max, host.somaxconn) = (Some(64 << 20), Some(4096));
    assert_eq!(commands(&host), 0);
    (host.rmem_max, host.somaxconn) = (None, None);
    assert_eq!(commands(&host), 0);
}

#[test]
fn without_the_counters_nothing_is_well() {
    for blind in [
        change(|host| host.udp = None),
        change(|host| host.tcp = None),
        change(|host| host.sockets = None),
        change(|host| host.cpus.clear()),
        change(|host| host.unseen = vec![format!("{RUNNING}: it is root's alone")]),
    ] {
        assert_eq!(Diagnosis::of(&blind).verdict, Verdict::Unknown);
    }
    // What was seen to be wrong is.
    let mut blind = livelock(0.97);
    blind.sockets = None;
    assert_eq!(Diagnosis::of(&blind).verdict, Verdict::Wrong);
}

/// At a port of its own, of which process.
fn losing_little(port: u16, pid: i32) -> SocketReading {
    let mut socket = SocketReading {
        local: format!("198.18.0.1:{port}"),
        port,
        drop_pps: f64::from(port + 1),
        ..server()
    };
    socket.owners[0].pid = pid;
    socket
}

#[test]
fn full_sockets_of_one_process_are_one_finding_that_names_ports() {
    let mut host = losing(|_| ());
    host.udp.as_mut().unwrap().queue_full_pps = 45.0;
    host.sockets = Some((0..9).map(|port| losing_little(port, 812)).collect());
    let diagnosis = Diagnosis::of(&host);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:#?}") };
    assert!(finding.what.contains("UDP sockets lose 45 packets/s"), "{finding:#?}");
    let whose = "9 udp sockets, named (pid 812, named.service): ports 0, 1, 2, 3 and 5 more";
    assert_eq!(finding.whose.as_deref(), Some(whose));
    // One of them for another reason; and of what is not seen, nobody knows whose it is.
    host.sockets.as_mut().unwrap()[8].queued = 212_000;
    let whose = |host: &Reading| -> Vec<_> {
        Diagnosis::of(host).findings.into_iter().filter_map(|finding| finding.whose).collect()
    };
    let found = whose(&host);
    assert!(found.len() == 2 && found[0].starts_with("8 udp"), "{found:?}");
    assert!(found[1].starts_with("udp 198.18.0.1:8, named"), "{found:?}");
    for socket in host.sockets.as_mut().unwrap() {
        socket.owners.clear();
    }
    assert_eq!(whose(&host).len(), 9);
}

#[test]
fn twelve_lines_hold_the_worst_and_count_the_rest() {
    let mut host = losing(|_| ());
    host.udp.as_mut().unwrap().queue_full_pps = 45.0;
    host.sockets = Some((0..9).map(|port| losing_little(port, port.into())).collect());
    host.unseen = vec!["one thing".into(), "another".into()];
    host.neighbours = vec!["bpftune".into()];
    let diagnosis = Diagnosis::of(&host);
    let lines = print::lines(&host, &diagnosis);
    assert_eq!(lines.len(), 12, "{lines:#?}");
    assert!(lines[1].contains("198.18.0.1:8"), "{lines:#?}");
    assert!(
        lines[11].starts_with("6 more: ") && lines[11].contains("one thing, and 1 more"),
        "{lines:#?}"
    );
}

#[test]
fn a_recorded_reading_is_the_same_again() {
    let reading = losing(|_| ());
    let text = serde_json::to_string(&reading).unwrap();
    assert_eq!(serde_json::from_str::<Reading>(&text).unwrap(), reading);
    // A later version may have more to say, which this one would not understand.
    assert!(serde_json::from_str::<Reading>(r#"{"more": 1}"#).is_err());
}
