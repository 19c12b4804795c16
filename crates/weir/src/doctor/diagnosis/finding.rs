//! What can be wrong, and how it is said.

use std::net::SocketAddr;

use serde::Serialize;
use weir_policy::Settings;

use super::super::reading::{CpuReading, InterfaceReading, Reading};

/// What remains to processes on a CPU beyond this is less than half of what weir leaves them by default.
pub(super) const MOST: f64 = 0.75;
/// Nothing of a CPU is left to give.
pub(super) const EXHAUSTED: f64 = 0.05;
/// Fewer packets than this cannot take half a CPU: none costs the kernel more than 100 microseconds.
pub(super) const BUSY_PPS: f64 = 5_000.0;
/// A queue that is fuller than this has no room for a packet of the usual size.
pub(super) const FULL: f64 = 0.9;

/// So many packets that were lost in a long look are told, however long it took.
const LOST_MIN: f64 = 10.0;

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A wall stands whose screen has ended.
    WallLeft,
    /// UDP's memory is used up.
    UdpMemory,
    /// The connection tracking table is full.
    ConntrackFull,
    /// Fragments find no memory to wait in for the rest of their datagrams.
    FragmentsLost,
    /// Connection requests come faster than a listener can remember them.
    SynFlood,
    /// Receive processing takes the time that processes need.
    Livelock,
    /// weir discards packets.
    EarlyDiscard,
    /// A UDP socket's queue is full.
    SocketFull,
    /// A listener's accept queue is full.
    AcceptQueueFull,
    /// The NIC's ring is full.
    RingFull,
    /// A CPU's backlog is full.
    BacklogFull,
    /// The queue by which an interface sends is full.
    EgressFull,
    /// One CPU receives for all.
    OneCpuReceives,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sureness {
    /// The kernel counts it.
    Measured,
    /// What was measured has hardly another explanation.
    Likely,
    /// One explanation of several.
    Possible,
}

/// Whether weir helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Help {
    /// It ends what was found.
    Cures,
    /// It makes it cheaper, or keeps others from harm.
    Contains,
    /// It does nothing about it.
    None,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// How sure that is.
    pub sureness: Sureness,
    /// The same for a person, with the figures.
    pub what: String,
    /// Whose it is: a socket and its process, an interface, a CPU.
    pub whose: Option<String>,
    /// Whether weir helps...
    pub weir: Help,
    /// ...and how, or why not.
    pub weir_does: String,
    /// What to do: commands, and changes to programs.
    pub advice: Vec<String>,
}

impl Reading {
    /// What comes in by all interfaces, each packet once.
    pub fn receive_pps(&self) -> f64 {
        let lowest = self.interfaces.iter().filter(|each| each.lower.is_empty());
        lowest.map(|each| each.receive_pps).sum()
    }

    pub(super) fn busiest(&self) -> Option<&InterfaceReading> {
        self.interfaces.first()
    }

    /// Where weir is to run: on the interface that hands most packets to sockets, before any on which only this host's
    /// own containers send. A port's packets go to its master, and those of a VLAN or of PPPoE to its interface.
    pub fn best(&self) -> Option<&InterfaceReading> {
        self.best_of(|_| true)
    }

    /// The same of some.
    pub(super) fn best_of(
        &self,
        some: impl Fn(&InterfaceReading) -> bool,
    ) -> Option<&InterfaceReading> {
        let own_pps = |each: &InterfaceReading| {
            let on_top = self.interfaces.iter().filter(|top| {
                top.master.as_ref() != Some(&each.name) && top.lower.contains(&each.name)
            });
            each.receive_pps - on_top.map(|top| top.receive_pps).sum::<f64>()
        };
        // Of several that are alike the first.
        let interfaces = self.interfaces.iter().rev().filter(sees_packets);
        interfaces.filter(|each| some(each)).max_by(|one, other| {
            one.outside.cmp(&other.outside).then_with(|| own_pps(one).total_cmp(&own_pps(other)))
        })
    }

    /// The same for what comes to one address: on the interface that has it, if one has.
    pub(super) fn best_for(&self, local: &str) -> Option<&InterfaceReading> {
        let local = local.parse::<SocketAddr>().ok().map(|local| local.ip().to_canonical());
        let has = |each: &&InterfaceReading| local.is_some_and(|ip| each.addresses.contains(&ip));
        self.interfaces.iter().filter(sees_packets).find(has).or_else(|| self.best())
    }

