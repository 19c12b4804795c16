//! What each CPU has done, by the kernel's own account (proc(5), `/proc/stat`).

use std::collections::BTreeMap;
use std::{fs, io};

/// Of one CPU, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTimes {
    /// All of it that this machine had: not what is `steal`.
    pub total: u64,
    /// While nobody wanted it, with or without waiting for a disk.
    pub idle: u64,
    /// The same without.
    pub idle_alone: u64,
    /// In interrupts.
    pub irq: u64,
    /// In softirqs.
    pub softirq: u64,
    /// What the hypervisor gave to others.
    pub steal: u64,
}

/// By CPU.
///
/// # Errors
/// If the file cannot be read.
pub fn read() -> io::Result<BTreeMap<u32, CpuTimes>> {
    fs::read_to_string("/proc/stat").map(|text| parse(&text))
}

/// Lines `cpuN user nice system idle iowait irq softirq steal guest guest_nice`; guests' time is user's already.
fn parse(text: &str) -> BTreeMap<u32, CpuTimes> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let cpu = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        let at = |index: usize| ticks.get(index).copied();
        let (total, idle_alone) = (ticks.iter().take(7).sum(), at(3)?);
        let [irq, softirq, steal] = [at(5)?, at(6)?, at(7)?];
        let idle = idle_alone + at(4)?;
        Some((cpu, CpuTimes { total, idle, idle_alone, irq, softirq, steal }))
    };
    // The first line, of all CPUs together, has no number.
    text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpus_line_is_read() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 1 1\ncpu3 0 0 0 1 0 0 0 0 0 0\nintr 5\n";
        let times = parse(text);
        let first = CpuTimes { total: 28, idle: 9, idle_alone: 4, irq: 6, softirq: 7, steal: 8 };
        assert_eq!(times[&0], first);
        assert_eq!(times.keys().copied().collect::<Vec<_>>(), [0, 3]);
    }
}
