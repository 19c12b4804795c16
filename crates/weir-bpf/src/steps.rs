//! The generator's packets on their way to a receiver: `bpf/steps.bpf.c`, for the lab.

use std::os::fd::AsFd;

use libbpf_rs::skel::Skel;
use rustix::process::Pid;

use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::object::{globals, load};
use crate::replies::QUESTIONS;
use crate::skeleton::steps::{StepsSkel, StepsSkelBuilder};
use crate::units::{CpuId, Nanos};
use crate::verdict::Step;

const STEPS: usize = Step::Runs as usize + 1;

/// What becomes of a packet, by [`Step`], each since it was made; `None`: not for this packet. Of its time in the
/// socket's queue, nothing is known.
pub type Steps = [Option<Nanos>; STEPS];

/// The tracepoint programs, attached until they are dropped, and what they have seen.
pub struct StepTrace {
    _skel: StepsSkel<'static>,
    packets: Mapped<[u64; STEPS]>,
}

impl StepTrace {
    /// Loads and attaches them, for a receiver at a UDP port, the CPU that it and input run on, and the NAPI thread
    /// that polls; `None`: softirqs do. It sees a flow's first [`QUESTIONS`] packets.
    ///
    /// # Errors
    /// Without the privilege.
    pub fn begin((receiver, port): (Pid, u16), cpu: CpuId, poller: Option<Pid>) -> Result<Self> {
        let what = "the trace of packets";
        let mut skel = load::<StepsSkelBuilder>(what, |open| {
            let constants = globals(open.maps.rodata_data.as_deref_mut());
            constants.port = port;
            constants.cpu = cpu.0;
            constants.receiver = receiver.as_raw_nonzero().get();
            constants.poller = poller.map_or(0, |pid| pid.as_raw_nonzero().get());
            open.maps.packets.set_max_entries(QUESTIONS)
        })?;
        let packets = Mapped::of(skel.maps.packets.as_fd(), QUESTIONS as usize)?;
        skel.attach().map_err(Error::bpf("attach", what))?;
        Ok(Self { _skel: skel, packets })
    }

    /// The steps of the packet of this number in its flow.
    pub fn steps(&self, number: u32) -> Steps {
        self.packets.read(number).map(|ns| (ns != 0).then_some(Nanos(ns)))
    }
}
