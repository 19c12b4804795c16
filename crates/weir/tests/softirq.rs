//! Softirq mode, in the real daemon: who chooses it, what limits it, and that it goes back.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::*;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::{Value, json};
use weir_bpf::sys::sysfs::NetSysfs;

const SOFTIRQ: [&str; 2] = ["--napi", "softirq"];
const CLOSED_PORT: u16 = 7999;

fn limit(network: &Network) -> Value {
    network.interface_status()["softirq_limit"].clone()
}

fn is(value: &Value, wanted: f64) -> bool {
    value.as_f64().is_some_and(|value| (value - wanted).abs() < 1e-6)
}

#[test]
fn it_is_chosen_and_limited() {
    let (network, daemon) = protected(&SOFTIRQ);
    let status = network.interface_status();
    assert!(status["not_threaded"].as_str().unwrap().contains("napi"), "{status}");
    assert!(is(&status["softirq_limit"]["input_share"], 0.5), "{status}");
    assert_eq!(status["softirq_limit"]["discarded"], 0, "{status}");
    assert_eq!((network.threaded().as_str(), network.has_xdp()), ("0", true));
    let text = network.says(&["status"]);
    assert!(text.contains("softirq limit: 50.0% of a CPU that processes want"), "{text}");
    let said = daemon.interrupt();
    assert!(said.contains("of a CPU that processes want, it takes 50% at most"), "{said}");
    network.assert_untouched();
}

/// A tunnel's NAPI instances have no numbers, so the kernel names no thread of theirs. Nor is `threaded` touched: to switch
/// it under traffic can leave a CPU's instance unpolled for good.
#[test]
fn it_is_where_the_kernel_names_no_thread() {
    let network = Network::new();
    let ip = |line: &str| sh(&network, &format!("ip {line}"));
    let threaded = || network.threaded_on("tunnel");
    let tunnel = || network.status_of("tunnel");
    ip("link add tunnel type vxlan id 7 dev near remote 198.18.0.2 dstport 4789");
    // Up from the start or later, and threaded by weir or before.
    for (up_before, old) in [(true, "0"), (false, "0"), (true, "1"), (false, "1")] {
        ip(&format!("link set tunnel {}", if up_before { "up" } else { "down" }));
        let set = || NetSysfs::open().unwrap().write("tunnel", "threaded", old).unwrap();
        network.near.run(set).unwrap();
        let daemon = Daemon::start(&network, &["tunnel", "--attach", "tc"]);
        ip("link set tunnel up");
        wait_until("it is seen that there are none", || {
            tunnel()["not_threaded"].as_str().is_some_and(|why| why.contains("have no numbers"))
        });
        let status = tunnel();
        assert!(is(&status["softirq_limit"]["input_share"], 0.5), "{status}");
        assert_eq!((threaded().as_str(), &status["knobs"]), (old, &json!([])));
        assert!(!daemon.interrupt().contains("threaded"));
        assert_eq!(threaded(), old);
    }
    network.assert_untouched();
}

/// Those that nothing would govern could take all of a CPU.
#[test]
fn it_is_where_there_are_more_threads_than_can_be_governed() {
    let network = Network::ipv4_only();
    let sh = |line: &str| sh(&network, line);
    let queues = "numrxqueues 65 numtxqueues 65";
    sh(&format!(
        "ip link add many {queues} type veth peer name other {queues}
         ethtool -K many gro on; ethtool -K other tso off; ip link set other up; ip link set many up"
    ));
    let many = || network.status_of("many");
    // From the start, or from a change on.
    for at_first in [65, 2] {
        sh(&format!("ethtool -L many rx {at_first}"));
        let daemon = Daemon::start(&network, &["many", "--attach", "tc"]);
        assert_eq!(many()["not_threaded"].is_null(), at_first == 2);
        sh("ethtool -L many rx 65");
        wait_until("it is seen that they are too many", || {
            many()["not_threaded"].as_str().is_some_and(|why| why.contains("ethtool -L"))
        });
        assert!(is(&many()["softirq_limit"]["input_share"], 0.5), "{}", many());
        assert_eq!((network.threaded_on("many").as_str(), &many()["governed"]), ("0", &json!([])));
        daemon.interrupt();
        assert_eq!(network.threaded_on("many"), "0");
    }
    network.assert_untouched();
}

