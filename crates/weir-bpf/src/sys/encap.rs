//! Sockets whose packets the kernel takes, for tests.

use std::os::fd::{AsFd, AsRawFd};

use crate::error::{Error, Result};

/// Has the kernel take ESP packets from a UDP socket (`UDP_ENCAP_ESPINUDP`, RFC 3948); those with a
/// marker of four zero bytes are still the application's.
///
/// # Errors
///
/// [`Error::System`] for another kind of socket, or where the kernel has no IPsec.
#[allow(unsafe_code)]
pub fn receive_esp_in_udp(socket: &impl AsFd) -> Result<()> {
    // rustix does not know the option, and std links the C library anyway.
    unsafe extern "C" {
        fn setsockopt(fd: i32, level: i32, name: i32, value: *const i32, len: u32) -> i32;
    }
    const IPPROTO_UDP: i32 = 17;
    const UDP_ENCAP: i32 = 100;
    const UDP_ENCAP_ESPINUDP: i32 = 2;
    let value = UDP_ENCAP_ESPINUDP;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the declaration is POSIX's, with a pointer to the value that this option takes; it
    // outlives the call, which reads the 4 bytes that it is told of. The descriptor is borrowed.
    let answer = unsafe { setsockopt(fd, IPPROTO_UDP, UDP_ENCAP, &raw const value, 4) };
    if answer == 0 {
        return Ok(());
    }
    Err(Error::system("set UDP_ENCAP on", "a socket", std::io::Error::last_os_error()))
}
