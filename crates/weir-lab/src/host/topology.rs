//! The lab's hosts: one generator namespace, and for each mode a namespace with the system under
//! test, a veth pair between them.
//!
//! Every mode keeps its own host for the whole run, so that interleaving modes moves no application
//! and no address; only `weir run` and `stock`'s interrupts begin and end with each trial.
//!
//! The namespaces have no names: they go with the lab and its processes, however these end.

use std::fs::{self, File};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::TempDir;
use weir_bpf::sys::link::{LinkStats, Links};
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched::SchedPolicy;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::sys::{ethtool, ipv6, napi, sched};
use weir_bpf::units::{CpuId, IfIndex, MacAddr, Nice};

use super::group;
use crate::error::{Result, cannot};
use crate::progress::say;
use crate::stop::{STEP, Stop, wait_for};

/// Where each lab has a directory, named by its process.
const LABS_DIR: &str = "/run/weir-lab";
/// Where captures on a disk have a directory each, and how its name begins.
pub const CAPTURES: &str = "/var/tmp";
pub const CAPTURE: &str = "weir-lab-capture-";
/// Ethernet address of an echo server's client: no interface's, so that the generator's namespace drops
/// what comes for it at the first test of IP (`PACKET_OTHERHOST`, `ip_rcv_core()`). A veth receives on the
/// CPU that sent, so each reply's end costs the SUT; this is the least that it can.
const CLIENT_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 0x01]);
/// The receiving interface's name in its namespace.
pub const SUT_INTERFACE: &str = "sut0";
/// Where a router sends on, in the same namespace.
pub const EGRESS: &str = "out0";
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const NAPI_DEADLINE: Duration = Duration::from_secs(5);
const UP_DEADLINE: Duration = Duration::from_secs(5);

/// The hosts of one lab run.
pub struct Topology {
    pub(crate) generator: NetNs,
    pub(crate) generator_links: Links,
    pub(crate) generator_sysfs: NetSysfs,
    hosts: u8,
    files: TempDir,
    /// Of [`take_turn`]; the last that goes.
    pub(crate) turn: File,
}

pub struct Host {
    pub(crate) netns: NetNs,
    pub(crate) links: Links,
    pub(crate) sysfs: NetSysfs,
    pub(crate) ifindex: IfIndex,
    pub(crate) generator_ifindex: IfIndex,
    pub(crate) generator_ifname: String,
    /// Ethernet addresses, generator and host.
    pub mac: (MacAddr, MacAddr),
    /// IPv4 addresses of the benchmarking range (RFC 2544), generator and host; the first has its low bits
    /// clear, for random sources.
    pub address: (Ipv4Addr, Ipv4Addr),
    /// The same of IPv6 (RFC 5180), where [`crate::scene::Need::OtherFamily`] gives it.
    pub address6: (Ipv6Addr, Ipv6Addr),
    /// Another address beyond the pair, of whom an echo server's packets seem to come.
    pub client: Ipv4Addr,
}

/// Waits until no other lab of this machine measures: two that loaded the same CPUs would measure each other.
pub fn take_turn(stop: &Stop) -> Result<File> {
    fs::create_dir_all(LABS_DIR).map_err(cannot("create", LABS_DIR))?;
    let turn = File::open(LABS_DIR).map_err(cannot("open", LABS_DIR))?;
    if is_taken(&turn)? {
        let is_there = |pid: &String| Path::new("/proc").join(pid).exists();
        let names = fs::read_dir(LABS_DIR).into_iter().flatten().flatten();
        let pids = names.filter_map(|lab| lab.file_name().into_string().ok()).filter(is_there);
        let process = pids.map(|pid| format!(", process {pid}")).collect::<String>();
        say(format!("waits until another lab has ended{process}"));
        while is_taken(&turn)? {
            stop.sleep(STEP)?;
        }
    }
    Ok(turn)
}

fn is_taken(turn: &File) -> Result<bool> {
    match flock(turn, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(true),
        taken => taken.map(|()| false).map_err(cannot("lock", LABS_DIR)),
    }
}

/// A directory for the lab whose turn it is. Any other is left of a lab that was killed.
fn own_directory(labs: &Path) -> Result<TempDir> {
    for lab in fs::read_dir(labs).into_iter().flatten().flatten() {
        let _ = fs::remove_dir_all(lab.path());
    }
    let own = std::process::id().to_string();
    let own = tempfile::Builder::new().prefix(&own).rand_bytes(0).tempdir_in(labs);
    own.map_err(cannot("create a directory in", labs.display()))
}

impl Topology {
    pub fn create(turn: File) -> Result<Self> {
        let files = own_directory(Path::new(LABS_DIR))?;
        // What labs that were killed left elsewhere: it is this lab's turn, so none of them runs.
        for capture in group::entries(Path::new(CAPTURES), |name| name.starts_with(CAPTURE)) {
            let _ = fs::remove_dir_all(capture);
        }
        group::sweep();
        let generator = NetNs::create()?;
        let made = generator.run(|| -> Result<_> {
            set_congestion_control()?;
            Ok((Links::open()?, NetSysfs::open()?))
        });
        let (generator_links, generator_sysfs) = made??;
        Ok(Self { generator, generator_links, generator_sysfs, hosts: 0, files, turn })
    }

