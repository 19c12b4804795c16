//! What holds of the law for any history of observations, and in a closed loop with a simple CPU.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod common;

use common::cases;
use proptest::prelude::*;
use weir_policy::governor::{LOOK_AWAKE, REST, WARM_UP};
use weir_policy::{Action, Governor, Nanos, Nice, Observation, Prefer, Regime, Settings, Share};

fn ns(ms: f64) -> Nanos {
    Nanos((ms * 1e6) as u64)
}

fn settings() -> impl Strategy<Value = Settings> {
    let prefer = prop_oneof![Just(Prefer::Separation), Just(Prefer::Throughput)];
    (5.0..95.0, prefer, 1u64..=1000).prop_map(|(user, prefer, period)| Settings {
        user_share: Share::percent(user).unwrap(),
        prefer,
        period: Nanos::from_millis(period),
        ..Settings::default()
    })
}

/// Any observation that a CPU can give.
fn observation() -> impl Strategy<Value = Observation> {
    let part = || 0.0..=1.0f64;
    let parts = [part(), part(), part(), part(), part(), part(), part()];
    (0.1..100.0f64, parts, any::<[bool; 6]>()).prop_map(
        |(elapsed, parts, [waits, over, alarm, beside, joins, overran])| {
            let [ran, wasted, taken, strangers, light, held, busy] = parts;
            let rest = 1.0 - ran;
            let left = rest * (1.0 - strangers) * (1.0 - light);
            Observation {
                elapsed: ns(elapsed),
                ran: ns(elapsed * ran),
                waits,
                over,
                alarm,
                wasted: ns(elapsed * ran * wasted),
                taken: ns(elapsed * ran * taken),
                held: ns(elapsed * rest * strangers * held),
                strangers: ns(elapsed * rest * strangers),
                light: ns(elapsed * rest * (1.0 - strangers) * light),
                busy: ns(elapsed * left * busy),
                overran,
                packets: (1000.0 * elapsed * ran) as u64,
                discarded: (1000.0 * elapsed * ran * wasted) as u64,
                beside,
                joins,
            }
        },
    )
}

fn history() -> impl Strategy<Value = Vec<Observation>> {
    prop::collection::vec(observation(), 1..60)
}

/// The last decision of a new governor that sees a history.
fn after(history: &[Observation], settings: &Settings) -> (Governor, Action) {
    let first = Governor::default().decide(settings, &history[0]);
    history[1..].iter().fold(first, |(governor, _), seen| governor.decide(settings, seen))
}

/// One CPU with a NAPI thread and other tasks that always want it. The task with the least weighted run time gets the
/// next slice. Input has work while its ring holds any; admitted packets come first, the rest is discarded.
///
/// It does not model wake-up preemption, interrupts, idle time, queues that fill, or several CPUs.
struct Cpu {
    /// How many other tasks of nice 0.
    others: f64,
    strangers: bool,
    beside: bool,
    slice_ms: f64,
    /// CPU time per second that admitted packets need, and what the flood would need: its rate times `c_gate`.
    load: [f64; 2],
    ring_ms: [f64; 2],
    input_runs: bool,
    left_ms: f64,
    input_vruntime_ms: f64,
    others_vruntime_ms: f64,
}

impl Cpu {
    const TICK_MS: f64 = 0.1;
    const RING_MS: f64 = 2.0;

    fn new(others: u32, strangers: bool, beside: bool, slice_ms: f64, load: [f64; 2]) -> Self {
        Self {
            others: f64::from(others),
            strangers,
            beside,
            slice_ms,
            load,
            ring_ms: [0.0; 2],
            input_runs: false,
            left_ms: 0.0,
            input_vruntime_ms: 0.0,
            others_vruntime_ms: 0.0,
        }
    }

