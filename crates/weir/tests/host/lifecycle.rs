//! What `weir run` turns, it turns back.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use crate::common::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::sched::SchedPolicy;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::units::{CpuId, Nice};

/// The NAPI threads that the governor looks after, by the status. Their weight depends on what else the
/// machine is at.
fn governed(network: &Network) -> Vec<Pid> {
    let status = network.interface_status();
    status["governed"].as_array().unwrap().iter().map(|each| pid(&each["pid"])).collect()
}

#[test]
fn the_gate_is_attached_and_the_status_says_so() {
    let (network, daemon) = protected(&[]);
    assert!(network.has_xdp());
    assert_eq!(network.threaded(), "1");
    let threads = network.napi_threads();
    assert!(!threads.is_empty());
    let status = network.status()["interfaces"][0].clone();
    assert_eq!(status["running"], true);
    assert_eq!(status["interface"], NEAR);
    assert_eq!(status["pid"], daemon.pid().as_raw_nonzero().get());
    assert_eq!(status["attach"], "native");
    assert_eq!(status["policy"], "on");
    assert_eq!(status["nice"], serde_json::Value::Null);
    assert_eq!(governed(&network), threads);
    assert_eq!(pid(&status["napi_threads"][0]), threads[0]);
    assert_eq!(status["knobs"][0]["knob"], "threaded");
    assert_eq!(
        (&status["knobs"][0]["old"], &status["knobs"][0]["new"]),
        (&"0".into(), &"1".into())
    );
    assert!(status["not_threaded"].is_null());
    let reason = &status["reasons"][0];
    assert!(!reason["description"].as_str().unwrap().is_empty());
    let line = daemon.line();
    assert_eq!(line["event"], "status");
    for rate in ["ring_drop_pps", "interface_drop_pps", "late_drop_pps"] {
        assert!(status["rates"][rate].is_number() && line[rate].is_number(), "{line}");
    }

    let text = network.says(&["status"]);
    assert!(text.contains("near  protected") && text.contains("VERDICT"), "{text}");
    assert!(text.contains("ring drops ?, "), "a veth's peer counts them: {text}");
    assert!(!text.contains("unsent"), "that of a router's fast path alone: {text}");
    // Another namespace's status is not shown there.
    let elsewhere = network
        .far
        .run(|| std::process::Command::new(WEIR).args(["status", "--json"]).output().unwrap());
    let elsewhere: serde_json::Value = serde_json::from_slice(&elsewhere.unwrap().stdout).unwrap();
    assert_eq!(elsewhere["interfaces"].as_array().unwrap().len(), 0);
}

#[test]
fn what_the_user_should_know_is_noted_with_its_remedy() {
    let network = Network::new();
    let notes = |options: &[&str]| {
        let daemon = Daemon::start(&network, options);
        let notes = network.interface_status()["notes"].as_array().unwrap().clone();
        let notes: Vec<String> = notes.iter().map(|n| n.as_str().unwrap().to_owned()).collect();
        let said = daemon.interrupt();
        for note in &notes {
            assert!(said.contains(&format!("weir: near: {note}")), "{said}");
        }
        notes
    };
    let [offload] = &notes(&[])[..] else { panic!("not one note") };
    assert!(offload.contains("TSO") && offload.contains("without `--attach native`"), "{offload}");
    assert_eq!(notes(&["--attach", "generic"]), [] as [String; 0]);
    let unused = notes(&["--attach", "tc", "--napi", "softirq", "--nice", "5", "--cpus", "0"]);
    for (note, option) in unused.iter().zip(["`--nice`", "`--cpus`"]) {
        assert!(note.starts_with(&format!("{option} has no effect: ")), "{note}");
    }
    assert_eq!(unused.len(), 2);
    network.assert_untouched();
}

#[test]
fn every_polite_signal_restores_exactly() {
    for signal in [Signal::INT, Signal::TERM, Signal::QUIT] {
        let network = Network::new();
        network.assert_untouched();
        let daemon = Daemon::start(&network, &["--cpus", "0"]);
        let thread = network.napi_threads()[0];
        assert_eq!(sched::affinity(thread).unwrap(), [CpuId(0)]);
        daemon.signal(signal);
        let (status, messages) = daemon.end();
        assert!(status.success(), "{messages}");
        assert!(messages.contains("threaded 1 -> 0"), "{messages}");
        assert!(messages.contains("packets seen; discarded: none;"), "{messages}");
        network.assert_untouched();
    }
}

