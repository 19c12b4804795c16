//! The lab's hosts: one generator namespace, and for each mode a namespace with the system under
//! test, a veth pair between them.
//!
//! Every mode keeps its own host for the whole run, so that interleaving modes moves no application
//! and no address; only `weir run` and `stock`'s interrupts begin and end with each trial.

use std::fs::{self, DirBuilder, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::napi::NapiThread;
use weir_bpf::sys::netns::{self, NetNs};
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::sys::{ethtool, ipv6, napi, sched};
use weir_bpf::units::{CpuId, IfIndex, MacAddr, Nice};

use crate::error::{Error, Result, cannot};
use crate::stop::until;

/// What the names of the lab's namespaces begin with; the process id follows.
const PREFIX: &str = "weir-lab-";
const NETNS_DIR: &str = "/run/netns";
const LABS_DIR: &str = "/run/weir-lab";
/// Ethernet address of an echo server's client: no interface's, so that the generator's namespace drops
/// what comes for it at the first test of IP (`PACKET_OTHERHOST`, `ip_rcv_core()`). A veth receives on the
/// CPU that sent, so each reply's end costs the SUT; this is the least that it can.
const CLIENT_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x01]);
/// The receiving interface's name in its namespace.
pub const SUT_INTERFACE: &str = "sut0";
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const NAPI_DEADLINE: Duration = Duration::from_secs(5);
const UP_DEADLINE: Duration = Duration::from_secs(5);

/// The hosts of one lab run.
pub struct Topology {
    pub(crate) generator: NetNs,
    pub(crate) generator_path: PathBuf,
    pub(crate) generator_links: Links,
    pub(crate) generator_sysfs: NetSysfs,
    names: Names,
    /// Held for as long as the lab lives.
    _lock: File,
}

pub struct Host {
    pub(crate) netns: NetNs,
    pub(crate) netns_path: PathBuf,
    pub(crate) sysfs: NetSysfs,
    pub(crate) ifindex: IfIndex,
    pub(crate) generator_ifindex: IfIndex,
    pub(crate) generator_ifname: String,
    /// Ethernet addresses, generator and host.
    pub mac: (MacAddr, MacAddr),
    /// IP addresses, generator and host.
    pub address: (IpAddr, IpAddr),
    /// Another address beyond the pair, of whom an echo server's packets seem to come.
    pub client: IpAddr,
    index: u8,
}

impl Topology {
    pub fn create() -> Result<Self> {
        clean()?;
        let prefix = format!("{PREFIX}{}", std::process::id());
        let lock = take_lock(&prefix)?;
        let mut names = Names { prefix, namespaces: vec![] };
        let (generator, generator_path) = names.create_namespace("gen")?;
        let made = generator.run(|| -> Result<_> {
            set_congestion_control()?;
            Ok((Links::open()?, NetSysfs::open()?))
        });
        let (generator_links, generator_sysfs) = made??;
        Ok(Self { generator, generator_path, generator_links, generator_sysfs, names, _lock: lock })
    }

    /// A directory for the files of one host's applications, which goes with the lab.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = files_of(&self.names.prefix).join(name);
        fs::create_dir_all(&path).map_err(cannot("create", path.display()))?;
        Ok(path)
    }

    /// Makes a host, whose name is the lab's and this one's.
    pub fn add_host(&mut self, name: &str, ipv6: bool) -> Result<Host> {
        let index = self.names.namespaces.len() as u8;
        let (netns, netns_path) = self.names.create_namespace(&format!("{index}-{name}"))?;
        let generator_ifname = format!("gen{index}");

        let links = &self.generator_links;
        links.create_veth(&generator_ifname, SUT_INTERFACE, Some(netns.as_fd()))?;
        self.generator.run(|| ipv6::disable_ipv6(&generator_ifname))??;
        let generator_ifindex = links.index(&generator_ifname)?;
        let generator_mac = links.mac(generator_ifindex)?;
        let (address, client) = (addresses(index, ipv6), ip_address(index, ipv6, (3, 3)));
        let made = netns.run(|| -> Result<_> {
            let links = Links::open()?;
            let sysfs = NetSysfs::open()?;
            let ifindex = links.index(SUT_INTERFACE)?;
            ipv6::quiet_ipv6(SUT_INTERFACE)?;
            set_congestion_control()?;
            ethtool::set_gro(SUT_INTERFACE, true)?;
            links.set_up(links.index("lo")?)?;
            links.set_up(ifindex)?;
            give_address(&links, ifindex, address, generator_mac)?;
            links.add_neighbour(ifindex, client, CLIENT_MAC)?;
            Ok((sysfs, ifindex, links.mac(ifindex)?))
        });
        let (sysfs, ifindex, mac) = made??;
        links.set_up(generator_ifindex)?;
        Ok(Host {
            netns,
            netns_path,
            sysfs,
            ifindex,
            generator_ifindex,
            generator_ifname,
            mac: (generator_mac, mac),
            address,
            client,
            index,
        })
    }
}

impl Host {
    pub fn other_family(&self) -> (IpAddr, IpAddr) {
        addresses(self.index, self.address.0.is_ipv4())
    }

    pub fn add_other_family(&self) -> Result<()> {
        let give = || give_address(&Links::open()?, self.ifindex, self.other_family(), self.mac.0);
        self.netns.run(give)?
    }

