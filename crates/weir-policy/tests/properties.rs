//! What holds of the law for any history of observations.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::ops::Range;

use common::cases;
use proptest::prelude::*;
use weir_policy::{
    Action, Doing, Governor, Nanos, Observation, Patience, Prefer, Settings, Share, Weight,
};

/// The law has moved the weight the right way after so much time with a cause.
const REACTS_WITHIN: Nanos = Nanos::from_millis(2);

fn settings() -> impl Strategy<Value = Settings> {
    settings_for(5.0..95.0)
}

/// With so many percent for processes.
fn settings_for(user: Range<f64>) -> impl Strategy<Value = Settings> {
    let prefer = prop_oneof![Just(Prefer::Separation), Just(Prefer::Throughput)];
    (user, prefer, 2u64..50).prop_map(|(user, prefer, period)| Settings {
        user_share: Share::percent(user).unwrap(),
        prefer,
        period: Nanos::from_millis(period),
        ..Settings::default()
    })
}

fn part(of: Nanos, part: f64) -> Nanos {
    Nanos((of.0 as f64 * part) as u64)
}

/// Any observation that a CPU can give.
fn observation() -> impl Strategy<Value = Observation> {
    let parts = (0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64);
    (400_000..2_000_000u64, parts, 0.0..1.0f64, any::<[bool; 6]>(), 0..20_000u64).prop_map(
        |(elapsed, (ran, wasted, taken, held, stalled, idle), entitled, whether, packets)| {
            let [strangers, overrun, beside, mixed, contended, joined] = whether;
            let elapsed = Nanos(elapsed);
            let ran = part(elapsed, ran);
            let held = if strangers { part(elapsed - ran, held) } else { Nanos::ZERO };
            Observation {
                elapsed,
                ran,
                wasted: part(ran, wasted),
                taken: if strangers { part(ran, taken) } else { Nanos::ZERO },
                held,
                stalled: part(held, stalled),
                strangers,
                overrun,
                beside,
                had: held,
                entitled: if strangers { part(elapsed, entitled) } else { Nanos::ZERO },
                mixed: mixed && overrun,
                contended: contended && mixed && overrun,
                idle: if strangers { Nanos::ZERO } else { part(elapsed - ran, idle) },
                late: Nanos::ZERO,
                packets,
                // Which is remembered for longer: a property of its own.
                shed: false,
                joined,
            }
        },
    )
}

fn history() -> impl Strategy<Value = Vec<Observation>> {
    prop::collection::vec(observation(), 0..60)
}

fn after(history: &[Observation], settings: &Settings) -> Governor {
    history.iter().fold(Governor::default(), |governor, seen| governor.decide(settings, seen).0)
}

/// And then a packet is discarded, so that the scheduler is not left alone for the next ten seconds.
fn after_a_loss(history: &[Observation], settings: &Settings) -> Governor {
    let elapsed = Nanos::from_millis(1);
    let lost = Observation {
        elapsed,
        ran: part(elapsed, 0.01),
        wasted: part(elapsed, 0.001),
        ..Default::default()
    };
    after(history, settings).decide(settings, &lost).0
}

/// Shows the same thing until `time` has passed.
fn shown(
    mut governor: Governor,
    settings: &Settings,
    seen: &Observation,
    time: Nanos,
) -> (Governor, Action) {
    let (mut passed, mut action) = (Nanos::ZERO, None);
    while passed < time || action.is_none() {
        let (next, did) = governor.decide(settings, seen);
        (governor, action) = (next, Some(did));
        passed += seen.elapsed;
    }
    (governor, action.unwrap())
}

/// Input and a stranger share the CPU, nothing is wasted and nothing stalls.
fn calm(elapsed: Nanos) -> Observation {
    Observation { elapsed, ran: part(elapsed, 0.1), strangers: true, ..Default::default() }
}