/// Whoever sets `threaded` while weir runs has it so, whether or not weir had turned it.
#[test]
fn what_somebody_sets_stays() {
    let network = Network::ipv4_only();
    network.poll_by_napi();
    let set = |value: &str| {
        network.set_threaded(value);
        let change = "ip address add 198.18.0.9/32 dev near; ip address del 198.18.0.9/32 dev near";
        sh(&network, change);
    };
    for (options, old, left) in
        [(&[][..], "0", "0"), (&[], "1", "1"), (&SOFTIRQ, "0", "1"), (&SOFTIRQ, "1", "1")]
    {
        set(old);
        let daemon = Daemon::start(&network, options);
        if options.is_empty() {
            set("0");
            wait_until("softirqs are limited", || limit(&network).is_object());
            assert!(network.check().contains("somebody has set"), "{}", network.check());
        }
        set("1");
        wait_until("its threads poll", || {
            let status = network.interface_status();
            status["not_threaded"].is_null() && status["napi_threads"][0].is_number()
        });
        assert_eq!((network.threaded().as_str(), limit(&network)), ("1", Value::Null));
        assert!(network.check().starts_with("protected"), "{}", network.check());
        assert!(daemon.interrupt().contains("its threads poll now"));
        assert_eq!(network.threaded(), left);
    }
    set("0");
    network.assert_untouched();
}

/// What the operator had threaded is polled in softirq while weir runs, if weir is told so.
#[test]
fn threads_go_and_come_back() {
    let network = Network::ipv4_only();
    // With GRO a veth is polled by NAPI without weir, so it has a thread.
    network.poll_by_napi();
    network.set_threaded("1");
    for end in [Daemon::kill as fn(Daemon), |daemon| drop(daemon.interrupt())] {
        let daemon = Daemon::start(&network, &SOFTIRQ);
        assert_eq!(network.threaded(), "0");
        assert!(limit(&network).is_object());
        end(daemon);
        wait_until("there are threads again", || {
            network.threaded() == "1" && network.files().is_empty()
        });
    }
    network.set_threaded("0");
    network.assert_untouched();
}

/// As in a container of which nobody has thought.
#[test]
fn in_a_pid_namespace_it_is_what_is_left() {
    let network = Network::ipv4_only();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", WEIR, "run", NEAR]);
    command
        .args(["--attach", "native"])
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = network.near.run(|| command.spawn().unwrap()).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said = lines.find_map(|line| Some(line.unwrap()).filter(|line| line.contains("namespace")));
    assert!(said.as_ref().is_some_and(|said| said.contains("--pid=host")), "{said:?}");
    assert_eq!(network.threaded(), "0");
    // unshare itself does not listen.
    rustix::process::kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    network.assert_untouched();
}

#[test]
fn what_is_polled_by_threads_or_only_watched_has_no_limit() {
    let network = Network::new();
    let has_none = |options: &[&str]| {
        let daemon = Daemon::start(&network, options);
        let limit = limit(&network);
        daemon.interrupt();
        limit.is_null()
    };
    assert!(has_none(&[]));
    assert!(has_none(&["--napi", "softirq", "--policy", "off"]));
    // In the stack a veth has nothing that could be threaded.
    assert!(!has_none(&["--attach", "generic"]));
    network.assert_untouched();
}

