//! Where threads run, how heavy they weigh, and what CPU time they have had.
//!
//! The kernel schedules threads, so every `pid` here is one thread's number; a process's number
//! stands for its first thread.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::time::Duration;

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::cpulist::CpuList;
use crate::error::{Error, Result};
use crate::units::{CpuId, Nanos, Nice};

const ONLINE: &str = "/sys/devices/system/cpu/online";
/// proc(5)
const ALLOWED: &str = "Cpus_allowed_list:";

/// Lets a thread run on these CPUs only.
///
/// # Errors
/// [`Error::Refused`] for a CPU number beyond what fits the kernel's set;
/// [`Error::System`] with `EINVAL` if none of the CPUs is online, or the kernel keeps the thread to
/// its CPU, `ESRCH` if there is no such thread, `EPERM` without `CAP_SYS_NICE`.
pub fn set_affinity(pid: Pid, cpus: &[CpuId]) -> Result<()> {
    set_affinity_of(Some(pid), cpus)
}

/// CPUs that are online and that a thread may run on, in increasing order.
///
/// # Errors
/// [`Error::System`] with `ESRCH` if there is no such thread.
pub fn affinity(pid: Pid) -> Result<Vec<CpuId>> {
    let set = sched_getaffinity(Some(pid))
        .map_err(|errno| Error::system("read the CPUs of", object(pid), errno))?;
    let numbers = 0..u32::try_from(CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok(numbers.filter(|number| set.is_set(*number as usize)).map(CpuId).collect())
}

/// CPUs that a thread may run on, in increasing order, also those that are offline: what to set to have all back.
///
/// # Errors
/// [`Error::System`] if there is no such thread; [`Error::Refused`] if the kernel does not list them.
pub fn allowed_cpus(pid: Pid) -> Result<Vec<CpuId>> {
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    let status = std::fs::read(&path).map_err(|source| Error::system("read", &path, source))?;
    let CpuList(cpus) = allowed_in(&status).ok_or_else(|| {
        Error::refused(format!("{path} has no list of CPUs in {ALLOWED}"), "please report this")
    })?;
    Ok(cpus)
}

/// In the text of `/proc/PID/status`.
fn allowed_in(status: &[u8]) -> Option<CpuList> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let list = lines.find_map(|line| line.strip_prefix(ALLOWED.as_bytes()))?;
    str::from_utf8(list).ok()?.trim().parse().ok()
}

/// A thread's nice value.
///
/// # Errors
/// [`Error::System`] with `ESRCH` if there is no such thread.
pub fn nice(pid: Pid) -> Result<Nice> {
    getpriority_process(Some(pid))
        .map(Nice)
        .map_err(|errno| Error::system("read the nice value of", object(pid), errno))
}

/// Sets a thread's nice value; the kernel clamps it to -20..=19.
///
/// # Errors
/// [`Error::System`] with `ESRCH` if there is no such thread, `EACCES` or `EPERM` without
/// `CAP_SYS_NICE`.
pub fn set_nice(pid: Pid, nice: Nice) -> Result<()> {
    setpriority_process(Some(pid), nice.0)
        .map_err(|errno| Error::system("set the nice value of", object(pid), errno))
}

/// When a thread runs, before its nice value counts (sched(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedPolicy {
    /// Waking up, it may interrupt whoever runs (`SCHED_OTHER`).
    #[default]
    Normal,
    /// It waits until whoever runs sleeps, or his time is up (`SCHED_BATCH`).
    Batch,
    /// After all others (`SCHED_IDLE`).
    Idle,
    /// Before all of these, until it sleeps (`SCHED_FIFO`), at a priority of 1 to 99.
    Fifo(u32),
    /// The same, in turns with its equals (`SCHED_RR`).
    RoundRobin(u32),
}

impl fmt::Display for SchedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("SCHED_OTHER"),
            Self::Batch => f.write_str("SCHED_BATCH"),
            Self::Idle => f.write_str("SCHED_IDLE"),
            Self::Fifo(priority) => write!(f, "SCHED_FIFO {priority}"),
            Self::RoundRobin(priority) => write!(f, "SCHED_RR {priority}"),
        }
    }
}