proptest! {
    // Each lasts for ten seconds, of its own time.
    #![proptest_config(cases(16))]

    /// Beside a flood that fills no queue input interrupts nobody, until it is late for that; then it does, for ten
    /// seconds.
    #[test]
    fn a_flood_without_a_queue_is_met_with_courtesy_while_that_works(history in history()) {
        let settings = Settings::default();
        let ms = Nanos::from_millis(1);
        let flood = Observation {
            elapsed: ms, ran: part(ms, 0.4), wasted: part(ms, 0.1), beside: true, shed: true, ..Observation::default()
        };
        let courteous = |action: Action| {
            (action.doing, action.patience, action.wait) == (Doing::Separating, Patience::Courteous, None)
        };
        // Whatever was late before that is forgotten.
        let (governor, _) = shown(after(&history, &settings), &settings, &flood, Nanos::from_millis(10_200));
        // The kernel's own threads take some milliseconds at times.
        let short = Observation { late: part(ms, 0.6), ..flood };
        let (governor, action) = shown(governor, &settings, &short, Nanos::from_millis(3));
        prop_assert!(courteous(action), "{:?}", action);
        let late = Observation { late: part(ms, 0.8), overrun: true, ..flood };
        let (governor, action) = shown(governor, &settings, &late, Nanos::from_millis(10));
        prop_assert_eq!((action.doing, action.patience), (Doing::Separating, Patience::Prompt));
        prop_assert_eq!(action.wait, Some(Nanos::from_micros(50)));
        // With interruptions it is late no more, which says nothing of how it would be without.
        let (governor, action) = shown(governor, &settings, &flood, Nanos::from_millis(9_500));
        prop_assert_eq!((action.doing, action.patience), (Doing::Separating, Patience::Prompt));
        prop_assert_eq!(action.wait, Some(Nanos::from_micros(200)));
        let (governor, action) = shown(governor, &settings, &flood, Nanos::from_millis(1_000));
        prop_assert!(courteous(action), "{:?}", action);
        // A stranger that computes would keep it; what the ring has lost beside one is remembered for as long.
        let stranger = Observation { strangers: true, had: part(ms, 0.5), entitled: part(ms, 0.5), ..flood };
        let (governor, action) = shown(governor, &settings, &stranger, Nanos::from_millis(100));
        prop_assert_eq!(action.doing, Doing::Balancing);
        let lost = Observation { overrun: true, ..stranger };
        let (governor, _) = shown(governor, &settings, &lost, ms);
        let (governor, action) = shown(governor, &settings, &stranger, Nanos::from_millis(9_500));
        prop_assert_eq!((action.doing, action.patience), (Doing::Separating, Patience::Prompt));
        let (governor, action) = shown(governor, &settings, &stranger, Nanos::from_millis(1_000));
        prop_assert_eq!(action.doing, Doing::Balancing);
        let gone = Observation { shed: false, beside: false, wasted: Nanos::ZERO, ..flood };
        let (_, action) = shown(governor, &settings, &gone, Nanos::from_millis(110));
        prop_assert_eq!(action.doing, Doing::Yielding);
    }
}