    /// Whether so much was lost that it is worth telling: one packet now and then is not.
    pub(super) fn is_loss(&self, pps: f64) -> bool {
        pps >= 1.0 || pps * self.seconds >= LOST_MIN
    }

    /// Packets that were lost at sockets.
    pub(super) fn socket_drop_pps(&self) -> f64 {
        let udp = self.udp.as_ref().map_or(0.0, |udp| udp.queue_full_pps + udp.memory_pps);
        let tcp =
            self.tcp.as_ref().map_or(0.0, |tcp| tcp.request_drops_per_sec + tcp.cookies_per_sec);
        udp + tcp
    }

    /// Packets that were lost here after the NIC had them.
    pub(super) fn drop_pps(&self) -> f64 {
        self.socket_drop_pps() + self.cpus.iter().map(|cpu| cpu.backlog_drop_pps).sum::<f64>()
    }

    /// The CPUs on which softirqs leave processes less than weir would.
    pub(super) fn starved(&self) -> Vec<&CpuReading> {
        let usual = Settings::default().user_share.rest();
        let too_much = if self.drop_pps() > 0.0 { usual } else { MOST };
        let starved = |cpu: &&CpuReading| cpu.idle < EXHAUSTED && cpu.softirq >= too_much;
        self.cpus.iter().filter(starved).collect()
    }

    fn protects(&self, at: Option<&InterfaceReading>) -> bool {
        at.is_some_and(|at| self.protected.contains(&at.name))
    }

    /// Whether weir ends there what it can end: not if something keeps it from that, or it runs already.
    pub(super) fn cures(&self, at: Option<&InterfaceReading>) -> Help {
        match self.hindrance(at).is_some() || self.protects(at) {
            true => Help::Contains,
            false => Help::Cures,
        }
    }

    /// That a gate which is there passes packets to some addresses. Of those that it judges hardly any would be lost.
    pub(super) fn passes(&self, at: Option<&InterfaceReading>) -> Option<String> {
        let unlisted = self.unlisted.as_ref().filter(|_| self.protects(at))?;
        Some(format!(
            "nothing if they are for {unlisted} of this host's own: its gate knows too few of these, and passes what \
             is for the others (no-route)"
        ))
    }

    /// The first step with weir, on the interface where it is to run.
    pub(super) fn try_weir(&self, at: Option<&InterfaceReading>) -> String {
        match at {
            Some(interface) if self.protects(at) => {
                format!("weir protects {0} already: sudo weir channels {0}", interface.name)
            }
            Some(interface) => {
                format!("sudo weir run {} --policy shadow, then without it", interface.name)
            }
            None => "sudo weir run IFACE --policy shadow".into(),
        }
    }

    /// Why weir's gate would discard nothing there.
    pub(super) fn hindrance(&self, at: Option<&InterfaceReading>) -> Option<String> {
        let Some(interface) = at else {
            let InterfaceReading { name, master, .. } = self.busiest()?;
            return Some(match master {
                Some(master) => format!(
                    "packets of {name} go to its master {master}, so weir would discard nothing early there"
                ),
                None => format!(
                    "packets of {name} begin with neither Ethernet nor IP, and weir does not run on it"
                ),
            });
        };
        let diversion = interface.diversions.iter().flatten().find(|each| each.passes_all)?;
        Some(format!(
            "on {} {} ({}), so weir would discard nothing early there",
            interface.name, diversion.description, diversion.detail
        ))
    }
}

/// Whether a gate there sees packets on their way to sockets. To a VRF's own device the kernel hands them only after tc
/// (`vrf_ip_rcv()`).
fn sees_packets(interface: &&InterfaceReading) -> bool {
    interface.takes_gate && interface.master.is_none() && interface.driver.as_deref() != Some("vrf")
}

/// What weir does at an interface, unless something on it keeps it from that, or it does so already.
pub(super) fn hindered(reading: &Reading, at: Option<&InterfaceReading>, does: &str) -> String {
    match (reading.hindrance(at), at.filter(|_| reading.protects(at))) {
        (Some(hindrance), _) => format!("{does}; but {hindrance}"),
        (None, Some(interface)) => {
            format!("{does}; it protects {} already, and this is left", interface.name)
        }
        (None, None) => does.into(),
    }
}
