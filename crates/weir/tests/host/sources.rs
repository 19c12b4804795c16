//! `weir channels --sources`: who sends what is discarded, from real floods, at each place that a gate can be at.

use std::net::{IpAddr, UdpSocket};
use std::process::{Command, Stdio};

use crate::common::*;
use serde_json::Value;
use weir_bpf::samples::Samples;
use weir_bpf::traffic::{FlowSpec, Generator, Sources};
use weir_bpf::units::PacketsPerSec;

const PORT: u16 = 5000;
const CHANNEL: &str = "udp 198.18.0.1:5000";
const CHANNEL_IP6: &str = "udp [2001:2::1]:5000";
/// From one address, from a network's, and from all over: packets per second.
const RATES: [f64; 3] = [20_000.0, 8_000.0, 12_000.0];
const NETWORK: &str = "198.19.7.0";
const NETWORK_IP6: &str = "2001:2:0:7::";

/// A host with a full socket of each family, and who floods them.
struct Host {
    network: Network,
    flows: [FlowSpec; 4],
    sockets: [UdpSocket; 2],
}

impl Host {
    fn new() -> Self {
        let network = Network::new();
        network.poll_by_napi();
        let sockets = [NEAR_IP.to_owned(), format!("[{NEAR_IP6}]")]
            .map(|address| network.near_socket(&format!("{address}:{PORT}")));
        let flow = |from: &str, address_bits, rate| {
            let from: IpAddr = from.parse().unwrap();
            let to = if from.is_ipv4() { NEAR_IP } else { NEAR_IP6 };
            FlowSpec {
                sources: Sources::Random { address_bits, port_bits: 0 },
                rate: Some(PacketsPerSec(rate)),
                address: (from, to.parse().unwrap()),
                ..network.flow(PORT, None)
            }
        };
        let [one, some, all] = RATES;
        let flows = [
            flow(FAR_IP, 0, one),
            flow(NETWORK, 8, some),
            flow("198.18.0.0", 16, all),
            flow(NETWORK_IP6, 32, some),
        ];
        Self { network, flows, sockets }
    }

    /// Runs this once the gate discards.
    fn flooded<T>(&self, body: impl FnOnce(&Generator) -> T) -> T {
        self.network.while_sent(&self.flows, None, |generator| {
            wait_until("the gate discards", || self.network.count("udp-full") > 1000);
            body(generator)
        })
    }

    fn sources(&self, options: &[&str]) -> String {
        self.network.says(&[&["channels", "--sources"], options].concat())
    }

    /// Makes room in the queues.
    fn drain(&self) {
        for socket in &self.sockets {
            drain(socket);
        }
    }

    fn samples(&self) -> Samples {
        let ids = self.network.interface_status()["channel_map_ids"].clone();
        Samples::open(ids["samples"].as_u64().unwrap().try_into().unwrap()).unwrap()
    }

    /// Waits until nothing is sampled of what is discarded meanwhile.
    fn wait_for_no_samples(&self) {
        let mut samples = self.samples();
        wait_until("nothing is sampled any more", || {
            samples.take();
            let before = self.network.count("udp-full");
            wait_until("more is discarded", || self.network.count("udp-full") > before + 1000);
            samples.take().is_empty()
        });
    }

    /// Has nft do this, in the flooded host's namespace.
    fn nft(&self, arguments: &str) -> String {
        sh(&self.network, &format!("nft {arguments}"))
    }
}

/// What is told of a channel's senders: share by source, and what the others have.
fn told(report: &Value, channel: &str) -> (Vec<(String, f64)>, f64) {
    let channels = report["interfaces"][0]["channels"].as_array().unwrap();
    let found = channels.iter().find(|each| each["name"] == channel).unwrap();
    let sources = &found["sources"];
    let sender = |sender: &Value| {
        assert!(sender["samples"].as_u64().unwrap() >= 8, "{sources}");
        let discarded = found["rates"]["discarded_pps"].as_f64().unwrap()
            + found["rates"]["would_discard_pps"].as_f64().unwrap();
        let share = sender["share"].as_f64().unwrap();
        let pps = sender["discarded_pps"].as_f64().unwrap();
        assert!((pps - share * discarded).abs() < 1.0, "{found}");
        (sender["source"].as_str().unwrap().to_owned(), share)
    };
    let senders = sources["senders"].as_array().unwrap_or_else(|| panic!("{found}"));
    (senders.iter().map(sender).collect(), sources["others_share"].as_f64().unwrap())
}

fn assert_near(share: f64, wanted: f64) {
    assert!((share - wanted).abs() < 0.08, "{share}, not {wanted}");
}

