//! What stays up over a run: one host with one interface, its sockets, the generator, the clocks.

use std::net::IpAddr;

use weir_bpf::bare::{Attached, Bare, BarePrograms};
use weir_bpf::poll_cost::PollClock;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::napi::NapiThread;
use weir_bpf::traffic::{FlowSpec, Generator, Lengths, Sources, Transport};
use weir_bpf::units::{CpuId, Nice, PacketsPerSec};

use super::rows::RowSpec;
use super::sink::{self, Sink};
use super::targets::Targets;
use crate::bench::become_controller;
use crate::error::{Error, Result};
use crate::results::gate_cost::{CostMode, CostSetup, Kind};
use crate::setup;
use crate::topology::{Host, SUT_INTERFACE, Topology};
use crate::worker_process::{Daemon, Worker};

/// The low 15 bits are clear, for random sources.
pub const SOURCE_PORT: u16 = 0x8000;
/// LRP's payload.
const PAYLOAD_LEN: u16 = 14;

/// Everything that a run measures with.
pub struct Rig {
    // In the order in which they must be dropped: what is in the namespaces, then those.
    /// The sockets, IPv4 and IPv6.
    pub targets: [Targets; 2],
    /// The calibrated loop on the SUT's CPU.
    pub speed: Worker,
    /// The bare programs.
    pub bare: BarePrograms,
    /// The clock of polls.
    pub clock: PollClock,
    /// The load generator.
    pub generator: Generator,
    /// The host.
    pub host: Host,
    /// The namespaces.
    pub topology: Topology,
    /// Generator's and host's address, IPv4 and IPv6.
    pub addresses: [(IpAddr, IpAddr); 2],
    /// CPU of the system under test.
    pub sut_cpu: CpuId,
    /// CPU of the generator and the controller.
    pub generator_cpu: CpuId,
}

/// What is attached to the interface. Dropping it detaches it.
pub enum Program {
    /// A bare program.
    Bare(Attached),
    /// `weir run`, its NAPI threads at nice 0: the gate alone.
    Gate(Box<Daemon>),
}

impl Program {
    /// The gate's process, if it is the gate.
    pub fn gate(&self) -> Option<&Daemon> {
        match self {
            Self::Bare(_) => None,
            Self::Gate(daemon) => Some(daemon),
        }
    }
}

impl Rig {
    /// Sets it up.
    ///
    /// # Errors
    /// Without the privilege, or where the kernel refuses.
    pub fn set_up((sut_cpu, generator_cpu): (CpuId, CpuId)) -> Result<Self> {
        become_controller(generator_cpu)?;
        let mut topology = Topology::create()?;
        let host = topology.add_host("cost", false)?;
        host.wait_until_up()?;
        let addresses = [host.address, host.add_other_family()?];
        let targets = host.netns.run(|| {
            Ok::<_, Error>([Targets::open(addresses[0].1)?, Targets::open(addresses[1].1)?])
        })??;
        let speed = Worker::start(&host.netns_path, sut_cpu, &["speed-probe".to_owned()])?;
        let output = host.generator_ifindex;
        let generator = topology.generator.run(|| Generator::load(output))??;
        Ok(Self {
            targets,
            speed,
            bare: BarePrograms::load()?,
            clock: PollClock::load()?,
            generator,
            host,
            topology,
            addresses,
            sut_cpu,
            generator_cpu,
        })
    }

    /// Attaches what a mode has in the driver.
    ///
    /// # Errors
    /// When the daemon does not come up, or the kernel refuses.
    pub fn attach(&self, mode: CostMode) -> Result<Program> {
        let bare = match mode {
            CostMode::GateDiscard | CostMode::GatePass => {
                let (netns, options) = (&self.host.netns_path, ["--nice", "0"]);
                let daemon = Daemon::protect(netns, self.sut_cpu, &options)?;
                return Ok(Program::Gate(Box::new(daemon)));
            }
            CostMode::BareDrop => Bare::Drop,
            CostMode::TouchDrop => Bare::TouchDrop,
            CostMode::BarePass => Bare::Pass,
        };
        let attached = self.host.netns.run(|| self.bare.attach(bare, self.host.ifindex))??;
        Ok(Program::Bare(attached))
    }

    /// Lets what passes end where the stack begins.
    ///
    /// # Errors
    /// Without nftables.
    pub fn attach_sink(&self) -> Result<Sink<'_>> {
        Sink::attach(&self.host.netns, SUT_INTERFACE)
    }

    /// The interface's polling thread, on the SUT's CPU at nice 0, watched from now on.
    ///
    /// # Errors
    /// Where no thread appears.
    pub fn napi_thread(&mut self) -> Result<NapiThread> {
        let threads = self.host.thread_napi(self.sut_cpu, Nice(0))?;
        let [thread] = threads.as_slice() else {
            return Err(Error::refused(
                format!("the lab's interface has {} NAPI instances", threads.len()),
                "gate-cost needs a veth with one queue: please report this",
            ));
        };
        self.clock.watch(thread.napi_id);
        Ok(*thread)
    }

    /// Points the generator at a row's sockets from `port` on.
    ///
    /// # Errors
    /// A flow that contradicts itself.
    pub fn aim(&mut self, row: RowSpec, port: u16, rate: Option<PacketsPerSec>) -> Result<()> {
        self.generator.set_flows(&[FlowSpec {
            transport: if row.kind.tcp() { Transport::TcpSyn } else { Transport::Udp },
            sources: Sources::Random { address_bits: row.address_bits, port_bits: row.port_bits },
            destination_port_bits: row.socket_bits,
            lengths: Lengths::One(PAYLOAD_LEN),
            rate,
            ..FlowSpec::udp(self.host.mac, self.address(row.kind), (SOURCE_PORT, port))
        }])?;
        Ok(())
    }

    /// Generator's and host's address for a kind of packets.
    pub fn address(&self, kind: Kind) -> (IpAddr, IpAddr) {
        self.addresses[usize::from(kind.ipv6())]
    }

    /// What ran where, with a bare program attached for the moment.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn observe(&mut self) -> Result<CostSetup> {
        let _program = self.attach(CostMode::BarePass)?;
        let thread = self.napi_thread()?;
        let (driver, gro) = self.host.netns.run(|| {
            Ok::<_, weir_bpf::Error>((
                ethtool::driver(SUT_INTERFACE)?,
                ethtool::gro(SUT_INTERFACE)?,
            ))
        })??;
        Ok(CostSetup {
            driver,
            attach: "native".into(),
            driver_poll: format!("{}, NAPI thread", setup::place(thread.pid)?),
            gro,
            payload_bytes: PAYLOAD_LEN.into(),
            passed_end: sink::PASSED_END.into(),
        })
    }
}
