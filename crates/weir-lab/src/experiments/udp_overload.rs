//! `udp-overload` (LRP, figure 3).

use std::cmp::Ordering::Equal;

use super::shared::*;
use crate::stats::Bracket;

/// Loss that the maximum loss-free rate may have (PDR): a hiccup of 1.4 ms fills a default socket.
const LOSS_MAX: f64 = 0.005;

/// Floods of a receiver, each of another mix ([`of_kind`]).
const RECV: Cases = Cases::Of(&["recv", "mixed", "dns", "sources"]);
const ECHO: Cases = Cases::Of(&["echo"]);
/// A search for the maximum loss-free rate.
const PDR: Search = Search {
    of: "recv",
    case: "pdr",
    arms: "stock?,threaded?,niced,batch,gate?,idle-weir?,weir-native,weir?",
    steps: Choice { full: 7, quick: 4 },
    majority: Choice { full: 3, quick: 2 },
    window_ms: Choice { full: 300, quick: 200 },
    between: around_peak,
    passes: |_, trial| loss(trial) <= LOSS_MAX,
};

pub static EXPERIMENT: Experiment = Experiment {
    name: "udp-overload",
    paper: "LRP fig. 3",
    question: "what does an unmodified UDP receiver get of packets that arrive faster than it can use them?",
    found: "BSD peaked at 7,380 packets/s and livelocked near 20,000; LRP stayed flat past its peak",
    arms: "stock,threaded,niced,batch,gate?,idle-weir?,weir-native,weir",
    says: "delivers {} packets/s",
    cases,
    loads: "50k?,100k,200k?,300k,400k?,600k,800k?,1.2M,1.6M?,2.4M?,3.2M?,4.8M?,top",
    scene,
    merits: &[&m::delivered_pps, &m::echo_pps],
    searches: &[
        PDR,
        Search {
            case: "ndr",
            arms: "stock?,threaded?,niced?,batch?,weir-native?,weir?",
            steps: Choice { full: 9, quick: 0 },
            passes: |_, trial| loss(trial) == 0.0,
            ..PDR
        },
    ],
    tables: tables! {
        "Delivered, packets/s" in Cases::Where(|case| case != "echo") => delivered_pps;
        "Replies of an echo server at the far end, packets/s" in Cases::Of(&["echo"]) => echo_pps;
        "Where the rest ended, packets/s: ring, discarded, late"
            in Cases::Of(&["recv", "mixed"]) => nic_drop_pps, discarded_pps, late_drop_pps;
        "Age at delivery, us: median, 99th percentile"
            in Cases::Of(&["recv"]) => age_p50_us, age_p99_us;
    },
    figure: lines("Delivered packets by offered rate", "recv", &m::delivered_pps),
    goals: goals! {
        "livelock is visible (delivered at the top, of its peak)" =>
            figure("stock", Cases::Of(&["recv"]), Only(Load::Top), delivered_pps, OwnPeak),
            AtMost(0.2);
        "delivered past its peak, of its peak" =>
            figure("weir-native,weir,lazy", RECV, PastPeak, delivered_pps, OwnPeak), AtLeast(0.97);
        "delivered at every rate, of the best baseline's" =>
            figure(WEIRS, RECV, Every, delivered_pps, BEST), AtLeast(0.97);
        "echo replies past their peak, of their peak" =>
            figure(WEIRS, ECHO, PastPeak, echo_pps, OwnPeak), AtLeast(0.97);
        "echo replies at every rate, of the best baseline's" =>
            figure(WEIRS, ECHO, Every, echo_pps, BEST), AtLeast(0.97);
        "maximum loss-free rate (0.5 %), of the best baseline's" =>
            of(WEIRS, mlfrr, Cases::Of(&[PDR.of])), AtLeast(0.97);
        "late drops, of these and discards, at any mix" => of(WEIRS, late_of_discards), AtMost(0.01);
        "its peak, of the best baseline's" =>
            figure("lazy", RECV, Peak, delivered_pps, PeakOf(&BASELINES)), AtLeast(6.0);
    },
    notes: "Everything of a threaded arm runs on the tested CPU; stock's softirqs do too. The ring is a \
            veth's, of 256 packets: what overflows it costs the tested CPU nothing.",
    ..USUAL
};

fn cases() -> Vec<Case> {
    let few = |name| Case::full(name).at("100k?,400k?,600k,800k?,1.6M?,top");
    let echo = Case::always("echo").at("50k?,100k,200k?,300k,400k?,800k?,1.6M?,top");
    vec![Case::always("recv"), echo, few("mixed"), few("dns"), few("sources")]
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let flood = ask.flood(FLOODED_PORT).map(|flow| of_kind(ask.case, flow)).into_iter();
    if ask.case == "echo" {
        return Ok(Scene {
            apps: vec![echo(Role::Flooded)],
            flows: flood.map(|flow| Flow { port: ECHO_PORT, from: From::Client, ..flow }).collect(),
            watch: Some(Watch::Replies),
            ..Scene::default()
        });
    }
    Ok(Scene { apps: receivers(), flows: flood.collect(), ..Scene::default() })
}

/// Share of what was sent that was not delivered, to the packet where there is a ledger.
fn loss(trial: &Trial) -> f64 {
    trial.ledger.map_or(1.0, |ledger| 1.0 - ledger.delivered as f64 / ledger.offered.max(1) as f64)
}

