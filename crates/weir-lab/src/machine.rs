//! What the lab runs on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_bpf::sys::sched;
use weir_bpf::units::CpuId;

use crate::error::{Error, Result};

/// The machine and what of its settings matters to a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// Model name of the CPU.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// Whether this is a virtual machine (the `hypervisor` CPU flag).
    pub virtual_machine: bool,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Preemption model in force, such as `none`, `voluntary`, `full`, `lazy`, or `unknown`.
    pub preemption: String,
    /// Timer interrupts per second, where it is known.
    pub hz: Option<u32>,
    /// EEVDF base slice, nanoseconds, where it is known.
    pub scheduler_slice_ns: Option<u64>,
    /// Vulnerability mitigations that are not "Not affected", by name.
    pub mitigations: BTreeMap<String, String>,
    /// CPU of the system under test.
    pub sut_cpu: u32,
    /// CPU of the generator and the controller.
    pub generator_cpu: u32,
    /// Whether these two are hardware threads of one core.
    pub shared_core: bool,
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The CPU of the system under test and the CPU of the generator: the highest that this process may
/// use, because interrupts of the machine's own devices tend to go to the lowest, and on different
/// cores where there are several, because two threads of one core slow each other down.
pub fn choose_cpus() -> Result<(CpuId, CpuId)> {
    let online = sched::online_cpus()?;
    // All that are allowed, not those that the shell chose: a cpuset cannot be widened, `taskset` can.
    let own = rustix::thread::gettid();
    let _ = sched::set_affinity(own, &online);
    let allowed = sched::affinity(own)?;
    let usable: Vec<CpuId> = online.into_iter().filter(|cpu| allowed.contains(cpu)).collect();
    let [.., second, sut] = usable.as_slice() else {
        return Err(Error::refused(
            format!("the lab needs 2 CPUs, one for the generator; it may use {}", usable.len()),
            "run it on a larger machine, or widen this process's cpuset (cpuset.cpus, AllowedCPUs)",
        ));
    };
    let elsewhere = usable.iter().rev().find(|cpu| *cpu != sut && !share_a_core(*sut, **cpu));
    Ok((*sut, *elsewhere.unwrap_or(second)))
}

/// Whether two CPUs are hardware threads of one core.
pub fn share_a_core(one: CpuId, other: CpuId) -> bool {
    let siblings = |cpu: CpuId| {
        read(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))
    };
    siblings(one).is_some_and(|list| siblings(other) == Some(list))
}

/// Describes this machine. What cannot be found out is left out or called `unknown`.
pub fn describe(sut: CpuId, generator: CpuId) -> Machine {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        cpuinfo
            .lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
    };
    let memory_mib = read("/proc/meminfo")
        .and_then(|text| text.lines().next()?.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024;
    let slice =
        ["/sys/kernel/debug/sched/base_slice_ns", "/sys/kernel/debug/sched/min_granularity_ns"];
    Machine {
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
        cpu_model: field("model name").unwrap_or_else(|| "unknown".into()),
        cpus: sched::online_cpus().map_or(0, |cpus| cpus.len() as u32),
        virtual_machine: field("flags").is_some_and(|f| f.split(' ').any(|f| f == "hypervisor")),
        memory_mib,
        preemption: preemption(),
        hz: kernel_config("CONFIG_HZ").and_then(|hz| hz.parse().ok()),
        scheduler_slice_ns: slice.iter().find_map(read).and_then(|text| text.parse().ok()),
        mitigations: mitigations(),
        sut_cpu: sut.0,
        generator_cpu: generator.0,
        shared_core: share_a_core(sut, generator),
    }
}

/// The preemption model in force: of a kernel that can switch (PREEMPT_DYNAMIC), the chosen one.
fn preemption() -> String {
    let dynamic = read("/sys/kernel/debug/sched/preempt").and_then(|text| {
        let chosen = text.split('(').nth(1)?.split(')').next()?;
        Some(chosen.to_owned())
    });
    let built = || {
        let models = [
            ("CONFIG_PREEMPT_NONE", "none"),
            ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
            ("CONFIG_PREEMPT_LAZY", "lazy"),
            ("CONFIG_PREEMPT", "full"),
        ];
        models
            .iter()
            .find(|(name, _)| kernel_config(name).is_some())
            .map(|(_, model)| format!("{model} (as built)"))
    };
    dynamic.or_else(built).unwrap_or_else(|| "unknown".into())
}

/// Whether the scheduler leaves the time of interrupts and softirqs out of a process's CPU time
/// (`CONFIG_IRQ_TIME_ACCOUNTING`); `None` where the kernel's configuration is not to be had.
pub fn irq_time_is_apart() -> Option<bool> {
    config_text()?;
    Some(kernel_config("CONFIG_IRQ_TIME_ACCOUNTING").is_some())
}

/// One setting of the running kernel's configuration, where the kernel or `/boot` has it.
fn kernel_config(name: &str) -> Option<String> {
    let text = config_text()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

fn config_text() -> Option<String> {
    let release = read("/proc/sys/kernel/osrelease")?;
    read(format!("/boot/config-{release}")).or_else(|| {
        let output = std::process::Command::new("zcat").arg("/proc/config.gz").output().ok()?;
        String::from_utf8(output.stdout).ok().filter(|text| !text.is_empty())
    })
}

fn mitigations() -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let state = read(entry.path())?;
            (state != "Not affected").then_some((name, state))
        })
        .collect()
}

/// Time that the hypervisor took from a CPU since boot, in seconds (`steal` of `/proc/stat`, in
/// steps of 10 ms).
pub fn steal_s(cpu: CpuId) -> f64 {
    cpu_stat_s(cpu, 8)
}

/// Time that a CPU had nothing to do since boot, in seconds (`idle` of `/proc/stat`).
pub fn idle_s(cpu: CpuId) -> f64 {
    cpu_stat_s(cpu, 4)
}

/// Time of softirqs on a CPU since boot, in seconds (`softirq` of `/proc/stat`): where
/// `CONFIG_IRQ_TIME_ACCOUNTING` is not set, as timer ticks found it.
pub fn softirq_s(cpu: CpuId) -> f64 {
    cpu_stat_s(cpu, 7)
}

/// A column of a CPU's line in `/proc/stat`, seconds.
fn cpu_stat_s(cpu: CpuId, column: usize) -> f64 {
    let wanted = format!("cpu{cpu}");
    read("/proc/stat")
        .and_then(|text| {
            let line = text.lines().find(|line| line.split(' ').next() == Some(&wanted))?;
            line.split_whitespace().nth(column)?.parse::<f64>().ok()
        })
        .map_or(0.0, |ticks| ticks / rustix::param::clock_ticks_per_second() as f64)
}
