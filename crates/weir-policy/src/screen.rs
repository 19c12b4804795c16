//! Does all that is taken to go to user-mode screens go there? Rules may look at more than a packet's destination, so
//! what the gate admits to a destination is held against what the screens' queues were given.

/// So few are no evidence.
const SLACK: u64 = 8;
/// With fewer packets nothing is told.
const FEW: u64 = 4096;

/// Packets, since any moment; each count may wrap. They are read in this order, and packets come meanwhile: the last when
/// those of the others have arrived.
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

/// Holds what is admitted against what is queued: a running balance, so that the little that goes elsewhere adds up,
/// however much did not before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger {
    begun: Counts,
    /// When least had gone elsewhere.
    balanced: Counts,
}

impl Ledger {
    /// Counts from here on.
    pub fn new(from: Counts) -> Self {
        Self { begun: from, balanced: from }
    }

    /// What the packets since then say.
    pub fn judge(&mut self, now: Counts) -> Evidence {
        let elsewhere = now.since(&self.balanced);
        let screened = elsewhere.screened + elsewhere.unlearned;
        if elsewhere.queued >= screened {
            self.balanced = now;
        }
        let all = now.since(&self.begun);
        if elsewhere.queued_most + SLACK < screened {
            Evidence::Some
        } else if all.queued_least > all.forwarded + SLACK {
            Evidence::Unseen
        } else if all.screened < FEW {
            Evidence::None
        } else {
            Evidence::All
        }
    }
}

/// Packets between two readings.
struct Packets {
    screened: u64,
    forwarded: u64,
    unlearned: u64,
    queued: u64,
    /// While they were read, some may have been queued.
    queued_least: u64,
    queued_most: u64,
}

impl Counts {
    fn since(&self, from: &Self) -> Packets {
        let queued_least = self.queued_before.wrapping_sub(from.queued_after);
        Packets {
            screened: self.screened.wrapping_sub(from.screened),
            forwarded: self.forwarded.wrapping_sub(from.forwarded),
            unlearned: self.unlearned.wrapping_sub(from.unlearned),
            queued: self.queued_before.wrapping_sub(from.queued_before),
            // Those of one reading are no packets between two.
            queued_least: queued_least.cast_signed().max(0).cast_unsigned(),
            queued_most: self.queued_after.wrapping_sub(from.queued_before),
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
    fn the_little_that_goes_elsewhere_is_seen() {
        assert_eq!(judge(8192, 0, 8192), Evidence::All);
        assert_eq!(judge(8192, 0, 8192 - 8), Evidence::All);
        assert_eq!(judge(8192, 0, 8192 - 9), Evidence::Some);
        assert_eq!(judge(300, 0, 200), Evidence::Some);
    }

    #[test]
    fn the_little_that_begins_to_go_elsewhere_adds_up() {
        let mut ledger = Ledger::default();
        // Some are on their way whenever it is read.
        let mut judge = |screened, elsewhere| {
            let queued_before = screened - elsewhere - screened % 30;
            let queued_after = screened - elsewhere;
            ledger.judge(Counts { queued_before, queued_after, ..counts(screened, 0, 0) })
        };
        for screened in (8192..1_000_000).step_by(1000) {
            assert_eq!(judge(screened, 0), Evidence::All);
        }
        let elsewhere = (1..).find(|n| judge(1_000_000 + 1000 * n, *n) == Evidence::Some);
        assert!(elsewhere < Some(40), "{elsewhere:?} packets, one in a thousand");
    }

    #[test]
    fn few_packets_say_nothing_and_other_destinations_may_be_queued_too() {
        assert_eq!(judge(4095, 0, 4095), Evidence::None);
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
        assert_eq!(judge(8), Evidence::All);
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
