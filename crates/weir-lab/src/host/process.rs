//! Starting processes, and ending them.

use std::any::Any;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::sys::shared_memory::SharedCounters;
use weir_bpf::sys::stat::{self, Stat};
use weir_bpf::units::{CpuId, Nice};

use crate::apps::{Job, Order, slots};
use crate::error::{Error, Result, cannot};
use crate::histogram;
use crate::stop::{Undo, until};

/// How long a process may take until it is ready.
pub const START_DEADLINE: Duration = Duration::from_secs(15);
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// Where a program is installed.
pub fn path_of(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // These are not in every user's `PATH`.
    let sbin = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut files = std::env::split_paths(&path).chain(sbin).map(|path| path.join(program));
    files.find(|file| file.is_file())
}

/// A process that the lab has started. Dropping it sends it a signal, and waits; kills it if it stays.
pub struct Process {
    child: Child,
    end: Signal,
    /// Which it is and where, for errors.
    object: String,
    /// What it prints; `None`: it prints why it does not start, to standard error.
    log: Option<PathBuf>,
    /// What it counts in, if it is one of the lab's own.
    shared: Option<SharedCounters>,
    /// The processes that do the work: nginx's worker, NSD's server process, the others' only one.
    pub pids: Vec<Pid>,
    /// What goes after it: its files, or its group.
    pub after: Option<Box<dyn Any>>,
}

impl Process {
    /// That a program is not there shows only in its end.
    pub fn spawn(order: Order, object: String, log: Option<PathBuf>) -> Result<Self> {
        let end = order.job.end();
        let mut command = order.command()?;
        command.stdout(Stdio::null());
        if let Some(log) = &log {
            let failed = cannot("create", log.display());
            let file = File::create(log).map_err(&failed)?;
            command.stdout(file.try_clone().map_err(failed)?).stderr(file);
        }
        let child = command.spawn().map_err(cannot("start", &object))?;
        let pids = vec![Pid::from_child(&child)];
        Ok(Self { child, end, object, log, shared: None, pids, after: None })
    }

    /// Starts one of the lab's own in a namespace, at a nice value, and waits until it is ready.
    pub fn worker(
        netns: &NetNs,
        cpu: impl Into<Option<CpuId>>,
        Nice(nice): Nice,
        job: Job,
    ) -> Result<Self> {
        let (shared, name) = (SharedCounters::create("weir-lab", slots::LEN)?, format!("{job:?}"));
        let order = Order { nice, shared: Some(shared.path()), ..Order::new(netns, cpu, job) };
        let mut process = Self::spawn(order, name, None)?;
        let is_ready = || slots::is_set(&shared, slots::READY).then_some(());
        process.wait("start", START_DEADLINE, |_| is_ready())?;
        process.shared = Some(shared);
        Ok(process)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Refuses what was measured while it ended, which nobody asked it to.
    pub fn still_runs(&self) -> Result<()> {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        match waitid(WaitId::Pid(self.pid()), ended) {
            Ok(None) => Ok(()),
            _ => {
                let problem = format!("the lab's {} ended during a trial", self.object);
                Err(Error::refused(problem, "was it killed? `dmesg` and its own output may say"))
            }
        }
    }

    /// Waits for what it is to do, until a look at it and at its output so far finds that. Else the error
    /// quotes its own messages.
    pub fn wait<T>(
        &mut self,
        what: &str,
        within: Duration,
        look: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let (mut ended, mut output) = (false, None);
        let found = until(within, || {
            // First: it may do it and end between the two.
            ended = !self.is_running();
            let log = self.log.as_ref().map(|log| fs::read(log).unwrap_or_default());
            output = log.map(|log| String::from_utf8_lossy(&log).into_owned());
            let found = look(output.as_deref().unwrap_or_default());
            Ok((found.is_some() || ended).then_some(found))
        })?;
        found.flatten().ok_or_else(|| {
            let how = if ended { "ended and" } else { "still runs and" };
            let problem = format!("the lab's {} {how} did not {what}", self.object);
            let own = output.map_or("its own message is above".into(), |output| quote(&output));
            Error::refused(problem, own)
        })
    }

    /// Whether it counts anything.
    pub fn counts(&self) -> bool {
        self.shared.is_some()
    }

    pub fn count(&self, slot: usize) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.get(slot).load(Ordering::Relaxed))
    }

    pub fn set(&self, slot: usize) {
        if let Some(shared) = &self.shared {
            shared.get(slot).store(1, Ordering::Release);
        }
    }

    pub fn histogram(&self) -> Vec<u64> {
        let of = |shared| histogram::snapshot(shared, slots::HISTOGRAM);
        self.shared.as_ref().map(of).unwrap_or_default()
    }

    /// Stops it until what is returned is dropped.
    pub fn stop(&self) -> Result<Undo<'static>> {
        let pid = self.pid();
        kill_process(pid, Signal::STOP).map_err(cannot("stop", &self.object))?;
        Ok(Undo(Box::new(move || kill_process(pid, Signal::CONT).unwrap_or_default())))
    }

    /// Ends it, and returns once the kernel has closed what it had open.
    pub fn end(&self) {
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let _ = kill_process(self.pid(), Signal::KILL);
        let _ = waitid(WaitId::Pid(self.pid()), ended);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = kill_process(self.pid(), self.end);
        }
        let _ = until(STOP_DEADLINE, || Ok((!self.is_running()).then_some(())));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of a program's output, for an error message: a program states its failure last.
fn quote(output: &str) -> String {
    let text = output.trim();
    let last = text.char_indices().rev().take(800).last();
    last.map_or("it printed nothing".into(), |(start, _)| format!("it printed: {}", &text[start..]))
}

/// CPU time that all threads of these processes have had, nanoseconds.
pub fn cpu_ns(processes: &[Pid]) -> Result<u64> {
    // A thread that ends meanwhile takes what it had with it.
    let time = |thread| sched::cpu_time(Pid::from_raw(thread)?).ok();
    let of = |process: &Pid| {
        let threads = stat::threads(process.as_raw_nonzero().get());
        let threads = threads.map_err(cannot("list the threads of", process))?.into_iter();
        Ok(threads.filter_map(time).map(|time| time.0).sum::<u64>())
    };
    processes.iter().map(of).sum()
}

/// The processes below this one that have none below themselves; this one if it has none. A server's
/// masters only start them and wait.
pub fn workers(root: Pid) -> Result<Vec<Pid>> {
    let of = |pid| Some((Pid::from_raw(pid)?, Pid::from_raw(Stat::of(pid)?.parent()?)?));
    let parents = stat::processes().map_err(cannot("list", "/proc"))?.into_iter().filter_map(of);
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
    fn the_end_of_the_output_is_quoted() {
        assert_eq!(quote(" \n"), "it printed nothing");
        assert_eq!(quote("no such file\n"), "it printed: no such file");
        let long = quote(&format!("{}ü the end", "x".repeat(800)));
        assert!(long.ends_with("xü the end") && long.chars().count() < 820);
    }

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
