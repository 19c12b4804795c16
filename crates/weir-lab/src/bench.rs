//! Everything that stays up over a run: the hosts, their applications, the generator.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rustix::process::Pid;
use weir_bpf::sys::{napi, sched};
use weir_bpf::traffic::{FlowSpec, Generator, Lengths};
use weir_bpf::units::{CpuId, Nice, PacketsPerSec};

use crate::error::{Error, Result};
use crate::kinds::{self, Beside};
use crate::results::Mode;
use crate::results::kinds::Kind;
use crate::topology::{Host, SUT_INTERFACE, Topology};
use crate::trial::Flood;
use crate::worker::App;
use crate::worker_process::{Daemon, Worker};

/// Port of the application under test.
pub const FLOODED_PORT: u16 = 5000;
/// Port of the second application, which is sent a light flow.
pub const BYSTANDER_PORT: u16 = 5001;
/// Port of the echo server, in trials that have one.
pub const ECHO_PORT: u16 = 5002;
/// Ports of the two receivers of one session, the heavier first.
const RECEIVER_PORTS: [u16; 2] = [5005, 5006];
/// Their nice values.
pub const RECEIVER_NICE: [Nice; 2] = [Nice(0), Nice(10)];
const SOURCE_PORT: u16 = 40_000;

/// Puts the calling thread, which makes and watches everything, on the generator's CPU.
///
/// # Errors
/// Without the privilege.
pub fn become_controller(generator_cpu: CpuId) -> Result<()> {
    sched::pin_current_thread(generator_cpu)?;
    // It sleeps nearly always; when it wakes it must not wait for the generator.
    sched::set_nice(rustix::thread::gettid(), Nice(-10))?;
    Ok(())
}

/// The packets and the application of a run.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The application under test.
    pub app: App,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// UDP payload, bytes.
    pub payload_len: u16,
    /// Receive buffer to ask for, bytes; 0: the system's default.
    pub rcvbuf: usize,
}

/// One system under test with its applications.
pub struct Sut {
    /// Namespace and interface.
    pub host: Host,
    /// The application that is flooded.
    pub flooded: Worker,
    /// The one beside it.
    pub bystander: Worker,
}

/// Two receivers in one session, which end with its leader.
pub struct Receivers {
    _leader: Worker,
    /// The heavier and the lighter.
    pub both: [Worker; 2],
}

/// Hosts, applications and generator of one run.
pub struct Bench {
    // In the order in which they must be dropped: processes, then the namespaces they are in.
    suts: BTreeMap<Mode, Sut>,
    beside: BTreeMap<Mode, Beside>,
    receivers: BTreeMap<Mode, Receivers>,
    /// The calibrated loop on the SUT's CPU.
    pub speed: Worker,
    /// The load generator.
    pub generator: Generator,
    /// The namespaces.
    pub topology: Topology,
    /// What the applications are sent.
    pub workload: Workload,
    /// CPU of the system under test.
    pub sut_cpu: CpuId,
    /// CPU of the generator and the controller.
    pub generator_cpu: CpuId,
}

