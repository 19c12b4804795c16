//! One look at everything that a gate has counted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_bpf::accounts::{Accounts, Charge};
use weir_bpf::alarm::Alarm;
use weir_bpf::channels::{Channel, Channels, ChannelsReader, Seen};
use weir_bpf::counters::{Counter, Counters, CountersReader};
use weir_bpf::prune::Retired;
use weir_bpf::verdict::{Kind, Reason, Verdict};

use crate::error::{Error, Result};
use crate::rundir::RunDir;
use crate::status::InterfaceStatus;

/// The daemon deletes channels every few seconds at most.
const TRIES: u32 = 5;

/// Another process's gate.
pub struct Gate {
    counters: CountersReader,
    channels: ChannelsReader,
    accounts: Accounts,
    alarm: Alarm,
}

/// How long gates count and sample for somebody who does not say again that he reads.
const ASKED_FOR: Duration = Duration::from_secs(1);

/// What it had counted at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// When.
    pub at: Instant,
    /// By reason.
    pub counters: Counters,
    /// By channel, of those that have an address of their own.
    pub channels: Channels,
    /// What channels have been charged for packets that were admitted.
    pub charges: BTreeMap<Channel, Charge>,
    /// Of the channels that the daemon has deleted since they had gone quiet.
    pub retired: Retired,
}

impl Gate {
    /// Opens the gate of an interface's daemon.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or where the daemon has gone.
    pub fn open(status: &InterfaceStatus) -> Result<Self> {
        Ok(Self {
            counters: CountersReader::open(status.counters_map_id)?,
            channels: ChannelsReader::open(status.channel_map_ids)?,
            accounts: Accounts::open(status.channel_map_ids.accounts)?,
            alarm: Alarm::open(status.sleep.alarm_map_id)?,
        })
    }

    /// Has it count for a second, if it sleeps, and no longer unless it is told again. What it discards does not depend on
    /// it.
    pub fn watch(&self) {
        self.alarm.watch(ASKED_FOR.into());
    }

    /// Has it sample what it discards for a second, and no longer unless it is told again.
    pub fn sample(&self) {
        self.alarm.sample(ASKED_FOR.into());
    }

    /// Reads the maps, and with them what the daemon has published of the channels that are in no map any
    /// more: none may have been deleted meanwhile.
    pub fn look(&self, dir: &RunDir, interface: &InterfaceStatus) -> Result<Look> {
        let retired = || {
            let now = InterfaceStatus::read(dir, &interface.key())?;
            let now = now.filter(|now| now.is_of_gate(interface)).map(|now| now.retired);
            now.ok_or_else(|| gone(&interface.interface))
        };
        let mut before = retired()?;
        for _ in 0..TRIES {
            let (at, channels) = (Instant::now(), self.channels.channels()?);
            let counters = self.counters.counters()?;
            let after = retired()?;
            if after == before {
                let charges = self.accounts.charges();
                return Ok(Look { at, counters, channels, charges, retired: after });
            }
            before = after;
        }
        Err(Error::refused(
            format!("the channels of {} change all the time", interface.interface),
            "try again",
        ))
    }
}

/// Its daemon protects it no more.
pub fn gone(interface: &str) -> Error {
    Error::refused(format!("{interface} is no longer protected"), "`weir status` shows what is")
}

impl Look {
    /// Every channel that has been seen. Kinds that have no addresses are one channel each.
    pub fn each(&self) -> impl Iterator<Item = (Channel, Seen)> {
        let kinds = Kind::ALL.into_iter().filter(|kind| !kind.is_addressed());
        let kinds = kinds.map(|kind| (Channel::of_kind(kind), self.of_kind(kind)));
        let addressed = self.channels.by_channel.iter().map(|(channel, seen)| (*channel, *seen));
        addressed.chain(kinds).filter(|(_, seen)| seen.packets() > 0)
    }

    /// What was seen of a channel; nothing, if it is not known.
    pub fn of(&self, channel: &Channel) -> Seen {
        if channel.kind.is_addressed() {
            self.channels.by_channel.get(channel).copied().unwrap_or_default()
        } else {
            self.of_kind(channel.kind)
        }
    }

    /// Everything, by the counters.
    pub fn total(&self) -> Seen {
        let mut shed = Counter::default();
        for reason in Reason::ALL.into_iter().filter(|reason| reason.is_share()) {
            shed += self.counters.get(reason);
        }
        let mut passed = self.counters.verdict(Verdict::Pass);
        passed += self.counters.verdict(Verdict::Deliver);
        Seen { passed, discarded: self.counters.verdict(Verdict::Discard), shed }
    }

    /// What was for lazy sockets: put on their rings, or discarded because those were full.
    pub fn lazy(&self) -> Seen {
        Seen {
            passed: self.counters.verdict(Verdict::Deliver),
            discarded: self.counters.get(Reason::LazyFull),
            ..Seen::default()
        }
    }

    fn of_kind(&self, kind: Kind) -> Seen {
        let mut seen = Seen::default();
        for reason in Reason::ALL.into_iter().filter(|reason| reason.kind() == kind) {
            match reason.verdict() {
                Verdict::Pass | Verdict::Deliver => seen.passed += self.counters.get(reason),
                Verdict::Discard => seen.discarded += self.counters.get(reason),
            }
            if reason.is_share() {
                seen.shed += self.counters.get(reason);
            }
        }
        seen
    }
}
