//! The gate's parser by itself, run on one frame after another: for tests.
//!
//! `bpf/parser.bpf.c` is never attached; it says what `bpf/parse.h` makes of the bytes that it is run
//! on (`BPF_PROG_TEST_RUN`).

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::ptr;

use libbpf_rs::libbpf_sys;

use crate::error::{Error, Result};
use crate::object::{globals, load};
use crate::skeleton::parser::{ParserSkel, ParserSkelBuilder, types};
use crate::test_run;
use crate::units::IfIndex;

/// The values of [`Parsed::family`].
pub use types::weir_family as Family;
/// The values of [`Parsed::fragment`].
pub use types::weir_fragment as Fragment;
/// The values of [`Parsed::parse`].
pub use types::weir_parse as Parse;
/// What the parser made of one frame: `struct weir_parsed` of `bpf/abi/`, which documents it.
pub use types::weir_parsed as Parsed;

impl Parsed {
    /// How far the parser got.
    pub fn reached(&self) -> Parse {
        Parse(self.parse)
    }

    /// Which part of a datagram it is.
    pub fn part(&self) -> Fragment {
        Fragment(self.fragment.into())
    }

    /// The IP addresses, source first; none of what is not IP.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let address: fn([u8; 16]) -> IpAddr = match Family(self.family.into()) {
            Family::WEIR_FAMILY_IPV4 => |[a, b, c, d, ..]| [a, b, c, d].into(),
            Family::WEIR_FAMILY_IPV6 => IpAddr::from,
            _ => return None,
        };
        Some((address(self.source), address(self.destination)))
    }

    /// UDP's or TCP's ports, source first.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let has_ports = matches!(self.reached(), Parse::WEIR_PARSE_UDP | Parse::WEIR_PARSE_TCP);
        has_ports.then_some((self.source_port, self.destination_port))
    }
}

/// Shortest frame that the kernel runs a program on, in bytes: an Ethernet header (`bpf_prog_test_run_xdp()`).
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
        Ok(Self { skel: load::<ParserSkelBuilder>("the parser", |_| Ok(()))? })
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
        let context = test_run::xdp_context(first_buffer, IfIndex(0));
        let mut after = [0_u8; size_of::<libbpf_sys::xdp_md>()];
        self.run(
            frame,
            &context,
            libbpf_sys::bpf_test_run_opts {
                ctx_out: after.as_mut_ptr().cast(),
                ctx_size_out: after.len() as u32,
                ..Default::default()
            },
        )?;
        let data_end = u32::from_ne_bytes([after[4], after[5], after[6], after[7]]);
        let globals = globals(self.skel.maps.bss_data.as_deref());
        // SAFETY: the reference is valid, and the program, which alone writes it, does not run: this
        // is its only user. Volatile, since the compiler has not seen the kernel write.
        let (parsed, usual) = unsafe {
            let parsed = ptr::read_volatile(&raw const globals.parsed);
            (parsed, ptr::read_volatile(&raw const globals.parsed_usual))
        };
        Ok(Parsing { parsed, usual, first_buffer: data_end as usize })
    }

    /// Lets an interface of the calling thread's network namespace receive a frame, as from its
    /// driver.
    ///
    /// # Errors
    /// The kernel's refusal: no such interface, or a frame that does not fit into one buffer.
    pub fn deliver(&mut self, frame: &[u8], ifindex: IfIndex) -> Result<()> {
        let flags = libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;
        let options = libbpf_sys::bpf_test_run_opts { flags, ..Default::default() };
        self.run(frame, &test_run::xdp_context(frame.len(), ifindex), options)
    }

    fn run(
        &mut self,
        frame: &[u8],
        context: &[u8],
        options: libbpf_sys::bpf_test_run_opts,
    ) -> Result<()> {
        let options = libbpf_sys::bpf_test_run_opts { repeat: 1, ..options };
        let run = test_run::run(self.skel.progs.weir_parser.as_fd(), frame, context, options);
        let refused = |source| Error::system("parse", format!("{} bytes", frame.len()), source);
        run.map(drop).map_err(refused)
    }
}