impl Bench {
    /// Sets everything up for these modes.
    ///
    /// # Errors
    /// Without the privilege, or where the kernel refuses.
    pub fn set_up(
        modes: &[Mode],
        workload: Workload,
        (sut_cpu, generator_cpu): (CpuId, CpuId),
    ) -> Result<Self> {
        become_controller(generator_cpu)?;
        let mut topology = Topology::create()?;
        let mut suts = BTreeMap::new();
        for mode in modes {
            let host = topology.add_host(mode.name(), workload.ipv6)?;
            match mode {
                Mode::Threaded => drop(host.thread_napi(sut_cpu, Nice(0))?),
                Mode::Niced => drop(host.thread_napi(sut_cpu, Nice(19))?),
                // `crate::interrupts` and `weir run` make these.
                Mode::Stock | Mode::Gate | Mode::IdleWeir | Mode::Weir | Mode::Softirq => {}
            }
            let sink = |port| {
                let mut role = udp_role("udp-sink", &host, port, workload);
                role.extend(["--app".into(), workload.app.name().into()]);
                Worker::start(&host.netns_path, sut_cpu, &role)
            };
            let (flooded, bystander) = (sink(FLOODED_PORT)?, sink(BYSTANDER_PORT)?);
            suts.insert(*mode, Sut { host, flooded, bystander });
        }
        let first = suts.values().next().ok_or_else(|| {
            Error::refused("no mode was asked for", "name at least one with --modes")
        })?;
        let speed = Worker::start(&first.host.netns_path, sut_cpu, &["speed-probe".to_owned()])?;
        let output = first.host.generator_ifindex;
        let generator = topology.generator.run(|| Generator::load(output))??;
        Ok(Self {
            suts,
            beside: BTreeMap::new(),
            receivers: BTreeMap::new(),
            speed,
            generator,
            topology,
            workload,
            sut_cpu,
            generator_cpu,
        })
    }

    /// Adds to each host what floods of all kinds take.
    ///
    /// # Errors
    /// As [`Beside::add`].
    pub fn add_beside(&mut self) -> Result<()> {
        for (mode, sut) in &self.suts {
            self.beside.insert(*mode, Beside::add(&self.topology, &sut.host, self.sut_cpu)?);
        }
        Ok(())
    }

    /// What one mode's host has for floods of all kinds.
    ///
    /// # Errors
    /// Where [`Bench::add_beside`] was not called.
    pub fn beside(&self, mode: Mode) -> Result<&Beside> {
        self.beside
            .get(&mode)
            .ok_or_else(|| Error::refused("a host lacks what a flood is for", "please report this"))
    }

    /// Adds to each host two receivers of one session, at [`RECEIVER_NICE`], that compute for each packet.
    ///
    /// # Errors
    /// When they do not start.
    pub fn add_receivers(&mut self, passes: u32) -> Result<()> {
        for (mode, sut) in &self.suts {
            let member = |(port, nice): (u16, Nice)| {
                let mut role = udp_role("udp-sink", &sut.host, port, self.workload);
                role.extend(["--app".into(), self.workload.app.name().into()]);
                role.push(format!("--passes={passes}"));
                (nice, role)
            };
            let members: Vec<_> =
                RECEIVER_PORTS.into_iter().zip(RECEIVER_NICE).map(member).collect();
            let (leader, both) =
                Worker::start_session(&sut.host.netns_path, self.sut_cpu, &members)?;
            let both = <[Worker; 2]>::try_from(both)
                .map_err(|_| Error::refused("a session lacks a receiver", "please report this"))?;
            self.receivers.insert(*mode, Receivers { _leader: leader, both });
        }
        Ok(())
    }

    /// One mode's two receivers, the heavier first.
    ///
    /// # Errors
    /// Where [`Bench::add_receivers`] was not called.
    pub fn receivers(&self, mode: Mode) -> Result<&[Worker; 2]> {
        let receivers = self.receivers.get(&mode).map(|receivers| &receivers.both);
        receivers.ok_or_else(|| Error::refused("a host lacks its receivers", "please report this"))
    }

    /// One mode's system under test.
    pub fn sut(&self, mode: Mode) -> &Sut {
        &self.suts[&mode]
    }

    /// Points the generator at one mode's host.
    ///
    /// # Errors
    /// Flows that contradict themselves.
    pub fn aim(
        &mut self,
        mode: Mode,
        flood: Flood,
        bystander: Option<PacketsPerSec>,
    ) -> Result<()> {
        // The light flow stands first: what is due goes before the flood.
        let mut flows = vec![];
        if bystander.is_some() {
            flows.push(self.flow(mode, BYSTANDER_PORT, bystander));
        }
        flows.extend(self.flood(mode, flood));
        self.set_flows(mode, &flows)
    }

