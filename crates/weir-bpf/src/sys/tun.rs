//! The far end of a tun device, as a tunnel's program has it: for tests.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;

use super::ifname::ifreq;
use crate::error::{Error, Result};

/// An open tun device. It is gone when this is dropped.
#[derive(Debug)]
pub struct Tun(File);

impl Tun {
    /// Makes a tun device in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without the privilege, or if the name is taken.
    #[allow(unsafe_code)]
    pub fn create(name: &str) -> Result<Self> {
        let ifru_flags = libc::IFF_TUN as libc::c_short;
        let mut request = ifreq(name, libc::__c_anonymous_ifr_ifru { ifru_flags })?;
        let failed =
            |source: io::Error| Error::system("create", format!("tun device {name}"), source);
        let file = File::options().read(true).write(true).open("/dev/net/tun").map_err(failed)?;
        // SAFETY: the kernel reads and writes one `struct ifreq`.
        let code = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if code < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Ok(Self(file))
    }

    /// Has the kernel receive a packet from its IP header on, as one of this ethertype. When this returns, it is where
    /// it was going.
    ///
    /// # Errors
    /// When the kernel refuses: the device is down.
    pub fn receive(&self, ethertype: u16, packet: &[u8]) -> Result<()> {
        // struct tun_pi
        let [high, low] = ethertype.to_be_bytes();
        let written = (&self.0).write(&[&[0, 0, high, low], packet].concat());
        written
            .map(drop)
            .map_err(|source| Error::system("write a packet to", "a tun device", source))
    }
}
