//! The interface whose packets a command takes.

use std::fmt::Display;
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

/// The interface, as it was when the command began.
pub struct Taken<'a> {
    pub links: Links,
    pub ifindex: IfIndex,
    /// As the kernel calls it, which may not be what was asked for.
    pub name: String,
    asked: &'a str,
    /// What its packets begin with.
    pub header: DataLink,
    /// Whether what is sent there is received there.
    pub comes_back: bool,
}

impl<'a> Taken<'a> {
    /// # Errors
    /// If there is no such interface, it is down, or its packets begin with neither Ethernet's header nor IP's.
    pub fn open(command: &str, asked: &'a str) -> Result<Self> {
        let links = Links::open()?;
        let ifindex = links.index(asked).map_err(|error| match asked {
            "any" => Error::refused(
                format!("`any` is no interface, and `{command}` takes the packets of one"),
                "name it, or use `tcpdump -i any`",
            ),
            _ => error.into(),
        })?;
        if !links.info(ifindex)?.up {
            return Err(Error::refused(
                format!("{asked} is down, so no packet comes by"),
                format!("`ip link set {asked} up` brings it up"),
            ));
        }
        let name = links.name(ifindex)?;
        let (header, comes_back) = match NetSysfs::open()?.read(&name, "type")?.trim() {
            ETHERNET => (DataLink::ETHERNET, false),
            LOOPBACK => (DataLink::ETHERNET, true),
            NO_HEADER => (DataLink::RAW, false),
            other => {
                return Err(Error::refused(
                    format!(
                        "{name} is an interface of type {other} (linux/if_arp.h), and `{command}` \
                         knows Ethernet and plain IP"
                    ),
                    format!("use `tcpdump -i {name}`"),
                ));
            }
        };
        Ok(Self { links, ifindex, name, asked, header, comes_back })
    }

    /// What has happened to it, by what its packet socket says; nothing, where it was down for a moment: the socket
    /// goes on. Of another one under the same name it hears nothing.
    ///
    /// # Errors
    /// That it is down or gone.
    pub fn check(&self, checked: io::Result<()>, remedy: &str) -> Result<()> {
        let is_up = || self.links.info(self.ifindex).is_ok_and(|info| info.up);
        match checked {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::NETDOWN) || !is_up() => {
                Err(self.lost(&error, remedy))
            }
            _ => Ok(()),
        }
    }

    /// That it is down or gone.
    pub fn lost(&self, why: &dyn Display, remedy: &str) -> Error {
        Error::refused(format!("{} is down or gone ({why})", self.asked), remedy)
    }
}
