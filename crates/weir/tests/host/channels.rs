//! `weir channels`: every packet is counted for one channel, and channels add up.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use serde_json::Value;

const PAYLOAD: [u8; 14] = [0x5a; 14];
/// Of its Ethernet frame.
const FRAME_LEN: u64 = 56;

/// The only interface in `weir channels --json`.
fn channels(network: &Network) -> Value {
    let report = network.json(&["channels", NEAR, "--json", "--interval", "0"]);
    assert_eq!(report["schema"], 1);
    assert_eq!(report["interfaces"].as_array().unwrap().len(), 1);
    report["interfaces"][0].clone()
}

fn packets(figures: &Value) -> u64 {
    ["passed", "discarded"].map(|each| figures[each]["packets"].as_u64().unwrap()).iter().sum()
}

fn bytes(figures: &Value) -> u64 {
    ["passed", "discarded"].map(|each| figures[each]["bytes"].as_u64().unwrap()).iter().sum()
}

fn of(interface: &Value, name: &str) -> u64 {
    let channels = interface["channels"].as_array().unwrap();
    channels.iter().find(|channel| channel["name"] == name).map_or(0, packets)
}

fn assert_adds_up(interface: &Value) {
    let listed = interface["channels"].as_array().unwrap();
    let parts = || listed.iter().chain([&interface["overflow"], &interface["retired"]]);
    let total = &interface["total"];
    assert_eq!(parts().map(packets).sum::<u64>(), packets(total), "{interface}");
    assert_eq!(parts().map(bytes).sum::<u64>(), bytes(total), "{interface}");
}

/// Sends to each of the addresses, never more at once than the veth's ring holds.
fn send_to_each(network: &Network, sender: &UdpSocket, to: &[(Ipv4Addr, u16)], marker_port: u16) {
    let marker = network.near_socket(&format!("198.18.0.1:{marker_port}"));
    for burst in to.chunks(64) {
        burst.iter().for_each(|to| assert_eq!(sender.send_to(&PAYLOAD, to).unwrap(), 14));
        sender.send_to(&PAYLOAD, marker.local_addr().unwrap()).unwrap();
        marker.recv(&mut [0; 16]).unwrap();
    }
}

#[test]
fn known_traffic_is_counted_for_its_channels() {
    let network = Network::ipv4_only();
    network.add_pair();
    let forwarding = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    network.near.run(forwarding).unwrap();
    sh(&network, "ip route add 198.19.1.0/24 dev near2");
    run_in(&network.far, "ip route add 198.19.1.0/24 via 198.18.0.1");
    let _sockets = [network.near_socket("198.18.0.1:5000"), network.near_socket("0.0.0.0:5001")];
    let listen = || TcpListener::bind("198.18.0.1:80").unwrap();
    let _listener = network.near.run(listen).unwrap();
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);

    for (to, count) in [
        ("198.18.0.1:5000", 10),
        ("198.18.0.1:5001", 20),
        ("198.18.0.1:5999", 7),
        ("198.19.1.1:5000", 5),
    ] {
        (0..count).for_each(|_| {
            sender.send_to(&PAYLOAD, to).unwrap();
        });
    }
    let mut client = network.far.run(|| TcpStream::connect("198.18.0.1:80").unwrap()).unwrap();
    client.write_all(b"hello").unwrap();

    let expected = [
        ("udp 198.18.0.1:5000", 10),
        ("udp 198.18.0.1:5001", 20),
        ("closed", 7),
        ("forward via near2", 5),
    ];
    let mut seen = Value::Null;
    let arrived = wait(PATIENCE, || {
        seen = channels(&network);
        // The port unreachable messages are answers, and so is TCP's handshake: SYN, ACK, data.
        expected.iter().all(|(name, count)| of(&seen, name) == *count)
            && of(&seen, "tcp 198.18.0.1:80") >= 3
    });
    assert!(arrived, "{seen}");
    assert_adds_up(&seen);
    let listed = seen["channels"].as_array().unwrap();
    let first = &listed[0];
    assert_eq!(first["name"], "udp 198.18.0.1:5001", "most packets first");
    assert_eq!((&first["kind"], &first["address"]), (&"udp".into(), &"198.18.0.1".into()));
    assert_eq!((&first["port"], &first["rates"]), (&5001.into(), &Value::Null));
    assert_eq!(bytes(first), 20 * FRAME_LEN);
    let forward = listed.iter().find(|channel| channel["kind"] == "forward").unwrap();
    assert_eq!(forward["interface"], "near2");

    // What was counted until the route changed stays with the interface that it was for.
    sh(&network, "ip route replace 198.19.1.0/24 dev near");
    (0..3).for_each(|_| {
        sender.send_to(&PAYLOAD, "198.19.1.1:5000").unwrap();
    });
    let arrived = wait(PATIENCE, || {
        seen = channels(&network);
        of(&seen, "forward via near") == 3 && of(&seen, "forward via near2") == 5
    });
    assert!(arrived, "{seen}");
    assert_adds_up(&seen);

    let table = network.says(&["channels", "--interval", "50ms"]);
    for part in ["CHANNEL", "udp 198.18.0.1:5001", "forward via near2", "(all)"] {
        assert!(table.contains(part), "{table}");
    }
    assert!(!table.contains("further"), "{table}");
    daemon.interrupt();
    let gone = failure(&network.weir(&["channels", NEAR]), 1);
    assert!(gone.contains("near is not protected; `sudo weir run near` protects it"), "{gone}");
}