    /// A directory for the files of one host's applications, which goes with the lab.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.files.path().join(name);
        fs::create_dir_all(&path).map_err(cannot("create", path.display()))?;
        Ok(path)
    }

    /// What the far end's interface and a host's have counted, in this order.
    pub fn stats(&self, host: &Host) -> Result<[LinkStats; 2]> {
        let far = self.generator_links.stats(host.generator_ifindex)?;
        Ok([far, host.links.stats(host.ifindex)?])
    }

    /// Makes a host, and waits until packets can pass to it.
    pub fn add_host(&mut self) -> Result<Host> {
        self.hosts += 1;
        let index = self.hosts;
        let v4 = |last| Ipv4Addr::new(198, 18, index, last);
        let v6 = |last| Ipv6Addr::new(0x2001, 2, 0, index.into(), 0, 0, 0, last);
        let (address, client) = ((v4(128), v4(2)), v4(3));
        let netns = NetNs::create()?;
        let generator_ifname = format!("gen{index}");

        let links = &self.generator_links;
        links.create_veth(&generator_ifname, SUT_INTERFACE, Some(netns.as_fd()))?;
        self.generator.run(|| ipv6::disable_ipv6(&generator_ifname))??;
        let generator_ifindex = links.index(&generator_ifname)?;
        let generator_mac = links.mac(generator_ifindex)?;
        let made = netns.run(|| -> Result<_> {
            let links = Links::open()?;
            let sysfs = NetSysfs::open()?;
            let ifindex = links.index(SUT_INTERFACE)?;
            ipv6::quiet_ipv6(SUT_INTERFACE)?;
            set_congestion_control()?;
            ethtool::set_gro(SUT_INTERFACE, true)?;
            links.set_up(links.index("lo")?)?;
            links.set_up(ifindex)?;
            links.add_address(ifindex, address.1.into(), 24)?;
            for (neighbour, mac) in [(address.0, generator_mac), (client, CLIENT_MAC)] {
                links.add_neighbour(ifindex, neighbour.into(), mac)?;
            }
            let mac = links.mac(ifindex)?;
            Ok((links, sysfs, ifindex, mac))
        });
        let (own_links, sysfs, ifindex, mac) = made??;
        links.set_up(generator_ifindex)?;
        let is_up = || Ok(own_links.info(ifindex)?.oper_up.then_some(()));
        let problem = format!("the lab's {SUT_INTERFACE} does not come up");
        wait_for(UP_DEADLINE, is_up, (&problem, "is the machine overloaded? try again"))?;
        Ok(Host {
            netns,
            links: own_links,
            sysfs,
            ifindex,
            generator_ifindex,
            generator_ifname,
            mac: (generator_mac, mac),
            address,
            address6: (v6(0x100), v6(2)),
            client,
        })
    }
}

impl Host {
    /// The address of the host's subnet (/24) that ends in this.
    pub fn neighbour(&self, last: u8) -> Ipv4Addr {
        let [a, b, c, _] = self.address.1.octets();
        Ipv4Addr::new(a, b, c, last)
    }

    /// Switches to threaded NAPI and puts the threads on a CPU, if one is given, at a weight. To be done again when XDP
    /// was attached or detached, which makes new ones.
    pub fn thread_napi(&self, cpu: Option<CpuId>, policy: SchedPolicy, nice: Nice) -> Result<()> {
        self.sysfs.write(SUT_INTERFACE, "threaded", "1")?;
        let threads = || {
            let threads = self.netns.run(|| napi::napi_threads(self.ifindex, SUT_INTERFACE))??;
            for thread in &threads {
                cpu.map(|cpu| sched::set_affinity(thread.pid, &[cpu])).transpose()?;
                sched::set_weight(thread.pid, policy, nice, None)?;
            }
            Ok((!threads.is_empty()).then_some(()))
        };
        let problem = "no NAPI thread appeared after threaded NAPI was switched on";
        let remedy = "is the machine overloaded? try again";
        wait_for(NAPI_DEADLINE, threads, (problem, remedy))
    }
}

/// TCP's congestion control in a namespace: always the same, whatever this machine's is. One that paces
/// itself (BBR) starts a timer for each burst that it sends, which on a virtual machine costs more than the
/// request that is answered. Reno is what every kernel has, and lets every namespace have
/// (`tcp_set_default_congestion_control()`).
fn set_congestion_control() -> Result<()> {
    fs::write(CONGESTION_CONTROL, "reno").map_err(cannot("write", CONGESTION_CONTROL))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn only_another_labs_lock_is_waited_for() {
        let labs = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| File::open(labs.path()).unwrap());
        assert!(!is_taken(&first).unwrap());
        assert!(is_taken(&second).unwrap());
        // Which cannot be locked.
        let path = rustix::fs::open(labs.path(), OFlags::PATH, Mode::empty()).unwrap();
        assert!(is_taken(&path.into()).is_err());
    }

    #[test]
    fn what_a_killed_lab_left_goes_whoever_has_its_number_now() {
        let labs = tempfile::tempdir().unwrap();
        for left in [1, std::process::id()] {
            fs::create_dir_all(labs.path().join(left.to_string()).join("host")).unwrap();
        }
        let own = own_directory(labs.path()).unwrap();
        let left: Vec<_> =
            fs::read_dir(labs.path()).unwrap().flatten().map(|lab| lab.path()).collect();
        assert_eq!(left, [own.path()]);
        assert_eq!(fs::read_dir(own.path()).unwrap().count(), 0);
    }
}
