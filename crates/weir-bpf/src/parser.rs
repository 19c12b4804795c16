//! The gate's parser by itself, run on one frame after another: for tests.
//!
//! `bpf/parser.bpf.c` is never attached; it says what `bpf/parse.h` makes of the bytes that it is run
//! on (`BPF_PROG_TEST_RUN`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::OpenSkel;

use crate::error::{Error, Result};
use crate::shared::open_skeleton;
use crate::skeleton::parser::{ParserSkel, ParserSkelBuilder, types};
use crate::units::IfIndex;

/// The values of [`Parsed::family`].
pub use types::weir_family as Family;
/// The values of [`Parsed::fragment`].
pub use types::weir_fragment as Fragment;
/// The values of [`Parsed::parse`].
pub use types::weir_parse as Parse;
/// What the parser made of one frame: `struct weir_parsed` of `bpf/abi/`, which documents it.
pub use types::weir_parsed as Parsed;

/// Shortest frame that the kernel runs a program on, bytes: an Ethernet header.
pub const SHORTEST_FRAME: usize = 14;

/// The loaded parser.
///
/// The kernel objects stay until the process ends: a process is expected to load one.
pub struct Parser {
    skel: ParserSkel<'static>,
}

/// One frame's way through the parser.
#[derive(Clone, Copy, Debug)]
pub struct Parsing {
    /// What the parser made of it.
    pub parsed: Parsed,
    /// What its short way made of it, which counts only if it is UDP or TCP.
    pub usual: Parsed,
    /// Bytes of the frame in its first buffer, which are all that the parser can read.
    pub first_buffer: usize,
}

impl Parser {
    /// Loads the parser.
    ///
    /// # Errors
    /// Without the privilege.
    pub fn load() -> Result<Self> {
        let failed = |operation| {
            Error::bpf(operation, "the parser", "it needs root (CAP_BPF, CAP_NET_ADMIN)")
        };
        let open = open_skeleton(ParserSkelBuilder::default()).map_err(failed("open"))?;
        Ok(Self { skel: open.load().map_err(failed("load"))? })
    }

    /// Runs the parser on a frame of at least [`SHORTEST_FRAME`] bytes, of which the first
    /// `first_buffer` (at most all) are to be in the first buffer. The kernel takes fewer if a page
    /// holds no more.
    ///
    /// It runs in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel's refusal: a frame that is too short, or longer than its buffers (some 70 kB).
    /// Kernels before 6.18 (and without the backport of fe9544ed1a2e) fill the first buffer always,
    /// and refuse another `first_buffer` than the frame's length.
    #[allow(unsafe_code)]
    pub fn parse(&mut self, frame: &[u8], first_buffer: usize) -> Result<Parsing> {
        let context = libbpf_sys::xdp_md { data_end: first_buffer as u32, ..Default::default() };
        let mut after = libbpf_sys::xdp_md::default();
        self.run(frame, &context, Some(&mut after), 0)?;
        let globals = self.skel.maps.bss_data.as_deref().ok_or_else(|| Error::Refused {
            problem: "the parser has no global variables".into(),
            remedy: "this is a defect of weir: please report it".into(),
        })?;
        // SAFETY: the reference is valid, and the program, which alone writes it, does not run: this
        // is its only user. Volatile, since the compiler has not seen the kernel write.
        let (parsed, usual) = unsafe {
            let parsed = ptr::read_volatile(&raw const globals.parsed);
            (parsed, ptr::read_volatile(&raw const globals.parsed_usual))
        };
        Ok(Parsing { parsed, usual, first_buffer: after.data_end as usize })
    }

    /// Lets an interface of the calling thread's network namespace receive a frame, as from its
    /// driver.
    ///
    /// # Errors
    /// The kernel's refusal: no such interface, or a frame that does not fit into one buffer.
    pub fn deliver(&mut self, frame: &[u8], ifindex: IfIndex) -> Result<()> {
        let context = libbpf_sys::xdp_md {
            data_end: frame.len() as u32,
            ingress_ifindex: ifindex.0,
            ..Default::default()
        };
        self.run(frame, &context, None, libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES)
    }

    #[allow(unsafe_code)]
    fn run(
        &mut self,
        frame: &[u8],
        context: &libbpf_sys::xdp_md,
        after: Option<&mut libbpf_sys::xdp_md>,
        flags: u32,
    ) -> Result<()> {
        let context_len = size_of::<libbpf_sys::xdp_md>() as u32;
        let refused = |source| Error::system("parse", format!("{} bytes", frame.len()), source);
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: frame.as_ptr().cast(),
            data_size_in: u32::try_from(frame.len())
                .map_err(|_| refused(io::Error::from(io::ErrorKind::InvalidInput)))?,
            ctx_in: ptr::from_ref(context).cast(),
            ctx_size_in: context_len,
            ctx_size_out: if after.is_some() { context_len } else { 0 },
            ctx_out: after.map_or(ptr::null_mut(), |after| ptr::from_mut(after).cast()),
            repeat: 1,
            flags,
            ..Default::default()
        };
        let program = self.skel.progs.weir_parser.as_fd().as_raw_fd();
        // SAFETY: the descriptor is an open program's; frame, contexts and options outlive the call.
        let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) };
        if error < 0 {
            return Err(refused(io::Error::from_raw_os_error(-error)));
        }
        Ok(())
    }
}
