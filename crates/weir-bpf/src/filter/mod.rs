//! Filter expressions as tcpdump has them (pcap-filter(7)): libpcap compiles one to classic BPF, which is translated
//! to a program that the kernel runs in front of a [`Tap`](crate::tap::Tap)'s copy.

mod libpcap;
mod translate;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapMut, libbpf_sys};

use crate::error::{Error, Result};
use crate::object::load_program;
use crate::skeleton::tap::types::weir_stage as Stage;

/// Puts programs together by an array of them: what takes packets, what the driver does with those that `filter` does not
/// match, and the filter, which is to be held: the array does not keep what user space has put there.
pub(crate) fn chain(
    what: &'static str,
    stages: &MapMut<'_>,
    filter: Option<&Filter>,
    take: BorrowedFd<'_>,
    missed: Option<BorrowedFd<'_>>,
) -> Result<Option<OwnedFd>> {
    let set = |stage: Stage, program: BorrowedFd<'_>| {
        let program = program.as_raw_fd().to_ne_bytes();
        let done = stages.update(&stage.0.to_ne_bytes(), &program, MapFlags::ANY);
        done.map_err(Error::bpf("put together", what))
    };
    set(Stage::WEIR_STAGE_TAKE, take)?;
    missed.map_or(Ok(()), |missed| set(Stage::WEIR_STAGE_MISSED, missed))?;
    let filter = filter.map(|it| it.load(missed.is_some(), stages.as_fd())).transpose()?;
    filter.as_ref().map_or(Ok(()), |filter| set(Stage::WEIR_STAGE_FILTER, filter.as_fd()))?;
    Ok(filter)
}

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
    fn load(&self, in_driver: bool, programs: BorrowedFd<'_>) -> Result<OwnedFd> {
        let instructions =
            translate::translate(&self.classic, in_driver, programs).map_err(|why| {
                Error::refused(
                    format!("the filter {:?} cannot run in the kernel: {why}", self.text),
                    "use a simpler one (`tcpdump -r FILE ...` filters what was captured once more)",
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