#[test]
fn another_share_holds_at_once() {
    let network = Network::new();
    let file = ConfigFile::new("softirq", "napi = \"softirq\"\nuser_share = \"60%\"\n");
    let daemon = Daemon::start(&network, &["--config", file.path()]);
    assert!(is(&limit(&network)["input_share"], 0.4));
    daemon.reload(&file, "napi = \"threads\"\nuser_share = \"90%\"\nperiod = \"5ms\"\n");
    wait_until("input has 10 %", || is(&limit(&network)["input_share"], 0.1));
    assert!(daemon.interrupt().contains("napi stays softirq"));
    network.assert_untouched();
}

#[test]
fn a_flood_past_the_limit_is_discarded_and_told_of() {
    a_flood_past_the_limit_is_discarded(CLOSED_PORT, |_| ());
}

/// While softirqs take nothing, hardly anybody looks at them.
#[test]
fn so_is_one_after_a_calm_in_which_the_gate_was_awake() {
    let network = Network::ipv4_only();
    let cpus = Cpus::take();
    let daemon = Daemon::start(&network, &["--napi", "softirq", "--user-share", "99%"]);
    interrupt_each(&network, "200000");
    let _process = Owned::compute_bound(cpus.cpu);
    std::thread::sleep(Duration::from_secs(3));
    while_flooded(&network, &cpus, CLOSED_PORT, || {
        let discarded = || limit(&network)["discarded"].as_u64();
        wait_until("it is limited", || discarded().is_some_and(|packets| packets > 100));
    });
    daemon.interrupt();
}

/// What is put on a ring costs input no less.
#[test]
fn so_is_a_flood_of_a_lazy_socket() {
    a_flood_past_the_limit_is_discarded(9995, |network| {
        let lazy = lazy::lazy_socket(network, lazy::LAZY);
        lazy::assert_lazy(&lazy);
        lazy
    });
}

/// NAPI is started by a timer on the CPU where it last ran, as by an interrupt that is bound there; 0: where packets are
/// sent.
fn interrupt_each(network: &Network, nanos: &str) {
    network.set_deferral(if nanos == "0" { "0" } else { "2147483647" }, nanos);
}

/// Does something while a port is flooded, on the CPU under test.
fn while_flooded(network: &Network, cpus: &Cpus, port: u16, act: impl Fn()) {
    let flows = [network.flow(port, Some(100_000.0))];
    // The first from there, so that the timer is there.
    for from in [cpus.cpu, cpus.elsewhere] {
        network.while_sent(&flows, Some(from), |generator| {
            let before = generator.counts(0).sent;
            wait_until("some are sent", || generator.counts(0).sent > before);
            if from == cpus.elsewhere {
                act();
            }
        });
    }
}

fn a_flood_past_the_limit_is_discarded<T>(port: u16, receiver: impl FnOnce(&Network) -> T) {
    let network = Network::ipv4_only();
    let cpus = Cpus::take();
    let daemon =
        Daemon::start_sleepy(&network, &["--napi", "softirq", "--user-share", "99%", "--lazy"]);
    let _receiver = receiver(&network);
    interrupt_each(&network, "200000");
    let sleep = || network.interface_status()["sleep"].clone();
    wait_until("its gate sleeps, and nobody watches softirqs", || {
        sleep()["asleep"] == true && limit(&network)["cpus"] == json!([])
    });
    let _process = Owned::compute_bound(cpus.cpu);
    while_flooded(&network, &cpus, port, || {
        let told = || {
            let limit = limit(&network);
            let taken = limit["cpus"].as_array().unwrap().iter().any(|each| {
                each["cpu"] == cpus.cpu.0 && each["taken"].as_f64().is_some_and(|it| it > 0.0)
            });
            taken && limit["discarded"].as_u64().is_some_and(|packets| packets > 100)
        };
        wait_until("the status tells", told);
    });
    // Of that little a share any softirq beside a process is a reason to look, each second.
    let slept = sleep()["slept"].clone();
    wait_until("it sleeps again", || sleep()["asleep"] == true || sleep()["slept"] != slept);
    let text = network.says(&["status"]);
    assert!(text.contains("cpu-share"), "{text}");
    let said = daemon.interrupt();
    assert!(said.contains(" cpu-share"), "{said}");
}

