//! What the lab runs on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use weir_bpf::sys::sched;
use weir_bpf::units::CpuId;

use crate::error::{Error, Result};

const SCHED: &str = "/sys/kernel/debug/sched";
const REMEDY: &str = "run it on a larger machine, or widen its cpuset (cpuset.cpus, AllowedCPUs)";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub kernel: String,
    pub cpu_model: String,
    pub cpus: u32,
    /// Whether this is a virtual machine (the `hypervisor` CPU flag).
    pub virtual_machine: bool,
    pub memory_mib: u64,
    /// Preemption model in force, such as `none`, `voluntary`, `full`, `lazy`, or `unknown`.
    pub preemption: String,
    pub hz: Option<u32>,
    /// EEVDF base slice, nanoseconds, where it is known.
    pub scheduler_slice_ns: Option<u64>,
    /// Vulnerability mitigations that are not "Not affected", by name.
    pub mitigations: BTreeMap<String, String>,
    pub sut_cpu: u32,
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
    // All that are allowed, not those that the shell chose: a cpuset cannot be widened, `taskset` can.
    let own = rustix::thread::gettid();
    let _ = sched::set_affinity(own, &sched::online_cpus()?);
    let usable = sched::affinity(own)?;
    let [.., second, sut] = usable.as_slice() else {
        return Err(Error::refused(format!("the lab needs 2 CPUs, not {}", usable.len()), REMEDY));
    };
    let elsewhere = usable.iter().rev().find(|cpu| *cpu != sut && !share_a_core(*sut, **cpu));
    Ok((*sut, *elsewhere.unwrap_or(second)))
}

/// Whether two CPUs are hardware threads of one core.
pub fn share_a_core(one: CpuId, other: CpuId) -> bool {
    let list =
        |cpu| read(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    list(one).is_some_and(|siblings| list(other) == Some(siblings))
}

/// Describes this machine. What cannot be found out is left out or called `unknown`.
pub fn describe(sut: CpuId, generator: CpuId) -> Machine {
    let unknown = || "unknown".to_owned();
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = read("/proc/meminfo").unwrap_or_default();
    let memory_kib = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    let slice = ["base_slice_ns", "min_granularity_ns"].map(|file| format!("{SCHED}/{file}"));
    Machine {
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
        cpu_model: field("model name").unwrap_or_else(unknown),
        cpus: sched::online_cpus().map_or(0, |cpus| cpus.len() as u32),
        virtual_machine: field("flags").is_some_and(|f| f.split(' ').any(|f| f == "hypervisor")),
        memory_mib: memory_kib.unwrap_or(0) / 1024,
        preemption: preemption().unwrap_or_else(unknown),
        hz: kernel_config("CONFIG_HZ").and_then(|hz| hz.parse().ok()),
        scheduler_slice_ns: slice.iter().find_map(read).and_then(|text| text.parse().ok()),
        mitigations: mitigations(),
        sut_cpu: sut.0,
        generator_cpu: generator.0,
        shared_core: share_a_core(sut, generator),
    }
}

/// The preemption model in force: of a kernel that can switch (PREEMPT_DYNAMIC), the chosen one.
fn preemption() -> Option<String> {
    let text = read(format!("{SCHED}/preempt")).unwrap_or_default();
    if let Some((_, chosen)) = text.split_once('(') {
        return Some(chosen.split(')').next()?.to_owned());
    }
    let is_built = |name: &str| kernel_config(&format!("CONFIG_PREEMPT{name}")).is_some();
    let models = [("_NONE", "none"), ("_VOLUNTARY", "voluntary"), ("_LAZY", "lazy"), ("", "full")];
    Some(format!("{} (as built)", models.iter().find(|(name, _)| is_built(name))?.1))
}

/// One setting of the running kernel's configuration, where the kernel or `/boot` has it.
fn kernel_config(name: &str) -> Option<String> {
    let boot = format!("/boot/config-{}", read("/proc/sys/kernel/osrelease")?);
    let own = || Command::new("zcat").arg("/proc/config.gz").output().ok();
    let text = read(boot).or_else(|| String::from_utf8(own()?.stdout).ok())?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

fn mitigations() -> BTreeMap<String, String> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten();
    let states = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, read(entry.path())?)));
    states.filter(|(_, state)| state != "Not affected").collect()
}