#[test]
fn a_signal_ends_a_start_between_two_interfaces() {
    let network = Network::new();
    let more: Vec<String> = (0..12).map(|number| format!("more{number}")).collect();
    network.links(|links, _| {
        more.iter().for_each(|name| links.create_veth(name, &format!("{name}-far"), None).unwrap());
    });
    let options: Vec<&str> = more.iter().map(String::as_str).collect();
    let daemon = Daemon::spawn(&network, &options);
    // Before the first one's gate.
    wait_until("it has claimed some", || !network.files().is_empty());
    daemon.signal(Signal::TERM);
    let (status, messages) = daemon.end();
    assert!(status.success(), "{messages}");
    let protected = messages.matches("protecting ").count();
    assert!(protected <= more.len(), "all were protected first: {messages}");
    network.assert_untouched();
}

#[test]
fn threads_that_were_there_before_get_their_weight_and_cpus_back() {
    let network = Network::new();
    // With GRO, a veth polls by NAPI without any XDP program, and keeps its threads.
    network.poll_by_napi();
    network.set_threaded("1");
    let thread = network.napi_threads()[0];
    let cpus = sched::affinity(thread).unwrap();
    sched::set_nice(thread, Nice(5)).unwrap();

    let daemon = Daemon::start(&network, &["--nice", "-3", "--cpus", "1"]);
    assert_eq!(network.napi_threads(), [thread]);
    assert_eq!(sched::nice(thread).unwrap(), Nice(-3));
    assert_eq!(sched::affinity(thread).unwrap(), [CpuId(1)]);
    daemon.interrupt();
    assert_eq!(sched::nice(thread).unwrap(), Nice(5));
    assert_eq!(sched::affinity(thread).unwrap(), cpus);
    assert_eq!(network.threaded(), "1");
    network.set_threaded("0");
    network.assert_untouched();
}

#[test]
fn packet_steering_is_noted_and_switched_off_on_request() {
    const RPS: &str = "queues/rx-0/rps_cpus";
    let network = Network::new();
    let read = || network.read(RPS);
    network.write(RPS, "2");
    let steered = read();

    let daemon = Daemon::start(&network, &[]);
    let notes = network.interface_status()["notes"].to_string();
    assert!(notes.contains("(RPS) is on for rx-0") && notes.contains("--rps-off"), "{notes}");
    assert_eq!(read(), steered);
    daemon.interrupt();

    let daemon = Daemon::start(&network, &["--rps-off"]);
    let notes = network.interface_status()["notes"].to_string();
    assert!(!notes.contains("RPS"), "{notes}");
    assert_eq!(read().trim_matches('0'), "");
    daemon.interrupt();
    assert_eq!(read(), steered);
    network.write(RPS, "0");
    network.assert_untouched();
}

#[test]
fn packet_steering_that_somebody_else_switches_later_is_noted_as_it_is() {
    let network = Network::new();
    let set = |mask| network.write("queues/rx-0/rps_cpus", mask);
    let notes = || network.interface_status()["notes"].to_string();
    set("2");
    let daemon = Daemon::start(&network, &[]);
    assert!(notes().contains("(RPS) is on for rx-0"), "{}", notes());
    set("0");
    wait_until("it is noted no longer", || !notes().contains("RPS"));
    daemon.interrupt();
    let daemon = Daemon::start(&network, &["--rps-off"]);
    assert!(!notes().contains("RPS"), "{}", notes());
    set("2");
    wait_until("it is noted", || notes().contains("(RPS) is on for rx-0"));
    assert!(notes().contains("somebody has set it since"), "{}", notes());
    set("0");
    network.assert_left_untouched_by(daemon);
}

#[test]
fn packet_steering_of_a_queue_that_is_gone_goes_with_it() {
    let network = Network::new();
    let set_queues = |count: &str| sh(&network, &format!("ethtool -L near rx {count}"));
    for kill in [false, true] {
        set_queues("2");
        network.write("queues/rx-1/rps_cpus", "2");
        let daemon = Daemon::start(&network, &["--rps-off"]);
        set_queues("1");
        let said = end(&network, daemon, kill).unwrap_or_default();
        assert!(!said.contains("rx-1"), "{said}");
        network.assert_untouched();
    }
}

