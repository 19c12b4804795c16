//! What the lab compares the gate with: `bpf/bare.bpf.c`, programs that do nothing.

use std::os::fd::{AsFd, BorrowedFd};

use crate::attach::{self, AttachMode, Attached};
use crate::error::Result;
use crate::object::load;
use crate::skeleton::bare::{BareSkel, BareSkelBuilder};
use crate::test_run::{self, TimedRun};
use crate::units::IfIndex;

/// What a bare program does with every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    /// `XDP_DROP`.
    Drop,
    /// `XDP_DROP`, after reading the packet's headers.
    TouchDrop,
    /// `XDP_PASS`.
    Pass,
}

/// The bare programs, loaded. Those that are attached stay so without it.
pub struct BarePrograms {
    skel: BareSkel<'static>,
}

impl BarePrograms {
    /// Loads them.
    ///
    /// # Errors
    /// Without the privilege.
    pub fn load() -> Result<Self> {
        Ok(Self { skel: load::<BareSkelBuilder>("the bare XDP programs", |_| Ok(()))? })
    }

    fn program(&self, bare: Bare) -> BorrowedFd<'_> {
        match bare {
            Bare::Drop => self.skel.progs.weir_bare_drop.as_fd(),
            Bare::TouchDrop => self.skel.progs.weir_touch_drop.as_fd(),
            Bare::Pass => self.skel.progs.weir_bare_pass.as_fd(),
        }
    }

    /// Attaches one in an interface's driver.
    ///
    /// # Errors
    /// Where another XDP program is attached, or the driver takes none.
    pub fn attach(&self, bare: Bare, ifindex: IfIndex) -> Result<Attached> {
        let object = format!("interface {}", ifindex.0);
        let program = self.program(bare);
        Ok(Attached(attach::by_link(program, ifindex, &object, AttachMode::Native)?))
    }

    /// As [`XdpProgram::timed`](test_run::XdpProgram::timed).
    ///
    /// # Errors
    /// When the kernel refuses the run.
    pub fn timed(
        &self,
        bare: Bare,
        packet: &[u8],
        ifindex: IfIndex,
        repeat: u32,
    ) -> Result<TimedRun> {
        test_run::timed(self.program(bare), packet, ifindex, repeat)
    }
}
