//! Sending frames byte for byte, however broken they are: for tests.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::{Error, Result};
use crate::units::IfIndex;

/// Sends frames by one interface of the network namespace that it was opened in.
#[derive(Debug)]
pub struct FrameSender {
    socket: OwnedFd,
    ifindex: IfIndex,
}

impl FrameSender {
    /// Opens a packet socket that receives nothing.
    ///
    /// # Errors
    /// Without the privilege.
    pub fn open(ifindex: IfIndex) -> Result<Self> {
        let socket =
            socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
                .map_err(|errno| Error::system("open", "a packet socket", errno))?;
        Ok(Self { socket, ifindex })
    }

    /// Sends a frame from its Ethernet header on.
    ///
    /// # Errors
    /// When the kernel refuses.
    #[allow(unsafe_code)]
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        // SAFETY: a plain structure, for which zeros are values.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = self.ifindex.0.cast_signed();
        // SAFETY: the kernel reads the frame and the address, which outlive the call.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if sent < 0 {
            return Err(Error::system("send", "a frame", std::io::Error::last_os_error()));
        }
        Ok(())
    }
}
