//! A network namespace for one test, removed with it.

use std::process::Command;
use std::time::{Duration, Instant};

use super::link::Links;
use super::netns::NetNs;
use super::sched::own_cpu_time;
use crate::units::IfIndex;

/// An empty network namespace.
pub(crate) struct Sandbox {
    pub(crate) ns: NetNs,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { ns: NetNs::create().expect("the tests need root") }
    }

    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.ns.run(f).expect("the tests need root")
    }
}

/// In a sandbox, with a veth pair, `near` and `far`.
pub(crate) fn with_pair<T: Send>(test: impl FnOnce(&Links, IfIndex, IfIndex) -> T + Send) -> T {
    Sandbox::new().run(|| {
        let links = Links::open().unwrap();
        links.create_veth("near", "far", None).unwrap();
        let (near, far) = (links.index("near").unwrap(), links.index("far").unwrap());
        test(&links, near, far)
    })
}

/// Waits until `condition` holds; fails the test after 10 s.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::yield_now();
    }
}

/// Looks so many times; fails the test if one takes the calling thread as much CPU time as this.
pub(crate) fn assert_cheap(what: &str, looks: u32, cost_max: Duration, mut look: impl FnMut()) {
    let begun = own_cpu_time();
    (0..looks).for_each(|_| look());
    let cost = (own_cpu_time() - begun) / looks;
    println!("{what}: {cost:?} of CPU time");
    assert!(cost < cost_max, "{what}: {cost:?}");
}

/// Runs a shell's script.
pub(crate) fn sh(script: &str) {
    try_sh(script).unwrap();
}

/// The same, where it may fail: with what it said.
pub(crate) fn try_sh(script: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr)))
}
