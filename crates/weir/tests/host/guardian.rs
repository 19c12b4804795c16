//! Whatever dies, the host gets its knobs back.

use std::time::Duration;

use crate::common::*;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit, test_kill_process};
use weir_bpf::sys::netns::cookie;
use weir_bpf::sys::sched::{self, SchedPolicy};
use weir_bpf::sys::stat::{Stat, threads};
use weir_bpf::units::Nice;

/// What `docs` promise for `kill -9`.
const PROMISED: Duration = Duration::from_secs(1);

fn guardian(network: &Network) -> Pid {
    pid(&network.interface_status()["guardian_pid"])
}

/// Kills daemon and guardian so that neither sees the other's end. Threads poll on.
pub fn kill_both(network: &Network, daemon: Daemon) {
    kill_with_guardian(network, daemon);
    assert_eq!(network.threaded(), "1");
}

/// The same, whoever polls.
pub fn kill_with_guardian(network: &Network, daemon: Daemon) {
    let guardian = guardian(network);
    daemon.signal(Signal::STOP);
    kill_process(guardian, Signal::KILL).unwrap();
    daemon.kill();
    // Its new parent reaps it.
    wait_until("the guardian has ended", || test_kill_process(guardian).is_err());
}

#[test]
fn a_killed_daemon_is_cleaned_up_after_within_a_second() {
    let (network, daemon) = protected(&[]);
    assert_eq!(network.threaded(), "1");
    let guardian = guardian(&network);
    daemon.signal(Signal::KILL);
    assert!(wait(PROMISED, || network.is_untouched()), "not restored: {:?}", network.files());
    wait_until("the guardian has ended", || test_kill_process(guardian).is_err());
    let (_, messages) = daemon.end();
    assert!(messages.contains("weir: near: put back "), "{messages}");
    assert!(messages.contains("threaded 1 -> 0"), "{messages}");
}

/// The kernel takes away what a killed one had, and so does its guardian: that is waited for.
#[test]
fn a_daemon_starts_at_once_after_another_was_killed() {
    let network = Network::new();
    for _ in 0..3 {
        let daemon = Daemon::start(&network, &[]);
        daemon.signal(Signal::KILL);
        let next = Daemon::start(&network, &[]);
        daemon.kill();
        next.interrupt();
    }
    network.assert_untouched();
}

#[test]
fn the_guardian_ends_with_the_daemon_and_ignores_the_terminal() {
    let (network, daemon) = protected(&[]);
    let guardian = guardian(&network);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::PIPE] {
        kill_process(guardian, signal).unwrap();
    }
    // `weir screen` prints its counters on SIGUSR1; a daemon that gets it by mistake is not to end.
    for signal in [Signal::USR1, Signal::USR2] {
        daemon.signal(signal);
        kill_process(guardian, signal).unwrap();
    }
    network.wait_until_published_again();
    assert_eq!(guardian, self::guardian(&network));
    daemon.interrupt();
    wait_until("the guardian has ended", || test_kill_process(guardian).is_err());
}

#[test]
fn a_killed_guardian_is_replaced_and_its_successor_does_the_same() {
    let (network, daemon) = protected(&[]);
    let first = guardian(&network);
    kill_process(first, Signal::KILL).unwrap();
    let is_replaced = || {
        let now = &network.interface_status()["guardian_pid"];
        !now.is_null() && pid(now) != first
    };
    wait_until("there is another guardian", is_replaced);
    daemon.kill();
    assert!(wait(PROMISED, || network.is_untouched()), "not restored: {:?}", network.files());
}

#[test]
fn a_guardian_that_is_stopped_is_told_of() {
    let (network, daemon) = protected(&[]);
    let guardian = guardian(&network);
    let check = || network.weir(&["status", "--check"]);
    assert_eq!(success(&check()), "protected: near\n");
    kill_process(guardian, Signal::STOP).unwrap();
    wait_until("it is stopped", || check().status.code() == Some(1));
    let said = String::from_utf8(check().stdout).unwrap();
    assert!(said.contains("its guardian is stopped") && said.contains("kill -CONT"), "{said}");
    kill_process(guardian, Signal::CONT).unwrap();
    wait_until("it goes on", || check().status.success());
    network.assert_left_untouched_by(daemon);
}

