//! What full NAPI polls take: `bpf/poll_cost.bpf.c`, for the lab.

use std::mem::offset_of;
use std::os::fd::AsFd;

use libbpf_rs::skel::Skel;

use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::object::load;
use crate::skeleton::poll_cost::{PollCostSkel, PollCostSkelBuilder, types};

/// Polls of one NAPI instance, cumulative.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollCost {
    /// Packets that they took.
    pub packets: u64,
    /// Of those, the packets of full polls: that took a whole budget right after one that did, and were not
    /// interrupted for long.
    pub full_packets: u64,
    /// Full polls by whole nanoseconds per packet.
    pub histogram: Vec<u32>,
}

impl PollCost {
    /// Nanoseconds per packet that so great a share, 0 to 1, of the full polls since `before` stayed
    /// within, to a fraction of one by interpolation; `None` if there was none.
    pub fn quantile_ns_since(&self, before: &Self, share: f64) -> Option<f64> {
        let earlier = before.histogram.iter().chain(std::iter::repeat(&0));
        let polls: Vec<u32> =
            self.histogram.iter().zip(earlier).map(|(now, then)| now.wrapping_sub(*then)).collect();
        let wanted = polls.iter().map(|count| f64::from(*count)).sum::<f64>() * share;
        let mut below = 0.0;
        for (ns, count) in polls.iter().map(|count| f64::from(*count)).enumerate() {
            if count > 0.0 && below + count >= wanted {
                return Some(ns as f64 + (wanted - below) / count);
            }
            below += count;
        }
        None
    }
}

/// The tracepoint program that times polls, attached until it is dropped.
pub struct PollClock {
    _skel: PollCostSkel<'static>,
    globals: Mapped<types::bss>,
}

impl PollClock {
    /// Loads and attaches it; it watches nothing yet.
    ///
    /// # Errors
    /// Without the privilege.
    pub fn load() -> Result<Self> {
        let what = "the clock of NAPI polls";
        let mut skel = load::<PollCostSkelBuilder>(what, |_| Ok(()))?;
        skel.attach().map_err(Error::bpf("attach", what))?;
        Ok(Self { globals: Mapped::of(skel.maps.bss.as_fd(), 1)?, _skel: skel })
    }

    /// Watches one instance from now on, [`NapiThread::napi_id`](crate::sys::napi::NapiThread).
    pub fn watch(&mut self, napi_id: u32) {
        self.globals.set(0, offset_of!(types::bss, watched_napi_id), napi_id);
    }

    /// What it has counted so far. Not one instant: polls end meanwhile, and one figure may be of
    /// one poll more than another.
    pub fn read(&self) -> PollCost {
        let read: types::weir_poll_cost = self.globals.get(0, offset_of!(types::bss, poll_cost));
        PollCost {
            packets: read.packets,
            full_packets: read.full_packets,
            histogram: read.histogram.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PollCost;

    #[test]
    fn a_quantile_lies_within_its_nanosecond() {
        let polls =
            |histogram: &[u32]| PollCost { histogram: histogram.into(), ..Default::default() };
        let before = polls(&[5, 0, 0, 0]);
        assert_eq!(polls(&[5, 0, 0, 0]).quantile_ns_since(&before, 0.5), None);
        assert_eq!(polls(&[5, 0, 4, 0]).quantile_ns_since(&before, 0.5), Some(2.5));
        assert_eq!(
            polls(&[5, 10, 4, 4000]).quantile_ns_since(&before, 0.5).map(f64::floor),
            Some(3.0)
        );
        assert_eq!(
            polls(&[0, 3, 1]).quantile_ns_since(&PollCost::default(), 0.5),
            Some(1.0 + 2.0 / 3.0)
        );
    }
}