proptest! {
    #![proptest_config(cases(16))]

    /// Beside strangers the scheduler has its way once nothing was discarded for ten seconds, however long input
    /// waits, if strangers have less than half of the CPU; not before, and not beside one that has more.
    #[test]
    fn who_lacks_nothing_is_left_to_the_scheduler(history in history(), stalled in 0.1..0.5f64) {
        let settings = Settings::default();
        let ms = Nanos::from_millis(1);
        let seen = Observation {
            elapsed: ms, ran: part(ms, 0.2), strangers: true, had: part(ms, 0.4), entitled: part(ms, 0.3),
            held: part(ms, 0.4), stalled: part(ms, stalled), ..Observation::default()
        };
        // Whatever was lost before that is forgotten.
        let (governor, action) = shown(after(&history, &settings), &settings, &seen, Nanos::from_millis(10_400));
        prop_assert_eq!((action.doing, action.patience), (Doing::Balancing, Patience::Usual));
        prop_assert_eq!((action.weight, action.look_in), (Weight::NORMAL, Some(Nanos::from_millis(10))));
        let more = Observation { had: part(ms, 0.8), ..seen };
        let (governor, action) = shown(governor, &settings, &more, Nanos::from_millis(60));
        prop_assert_eq!((action.doing, action.patience), (Doing::Balancing, Patience::Patient));
        prop_assert!(action.weight.nice() < -5 && action.look_in < Some(ms), "{:?}", action);
        let (governor, action) = shown(governor, &settings, &seen, Nanos::from_millis(60));
        prop_assert_eq!((action.weight, action.patience), (Weight::NORMAL, Patience::Usual));
        let lost = Observation { wasted: part(ms, 0.01), ..seen };
        let (governor, _) = shown(governor, &settings, &lost, ms);
        let (_, action) = shown(governor, &settings, &seen, Nanos::from_millis(9_900));
        prop_assert!(action.weight.nice() < -5 && action.look_in < Some(ms), "{:?}", action);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    /// Waste makes input lighter and stalling makes it heavier, whatever was before, within 2 ms.
    #[test]
    fn a_cause_moves_the_weight_the_right_way_in_time(
        history in history(), settings in settings(), ms in 0.4..2.0f64, cause in 0.15..0.9f64,
    ) {
        let calm = calm(Nanos((ms * 1e6) as u64));
        // Forgets floods, so that the weight is balanced and not at the share.
        let (governor, before) =
            shown(after_a_loss(&history, &settings), &settings, &calm, Nanos::from_millis(200));
        prop_assert_eq!(before.doing, Doing::Balancing);
        let wasted = Observation { ran: part(calm.elapsed, cause), wasted: part(calm.elapsed, cause), ..calm };
        let lighter = shown(governor, &settings, &wasted, REACTS_WITHIN).1.weight;
        prop_assert!(lighter.nice() > before.weight.nice() || lighter == Weight::LIGHTEST);
        let held = part(calm.elapsed, cause);
        let stalled = Observation { held, stalled: held, ..calm };
        let heavier = shown(governor, &settings, &stalled, REACTS_WITHIN).1.weight;
        prop_assert!(heavier.nice() < before.weight.nice() || heavier == Weight::HEAVIEST);
    }

    /// Strangers who lack their fair part get more of it within 20 ms, also where input is stalled meanwhile.
    #[test]
    fn strangers_get_their_fair_part(
        history in history(), settings in settings(), ms in 0.4..2.0f64, lack in 0.15..0.5f64,
    ) {
        let calm = calm(Nanos((ms * 1e6) as u64));
        let (governor, before) =
            shown(after_a_loss(&history, &settings), &settings, &calm, Nanos::from_millis(200));
        let held = part(calm.elapsed, 0.2);
        let lacking = Observation {
            held, stalled: part(held, 0.1), had: held, entitled: held + part(calm.elapsed, lack), ..calm
        };
        let lighter = shown(governor, &settings, &lacking, Nanos::from_millis(20)).1.weight;
        prop_assert!(lighter.nice() > before.weight.nice() || lighter == Weight::LIGHTEST);
        // Who has more than that is owed nothing.
        let rich = Observation { held, stalled: held, had: held, entitled: part(held, 0.5), ..calm };
        let heavier = shown(governor, &settings, &rich, REACTS_WITHIN).1.weight;
        prop_assert!(heavier.nice() < before.weight.nice() || heavier == Weight::HEAVIEST);
    }

    /// Input that is over its share, on average over the period, never becomes heavier, and within 2 ms
    /// is lighter.
    #[test]
    fn over_its_share_input_only_becomes_lighter(
        history in history(), settings in settings(), next in observation(), over in 0.03..1.0f64,
    ) {
        let governor = after(&history, &settings);
        let (then, before) = governor.decide(&settings, &next);
        let rest = settings.user_share.rest();
        let all = Observation {
            ran: next.elapsed,
            taken: next.elapsed,
            wasted: next.elapsed,
            strangers: true,
            beside: before.doing == Doing::Separating,
            ..next
        };
        let over = rest + over * (1.0 - rest);
        if then.taken().max(then.wasted()) > over && before.doing != Doing::Yielding {
            let action = then.decide(&settings, &all).1;
            prop_assume!(action.doing == before.doing);
            prop_assert!(action.weight.nice() >= before.weight.nice());
            let later = shown(then, &settings, &all, REACTS_WITHIN).1.weight;
            prop_assert!(later.nice() > before.weight.nice() || later == Weight::LIGHTEST);
        }
    }

    /// From nothing to all of the CPU: the average is over the share after period x ln(1 / user_share),
    /// and at most 8 ms later input is lighter, for a user's share of a quarter or more: the step grows with
    /// the distance, small at first. This, not 2 ms, is how soon the share is defended.
    #[test]
    fn the_share_is_defended_after_the_period(settings in settings_for(25.0..95.0), ms in 0.4..2.0f64) {
        let calm = calm(Nanos((ms * 1e6) as u64));
        let (governor, before) = shown(Governor::default(), &settings, &calm, Nanos::from_millis(100));
        let all = Observation { ran: calm.elapsed, taken: calm.elapsed, ..calm };
        let until = settings.period.as_millis() * (1.0 / settings.user_share.get()).ln();
        let noticed = Nanos((until * 1e6) as u64 + calm.elapsed.0);
        let (_, action) = shown(governor, &settings, &all, noticed + Nanos(4 * REACTS_WITHIN.0));
        prop_assert!(action.weight.nice() > before.weight.nice());
    }

    /// While only strangers and consumers are there and nothing is wasted or stalled, nothing moves.
    #[test]
    fn no_action_without_cause(history in history(), settings in settings(), ms in 0.4..2.0f64) {
        let calm = calm(Nanos((ms * 1e6) as u64));
        let (mut governor, before) =
            shown(after(&history, &settings), &settings, &calm, Nanos::from_millis(200));
        for _ in 0..100 {
            let (next, action) = governor.decide(&settings, &calm);
            prop_assert_eq!((action.weight, action.doing), (before.weight, before.doing));
            governor = next;
        }
    }

    /// While nobody else wants the CPU, input takes what is left and nobody looks.
    #[test]
    fn alone_input_yields_and_is_left_alone(
        history in history(), settings in settings(), ran in 0.0..1.0f64,
    ) {
        let elapsed = Nanos::from_millis(1);
        let alone = Observation { elapsed, ran: part(elapsed, ran), ..Default::default() };
        let (_, action) = shown(after(&history, &settings), &settings, &alone, Nanos::from_millis(25));
        prop_assert_eq!((action.weight, action.look_in), (Weight::LIGHTEST, None));
        prop_assert_eq!(action.patience, Patience::Usual);
    }

    /// While the CPU is idle for a fifth of the time besides, it interrupts nobody, and is as heavy as anybody.
    #[test]
    fn with_time_to_spare_input_interrupts_nobody(
        history in history(), settings in settings(), idle in 0.2..1.0f64,
    ) {
        let elapsed = Nanos::from_millis(1);
        let ran = part(elapsed, 1.0 - idle);
        let spare = Observation { elapsed, ran, idle: elapsed - ran, ..Default::default() };
        let (_, action) = shown(after(&history, &settings), &settings, &spare, Nanos::from_millis(25));
        prop_assert_eq!((action.weight, action.look_in), (Weight::NORMAL, None));
        prop_assert_eq!((action.doing, action.patience), (Doing::Yielding, Patience::Courteous));
    }

    /// Input that stalls half of the time is the heaviest there is 45 ms after what it took and wasted
    /// before is forgotten (four periods).
    #[test]
    fn stalled_input_becomes_the_heaviest(history in history(), settings in settings()) {
        let elapsed = Nanos::from_millis(1);
        let held = part(elapsed, 0.5);
        let stalled = Observation { elapsed, held, stalled: held, had: held, strangers: true, ..Default::default() };
        // What it took and wasted before has to be forgotten first.
        let forgotten = Nanos(settings.period.0 * 4);
        let (_, action) = shown(
            after_a_loss(&history, &settings), &settings, &stalled, forgotten + Nanos::from_millis(45));
        prop_assert_eq!(action.weight, Weight::HEAVIEST);
    }
}
