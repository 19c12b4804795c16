//! The quota of receive work, which is not a namespace's but the whole machine's, and so put back however the lab ends.

use std::fs;
use std::io::{self, Read};
use std::process::{Child, Stdio};

use weir_bpf::units::CpuId;

use crate::apps::{Job, Order};
use crate::error::{Result, cannot};
use crate::host::topology::Topology;
use crate::stop::Undo;

const NET_CORE: &str = "/proc/sys/net/core";
/// No quota, as far as a flooded CPU can do without: a tenth of a second's packets at least.
pub const UNLIMITED: u32 = 100_000;
/// A receive softirq's time, long enough that packets alone are counted.
const TIME_US: u32 = 1_000_000;

/// Names of sysctls, and values.
type Values = Vec<(String, String)>;

/// The machine's own values, and the process that puts them back when the lab is killed.
pub struct Quotas {
    old: Values,
    guardian: Child,
}

impl Quotas {
    pub fn open(topology: &Topology, cpu: CpuId) -> Result<Self> {
        let read = |(name, _): (String, String)| {
            let value = fs::read_to_string(path(&name)).map_err(cannot("read", path(&name)))?;
            Ok((name, value.trim().to_owned()))
        };
        // Or the next lab would take this one's quota for the machine's.
        let turn = topology.turn.try_clone().map_err(cannot("hand over", "the lab's turn"))?;
        let old: Values = values(UNLIMITED).into_iter().map(read).collect::<Result<_>>()?;
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
        write(&values(packets)).map(|()| undo)
    }
}

impl Drop for Quotas {
    fn drop(&mut self) {
        // Which ends its standard input.
        let _ = self.guardian.wait();
    }
}

/// What a quota is on this kernel. A driver's poll takes its own weight, 64, whatever is set.
fn values(packets: u32) -> Values {
    let all =
        [("dev_weight", packets), ("netdev_budget", packets), ("netdev_budget_usecs", TIME_US)];
    all.map(|(name, value)| (name.to_owned(), value.to_string())).into()
}

fn path(name: &str) -> String {
    format!("{NET_CORE}/{name}")
}

fn write(values: &Values) -> Result<()> {
    let set = |(name, value): &(String, String)| {
        fs::write(path(name), value).map_err(cannot("write", path(name)))
    };
    // Each, whatever becomes of the others.
    values.iter().map(set).fold(Ok(()), Result::and)
}

/// The guardian: waits until whoever started it has closed the other end, or has ended.
pub fn put_back(values: &Values) -> Result<()> {
    let ended = io::stdin().read_to_end(&mut vec![]);
    write(values).and(ended.map(drop).map_err(cannot("wait for", "the lab")))
}