/// Politely, or by `kill -9`. What it says is known of the polite end only.
fn end(network: &Network, daemon: Daemon, kill: bool) -> Option<String> {
    let said = if kill {
        daemon.kill();
        None
    } else {
        Some(daemon.interrupt())
    };
    wait_until("weir's files are gone", || network.files().is_empty());
    said
}

#[test]
fn what_somebody_else_has_set_meanwhile_stays() {
    const RPS: &str = "queues/rx-0/rps_cpus";
    let network = Network::new();
    network.poll_by_napi();
    let mask = || network.read(RPS).trim_start_matches(['0', ',']).to_owned();
    network.set_threaded("1");
    let thread = network.napi_threads()[0];
    let cpus = sched::affinity(thread).unwrap();
    let options = ["--nice", "-3", "--cpus", "1", "--rps-off"];
    for kill in [false, true] {
        network.write(RPS, "2");
        sched::set_nice(thread, Nice(5)).unwrap();
        sched::set_affinity(thread, &cpus).unwrap();
        let daemon = Daemon::start(&network, &options);
        assert_eq!((mask().as_str(), sched::nice(thread).unwrap()), ("", Nice(-3)));
        assert_eq!(sched::affinity(thread).unwrap(), [CpuId(1)]);
        network.write(RPS, "1");
        sched::set_nice(thread, Nice(7)).unwrap();
        sched::set_affinity(thread, &[CpuId(0)]).unwrap();
        if let Some(said) = end(&network, daemon, kill) {
            let name = format!("napi/{NEAR}-");
            for (object, value) in
                [("nice of ", "7"), ("CPUs of ", "0"), ("receive packet steering of rx-0", "1")]
            {
                let left = format!(": left as set by somebody else ({value})");
                let is_left = |part: &str| part.starts_with(object) && part.ends_with(&left);
                assert!(said.lines().any(|line| line.split("; ").any(is_left)), "{said}");
            }
            assert!(said.contains(&name) && said.contains("restored: gate detached;"), "{said}");
        }
        assert_eq!((mask().as_str(), sched::nice(thread).unwrap()), ("1", Nice(7)));
        assert_eq!(sched::affinity(thread).unwrap(), [CpuId(0)]);
        assert_eq!(network.threaded(), "1");
    }

    // One that is not touched goes back beside those that are.
    sched::set_affinity(thread, &cpus).unwrap();
    let daemon = Daemon::start(&network, &options);
    sched::set_affinity(thread, &[CpuId(0)]).unwrap();
    let said = daemon.interrupt();
    assert!(said.contains("rx-0 0 -> ") && said.contains("-3 -> 7"), "{said}");
    assert_eq!((mask().as_str(), sched::nice(thread).unwrap()), ("1", Nice(7)));
    assert_eq!(sched::affinity(thread).unwrap(), [CpuId(0)]);
    network.set_threaded("0");
    network.assert_untouched();
}

/// The nice value goes back all the same: the governor's would count with the usual policy.
#[test]
fn a_governed_thread_that_somebody_else_has_made_real_time_stays_so() {
    let network = Network::ipv4_only();
    network.poll_by_napi();
    network.set_threaded("1");
    let thread = network.napi_threads()[0];
    let theirs = SchedPolicy::Fifo(7);
    for kill in [false, true] {
        sched::set_weight(thread, SchedPolicy::Normal, Nice(5), None).unwrap();
        let daemon = Daemon::start(&network, &[]);
        let own_cpu = || network.interface_status()["governed"][0]["own_cpu"].as_f64();
        wait_until("the governor has acted", || own_cpu() > Some(0.0));
        sched::set_weight(thread, theirs, Nice(0), None).unwrap();
        if let Some(said) = end(&network, daemon, kill) {
            assert!(said.contains(": left as set by somebody else (SCHED_FIFO 7)"), "{said}");
        }
        assert_eq!(
            (sched::policy(thread).unwrap(), sched::nice(thread).unwrap()),
            (theirs, Nice(5))
        );
    }
    network.set_threaded("0");
    network.assert_untouched();
}

