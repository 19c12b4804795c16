//! When to look at who takes packets from sockets.
//!
//! It tells receivers from tasks that compete with them, and costs a program call for each packet that is received. So
//! where no other task wants the CPU, it is looked at from time to time.

use std::time::{Duration, Instant};

use weir_bpf::abi;
use weir_bpf::input::Input;
use weir_policy::{Action, Regime};

/// So long at a time: each receiver has had a turn, and has left the CPU.
const SEEN: Duration = Duration::from_millis(20);
/// As long as a task that input woke is taken for a receiver.
const UNSEEN: Duration = Duration::from_nanos(abi::CONSUMER_NS as u64);

/// What one look after a NAPI thread knows of this.
#[derive(Default)]
pub(super) struct Receptions {
    /// Since when it looks, or does not; none: the scheduler is not watched.
    since: Option<(bool, Instant)>,
}

impl Receptions {
    pub(super) fn look(&mut self, input: &Input, action: Action, now: Instant) {
        if !action.watch {
            self.since = None;
            return;
        }
        // It looks when the scheduler begins to be watched.
        let (seen, since) = *self.since.get_or_insert((true, now));
        let over = now.duration_since(since) >= if seen { SEEN } else { UNSEEN };
        let sees = action.regime == Regime::Shared || seen != over;
        if sees != seen {
            // Where it is refused now, wake-ups alone tell receivers.
            let _ = input.watch_receptions(sees);
            self.since = Some((sees, now));
        }
    }
}
