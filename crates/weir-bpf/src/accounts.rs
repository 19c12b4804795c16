//! What the packets of each channel cost the CPU that receives them, and may: `bpf/account.h`, `bpf/meter.h`.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::LazyLock;

use libbpf_rs::MapCore;
use rustix::time::{ClockId, clock_gettime};

use crate::abi;
use crate::channels::{self, Channel};
use crate::error::Result;
use crate::mapped::Mapped;
use crate::object::open_map;
use crate::skeleton::input::types;
use crate::timens;
use crate::units::{CpuId, Nanos, Permille};
use crate::verdict::Kind;

/// How many channels each CPU charges one by one.
pub(crate) const ACCOUNTS: u32 = abi::ACCOUNTS as u32;

/// One channel on one CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    /// Where it is kept: another channel may take the place a second after its last packet.
    pub place: u32,
    /// Whose it is. Channels for which there was no place are charged to their kind, which has no address.
    pub channel: Channel,
    /// What its packets that were admitted have cost.
    pub charged: Nanos,
    /// How many they were.
    pub packets: u64,
    /// What one of them has cost of late; none if none was.
    pub cost: Option<Nanos>,
    /// How many were discarded for its limit, about; wraps around.
    pub shed: u32,
    /// When one was last admitted, `CLOCK_MONOTONIC`; about.
    pub used: Nanos,
    /// Of a listener: a connection that it has accepted has been seen.
    pub serves: bool,
}

/// All accounts of a host.
pub struct Accounts {
    mapped: Mapped<types::weir_account>,
    cpus: u32,
}

/// What admitted packets have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// CPU time.
    pub time: Nanos,
    /// How many they were.
    pub packets: u64,
}

impl Accounts {
    /// Of this map, with places for so many CPUs.
    pub(crate) fn of(map: BorrowedFd<'_>, cpus: u32) -> Result<Self> {
        Ok(Self { mapped: Mapped::of(map, (cpus * ACCOUNTS) as usize)?, cpus })
    }

    /// Those of another process's gate, by the kernel's number of their map.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or where there is no such map any more.
    pub fn open(map_id: u32) -> Result<Self> {
        let map = open_map(map_id, "the meter's accounts")?;
        Self::of(map.as_fd(), map.max_entries() / ACCOUNTS)
    }

    /// What each channel has been charged, on all CPUs together.
    pub fn charges(&self) -> BTreeMap<Channel, Charge> {
        let mut charges = BTreeMap::<Channel, Charge>::new();
        for cpu in 0..self.cpus {
            for account in self.read(CpuId(cpu)) {
                let charge = charges.entry(account.channel).or_default();
                charge.time += account.charged;
                charge.packets += account.packets;
            }
        }
        charges
    }

    /// Those of a CPU that have been used.
    pub fn read(&self, cpu: CpuId) -> Vec<Account> {
        (0..ACCOUNTS).filter_map(|place| self.one(cpu, place)).collect()
    }

    /// Holds an account to a share of its CPU until then (`CLOCK_MONOTONIC`).
    pub fn limit(&self, cpu: CpuId, place: u32, share: Permille, until: Nanos) {
        let at = cpu.0 * ACCOUNTS + place;
        let limit = u64::from(share.0) * abi::LIMIT_ONE as u64 / abi::SHARE_ONE as u64;
        let limit = u32::try_from(limit.max(1)).unwrap_or(u32::MAX);
        self.mapped.set(at, offset_of!(types::weir_account, limit), limit);
        self.mapped.set(at, offset_of!(types::weir_account, limited_until_ns), until.0);
    }

    /// Lets it have what it wants.
    pub fn unlimit(&self, cpu: CpuId, place: u32) {
        let at = cpu.0 * ACCOUNTS + place;
        self.mapped.set(at, offset_of!(types::weir_account, limited_until_ns), 0_u64);
    }

    /// Tells the gate that a CPU is short until then (`CLOCK_MONOTONIC`), so that packets of a kind are to cost less than
    /// they might.
    pub fn short(&self, cpu: CpuId, kind: Kind, until: Nanos) {
        let at = cpu.0 * ACCOUNTS + kind as u32;
        self.mapped.set(at, offset_of!(types::weir_account, short_until_ns), until.0);
    }

    fn one(&self, cpu: CpuId, place: u32) -> Option<Account> {
        let account = self.mapped.read(cpu.0 * ACCOUNTS + place);
        if account.used_ns == 0 && account.shed == 0 {
            return None;
        }
        let kind = Kind::of(account.key.kind.into())?;
        let is_kinds = place < Kind::ALL.len() as u32;
        let channel = if is_kinds {
            Channel::of_kind(kind)
        } else {
            let types::weir_channel_key { address, egress_ifindex, port, family, .. } = account.key;
            channels::channel(kind, family.into(), &address, port, egress_ifindex)
        };
        Some(Account {
            place,
            channel,
            charged: Nanos(account.charged_ns),
            packets: account.packets,
            cost: account.cost_ns.checked_div(account.cost_packets).map(Nanos),
            shed: account.shed,
            used: Nanos(account.used_ns),
            serves: account.serves != 0,
        })
    }
}

/// `CLOCK_MONOTONIC`, as the kernel half reads it: whatever this process's time namespace makes of it.
pub fn monotonic_now() -> Nanos {
    static AHEAD: LazyLock<i64> = LazyLock::new(|| timens::ahead("monotonic"));
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec * 1_000_000_000 + now.tv_nsec - *AHEAD;
    Nanos(now.unsigned_abs())
}

/// The point on it that is so far from now.
pub fn until(time: impl Into<Nanos>) -> Nanos {
    monotonic_now() + time.into()
}