#[test]
fn with_the_policy_off_weights_are_left_alone() {
    let (network, daemon) = protected(&["--policy", "off"]);
    assert_eq!(network.threaded(), "1");
    assert_eq!(sched::nice(network.napi_threads()[0]).unwrap(), Nice(0));
    assert_eq!(network.interface_status()["policy"], "off");
    network.assert_left_untouched_by(daemon);
}

#[test]
fn the_gate_works_alone_where_threads_are_refused() {
    let network = Network::new();
    // In the stack, a veth has no NAPI instance that could be threaded.
    let daemon = Daemon::start(&network, &["--attach", "generic"]);
    let status = network.interface_status();
    assert_eq!(status["attach"], "generic");
    assert!(status["not_threaded"].is_string(), "{status}");
    assert!(network.has_xdp());
    assert!(daemon.interrupt().contains("NAPI stays in softirq"));
    network.assert_untouched();
}

#[test]
fn threads_that_only_come_to_be_possible_are_governed_as_from_the_start() {
    let (network, daemon) = protected(&["--attach", "tc"]);
    let why = network.interface_status()["not_threaded"].to_string();
    assert!(why.contains("`ethtool -K near gro on`") && why.contains("`--attach native`"), "{why}");
    network.poll_by_napi();
    wait_until("threads are governed", || !governed(&network).is_empty());
    let status = network.interface_status();
    assert!(status["not_threaded"].is_null() && status["softirq_limit"].is_null(), "{status}");
    network.assert_left_untouched_by(daemon);
}

#[test]
fn threads_made_anew_are_set_up_anew() {
    let (network, daemon) = protected(&[]);
    let before = network.napi_threads();
    network.links(|links, ifindex| {
        links.set_down(ifindex).unwrap();
        links.set_up(ifindex).unwrap();
    });
    wait_until("there is a new thread, and it is governed", || {
        let threads = network.napi_threads();
        !threads.is_empty() && threads != before && governed(&network) == threads
    });
    network.assert_left_untouched_by(daemon);
}

#[test]
fn an_interface_that_is_down_is_protected_once_it_is_up() {
    let network = Network::new();
    network.links(|links, ifindex| links.set_down(ifindex).unwrap());
    let daemon = Daemon::start(&network, &[]);
    network.links(|links, ifindex| links.set_up(ifindex).unwrap());
    wait_until("there is a thread, and it is governed", || {
        let threads = network.napi_threads();
        !threads.is_empty() && governed(&network) == threads
    });
    let messages = daemon.interrupt();
    assert!(messages.contains("near is down"), "{messages}");
    network.assert_untouched();
}

#[test]
fn a_daemon_that_cannot_wait_ends_and_what_it_has_turned_goes_back() {
    let (network, daemon) = protected(&[]);
    let limit = Rlimit { current: Some(1), maximum: Some(1) };
    prlimit(Some(daemon.pid()), Resource::Nofile, limit).unwrap();
    let (status, messages) = daemon.end();
    assert_eq!(status.code(), Some(1));
    assert!(messages.contains("cannot wait for events"), "{messages}");
    wait_until("the guardian has put everything back", || network.is_untouched());
}

#[test]
fn an_interface_that_vanishes_ends_protection() {
    let (network, daemon) = protected(&[]);
    network.links(|links, ifindex| links.delete(ifindex).unwrap());
    let (status, messages) = daemon.end();
    assert_eq!(status.code(), Some(1));
    assert!(
        messages.contains("near is no longer protected: it has been removed or moved"),
        "{messages}"
    );
    assert!(!messages.contains("not known in full"), "{messages}");
    assert_eq!(network.files(), [] as [&str; 0]);
}

