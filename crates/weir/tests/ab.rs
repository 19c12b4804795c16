//! `weir run --ab`: slices with weir and slices in shadow, of a real flood.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use common::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_bpf::sys::sched;

const RATE: f64 = 30_000.0;
const READ_RATE: f64 = 1000.0;

fn compare(network: &Network, options: &[&str]) -> Child {
    let mut command = Command::new(WEIR);
    command.args(["run", NEAR, "--attach", "tc"]).args(options).args(NO_CONFIG);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    network.near.run(|| command.spawn().unwrap()).unwrap()
}

#[test]
fn what_weir_changes_is_told_with_its_interval() {
    let network = Network::ipv4_only();
    network.poll_by_napi();
    let _full = network.near_socket(&format!("{NEAR_IP}:5000"));
    let read = network.near_socket(&format!("{NEAR_IP}:5001"));
    let flows = [network.flow(5000, Some(RATE)), network.flow(5001, Some(READ_RATE))];
    let cpu = *sched::online_cpus().unwrap().last().unwrap();
    let output = while_consuming(&[&read], cpu, |received| {
        network.while_sent(&flows, None, |_| {
            wait_until("packets are read", || received.load(Ordering::Relaxed) > 0);
            let comparing = compare(&network, &["--ab", "1s", "--pairs=6", "--json"]);
            comparing.wait_with_output().unwrap()
        })
    });
    assert!(output.status.success(), "{output:?}");
    // A slice of each says what it says without `--ab`, and then no more.
    let said = String::from_utf8(output.stderr).unwrap();
    for policy in ["on", "shadow"] {
        let line = format!("weir: policy {policy}: near: ");
        let ends =
            said.lines().filter(|each| each.starts_with(&line) && each.contains(" packets seen; "));
        assert_eq!(ends.count(), 1, "{said}");
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 7, "{text}");
    for pair in &lines[..6] {
        assert_eq!(pair["event"], "pair");
        let late = |side: &str| pair[side]["late_drop_pps"].as_f64().unwrap();
        assert!(late("on") < late("shadow") / 10.0, "{pair}");
        assert!(pair["on"]["delivered_pps"].as_f64().unwrap() > READ_RATE / 2.0, "{pair}");
        let cpus = |side: &str| pair[side]["receive_cpus"].as_f64().unwrap();
        assert!(cpus("on") > 0.0 && cpus("shadow") > 0.0, "{pair}");
    }
    assert_eq!((&lines[6]["event"], &lines[6]["pairs"]), (&"differences".into(), &6.into()));
    fields::AB.has_all_of(&lines, &["receive_cpus", "interval"]);
    let differences = lines[6]["differences"].as_array().unwrap();
    let late = differences.iter().find(|each| each["figure"] == "late drops/s").unwrap();
    let highest = late["interval"][1].as_f64().unwrap();
    assert!(highest < -RATE / 2.0 && late["p"].as_f64().unwrap() < 0.05, "{late}");
    network.assert_untouched();
}

#[test]
fn a_slice_ends_with_whoever_compares() {
    let network = Network::ipv4_only();
    for signal in [Signal::KILL, Signal::INT] {
        let mut comparing = compare(&network, &["--ab", "1h"]);
        network.wait_until_published();
        kill_process(Pid::from_child(&comparing), signal).unwrap();
        assert!(!comparing.wait().unwrap().success());
        wait_until("the slice has ended", || network.is_untouched());
    }
}

#[test]
fn why_a_slice_fails_is_told() {
    let (network, _daemon) = protected_ipv4(&["--attach", "tc"]);
    let failed = network.weir(&["run", NEAR, "--ab", "1s"]);
    let failed = failure(&failed, 1);
    assert!(
        failed.contains("a slice of `weir run` has failed: weir already protects near"),
        "{failed}"
    );
}

#[test]
fn options_may_end_before_the_interfaces() {
    let network = Network::ipv4_only();
    let arguments = [&["run", "--ab=1s", "--pairs=1", "--attach=tc"], NO_CONFIG, &["--", NEAR]];
    network.says(&arguments.concat());
    network.assert_untouched();
}
