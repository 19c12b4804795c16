//! What runs where in one trial, as data: applications, flows, clients, processes beside them.

use std::time::Duration;

use weir_bpf::traffic::{Lengths, Sources, Transport};

use crate::apps::udp;
use crate::programs::{CaptureKind, ClientKind, ServerKind};
use crate::run::Load;

pub use crate::apps::Client;
pub use crate::apps::compute::Beside;

/// Port of the application that is flooded.
pub const FLOODED_PORT: u16 = 5000;
/// Port of the second application, which is sent a light flow.
pub const LIGHT_PORT: u16 = 5001;
/// Port of the echo server.
pub const ECHO_PORT: u16 = 5002;
/// No socket receives it.
pub const CLOSED_PORT: u16 = 5999;
/// Where TCP segments and random sources have their source ports: the low 15 bits are clear.
pub const RANDOM_PORTS: u16 = 1 << 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The first application: `delivered_pps`, `user_cpu`.
    Flooded,
    /// The second, a bystander: `light_pps`, `light_cpu`.
    Light,
    /// Any other.
    Other,
}

/// What an application is.
#[derive(Clone, Debug, PartialEq)]
pub enum AppKind {
    Udp(udp::Server),
    /// Sends back what it gets, or takes it.
    Tcp {
        echo: bool,
    },
    /// Takes what the host forwards ([`Need::Screened`]) from an NFQUEUE, and accepts it.
    Screen,
    /// `weir screen` with these options more, which accepts what the host forwards ([`Need::Egress`]).
    Wall(&'static str),
    /// Sockets that nobody reads, of both families: gate-cost's targets.
    Unread,
    /// A program that nobody here wrote.
    Real(&'static ServerKind),
    /// A program that writes the host's packets to a file.
    Capture(CaptureKind),
}

/// An application on the host under test.
#[derive(Clone, Debug, PartialEq)]
pub struct App {
    pub kind: AppKind,
    pub port: u16,
    pub role: Role,
    /// Its nice value, and its session's.
    pub nice: i32,
    /// It is started for each trial; else it stays up, asleep, until the lab ends.
    pub per_trial: bool,
}

impl App {
    /// An application that stays up, in a session of its own at nice 0.
    pub fn new(kind: AppKind, port: u16, role: Role) -> Self {
        Self { kind, port, role, nice: 0, per_trial: false }
    }

    /// A receiver that computes for so long for each packet.
    pub fn sink(work: Duration, port: u16, role: Role) -> Self {
        Self::new(AppKind::Udp(udp::Server::sink(work)), port, role)
    }
}

/// Where a flow's packets say they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Generator,
    /// The address of an echo server's client: beyond the wire, at an Ethernet address of nobody's.
    Client,
    /// The address of the generator's subnet (/24) that ends in this.
    Last(u8),
    /// 198.19.0.0/16: answers to these are dropped at the far end ([`Need::AnswersDropped`]).
    FloodNet,
    /// An IPv6 address that is on no wire here.
    OffLink,
}

/// Where a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The host under test, by its IPv4 address.
    Host,
    /// The same by its IPv6 address ([`Need::OtherFamily`]).
    OtherFamily,
    Broadcast,
    /// A multicast group that an application has joined.
    Group,
    /// One that nobody has.
    NobodysGroup,
    /// Another host, by its Ethernet address: for a promiscuous port.
    OtherHost,
    /// A host behind the one under test ([`Need::Egress`]).
    Behind,
}

/// What the generator sends to the host under test.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// It is the bystander's; else part of the flood.
    pub light: bool,
    pub transport: Transport,
    /// IPv4 options, for UDP.
    pub options: Vec<u8>,
    /// Payload lengths, bytes.
    pub lengths: Lengths,
    pub sources: Sources,
    /// Which address they have.
    pub from: From,
    pub from_port: u16,
    pub to: To,
    pub port: u16,
    /// Random low bits of the destination port.
    pub port_bits: u8,
    pub load: Load,
    /// Packets sent back to back; 1: evenly spaced.
    pub burst: u16,
}

