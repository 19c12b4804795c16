//! What stays up over a run: a host for each arm, its iperf3, the speed probe.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use weir_bpf::sys::{ethtool, napi, sched};
use weir_bpf::units::{CpuId, Nice};

use super::iperf;
use crate::bench::become_controller;
use crate::error::{Error, Result};
use crate::interrupts;
use crate::results::parity::{Arm, ArmSetup};
use crate::setup;
use crate::topology::{Host, SUT_INTERFACE, Topology};
use crate::worker_process::{Daemon, Program, Worker};

/// Nothing listens here: `discard`.
const NOBODYS_PORT: u16 = 9;

/// Hosts and programs of one run.
pub struct Rig {
    // In the order in which they must be dropped: processes, then the namespaces they are in.
    /// The calibrated loop on the SUT's CPU.
    pub speed: Worker,
    _servers: Vec<Program>,
    hosts: BTreeMap<Arm, Host>,
    /// The namespaces.
    pub topology: Topology,
    /// iperf3.
    pub iperf: PathBuf,
    /// CPU of the system under test.
    pub sut_cpu: CpuId,
    /// CPU of the far end.
    pub far_cpu: CpuId,
}

impl Rig {
    /// Sets it up.
    ///
    /// # Errors
    /// Without the privilege, or where the kernel refuses.
    pub fn set_up(arms: &[Arm], (sut_cpu, far_cpu): (CpuId, CpuId), iperf: &Path) -> Result<Self> {
        become_controller(far_cpu)?;
        let mut topology = Topology::create()?;
        let mut hosts = BTreeMap::new();
        let mut servers = vec![];
        for arm in arms {
            let host = topology.add_host(arm.name(), false)?;
            host.wait_until_up()?;
            far_end(&topology, &host, *arm, far_cpu)?;
            near_end(&host, *arm, sut_cpu)?;
            let log = topology.directory("iperf3")?.join(format!("{arm}.log"));
            servers.push(iperf::serve(iperf, &host, sut_cpu, &log)?);
            hosts.insert(*arm, host);
        }
        let first = hosts.values().next().ok_or_else(|| {
            Error::refused("nothing is to be compared", "this is a bug of the lab: report it")
        })?;
        let speed = Worker::start(&first.netns_path, sut_cpu, &["speed-probe".to_owned()])?;
        let iperf = iperf.to_owned();
        Ok(Self { speed, _servers: servers, hosts, topology, iperf, sut_cpu, far_cpu })
    }

    /// An arm's host.
    pub fn host(&self, arm: Arm) -> &Host {
        &self.hosts[&arm]
    }

