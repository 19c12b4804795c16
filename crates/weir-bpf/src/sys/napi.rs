//! The kernel threads that poll an interface (`/sys/class/net/IF/threaded`).

use netlink_packet_core::NLM_F_DUMP;
use rustix::io::Errno;
use rustix::process::Pid;

use super::ethtool;
use super::netlink::{Attributes, attribute, open_generic};
use super::stat::{self, Stat};
use super::sysfs::NetSysfs;
use crate::error::{Error, Result};
use crate::units::IfIndex;

const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_PID: u16 = 4;
/// What may be set of each instance since Linux 6.13: `defer-hard-irqs`, `gro-flush-timeout`,
/// `irq-suspend-timeout`.
const NETDEV_A_NAPI_DEFERRAL: [u16; 3] = [5, 6, 7];
/// Likewise since Linux 6.17.
const NETDEV_A_NAPI_THREADED: u16 = 8;

/// What receives by `gro_cells_init()`: each CPU has a NAPI instance, and none has a number.
const CELLS: [&str; 16] = [
    "vxlan", "geneve", "wireguard", "gre", "gretap", "erspan", "ip6gre", "ip6gretap", "ip6erspan",
    "ipip", "ip6tnl", "vti", "macsec", "bareudp", "amt", "xfrm",
];

/// Whether the kernel would name no thread of an interface of the calling thread's network namespace. To set `threaded` of
/// such a one while packets come can leave a CPU's instance unpolled for good (VXLAN, Linux 6.18).
pub fn is_nameless(ifname: &str) -> bool {
    ethtool::driver(ifname).is_ok_and(|driver| CELLS.contains(&driver.as_str()))
}

/// One polling thread. Attaching or detaching XDP makes new instances, hence new threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NapiThread {
    /// The kernel's number of the NAPI instance, unique on the machine.
    pub napi_id: u32,
    /// The thread, as the initial PID namespace numbers it.
    pub pid: Pid,
}

/// The polling threads of an interface of the calling thread's network namespace; none if it does
/// not poll in threads, or is down.
///
/// The kernel's `netdev` family knows them for certain. Where it is missing (before Linux 6.8) they
/// are found by name, which does not tell network namespaces apart: what cannot be told for
/// certain is refused.
///
/// # Errors
/// [`Error::Refused`] where the threads are ambiguous; [`Error::NoInterface`]; [`Error::System`].
pub fn napi_threads(ifindex: IfIndex, ifname: &str) -> Result<Vec<NapiThread>> {
    napi_threads_after(ifindex, ifname, &[])
}

/// As [`napi_threads`], of an interface whose threads these `were`. Some drivers keep those of queues that they use no
/// more (virtio_net), and before Linux 6.8 nothing but this tells them from another interface's.
///
/// # Errors
/// As [`napi_threads`].
pub fn napi_threads_after(ifindex: IfIndex, ifname: &str, were: &[Pid]) -> Result<Vec<NapiThread>> {
    match by_netlink(ifindex) {
        Ok(threads) => Ok(threads),
        // NOENT: no such family; OPNOTSUPP: the family lacks the command (Linux 6.3 to 6.7).
        Err(Errno::NOENT | Errno::OPNOTSUPP) => by_name(ifname, were),
        Err(Errno::NODEV) => Err(Error::NoInterface(ifname.to_owned())),
        Err(errno) => Err(Error::system("list the polling threads of", ifname, errno)),
    }
}

fn instances(ifindex: IfIndex) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut socket = open_generic()?;
    let family = socket.family("netdev")?;
    let which = attribute(NETDEV_A_NAPI_IFINDEX, &ifindex.0.to_ne_bytes());
    socket.request(family, NETDEV_CMD_NAPI_GET, NLM_F_DUMP, &which)
}

fn by_netlink(ifindex: IfIndex) -> rustix::io::Result<Vec<NapiThread>> {
    // Without a thread, an instance has no PID.
    Ok(instances(ifindex)?.iter().filter_map(|instance| thread_of(instance)).collect())
}

/// Whether interrupts are deferred for an instance of an interface. Somebody may have set that of the instance
/// alone, by the `netdev` family: then the interface's attributes are 0, and writing to them ends it.
///
/// # Errors
/// When the kernel refuses; before Linux 6.13 nothing is deferred so.
pub fn has_deferral(ifindex: IfIndex) -> Result<bool> {
    has_one_with(ifindex, &NETDEV_A_NAPI_DEFERRAL)
}

