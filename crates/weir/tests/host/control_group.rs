//! A control group that is ended, or frozen, as a whole: the daemon is in it, and its guardian is not.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_bpf::sys::stat::{Stat, processes};

/// What `docs` promise for a daemon that is stopped or killed.
const PROMISED: Duration = Duration::from_secs(1);
/// The same for one that is frozen while nothing is wrong: its guardian hears of it each second, and waits for three.
const PROMISED_AT_REST: Duration = Duration::from_secs(4);
/// include/uapi/linux/sched.h
const SCHED_OTHER: u32 = 0;
const SCHED_BATCH: u32 = 3;

/// One with nobody in it.
struct Group(PathBuf);

impl Group {
    /// Of version 2.
    fn new(name: &str) -> Self {
        Self::with("cgroup.kill", name)
    }

    /// One that has this file.
    fn with(file: &str, name: &str) -> Self {
        let group = Self::try_with(file, name);
        group.unwrap_or_else(|| panic!("the test needs a control group with {file}"))
    }

    fn try_with(file: &str, name: &str) -> Option<Self> {
        let name = format!("weir-test-{}-{name}", std::process::id());
        let roots =
            ["", "unified", "pids", "cpu"].map(|root| Path::new("/sys/fs/cgroup").join(root));
        let mut groups = roots.iter().map(|root| root.join(&name));
        let has_file = |group: &PathBuf| {
            fs::create_dir(group).is_ok()
                && (group.join(file).exists() || {
                    let _ = fs::remove_dir(group);
                    false
                })
        };
        groups.find(has_file).map(Self)
    }

    /// One that weighs half of what is usual, where the cpu controller is switched on.
    fn of_half_the_weight(name: &str) -> Option<Self> {
        [("cpu.shares", "512"), ("cpu.weight", "50")].into_iter().find_map(|(file, half)| {
            let group = Self::try_with(file, name)?;
            group.write(file, half);
            Some(group)
        })
    }

    /// A shell's command that goes into it.
    fn enter(&self) -> String {
        format!("echo 0 > {}", self.0.join("cgroup.procs").display())
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Only version 2 has them.
        for (file, text) in [("cgroup.freeze", "0"), ("cgroup.kill", "1")] {
            let _ = fs::write(self.0.join(file), text);
        }
        wait_until("the group is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_daemon_whose_group_is_ended_is_cleaned_up_after_within_a_second() {
    let network = Network::new();
    let group = Group::new("ended");
    let daemon = Daemon::start_in(&group.0, &network, &[]);
    assert_eq!(network.threaded(), "1");
    group.write("cgroup.kill", "1");
    daemon.end();
    assert!(wait(PROMISED, || network.is_untouched()), "not restored: {:?}", network.files());
}

#[test]
fn a_daemon_whose_group_is_frozen_leaves_threads_at_the_kernels_own_weight() {
    let network = Network::new();
    let group = Group::new("frozen");
    let daemon = Daemon::start_in(&group.0, &network, &[]);
    let thread = network.napi_threads()[0];
    let policy = || {
        let stat = format!("/proc/{}/stat", thread.as_raw_nonzero());
        Stat::read(&stat).unwrap().field::<u32>(41)
    };
    wait_until("it governs", || policy() == Some(SCHED_BATCH));
    group.write("cgroup.freeze", "1");
    assert!(wait(PROMISED_AT_REST, || policy() == Some(SCHED_OTHER)), "policy {:?}", policy());
    group.write("cgroup.freeze", "0");
    wait_until("it governs again", || policy() == Some(SCHED_BATCH));
    network.assert_left_untouched_by(daemon);
}

/// As `ip netns exec` replaces it.
const REPLACE_SYS: &str = "umount -l /sys && mount -t sysfs none /sys";

/// Where weir does not see control groups, it goes by what PID 1 sees, here of a PID namespace of the test's own.
#[test]
fn groups_that_pid_1_alone_sees_are_left_and_weighed_and_it_is_told_where_that_cannot_be() {
    let network = Network::new();
    let (group, light) = (Group::new("unseen"), Group::of_half_the_weight("light"));
    for pid_1_sees in [true, false] {
        let run = format!("unshare --mount sh -c '{REPLACE_SYS} && exec {WEIR} \"$@\"' sh \"$@\"");
        let blind = if pid_1_sees { ":" } else { REPLACE_SYS };
        let script = format!("{} && {blind} && {{ {run}; }}; exit $?", group.enter());
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script, "sh"]);
        let daemon = Daemon::start_by(command, &network, &["--awake", "--napi", "softirq"]);
        let here = |pid: &i32| {
            let netns = fs::read_link(format!("/proc/{pid}/ns/net"));
            netns.is_ok_and(|it| it == Path::new(&format!("net:[{}]", network.near.inode())))
        };
        let processes: Vec<_> = processes().unwrap().into_iter().filter(here).collect();
        let called = |name: &str| {
            let is = |pid: &&i32| Stat::of(**pid).is_some_and(|stat| stat.comm == name.as_bytes());
            *processes.iter().find(is).unwrap_or_else(|| panic!("there is a {name}"))
        };
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", called("weir-guardian")));
        let notes = network.interface_status()["notes"].to_string();
        let is_out = groups.unwrap().lines().any(|line| line == "0::/");
        assert_eq!(is_out, pid_1_sees);
        for told in ["the guardian is not out of", "does not see others' control groups"] {
            assert_eq!(notes.contains(told), !pid_1_sees, "{notes}");
        }
        let weir = called("weir");
        let enter = |more: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(["--target", &weir.to_string(), "--pid"]).args(more);
            command
        };
        if let Some(light) = &light {
            let mut holder = enter(&["sh", "-c", &format!("{} && exec sleep 100", light.enter())]);
            holder.stdin(OwnedFd::from(network.near_socket("198.18.0.1:5000")));
            let _holder = Owned::start(&mut holder);
            network.far_socket("198.18.0.2:0").send_to(b"?", "198.18.0.1:5000").unwrap();
            let expected = if pid_1_sees { 0.5 } else { 1.0 };
            wait_until("its receiver weighs what is seen of its group", || {
                let mut look = enter(&["--mount", WEIR, "channels", "--json", "--interval", "0"]);
                let report = success(&network.near.run(|| look.output().unwrap()).unwrap());
                let report: Value = serde_json::from_str(&report).unwrap();
                let channels = report["interfaces"][0]["channels"].as_array().unwrap();
                let channel = channels.iter().find(|it| it["name"] == "udp 198.18.0.1:5000");
                let processes = channel.and_then(|it| it["owner"]["processes"].as_array());
                processes.is_some_and(|all| {
                    matches!(&all[..], [one] if one["comm"] == "sleep" && one["group_weight"] == expected)
                })
            });
        }
        kill_process(Pid::from_raw(weir).unwrap(), Signal::INT).unwrap();
        let (status, messages) = daemon.end();
        assert!(status.success(), "{messages}");
        wait_until("everything is put back", || network.is_untouched());
    }
}

