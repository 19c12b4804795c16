//! What an interface may be called: an alternative name is a name of the same interface.

use std::process::{Command, Stdio};

use crate::captures::{self, whole};
use crate::common::*;
use pcap_file::pcap::PcapHeader;
use serde_json::Value;
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

const OTHER: &str = "enx020000000001-uplink";

/// A network whose protected interface has an alternative name.
fn network() -> Network {
    let network = Network::new();
    sh(&network, &format!("ip link property add dev near altname {OTHER}"));
    network
}

#[test]
fn by_an_alternative_name_an_interface_is_protected_in_full() {
    let network = network();
    let file = ConfigFile::new("altname", "[interface.near]\nnice = 7\n");
    let mut command = Command::new(WEIR);
    command.args(["run", OTHER, "--attach", "native", "--quiet", "--config", file.path()]);
    command.stderr(Stdio::null());
    let mut daemon = network.near.run(|| Owned::start(&mut command)).unwrap();
    network.wait_until_published();
    let status = network.interface_status();
    assert_eq!((&status["interface"], &status["nice"]), (&NEAR.into(), &7.into()));
    assert!(status["not_threaded"].is_null(), "{status}");
    assert_eq!(sched::nice(network.napi_threads()[0]).unwrap(), Nice(7));
    assert!(network.says(&["channels", OTHER, "--interval", "0"]).starts_with(NEAR));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    wait_until("the guardian has put everything back", || network.is_untouched());
}

#[test]
fn an_interface_that_is_named_by_two_names_is_protected_once() {
    let network = network();
    let daemon = Daemon::start(&network, &[OTHER]);
    assert_eq!(network.interface_status()["interface"], NEAR);
    network.assert_left_untouched_by(daemon);
}

#[test]
fn a_section_holds_by_whichever_name_it_has() {
    let network = network();
    sh(&network, "ip link property add dev near altname ens77");
    let file = ConfigFile::new("altname-section", "[interface.ens77]\nnice = 7\n");
    for name in [NEAR, OTHER] {
        let shown = network.says(&["config", "show", name, "--config", file.path()]);
        assert!(shown.contains(":2, for this interface"), "{shown}");
    }
}

#[test]
fn what_looks_at_an_interface_takes_an_alternative_name() {
    let network = network();
    let dir = killed::temp_dir();
    let record = dir.path().join("record.json");
    network.weir(&["doctor", OTHER, "--record", record.to_str().unwrap()]);
    let read: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    assert_eq!(read["interfaces"][0]["name"], NEAR);

    let mut capture = Command::new(WEIR);
    capture.args(["capture", "-i", OTHER, "--packets", "1", "udp", "-w"]);
    capture.arg(dir.path().join("packet.pcapng")).stderr(Stdio::null());
    let mut capture = network.near.run(|| Owned::start(&mut capture)).unwrap();
    let sender = network.far_socket("198.18.0.2:0");
    let mut ended = None;
    wait_until("a packet is captured", || {
        sender.send_to(b"packet", "198.18.0.1:5000").unwrap();
        ended = capture.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
}

/// The kernel allows almost anything, and so does a file system.
#[test]
fn no_name_moves_the_cursor() {
    const NAME: &str = "e\x1b[31m\"\\\u{9b}";
    let network = Network::ipv4_only();
    sh(
        &network,
        &format!("ip link set near down; ip link set near name '{NAME}'; ip link set '{NAME}' up"),
    );
    let mut command = Command::new(WEIR);
    command.args(["run", NAME, "--quiet"]).args(NO_CONFIG).stderr(Stdio::null());
    let mut daemon = network.near.run(|| Owned::start(&mut command)).unwrap();
    network.wait_until_published();
    let packets = [whole(captures::udp(NEAR_IP, 5000))];
    let bytes = captures::pcap(PcapHeader::default(), &packets);
    let capture = ConfigFile::new("c\x1b[2J.pcap", &bytes);
    let ticket = ConfigFile::new("ticket.json", br#"{"kernel": "\u001b[2J\n1. nothing"}"#);
    let explain = [&["explain", capture.path()], NO_CONFIG].concat();
    for arguments in [
        &["status"][..],
        &["status", "--check"],
        &["channels", "--interval", "0"],
        &["top", "--count", "1"],
        &["doctor", "--from", ticket.path()],
        &["explain", "/nonexistent\x1b[2J"],
        &explain,
        &["reset"],
    ] {
        let output = network.weir(arguments);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(said.contains("\\x1b[") && !said.contains('\x1b'), "{arguments:?}: {said:?}");
    }
    let said = network.says(&["status", "--json"]);
    assert!(said.contains("\\u009b") && !said.contains('\u{9b}'), "{said:?}");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