/// Whether an instance of an interface is to be polled by a thread. Somebody may have set that of the instance alone:
/// then the interface's `threaded` is 0, and writing to it ends it.
///
/// # Errors
/// When the kernel refuses; before Linux 6.17 it tells of none.
pub fn has_threaded(ifindex: IfIndex) -> Result<bool> {
    has_one_with(ifindex, &[NETDEV_A_NAPI_THREADED])
}

/// Whether one of these attributes of some instance is not 0.
fn has_one_with(ifindex: IfIndex, attributes: &[u16]) -> Result<bool> {
    let instances = match instances(ifindex) {
        Err(Errno::NOENT | Errno::OPNOTSUPP) => return Ok(false),
        instances => instances.map_err(|errno| {
            Error::system("list the NAPI instances of", format!("interface {}", ifindex.0), errno)
        })?,
    };
    let is_set = |instance: &Vec<u8>, kind| {
        Attributes::of(instance)
            .value(kind)
            .is_some_and(|value| value.iter().any(|byte| *byte != 0))
    };
    Ok(instances.iter().any(|one| attributes.iter().any(|kind| is_set(one, *kind))))
}

fn thread_of(instance: &[u8]) -> Option<NapiThread> {
    let value = |kind| Attributes::of(instance).number(kind);
    let pid = Pid::from_raw(value(NETDEV_A_NAPI_PID)?.try_into().ok()?)?;
    Some(NapiThread { napi_id: value(NETDEV_A_NAPI_ID)?, pid })
}

fn by_name(ifname: &str, were: &[Pid]) -> Result<Vec<NapiThread>> {
    let sysfs = NetSysfs::open()?;
    if sysfs.read(ifname, "threaded")? == "0" || !is_up(&sysfs.read(ifname, "flags")?) {
        return Ok(Vec::new());
    }
    let queues = sysfs.list(ifname, "queues")?;
    let receive_queues = queues.iter().filter(|queue| queue.starts_with("rx-")).count();
    choose(ifname, receive_queues, &kernel_threads()?, were)
}

/// `IFF_UP`, the lowest bit of the hexadecimal flags.
fn is_up(flags: &str) -> bool {
    flags.chars().last().and_then(|digit| digit.to_digit(16)).is_some_and(|d| d & 1 == 1)
}

/// Process numbers and names of the kernel's threads. Any process may call itself as they are called.
fn kernel_threads() -> Result<Vec<(Pid, String)>> {
    let processes = stat::processes().map_err(|source| Error::system("list", "/proc", source))?;
    let thread = |pid| {
        // Gone since: not one that we look for.
        let stat = Stat::of(pid).filter(Stat::is_kernel_thread)?;
        Some((Pid::from_raw(pid)?, String::from_utf8(stat.comm).ok()?))
    };
    Ok(processes.into_iter().filter_map(thread).collect())
}

/// An interface that is up and polls in threads has one for each receive queue, or one alone with
/// some drivers. Any other count of matches means that another namespace has that name too, unless enough are left that
/// `were` its own.
fn choose(
    ifname: &str,
    receive_queues: usize,
    all: &[(Pid, String)],
    were: &[Pid],
) -> Result<Vec<NapiThread>> {
    let refused = |problem| {
        Error::refused(
            problem,
            "rename the interface so that its name is unique on the machine, or use Linux 6.8 or \
             later",
        )
    };
    let thread = |(pid, comm): &(Pid, String)| {
        // Transmit-only instances have no number; the `netdev` family leaves them out as well.
        let napi_id = napi_id(ifname, comm).filter(|napi_id| *napi_id != 0)?;
        Some(NapiThread { napi_id, pid: *pid })
    };
    let mut threads: Vec<_> = all.iter().filter_map(thread).collect();
    let named = threads.len();
    if named > 1 && named != receive_queues {
        threads.retain(|thread| were.contains(&thread.pid));
        if threads.len() < receive_queues {
            return Err(refused(format!(
                "{named} threads are named napi/{ifname}-N, for {receive_queues} receive queues: some may \
                 poll an interface of the same name in another network namespace",
            )));
        }
    }
    Ok(threads)
}

