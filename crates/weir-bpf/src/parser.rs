//! The gate's parser by itself, for tests that feed it bytes and compare.

use std::mem::MaybeUninit;

use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::error::{Error, Result};
use crate::skeleton::parser::{ParserSkel, ParserSkelBuilder, types};

/// What the parser made of a packet: `struct weir_parsed` in `bpf/abi.h`, field by field.
pub type Parsed = types::weir_parsed;

/// The loaded parser. It is never attached.
pub struct Parser {
    skel: ParserSkel<'static>,
}

impl Parser {
    /// Loads the parser.
    ///
    /// # Errors
    /// Without the privilege, or where the kernel's verifier refuses it.
    pub fn load() -> Result<Self> {
        let failed = |operation| {
            move |source| Error::Bpf {
                operation,
                object: "the parser".into(),
                source,
                remedy: Some("weir needs root (CAP_BPF, CAP_NET_ADMIN)".into()),
            }
        };
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = ParserSkelBuilder::default().open(storage).map_err(failed("open"))?;
        Ok(Self { skel: open.load().map_err(failed("load"))? })
    }

    /// Parses one frame (`BPF_PROG_TEST_RUN`), of 14 bytes at least.
    ///
    /// # Errors
    /// When the kernel refuses the run.
    pub fn parse(&self, frame: &[u8]) -> Result<Parsed> {
        let input = ProgramInput { data_in: Some(frame), ..Default::default() };
        self.skel.progs.parse_only.test_run(input).map_err(|source| Error::Bpf {
            operation: "run the parser on",
            object: format!("a frame of {} bytes", frame.len()),
            source,
            remedy: None,
        })?;
        Ok(self.skel.maps.bss_data.as_deref().map(|bss| bss.parsed).unwrap_or_default())
    }
}
