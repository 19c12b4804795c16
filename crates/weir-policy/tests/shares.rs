//! What holds for fair shares, whatever happens on a CPU.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_policy::{Bound, Claim, Load, Nanos, Settings, Shares};

/// More than any limit lasts without a cause: 5 % more each 10 ms.
const LONG: u32 = 4_000;

fn bound() -> impl Strategy<Value = Bound> {
    prop::sample::select(vec![Bound::Queue, Bound::Nothing, Bound::Control, Bound::Unknown])
}

/// Channels that use a CPU together, with their demands as shares of it.
fn channels() -> impl Strategy<Value = Vec<(Bound, f64, f64)>> {
    prop::collection::vec((bound(), 0.01..4.0f64, 0.0..0.5f64), 1..8)
}

const MS: Nanos = Nanos::from_millis(1);

/// A CPU where each channel uses what it wants, or as much as it may.
struct Host {
    shares: Shares,
    limits: BTreeMap<u32, f64>,
    channels: Vec<(Bound, f64, f64)>,
}

impl Host {
    fn new(channels: Vec<(Bound, f64, f64)>) -> Self {
        Self { shares: Shares::default(), limits: BTreeMap::new(), channels }
    }

    fn look(&mut self, load: Load) {
        let claims: Vec<Claim> = self
            .channels
            .iter()
            .zip(0..)
            .map(|(channel, number)| {
                let (bound, weight, demand) = *channel;
                let limit = self.limits.get(&number).copied().unwrap_or(f64::INFINITY);
                Claim {
                    channel: number,
                    bound,
                    weight,
                    used: Nanos((demand.min(limit) * load.elapsed.0 as f64) as u64),
                    shed: demand > limit,
                }
            })
            .collect();
        self.limits = self.shares.decide(&Settings::default(), &load, &claims);
    }

    fn bound(&self, channel: u32) -> Bound {
        self.channels.get(channel as usize).unwrap().0
    }
}

fn load(idle: f64, waited: bool, overrun: bool) -> Load {
    let waited = if waited { MS } else { Nanos::ZERO };
    Load { elapsed: MS, idle: Nanos((idle * MS.0 as f64) as u64), waited, overrun }
}

proptest! {
    #[test]
    fn nobody_is_limited_where_there_is_no_want(
        channels in channels(), looks in 1..300u32, idle in 0.0..1.0f64, overrun in any::<bool>()
    ) {
        // Either it is idle now and then, or nobody waits.
        for seen in [load(idle.max(0.02), true, overrun), load(idle, false, overrun)] {
            let mut host = Host::new(channels.clone());
            for _ in 0..looks {
                host.look(seen);
                prop_assert!(host.limits.is_empty());
            }
        }
    }

    #[test]
    fn what_is_unknown_is_never_limited_and_every_limit_is_a_part(
        channels in channels(), seen in prop::collection::vec((0.0..0.03f64, any::<[bool; 2]>()), 1..300)
    ) {
        let mut host = Host::new(channels);
        for (idle, [waited, overrun]) in seen {
            host.look(load(idle, waited, overrun));
            for (channel, limit) in &host.limits {
                prop_assert!(host.bound(*channel) != Bound::Unknown);
                prop_assert!(*limit > 0.0 && *limit < 1.0, "{limit}");
            }
        }
    }

    #[test]
    fn a_queue_is_limited_only_while_the_ring_overflows(channels in channels()) {
        let mut host = Host::new(channels);
        for _ in 0..200 {
            host.look(load(0.0, true, false));
            let limited = host.limits.keys().all(|channel| host.bound(*channel) != Bound::Queue);
            prop_assert!(limited);
        }
    }

    #[test]
    fn limits_end(channels in channels(), busy in 1..300u32) {
        let mut host = Host::new(channels);
        for _ in 0..busy {
            host.look(load(0.0, true, true));
        }
        for _ in 0..LONG {
            host.look(load(0.5, true, false));
        }
        prop_assert!(host.limits.is_empty());
    }
}