/// A thread's policy.
///
/// # Errors
/// [`Error::System`] if there is no such thread; [`Error::Refused`] for another policy, which weir could not set again.
pub fn policy(pid: Pid) -> Result<SchedPolicy> {
    let attr = attributes(pid)?;
    let (policy, priority) = (attr.sched_policy.cast_signed(), attr.sched_priority);
    match policy {
        libc::SCHED_OTHER => Ok(SchedPolicy::Normal),
        libc::SCHED_BATCH => Ok(SchedPolicy::Batch),
        libc::SCHED_IDLE => Ok(SchedPolicy::Idle),
        libc::SCHED_FIFO => Ok(SchedPolicy::Fifo(priority)),
        libc::SCHED_RR => Ok(SchedPolicy::RoundRobin(priority)),
        _ => Err(Error::refused(
            format!("{} has scheduling policy {policy}", object(pid)),
            "give it the usual one: chrt --other --pid 0 PID",
        )),
    }
}

/// How long a thread runs at a time, at least, when others wait, be that its own or the kernel's usual time; none where
/// its policy has no such time, and on kernels before 6.12.
///
/// # Errors
/// [`Error::System`] if there is no such thread.
pub fn slice(pid: Pid) -> Result<Option<Nanos>> {
    let attr = attributes(pid)?;
    let is_fair = [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&attr.sched_policy.cast_signed());
    Ok((is_fair && attr.sched_runtime > 0).then_some(Nanos(attr.sched_runtime)))
}

#[allow(unsafe_code)]
fn attributes(pid: Pid) -> Result<libc::sched_attr> {
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    let mut attr = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
    let pid_raw = pid.as_raw_nonzero().get();
    // SAFETY: `attr` has as much room as is said, and outlives the call, which only writes it.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_getattr, pid_raw, attr.as_mut_ptr(), SIZE, 0) };
    if answer != 0 {
        let source = std::io::Error::last_os_error();
        return Err(Error::system("read the policy of", object(pid), source));
    }
    // SAFETY: numbers, of which zeros are some, too.
    Ok(unsafe { attr.assume_init() })
}

/// Sets a thread's policy, its nice value, and how long it runs at a time, at least, when others wait: 0.1 to
/// 100 ms, or the kernel's usual time (`base_slice_ns`). Kernels before 6.12 keep to the usual time.
///
/// # Errors
/// [`Error::System`] with `ESRCH` if there is no such thread, `EACCES` or `EPERM` without
/// `CAP_SYS_NICE`.
#[allow(unsafe_code)]
pub fn set_weight(pid: Pid, policy: SchedPolicy, nice: Nice, slice: Option<Nanos>) -> Result<()> {
    let (policy, priority) = match policy {
        SchedPolicy::Normal => (libc::SCHED_OTHER, 0),
        SchedPolicy::Batch => (libc::SCHED_BATCH, 0),
        SchedPolicy::Idle => (libc::SCHED_IDLE, 0),
        SchedPolicy::Fifo(priority) => (libc::SCHED_FIFO, priority),
        SchedPolicy::RoundRobin(priority) => (libc::SCHED_RR, priority),
    };
    let attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy as u32,
        sched_flags: 0,
        sched_nice: nice.0,
        sched_priority: priority,
        sched_runtime: slice.map_or(0, |slice| slice.0),
        sched_deadline: 0,
        sched_period: 0,
    };
    let pid_raw = pid.as_raw_nonzero().get();
    // SAFETY: `attr` is as long as it says and outlives the call, which only reads it.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, pid_raw, &raw const attr, 0) };
    if answer == 0 {
        return Ok(());
    }
    Err(Error::system("set the weight of", object(pid), std::io::Error::last_os_error()))
}

/// Lets the calling thread, and threads that it starts later, run on this CPU only.
///
/// # Errors
/// As [`set_affinity`].
pub fn pin_current_thread(cpu: CpuId) -> Result<()> {
    set_affinity_of(None, &[cpu])
}

/// Lets the calling thread run before all normal ones (`SCHED_FIFO`), at a priority of 1 to 99.
/// Threads that it starts later do not inherit it.
///
/// # Errors
/// [`Error::System`] with `EINVAL` for another priority, `EPERM` without `CAP_SYS_NICE`.
pub fn set_fifo_current_thread(priority: u8) -> Result<()> {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    set_policy_current_thread(policy, priority).map_err(|source| {
        Error::system("set real-time", format!("priority {priority} for this thread"), source)
    })
}

/// Lets the calling thread, and threads that it starts later, run only where no others of its session
/// want the CPU (`SCHED_IDLE`), and its session after all others (`/proc/self/autogroup`, where the
/// kernel has that).
///
/// # Errors
/// [`Error::System`] where the kernel refuses.
pub fn set_idle_current_thread() -> Result<()> {
    const AUTOGROUP: &str = "/proc/self/autogroup";
    set_policy_current_thread(libc::SCHED_IDLE, 0)
        .map_err(|source| Error::system("set idle", "this thread's policy", source))?;
    match std::fs::write(AUTOGROUP, "19") {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::system("write", AUTOGROUP, source))
        }
        _ => Ok(()),
    }
}

