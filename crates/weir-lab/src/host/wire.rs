//! What a wire and its ends have beyond an address each: see [`Need`].
//!
//! A veth delivers on the CPU that sent, so the far end's receiving would be done on the tested CPU;
//! [`Need::FarEnd`] defers its interrupts onto the generator's, [`Need::FarEndRps`] steers them there.
//!
//! A veth hands packets of its own host's sockets to the peer's NAPI, and so to the ring, only where it
//! has no TSO (`veth_skb_is_eligible_for_gro()`); others go past it, straight to IP. So neither end has
//! TSO, but where an arm asks for a veth as it is made.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use weir_bpf::sys::ethtool;
use weir_bpf::sys::ipv6::disable_ipv6;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::units::CpuId;

use super::process::path_of;
use super::topology::{EGRESS, Host, SUT_INTERFACE, Topology};
use crate::apps::screen;
use crate::arm::Arm;
use crate::error::{Error, Result, cannot};
use crate::scene::{Need, Scene};
use crate::stop::Undo;

/// Where SYN floods say they come from: the second half of the benchmarking range.
pub const FLOOD_NET: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 19, 0, 0), 16);
/// Where solicitations from off the link say they come from: no host's part of IPv6's benchmarking range.
pub const OFF_LINK: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0xffff, 0, 0, 0, 0);
const FORWARDING: &str = "/proc/sys/net/ipv4/conf";
/// Time between two interrupts of the host under test when packets arrive without pause: a NIC's
/// `rx-usecs`.
pub const MODERATION: Duration = Duration::from_micros(50);
/// As many polls without a packet as this before another CPU could get NAPI back: days.
const POLLS: &str = "2147483647";
const DEFER: &str = "napi_defer_hard_irqs";
const TIMER: &str = "gro_flush_timeout";
/// Time between two interrupts of the far end.
const FAR_MODERATION: Duration = Duration::from_micros(100);
const SINK: &str = "weir_lab";
const TOOL_REMEDY: &str = "this experiment needs nft, iptables and tc (packages nftables, iptables, iproute2), and a \
                           kernel with what they set: nftables for netdev and NAT, NFQUEUE, tbf";
