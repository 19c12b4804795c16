//! What holds for fair shares, whatever happens on a CPU.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use std::collections::BTreeMap;

use common::cases;
use proptest::prelude::*;
use weir_policy::{Bound, Claim, Load, Nanos, Settings, Share, Shares};

/// More than any limit lasts without a cause: 5 % more each 10 ms.
const LONG: u32 = 4_000;

/// A channel, with its demand as a share of a CPU.
#[derive(Clone, Copy, Debug)]
struct Channel {
    bound: Bound,
    protected: bool,
    weight: f64,
    demand: f64,
}

fn channel() -> impl Strategy<Value = Channel> {
    let bounds = vec![Bound::Queue, Bound::Nothing, Bound::Unknown];
    let parts = (prop::sample::select(bounds), any::<bool>(), 0.01..4.0f64, 0.0..0.5f64);
    parts.prop_map(|(bound, protected, weight, demand)| Channel {
        bound,
        protected,
        weight,
        demand,
    })
}

/// Channels that use a CPU together.
fn channels() -> impl Strategy<Value = Vec<Channel>> {
    prop::collection::vec(channel(), 1..8)
}

/// What the protected class has.
fn control() -> impl Strategy<Value = Share> {
    let (least, most) = Shares::CONTROL_PERCENT_RANGE;
    (least..most).prop_map(|percent| Share::percent(percent).unwrap())
}

fn usual() -> Share {
    Share::percent(Shares::CONTROL_PERCENT).unwrap()
}

const MS: Nanos = Nanos::from_millis(1);

/// A CPU where each channel uses what it wants, or as much as it may.
struct Host {
    shares: Shares,
    limits: BTreeMap<u32, f64>,
    control: Share,
    channels: Vec<Channel>,
}

impl Host {
    fn new(channels: Vec<Channel>, control: Share) -> Self {
        Self { shares: Shares::default(), limits: BTreeMap::new(), control, channels }
    }

    fn look(&mut self, load: Load) {
        let claims: Vec<Claim> = self
            .channels
            .iter()
            .zip(0..)
            .map(|(channel, number)| {
                let Channel { bound, protected, weight, demand } = *channel;
                let limit = self.limits.get(&number).copied().unwrap_or(f64::INFINITY);
                let time = |share: f64| Nanos((share * load.elapsed.0 as f64) as u64);
                let (used, missed) = (time(demand.min(limit)), time((demand - limit).max(0.0)));
                Claim { channel: number, bound, protected, weight, used, missed }
            })
            .collect();
        self.limits = self.shares.decide(&Settings::default(), self.control, &load, &claims);
    }

    fn channel(&self, channel: u32) -> Channel {
        self.channels[channel as usize]
    }

    fn bound(&self, channel: u32) -> Bound {
        self.channel(channel).bound
    }

    /// Members of the protected class that want anything, with their limits.
    fn class(&self) -> Vec<(Channel, Option<f64>)> {
        let numbered = self.channels.iter().zip(0..);
        let members = numbered.filter(|(channel, _)| channel.protected && channel.demand > 1e-6);
        members.map(|(channel, number)| (*channel, self.limits.get(&number).copied())).collect()
    }
}

fn load(idle: f64, waited: bool, overrun: bool) -> Load {
    let waited = if waited { MS } else { Nanos::ZERO };
    let idle = Nanos((idle * MS.0 as f64) as u64);
    Load { elapsed: MS, idle, waited, overrun, ..Load::default() }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn nobody_is_limited_where_there_is_no_want(
        channels in channels(), looks in 1..300u32, idle in 0.0..1.0f64, overrun in any::<bool>()
    ) {
        // Either it is idle now and then, or nobody waits.
        for seen in [load(idle.max(0.11), true, overrun), load(idle, false, overrun)] {
            let mut host = Host::new(channels.clone(), usual());
            for _ in 0..looks {
                host.look(seen);
                prop_assert!(host.limits.is_empty());
            }
        }
    }

    #[test]
    fn what_is_unknown_is_never_limited_and_every_limit_is_a_part(
        channels in channels(), seen in prop::collection::vec((0.0..0.3f64, any::<[bool; 2]>()), 1..300)
    ) {
        let mut host = Host::new(channels, usual());
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
        let mut host = Host::new(channels, usual());
        for _ in 0..200 {
            host.look(load(0.0, true, false));
            let limited = host.limits.keys().all(|channel| host.bound(*channel) != Bound::Queue);
            prop_assert!(limited);
        }
    }

    #[test]
    fn limits_end(channels in channels(), busy in 1..300u32) {
        let mut host = Host::new(channels, usual());
        for _ in 0..busy {
            host.look(load(0.0, true, true));
        }
        for _ in 0..LONG {
            host.look(load(0.5, true, false));
        }
        prop_assert!(host.limits.is_empty());
    }

    #[test]
    fn the_protected_class_never_gets_more_than_its_share_of_what_has_no_queue(
        channels in channels(), control in control(), overrun in any::<bool>()
    ) {
        let mut host = Host::new(channels, control);
        for _ in 0..200 {
            host.look(load(0.0, true, overrun));
            let apart = host.class().into_iter().filter(|(each, _)| each.bound == Bound::Nothing);
            let limits: f64 = apart.filter_map(|(_, limit)| limit).sum();
            prop_assert!(limits <= control.get() + 1e-9, "{limits}");
        }
    }

    #[test]
    fn who_is_protected_is_never_limited_below_its_part(
        channels in channels(), control in control(),
        seen in prop::collection::vec((0.0..0.3f64, any::<[bool; 2]>()), 1..300)
    ) {
        let weights: f64 = channels.iter().filter(|each| each.protected).map(|each| each.weight).sum();
        let mut host = Host::new(channels, control);
        for (idle, [waited, overrun]) in seen {
            host.look(load(idle, waited, overrun));
            for (each, limit) in host.class() {
                let part = control.get() * each.weight / weights;
                prop_assert!(limit.is_none_or(|limit| limit > part - 1e-9), "{limit:?} of {part}");
            }
        }
    }

    #[test]
    fn the_protected_class_is_divided_max_min(
        channels in prop::collection::vec(channel(), 2..8), control in control()
    ) {
        let all = |each| Channel { bound: Bound::Nothing, protected: true, ..each };
        let mut host = Host::new(channels.into_iter().map(all).collect(), control);
        for _ in 0..400 {
            host.look(load(0.0, true, false));
        }
        let class = host.class();
        let levels = class.iter().filter_map(|(each, limit)| Some((*limit)? / each.weight));
        let level = levels.fold(f64::INFINITY, f64::min);
        let gets = |(each, limit): &(Channel, Option<f64>)| limit.unwrap_or(each.demand);
        // Nobody gets more for his weight than one who is limited, and nothing of the share is left over.
        for each in &class {
            prop_assert!(gets(each) <= (level * each.0.weight) * 1.01 + 1e-6);
        }
        let together: f64 = class.iter().map(gets).sum();
        if level.is_finite() {
            prop_assert!((together / control.get() - 1.0).abs() < 0.01, "{together}");
        } else {
            prop_assert!(together <= control.get() * 1.01);
        }
    }
}
