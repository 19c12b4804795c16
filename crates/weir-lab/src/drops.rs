//! Where packets to a host can be lost, as the kernel and the gate count them.

use weir_bpf::sys::snmp;
use weir_bpf::verdict::Verdict;

use crate::error::Result;
use crate::results::Ledger;
use crate::topology::{Host, SUT_INTERFACE, Topology};
use crate::trial::statistic;
use crate::worker_process::Daemon;

/// Packets; since the host was made, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Refused by the full receive ring.
    pub nic_drop: u64,
    /// Dropped between the driver and UDP.
    pub late_backlog: u64,
    /// Discarded at the gate.
    pub discarded: u64,
    /// Dropped at a full UDP socket.
    pub late_socket: u64,
    /// Any other drop of UDP.
    pub late_other: u64,
}

impl Drops {
    /// Reads them.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn read(topology: &Topology, host: &Host, daemon: Option<&Daemon>) -> Result<Self> {
        let nic_drop = statistic(&topology.generator_sysfs, &host.generator_ifname, "tx_dropped")?;
        let rx_dropped = statistic(&host.sysfs, SUT_INTERFACE, "rx_dropped")?;
        let (v4, v6) = host.netns.run(snmp::udp_stats)??;
        let other = |s: &snmp::UdpStats| s.in_errors.saturating_sub(s.rcvbuf_errors) + s.no_ports;
        Ok(Self {
            nic_drop,
            // A veth counts what its full ring refused at both ends, if it was redirected.
            late_backlog: rx_dropped.saturating_sub(nic_drop),
            discarded: match daemon {
                Some(daemon) => daemon.counters.counters()?.verdict(Verdict::Discard).packets,
                None => 0,
            },
            late_socket: v4.rcvbuf_errors + v6.rcvbuf_errors,
            late_other: other(&v4) + other(&v6),
        })
    }

    /// Between an earlier reading and this one.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            nic_drop: self.nic_drop.saturating_sub(before.nic_drop),
            late_backlog: self.late_backlog.saturating_sub(before.late_backlog),
            discarded: self.discarded.saturating_sub(before.discarded),
            late_socket: self.late_socket.saturating_sub(before.late_socket),
            late_other: self.late_other.saturating_sub(before.late_other),
        }
    }

    /// Where so many packets ended, of which so many were received.
    pub fn ledger(&self, offered: u64, delivered: u64) -> Ledger {
        let Self { nic_drop, late_backlog, discarded, late_socket, late_other } = *self;
        let ends = nic_drop + late_backlog + discarded + late_socket + late_other + delivered;
        let unaccounted = offered as i64 - ends as i64;
        Ledger {
            offered,
            nic_drop,
            discarded,
            late_backlog,
            late_socket,
            late_other,
            delivered,
            beyond_udp: 0,
            unaccounted,
        }
    }
}
