//! A control group that is ended, or frozen, as a whole: the daemon is in it, and its guardian is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use weir_bpf::sys::stat::Stat;

/// What `docs` promise for a daemon that is stopped or killed.
const PROMISED: Duration = Duration::from_secs(1);
/// The same for one that is frozen while nothing is wrong: its guardian hears of it each second, and waits for three.
const PROMISED_AT_REST: Duration = Duration::from_secs(4);
/// include/uapi/linux/sched.h
const SCHED_OTHER: u32 = 0;
const SCHED_BATCH: u32 = 3;

/// One of version 2, with nobody in it.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Self {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists());
        let root = root.expect("the test needs control groups of version 2");
        let group = root.join(format!("weir-test-{}-{name}", std::process::id()));
        fs::create_dir(&group).unwrap();
        Self(group)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.write("cgroup.freeze", "0");
        self.write("cgroup.kill", "1");
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