    /// What happens until the next look.
    fn run(&mut self, weight: Nice) -> Observation {
        let (mut ran, mut wasted, mut overran) = (0.0, 0.0, false);
        for _ in 0..(LOOK_AWAKE.as_millis() / Self::TICK_MS).round() as u32 {
            for (ring, load) in self.ring_ms.iter_mut().zip(self.load) {
                *ring = (*ring + load * Self::TICK_MS).min(Self::RING_MS);
            }
            overran |= self.ring_ms.contains(&Self::RING_MS);
            let wants = self.ring_ms.iter().sum::<f64>() >= Self::TICK_MS;
            if self.left_ms < Self::TICK_MS / 2.0 || (self.input_runs && !wants) {
                let next = wants && self.input_vruntime_ms <= self.others_vruntime_ms;
                (self.input_runs, self.left_ms) = (next, self.slice_ms);
            }
            self.left_ms -= Self::TICK_MS;
            if self.input_runs {
                let useful = self.ring_ms[0].min(Self::TICK_MS);
                self.ring_ms[0] -= useful;
                self.ring_ms[1] -= Self::TICK_MS - useful;
                ran += Self::TICK_MS;
                wasted += Self::TICK_MS - useful;
                self.input_vruntime_ms += Self::TICK_MS * 1.25f64.powi(weight.0);
            } else {
                self.others_vruntime_ms += Self::TICK_MS / self.others;
            }
        }
        let of_strangers = |time: Nanos| if self.strangers { time } else { Nanos::ZERO };
        Observation {
            elapsed: LOOK_AWAKE,
            ran: ns(ran),
            alarm: wasted > 0.0,
            wasted: ns(wasted),
            taken: of_strangers(ns(ran)),
            strangers: of_strangers(LOOK_AWAKE - ns(ran)),
            overran,
            beside: self.beside && wasted > 0.0,
            ..Default::default()
        }
    }

    /// The means of what input wastes and takes in a second, once the loop has settled, and the weights that it had.
    fn settled(mut self, settings: &Settings) -> (f64, f64, Vec<i32>) {
        let alarm = Observation { elapsed: LOOK_AWAKE, alarm: true, ..Default::default() };
        let (mut governor, mut action) = after(&[alarm], settings);
        let looks = (REST.0 / LOOK_AWAKE.0) as usize;
        let settling = looks + (20 * settings.period.0 / LOOK_AWAKE.0) as usize;
        let (mut wasted, mut taken, mut weights) = (0.0, 0.0, vec![]);
        for look in 0..settling + looks {
            let seen = self.run(action.weight);
            (governor, action) = governor.decide(settings, &seen);
            if look >= settling {
                wasted += seen.wasted.share_of(REST);
                taken += seen.taken.share_of(REST);
                weights.push(action.weight.0);
            }
        }
        (wasted, taken, weights)
    }
}