/// Several CPUs: on one, threads serve more at rest, too.
#[test]
fn threads_poll_at_rest_where_it_is_said_how_they_run() {
    let network = Network::ipv4_only();
    let usual = ["--config", "/dev/null"];
    for (options, threaded) in [(&[][..], "0"), (&["--cpus", "0"], "1"), (&["--nice", "0"], "1")] {
        let daemon = Daemon::start_sleepy(&network, &[&usual[..], options].concat());
        assert_eq!(network.threaded(), threaded, "{options:?}");
        daemon.interrupt();
    }
}

/// What is to be done about it is not to wait for the flood.
#[test]
fn what_refuses_threads_is_said_before_they_are_needed() {
    let network = Network::new();
    let not_threaded = || network.interface_status()["not_threaded"].to_string();
    sh(&network, "ip link set near down");
    let daemon = Daemon::start_sleepy(&network, &["--napi", "auto", "--attach", "tc"]);
    assert!(not_threaded().contains("until something is wrong"), "{}", not_threaded());
    sh(&network, "ip link set near up");
    wait_until("they are refused", || not_threaded().contains("`ethtool -K near gro on`"));
    sh(&network, "ethtool -K near gro on");
    wait_until("nothing refuses them", || not_threaded().contains("until something is wrong"));
    assert_eq!(network.threaded(), "0");
    daemon.interrupt();
}

#[test]
fn threads_poll_as_long_as_they_are_needed() {
    let network = Network::ipv4_only();
    let cpus = Cpus::take();
    let daemon = Daemon::start_sleepy(&network, &["--napi", "auto", "--user-share", "99%"]);
    let polls = |threads: bool| {
        let status = network.interface_status();
        let one_is_governed = status["governed"][0].is_object();
        // That a thread is new is not taken for its getting no packets.
        assert!(
            !status["not_threaded"].as_str().is_some_and(|why| why.contains("TSO")),
            "{status}"
        );
        status["not_threaded"].is_null() == threads
            && status["softirq_limit"].is_null() == threads
            && one_is_governed == threads
            && network.threaded() == if threads { "1" } else { "0" }
    };
    assert!(polls(false), "{}", network.interface_status());
    let needed = |then: &dyn Fn()| {
        let process = Owned::compute_bound(cpus.cpu);
        interrupt_each(&network, "200000");
        while_flooded(&network, &cpus, CLOSED_PORT, || {
            wait_until("threads poll", || polls(true));
            then();
        });
        interrupt_each(&network, "0");
        drop(process);
    };
    needed(&|| {});
    // Once its gate sleeps.
    assert!(wait(4 * PATIENCE, || polls(false)), "{}", network.interface_status());
    needed(&|| {
        assert_eq!(network.threaded(), "1");
        daemon.signal(Signal::KILL);
    });
    wait_until("softirqs poll again", || network.threaded() == "0" && network.files().is_empty());
    network.assert_untouched();
}

/// Softirqs are known by their CPU, not by the interface whose packets they are for.
#[test]
fn a_flood_of_another_interface_makes_no_thread_poll() {
    let network = Network::ipv4_only();
    network.add_pair();
    let cpus = Cpus::take();
    let options = [NEAR2, "--napi", "auto", "--user-share", "99%"];
    let daemon = Daemon::start_sleepy(&network, &options);
    let _process = Owned::compute_bound(cpus.cpu);
    interrupt_each(&network, "200000");
    while_flooded(&network, &cpus, CLOSED_PORT, || {
        wait_until("threads poll the flooded one", || network.threaded() == "1");
        // A tick, and more.
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(network.threaded_on(NEAR2), "0");
    });
    interrupt_each(&network, "0");
    daemon.interrupt();
    assert_eq!(network.threaded_on(NEAR2), "0");
}

