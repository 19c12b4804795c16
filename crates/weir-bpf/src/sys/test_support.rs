//! A network namespace for one test, removed with it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::netns::NetNs;

/// An empty named network namespace; the name goes on drop, also when the test fails.
pub(crate) struct Sandbox {
    pub(crate) name: String,
    pub(crate) ns: NetNs,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-test-{}-{number}", std::process::id());
        let ns = NetNs::create_named(&name).expect("the tests need root");
        Self { name, ns }
    }

    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.ns.run(f).expect("the tests need root")
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Err(error) = NetNs::delete_named(&self.name) {
            eprintln!("{error}");
        }
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
