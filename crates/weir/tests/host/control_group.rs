//! A control group that is ended, or frozen, as a whole: the daemon is in it, and its guardian is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use rustix::process::Signal;
use weir_bpf::sys::stat::Stat;

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
        let name = format!("weir-test-{}-{name}", std::process::id());
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"];
        let mut groups = roots.iter().map(|root| Path::new(root).join(&name));
        let has_file = |group: &PathBuf| {
            fs::create_dir(group).is_ok()
                && (group.join(file).exists() || {
                    let _ = fs::remove_dir(group);
                    false
                })
        };
        let group = groups.find(has_file);
        Self(group.unwrap_or_else(|| panic!("the test needs a control group with {file}")))
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
