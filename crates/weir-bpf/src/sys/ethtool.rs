//! Settings of an interface that ethtool's ioctl alone offers.

use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::ifname::ifreq;
use super::netlink::text;
use crate::error::{Error, Result};

const SIOCETHTOOL: rustix::ioctl::Opcode = libc::SIOCETHTOOL as rustix::ioctl::Opcode;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    others: [u8; 160],
}

/// `struct ethtool_channels`.
#[derive(Default)]
#[repr(C)]
struct Queues {
    command: u32,
    rx_max: u32,
    tx_max: u32,
    other_max: u32,
    combined_max: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// Structures that the kernel may write over, whatever the bytes.
///
/// # Safety
/// `#[repr(C)]`, valid for any bit pattern, and exactly what the kernel reads and writes for the
/// commands that its first field is given.
#[allow(unsafe_code)]
unsafe trait Argument {}

#[allow(unsafe_code)]
// SAFETY: two u32, as `struct ethtool_value`; used with commands that take one.
unsafe impl Argument for Value {}

#[allow(unsafe_code)]
// SAFETY: integers and bytes, 196 in all, as `struct ethtool_drvinfo`; used with ETHTOOL_GDRVINFO.
unsafe impl Argument for DriverInfo {}

#[allow(unsafe_code)]
// SAFETY: nine u32, as `struct ethtool_channels`; used with the two commands that take one.
unsafe impl Argument for Queues {}

/// Whether generic receive offload is on, for an interface of the calling thread's network
/// namespace. On a veth, on means that it receives by NAPI.
///
/// # Errors
/// [`Error::NoInterface`]; [`Error::Refused`] for an impossible name; [`Error::System`].
pub fn gro(ifname: &str) -> Result<bool> {
    Ok(value("read the receive offload of", ifname, ETHTOOL_GGRO, 0)? != 0)
}

/// Switches generic receive offload on or off, for an interface of the calling thread's network
/// namespace.
///
/// # Errors
/// As [`gro`]; [`Error::System`] without `CAP_NET_ADMIN`.
pub fn set_gro(ifname: &str, on: bool) -> Result<()> {
    value("set the receive offload of", ifname, ETHTOOL_SGRO, on.into()).map(drop)
}

/// Whether an interface of the calling thread's network namespace cuts TCP's data into packets itself
/// (TSO).
///
/// # Errors
/// As [`gro`].
pub fn tso(ifname: &str) -> Result<bool> {
    Ok(value("read the segmentation offload of", ifname, ETHTOOL_GTSO, 0)? != 0)
}

/// Switches that on or off. A veth without it hands each packet to its peer's NAPI, if the peer has
/// one, hence to its ring; with it, most go past it unless the peer has an XDP program
/// (`veth_skb_is_eligible_for_gro()`).
///
/// # Errors
/// As [`set_gro`].
pub fn set_tso(ifname: &str, on: bool) -> Result<()> {
    value("set the segmentation offload of", ifname, ETHTOOL_STSO, on.into()).map(drop)
}

/// Whether VLAN tags of received frames may be removed before an XDP program sees the frame
/// (`rx-vlan-offload`), for an interface of the calling thread's network namespace.
///
/// # Errors
/// As [`gro`].
pub fn removes_vlan_tags(ifname: &str) -> Result<bool> {
    Ok(value("read the VLAN offload of", ifname, ETHTOOL_GFLAGS, 0)? & ETH_FLAG_RXVLAN != 0)
}

/// Name of the driver (`veth`, `virtio_net`, ...) of an interface of the calling thread's network
/// namespace.
///
/// # Errors
/// As [`gro`]; [`Error::System`] with `EOPNOTSUPP` if it has none, as loopback.
pub fn driver(ifname: &str) -> Result<String> {
    let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], others: [0; 160] };
    call("read the driver of", ifname, &mut info)?;
    Ok(text(&info.driver))
}

/// Whether the driver hands on packets of which only their skb tells the tag and the checksum. One that is not known may.
pub(crate) fn is_unfinished(ifname: &str) -> bool {
    !driver(ifname).is_ok_and(|driver| driver != "veth")
}

/// Receive queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveQueues {
    /// How many there are.
    pub now: u32,
    /// How many there could be.
    pub most: u32,
    /// Whether they are counted apart from those that send: else each is for both directions ("combined").
    pub apart: bool,
}

