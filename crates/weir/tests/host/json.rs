//! The docs describe every field of what the real commands print as JSON.

use std::process::Command;

use crate::common::*;
use crate::guardian::kill_both;
use serde_json::Value;

const FLOOD_PPS: f64 = 20_000.0;
/// So that there is a diversion that is about ports.
const REDIRECT: &str = "nft 'table ip nat { chain pre { type nat hook prerouting priority dstnat; \
                        udp dport 8080 redirect to :8081; }; }'";

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// One a line.
fn objects(text: &str) -> Vec<Value> {
    text.lines().map(object).collect()
}

/// Runs this while a socket that nobody reads is flooded, and the gate discards.
fn flooded(network: &Network, body: impl FnOnce()) {
    network.while_sent(&[network.flow(5000, Some(FLOOD_PPS))], None, |_| {
        wait_until("the gate discards", || network.published_count("udp-full") > 1000);
        body();
    });
}

#[test]
fn every_field_of_run_status_channels_and_doctor_is_described() {
    let network = Network::ipv4_only();
    let _full = network.near_socket(&format!("{NEAR_IP}:5000"));
    sh(&network, REDIRECT);
    let daemon = Daemon::spawn(&network, &[]);
    let mut lines = vec![daemon.line(), daemon.line()];
    // So that something wakes it.
    wait_until("the gate sleeps", || network.interface_status()["sleep"]["asleep"] == true);
    flooded(&network, || {
        let discards = |line: &Value| line["top_discard_reason"] == "udp-full";
        wait_until("a line tells of discards", || {
            lines.push(daemon.line());
            lines.last().is_some_and(discards)
        });
        let status = [network.status()];
        fields::STATUS.has_all_of(&status, &["c_gate_ns", "times", "ports", "knob"]);
        fields::STATUS.has_only(&status);
        let channels = object(&network.says(&["channels", "--json", "--sources"]));
        let some = ["owner", "comm", "queue", "late_drops_pps", "reason", "others_share"];
        // What both have goes by one name.
        for retired in [&status[0], &channels].map(|all| &all["interfaces"][0]["retired"]) {
            assert!(retired["discarded"]["packets"].is_u64(), "{retired}");
        }
        fields::CHANNELS.has_all_of(&[channels], &some);
        let doctor = network.weir(&["doctor", "--json"]);
        let doctor = object(&String::from_utf8(doctor.stdout).unwrap());
        fields::DOCTOR.has_all_of(&[doctor], &["sureness", "advice"]);
    });
    fields::RUN.has_all_of(&lines, &["attach", "late_drop_pps"]);
    fields::RUN.has_only(&lines);
    kill_both(&network, daemon);
    let status = network.status();
    assert_eq!(status["interfaces"][0]["running"], false, "{status}");
    fields::STATUS.has_all_of(&[status], &["state_file"]);
}

#[test]
fn every_field_of_the_status_of_softirq_mode_is_described() {
    let network = Network::ipv4_only();
    let _full = network.near_socket(&format!("{NEAR_IP}:5000"));
    let daemon = Daemon::start(&network, &["--napi", "softirq"]);
    flooded(&network, || {
        let mut limit = Value::Null;
        wait_until("softirqs are seen", || {
            limit = network.interface_status()["softirq_limit"].clone();
            limit["cpus"][0].is_object()
        });
        fields::STATUS.has_all_of(&[limit], &["input_share", "cpu", "used", "taken"]);
    });
    daemon.interrupt();
}

#[test]
fn every_field_of_a_capture_is_described() {
    let network = Network::ipv4_only();
    let file = tempfile::NamedTempFile::new().unwrap();
    let capture = |arguments: &[&str]| {
        let all = [&["capture", "-i", NEAR, "--json", "--duration", "2s"], arguments].concat();
        objects(&network.says(&all))
    };
    let lines = [capture(&["--count"]), capture(&["-w", file.path().to_str().unwrap()])].concat();
    fields::CAPTURE.has_all_of(&lines, &["interface", "matched_pps", "ended_by"]);
    fields::CAPTURE.has_only(&lines);
}

#[test]
fn every_field_of_the_configuration_is_described() {
    let file = ConfigFile::new(
        "fields",
        "user_share = \"60%\"\n[interface.near]\ncpus = \"0\"\n[shares]\npresets = [\"dns\"]\n\
         [[shares.weight]]\nport = 53\nweight = 4\n",
    );
    let show = ["config", "show", "--json", "--config", file.path()];
    let output = Command::new(WEIR).args(show).output().unwrap();
    let shown = object(&String::from_utf8(output.stdout).unwrap());
    fields::CONFIG.has_all_of(&[shown], &["user_share", "presets", "by", "of", "line"]);
}