fn heavy_senders_are_told(options: &[&str]) {
    let host = Host::new();
    let daemon = Daemon::start_sleepy(&host.network, options);
    let (report, sent, text) = host.flooded(|generator| {
        let sent = || [0, 1, 2].map(|flow| generator.counts(flow).sent);
        let before = sent();
        let report = host.sources(&["--json", "--interval", "2s"]);
        let meanwhile: Vec<u64> = sent().iter().zip(before).map(|(now, then)| now - then).collect();
        (serde_json::from_str::<Value>(&report).unwrap(), meanwhile, host.sources(&[]))
    });
    let all: u64 = sent.iter().sum();
    let part = |flow: usize| sent[flow] as f64 / all as f64;
    let (senders, others) = told(&report, CHANNEL);
    let [one, network] = senders.as_slice() else { panic!("{options:?}: {senders:?}") };
    assert_eq!((one.0.as_str(), network.0.as_str()), (FAR_IP, "198.19.7.0/24"));
    assert_near(one.1, part(0));
    assert_near(network.1, part(1));
    // A sixteenth of a thousandth each: no address, and no network, is told.
    assert_near(others, part(2));
    let (senders, others) = told(&report, CHANNEL_IP6);
    assert_eq!(senders.len(), 1, "{senders:?}");
    assert_eq!(senders[0].0, "2001:2:0:7::/64");
    assert!(senders[0].1 > 0.99 && others < 0.01, "{senders:?}");
    for line in ["    from 198.18.0.2 ", "    from 2001:2:0:7::/64 ", "    from others "] {
        assert!(text.contains(line), "{text}");
    }
    host.network.assert_left_untouched_by(daemon);
}

#[test]
fn heavy_senders_are_told_by_a_gate_in_the_driver() {
    heavy_senders_are_told(&["--attach", "native"]);
}

#[test]
fn heavy_senders_are_told_by_a_generic_gate() {
    heavy_senders_are_told(&["--attach", "generic"]);
}

#[test]
fn heavy_senders_are_told_by_a_gate_at_tc() {
    heavy_senders_are_told(&["--attach", "tc"]);
}

#[test]
fn heavy_senders_are_told_in_shadow() {
    heavy_senders_are_told(&["--attach", "tc", "--policy", "shadow"]);
}

#[test]
fn nothing_is_sampled_but_while_somebody_looks() {
    let host = Host::new();
    let daemon = Daemon::start(&host.network, &[]);
    host.flooded(|_| {
        let mut samples = host.samples();
        assert!(samples.take().is_empty());
        host.wait_for_no_samples();
        let mut watcher = Command::new(WEIR);
        watcher.args(["channels", "--sources", "--interval", "1h"]).stdout(Stdio::null());
        let mut watcher = host.network.near.run(|| watcher.spawn().unwrap()).unwrap();
        wait_until("discards are sampled", || !samples.take().is_empty());
        watcher.kill().unwrap();
        watcher.wait().unwrap();
        host.wait_for_no_samples();
    });
    daemon.interrupt();
}

#[test]
fn nft_takes_what_is_printed_for_it() {
    let host = Host::new();
    let daemon = Daemon::start(&host.network, &["--attach", "tc"]);
    host.flooded(|_| {
        let sets = host.sources(&["--nft"]);
        let replace = format!("-f - <<'END'\n{sets}\nEND");
        let elements = |family| host.nft(&format!("list set inet weir_sources {family}"));
        // What was there before goes.
        for _ in 0..2 {
            host.nft(&replace);
            host.nft("'add element inet weir_sources ipv4 { 198.18.9.9 }'");
        }
        host.nft(&replace);
        let (ipv4, ipv6) = (elements("ipv4"), elements("ipv6"));
        assert!(ipv4.contains("198.18.0.2, 198.19.7.0/24 }"), "{sets}{ipv4}");
        assert!(ipv6.contains("{ 2001:2:0:7::/64 }"), "{sets}{ipv6}");
        // A rule that uses them does not make the gate pass everything.
        host.nft(
            "'table inet weir_sources { chain ban { type filter hook prerouting priority raw; \
             ip saddr @ipv4 counter drop; ip6 saddr @ipv6 counter drop; }; }'",
        );
        wait_until("the rule drops what the gate admits to queues with room", || {
            host.drain();
            let rules = host.nft("list chain inet weir_sources ban");
            rules.matches("packets 0 ").count() == 0
        });
        let before = host.network.count("udp-full");
        wait_until("the gate discards", || host.network.count("udp-full") > before);
    });
    daemon.interrupt();
}

#[test]
fn without_an_interval_there_is_nothing_to_sample() {
    let (network, daemon) = protected_ipv4(&[]);
    let refused = network.weir(&["channels", "--sources", "--interval", "0"]);
    let refused = failure(&refused, 1);
    assert!(refused.contains("leave out `--interval 0`"), "{refused}");
    daemon.interrupt();
}
