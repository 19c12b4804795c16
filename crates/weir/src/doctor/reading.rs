//! What was read of a host: rates between two looks, and facts. It holds no opinion.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::status::DiversionStatus;
use crate::walls::WallStatus;

/// Begins the entry of [`Reading::unseen`] about sockets' owners.
pub const OWNERS: &str = "whose other users' sockets are";
/// The same: what a weir that runs discards shows nowhere else.
pub const RUNNING: &str = "whether weir runs";

/// Everything that the diagnosis goes by. Rates are per second; `None` is what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reading {
    /// The time between the two looks.
    pub seconds: f64,
    /// The kernel's release.
    pub kernel: String,
    /// Each CPU that is online.
    pub cpus: Vec<CpuReading>,
    /// IP of both families.
    pub ip: Option<IpReading>,
    /// Connection tracking; `None` where it is not loaded.
    pub conntrack: Option<ConntrackReading>,
    /// UDP of both families.
    pub udp: Option<UdpReading>,
    /// TCP of both families.
    pub tcp: Option<TcpReading>,
    /// UDP sockets and TCP listeners; `None` if the kernel does not list them.
    pub sockets: Option<Vec<SocketReading>>,
    /// The interfaces that are up, but for loopback: the one that receives most first, those on top of others
    /// last.
    pub interfaces: Vec<InterfaceReading>,
    /// Packets that loopback received.
    pub loopback_pps: f64,
    /// `net.core.rmem_max`.
    pub rmem_max: Option<u64>,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// Programs that change the same settings as weir or those beside them (`bpftune`, `irqbalance`).
    pub neighbours: Vec<String>,
    /// Interfaces that weir protects now, with the policy `on`.
    pub protected: Vec<String>,
    /// What of this host's addresses no gate knows, and passes.
    pub unlisted: Option<String>,
    /// Interfaces on which a killed weir has left knobs turned.
    pub leftovers: Vec<String>,
    /// Interfaces with a wall of `weir screen`.
    pub walls: Vec<WallStatus>,
    /// What the kernel lacks, and what that costs.
    pub lacks: Vec<String>,
    /// What could not be seen, and what it takes to see it.
    pub unseen: Vec<String>,
}

/// One CPU; shares of its time, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CpuReading {
    /// Its number.
    pub cpu: u32,
    /// In softirqs, ksoftirqd's included. Where packets come in, that is receive processing.
    pub softirq: f64,
    /// In threads that poll NAPI.
    pub napi_threads: f64,
    /// Idle, or waiting for disks.
    pub idle: f64,
    /// Packets that the network stack took on it.
    pub packets_pps: f64,
    /// Packets for which its backlog (`net.core.netdev_max_backlog`) had no room.
    pub backlog_drop_pps: f64,
    /// How often receive processing ended with packets left over (`time_squeeze`).
    pub squeezed_per_sec: f64,
}

/// IP's counters. What GRO has merged counts once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IpReading {
    /// Received, for this host or others.
    pub received_pps: f64,
    /// Of these, forwarded.
    pub forwarded_pps: f64,
    /// Datagrams put together from fragments.
    pub reassembled_pps: f64,
    /// Fragments that were dropped: of other datagrams than those whose rest did not come in time.
    pub fragment_drop_pps: f64,
    /// `net.ipv4.ipfrag_high_thresh`, in bytes.
    pub fragment_memory: Option<u64>,
}

/// The connection tracking table of this network namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConntrackReading {
    /// Its entries.
    pub entries: u64,
    /// How many it may have (`net.netfilter.nf_conntrack_max`, the whole host's); 0 is no limit.
    pub limit: u64,
    /// Packets that it dropped, for want of room or as invalid.
    pub drop_pps: f64,
    /// Entries that were given up for new ones.
    pub given_up_per_sec: f64,
}

/// UDP's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UdpReading {
    /// Read by applications.
    pub delivered_pps: f64,
    /// Dropped, as a socket's queue was full (`RcvbufErrors`).
    pub queue_full_pps: f64,
    /// The same while one of the two looks went on: the sockets may have counted it before that look or after it.
    pub queue_full_unsure_pps: f64,
    /// Dropped for want of memory for UDP (`MemErrors`).
    pub memory_pps: f64,
    /// Dropped, as their checksum was wrong.
    pub checksum_pps: f64,
    /// For a port without a socket.
    pub no_socket_pps: f64,
    /// What UDP's queues hold, in pages.
    pub memory_pages: Option<u64>,
    /// What they may hold, `net.ipv4.udp_mem`.
    pub memory_limit_pages: Option<[u64; 3]>,
}

