//! What a host has beside the applications of other experiments, so that every kind of flood has
//! something to hit.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use weir_bpf::sys::ethtool;
use weir_bpf::sys::ipv6::disable_ipv6;
use weir_bpf::sys::link::Links;
use weir_bpf::units::CpuId;

use crate::error::{Error, Result};
use crate::topology::{Host, SUT_INTERFACE, Topology};
use crate::worker_process::Worker;

/// Port of the TCP service.
pub(super) const SERVICE_PORT: u16 = 5002;
/// Port of the listener that is sent connection requests.
pub(super) const LISTENER_PORT: u16 = 5003;
/// Port of the socket that receives broadcasts and a multicast group.
pub(super) const MANY_PORT: u16 = 5004;
/// A group of MCAST-TEST-NET (RFC 6676) that a socket joins; nobody joins the next.
pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(233, 252, 0, 1);

/// The client's requests: few enough that they are all answered where there is no flood.
pub(super) const REQUESTS_PER_S: u32 = 2000;
/// Enough that one which waits for a segment to be sent again holds up few of them.
const CONNECTIONS: u32 = 16;

/// Interface of the host behind which the other host is.
const EGRESS: &str = "out0";
const FORWARDING: &str = "/proc/sys/net/ipv4/conf";

/// One system under test's.
pub struct Beside {
    /// The TCP service.
    pub service: Worker,
    /// What receives broadcasts and the group.
    pub many: Worker,
    /// Somebody to send connection requests to.
    _listener: Worker,
    service_address: SocketAddr,
    /// The host behind.
    pub(super) behind: Ipv4Addr,
}

impl Beside {
    /// Adds it to a host.
    ///
    /// # Errors
    /// Where the kernel refuses, or a process does not start.
    pub fn add(topology: &Topology, host: &Host, sut_cpu: CpuId) -> Result<Self> {
        let IpAddr::V4(near) = host.address.1 else {
            return Err(Error::refused("some kinds of flood are IPv4's alone", "leave out --ipv6"));
        };
        let subnet = near.octets()[2];
        add_client(topology, host, Ipv4Addr::new(198, 18, subnet, 64))?;
        let behind = add_egress(topology, host, subnet)?;
        let start = |role: &[&str]| {
            let role: Vec<String> = role.iter().map(|word| (*word).to_owned()).collect();
            Worker::start(&host.netns_path, sut_cpu, &role)
        };
        let at = |port| SocketAddr::new(near.into(), port);
        let service_address = at(SERVICE_PORT);
        let many = format!("0.0.0.0:{MANY_PORT}");
        let joined = [GROUP.to_string(), near.to_string()];
        Ok(Self {
            service: start(&["tcp-service", "--bind", &service_address.to_string()])?,
            many: start(&["udp-sink", "--bind", &many, "--join", &joined[0], "--on", &joined[1]])?,
            _listener: start(&["tcp-listener", "--bind", &at(LISTENER_PORT).to_string()])?,
            service_address,
            behind,
        })
    }

    /// Starts the TCP service's client, which is connected then, and waits.
    ///
    /// # Errors
    /// When it does not start or the service does not answer.
    pub fn start_client(&self, topology: &Topology, cpu: CpuId) -> Result<Worker> {
        let words = [
            "tcp-client".to_owned(),
            "--server".to_owned(),
            self.service_address.to_string(),
            "--connections".to_owned(),
            CONNECTIONS.to_string(),
            "--per-second".to_owned(),
            REQUESTS_PER_S.to_string(),
        ];
        Worker::start(&topology.generator_path, cpu, &words)
    }
}

/// Makes the far end of the pair a host with this address, beside the generator.
fn add_client(topology: &Topology, host: &Host, client: Ipv4Addr) -> Result<()> {
    topology.generator.run(|| {
        // With TSO, segments would go past the host's ring.
        ethtool::set_tso(&host.generator_ifname, false)
    })??;
    let links = &topology.generator_links;
    links.add_address(host.generator_ifindex, client.into(), 24)?;
    links.add_neighbour(host.generator_ifindex, host.address.1, host.mac.1)?;
    host.netns.run(|| Links::open()?.add_neighbour(host.ifindex, client.into(), host.mac.0))??;
    Ok(())
}

/// Makes the host a router to another, of which there is but an Ethernet address.
fn add_egress(topology: &Topology, host: &Host, subnet: u8) -> Result<Ipv4Addr> {
    let (near, behind) = (Ipv4Addr::new(198, 19, subnet, 1), Ipv4Addr::new(198, 19, subnet, 2));
    let sink = format!("sink{subnet}");
    let links = &topology.generator_links;
    links.create_veth(&sink, EGRESS, Some(host.netns.as_fd()))?;
    topology.generator.run(|| disable_ipv6(&sink))??;
    let sink = links.index(&sink)?;
    links.set_up(sink)?;
    let mac = links.mac(sink)?;
    host.netns.run(|| -> Result<()> {
        let links = Links::open()?;
        disable_ipv6(EGRESS)?;
        let index = links.index(EGRESS)?;
        links.set_up(index)?;
        links.add_address(index, near.into(), 24)?;
        links.add_neighbour(index, behind.into(), mac)?;
        for interface in [SUT_INTERFACE, EGRESS] {
            let path = format!("{FORWARDING}/{interface}/forwarding");
            std::fs::write(&path, "1").map_err(|source| Error::io("write", path, source))?;
        }
        Ok(())
    })??;
    Ok(behind)
}