/// Here no record can be written as they are needed.
#[test]
fn threads_that_could_not_poll_are_tried_again() {
    let network = Network::ipv4_only();
    let cpus = Cpus::take();
    let options = ["--napi", "auto", "--user-share", "99%"];
    let (daemon, dir) = Daemon::start_apart(&network, 128 * 1024, &options);
    let filler = dir.join("filler");
    let fill = || {
        let mut file = std::fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    };
    fill();
    // As its status came and went, there was room once more.
    daemon.said("status.json");
    std::fs::remove_file(&filler).unwrap();
    fill();
    let _process = Owned::compute_bound(cpus.cpu);
    interrupt_each(&network, "200000");
    while_flooded(&network, &cpus, CLOSED_PORT, || {
        daemon.said("state.json");
        assert_eq!(network.threaded(), "0");
        std::fs::remove_file(&filler).unwrap();
        assert!(wait(TRIES_MAX, || network.threaded() == "1"), "never tried again");
    });
    interrupt_each(&network, "0");
    network.assert_left_untouched_by(daemon);
}

/// Here the daemon has no descriptors left.
#[test]
fn a_limit_that_could_not_be_set_is_tried_again() {
    let (network, daemon) = protected_ipv4(&[]);
    let usual = getrlimit(Resource::Nofile);
    let limit_files = |limit| prlimit(Some(daemon.pid()), Resource::Nofile, limit).unwrap();
    let fds = format!("/proc/{}/fd", daemon.pid().as_raw_nonzero());
    let is_open = |fd: &u64| std::fs::read_link(format!("{fds}/{fd}")).is_ok();
    // Enough to look.
    let free = (0..).filter(|fd| !is_open(fd)).nth(1).unwrap();
    limit_files(Rlimit { current: Some(free + 1), ..usual });
    network.set_threaded("0");
    daemon.said("no limit");
    assert!(limit(&network).is_null());
    limit_files(usual);
    assert!(wait(TRIES_MAX, || limit(&network).is_object()), "never tried again");
    assert!(daemon.interrupt().contains("of a CPU that processes want, it takes 50% at most"));
    network.assert_untouched();
}

/// GRO gives a veth NAPI instances, which get nothing while its peer has TSO.
#[test]
fn it_is_where_a_veths_threads_get_no_packets() {
    let network = Network::new();
    sh(&network, "ethtool -K near gro on");
    run_in(&network.far, "ethtool -K far tso on");
    let daemon = Daemon::start(&network, &["--attach", "tc"]);
    assert_eq!(network.interface_status()["not_threaded"], Value::Null);
    let far = network.far_socket("198.18.0.2:0");
    let after_packets = |what: &str, says: &str| {
        wait_until(what, || {
            (0..100).for_each(|_| drop(far.send_to(b"x", ("198.18.0.1", CLOSED_PORT))));
            network.interface_status()["not_threaded"].as_str().unwrap_or("threads").contains(says)
        });
    };
    after_packets("it is seen that they get none", "TSO");
    assert!(is(&limit(&network)["input_share"], 0.5));
    // Whatever else changes.
    sh(&network, "ip addr add 198.18.0.9/32 dev near");
    after_packets("they get none then", "TSO");
    // Nor do new threads, though the kernel has spent time to make them.
    for change in ["ethtool -K near gro off; ethtool -K near gro on", "ethtool -L near rx 2"] {
        let threads = || network.interface_status()["napi_threads"].clone();
        let before = threads();
        sh(&network, change);
        wait_until("there are others", || threads()[0].is_number() && threads() != before);
        for _ in 0..3 {
            network.wait_until_published_again();
            after_packets("they get none either", "TSO");
        }
    }
    run_in(&network.far, "ethtool -K far tso off");
    after_packets("it is seen that they poll", "threads");
    assert_eq!(limit(&network), Value::Null);
    let said = daemon.interrupt();
    assert_eq!(said.matches("peer has TSO").count(), 1);
    assert_eq!(said.matches("its threads poll now").count(), 1, "{said}");
}
