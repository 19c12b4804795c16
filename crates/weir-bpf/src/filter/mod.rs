//! Filter expressions as tcpdump has them (pcap-filter(7)): libpcap compiles one to classic BPF, which is translated
//! to a program that the kernel runs in front of a [`Tap`](crate::tap::Tap)'s copy.

mod libpcap;
mod translate;

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use crate::error::{Error, Result};

/// A compiled expression, for one interface.
#[derive(Clone, Debug)]
pub struct Filter {
    text: String,
    classic: Vec<libc::sock_filter>,
}

impl Filter {
    /// Compiles an expression for the packets of an interface, with the libpcap that is installed.
    ///
    /// # Errors
    /// [`Error::Refused`] without libpcap, and with what libpcap says of an expression that it does not take.
    pub fn compile(ifname: &str, text: &str) -> Result<Self> {
        Ok(Self { text: text.into(), classic: libpcap::compile(ifname, text)? })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Loads it as a program that hands what matches on to an entry of an array of programs.
    #[allow(unsafe_code)]
    pub(crate) fn load(&self, programs: BorrowedFd<'_>, next: u32) -> Result<OwnedFd> {
        let instructions = translate::translate(&self.classic, programs.as_raw_fd(), next)
            .map_err(|why| Error::Refused {
                problem: format!("the filter {:?} cannot run in the kernel: {why}", self.text),
                remedy: "use a simpler one, and filter the file afterwards (`tcpdump -r FILE ...`)"
                    .into(),
            })?;
        // SAFETY: name and license end in NUL, and the instructions outlive the call.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
                c"weir_tap_filter".as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as libbpf_sys::size_t,
                std::ptr::null_mut(),
            )
        };
        if fd < 0 {
            let source = std::io::Error::from_raw_os_error(-fd);
            return Err(Error::system("load", format!("the filter {:?}", self.text), source));
        }
        // SAFETY: the kernel has just given us this descriptor, and nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
