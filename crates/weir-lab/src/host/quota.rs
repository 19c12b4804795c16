//! The quota of receive work, which is not a namespace's but the whole machine's, and so put back however the lab ends.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Stdio};

use weir_bpf::units::CpuId;

use crate::apps::{Job, Order};
use crate::error::{Result, cannot};
use crate::host::topology::Topology;
use crate::stop::Undo;

/// No quota, as far as a flooded CPU can do without: a tenth of a second's packets at least.
pub const UNLIMITED: u32 = 100_000;
/// A receive softirq's time, long enough that packets alone are counted.
const TIME_US: u32 = 1_000_000;
/// What a quota is on this kernel. A driver's poll takes its own weight, 64, whatever is set.
const SYSCTLS: [&str; 3] = [
    "/proc/sys/net/core/dev_weight",
    "/proc/sys/net/core/netdev_budget",
    "/proc/sys/net/core/netdev_budget_usecs",
];

/// The machine's own values, and the process that puts them back when the lab is killed.
pub struct Quotas {
    old: [String; 3],
    guardian: Child,
}

impl Quotas {
    pub fn open(topology: &Topology, cpu: CpuId) -> Result<Self> {
        let read = |path| fs::read_to_string(path).map_err(cannot("read", path));
        // Or the next lab would take this one's quota for the machine's.
        let turn = topology.turn.try_clone().map_err(cannot("hand over", "the lab's turn"))?;
        let [weight, packets, time] = SYSCTLS.map(read);
        let old = [weight?, packets?, time?];
        let mut command =
            Order::new(&topology.generator, cpu, Job::PutBack(old.clone())).command()?;
        command.stdin(Stdio::piped()).stdout(Stdio::from(turn));
        let guardian = command.spawn().map_err(cannot("start", "what puts sysctls back"))?;
        Ok(Self { old, guardian })
    }

    /// Lets a poll of the backlog, and a softirq, take so many packets until what is returned is dropped.
    pub fn set(&self, packets: u32) -> Result<Undo<'static>> {
        let old = self.old.clone();
        let undo = Undo(Box::new(move || drop(write(&old))));
        write(&[packets, packets, TIME_US].map(|value| value.to_string())).map(|()| undo)
    }
}

impl Drop for Quotas {
    fn drop(&mut self) {
        // Which ends its standard input.
        let _ = self.guardian.wait();
    }
}

fn write(values: &[String; 3]) -> Result<()> {
    let set = |(path, value)| fs::write(path, value).map_err(cannot("write", path));
    // Each, whatever becomes of the others.
    SYSCTLS.into_iter().zip(values).map(set).fold(Ok(()), Result::and)
}

/// The guardian: waits until whoever started it has closed the other end, or has ended.
pub fn put_back(values: &[String; 3]) -> Result<()> {
    let ended = io::stdin().read_to_end(&mut vec![]);
    write(values).and(ended.map(drop).map_err(cannot("wait for", "the lab")))
}