/// What Docker's rules come to, of a container behind a bridge that publishes a port: a host with them follows every
/// connection over IPv4.
pub const NAT_RULES: &str = "table ip nat {
    chain PREROUTING { type nat hook prerouting priority dstnat; fib daddr type local counter jump DOCKER; }
    chain POSTROUTING { type nat hook postrouting priority srcnat;
        oifname != \"docker0\" ip saddr 198.19.255.0/24 counter masquerade; }
    chain DOCKER {
        iifname != \"docker0\" tcp dport 8080 counter dnat to 198.19.255.2:80;
        iifname != \"docker0\" udp dport 8080 counter dnat to 198.19.255.2:80; }
}";
/// Nothing listens here: `discard`.
const NOBODYS_PORT: u16 = 9;

/// Meets a need of a host's, once.
pub fn meet(topology: &Topology, host: &Host, need: Need, arm: &Arm, cpu: CpuId) -> Result<()> {
    let far = &host.generator_ifname;
    match need {
        Need::FarEnd | Need::FarEndRps => {
            let (links, (client, server)) = (&topology.generator_links, host.address);
            links.add_address(host.generator_ifindex, client.into(), 24)?;
            links.add_neighbour(host.generator_ifindex, server.into(), host.mac.1)?;
            if !arm.veth {
                topology.generator.run(|| ethtool::set_tso(far, false))??;
                host.netns.run(|| ethtool::set_tso(SUT_INTERFACE, false))??;
            }
            if need == Need::FarEnd || arm.unpinned {
                return Ok(topology.generator.run(|| ethtool::set_gro(far, true))??);
            }
            Ok(topology.generator_sysfs.write(far, "queues/rx-0/rps_cpus", &mask(cpu))?)
        }
        Need::AnswersDropped => {
            let client = host.address.0;
            host.links.add_route(FLOOD_NET, client)?;
            let (network, bits) = FLOOD_NET;
            let drop = format!("priority 0; ip daddr {network}/{bits} drop");
            ingress(&topology.generator, &format!("weir_{far}"), far, &drop)
        }
        Need::Egress => add_egress(topology, host),
        Need::Screened => {
            add_egress(topology, host)?;
            let queue = format!("NFQUEUE --queue-num {}", screen::QUEUE);
            tool(&host.netns, "iptables", &format!("-A FORWARD -o {EGRESS} -j {queue}"))
        }
        Need::ClientAddress => {
            // With TSO, segments would go past the host's ring.
            topology.generator.run(|| ethtool::set_tso(far, false))??;
            // Beside the generator.
            let client = host.neighbour(64);
            let links = &topology.generator_links;
            links.add_address(host.generator_ifindex, client.into(), 24)?;
            links.add_neighbour(host.generator_ifindex, host.address.1.into(), host.mac.1)?;
            Ok(host.links.add_neighbour(host.ifindex, client.into(), host.mac.0)?)
        }
        Need::OtherFamily => {
            let (generator, own) = host.address6;
            host.links.add_address(host.ifindex, own.into(), 64)?;
            Ok(host.links.add_neighbour(host.ifindex, generator.into(), host.mac.0)?)
        }
    }
}

/// The host that [`Need::Egress`] puts behind the one under test.
pub fn behind(host: &Host) -> Ipv4Addr {
    let [_, _, subnet, _] = host.address.1.octets();
    Ipv4Addr::new(198, 19, subnet, 2)
}

/// The far end of the egress, in the generator's namespace.
pub fn sink_name(host: &Host) -> String {
    let [_, _, subnet, _] = host.address.1.octets();
    format!("sink{subnet}")
}

/// Makes the host a router to another, of which there is but an Ethernet address.
fn add_egress(topology: &Topology, host: &Host) -> Result<()> {
    let behind = behind(host);
    let [a, b, subnet, _] = behind.octets();
    let near = Ipv4Addr::new(a, b, subnet, 1);
    let name = sink_name(host);
    let links = &topology.generator_links;
    links.create_veth(&name, EGRESS, Some(host.netns.as_fd()))?;
    topology.generator.run(|| disable_ipv6(&name))??;
    let sink = links.index(&name)?;
    // Without it a veth takes no frame that XDP redirects; what a host forwards goes past it, as the near end has TSO.
    for far in [&name, &host.generator_ifname] {
        topology.generator.run(|| ethtool::set_gro(far, true))??;
    }
    links.set_up(sink)?;
    ingress(&topology.generator, &format!("{SINK}{subnet}"), &name, "priority 0; policy drop")?;
    let mac = links.mac(sink)?;
    let index = host.links.index(EGRESS)?;
    host.netns.run(|| disable_ipv6(EGRESS))??;
    host.links.set_up(index)?;
    host.links.add_address(index, near.into(), 24)?;
    host.links.add_neighbour(index, behind.into(), mac)?;
    let forwards = [SUT_INTERFACE, EGRESS].map(|interface| {
        let path = format!("{FORWARDING}/{interface}/forwarding");
        host.netns.run(|| std::fs::write(&path, "1"))?.map_err(cannot("write", &path))
    });
    forwards.into_iter().collect()
}

/// A mask of one CPU, as sysfs takes it: 32 bits to a word.
pub fn mask(cpu: CpuId) -> String {
    let words = ",00000000".repeat(cpu.0 as usize / 32);
    format!("{:x}{words}", 1_u32 << (cpu.0 % 32))
}

fn ingress(netns: &NetNs, table: &str, interface: &str, rest: &str) -> Result<()> {
    let chain = format!("type filter hook ingress device \"{interface}\" {rest};");
    tool(netns, "nft", &format!("table netdev {table} {{ chain ingress {{ {chain} }}; }}"))
}

/// Lets a timer alone start an interface's NAPI, on the CPU where it runs next, until this is dropped; the timer ends
/// with the next poll then.
///
/// A veth has no interrupt of its own: its NAPI instance runs on the CPU that sent, the generator's.
/// With interrupts deferred (`napi_defer_hard_irqs`, `gro_flush_timeout`), NAPI is started by a timer
/// on the CPU where it last ran, and by nothing else (`napi_complete_done()`, `napi_watchdog()`): a
/// timer interrupt, then softirq on its exit, as with a NIC that moderates its interrupts and whose
/// interrupt is bound to that CPU. So the first packet is to be sent from there.
pub fn defer(sysfs: NetSysfs, interface: &str, moderation: Duration) -> Result<Undo<'static>> {
    sysfs.write(interface, TIMER, &moderation.as_nanos().to_string())?;
    sysfs.write(interface, DEFER, POLLS)?;
    let interface = interface.to_owned();
    // The host goes with the lab.
    Ok(Undo(Box::new(move || drop([DEFER, TIMER].map(|one| sysfs.write(&interface, one, "0"))))))
}