/// Of the interface's instance that a thread of this name polls. `/proc/PID/stat` has the whole name
/// (`get_kthread_comm()`).
fn napi_id(ifname: &str, comm: &str) -> Option<u32> {
    comm.strip_prefix("napi/")?.strip_prefix(ifname)?.strip_prefix('-')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLM_F_ACK;

    use super::*;
    use crate::sys::ethtool::set_gro;
    use crate::sys::link::Links;
    use crate::sys::test_support::{Sandbox, wait_until};

    fn process(pid: i32, comm: &str) -> (Pid, String) {
        (Pid::from_raw(pid).unwrap(), comm.to_owned())
    }

    #[test]
    fn a_name_is_this_interfaces_or_not() {
        assert_eq!(napi_id("eth0", "napi/eth0-8193"), Some(8193));
        assert_eq!(napi_id("eth0", "napi/eth0-1-8193"), None);
        assert_eq!(napi_id("eth0", "napi/eth0.1-819"), None);
        assert_eq!(napi_id("eth0", "eth0-8193"), None);
        assert_eq!(napi_id("longer-name", "napi/longer-name-8193"), Some(8193));
    }

    #[test]
    fn up_is_the_lowest_flag() {
        assert!(is_up("0x1003") && is_up("0x9b"));
        assert!(!is_up("0x1002") && !is_up(""));
    }

    #[test]
    fn another_count_than_the_queues_is_refused() {
        let all = [process(5, "napi/eth0-8193"), process(6, "kworker/0:1")];
        let expected = NapiThread { napi_id: 8193, pid: all[0].0 };
        assert_eq!(choose("eth0", 1, &all, &[]).unwrap(), [expected]);
        assert!(choose("eth1", 1, &all, &[]).unwrap().is_empty());
        let two = [process(5, "napi/eth0-8193"), process(6, "napi/eth0-8194")];
        let error = choose("eth0", 1, &two, &[]).unwrap_err().to_string();
        assert!(error.contains("another network namespace"), "{error}");
        assert_eq!(choose("eth0", 2, &two, &[]).unwrap().len(), 2);
        assert!(choose("eth0", 4, &two, &[]).is_err());
        // Its own, as it has a queue less now; and one that it had.
        assert_eq!(choose("eth0", 1, &two, &[two[0].0, two[1].0]).unwrap().len(), 2);
        assert_eq!(choose("eth0", 1, &two, &[two[0].0]).unwrap(), [expected]);
        let transmit = [process(5, "napi/eth0-8193"), process(6, "napi/eth0-0")];
        assert_eq!(choose("eth0", 1, &transmit, &[]).unwrap(), [expected]);
    }

    fn start_threads(ifname: &str) -> IfIndex {
        let links = Links::open().unwrap();
        links.create_veth(ifname, "peer", None).unwrap();
        let ifindex = links.index(ifname).unwrap();
        set_gro(ifname, true).unwrap(); // makes a veth receive by NAPI
        links.set_up(ifindex).unwrap();
        assert!(napi_threads(ifindex, ifname).unwrap().is_empty(), "polls without threads");
        NetSysfs::open().unwrap().write(ifname, "threaded", "1").unwrap();
        ifindex
    }

    #[test]
    fn threads_appear_with_threading_and_go_with_it() {
        Sandbox::new().run(|| {
            let ifname = "wt-napi";
            let ifindex = start_threads(ifname);
            let threads = napi_threads(ifindex, ifname).unwrap();
            let queues = NetSysfs::open().unwrap().list(ifname, "queues").unwrap();
            assert_eq!(threads.len(), queues.iter().filter(|q| q.starts_with("rx-")).count());
            for thread in &threads {
                let comm = format!("/proc/{}/comm", thread.pid.as_raw_nonzero());
                let name = std::fs::read_to_string(comm).unwrap();
                assert_eq!(name.trim(), format!("napi/{ifname}-{}", thread.napi_id));
            }
            let mut by_name = by_name(ifname, &[]).unwrap();
            by_name.sort_by_key(|thread| thread.napi_id);
            let mut by_netlink = threads;
            by_netlink.sort_by_key(|thread| thread.napi_id);
            assert_eq!(by_name, by_netlink);
            NetSysfs::open().unwrap().write(ifname, "threaded", "0").unwrap();
            wait_until("the threads stop", || napi_threads(ifindex, ifname).unwrap().is_empty());
        });
    }

    /// Sets an attribute of one instance alone.
    fn set_of(napi_id: u32, kind: u16, value: u32) {
        const NETDEV_CMD_NAPI_SET: u8 = 14;
        let mut socket = open_generic().unwrap();
        let family = socket.family("netdev").unwrap();
        let [id, value] = [(NETDEV_A_NAPI_ID, napi_id), (kind, value)]
            .map(|(kind, value)| attribute(kind, &value.to_ne_bytes()));
        socket.request(family, NETDEV_CMD_NAPI_SET, NLM_F_ACK, &[id, value].concat()).unwrap();
    }

    #[test]
    fn a_thread_of_an_instance_alone_is_found() {
        Sandbox::new().run(|| {
            let ifname = "wt-thread";
            let ifindex = start_threads(ifname);
            let napi_id = napi_threads(ifindex, ifname).unwrap()[0].napi_id;
            let sysfs = NetSysfs::open().unwrap();
            sysfs.write(ifname, "threaded", "0").unwrap();
            if instances(ifindex)
                .unwrap()
                .iter()
                .all(|one| Attributes::of(one).number(NETDEV_A_NAPI_THREADED).is_none())
            {
                println!("skipped: before Linux 6.17");
                return;
            }
            assert!(!has_threaded(ifindex).unwrap());
            set_of(napi_id, NETDEV_A_NAPI_THREADED, 1);
            assert!(has_threaded(ifindex).unwrap());
            assert_eq!(sysfs.read(ifname, "threaded").unwrap().trim(), "0");
            sysfs.write(ifname, "threaded", "0").unwrap();
            assert!(!has_threaded(ifindex).unwrap(), "the interface's attribute ends it");
        });
    }

    #[test]
    fn a_deferral_of_an_instance_alone_is_found() {
        Sandbox::new().run(|| {
            let ifname = "wt-defer";
            let ifindex = start_threads(ifname);
            assert!(!has_deferral(ifindex).unwrap());
            let napi_id = napi_threads(ifindex, ifname).unwrap()[0].napi_id;
            set_of(napi_id, NETDEV_A_NAPI_DEFERRAL[1], 20_000);
            assert!(has_deferral(ifindex).unwrap());
            let sysfs = NetSysfs::open().unwrap();
            assert_eq!(sysfs.read(ifname, "gro_flush_timeout").unwrap(), "0");
            sysfs.write(ifname, "gro_flush_timeout", "0").unwrap();
            assert!(!has_deferral(ifindex).unwrap(), "the interface's attribute ends it");
        });
    }

    #[test]
    fn the_same_name_in_two_namespaces_is_ambiguous_by_name_alone() {
        let (one, other) = (Sandbox::new(), Sandbox::new());
        let ifname = "wt-twin";
        let threads = |sandbox: &Sandbox| {
            sandbox.run(|| napi_threads(start_threads(ifname), ifname).unwrap())
        };
        let (first, second) = (threads(&one), threads(&other));
        assert!(first.iter().all(|thread| !second.contains(thread)));
        let refused = one.run(|| by_name(ifname, &[]));
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }

    /// A process that has given itself a name.
    struct Posing(std::process::Child);

    impl Posing {
        fn start(name: &str) -> Self {
            // The shell itself writes: nobody else may.
            let script = format!("echo '{name}' >/proc/$$/comm; read end");
            let mut shell = std::process::Command::new("sh");
            let child = shell.args(["-c", &script]).stdin(std::process::Stdio::piped()).spawn();
            let posing = Self(child.unwrap());
            let pid = posing.0.id().cast_signed();
            wait_until("it has its name", || Stat::of(pid).unwrap().comm == name.as_bytes());
            posing
        }
    }

    impl Drop for Posing {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_that_calls_itself_a_napi_thread_is_in_nobodys_way() {
        let ifname = "wt-posed";
        Sandbox::new().run(|| {
            let ifindex = start_threads(ifname);
            let _posing = Posing::start("napi/wt-posed-7");
            let sorted = |mut threads: Vec<NapiThread>| {
                threads.sort_by_key(|thread| thread.napi_id);
                threads
            };
            let expected = sorted(napi_threads(ifindex, ifname).unwrap());
            assert_eq!(sorted(by_name(ifname, &[]).unwrap()), expected);
        });
    }

    #[test]
    fn a_missing_interface_is_named() {
        Sandbox::new().run(|| {
            let missing = napi_threads(IfIndex(0x7fff), "absent");
            assert!(matches!(missing, Err(Error::NoInterface(name)) if name == "absent"));
            assert!(matches!(by_name("absent", &[]), Err(Error::NoInterface(_))));
        });
    }
}