/// The loss-free rate lies between two fifths of what an arm delivered at most and a little above that.
fn around_peak(view: &View<'_>, arm: &str, case: &str) -> Option<(f64, f64)> {
    let (_, load) = view.peak(&[arm], case, &m::delivered_pps)?;
    view.get(arm, case, load, &m::delivered_pps).map(|peak| (peak * 0.4, peak * 1.1))
}

fn mlfrr(view: &View<'_>, arm: &str) -> Vec<Found> {
    let of = |arm: &str| Some(view.found(&PDR, arm)?.widened(&swept(view, arm)));
    let baselines: Vec<_> = BASELINES.iter().filter_map(|arm| Some((*arm, of(arm)?))).collect();
    let without: Vec<_> = BASELINES.into_iter().filter(|arm| of(arm).is_none()).collect();
    let found = of(arm).and_then(|weir| of_best(weir, &baselines)).into_iter();
    found.map(|found| Found { without: without.clone(), ..found.of(PDR.of) }).collect()
}

/// The grid's rates, and whether most of an arm's trials there passed.
fn swept(view: &View<'_>, arm: &str) -> Vec<(f64, bool)> {
    let at = |load| {
        let counted = view.trials_of(arm, PDR.of, load).filter(|trial| trial.ledger.is_some());
        let passed = median(counted.map(loss))? <= LOSS_MAX;
        Some((view.get(arm, PDR.of, load, &m::offered_pps)?, passed))
    };
    view.loads(PDR.of).into_iter().filter_map(at).collect()
}

/// weir's rate lies in its bracket, and the best baseline's between the highest of their lower and of their upper ends.
fn of_best(weir: Bracket, baselines: &[(&str, Bracket)]) -> Option<Found> {
    let best = |a: &Bracket, b: &Bracket| a.range().partial_cmp(&b.range()).unwrap_or(Equal);
    let (arm, best) = baselines.iter().max_by(|a, b| best(&a.1, &b.1))?;
    let highest = baselines.iter().map(|(_, found)| found.range().1).fold(0.0, f64::max);
    let (low, high) = (weir.range().0 / highest, weir.range().1 / best.range().0);
    let text = |found: &Bracket| found.text(|rate| format!("{:.0} k", rate / 1e3));
    let place = format!("{} of {arm}'s {}", text(&weir), text(best));
    Some(Found { low, high, ..Found::exact(weir.known()? / best.known()?, place) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::{Outcome, Verdict, judge};
    use crate::report::made_up;
    use crate::run::Ledger;

    /// What is found of the loss-free rate where each arm's lies between 300 and 305 k by its search, and by the grid
    /// niced's is above this.
    fn judged(arms: &[&'static str], swept: f64) -> Outcome {
        let mut run = made_up::overload(arms);
        run.head.quick = true;
        run.trials.retain(|trial| trial.case == PDR.of);
        let mut push = |(arm, case, rate), repeat, delivered| {
            let values = [(&m::offered_pps, rate)];
            let mut trial = made_up::trial((arm, case, Load::Rate(rate)), repeat, &values);
            trial.ledger = Some(Ledger { offered: 9, delivered, ..Ledger::default() });
            run.trials.push(trial);
        };
        for (arm, step) in arms.iter().flat_map(|arm| (0..8).map(move |step| (*arm, step))) {
            let (rate, delivered) = if step < 2 { (3e5, 9) } else { (3.05e5, 8) };
            push((arm, PDR.case, rate), step, delivered);
        }
        push(("niced", PDR.of, swept), 0, 9);
        let mut goals = judge(&View::new(&EXPERIMENT, &run)).into_iter();
        goals.find(|goal| goal.name.contains("loss-free")).unwrap()
    }

    const FIVE: [&str; 5] = ["stock", "threaded", "niced", "batch", "weir-native"];

    #[test]
    fn the_best_of_the_baselines_that_were_searched_is_not_the_best_of_all() {
        let of_two = judged(&FIVE[2..], 2e5);
        assert_eq!(of_two.verdict, Verdict::Undecided);
        assert!(of_two.got.ends_with("; without stock, threaded"), "{of_two:?}");
        let of_all = judged(&FIVE, 2e5);
        assert_eq!(of_all.verdict, Verdict::Met, "{of_all:?}");
    }

    #[test]
    fn a_search_that_the_grid_contradicts_decides_nothing() {
        let found = judged(&FIVE, 4e5);
        assert_eq!(found.verdict, Verdict::Undecided);
        assert!(found.got.ends_with("300 k to 305 k of niced's at least 300 k"), "{found:?}");
    }

    #[test]
    fn searches_that_find_no_rate_are_judged_by_their_bounds() {
        let of = |passed, failed| Bracket { passed, failed };
        let (below, between) = (of(None, Some(4e5)), of(Some(5e5), Some(6e5)));
        let judged = |weir, baselines: &[_]| {
            let Found { low, high, place, .. } = of_best(weir, baselines).unwrap();
            (low, high, place)
        };
        assert_eq!(
            judged(below, &[("niced", below), ("batch", between)]),
            (0.0, 0.8, "below 400 k of batch's 500 k to 600 k".into())
        );
        let unbounded = judged(between, &[("niced", below)]);
        assert_eq!((unbounded.0, unbounded.1), (1.25, f64::INFINITY));
        let at_least = judged(of(Some(9e5), None), &[("batch", between)]);
        assert_eq!((at_least.0, at_least.1), (1.5, f64::INFINITY));
        assert_eq!(of_best(below, &[]), None);
    }
}