#[allow(unsafe_code)]
fn set_policy_current_thread(policy: i32, priority: u8) -> std::io::Result<()> {
    let param = libc::sched_param { sched_priority: priority.into() };
    // SAFETY: `param` outlives the call, which only reads it; pid 0 is the calling thread.
    let answer = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// CPUs that are online, in increasing order, whether or not this process may use them.
///
/// # Errors
/// [`Error::System`] without sysfs; [`Error::Refused`] if it is not a list of CPUs.
pub fn online_cpus() -> Result<Vec<CpuId>> {
    let text =
        std::fs::read_to_string(ONLINE).map_err(|source| Error::system("read", ONLINE, source))?;
    let list = text.trim().parse::<CpuList>();
    let CpuList(cpus) = list.map_err(|why| {
        Error::refused(format!("{ONLINE} reads {text:?}: {why}"), "please report this")
    })?;
    Ok(cpus)
}

/// The CPU time that the calling thread has used.
pub fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let secs = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// What the scheduler has counted of a thread since it began (`/proc/PID/schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Its CPU time (`sum_exec_runtime`). The scheduler brings it up to date at ticks and switches, so a running
    /// thread's may lag by a tick.
    pub ran: Nanos,
    /// How long it was runnable and did not run (`run_delay`).
    pub waited: Nanos,
    /// How often it was given a CPU (`pcount`).
    pub turns: u64,
}

/// A thread's [`SchedStat`].
///
/// # Errors
/// [`Error::System`] if there is no such thread, or the kernel lacks `CONFIG_SCHED_INFO`; [`Error::Refused`] if the text
/// is malformed.
pub fn sched_stat(pid: Pid) -> Result<SchedStat> {
    let path = format!("/proc/{}/schedstat", pid.as_raw_nonzero());
    // Three numbers of 64 bits.
    let mut bytes = [0; 64];
    let read = File::open(&path).and_then(|mut file| file.read(&mut bytes));
    let length = read.map_err(|source| Error::system("read", &path, source))?;
    let text = String::from_utf8_lossy(&bytes[..length]);
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    match (fields.next(), fields.next(), fields.next()) {
        (Some(Ok(ran)), Some(Ok(waited)), Some(Ok(turns))) => {
            Ok(SchedStat { ran: Nanos(ran), waited: Nanos(waited), turns })
        }
        _ => Err(Error::refused(format!("{path} reads {text:?}"), "three numbers were expected")),
    }
}

/// CPU time that a thread has had: [`SchedStat::ran`].
///
/// # Errors
/// As [`sched_stat`].
pub fn cpu_time(pid: Pid) -> Result<Nanos> {
    Ok(sched_stat(pid)?.ran)
}

fn set_affinity_of(pid: Option<Pid>, cpus: &[CpuId]) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        if cpu.0 as usize >= CpuSet::MAX_CPU {
            return Err(Error::refused(
                format!("CPU {cpu} does not fit the kernel's set of {}", CpuSet::MAX_CPU),
                format!("choose from {ONLINE}"),
            ));
        }
        set.set(cpu.0 as usize);
    }
    sched_setaffinity(pid, &set).map_err(|errno| {
        let object = pid.map_or_else(|| "this thread".to_owned(), object);
        Error::system("set the CPUs of", object, errno)
    })
}

fn object(pid: Pid) -> String {
    format!("thread {}", pid.as_raw_nonzero())
}

#[cfg(test)]
mod tests {
    use rustix::thread::{gettid, sched_getcpu};

    use super::*;
    use crate::sys::stat::Stat;

