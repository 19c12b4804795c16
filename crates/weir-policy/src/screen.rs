//! Does all that is taken to go to user-mode screens go there? Rules may look at more than a packet's destination, so
//! what the gate admits to a destination is held against what the screens' queues were given.

/// So many packets in flight are no evidence.
const SLACK: u64 = 64;
/// What may go elsewhere, of what is taken to go to a queue: a part in so many.
const ELSEWHERE: u64 = 128;
/// With fewer packets nothing is told.
const FEW: u64 = 256;
/// With as many the count begins anew.
const MANY: u64 = 8192;

/// Packets, since any moment; each count may wrap. They are read in this order, and packets come meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// That queues took or refused.
    pub queued_before: u64,
    /// That gates admitted to where a queue is known to be...
    pub screened: u64,
    /// ...and to be forwarded anywhere.
    pub forwarded: u64,
    /// Of those that queues refused: to where none was known to be.
    pub unlearned: u64,
    /// As the first.
    pub queued_after: u64,
}

/// What the counts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing yet.
    None,
    /// All that is taken to go to a queue does.
    All,
    /// Some does not.
    Some,
    /// Queues are given packets that no gate sees, which may stand for those that go elsewhere.
    Unseen,
}

/// Holds what is admitted against what is queued.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger {
    from: Counts,
}

impl Ledger {
    /// Counts from here on.
    pub fn new(from: Counts) -> Self {
        Self { from }
    }

    /// What the packets since then say.
    pub fn judge(&mut self, now: Counts) -> Evidence {
        let from = self.from;
        let screened = now.screened.wrapping_sub(from.screened);
        let forwarded = now.forwarded.wrapping_sub(from.forwarded);
        let queued_most = now.queued_after.wrapping_sub(from.queued_before);
        let queued_least = now.queued_before.wrapping_sub(from.queued_after);
        let unlearned = now.unlearned.wrapping_sub(from.unlearned);
        let slack = SLACK + screened / ELSEWHERE;
        if screened >= MANY {
            self.from = now;
        }
        if screened < FEW {
            Evidence::None
        } else if queued_most.saturating_sub(unlearned) + slack < screened {
            Evidence::Some
        } else if queued_least > forwarded + slack {
            Evidence::Unseen
        } else {
            Evidence::All
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(screened: u64, others: u64, queued: u64) -> Counts {
        let forwarded = screened + others;
        Counts { queued_before: queued, screened, forwarded, unlearned: 0, queued_after: queued }
    }

    fn judge(screened: u64, others: u64, queued: u64) -> Evidence {
        Ledger::default().judge(counts(screened, others, queued))
    }

    #[test]
    fn what_goes_elsewhere_is_seen_from_two_percent_on() {
        assert_eq!(judge(8192, 0, 8192), Evidence::All);
        assert_eq!(judge(8192, 0, 8192 - 120), Evidence::All);
        assert_eq!(judge(8192, 0, 8192 - 164), Evidence::Some);
        assert_eq!(judge(300, 0, 200), Evidence::Some);
        assert_eq!(judge(300, 0, 240), Evidence::All);
    }

    #[test]
    fn few_packets_say_nothing_and_other_destinations_may_be_queued_too() {
        assert_eq!(judge(255, 0, 0), Evidence::None);
        assert_eq!(judge(8192, 500, 8600), Evidence::All);
        assert_eq!(judge(8192, 0, 9000), Evidence::Unseen);
    }

    #[test]
    fn what_is_refused_of_other_destinations_hides_nothing() {
        let judge = |unlearned| {
            let now = Counts { unlearned, ..counts(8192, 500, 8192) };
            Ledger::default().judge(now)
        };
        assert_eq!(judge(0), Evidence::All);
        assert_eq!(judge(120), Evidence::All);
        assert_eq!(judge(500), Evidence::Some);
        assert_eq!(judge(9000), Evidence::Some);
    }

    #[test]
    fn packets_that_come_while_it_is_read_say_nothing() {
        let mut ledger = Ledger::default();
        let late = Counts { queued_after: 10_300, ..counts(10_000, 0, 10_000) };
        assert_eq!(ledger.judge(late), Evidence::All);
        // They are counted in the next reading, and were not in the last.
        assert_eq!(ledger.judge(counts(16_000, 0, 16_000)), Evidence::All);
        assert_eq!(ledger.judge(counts(17_000, 0, 16_500)), Evidence::Some);
    }

    #[test]
    fn counts_wrap() {
        let from = Counts { queued_before: 5, queued_after: 5, ..counts(u64::MAX - 9, 0, 0) };
        let now = Counts { queued_before: 10_005, queued_after: 10_005, ..counts(9990, 0, 0) };
        assert_eq!(Ledger::new(from).judge(now), Evidence::All);
        let fewer = Counts { queued_before: 9005, queued_after: 9005, ..now };
        assert_eq!(Ledger::new(from).judge(fewer), Evidence::Some);
    }
}