#[test]
fn an_interface_that_is_moved_takes_threaded_along_and_that_is_said() {
    let (network, daemon) = protected(&[]);
    let elsewhere = network.far.path();
    sh(&network, &format!("ip link set near netns {}", elsewhere.display()));
    let (_, messages) = daemon.end();
    assert!(messages.contains("; threaded was 0, and stays as it is if"), "{messages}");
    let remedy = "moved: `echo 0 > /sys/class/net/NAME/threaded` there";
    assert!(messages.contains(remedy), "{messages}");
    let [polls, interval] = ["napi_defer_hard_irqs", "gro_flush_timeout"]
        .map(|attribute| format!("`echo 0 > /sys/class/net/NAME/{attribute}`"));
    assert!(messages.contains(&format!("moved: {polls}, {interval} there")), "{messages}");
    let threaded = || NetSysfs::open().unwrap().read(NEAR, "threaded").unwrap();
    assert_eq!(network.far.run(threaded).unwrap(), "1");
    assert_eq!(network.files(), [] as [&str; 0]);
}

#[test]
fn an_interface_that_was_moved_and_is_back_gets_back_what_it_took_along() {
    let network = Network::new();
    network.add_pair();
    let daemon = Daemon::start(&network, &[NEAR2]);
    let elsewhere = NetNs::create().unwrap();
    wait_until("it is polled by threads", || network.threaded_on(NEAR2) == "1");
    sh(&network, &format!("ip link set near2 netns {}", elsewhere.path().display()));
    wait_until("its loss is told", || network.check().contains("near2 is no longer protected"));
    // As the governor defers.
    let deferral = [("napi_defer_hard_irqs", "1"), ("gro_flush_timeout", "24999")];
    let defer = || {
        let sysfs = NetSysfs::open().unwrap();
        for (attribute, value) in deferral {
            sysfs.write(NEAR2, attribute, value).unwrap();
        }
    };
    elsewhere.run(defer).unwrap();
    run_in(&elsewhere, &format!("ip link set near2 netns {}", network.near.path().display()));
    sh(&network, "ip link set near2 up");
    network.wait_until_both_are_protected();
    let turned = network.status_of(NEAR2)["knobs"].to_string();
    assert!(turned.contains(r#"{"knob":"threaded","new":"1","old":"0"}"#), "{turned}");
    assert!(turned.contains("deferral"), "{turned}");
    daemon.interrupt();
    assert_eq!(network.threaded_on(NEAR2), "0");
    let read = || {
        let sysfs = NetSysfs::open().unwrap();
        deferral.map(|(attribute, _)| sysfs.read(NEAR2, attribute).unwrap())
    };
    assert_eq!(network.near.run(read).unwrap(), ["0", "0"]);
}

#[test]
fn an_interface_that_is_lost_beside_another_is_said_to_be_and_protected_when_it_is_back() {
    let network = Network::new();
    network.add_pair();
    let daemon = Daemon::start(&network, &[NEAR2]);
    network.links(|links, _| links.delete(links.index(NEAR2).unwrap()).unwrap());
    let mut said = String::new();
    wait_until("its loss is published", || {
        let output = network.weir(&["status", "--check"]);
        said = String::from_utf8(output.stdout).unwrap();
        output.status.code() == Some(1)
    });
    assert!(said.starts_with("degraded: near2 is no longer protected: it has been"), "{said}");
    let metrics = network.says(&["status", "--openmetrics"]);
    let lines =
        ["weir_protected{interface=\"near\"} 1.0", "weir_protected{interface=\"near2\"} 0.0"];
    assert_has_lines(&metrics, lines);
    let text = network.says(&["status"]);
    assert!(text.contains("\nnear2  no longer protected: it has been removed"), "{text}");
    for of_the_living in ["guardian ", "gate at ", "the gate is "] {
        assert_eq!(text.matches(of_the_living).count(), 1, "{text}");
    }

    sh(&network, "ip link add near2 type veth peer name other");
    wait_until("it is seen to be down", || {
        network.check().contains("near2 is no longer protected: it is down;")
    });
    sh(&network, "ip link del near2");
    wait_until("it is seen to have gone", || network.check().contains(": it has been removed"));
    network.add_pair();
    network.wait_until_both_are_protected();
    assert!(network.has_xdp_on(NEAR2) && network.threaded_on(NEAR2) == "1");
    // The guardian has been told.
    daemon.kill();
    wait_until("everything is put back", || {
        network.is_untouched() && network.threaded_on(NEAR2) == "0"
    });
}

/// As a tunnel or a flaky card does. That is no failure, after which weir waits for longer.
#[test]
fn an_interface_that_goes_while_it_is_protected_again_is_protected_when_it_stays() {
    let network = Network::new();
    network.add_pair();
    let daemon = Daemon::start(&network, &[NEAR2]);
    let delete = || network.links(|links, _| links.delete(links.index(NEAR2).unwrap()).unwrap());
    delete();
    daemon.said("near2 is no longer protected");
    network.add_pair();
    let ifindex = network.links(|links, _| links.index(NEAR2).unwrap().0);
    let lock = format!("{}-{ifindex}.lock", network.near.inode());
    wait_until("weir begins to protect it", || weir_files(&network.near).contains(&lock));
    delete();
    network.add_pair();
    let both = || network.check() == "protected: near, near2\n";
    assert!(wait(2 * PATIENCE, both), "{}", network.check());
    daemon.interrupt();
}

#[test]
fn an_interface_that_stays_lost_is_named_at_the_end() {
    let network = Network::new();
    network.add_pair();
    let daemon = Daemon::start(&network, &[NEAR2]);
    network.links(|links, _| links.delete(links.index(NEAR2).unwrap()).unwrap());
    daemon.said("near2 is no longer protected");
    daemon.signal(Signal::INT);
    let (status, messages) = daemon.end();
    assert_eq!(status.code(), Some(1));
    assert!(messages.contains("no longer protected: near2; `weir run near2` prot"), "{messages}");
    assert!(messages.contains("protects it again when it is back"), "{messages}");
    network.assert_untouched();
}

#[test]
fn all_that_are_lost_are_named_as_several() {
    let network = Network::new();
    network.add_pair();
    let daemon = Daemon::start(&network, &[NEAR2]);
    for name in [NEAR2, NEAR] {
        network.links(|links, _| links.delete(links.index(name).unwrap()).unwrap());
    }
    let (_, messages) = daemon.end();
    assert!(messages.contains("protects them again when they are back"), "{messages}");
}

#[test]
fn the_interface_delivers_after_weir_as_before() {
    let network = Network::new();
    let receiver = network.near_socket("198.18.0.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    let delivers = || {
        sender.send_to(b"packet", "198.18.0.1:5000").unwrap();
        assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 6);
    };
    delivers();
    let daemon = Daemon::start(&network, &[]);
    delivers();
    daemon.interrupt();
    delivers();
    network.assert_untouched();
}

/// It says that it is writable, and has room for a part of a line.
#[test]
fn a_terminal_that_nobody_reads_is_not_waited_for() {
    let network = Network::new();
    let (reader, end) = process::terminal();
    ioctl_fionbio(&end, true).unwrap();
    while rustix::io::write(&end, &[b'x'; 100]).is_ok() {}
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_writable = || poll(&mut [PollFd::new(&end, PollFlags::OUT)], Some(&now)).unwrap() == 1;
    while !is_writable() {
        rustix::io::read(&reader, &mut [0; 10]).unwrap();
    }
    ioctl_fionbio(&end, false).unwrap();
    let stdio = || Stdio::from(end.try_clone().unwrap());
    let mut command = Command::new(WEIR);
    command.args(["run", NEAR, "--json"]).args(NO_CONFIG).stdout(stdio()).stderr(stdio());
    let mut daemon = network.near.run(|| Owned::start(&mut command)).unwrap();
    network.wait_until_published();
    (0..4).for_each(|_| network.wait_until_published_again());
    daemon.signal(Signal::TERM);
    assert!(daemon.end().success());
    network.assert_untouched();
}

/// Whose an address is, and what diverts its packets, may have changed since.
#[test]
fn the_gate_of_a_daemon_that_is_stopped_passes_everything_after_a_while() {
    let (network, daemon) = protected(&[]);
    let socket = network.near_socket("198.18.0.1:5001");
    let read = || {
        network.far_socket("198.18.0.2:0").send_to(b"packet", "198.18.0.1:5001").unwrap();
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 6);
    };
    read();
    assert_eq!(network.count("stale"), 0);
    daemon.signal(Signal::STOP);
    std::thread::sleep(std::time::Duration::from_millis(3500));
    read();
    daemon.signal(Signal::CONT);
    wait_until("it is counted and published", || network.published_count("stale") > 0);
    // Told anew.
    let stale = network.count("stale");
    let room = network.count("udp-room");
    wait_until("it is looked at again", || {
        read();
        network.count("udp-room") > room
    });
    assert_eq!(network.count("stale"), stale);
    network.assert_left_untouched_by(daemon);
}