    /// Waits until packets can pass: an IPv6 address has no route before.
    pub fn wait_until_up(&self) -> Result<()> {
        let links = self.netns.run(Links::open)??;
        let is_up = || Ok(links.info(self.ifindex)?.oper_up.then_some(()));
        until(UP_DEADLINE, is_up)?.ok_or_else(|| {
            let problem = format!("the lab's {SUT_INTERFACE} does not come up");
            Error::refused(problem, "is the machine overloaded? try again")
        })
    }

    /// Switches to threaded NAPI and puts the threads on a CPU, at a weight; returns them. To be done
    /// again when XDP was attached or detached, which makes new ones.
    pub fn thread_napi(&self, sut: CpuId, nice: Nice) -> Result<Vec<NapiThread>> {
        self.sysfs.write(SUT_INTERFACE, "threaded", "1")?;
        let threads = until(NAPI_DEADLINE, || {
            let threads = self.netns.run(|| napi::napi_threads(self.ifindex, SUT_INTERFACE))??;
            for thread in &threads {
                sched::set_affinity(thread.pid, &[sut])?;
                sched::set_nice(thread.pid, nice)?;
            }
            Ok((!threads.is_empty()).then_some(threads))
        });
        threads?.ok_or_else(|| {
            Error::refused(
                "no NAPI thread appeared after threaded NAPI was switched on",
                "this kernel may lack threaded NAPI for veth (5.12 has it)",
            )
        })
    }
}

/// TCP's congestion control in a namespace: always the same, whatever this machine's is. One that paces
/// itself (BBR) starts a timer for each burst that it sends, which on a virtual machine costs more than the
/// request that is answered. Reno is what every kernel has, and lets every namespace have
/// (`tcp_set_default_congestion_control()`).
fn set_congestion_control() -> Result<()> {
    fs::write(CONGESTION_CONTROL, "reno").map_err(cannot("write", CONGESTION_CONTROL))
}

/// Gives a host its address, and the generator's as a neighbour that need not be asked for.
fn give_address(
    links: &Links,
    ifindex: IfIndex,
    (generator, host): (IpAddr, IpAddr),
    generator_mac: MacAddr,
) -> Result<()> {
    links.add_address(ifindex, host, if host.is_ipv6() { 64 } else { 24 })?;
    links.add_neighbour(ifindex, generator, generator_mac)?;
    Ok(())
}

/// Generator's and host's address in subnet `index`, the first with its low bits clear, for random sources.
fn addresses(index: u8, ipv6: bool) -> (IpAddr, IpAddr) {
    (ip_address(index, ipv6, (128, 0x100)), ip_address(index, ipv6, (2, 2)))
}

/// The address of subnet `index` that ends in this, of the benchmarking ranges (RFC 2544, RFC 5180).
fn ip_address(index: u8, ipv6: bool, last: (u8, u16)) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0x2001, 2, 0, index.into(), 0, 0, 0, last.1).into()
    } else {
        Ipv4Addr::new(198, 18, index, last.0).into()
    }
}

/// What a lab has outside this process, removed on drop.
struct Names {
    prefix: String,
    namespaces: Vec<String>,
}

impl Names {
    /// Makes a namespace; returns its path too.
    fn create_namespace(&mut self, name: &str) -> Result<(NetNs, PathBuf)> {
        let name = format!("{}-{name}", self.prefix);
        let netns = NetNs::create_named(&name)?;
        let path = Path::new(NETNS_DIR).join(&name);
        self.namespaces.push(name);
        Ok((netns, path))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.namespaces {
            let _ = NetNs::delete_named(name);
        }
        let _ = fs::remove_dir_all(files_of(&self.prefix));
    }
}

/// A lab's files, in a directory that it holds a lock on for as long as it lives, so that others can tell a
/// running lab's namespaces from those that a killed one left behind.
fn files_of(prefix: &str) -> PathBuf {
    Path::new(LABS_DIR).join(prefix)
}

fn take_lock(prefix: &str) -> Result<File> {
    let path = files_of(prefix);
    let failed = cannot("lock", path.display());
    // Nobody else may take the lock, and so keep `clean` from its work.
    DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(&failed)?;
    let directory = File::open(&path).map_err(&failed)?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)
        .map_err(cannot("lock", path.display()))?;
    Ok(directory)
}

fn is_running(prefix: &str) -> bool {
    File::open(files_of(prefix))
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Removes what labs left behind that were killed; leaves running labs alone. Returns the names of
/// the namespaces removed.
pub fn clean() -> Result<Vec<String>> {
    let mut names = netns::list_named(PREFIX)?;
    names.retain(|name| owner(name).is_some_and(|prefix| !is_running(&prefix)));
    for name in &names {
        NetNs::delete_named(name)?;
        owner(name).iter().for_each(|prefix| drop(fs::remove_dir_all(files_of(prefix))));
    }
    Ok(names)
}

/// The prefix of the lab run that a namespace is of: `weir-lab-PID` of `weir-lab-PID-NAME`. `None` for
/// other people's names.
fn owner(name: &str) -> Option<String> {
    let (pid, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let digits = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| format!("{PREFIX}{pid}"))
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn only_the_labs_own_names_have_an_owner() {
        assert_eq!(owner("weir-lab-123-gen").as_deref(), Some("weir-lab-123"));
        assert_eq!(owner("weir-lab-123-idle-weir").as_deref(), Some("weir-lab-123"));
        for other in ["weir-lab-mine", "weir-lab-12x-gen", "weir-lab-12", "weir-lab--gen", "mine"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }
}