/// TCP's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcpReading {
    /// SYNs answered with a cookie.
    pub cookies_per_sec: f64,
    /// SYNs dropped at listeners whose accept queues had room.
    pub request_drops_per_sec: f64,
    /// `net.ipv4.tcp_syncookies`. With 0, SYNs are dropped when there is no room to remember them.
    pub syncookies: Option<u64>,
    /// Connections that found the accept queue full.
    pub accept_queue_full_per_sec: f64,
    /// The same while one of the two looks went on.
    pub accept_queue_full_unsure_per_sec: f64,
    /// Handshakes that their client has reset.
    pub handshake_resets_per_sec: f64,
    /// Segments dropped, as their checksum was wrong.
    pub checksum_pps: f64,
}

/// A UDP socket or a TCP listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SocketReading {
    /// It is a TCP listener.
    pub listener: bool,
    /// Where it is bound to, `ADDRESS:PORT`.
    pub local: String,
    /// The port alone.
    pub port: u16,
    /// What waited in its queue, at the look that found more: bytes, of a listener connections.
    pub queued: u32,
    /// How much may.
    pub limit: u32,
    /// Packets dropped at it.
    pub drop_pps: f64,
    /// Of a listener: connections that wait for the last segment of their handshake.
    pub half_open: u32,
    /// Who has it open.
    pub owners: Vec<OwnerReading>,
}

/// A process that has a socket open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnerReading {
    /// Its number.
    pub pid: i32,
    /// Its name, made safe to print.
    pub comm: String,
    /// Its unit, container or control group.
    pub place: Option<String>,
    /// Of its busiest thread: the share of the time in which it ran...
    pub ran: Option<f64>,
    /// ...and in which it wanted to and did not.
    pub waited: Option<f64>,
    /// The CPU on which that thread was at last.
    pub cpu: Option<u32>,
    /// Whether a signal or a debugger has stopped it.
    pub stopped: bool,
    /// The debugger that holds it.
    pub held_by: Option<String>,
    /// The control group with which it is frozen.
    pub frozen: Option<String>,
}

/// The queue by which an interface sends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EgressReading {
    /// Of all the interface's disciplines, the root's first.
    pub kinds: Vec<String>,
    /// The class that this is the queue of, such as `1:10`; `None` of the root's.
    pub class: Option<String>,
    /// Packets sent.
    pub sent_pps: f64,
    /// Packets dropped.
    pub drop_pps: f64,
    /// Packets that waited in it, at the look that found fewer...
    pub waiting: u32,
    /// ...and bytes...
    pub waiting_bytes: u32,
    /// ...and bytes at the look that found more.
    pub waiting_bytes_most: u32,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InterfaceReading {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Whether weir runs on it: its packets begin with an Ethernet or an IP header.
    pub takes_gate: bool,
    /// Those of these interfaces that it is on top of, as a bridge, a bond, a VLAN or PPPoE is: they count the same
    /// packets.
    pub lower: Vec<String>,
    /// The bridge, bond or the like whose port it is.
    pub master: Option<String>,
    /// It is hardware or PPP, or on top of such: others than this host's own containers send to it.
    pub outside: bool,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Packets received.
    pub receive_pps: f64,
    /// Packets lost because the NIC's ring was full.
    pub ring_drop_pps: f64,
    /// Packets that weir's gate discarded there.
    pub discarded_pps: f64,
    /// The reason of most of these.
    pub discarded_as: Option<String>,
    /// The queue by which it sends...
    pub egress: Option<EgressReading>,
    /// ...and those of classes below it.
    pub egress_classes: Vec<EgressReading>,
    /// Its receive queues.
    pub queues: Option<u32>,
    /// How many it could have.
    pub queues_max: Option<u32>,
    /// Whether ethtool counts these apart from transmit queues.
    pub queues_apart: bool,
    /// Receive queues whose packets are steered to other CPUs (RPS).
    pub steered: Vec<String>,
    /// Whether threads poll it.
    pub threaded: Option<bool>,
    /// The XDP program on it.
    pub xdp: Option<String>,
    /// Why weir's gate would go to tc there, not into the driver.
    pub native_cost: Option<String>,
    /// What may take its packets elsewhere; `None` if that could not be seen.
    pub diversions: Option<Vec<DiversionStatus>>,
}