/// A CPU that goes offline takes its threads' choice along (`select_fallback_rq()`): here weir is told so, and the test
/// does what the kernel would.
#[test]
fn a_thread_whose_cpu_was_offline_goes_back_to_it() {
    let network = Network::ipv4_only();
    let online = ConfigFile::new("online", "0-1\n");
    let daemon = Daemon::start_told(&online, &network, &["--cpus", "1"]);
    let thread = network.napi_threads()[0];
    let cpus = || sched::affinity(thread).unwrap();
    let set = |cpus: &[CpuId]| sched::set_affinity(thread, cpus).unwrap();
    let look = || {
        let change = "ip address add 198.18.0.9/32 dev near; ip address del 198.18.0.9/32 dev near";
        sh(&network, change);
        for _ in 0..2 {
            network.wait_until_published_again();
        }
    };
    let (one, other, all) = ([CpuId(1)], [CpuId(0)], [CpuId(0), CpuId(1)]);
    assert_eq!(cpus(), one);
    // Whoever sets them has it so.
    set(&all);
    look();
    assert_eq!(cpus(), all);
    for (meanwhile, then) in [(&all[..], &one[..]), (&other, &other)] {
        set(&one);
        online.write("0\n");
        set(meanwhile);
        look();
        assert_eq!(cpus(), meanwhile);
        online.write("0-1\n");
        look();
        assert_eq!(cpus(), then);
    }
    daemon.interrupt();
    network.assert_untouched();
}