    /// Points the generator at a mode's echo server, lightly, and at the first application.
    ///
    /// # Errors
    /// Flows that contradict themselves.
    pub fn aim_pings(
        &mut self,
        mode: Mode,
        flood: Flood,
        pings: Option<PacketsPerSec>,
    ) -> Result<()> {
        let mut flows = vec![];
        if pings.is_some() {
            flows.push(self.echo_flow(mode, pings));
        }
        flows.extend(self.flood(mode, flood));
        self.set_flows(mode, &flows)
    }

    /// Points the generator at one mode's host with a flood of some kind; returns of how many flows.
    ///
    /// # Errors
    /// Flows that contradict themselves.
    pub fn aim_kind(
        &mut self,
        mode: Mode,
        (kind, flood): (Kind, Flood),
        bystander: Option<PacketsPerSec>,
    ) -> Result<usize> {
        let mut flows = vec![];
        if bystander.is_some() {
            flows.push(self.flow(mode, BYSTANDER_PORT, bystander));
        }
        let base = self.flow(mode, FLOODED_PORT, None);
        let flood = kinds::flows(kind, flood, &base, self.beside(mode)?);
        let count = flood.len();
        flows.extend(flood);
        self.set_flows(mode, &flows)?;
        Ok(count)
    }

    /// Points the generator at one mode's two receivers: the lighter's flow first.
    ///
    /// # Errors
    /// Flows that contradict themselves.
    pub fn aim_at_receivers(
        &mut self,
        mode: Mode,
        flood: Flood,
        lighter: Option<PacketsPerSec>,
    ) -> Result<()> {
        let [heavier_port, lighter_port] = RECEIVER_PORTS;
        let mut flows = vec![];
        if lighter.is_some() {
            flows.push(self.flow(mode, lighter_port, lighter));
        }
        flows.extend(self.flood_to(mode, heavier_port, flood));
        self.set_flows(mode, &flows)
    }

    /// Points the generator at one mode's host with a flood of three sorts; returns of how many flows.
    ///
    /// # Errors
    /// Flows that contradict themselves.
    pub fn aim_mixed(&mut self, mode: Mode, flood: Flood) -> Result<usize> {
        let flows = kinds::mixed(flood, &self.flow(mode, FLOODED_PORT, None));
        self.set_flows(mode, &flows)?;
        Ok(flows.len())
    }

    /// Points the generator at a mode's echo server.
    ///
    /// # Errors
    /// Flows that contradict themselves.
    pub fn aim_at_echo(&mut self, mode: Mode, flood: Flood) -> Result<()> {
        let rate = match flood {
            Flood::Off => return self.set_flows(mode, &[]),
            Flood::Paced(rate) => Some(rate),
            Flood::Top => None,
        };
        self.set_flows(mode, &[self.echo_flow(mode, rate)])
    }

    /// Points the generator at one port of one mode's host.
    ///
    /// # Errors
    /// A flow that contradicts itself.
    pub fn aim_at_port(&mut self, mode: Mode, port: u16, rate: PacketsPerSec) -> Result<()> {
        let flow = self.flow(mode, port, Some(rate));
        self.set_flows(mode, &[flow])
    }

    /// Points the generator at another host's flooded port, at its top rate.
    ///
    /// # Errors
    /// A flow that contradicts itself.
    pub fn aim_at_host(&mut self, host: &Host) -> Result<()> {
        self.generator.set_output(host.generator_ifindex);
        self.generator.set_flows(&[self.flow_to(host, FLOODED_PORT, None)])?;
        Ok(())
    }

    fn flood(&self, mode: Mode, flood: Flood) -> Option<FlowSpec> {
        self.flood_to(mode, FLOODED_PORT, flood)
    }

    fn flood_to(&self, mode: Mode, port: u16, flood: Flood) -> Option<FlowSpec> {
        match flood {
            Flood::Off => None,
            Flood::Paced(rate) => Some(self.flow(mode, port, Some(rate))),
            Flood::Top => Some(self.flow(mode, port, None)),
        }
    }

