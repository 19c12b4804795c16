//! A network namespace for one test, removed with it.

use std::time::{Duration, Instant};

use super::netns::NetNs;

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

/// Waits until `condition` holds; fails the test after 10 s.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::yield_now();
    }
}