/// Real-time, the others would spin before whom they wait for; idle, the guardian would wait for all.
#[test]
fn whatever_policy_weir_is_started_with_its_threads_and_its_guardian_have_their_own() {
    let network = Network::new();
    for policy in [["--fifo", "50"], ["--idle", "0"], ["--batch", "0"]] {
        let mut command = std::process::Command::new("chrt");
        command.args(policy).arg(WEIR);
        let daemon = Daemon::start_by(command, &network, &[]);
        let seen = || {
            let of = |pid: Pid| threads(pid.as_raw_nonzero().get()).unwrap();
            let threads = of(daemon.pid()).into_iter().chain(of(guardian(&network)));
            let seen = threads.map(|thread| {
                let comm = Stat::of(thread).unwrap().comm;
                let policy = sched::policy(Pid::from_raw(thread).unwrap()).unwrap();
                (String::from_utf8(comm).unwrap(), policy)
            });
            seen.collect::<Vec<_>>()
        };
        let governs = |(comm, _): &(String, SchedPolicy)| {
            ["weir-listen", "weir-govern"].contains(&comm.as_str())
        };
        for name in ["weir", "weir-defer", "weir-guardian"] {
            wait_until(name, || seen().iter().any(|(comm, _)| comm == name));
        }
        for thread in seen() {
            let own = if governs(&thread) { SchedPolicy::Fifo(1) } else { SchedPolicy::Normal };
            assert_eq!(thread.1, own, "{policy:?}: {thread:?}");
        }
        network.assert_left_untouched_by(daemon);
    }
}

/// A daemon that starts, and its guardian, stopped before that can say that it is ready.
fn stopped_as_it_starts(network: &Network) -> (Daemon, Pid) {
    // Its name until it does the first of its work.
    let begins = |child: Pid| {
        let of = |file| std::fs::read(format!("/proc/{}/{file}", child.as_raw_nonzero()));
        let is_guardian = of("cmdline").is_ok_and(|line| line.starts_with(b"weir\0guardian\0"));
        is_guardian && of("comm").is_ok_and(|comm| comm != b"weir-guardian\n")
    };
    loop {
        let daemon = Daemon::spawn(network, &[]);
        let pid = daemon.pid().as_raw_nonzero();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let guardian = loop {
            let children = std::fs::read_to_string(&children).unwrap();
            let child = children.split_ascii_whitespace().next().and_then(|pid| pid.parse().ok());
            if let Some(guardian) = child.and_then(Pid::from_raw) {
                break guardian;
            }
        };
        while !begins(guardian) && !network.has_xdp() {}
        let _ = kill_process(guardian, Signal::STOP);
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", guardian.as_raw_nonzero()));
        wait_until("it is stopped", || stat().is_ok_and(|stat| stat.contains(") T ")));
        if begins(guardian) {
            return (daemon, guardian);
        }
        // It was too quick.
        kill_process(guardian, Signal::CONT).unwrap();
        daemon.interrupt();
    }
}

/// As on a host whose CPUs are short.
#[test]
fn a_guardian_that_takes_long_to_start_is_waited_for_unless_the_daemon_is_told_to_end() {
    let network = Network::new();
    let (daemon, guardian) = stopped_as_it_starts(&network);
    std::thread::sleep(Duration::from_secs(11));
    kill_process(guardian, Signal::CONT).unwrap();
    assert_eq!(daemon.line()["event"], "ready");
    daemon.interrupt();
    network.assert_untouched();

    let (daemon, guardian) = stopped_as_it_starts(&network);
    daemon.signal(Signal::TERM);
    let (status, messages) = daemon.end();
    assert!(status.success(), "{messages}");
    assert_eq!(test_kill_process(guardian), Err(Errno::SRCH));
    network.assert_untouched();
}

fn record(network: &Network, ifindex: u32) -> String {
    format!("/run/weir/{}-{ifindex}.state.json", network.near.inode())
}

