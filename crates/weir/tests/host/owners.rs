//! `weir channels`: whose the channels are, and what becomes of packets behind the gate.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use crate::common::*;
use serde_json::{Value, json};

const PAYLOAD: [u8; 14] = [0x5a; 14];
/// A name that would clear the screen.
const HOSTILE: &str = "\u{1b}[2Jevil";

/// A process that calls itself [`HOSTILE`] and has a socket open, alone.
fn hostile(socket: UdpSocket) -> Owned {
    let directory = killed::temp_dir();
    let program = directory.path().join(HOSTILE);
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let mut command = Command::new(&program);
    command.arg("100").stdin(Stdio::from(OwnedFd::from(socket))).stdout(Stdio::null());
    Owned::start(&mut command)
}

/// The channels of the only interface in `weir channels --json`.
fn channels(network: &Network, interval: &str) -> Vec<Value> {
    let output = network.weir(&["channels", "--json", "--interval", interval]);
    assert!(output.stderr.is_empty(), "{output:?}");
    let report: Value = serde_json::from_str(&success(&output)).unwrap();
    report["interfaces"][0]["channels"].as_array().unwrap().clone()
}

fn of<'a>(channels: &'a [Value], name: &str) -> &'a Value {
    channels.iter().find(|channel| channel["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn channels_have_owners_queues_and_late_drops() {
    let network = Network::new();
    let own = std::process::id();
    let small = network.near_socket("198.18.0.1:5000");
    rustix::net::sockopt::set_socket_recv_buffer_size(&small, 2048).unwrap();
    let _dual = network.near_socket("[::]:5001");
    let evil = hostile(network.near_socket("198.18.0.1:5002"));
    let listen = || TcpListener::bind("198.18.0.1:80").unwrap();
    let _listener = network.near.run(listen).unwrap();
    let daemon = Daemon::start(&network, &[]);

    let sender = network.far_socket("198.18.0.2:0");
    let sender6 = network.far_socket("[2001:2::2]:0");
    let send = |sender: &UdpSocket, to: &str| {
        assert_eq!(sender.send_to(&PAYLOAD, to).unwrap(), PAYLOAD.len());
    };
    (0..20).for_each(|_| send(&sender, "198.18.0.1:5000"));
    send(&sender, "198.18.0.1:5001");
    send(&sender6, "[2001:2::1]:5001");
    send(&sender, "198.18.0.1:5002");
    let _client = network.far.run(|| TcpStream::connect("198.18.0.1:80").unwrap()).unwrap();

    let names = ["udp 198.18.0.1:5000", "udp 198.18.0.1:5001", "udp [2001:2::1]:5001"];
    let [small_name, dual_name, dual6_name] = names;
    let mut seen = Vec::new();
    wait_until("all have arrived and each has its owner", || {
        seen = channels(&network, "0");
        let owned = |name: &&str| of(&seen, name)["owner"]["processes"][0]["pid"] == own;
        names.iter().chain(&["tcp 198.18.0.1:80"]).all(owned)
            && of(&seen, small_name)["offered"]["packets"] == 20
            && of(&seen, "tcp 198.18.0.1:80")["sockets"]["queue"]["used"] == 1
            && of(&seen, "udp 198.18.0.1:5002")["sockets"]["queue"]["used"].as_u64() > Some(0)
    });

    // The kernel's own numbers of the full one: 4,096 bytes of 2,048 asked for.
    let full = of(&seen, small_name);
    let number = |value: &Value| value.as_u64().unwrap();
    assert_eq!(
        (&full["sockets"]["count"], &full["sockets"]["queue"]["limit"]),
        (&json!(1), &json!(4096))
    );
    assert!(number(&full["sockets"]["queue"]["used"]) > 2048, "{full}");
    let late = number(&full["sockets"]["late_drops"]);
    assert!(late >= 1, "the first that does not fit teaches the gate: {full}");
    let discarded = number(&full["discarded"]["packets"]);
    assert_eq!(discarded + number(&full["passed"]["packets"]), 20);
    if discarded > 0 {
        let by_reason = json!([{"reason": "udp-full", "packets": discarded, "bytes": full["discarded"]["bytes"]}]);
        assert_eq!(full["discards"], by_reason);
    }

    let first = |name: &str| of(&seen, name)["owner"]["processes"][0].clone();
    let process = first(small_name);
    assert_eq!((&process["uid"], &process["user"]), (&json!(0), &json!("root")));
    assert_eq!(process["pid"], first(dual_name)["pid"]);
    assert_eq!(process["pid"], first(dual6_name)["pid"]);
    assert!(number(&process["weight"]) > 0);
    assert_eq!(of(&seen, "tcp 198.18.0.1:80")["sockets"]["queue"]["unit"], "connections");
    let process = first("udp 198.18.0.1:5002");
    assert_eq!((&process["pid"], &process["comm"]), (&json!(evil.id()), &json!("\\x1b[2Jevil")));
    let icmp = seen.iter().find(|channel| channel["kind"] == "icmp");
    assert!(icmp.is_none_or(|icmp| icmp["owner"].is_null() && icmp["sockets"].is_null()));

    let table = network.says(&["channels", "--interval", "10ms"]);
    for line in table.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains(char::is_control), "{line}");
    }
    let owner = format!("    \\x1b[2Jevil {} (root)", evil.id());
    assert!(table.contains(&owner), "{table}");
    daemon.interrupt();
}

#[test]
fn what_is_delivered_is_told_where_a_socket_has_one_channel() {
    let network = Network::ipv4_only();
    let own = network.near_socket("198.18.0.1:5000");
    let any = network.near_socket("0.0.0.0:5001");
    network
        .links(|links, near| links.add_address(near, "198.18.0.9".parse().unwrap(), 24).unwrap());
    let daemon = Daemon::start(&network, &[]);
    let sender = network.far_socket("198.18.0.2:0");
    let all_are_read = || {
        for to in ["198.18.0.1:5000", "198.18.0.1:5001", "198.18.0.9:5001"] {
            sender.send_to(&PAYLOAD, to).unwrap();
        }
        for socket in [&own, &any, &any] {
            socket.recv(&mut [0; 16]).unwrap();
        }
    };
    while_doing(all_are_read, || {
        wait_until("what is delivered is told", || {
            let seen = channels(&network, "200ms");
            let sockets = |name| of(&seen, name)["sockets"].clone();
            let alone = sockets("udp 198.18.0.1:5000");
            let shared = ["udp 198.18.0.1:5001", "udp 198.18.0.9:5001"].map(sockets);
            alone["late_drops_pps"] == 0.0
                && alone["delivered_pps"].as_f64() > Some(0.0)
                && shared.iter().all(|each| each["count"] == 1 && each["delivered_pps"].is_null())
        });
    });
    daemon.interrupt();
}
