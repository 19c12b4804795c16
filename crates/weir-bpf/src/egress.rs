//! Queues of egress interfaces: which destinations lead to one that refuses packets. `bpf/egress.bpf.c`,
//! `bpf/egress.h`.

use libbpf_rs::Link;
use libbpf_rs::skel::OpenSkel;

use crate::error::Result;
use crate::object::{globals, hear, load};
use crate::probe::{QueueProbe, share};
use crate::skeleton::egress::{EgressSkel, EgressSkelBuilder};
use crate::sys::link::Links;
use crate::sys::netns::NetNs;

/// Queueing disciplines whose fill the gate reads: `bpf/egress_queue.h`.
const READ: [&str; 3] = ["pfifo", "bfifo", "tbf"];
const HEARER: &str = "what hears the queues of egress interfaces";

/// Whether some interface sends by a queue that the gate can read. So it is taken to be where that cannot be told.
pub fn any_is_read(links: &Links) -> bool {
    links.has_qdisc_of(&READ).unwrap_or(true)
}

/// Whether the gate can read one of these kinds.
pub fn is_read(kinds: &[String]) -> bool {
    kinds.iter().all(|kind| READ.contains(&kind.as_str()))
}

/// Hears what egress queues refuse, while packets are forwarded.
pub struct Egresses {
    skel: EgressSkel<'static>,
    refused: Option<Link>,
}

impl Egresses {
    /// Loads what hears them, in the calling thread's network namespace.
    ///
    /// # Errors
    /// Without the privilege, or on a kernel that lacks what it takes.
    pub fn load(probe: &QueueProbe) -> Result<Self> {
        let netns = NetNs::current()?.number();
        let skel = load::<EgressSkelBuilder>(HEARER, |open| {
            share!(open, probe);
            globals(open.maps.rodata_data.as_deref_mut()).netns = netns;
            Ok(())
        })?;
        Ok(Self { skel, refused: None })
    }

    /// Whether a destination is an address, or one of its ports: see [`ports_choose_no_egress`].
    ///
    /// [`ports_choose_no_egress`]: crate::sys::divert::ports_choose_no_egress
    pub fn set_by_address(&mut self, by_address: bool) {
        let bss = globals(self.skel.maps.bss_data.as_deref_mut());
        bss.by_address = by_address;
    }

    /// Hears them from now on, or does not.
    ///
    /// # Errors
    /// When the kernel does not let it.
    pub fn hear(&mut self, wanted: bool) -> Result<()> {
        hear(&mut self.refused, &self.skel.progs.weir_overfull, wanted, HEARER).map(drop)
    }
}