    fn echo_flow(&self, mode: Mode, rate: Option<PacketsPerSec>) -> FlowSpec {
        let mut flow = self.flow(mode, ECHO_PORT, rate);
        flow.address.0 = self.suts[&mode].host.client;
        flow
    }

    fn flow(&self, mode: Mode, port: u16, rate: Option<PacketsPerSec>) -> FlowSpec {
        self.flow_to(&self.suts[&mode].host, port, rate)
    }

    fn flow_to(&self, host: &Host, port: u16, rate: Option<PacketsPerSec>) -> FlowSpec {
        FlowSpec {
            lengths: Lengths::One(self.workload.payload_len),
            rate,
            ..FlowSpec::udp(host.mac, host.address, (SOURCE_PORT, port))
        }
    }

    /// Points the generator at one mode's host, with these flows.
    ///
    /// # Errors
    /// Flows that contradict themselves.
    pub fn set_flows(&mut self, mode: Mode, flows: &[FlowSpec]) -> Result<()> {
        self.generator.set_output(self.suts[&mode].host.generator_ifindex);
        self.generator.set_flows(flows)?;
        Ok(())
    }

    /// Generates on the generator's CPU while `body` runs; see [`Generator::run_while`].
    ///
    /// # Errors
    /// When the kernel refuses the run.
    pub fn generate_while<T>(&self, body: impl FnOnce() -> T) -> Result<T> {
        let (netns, cpu) = (&self.topology.generator, self.generator_cpu);
        Ok(self.generator.run_while(netns, Some(cpu), body)?)
    }

    /// Starts a compute-bound process on the CPU of a mode's host.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_neighbour(&self, mode: Mode) -> Result<Worker> {
        Worker::start(&self.suts[&mode].host.netns_path, self.sut_cpu, &["compute".to_owned()])
    }

    /// Starts a process on a mode's host that takes what nobody else wants of the CPU.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_spinner(&self, mode: Mode) -> Result<Worker> {
        Worker::start(&self.suts[&mode].host.netns_path, self.sut_cpu, &["spinner".to_owned()])
    }

    /// Starts an echo server on a mode's host.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_echo(&self, mode: Mode) -> Result<Worker> {
        let host = &self.suts[&mode].host;
        let role = udp_role("udp-echo", host, ECHO_PORT, self.workload);
        Worker::start(&host.netns_path, self.sut_cpu, &role)
    }

    /// The threads that poll a mode's interface; none where softirq does.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn pollers(&self, mode: Mode) -> Result<Vec<Pid>> {
        let host = &self.suts[&mode].host;
        let threads = host.netns.run(|| napi::napi_threads(host.ifindex, SUT_INTERFACE))??;
        Ok(threads.iter().map(|thread| thread.pid).collect())
    }

    /// Starts `weir run` for a mode that has it, with more options.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_daemon(&self, mode: Mode, options: &[&str]) -> Result<Option<Daemon>> {
        let special: &[&str] = match mode {
            Mode::Stock | Mode::Threaded | Mode::Niced => return Ok(None),
            Mode::Gate => &["--nice", "0"],
            Mode::IdleWeir => &["--policy", "off"],
            Mode::Weir => &[],
            Mode::Softirq => &["--napi", "softirq"],
        };
        let options = [special, options].concat();
        Daemon::protect(&self.suts[&mode].host.netns_path, self.sut_cpu, &options).map(Some)
    }
}

/// What a worker is told that receives at a port of a host.
fn udp_role(name: &str, host: &Host, port: u16, workload: Workload) -> Vec<String> {
    let bind = SocketAddr::new(host.address.1, port).to_string();
    let rcvbuf = workload.rcvbuf.to_string();
    [name, "--bind", &bind, "--rcvbuf", &rcvbuf].map(str::to_owned).into()
}
