//! The interface whose packets a command takes.

use std::io;

use pcap_file::DataLink;
use rustix::io::Errno;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::units::IfIndex;

use crate::error::{Error, Result};

/// `ARPHRD_ETHER`, `ARPHRD_LOOPBACK` and `ARPHRD_NONE` (linux/if_arp.h).
const ETHERNET: &str = "1";
const LOOPBACK: &str = "772";
const NO_HEADER: &str = "65534";

/// An interface that is up, for such a command.
///
/// # Errors
/// If there is no such interface, or it is down.
pub fn find(command: &str, ifname: &str) -> Result<IfIndex> {
    let links = Links::open()?;
    let ifindex = links.index(ifname).map_err(|error| match ifname {
        "any" => Error::refused(
            format!("`any` is no interface, and `{command}` takes the packets of one"),
            "name it, or use `tcpdump -i any`",
        ),
        _ => error.into(),
    })?;
    if links.info(ifindex)?.up {
        return Ok(ifindex);
    }
    Err(Error::refused(
        format!("{ifname} is down, so no packet comes by"),
        format!("`ip link set {ifname} up` brings it up"),
    ))
}

/// What has happened to the interface, by what its packet socket says; nothing, where it was down for a moment: the
/// socket goes on. Of another one under the same name it hears nothing.
///
/// # Errors
/// That it is down or gone.
pub fn unless_back(ifindex: IfIndex, checked: io::Result<()>) -> io::Result<()> {
    let is_up = || Links::open().and_then(|links| links.info(ifindex)).is_ok_and(|info| info.up);
    let is_back =
        |error: &io::Error| Errno::from_io_error(error) == Some(Errno::NETDOWN) && is_up();
    checked.or_else(|error| if is_back(&error) { Ok(()) } else { Err(error) })
}

/// What an interface's packets begin with.
pub struct Link {
    /// Which header.
    pub header: DataLink,
    /// Whether what is sent there is received there.
    pub comes_back: bool,
}

/// What they begin with, for such a command.
///
/// # Errors
/// If it is neither Ethernet's header nor IP's.
pub fn link_of(command: &str, ifname: &str) -> Result<Link> {
    match NetSysfs::open()?.read(ifname, "type")?.trim() {
        ETHERNET => Ok(Link { header: DataLink::ETHERNET, comes_back: false }),
        LOOPBACK => Ok(Link { header: DataLink::ETHERNET, comes_back: true }),
        NO_HEADER => Ok(Link { header: DataLink::RAW, comes_back: false }),
        other => Err(Error::refused(
            format!(
                "{ifname} is an interface of type {other} (linux/if_arp.h), and `{command}` knows \
                 Ethernet and plain IP"
            ),
            format!("use `tcpdump -i {ifname}`"),
        )),
    }
}