/// The kernel gives a namespace's number to a later one, whose interfaces are often named and numbered alike.
#[test]
fn what_a_namespace_that_is_gone_has_left_is_not_put_into_its_successor() {
    let record = |network: &Network| record(network, network.ifindex.0);
    let gone = Network::new();
    let daemon = Daemon::start(&gone, &["--napi", "threads"]);
    kill_both(&gone, daemon);
    let left = std::fs::read_to_string(record(&gone)).unwrap();
    let successor = Network::new();
    // Its owner wants threads.
    successor.poll_by_napi();
    successor.set_threaded("1");
    for (file, inode, threaded) in [
        (&left, gone.near.inode(), "1"),
        // Of its own past, all is put back.
        (&left.replace(&cookie_of(&gone), &cookie_of(&successor)), gone.near.inode(), "0"),
    ] {
        let file = file.replace(&inode.to_string(), &successor.near.inode().to_string());
        std::fs::write(record(&successor), file).unwrap();
        let said = successor.says(&["reset"]);
        assert_eq!(successor.threaded(), threaded, "{said}");
        assert_eq!(successor.files(), [] as [&str; 0]);
    }
}

fn cookie_of(network: &Network) -> String {
    format!("\"netns_cookie\": {}", network.near.run(|| cookie().unwrap()).unwrap())
}

