//! Sockets whose packets the kernel takes, for tests.

use std::os::fd::AsFd;

use super::sockopt;
use crate::error::{Error, Result};

const UDP_ENCAP_ESPINUDP: i32 = 2;

/// Has the kernel take ESP packets from a UDP socket (`UDP_ENCAP_ESPINUDP`, RFC 3948); those with a
/// marker of four zero bytes are still the application's.
///
/// # Errors
/// [`Error::System`] for another kind of socket, or where the kernel has no IPsec.
pub fn receive_esp_in_udp(socket: &impl AsFd) -> Result<()> {
    sockopt::set(socket, libc::IPPROTO_UDP, libc::UDP_ENCAP, UDP_ENCAP_ESPINUDP)
        .map_err(|errno| Error::system("set UDP_ENCAP on", "a socket", errno))
}