/// Binds the far end's interrupts to the calling thread's CPU until what is returned is dropped, by a packet from the
/// host to where nobody listens.
pub fn far_interrupts(topology: &Topology, host: &Host, nobody: Ipv4Addr) -> Result<Undo<'static>> {
    let sysfs = topology.generator.run(NetSysfs::open)??;
    let bound = defer(sysfs, &host.generator_ifname, FAR_MODERATION)?;
    let (any, nobody) = ((host.address.1, 0), (nobody, NOBODYS_PORT));
    let sent = host.netns.run(|| UdpSocket::bind(any)?.send_to(&[0], nobody))?;
    sent.map_err(cannot("send", "a packet to the generator"))?;
    Ok(bound)
}

/// Ends what passes the driver until what is returned is dropped: by a chain that drops at ingress, after the skb is
/// built and GRO and tc have looked at it. Not by a program at tc: beside one the gate takes packets for diverted.
pub fn sink(host: &Host) -> Result<Undo<'_>> {
    ingress(&host.netns, SINK, SUT_INTERFACE, "priority 0; policy drop")?;
    // It goes with its namespace at the latest.
    Ok(Undo(Box::new(|| drop(tool(&host.netns, "nft", &format!("delete table netdev {SINK}"))))))
}

/// A token bucket at the egress, until what is returned is dropped.
pub fn slow_egress(host: &Host, mbit: u32) -> Result<Undo<'static>> {
    let netns = NetNs::open(host.netns.path())?;
    let bucket = format!("tbf rate {mbit}mbit burst 64kb limit 100kb");
    tool(&netns, "tc", &format!("qdisc add dev {EGRESS} root {bucket}"))?;
    Ok(Undo(Box::new(move || drop(tool(&netns, "tc", &format!("qdisc del dev {EGRESS} root"))))))
}

/// The tools that a scene takes here, on a host with NAT rules or without.
pub fn tools(nat: bool, scene: &Scene) -> impl Iterator<Item = &'static str> {
    let has = |need| scene.needs.contains(&need);
    let chains = [Need::AnswersDropped, Need::Egress, Need::Screened].into_iter().any(has);
    let tools = [
        ("nft", nat || scene.sink || chains),
        ("iptables", has(Need::Screened)),
        ("tc", scene.egress_mbit.is_some()),
    ];
    tools.into_iter().filter(|(_, is_used)| *is_used).map(|(tool, _)| tool)
}

/// Runs a command of `tc` or the like in a namespace.
pub fn tool(netns: &NetNs, program: &str, command: &str) -> Result<()> {
    let (path, words) = (path_of(program).unwrap_or_default(), command.split(' '));
    // Ctrl-C is for the controller.
    let run = || Command::new(path).args(words).process_group(0).stdin(Stdio::null()).output();
    let output = netns.run(run)?.map_err(|source| {
        Error::refused(format!("{program} cannot be run ({source})"), TOOL_REMEDY)
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::refused(format!("{program} refuses `{command}`: {said}"), TOOL_REMEDY))
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
