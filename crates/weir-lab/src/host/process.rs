//! Starting processes, and ending them.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared::SharedCounters;
use weir_bpf::sys::stat::Stat;
use weir_bpf::units::{CpuId, Nanos, Nice};

use crate::apps::{Job, OWN, Order, slots};
use crate::arm::DaemonSpec;
use crate::error::{Error, Result, cannot};
use crate::histogram;
use crate::stop::until;

const START_DEADLINE: Duration = Duration::from_secs(10);
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// A process that the lab has started. Dropping it sends it a signal, and waits; kills it if it stays.
pub struct Program(Child, Signal);

impl Program {
    pub fn spawn(mut command: Command, end: Signal, name: &str) -> Result<Self> {
        Ok(Self(command.spawn().map_err(cannot("start", name))?, end))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = kill_process(self.pid(), self.1);
        }
        let _ = until(STOP_DEADLINE, || Ok((!self.is_running()).then_some(())));
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What becomes another `weir` command in a namespace, on a CPU.
pub fn weir(netns: &NetNs, cpu: CpuId, spec: &DaemonSpec, arguments: &[&str]) -> Order {
    let path = spec.binary.clone().unwrap_or_else(|| OWN.into());
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    Order::new(netns, cpu, Job::Program(path, "weir".into(), arguments))
}

/// Runs another `weir` command in a namespace, on a CPU, and reads the JSON that it prints.
pub fn ask_weir(netns: &NetNs, cpu: CpuId, spec: &DaemonSpec, arguments: &[&str]) -> Result<Value> {
    let object = format!("weir {}", arguments.join(" "));
    let mut command = weir(netns, cpu, spec, arguments).command()?;
    let output = command.stderr(Stdio::inherit()).output().map_err(cannot("run", &object))?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let problem = format!("`{object}` printed no JSON ({}): {error}", output.status);
        Error::refused(problem, "its own message is above")
    })
}

/// A worker and the memory that it counts in. Dropping it kills it.
pub struct Worker {
    process: Program,
    shared: SharedCounters,
}

impl Worker {
    /// Starts a worker in a namespace, at a nice value, and waits until it is ready. If it does not start, it
    /// says why on standard error.
    pub fn start(netns: &NetNs, cpu: CpuId, Nice(nice): Nice, job: Job) -> Result<Self> {
        let (shared, name) = (SharedCounters::create("weir-lab", slots::LEN)?, format!("{job:?}"));
        let order = Order { nice, shared: Some(shared.path()), ..Order::new(netns, cpu, job) };
        let mut command = order.command()?;
        command.stdout(Stdio::null());
        let mut process = Program::spawn(command, Signal::KILL, &name)?;
        let ready = until(START_DEADLINE, || {
            let ready = slots::is_set(&shared, slots::READY);
            Ok((ready || !process.is_running()).then_some(ready))
        })?;
        if ready != Some(true) {
            let problem = format!("the lab's process does not start: {name}");
            return Err(Error::refused(problem, "its own message is above"));
        }
        Ok(Self { process, shared })
    }

    pub fn count(&self, slot: usize) -> u64 {
        self.shared.get(slot).load(Ordering::Relaxed)
    }

    pub fn set(&self, slot: usize, on: bool) {
        self.shared.get(slot).store(on.into(), Ordering::Release);
    }

    pub fn histogram(&self) -> Vec<u64> {
        histogram::snapshot(&self.shared, slots::HISTOGRAM)
    }

    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Ends it, and returns once the kernel has closed what it had open.
    pub fn end(&self) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = kill_process(self.pid(), Signal::KILL);
        let _ = waitid(WaitId::Pid(self.pid()), ended);
    }
}

/// CPU time that all threads of a process have had.
pub fn cpu_time(process: Pid) -> Result<Nanos> {
    let path = format!("/proc/{process}/task");
    let threads = fs::read_dir(&path).map_err(cannot("list", &path))?;
    // A thread that ends meanwhile takes what it had with it.
    let time = |name: &str| sched::cpu_time(Pid::from_raw(name.parse().ok()?)?).ok();
    let times = threads.flatten().filter_map(|thread| time(thread.file_name().to_str()?));
    Ok(Nanos(times.map(|time| time.0).sum()))
}

/// The processes below this one that have none below themselves; this one if it has none. A server's
/// masters only start them and wait.
pub fn workers(root: Pid) -> Result<Vec<Pid>> {
    let entries = fs::read_dir("/proc").map_err(cannot("list", "/proc"))?;
    let of = |name: &str| {
        let pid = Pid::from_raw(name.parse().ok()?)?;
        Some((pid, Pid::from_raw(Stat::of(pid.as_raw_pid())?.parent()?)?))
    };
    let parents = entries.flatten().filter_map(|entry| of(entry.file_name().to_str()?));
    Ok(last_below(root, &parents.collect::<Vec<_>>()))
}

/// The same, among processes and their parents.
fn last_below(root: Pid, parents: &[(Pid, Pid)]) -> Vec<Pid> {
    let children = parents.iter().filter(|(_, parent)| *parent == root);
    let below: Vec<_> = children.flat_map(|(child, _)| last_below(*child, parents)).collect();
    if below.is_empty() { vec![root] } else { below }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_work_have_no_children() {
        let below = |root, parents: &[(i32, i32)]| {
            let pid = |number| Pid::from_raw(number).unwrap();
            let parents: Vec<_> = parents.iter().map(|(one, of)| (pid(*one), pid(*of))).collect();
            last_below(pid(root), &parents).into_iter().map(Pid::as_raw_pid).collect::<Vec<_>>()
        };
        // NSD: xfrd, main, server.
        let nsd = [(10, 1), (11, 10), (12, 11), (20, 1)];
        assert_eq!(below(10, &nsd), [12]);
        assert_eq!(below(10, &[(10, 1), (11, 10), (12, 10), (13, 12)]), [11, 13]);
        assert_eq!(below(20, &nsd), [20]);
    }
}