/// Where a thread is refused, a start neither waits for it nor panics.
#[test]
fn a_start_in_a_group_of_few_threads_protects_or_ends() {
    let network = Network::new();
    let group = Group::with("pids.max", "few");
    for count in 2..=9 {
        group.write("pids.max", &count.to_string());
        let daemon = Daemon::spawn_in(&group.0, &network, &[]);
        assert!(daemon.has_begun(), "with {count} threads");
        daemon.signal(Signal::TERM);
        let (status, messages) = daemon.end();
        assert!(
            !messages.contains("start a thread") || messages.contains("TasksMax="),
            "{messages}"
        );
        println!("{count} threads: {status}: {messages}");
        assert!(
            status.code().is_some_and(|code| code < 2),
            "{count} threads: {status}: {messages}"
        );
        assert!(!messages.is_empty(), "{count} threads: {status}");
        wait_until("everything is put back", || network.is_untouched());
    }
}

/// Be it that none of the governor's threads can be started, or only the one for a NAPI thread.
#[test]
fn a_daemon_with_too_few_threads_to_govern_is_degraded() {
    let network = Network::new();
    let group = Group::with("pids.max", "fewer");
    let protects = |count: &i32| {
        group.write("pids.max", &count.to_string());
        let daemon = Daemon::spawn_in(&group.0, &network, &[]);
        assert!(daemon.has_begun(), "with {count} threads");
        let published = || !network.published().is_empty();
        wait_until("it protects, or has ended", || published() || network.is_untouched());
        let (status, check) = (network.published(), network.check());
        daemon.signal(Signal::TERM);
        daemon.end();
        wait_until("everything is put back", || network.is_untouched());
        // The guardian's parent has ended, and whoever reaps it may take his time.
        wait_until("nobody is left", || {
            fs::read_to_string(group.0.join("pids.current")).unwrap().trim() == "0"
        });
        let Some(status) = status.first() else { return false };
        let is_governed = status["governed"][0].is_object();
        let expected =
            if is_governed { "protected: near" } else { "degraded: near: no governor: " };
        assert!(check.starts_with(expected), "with {count} threads: {check}");
        !is_governed
    };
    // Between them is a number with which it does not start.
    assert!((4..=8).filter(protects).count() > 1);
}

/// What would put back what a killed daemon leaves, a daemon that goes on protecting cannot start again.
#[test]
fn a_daemon_that_has_no_guardian_any_more_is_degraded() {
    let network = Network::new();
    let group = Group::with("pids.max", "unguarded");
    let daemon = Daemon::spawn_in(&group.0, &network, &[]);
    wait_until("it protects", || network.check() == "protected: near\n");
    let guardian = || network.interface_status()["guardian_pid"].clone();
    group.write("pids.max", "1");
    kill_process(pid(&guardian()), Signal::KILL).unwrap();
    wait_until("it is missed", || {
        network.check().starts_with("degraded: near: it has no guardian")
    });
    group.write("pids.max", "max");
    wait_until("there is another", || network.check() == "protected: near\n");
    network.assert_left_untouched_by(daemon);
}
