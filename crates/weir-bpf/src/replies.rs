//! When the lab's echo server replied: `bpf/replies.bpf.c`.

use std::os::fd::AsFd;

use crate::attach::{self, Attached};
use crate::error::Result;
use crate::mapped::Mapped;
use crate::object::{globals, load};
use crate::skeleton::replies::{RepliesSkel, RepliesSkelBuilder};
use crate::units::{IfIndex, Nanos};

/// Of how many questions, from a flow's first, the reply is looked for.
pub const QUESTIONS: u32 = 1 << 17;

/// The program, loaded, and what it has seen. It stays attached without it.
pub struct Replies {
    skel: RepliesSkel<'static>,
    ages: Mapped<u64>,
}

impl Replies {
    /// Loads it, for a server at this port.
    ///
    /// # Errors
    /// Without the privilege.
    pub fn load(port: u16) -> Result<Self> {
        let what = "the program that sees an echo server's replies";
        let skel = load::<RepliesSkelBuilder>(what, |open| {
            globals(open.maps.rodata_data.as_deref_mut()).port = port;
            open.maps.ages.set_max_entries(QUESTIONS)
        })?;
        let ages = Mapped::of(skel.maps.ages.as_fd(), QUESTIONS as usize)?;
        Ok(Self { skel, ages })
    }

    /// Attaches it where packets leave by an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// Before Linux 6.6, which has no tcx.
    pub fn attach(&self, ifindex: IfIndex, ifname: &str) -> Result<Attached> {
        attach::at_egress(self.skel.progs.weir_replies.as_fd(), ifindex, ifname).map(Attached)
    }

    /// How long after it was made a flow's question of this number was replied to; `None` if it was not.
    pub fn age(&self, number: u32) -> Option<Nanos> {
        let age = self.ages.read(number);
        (age != 0).then_some(Nanos(age))
    }
}