impl Flow {
    /// UDP from one source to a port of the host, of LRP's 14 bytes.
    pub fn udp(port: u16, load: Load) -> Self {
        Self {
            light: false,
            transport: Transport::Udp,
            options: vec![],
            lengths: Lengths::One(14),
            sources: Sources::One,
            from: From::Generator,
            from_port: 40_000,
            to: To::Host,
            port,
            port_bits: 0,
            load,
            burst: 1,
        }
    }

    /// The same as the bystander's flow. Light flows stand first: what is due goes before the flood.
    pub fn light(port: u16, pps: f64) -> Self {
        Self { light: true, ..Self::udp(port, Load::Rate(pps)) }
    }
}

/// What the wire or the host has beyond an address at each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The far end is a host: an address, no TSO, its interrupts on the generator's CPU.
    FarEnd,
    /// The same, received on the generator's CPU by RPS.
    FarEndRps,
    /// Answers to [`From::FloodNet`] are dropped before the far end's IP.
    AnswersDropped,
    /// The host routes to another host behind it.
    Egress,
    /// The same, and what it forwards goes by way of an NFQUEUE.
    Screened,
    /// A client's address beside the generator's, for the TCP service's client.
    ClientAddress,
    /// An IPv6 address too.
    OtherFamily,
}

/// What is watched beside the usual counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Watch {
    /// What arrives at the far end.
    Replies,
    /// Round trips of the pings that the light flow is.
    RoundTrips,
    /// Whom the kernel and weir's meter charge.
    Accounts,
    /// NAPI polls that take a whole budget.
    Polls,
    /// When these packets of the flood were where, on their way to the first application.
    Steps(udp::Turn),
}

/// How a trial's packets are accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Books {
    /// The generator's datagrams, or a client's, until applications receive them.
    #[default]
    Udp,
    /// Every IP packet of generator and client, until UDP's end or IP's.
    Ip,
    /// Frames that came to the ring, until TCP.
    Tcp,
    /// The generator's frames, until NAPI took them, and the gate counted each once.
    Ring,
    /// The same, but some a capture in the driver ends before the gate.
    Tap,
    /// Not counted: what was lost is told, not balanced.
    None,
}

/// One trial's set-up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    pub apps: Vec<App>,
    /// From the generator, light ones first; at most [`weir_bpf::abi::TRAFFIC_FLOWS`].
    pub flows: Vec<Flow>,
    pub client: Option<Client>,
    /// The same, if nobody here wrote it, with what the case adds to its arguments. It runs for the window, in whole
    /// seconds, and reports.
    pub program: Option<(&'static ClientKind, String)>,
    pub beside: Option<Beside>,
    pub needs: Vec<Need>,
    pub watch: Option<Watch>,
    pub books: Books,
    /// The flooded application is stopped, so that its queue is full.
    pub stopped: bool,
    /// What passes the driver ends at the ingress hook, so that the stack costs nothing.
    pub sink: bool,
    /// Else the generator's CPU works also without a flow, so that the machine is as fast as with one.
    pub without_generator: bool,
    /// The egress of [`Need::Egress`] sends so much at most, Mbit/s.
    pub egress_mbit: Option<u32>,
    /// A flood lasts at least so long before the window.
    pub settle: Duration,
}

impl Scene {
    /// How long it is under way before its window, of an experiment's usual time; not at all, if that is none.
    pub fn warm_up(&self, usual: Duration) -> Duration {
        let settles = !usual.is_zero() && self.flows.iter().any(|flow| !flow.light);
        if settles { usual.max(self.settle) } else { usual }
    }

    /// How long its window is: a program's runs are of whole seconds.
    pub fn window(&self, usual: Duration) -> Duration {
        let seconds = || Duration::from_secs((usual.as_secs_f64().round() as u64).max(1));
        if self.program.is_some() { seconds() } else { usual }
    }
}
