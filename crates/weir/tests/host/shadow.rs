//! `weir run --policy shadow`: it decides as usual, counts what it would discard, passes everything, turns nothing, and
//! says at the end whose it would have been.

use crate::common::*;
use serde_json::Value;

const FULL: &str = "198.18.0.1:5000";
const READ: &str = "198.18.0.1:5001";
/// To the socket that is read.
const LIGHT: u64 = 50;

fn verdict(status: &Value, name: &str) -> Option<u64> {
    let verdicts = status["verdicts"].as_array().unwrap();
    verdicts.iter().find(|each| each["verdict"] == name)?["packets"].as_u64()
}

fn everything_passes(attach: &str) {
    let network = Network::ipv4_only();
    let (full, read) = (network.near_socket(FULL), network.near_socket(READ));
    let sender = network.far_socket("198.18.0.2:0");
    let daemon = Daemon::start(&network, &["--policy", "shadow", "--attach", attach]);
    let mut sent = 0;
    wait_until("the gate would discard", || {
        for _ in 0..256 {
            sender.send_to(&[0x5a; 14], FULL).unwrap();
        }
        sent += 256;
        network.count("udp-full") > 0
    });
    for _ in 0..LIGHT {
        sender.send_to(&[0x5a; 14], READ).unwrap();
    }
    let read_by_then = std::cell::Cell::new(0);
    wait_until("the light flow has arrived", || {
        read_by_then.set(read_by_then.get() + drain(&read));
        read_by_then.get() == LIGHT
    });
    // What is not in the queue the kernel has dropped, and nobody else.
    wait_until("every packet is accounted for", || {
        network.published_count("udp-room")
            + network.published_count("udp-full")
            + network.ring_drops("far")
            == sent + LIGHT
    });
    let queued = drain(&full);
    assert_eq!(queued + network.late_drops() + network.ring_drops("far"), sent, "{attach}");
    let would = network.count("udp-full");
    // The kernel would have taken none of them.
    assert!(would > 0 && would <= network.late_drops(), "{would} of {}", network.late_drops());
    let status = network.interface_status();
    assert_eq!(status["policy"], "shadow");
    assert_eq!(
        (verdict(&status, "discard"), verdict(&status, "would-discard")),
        (None, Some(would))
    );
    assert_eq!(status["rates"]["discarded_pps"], 0.0);
    assert!(status["knobs"].as_array().unwrap().is_empty(), "{status}");
    assert_eq!(network.threaded(), "0");
    let line = daemon.line();
    assert_eq!(line["discarded"], 0);
    let said = network.says(&["status"]);
    assert!(said.contains("policy shadow") && said.contains("would discard"), "{said}");
    let channels = network.json(&["channels", "--json"]);
    let channel = &channels["interfaces"][0]["channels"][0];
    assert_eq!(
        (&channel["discarded"]["packets"], &channel["would_discard"]["packets"]),
        (&0.into(), &would.into())
    );
    let text = network.says(&["channels", "--interval", "0"]);
    assert!(text.contains("WOULD DISC"), "{text}");
    let said = daemon.interrupt();
    assert!(said.contains(&format!("would have been discarded: {would} udp-full")), "{said}");
    assert!(said.contains(&format!("{FULL} of ")) && said.contains("would have lost"), "{said}");
    assert!(said.contains("no packet of the 1 other channels would have been lost"), "{said}");
    assert!(said.contains("UDP packets of all interfaces itself"), "{said}");
    network.assert_untouched();
}

#[test]
fn everything_passes_in_the_driver() {
    everything_passes("native");
}

#[test]
fn everything_passes_at_tc() {
    everything_passes("tc");
}