#[test]
fn a_run_directory_that_is_full_leaves_nothing_turned_and_nothing_recorded() {
    let network = Network::new();
    let (daemon, dir) = Daemon::start_apart(&network, 128 * 1024, &["--nice", "3"]);
    // It stays to be seen when the daemon has ended.
    let dir = std::fs::File::open(dir).unwrap();
    let dir = std::path::PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(".");
    let filler = dir.join("filler");
    // What the daemon writes meanwhile and takes away again makes room once more: full is what stays full.
    let fill = || {
        let mut file = std::fs::File::create(&filler).unwrap();
        let mut full = 0;
        while full < 5 {
            full = if file.write_all(&[0; 4096]).is_ok() { 0 } else { full + 1 };
            if full > 0 {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
    };
    let renew = || {
        let before = network.napi_threads();
        network.links(|links, ifindex| {
            links.set_down(ifindex).unwrap();
            links.set_up(ifindex).unwrap();
        });
        wait_until("there is a new thread", || {
            let threads = network.napi_threads();
            !threads.is_empty() && threads != before
        });
    };
    let state = dir.join(format!("{}-{}.state.json", network.near.inode(), network.ifindex.0));
    // The threads whose weight is on record.
    let recorded = || {
        let state: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
        let knobs = state["knobs"].as_array().unwrap();
        let nice = knobs.iter().filter(|knob| knob["knob"] == "nice");
        nice.map(|knob| pid(&knob["thread"]["pid"])).collect::<Vec<_>>()
    };
    assert_eq!(recorded(), network.napi_threads());

    // What cannot be recorded is not turned, however often it is tried.
    fill();
    renew();
    daemon.said("No space left");
    for _ in 0..3 {
        daemon.line();
    }
    renew();
    assert_eq!(sched::nice(network.napi_threads()[0]).unwrap(), Nice(0));
    // With room, all is as it should be.
    std::fs::remove_file(&filler).unwrap();
    wait_until("the thread is on record, and no other", || recorded() == network.napi_threads());
    // What is to be set is recorded first.
    let weight = || sched::nice(network.napi_threads()[0]).unwrap();
    wait_until("its weight is set", || weight() == Nice(3));

    // Without room again, everything goes back, and nobody is told to do what has been done.
    fill();
    let messages = daemon.interrupt();
    assert!(messages.contains("threaded 1 -> 0") && !messages.contains("weir reset"), "{messages}");
    let left = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["filler"]);
    network.assert_untouched();
}