/// The receive queues of an interface of the calling thread's network namespace.
///
/// # Errors
/// As [`gro`]; [`Error::System`] with `EOPNOTSUPP` if its driver does not say.
pub fn receive_queues(ifname: &str) -> Result<ReceiveQueues> {
    let mut queues = Queues { command: ETHTOOL_GCHANNELS, ..Queues::default() };
    call("read the queues of", ifname, &mut queues)?;
    // Some drivers count them as either, and take no change from the one to the other.
    let apart = queues.combined == 0;
    Ok(ReceiveQueues {
        now: queues.rx + queues.combined,
        most: if apart { queues.rx_max } else { queues.combined_max },
        apart,
    })
}

/// Gives an interface of the calling thread's network namespace so many receive queues, and as many
/// transmit queues. Each queue of a veth is polled by a NAPI instance of its own.
///
/// # Errors
/// As [`set_gro`]; [`Error::System`] with `EINVAL` for more than the driver has (veth: as many as there
/// are possible CPUs).
pub fn set_queues(ifname: &str, count: u32) -> Result<()> {
    let mut queues = Queues { command: ETHTOOL_GCHANNELS, ..Queues::default() };
    call("read the queues of", ifname, &mut queues)?;
    queues = Queues { command: ETHTOOL_SCHANNELS, rx: count, tx: count, ..queues };
    call("set the queues of", ifname, &mut queues)
}

fn value(operation: &'static str, ifname: &str, command: u32, data: u32) -> Result<u32> {
    let mut value = Value { command, data };
    call(operation, ifname, &mut value)?;
    Ok(value.data)
}

#[allow(unsafe_code)]
fn call<T: Argument>(operation: &'static str, ifname: &str, argument: &mut T) -> Result<()> {
    let ifru_data = std::ptr::from_mut(argument).cast();
    let mut request = ifreq(ifname, libc::__c_anonymous_ifr_ifru { ifru_data })?;
    let failed = |errno| match errno {
        Errno::NODEV => Error::NoInterface(ifname.to_owned()),
        errno => Error::system(operation, ifname, errno),
    };
    // The socket's network namespace decides where the name is looked up.
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(failed)?;
    // SAFETY: SIOCETHTOOL takes a `struct ifreq`; its pointer is to an `Argument` borrowed for longer than the call; the
    // name ends in NUL, being at most 15 bytes.
    unsafe { ioctl(socket, Updater::<SIOCETHTOOL, libc::ifreq>::new(&mut request)) }.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::sched;
    use crate::sys::sysfs::NetSysfs;
    use crate::sys::test_support::{Sandbox, with_pair};

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<libc::ifreq>(), 40);
        assert_eq!(size_of::<Value>(), 8);
        assert_eq!(size_of::<DriverInfo>(), 196);
        assert_eq!(size_of::<Queues>(), 36);
    }

    #[test]
    fn offloads_are_switched() {
        with_pair(|_, _, _| {
            assert_eq!(driver("near").unwrap(), "veth");
            for on in [true, false, true] {
                set_gro("near", on).unwrap();
                assert_eq!(gro("near").unwrap(), on);
                set_tso("near", on).unwrap();
                assert_eq!(tso("near").unwrap(), on);
            }
        });
    }

    #[test]
    fn a_veth_has_as_many_queues_as_it_is_given() {
        with_pair(|_, _, _| {
            let queues = || NetSysfs::open().unwrap().list("near", "queues").unwrap().len();
            assert_eq!(queues(), 2);
            let possible = sched::online_cpus().unwrap().len().min(2) as u32;
            assert_eq!(receive_queues("near").unwrap().now, 1);
            set_queues("near", possible).unwrap();
            let ReceiveQueues { now, most, apart } = receive_queues("near").unwrap();
            assert!(now == possible && most >= now, "{now} of {most}");
            assert!(apart, "a veth has none for both directions");
            assert_eq!(queues(), 2 * possible as usize);
            assert!(set_queues("near", 1 << 16).is_err());
        });
    }

    #[test]
    fn vlan_offload_is_told() {
        with_pair(|_, _, _| {
            assert!(removes_vlan_tags("near").unwrap());
            assert!(!removes_vlan_tags("lo").unwrap());
        });
    }

    #[test]
    fn unknown_and_impossible_names_are_told_apart() {
        Sandbox::new().run(|| {
            assert!(matches!(gro("absent"), Err(Error::NoInterface(name)) if name == "absent"));
            assert!(matches!(driver("absent"), Err(Error::NoInterface(_))));
            assert!(matches!(set_gro("sixteen-bytes-xx", true), Err(Error::Refused { .. })));
        });
    }
}
