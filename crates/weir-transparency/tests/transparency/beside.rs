//! Processes that compute on the tests' CPU whenever nobody else does, at five nice values.

use std::process::{Child, Command};

use rustix::process::Pid;
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

use crate::network::cpu;

/// No lower, or what the kernel and the test do later, at nice 0, takes seconds.
const NICE: [i32; 5] = [-5, 0, 5, 10, 19];

/// They end with this.
pub struct Loops(Vec<Child>);

impl Loops {
    pub fn start() -> Self {
        let start = |nice| {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            let pid = Pid::from_child(&child);
            sched::set_affinity(pid, &[cpu()]).unwrap();
            sched::set_weight(pid, sched::SchedPolicy::Normal, Nice(nice), None).unwrap();
            child
        };
        Self(NICE.map(start).into())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Not reaped yet, its number means no other process.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