    /// Makes an arm what it is, until the guard is dropped.
    ///
    /// # Errors
    /// When the daemon does not come up, or the kernel refuses.
    pub fn begin(&self, arm: Arm) -> Result<Begun<'_>> {
        let host = self.host(arm);
        let daemon = arm
            .attach()
            .map(|attach| Daemon::protect_at(&host.netns_path, self.sut_cpu, attach, &[]));
        let daemon = daemon.transpose()?;
        let deferred = (arm == Arm::Stock).then(|| self.defer(host)).transpose()?;
        Ok(Begun { daemon, _deferred: deferred })
    }

    /// `stock`'s interrupts on the SUT's CPU, as [`interrupts::bind`] has them.
    fn defer<'a>(&self, host: &'a Host) -> Result<Deferred<'a>> {
        interrupts::defer(&host.sysfs, SUT_INTERFACE, interrupts::MODERATION)?;
        let deferred = Deferred(host);
        let cpu = self.sut_cpu;
        let sent = self.topology.generator.run(|| {
            sched::pin_current_thread(cpu)?;
            let socket = UdpSocket::bind("0.0.0.0:0");
            let sent = socket.and_then(|s| s.send_to(&[0], (host.address.1, NOBODYS_PORT)));
            sent.map_err(|source| Error::io("send", "a packet from the SUT's CPU", source))
        })?;
        sent?;
        Ok(deferred)
    }

    /// Each arm as it is in a trial, as the kernel has it.
    ///
    /// # Errors
    /// Where one cannot be set up.
    pub fn observe(&self) -> Result<BTreeMap<Arm, ArmSetup>> {
        self.hosts.keys().map(|arm| Ok((*arm, self.look_at(*arm)?))).collect()
    }

    fn look_at(&self, arm: Arm) -> Result<ArmSetup> {
        let begun = self.begin(arm)?;
        let host = self.host(arm);
        let (threads, gro) = host.netns.run(|| {
            let threads = napi::napi_threads(host.ifindex, SUT_INTERFACE)?;
            Ok::<_, weir_bpf::Error>((threads, ethtool::gro(SUT_INTERFACE)?))
        })??;
        let tso = self.topology.generator.run(|| ethtool::tso(&host.generator_ifname))??;
        let driver_poll = match (arm, threads.first()) {
            _ if arm.is_plain_veth() => format!("none: backlog of CPU {}, by RPS", self.sut_cpu),
            (_, Some(thread)) => format!("{}, NAPI thread", setup::place(thread.pid)?),
            (Arm::Stock, None) => {
                let moderation = interrupts::MODERATION.as_micros();
                format!("CPU {}, softirq on a timer each {moderation} us", self.sut_cpu)
            }
            (_, None) => format!("CPU {}, softirq of the sender", self.far_cpu),
        };
        let rps_cpus = host.sysfs.read(SUT_INTERFACE, "queues/rx-0/rps_cpus")?.trim().to_owned();
        let attach = begun.daemon.map_or("none".into(), |daemon| daemon.attach.clone());
        Ok(ArmSetup { attach, driver_poll, tso, gro, rps_cpus })
    }
}

/// An arm in force. Dropping it puts everything back.
pub struct Begun<'a> {
    /// `weir run`, where it runs.
    pub daemon: Option<Daemon>,
    _deferred: Option<Deferred<'a>>,
}

struct Deferred<'a>(&'a Host);

impl Drop for Deferred<'_> {
    fn drop(&mut self) {
        // The host goes with the lab.
        let _ = interrupts::defer_no_more(&self.0.sysfs, SUT_INTERFACE);
    }
}

/// A mask of one CPU, as sysfs takes it: 32 bits to a word.
fn mask(cpu: CpuId) -> String {
    let words = ",00000000".repeat(cpu.0 as usize / 32);
    format!("{:x}{words}", 1_u32 << (cpu.0 % 32))
}

/// The generator's end of the wire becomes a host of its own, which receives on its own CPU.
fn far_end(topology: &Topology, host: &Host, arm: Arm, cpu: CpuId) -> Result<()> {
    let (links, interface) = (&topology.generator_links, host.generator_ifname.as_str());
    links.add_address(host.generator_ifindex, host.address.0, 24)?;
    links.add_neighbour(host.generator_ifindex, host.address.1, host.mac.1)?;
    topology.generator_sysfs.write(interface, "queues/rx-0/rps_cpus", &mask(cpu))?;
    if !arm.is_plain_veth() {
        topology.generator.run(|| ethtool::set_tso(interface, false))??;
    }
    Ok(())
}

fn near_end(host: &Host, arm: Arm, cpu: CpuId) -> Result<()> {
    if arm.is_plain_veth() || arm == Arm::StockRps {
        host.sysfs.write(SUT_INTERFACE, "queues/rx-0/rps_cpus", &mask(cpu))?;
    }
    if !arm.is_plain_veth() {
        host.netns.run(|| ethtool::set_tso(SUT_INTERFACE, false))??;
    }
    match arm {
        Arm::Threaded => drop(host.thread_napi(cpu, Nice(0))?),
        Arm::Niced => drop(host.thread_napi(cpu, Nice(19))?),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_32_cpus_to_a_word() {
        assert_eq!(mask(CpuId(1)), "2");
        assert_eq!(mask(CpuId(33)), "2,00000000");
    }
}
