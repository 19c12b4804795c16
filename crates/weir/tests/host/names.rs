//! What an interface may be called: an alternative name is a name of the same interface.

use std::process::{Command, Stdio};

use crate::common::*;
use serde_json::Value;
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

const OTHER: &str = "enx020000000001-uplink";

/// A network whose protected interface has an alternative name.
fn network() -> Network {
    let network = Network::new();
    ip(&network, &["link", "property", "add", "dev", NEAR, "altname", OTHER]);
    network
}

fn ip(network: &Network, arguments: &[&str]) {
    let ip = || Command::new("ip").args(arguments).status().unwrap();
    assert!(network.near.run(ip).unwrap().success());
}

#[test]
fn by_an_alternative_name_an_interface_is_protected_in_full() {
    let network = network();
    let file = ConfigFile::new("altname", "[interface.near]\nnice = 7\n");
    let mut command = Command::new(WEIR);
    command.args(["run", OTHER, "--attach", "native", "--quiet", "--config", file.path()]);
    command.stderr(Stdio::null());
    let mut daemon = network.near.run(|| Owned::start(&mut command)).unwrap();
    wait_until("the status is published", || !network.status()["interfaces"][0].is_null());
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
    ip(&network, &["link", "property", "add", "dev", NEAR, "altname", "ens77"]);
    let file = ConfigFile::new("altname-section", "[interface.ens77]\nnice = 7\n");
    for name in [NEAR, OTHER] {
        let shown = network.says(&["config", "show", name, "--config", file.path()]);
        assert!(shown.contains(":2, for this interface"), "{shown}");
    }
}

#[test]
fn what_looks_at_an_interface_takes_an_alternative_name() {
    let network = network();
    let dir = tempfile::Builder::new().prefix(&killed::prefix()).tempdir().unwrap();
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