#[test]
fn reset_restores_when_both_were_killed() {
    let (network, daemon) = protected(&[]);
    kill_both(&network, daemon);

    let status = network.status();
    assert_eq!(status["interfaces"][0]["running"], false);
    assert_eq!(status["leftovers"][0]["ifindex"], network.ifindex.0);
    let text = network.says(&["status"]);
    assert!(text.contains("not running") && text.contains("weir reset"), "{text}");

    let left = "a killed weir has left knobs turned: `sudo weir reset`";
    let doctor = String::from_utf8(network.weir(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains(&format!("near: {left}")), "{doctor}");
    let refusal = failure(&network.weir(&["channels"]), 1);
    assert!(refusal.contains(left), "{refusal}");

    let said = network.says(&["reset", NEAR]);
    assert!(said.contains("near: put back") && said.contains("threaded 1 -> 0"), "{said}");
    network.assert_untouched();

    // Once more is the same as once.
    assert!(network.says(&["reset"]).contains("nothing to put back"));
}

/// As a file system with `errors=remount-ro` becomes.
#[test]
fn reset_knows_the_threads_of_a_daemon_of_another_time_namespace() {
    let network = Network::new();
    network.poll_by_napi();
    let thread = network.poll_by_thread();
    kill_with_guardian(&network, Daemon::start_by(a_day_ahead(), &network, &["--nice", "-3"]));
    assert_eq!(sched::nice(thread).unwrap(), Nice(-3));
    network.says(&["reset", NEAR]);
    assert_eq!(sched::nice(thread).unwrap(), Nice(0));
}

#[test]
fn what_a_killed_daemon_has_turned_goes_back_where_the_run_directory_is_read_only() {
    let network = Network::new();
    for by in ["guardian", "reset"] {
        let (daemon, dir) = Daemon::start_apart(&network, 128 * 1024, &[]);
        let status = || {
            let name = format!("{}-{}.status.json", network.near.inode(), network.ifindex.0);
            let text = std::fs::read_to_string(dir.join(name)).ok()?;
            serde_json::from_str::<serde_json::Value>(&text).ok()
        };
        wait_until("its status is published", || status().is_some());
        let guardian = pid(&status().unwrap()["guardian_pid"]);
        // What is mounted there is there for as long as its guardian.
        kill_process(guardian, Signal::STOP).unwrap();
        daemon.kill();
        let within = |script: &str| {
            let mut command = std::process::Command::new("nsenter");
            command.args(["--mount", "--target", &guardian.as_raw_nonzero().to_string()]);
            command.args(["sh", "-c", script]);
            network.near.run(|| command.output().unwrap()).unwrap()
        };
        success(&within("mount -o remount,ro /run/weir"));
        assert_eq!(network.threaded(), "1");
        if by == "reset" {
            let said = failure(&within(&format!("{WEIR} reset")), 1);
            assert!(said.contains("threaded 1 -> 0") && said.contains("Read-only"), "{said}");
            assert_eq!(network.threaded(), "0");
        }
        kill_process(guardian, Signal::CONT).unwrap();
        wait_until("the guardian has ended", || test_kill_process(guardian).is_err());
        network.assert_untouched();
    }
}

#[test]
fn what_a_daemon_without_descriptors_leaves_its_guardian_puts_back() {
    let (network, daemon) = protected(&[]);
    let few = Rlimit { current: Some(12), maximum: Some(12) };
    prlimit(Some(daemon.pid()), Resource::Nofile, few).unwrap();
    daemon.signal(Signal::TERM);
    let (status, messages) = daemon.end();
    assert_eq!(status.code(), Some(1), "{messages}");
    // That a thread cannot be looked at is no answer, neither that it has ended nor that it is elsewhere.
    assert!(messages.contains("LimitNOFILE="), "{messages}");
    assert!(!messages.contains("PID namespace") && !messages.contains("has ended"), "{messages}");
    wait_until("the guardian has put everything back", || network.is_untouched());
}

#[test]
fn what_cannot_be_looked_at_is_not_taken_for_gone() {
    let network = Network::new();
    network.poll_by_napi();
    network.set_threaded("1");
    let daemon = Daemon::start(&network, &["--attach", "tc", "--nice", "3"]);
    let nice = || sched::nice(network.napi_threads()[0]).unwrap();
    kill_both(&network, daemon);
    for (apart, prepare, why) in [
        (&["--mount"][..], "mount -t tmpfs none /proc/sys/kernel/random &&", "random/boot_id"),
        (&["--pid", "--fork", "--mount-proc"], "", "cannot be seen from this PID namespace"),
    ] {
        let mut command = std::process::Command::new("unshare");
        command.args(apart).args(["sh", "-c", &format!("{prepare} {WEIR} reset")]);
        let refusal = failure(&network.near.run(|| command.output().unwrap()).unwrap(), 1);
        assert!(refusal.contains(why), "{refusal}");
        assert_eq!(nice(), Nice(3));
    }
    // A guardian is told of the same, whose daemon has ended before it looks.
    let key = format!("{}-{}", network.near.inode(), network.ifindex.0);
    let mut command = std::process::Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", WEIR, "guardian", "--parent", "0", &key]);
    let told = failure(&network.near.run(|| command.output().unwrap()).unwrap(), 1);
    assert_eq!(told.matches("`weir reset` tries again").count(), 1, "{told}");
    network.says(&["reset"]);
    assert_eq!(nice(), Nice(0));
    network.set_threaded("0");
    network.assert_untouched();
}

#[test]
fn reset_leaves_what_somebody_else_has_set_and_says_so() {
    const RPS: &str = "queues/rx-0/rps_cpus";
    let network = Network::new();
    network.write(RPS, "2");
    let daemon = Daemon::start(&network, &["--rps-off"]);
    kill_both(&network, daemon);
    network.write(RPS, "1");
    let theirs = network.read(RPS);

    let said = network.says(&["reset", NEAR]);
    let left = format!("steering of rx-0: left as set by somebody else ({theirs})");
    assert!(said.contains("threaded 1 -> 0") && said.contains(&left), "{said}");
    assert_eq!(network.read(RPS), theirs);
    network.assert_untouched();
}

#[test]
fn reset_does_not_need_a_reader() {
    let network = Network::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(WEIR);
    let reset = command.arg("reset").stdout(writer);
    assert!(network.near.run(|| reset.status().unwrap()).unwrap().success());
}

#[test]
fn the_next_run_restores_what_the_last_one_left() {
    let (network, daemon) = protected(&[]);
    kill_both(&network, daemon);
    let next = Daemon::start(&network, &[]);
    let messages = next.interrupt();
    assert!(messages.contains("near: put back"), "{messages}");
    // What was recorded as the old value is the owner's, not the last weir's.
    network.assert_untouched();
}

#[test]
fn reset_tolerates_an_interface_that_is_gone() {
    let (network, daemon) = protected(&[]);
    kill_both(&network, daemon);
    network.links(|links, ifindex| links.delete(ifindex).unwrap());
    network.says(&["reset", NEAR]);
    assert_eq!(network.files(), [] as [&str; 0]);
}

#[test]
fn reset_puts_back_an_interface_that_was_made_anew_and_what_is_there_of_its_name() {
    let (network, daemon) = protected(&[]);
    kill_both(&network, daemon);
    let present = network.ifindex.0;
    // The first by name.
    let gone = format!("1{:09}", present).parse().unwrap();
    let text = std::fs::read_to_string(record(&network, present)).unwrap();
    let [present, gone] =
        [present, gone].map(|ifindex: u32| (ifindex, format!("\"ifindex\": {ifindex}")));
    std::fs::write(record(&network, gone.0), text.replace(&present.1, &gone.1)).unwrap();
    let said = network.says(&["reset", NEAR]);
    assert_eq!(said.lines().count(), 2, "{said}");
    network.assert_untouched();
}

#[test]
fn the_files_of_a_running_daemon_come_back() {
    let (network, daemon) = protected(&[]);
    let files = network.files();
    for file in &files {
        let _ = std::fs::remove_file(format!("/run/weir/{file}"));
    }
    wait_until("they are back", || files.iter().all(|file| network.files().contains(file)));
    let refusal = failure(&network.weir(&["reset"]), 1);
    assert!(refusal.contains("weir already protects near"), "{refusal}");
    daemon.kill();
    assert!(wait(PROMISED, || network.is_untouched()), "not restored: {:?}", network.files());
}

#[test]
fn an_interface_that_was_renamed_meanwhile_is_put_back_all_the_same() {
    const RENAMED: &str = "renamed";
    let network = Network::new();
    for by in ["daemon", "guardian", "reset"] {
        let daemon = Daemon::start(&network, &[]);
        daemon.signal(Signal::STOP);
        let rename = |from: &str, to: &str| {
            sh(&network, &format!("ip link set {from} name {to}"));
        };
        if by == "reset" {
            kill_both(&network, daemon);
            rename(NEAR, RENAMED);
            network.says(&["reset", RENAMED]);
        } else {
            rename(NEAR, RENAMED);
            if by == "daemon" {
                // Before it hears of the other name.
                daemon.signal(Signal::TERM);
                daemon.signal(Signal::CONT);
                assert!(daemon.end().0.success());
            } else {
                daemon.kill();
            }
            wait_until("it is put back", || network.threaded_on(RENAMED) == "0");
        }
        rename(RENAMED, NEAR);
        wait_until("everything is put back", || network.is_untouched());
    }
}

#[test]
fn reset_leaves_a_running_daemon_alone() {
    let (network, daemon) = protected(&[]);
    let refusal = failure(&network.weir(&["reset"]), 1);
    assert!(refusal.contains(&format!("kill {}", daemon.pid().as_raw_nonzero())), "{refusal}");
    assert_eq!(network.threaded(), "1");
    network.assert_left_untouched_by(daemon);
}

#[test]
fn an_interface_that_is_down_is_reset_once_it_is_up() {
    let (network, daemon) = protected(&[]);
    // A veth that is down has no NAPI instance, and the kernel refuses to switch threading.
    network.links(|links, ifindex| links.set_down(ifindex).unwrap());
    daemon.signal(Signal::INT);
    let (status, messages) = daemon.end();
    assert_eq!(status.code(), Some(1));
    assert!(messages.contains("near is down") && messages.contains("weir reset"), "{messages}");
    assert_eq!(network.threaded(), "1");

    let refusal = failure(&network.weir(&["reset"]), 1);
    assert!(refusal.contains("ip link set near up"), "{refusal}");
    network.links(|links, ifindex| links.set_up(ifindex).unwrap());
    network.says(&["reset"]);
    network.assert_untouched();
}

/// SIGXFSZ
#[test]
fn past_a_limit_of_a_files_size_a_daemon_goes_on() {
    let (network, daemon) = protected(&[]);
    let limit = |bytes| {
        let pid = daemon.pid().as_raw_nonzero();
        sh(&network, &format!("prlimit --fsize={bytes} --pid {pid}"));
    };
    limit("0:unlimited");
    daemon.said("status.json");
    limit("unlimited");
    network.assert_left_untouched_by(daemon);
}
