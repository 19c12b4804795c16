//! The gate at each place where it can be attached: it is there, it works, and it goes.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use crate::guardian::kill_with_guardian;
use rustix::process::Signal;
use serde_json::Value;
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::programs;
use weir_bpf::units::MacAddr;

/// What `docs` promise for `kill -9`.
const PROMISED: Duration = Duration::from_secs(1);

fn near(network: &Network, program: &str, arguments: &str) -> String {
    let run = || Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let output = network.near.run(run).unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

fn clsact(network: &Network) -> bool {
    near(network, "tc", "qdisc show dev near").contains("clsact")
}

fn filters(network: &Network) -> String {
    near(network, "tc", "filter show dev near ingress")
}

/// Somebody else's filter: classic BPF that matches nothing.
fn put_filter(network: &Network, verb: &str, place: &str) {
    sh(network, &format!("tc filter {verb} dev near ingress {place} bpf bytecode '1,6 0 0 0'"));
}

/// Nothing of weir's is attached.
fn is_detached(network: &Network) -> bool {
    network.is_untouched() && !clsact(network)
}

/// More than one queue's worth to a socket that is not read: weir discards, and does not lose what
/// is sent to one that is.
fn flood_and_check(network: &Network) {
    let full = network.near_socket("198.18.0.1:5000");
    let read = network.near_socket("198.18.0.1:5001");
    let sender = network.far_socket("198.18.0.2:0");
    let discards = || {
        for _ in 0..500 {
            sender.send_to(&[0; 1000], "198.18.0.1:5000").unwrap();
        }
        network.count("udp-full") > 0
    };
    wait_until("the gate discards", discards);
    network.wait_for_calm();
    let before = network.count("udp-room");
    sender.send_to(b"packet", "198.18.0.1:5001").unwrap();
    assert_eq!(read.recv(&mut [0; 16]).unwrap(), 6);
    wait_until("it is counted", || network.count("udp-room") > before);
    drop(full);
}

/// With `--attach` so, and `attached` so the status.
fn it_works_and_goes_with_its_process(asked: &str, attached: &str) {
    let (network, daemon) = protected(&["--attach", asked]);
    let status = network.interface_status();
    assert_eq!(status["attach"], attached);
    assert_eq!(status["attach_reason"], format!("asked for with `--attach {asked}`"));
    assert_eq!(network.has_xdp(), ["native", "generic"].contains(&asked));
    assert_eq!(clsact(&network), asked == "clsact");
    flood_and_check(&network);
    daemon.signal(Signal::TERM);
    let (status, messages) = daemon.end();
    assert!(status.success(), "{messages}");
    assert!(is_detached(&network), "{asked}: {}", filters(&network));

    let daemon = Daemon::start(&network, &["--attach", asked]);
    daemon.kill();
    let gone = wait(PROMISED, || is_detached(&network));
    assert!(gone, "{asked}: {} {:?}", filters(&network), network.files());
}

#[test]
fn in_the_driver_the_gate_works_and_goes_with_its_process() {
    it_works_and_goes_with_its_process("native", "native");
}

#[test]
fn a_generic_gate_works_and_goes_with_its_process() {
    it_works_and_goes_with_its_process("generic", "generic");
}

#[test]
fn at_tc_the_gate_works_and_goes_with_its_process() {
    it_works_and_goes_with_its_process("tc", "tcx");
}

#[test]
fn a_clsact_filter_works_and_goes_with_its_process() {
    it_works_and_goes_with_its_process("clsact", "clsact");
}

#[test]
fn auto_spares_the_veth_and_says_why() {
    let (network, daemon) = protected(&["--attach", "auto"]);
    let status = network.interface_status();
    assert_eq!(status["attach"], "tcx");
    assert!(status["attach_reason"].as_str().unwrap().contains("TSO"), "{status}");
    assert_eq!(status["notes"], Value::Array(vec![]));
    let text = network.says(&["status"]);
    assert!(
        text.contains("gate at tc ingress (tcx), policy on (auto: native XDP on a veth"),
        "{text}"
    );
    network.assert_left_untouched_by(daemon);
}

/// What native XDP costs other traffic is not known of most drivers, nor of a bridge.
#[test]
fn auto_says_why_it_is_not_native() {
    let network = Network::new();
    near(&network, "ip", "link add bridge type bridge");
    let run = || {
        let mut command = Command::new(WEIR);
        command.args(["run", "bridge", "--quiet"]).args(NO_CONFIG);
        Owned::start(command.stderr(Stdio::null()))
    };
    let mut daemon = network.near.run(run).unwrap();
    network.wait_until_published();
    let status = network.interface_status();
    assert_eq!(status["attach"], "tcx");
    let reason = status["attach_reason"].as_str().unwrap();
    assert!(
        reason.starts_with("auto: native XDP's cost to other traffic is not measured"),
        "{reason}"
    );
    assert!(reason.contains("on driver bridge"), "{reason}");
    daemon.terminate();
    network.assert_untouched();
}

#[test]
fn tc_programs_run_side_by_side() {
    let network = Network::new();
    let probe = QueueProbe::load().unwrap();
    // Somebody else's: it passes everything, and counts what it sees.
    let mut other = Gate::load(&probe, AttachMode::Tcx).unwrap();
    other.configure(MacAddr([0; 6]), Policy::Off);
    let attach = || other.attach(network.ifindex, NEAR, AttachMode::Tcx).unwrap();
    network.near.run(attach).unwrap();
    let daemon = Daemon::start(&network, &["--attach", "tc"]);
    let status = network.interface_status();
    assert!(status["notes"][0].as_str().unwrap().contains("(weir_gate_tc)"), "{status}");
    // What a program might do with a packet, weir cannot know: everything passes, and is counted.
    assert_eq!(status["diversions"][0]["kind"], "tc-bpf", "{status}");
    let read = network.near_socket("198.18.0.1:5001");
    network.far_socket("198.18.0.2:0").send_to(b"packet", "198.18.0.1:5001").unwrap();
    assert_eq!(read.recv(&mut [0; 16]).unwrap(), 6);
    wait_until("it is counted", || network.count("diverted") > 0);
    let diverted = network.count("diverted");
    assert!(other.counters().unwrap().total().packets >= diverted);
    daemon.interrupt();
    let names = network.near.run(|| programs::at_tcx(network.ifindex).unwrap()).unwrap();
    assert_eq!(names, ["weir_gate_tc"]);
    network.assert_untouched();
}

#[test]
fn a_clsact_filter_left_by_two_kills_is_reset() {
    let (network, daemon) = protected(&["--attach", "clsact"]);
    assert!(filters(&network).contains("weir_gate_tc"), "{}", filters(&network));
    kill_with_guardian(&network, daemon);
    assert!(filters(&network).contains("weir_gate_tc"), "{}", filters(&network));
    let said = network.says(&["reset"]);
    assert!(said.contains("tc ingress filter program"), "{said}");
    assert!(is_detached(&network), "{}", filters(&network));
}

#[test]
fn other_peoples_qdiscs_and_filters_stay() {
    let network = Network::new();
    // The queueing discipline was there; then one that weir made, which others have used since.
    for made_by_weir in [false, true] {
        if !made_by_weir {
            assert_eq!(near(&network, "tc", "qdisc add dev near clsact"), "");
        }
        let daemon = Daemon::start(&network, &["--attach", "clsact"]);
        put_filter(&network, "add", "pref 7 handle 0x1");
        daemon.interrupt();
        assert!(filters(&network).contains("pref 7"), "{}", filters(&network));
        assert!(!filters(&network).contains("weir_gate_tc"), "{}", filters(&network));
        assert!(clsact(&network));
        assert_eq!(near(&network, "tc", "qdisc del dev near clsact"), "");
    }
    network.assert_untouched();
}

#[test]
fn a_gate_that_somebody_else_detaches_is_noticed() {
    let (network, daemon) = protected(&["--attach", "clsact"]);
    assert_eq!(near(&network, "tc", "qdisc del dev near clsact"), "");
    let (status, messages) = daemon.end();
    assert!(!status.success(), "{messages}");
    assert!(messages.contains("near is no longer protected: somebody has detached"), "{messages}");
    assert!(messages.contains("`weir run near` protects it again"), "{messages}");
    network.assert_untouched();
}

#[test]
fn a_gate_that_somebody_else_detaches_beside_another_is_attached_again() {
    let network = Network::new();
    network.add_pair();
    let daemon = Daemon::start(&network, &[NEAR2, "--attach", "clsact"]);
    assert_eq!(near(&network, "tc", "qdisc del dev near2 clsact"), "");
    daemon.said("near2 is no longer protected: somebody has detached weir's gate");
    // The status may still be that of before.
    let filters = || near(&network, "tc", "filter show dev near2 ingress");
    wait_until("it is attached again", || filters().contains("weir_gate_tc"));
    network.wait_until_both_are_protected();
    assert!(filters().contains("weir_gate_tc"), "{}", filters());
    daemon.interrupt();
    assert_eq!(near(&network, "tc", "qdisc show dev near2 clsact"), "");
    network.assert_untouched();
}

/// What tc has redirected on its way here does not pass generic XDP (`netif_receive_generic_xdp()`).
#[test]
fn what_goes_past_the_gate_is_told() {
    const ABOUT: &str = "packets went past the gate at generic XDP";
    let network = Network::ipv4_only();
    let mac = network.links(|links, ifindex| links.mac(ifindex).unwrap());
    let script = format!(
        "ip link add p0 type veth peer name p1 && ip link set p0 up && ip link set p1 up && \
         ip address add 198.19.0.2/24 dev p0 && ip neighbour add 198.19.0.1 lladdr {mac} dev p0 && \
         tc qdisc add dev p1 clsact && tc filter add dev p1 ingress protocol ip u32 match u32 0 0 \
         action mirred egress redirect dev far"
    );
    run_in(&network.far, &script);
    let daemon = Daemon::start(&network, &["--attach", "generic"]);
    let sender = network.far_socket("198.19.0.2:0");
    wait_until("it is told", || {
        (0..50).for_each(|_| drop(sender.send_to(b"past", "198.19.0.1:5000")));
        network.check().contains(ABOUT)
    });
    daemon.said(ABOUT);
    let direct = network.far_socket("198.18.0.2:0");
    direct.send_to(b"through", "198.18.0.1:5000").unwrap();
    wait_until("one that comes to it ends that", || network.check() == "protected: near\n");
}

/// A filter of somebody else's with weir's priority and handle is not weir's, whatever the record says.
#[test]
fn a_filter_with_another_program_is_not_removed() {
    let (network, daemon) = protected(&["--attach", "clsact"]);
    kill_with_guardian(&network, daemon);
    put_filter(&network, "replace", "pref 65535 handle 0x77656972");
    assert!(network.weir(&["reset"]).status.success());
    assert!(filters(&network).contains("0x77656972"), "{}", filters(&network));
    assert!(clsact(&network));
}

#[test]
fn what_the_kernel_lacks_is_listed_with_its_cost() {
    let network = Network::new();
    let status = network.status();
    let lacks = status["kernel_lacks"].as_array().unwrap();
    for lack in lacks {
        println!("this kernel lacks {}: {}", lack["feature"], lack["cost"]);
        assert!(!lack["cost"].as_str().unwrap().is_empty());
    }
    let text = network.says(&["status"]);
    assert_eq!(text.matches("this kernel lacks").count(), lacks.len(), "{text}");
}