#[test]
fn rates_are_of_the_time_between_two_looks() {
    let network = Network::ipv4_only();
    let socket = network.near_socket("198.18.0.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    let one_by_one = || {
        sender.send_to(&PAYLOAD, "198.18.0.1:5000").unwrap();
        socket.recv(&mut [0; 16]).unwrap();
    };
    let rate = while_doing(one_by_one, || {
        let report = network.json(&["channels", "--json", "--interval", "300ms"]);
        let interface = &report["interfaces"][0];
        assert!(interface["interval_secs"].as_f64().unwrap() >= 0.3);
        let busiest = &interface["channels"][0];
        assert_eq!(busiest["name"], "udp 198.18.0.1:5000");
        let rates = &busiest["rates"];
        let rate = |name: &str| rates[name].as_f64().unwrap();
        let frame_len = rate("bytes_per_sec") / rate("passed_pps");
        assert!((frame_len - FRAME_LEN as f64).abs() < 1e-6, "{rates}");
        rate("passed_pps")
    });
    assert!(rate > 10.0, "{rate}");
    daemon.interrupt();
}

/// Whoever looks keeps a sleeping gate counting for himself, however long and whoever else looks meanwhile.
#[test]
fn a_long_look_counts_all_however_short_anothers_is() {
    const PPS: f64 = 2000.0;
    let network = Network::ipv4_only();
    let _socket = network.near_socket("198.18.0.1:5000");
    let daemon = Daemon::start_sleepy(&network, &[]);
    let look = |interval| network.json(&["channels", "--json", "--interval", interval]);
    let (report, sent) = network.while_sent(&[network.flow(5001, Some(PPS))], None, |generator| {
        wait_until("packets come", || generator.counts(0).sent > 0);
        std::thread::scope(|scope| {
            // Somewhere in this the look begins, and 6 s later it ends.
            let long = scope.spawn(|| {
                let before = generator.counts(0).sent;
                (look("6s"), generator.counts(0).sent - before)
            });
            std::thread::sleep(Duration::from_millis(500));
            look("100ms");
            long.join().unwrap()
        })
    });
    let interface = &report["interfaces"][0];
    let rate = interface["channels"].as_array().unwrap().iter();
    let closed = rate.filter(|channel| channel["name"] != "asleep");
    let pps = |channel: &Value| channel["rates"]["offered_pps"].as_f64().unwrap();
    let counted = closed.map(pps).sum::<f64>() * interface["interval_secs"].as_f64().unwrap();
    assert!(counted > 0.9 * sent as f64, "{counted} of {sent}: {report}");
    daemon.interrupt();
}

#[test]
fn more_channels_than_are_counted_one_by_one_are_visible() {
    let network = Network::ipv4_only();
    // On every address, each of these is another channel.
    let addresses: Vec<Ipv4Addr> = (0..1000_u32).map(|n| Ipv4Addr::from(0xc613_0100 + n)).collect();
    network.links(|links, ifindex| {
        addresses.iter().for_each(|ip| links.add_address(ifindex, (*ip).into(), 32).unwrap());
    });
    run_in(&network.far, "ip route add 198.19.0.0/16 via 198.18.0.1");
    let ports: Vec<u16> = (5000..5007).collect();
    let _sockets: Vec<UdpSocket> =
        ports.iter().map(|port| network.near_socket(&format!("0.0.0.0:{port}"))).collect();
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &[]);
    let to: Vec<(Ipv4Addr, u16)> =
        ports.iter().flat_map(|port| addresses.iter().map(|ip| (*ip, *port))).collect();
    send_to_each(&network, &sender, &to, 4999);

    let seen = channels(&network);
    assert!(packets(&seen["overflow"]) > 0, "{}", seen["total"]);
    assert!(packets(&seen["total"]) >= to.len() as u64);
    assert!(seen["channels"].as_array().unwrap().len() >= 4096);
    assert_adds_up(&seen);
    let table = network.says(&["channels", "--interval", "0"]);
    assert!(table.contains("(further channels, together)"), "{table}");
    let note = "4,096 channels at least are counted one by one; further ones together";
    assert!(table.contains(note), "{table}");
    daemon.interrupt();
}

#[test]
fn without_the_privilege_it_says_so() {
    let network = Network::ipv4_only();
    for arguments in ["channels", "explain capture.pcap"] {
        let run = || {
            Command::new("setpriv")
                .args(["--bounding-set=-all", "--inh-caps=-all", WEIR])
                .args(arguments.split(' '))
                .output()
                .unwrap()
        };
        let refused = failure(&network.near.run(run).unwrap(), 1);
        let command = arguments.split(' ').next().unwrap();
        assert!(refused.contains(&format!("`weir {command}` lacks CAP_")), "{refused}");
    }
}

#[test]
fn whoever_watches_from_a_time_namespace_keeps_no_gate_awake() {
    let network = Network::ipv4_only();
    let _daemon = Daemon::start_sleepy(&network, &[]);
    let asleep = || network.interface_status()["sleep"]["asleep"] == true;
    wait_until("the gate sleeps", asleep);
    let watch = || a_day_ahead().args(["channels", "--sources"]).output().unwrap();
    success(&network.near.run(watch).unwrap());
    wait_until("it sleeps again", asleep);
}
