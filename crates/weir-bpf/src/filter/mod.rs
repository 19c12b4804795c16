//! Filter expressions as tcpdump has them (pcap-filter(7)): libpcap compiles one to classic BPF, which is translated
//! to a program that the kernel runs in front of a [`Tap`](crate::tap::Tap)'s copy.

mod libpcap;
mod translate;

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use self::translate::Next;
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

    /// Loads it as a program for a socket, or for the driver, that hands on by an array of programs.
    #[allow(unsafe_code)]
    pub(crate) fn load(
        &self,
        in_driver: bool,
        programs: BorrowedFd<'_>,
        (matched, missed): (u32, Option<u32>),
    ) -> Result<OwnedFd> {
        let next = Next { programs: programs.as_raw_fd(), matched, missed };
        let instructions = translate::translate(&self.classic, in_driver, next).map_err(|why| {
            Error::refused(
                format!("the filter {:?} cannot run in the kernel: {why}", self.text),
                "use a simpler one, and filter the file afterwards (`tcpdump -r FILE ...`)",
            )
        })?;
        // Programs of one array are alike in this, too.
        let mut options = libbpf_sys::bpf_prog_load_opts {
            sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
            prog_flags: if in_driver { libbpf_sys::BPF_F_XDP_HAS_FRAGS } else { 0 },
            expected_attach_type: if in_driver { libbpf_sys::BPF_XDP } else { 0 },
            ..Default::default()
        };
        let kind = if in_driver {
            libbpf_sys::BPF_PROG_TYPE_XDP
        } else {
            libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER
        };
        // SAFETY: name and license end in NUL, and the instructions and options outlive the call.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                kind,
                c"weir_tap_filter".as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as libbpf_sys::size_t,
                &raw mut options,
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