fn swing(weights: &[i32]) -> i32 {
    weights.iter().max().unwrap() - weights.iter().min().unwrap()
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn weight_policy_and_use_stay_in_range(history in history(), settings in settings()) {
        for looks in 1..=history.len() {
            let (governor, action) = after(&history[..looks], &settings);
            let heaviest = match action.regime {
                Regime::Asleep => 0,
                Regime::Isolating => -10,
                Regime::Shared => -20,
            };
            prop_assert!((heaviest..=19).contains(&action.weight.0), "{:?}", action);
            prop_assert!(action.regime != Regime::Asleep || action.weight == Nice::NORMAL);
            prop_assert_eq!(action.batch, action.regime != Regime::Shared);
            prop_assert!((0.0..=1.0).contains(&governor.used()));
        }
    }

    #[test]
    fn it_wakes_at_the_next_alarm_and_sleeps_after_a_rest(
        history in history(), settings in settings(), last in observation(),
    ) {
        let (governor, _) = after(&history, &settings);
        let (mut governor, action) = governor.decide(&settings, &Observation { alarm: true, ..last });
        prop_assert!(action.regime != Regime::Asleep);
        // It is calm once what input took and wasted is forgotten down to its share.
        let forgotten = settings.period.as_millis() * (1.0 / settings.user_share.rest()).ln();
        let calm = Observation { elapsed: LOOK_AWAKE, ..Default::default() };
        // Others, all of the CPU at most, are forgotten down to a tenth of it.
        let others = REST.as_millis() / 2.0 * 10.0_f64.ln();
        let until = others.max(REST.as_millis()) + forgotten;
        let mut asleep = false;
        for _ in 0..(until / LOOK_AWAKE.as_millis()).ceil() as u32 + 1 {
            let (next, action) = governor.decide(&settings, &calm);
            prop_assert!(!asleep || action.regime == Regime::Asleep);
            (governor, asleep) = (next, action.regime == Regime::Asleep);
        }
        prop_assert!(asleep);
    }

    #[test]
    fn over_its_share_input_gets_lighter_until_it_is_the_lightest(
        history in history(), settings in settings(), stranger in any::<bool>(), beside in any::<bool>(),
    ) {
        let all = Observation { elapsed: LOOK_AWAKE, ran: LOOK_AWAKE, beside, alarm: true, ..Default::default() };
        let all = if stranger { Observation { taken: LOOK_AWAKE, ..all } } else { Observation { wasted: LOOK_AWAKE, ..all } };
        let (governor, _) = after(&history, &settings);
        // It may have yielded to a receiver before.
        let (mut governor, mut action) = governor.decide(&settings, &all);
        // The average is half way from the share to 1 after ln(2 / user share) periods, then 39 steps.
        let user = settings.user_share.get();
        let periods = (2.0 / user).ln() + 39.0 / (40.0 * user / 2.0);
        let period = settings.period.as_millis().max(10.0);
        for _ in 0..(periods * period / LOOK_AWAKE.as_millis()).ceil() as u32 + 1 {
            let before = action.weight.0;
            (governor, action) = governor.decide(&settings, &all);
            let over = governor.used() > settings.user_share.rest();
            prop_assert!(!over || action.weight.0 >= before, "{} {:?}", before, action);
        }
        prop_assert_eq!(action.weight, Nice::LIGHTEST);
    }

    #[test]
    fn only_other_tasks_or_another_channel_make_it_heavier_than_normal(
        history in history(), settings in settings(),
    ) {
        let throughput = Settings { prefer: Prefer::Throughput, ..settings };
        let alone: Vec<_> = history.iter().map(|&seen| Observation { beside: false, joins: false, ..seen }).collect();
        for looks in 1..=history.len() {
            for action in [after(&history[..looks], &throughput).1, after(&alone[..looks], &settings).1] {
                prop_assert!(action.regime == Regime::Shared || action.weight.0 >= 0);
            }
        }
    }

    #[test]
    fn waiting_asleep_is_sharing_if_others_than_receivers_are_seen_to_run(
        settings in settings(), strangers in 0.0..1.0f64,
    ) {
        let waits = Observation { elapsed: WARM_UP, ran: LOOK_AWAKE, waits: true, ..Default::default() };
        let seen = Observation { strangers: ns(strangers * WARM_UP.as_millis()), waits: false, ..waits };
        let (_, action) = after(&[waits, seen, seen], &settings);
        // One look, averaged with a time constant of half its length.
        let shared = strangers * (1.0 - (-2.0_f64).exp()) > 0.1;
        prop_assert_eq!(action.regime, if shared { Regime::Shared } else { Regime::Asleep });
        prop_assert_eq!(action.watch, shared);
    }
}

proptest! {
    #![proptest_config(cases(64))]

    /// Or as near to it as the heaviest weight gets it.
    #[test]
    fn a_flood_beside_another_channel_gets_its_share(
        user in 5.0..95.0f64, period in 1u64..=1000, strangers in any::<bool>(), others in 1u32..4,
        admitted in 0.0..0.05f64, excess in 0.1..2.0f64, slice_ms in prop::sample::select(vec![0.1, 0.7]),
    ) {
        let settings = Settings {
            user_share: Share::percent(user).unwrap(), period: Nanos::from_millis(period), ..Settings::default()
        };
        let share = settings.user_share.rest();
        let load = [admitted, share + excess];
        let (wasted, taken, weights) = Cpu::new(others, strangers, true, slice_ms, load).settled(&settings);
        let used = wasted.max(taken);
        let at_the_end = weights.iter().all(|&nice| nice == -10 || nice == -20) && used < share;
        prop_assert!((used - share).abs() < 0.03 || at_the_end, "{} of {}, {:?}", used, share, weights);
        prop_assert!(swing(&weights) <= 3, "{:?}", weights);
    }

    #[test]
    fn a_flood_beside_nothing_gets_next_to_nothing(
        user in 5.0..95.0f64, period in 1u64..=100, others in 1u32..4,
        admitted in 0.0..0.05f64, flood in 0.1..2.0f64, slice_ms in prop::sample::select(vec![0.1, 0.7]),
    ) {
        let settings = Settings {
            user_share: Share::percent(user).unwrap(), period: Nanos::from_millis(period), ..Settings::default()
        };
        let (wasted, taken, weights) =
            Cpu::new(others, false, false, slice_ms, [admitted, flood]).settled(&settings);
        let lightest = weights.iter().all(|&nice| nice == 19);
        // After a second without discards it sleeps, and is met anew at the usual weight.
        prop_assert!(wasted < 0.05 || lightest, "{} {:?}", wasted, weights);
        prop_assert!(taken < settings.user_share.rest() + 0.03);
    }
}
