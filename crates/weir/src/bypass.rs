//! Packets that the interface receives and the gate does not see.

use weir_bpf::attach::AttachMode;

use crate::sample::Sample;

/// A driver may count what it has received this much later, in ticks.
const COUNTED_LATE_TICKS: u32 = 5;
/// Fewer are not worth a word.
const WORTH_TELLING: u64 = 100;

/// What the interface has received while its gate, at XDP, saw nothing at all. At tc other programs may take what they
/// like.
#[derive(Debug, Default)]
pub struct Bypass {
    /// Ticks since the gate has seen a packet, or the interface has changed.
    quiet: u32,
    packets: u64,
    /// That there are such packets has been told since the interface changed.
    told: bool,
}

impl Bypass {
    /// Packets that the interface has received since its gate last saw one.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The interface has changed: its driver may count anew, or from before.
    pub fn begin_anew(&mut self) {
        *self = Self::default();
    }

    /// From one tick to the next; returns what is to be told, if that is new.
    pub fn look(&mut self, attach: AttachMode, before: &Sample, now: &Sample) -> Option<String> {
        if !attach.is_xdp() || now.gate.total().packets > before.gate.total().packets {
            (self.quiet, self.packets) = (0, 0);
        } else if self.quiet < COUNTED_LATE_TICKS {
            self.quiet += 1;
        } else {
            self.packets += now.received.saturating_sub(before.received);
        }
        let news = shortcoming(attach, self.packets).filter(|_| !self.told)?;
        self.told = true;
        Some(news)
    }
}

/// What is wrong if so many packets went past the gate.
pub fn shortcoming(attach: AttachMode, packets: u64) -> Option<String> {
    let why = match attach {
        AttachMode::Native => {
            "its driver may have forgotten the gate, as vmxnet3 does when the MTU changes, or counts \
             what is not for this host; start weir again, or use `--attach tc`"
        }
        _ => {
            "what tc redirects to here is not shown to generic XDP, or the driver counts what is not \
             for this host; use `--attach tc`"
        }
    };
    let attach = attach.description();
    (packets >= WORTH_TELLING)
        .then(|| format!("the last {packets} packets went past the gate at {attach}: {why}"))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use weir_bpf::counters::Counters;
    use weir_bpf::gate::Policy;
    use weir_bpf::verdict::Reason;

    use super::*;
    use crate::sample::Drops;

    fn sample(received: u64, seen: u64) -> Sample {
        let mut gate = Counters::default();
        (0..seen).for_each(|_| gate.count(Reason::Icmp, 0));
        let (policy, drops) = (Policy::On, Drops::default());
        Sample { at: Instant::now(), gate, policy, drops, received }
    }

    #[test]
    fn what_is_counted_late_went_past_nothing() {
        let mut bypass = Bypass::default();
        let mut look = |attach, before: (u64, u64), now: (u64, u64)| {
            let (before, now) = (sample(before.0, before.1), sample(now.0, now.1));
            let news = bypass.look(attach, &before, &now);
            (bypass.packets(), news.is_some())
        };
        // Received and seen, then counted when nothing comes any more.
        assert_eq!(look(AttachMode::Native, (0, 0), (10, 100)), (0, false));
        for _ in 0..COUNTED_LATE_TICKS {
            assert_eq!(look(AttachMode::Native, (10, 100), (100, 100)), (0, false));
        }
        assert_eq!(look(AttachMode::Native, (100, 100), (170, 100)), (70, false));
        assert_eq!(look(AttachMode::Native, (170, 100), (240, 100)), (140, true));
        // Told once. A driver's counters may begin anew.
        assert_eq!(look(AttachMode::Native, (240, 100), (3, 100)), (140, false));
        assert_eq!(look(AttachMode::Native, (3, 100), (4, 101)), (0, false));
        for _ in 0..9 {
            assert_eq!(look(AttachMode::Tcx, (0, 0), (1000, 0)), (0, false));
        }
        assert_eq!(shortcoming(AttachMode::Native, 99), None);
        assert!(shortcoming(AttachMode::Native, 100).unwrap().contains("100 packets"));
    }
}