    /// What is set here must not stay with a thread of the test runner's.
    fn on_own_thread<T: Send>(test: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(test).join().unwrap())
    }

    #[test]
    fn a_pinned_thread_runs_there() {
        for cpu in online_cpus().unwrap() {
            on_own_thread(|| {
                pin_current_thread(cpu).unwrap();
                assert_eq!(affinity(gettid()).unwrap(), [cpu]);
                assert_eq!(sched_getcpu(), cpu.0 as usize);
            });
        }
    }

    #[test]
    fn affinity_of_another_thread_goes_back() {
        on_own_thread(|| {
            let target = gettid();
            let before = affinity(target).unwrap();
            on_own_thread(|| set_affinity(target, &before[..1]).unwrap());
            assert_eq!(affinity(target).unwrap(), before[..1]);
            assert_eq!(allowed_cpus(target).unwrap(), before[..1]);
            set_affinity(target, &before).unwrap();
            assert_eq!(affinity(target).unwrap(), before);
        });
    }

    #[test]
    fn cpus_that_are_offline_are_allowed_all_the_same() {
        let status =
            b"Name:\tCpus_allowed_list: 7\nCpus_allowed:\t0000000b\nCpus_allowed_list:\t0-1,3\n";
        assert_eq!(allowed_in(status), Some(CpuList(vec![CpuId(0), CpuId(1), CpuId(3)])));
        assert_eq!(allowed_in(b"Name:\tx\n"), None);
    }

    #[test]
    fn impossible_cpus_are_refused() {
        on_own_thread(|| {
            let beyond = set_affinity(gettid(), &[CpuId(1 << 20)]);
            assert!(matches!(beyond, Err(Error::Refused { .. })));
            assert!(matches!(set_affinity(gettid(), &[]), Err(Error::System { .. })));
        });
    }

    fn own_stat(field: usize) -> u32 {
        Stat::read("/proc/thread-self/stat").unwrap().field(field).unwrap()
    }

    fn policy() -> u32 {
        own_stat(41)
    }

    #[test]
    fn nice_values_are_per_thread() {
        let outside = nice(gettid()).unwrap();
        on_own_thread(|| {
            for value in [Nice(19), Nice(-20), Nice(0)] {
                set_nice(gettid(), value).unwrap();
                assert_eq!(nice(gettid()).unwrap(), value);
            }
        });
        assert_eq!(nice(gettid()).unwrap(), outside);
    }

    #[test]
    fn weights_are_nice_values_with_a_slice() {
        on_own_thread(|| {
            set_weight(gettid(), SchedPolicy::Batch, Nice(5), Some(Nanos(100_000))).unwrap();
            assert_eq!((nice(gettid()).unwrap(), policy()), (Nice(5), libc::SCHED_BATCH as u32));
            set_weight(gettid(), SchedPolicy::Normal, Nice(19), None).unwrap();
            assert_eq!((nice(gettid()).unwrap(), policy()), (Nice(19), libc::SCHED_OTHER as u32));
        });
        let nobody = Pid::from_raw(i32::MAX).unwrap();
        assert!(set_weight(nobody, SchedPolicy::Normal, Nice(0), None).is_err());
        assert!(super::policy(nobody).is_err());
    }

    #[test]
    fn every_policy_is_told_as_it_was_set() {
        on_own_thread(|| {
            let all = [
                SchedPolicy::Fifo(3),
                SchedPolicy::Idle,
                SchedPolicy::RoundRobin(7),
                SchedPolicy::Batch,
            ];
            for wanted in all.into_iter().chain([SchedPolicy::Normal]) {
                set_weight(gettid(), wanted, Nice(5), None).unwrap();
                assert_eq!(super::policy(gettid()).unwrap(), wanted);
            }
        });
    }

    #[test]
    fn real_time_is_this_threads_alone() {
        let priority = || own_stat(40);
        on_own_thread(|| {
            set_fifo_current_thread(3).unwrap();
            assert_eq!((priority(), policy()), (3, libc::SCHED_FIFO as u32));
            assert_eq!(on_own_thread(|| (priority(), policy())), (0, libc::SCHED_OTHER as u32));
            assert!(set_fifo_current_thread(100).is_err());
        });
    }

    #[test]
    fn cpu_time_grows_with_work_only() {
        on_own_thread(|| {
            // The scheduler may count a tick later.
            const TICK: Duration = Duration::from_millis(10);
            let both = || (Duration::from_nanos(cpu_time(gettid()).unwrap().0), own_cpu_time());
            let is_same = |from: (Duration, Duration), to: (Duration, Duration)| {
                (to.0 - from.0).abs_diff(to.1 - from.1) <= TICK
            };
            let before = both();
            while own_cpu_time() < before.1 + 10 * TICK {}
            let worked = both();
            assert!(is_same(before, worked), "{before:?} {worked:?}");
            std::thread::sleep(10 * TICK);
            let slept = both();
            assert!(is_same(worked, slept), "{worked:?} {slept:?}");
        });
        assert!(cpu_time(Pid::from_raw(i32::MAX).unwrap()).is_err());
    }
}
