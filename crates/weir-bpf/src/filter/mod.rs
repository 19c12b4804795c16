//! Filter expressions as tcpdump has them (pcap-filter(7)): libpcap compiles one to classic BPF, which is translated
//! to a program that the kernel runs in front of a [`Tap`](crate::tap::Tap)'s copy.

mod libpcap;
mod translate;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys;

use self::translate::Next;
use crate::error::{Error, Result};
use crate::object::load_program;

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
        let (kind, prog_flags, expected_attach_type) = if in_driver {
            (libbpf_sys::BPF_PROG_TYPE_XDP, libbpf_sys::BPF_F_XDP_HAS_FRAGS, libbpf_sys::BPF_XDP)
        } else {
            (libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER, 0, 0)
        };
        let options = libbpf_sys::bpf_prog_load_opts {
            prog_flags,
            expected_attach_type,
            ..Default::default()
        };
        load_program(kind, c"weir_tap_filter", &instructions, options)
            .map_err(|source| Error::system("load", format!("the filter {:?}", self.text), source))
    }
}
