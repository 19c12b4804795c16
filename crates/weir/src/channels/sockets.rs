//! What the kernel and the processes do with a channel's packets, behind the gate.

use std::collections::HashMap;

use serde::Serialize;
use weir_bpf::channels::Channel;
use weir_bpf::units::{IfIndex, PacketsPerSec, SocketInode};
use weir_bpf::verdict::Kind;

use super::rows::Figures;
use crate::owners::{Owner, Ownership, Process, Weight};

/// A channel's sockets.
#[derive(Clone, Debug, Serialize)]
pub struct SocketsRow {
    /// How many.
    pub count: usize,
    /// What waits in their queues and how much may, together.
    pub queue: Queue,
    /// What the kernel has dropped at them since they were made, whichever way it came.
    pub late_drops: u64,
    /// The same per second, between two looks; `null` if there was only one.
    pub late_drops_pps: Option<PacketsPerSec>,
    /// Packets of a `udp` channel that were queued, per second: passed and not dropped late. `null` if that
    /// cannot be told: of other kinds, or where sockets have other channels' packets too.
    pub delivered_pps: Option<PacketsPerSec>,
}

/// A queue's fill.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Queue {
    /// What waits.
    pub used: u64,
    /// How much may.
    pub limit: u64,
    /// Of both: `bytes` as the kernel charges them, or `connections`.
    pub unit: &'static str,
}

/// Who has a channel's sockets open.
#[derive(Clone, Debug, Serialize)]
pub struct OwnerRow {
    /// What the heaviest weighs; `null` if there is none.
    pub weight: Option<Weight>,
    /// Heaviest first; none if the sockets are the kernel's own, or in another pid namespace.
    pub processes: Vec<Process>,
}

/// Looks at what is behind the gates.
pub struct Behind {
    earlier: Option<Ownership>,
    later: Ownership,
    /// Of how many channels each socket is.
    uses: HashMap<SocketInode, usize>,
}

impl Behind {
    /// From one or two looks, and the channels that there are.
    pub fn new(
        earlier: Option<Ownership>,
        later: Ownership,
        channels: impl Iterator<Item = (Channel, IfIndex)>,
    ) -> Self {
        let mut uses = HashMap::new();
        for (channel, interface) in channels {
            let owner = later.of(&channel, interface);
            for inode in owner.iter().flat_map(Owner::local).filter_map(|socket| socket.inode) {
                *uses.entry(inode).or_default() += 1;
            }
        }
        Self { earlier, later, uses }
    }

    /// A channel's sockets and owner; `None` of a kind that has neither.
    pub fn of(
        &self,
        channel: &Channel,
        interface: IfIndex,
        figures: &Figures,
    ) -> Option<(SocketsRow, OwnerRow)> {
        let owner = self.later.of(channel, interface)?;
        let late_drops_pps = self.late_drops_pps(&owner);
        let delivered_pps = self.delivered_pps(channel, &owner, figures, late_drops_pps);
        let sum = |of: fn(&_) -> u32| owner.local().map(|each| u64::from(of(each))).sum();
        let sockets = SocketsRow {
            count: owner.sockets.len(),
            queue: Queue {
                used: sum(|socket| socket.queued),
                limit: sum(|socket| socket.limit),
                unit: if channel.kind == Kind::Tcp { "connections" } else { "bytes" },
            },
            late_drops: sum(|socket| socket.drops),
            late_drops_pps,
            delivered_pps,
        };
        let processes = owner.processes().iter().map(|process| (**process).clone()).collect();
        Some((sockets, OwnerRow { weight: owner.weight(), processes }))
    }

    fn late_drops_pps(&self, owner: &Owner<'_>) -> Option<PacketsPerSec> {
        let earlier = self.earlier.as_ref()?;
        let secs = self.later.at.duration_since(earlier.at).as_secs_f64();
        // One that was not there before had dropped nothing.
        let since = |socket| earlier.losses(socket).unwrap_or_default().drops;
        let drops = owner.local().map(|each| u64::from(each.drops.wrapping_sub(since(each))));
        let drops: u64 = drops.sum();
        (secs > 0.0).then(|| PacketsPerSec(drops as f64 / secs))
    }

    fn delivered_pps(
        &self,
        channel: &Channel,
        owner: &Owner<'_>,
        figures: &Figures,
        late_drops_pps: Option<PacketsPerSec>,
    ) -> Option<PacketsPerSec> {
        let used_once = |inode| self.uses.get(&inode) == Some(&1);
        let alone = owner.local().all(|each| each.inode.is_some_and(used_once));
        if channel.kind != Kind::Udp || !alone || owner.sockets.is_empty() {
            return None;
        }
        let delivered = figures.rates?.passed_pps.0 - late_drops_pps?.0;
        // Fewer than none: packets came and were dropped by another way than the gate.
        (delivered >= 0.0).then_some(PacketsPerSec(delivered))
    }
}
