//! `quota` (MR, figure 6-5; forward-screend has 6-6): how many packets receive work may take before others have a turn.

use super::shared::*;
use super::{forward, udp_overload};

/// Whose backlog keeps the whole quota: of a poll (`net.core.dev_weight`) as of a softirq (`netdev_budget`).
const STOCK: &str = "stock-rps";
const FEW: &str = "stock-rps+quota5";
const NONE: &str = "stock-rps+unlimited";
const WEIR: &str = "weir-native";
const RECV: Cases = Cases::Of(&["recv"]);

pub static EXPERIMENT: Experiment = Experiment {
    name: "quota",
    paper: "MR fig. 6-5",
    question: "how many packets may receive work take before others have their turn?",
    found: "5 to 10 packets: stable; larger quotas: livelock, but where a screen's queue feeds back",
    arms: "stock-rps+quota1,stock-rps+quota5,stock-rps+quota10,stock-rps+quota20,stock-rps+quota64,stock-rps,\
           stock-rps+unlimited,stock+quota5,stock,stock+unlimited,weir-native+quota5,weir-native,weir-native+unlimited",
    main: WEIR,
    cases: || vec![Case::always("recv"), Case::always("forward")],
    loads: "100k?,200k,400k?,800k,1.6M?,top",
    times: Choice::times((300, 1000, 5), (50, 200, 3)),
    scene,
    says: "delivers {} packets/s",
    merits: &[&m::delivered_pps, &m::forwarded_pps],
    tables: tables! {
        "Delivered, packets/s" in RECV => delivered_pps;
        "Forwarded, packets/s" in Cases::Of(&["forward"]) => forwarded_pps;
    },
    figure: lines("Delivered packets by offered rate", "recv", &m::delivered_pps),
    goals: goals! {
        "it livelocks (delivered at the top, of its peak)" =>
            figure(NONE, RECV, Highest, delivered_pps, OwnPeak), AtMost(0.2);
        "delivered at the top, of that without a quota" =>
            figure(FEW, RECV, Highest, delivered_pps, Best(&[NONE])), AtLeast(1.0);
        "stock-rps: its best quota at the top, of its peak with that quota" =>
            find(|view| best(view, STOCK)), AtLeast(0.97);
        "weir-native: delivered at the top with its worst quota, of its peak with that quota" =>
            find(weir, RECV), AtLeast(0.97);
    },
    notes: "A quota is what net.core.dev_weight and netdev_budget are set to, machine-wide, for a trial; `unlimited` is \
            100,000 packets, and no softirq ends for its time before 1 s. The weight is of the backlog's poll, which stock-rps \
            receives by: its lines are the paper's. A driver's own poll takes 64 packets whatever is set, so in \
            stock a quota ends a softirq after its first poll, and in a NAPI thread, as weir's, it means nothing. What is \
            forwarded reaches the far end by the backlog too. With a screen, where quotas are the \
            paper's figure 6-6: forward-screend has arms with them.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let (of, case) = match ask.case {
        "forward" => (&forward::EXPERIMENT, "fast"),
        _ => (&udp_overload::EXPERIMENT, "recv"),
    };
    (of.scene)(&Ask { case, ..*ask })
}

/// At the top rate, of its peak, each of what was run of an arm: with its quota, and what it delivers or forwards.
fn each(view: &View<'_>, arm: &str, case: &str) -> Vec<(f64, Found)> {
    let figure = if case == "recv" { &m::delivered_pps } else { &m::forwarded_pps };
    let found = |with: &str| {
        let top = *view.loads(case).last()?;
        let (_, peak) = view.peak(&[with], case, figure)?;
        let (at, place) = (|load| (with, case, load), format!("{case}, {with}"));
        Some((view.get(with, case, top, figure)?, ratio(view, at(top), at(peak), figure, place)?))
    };
    let with = view.arms().into_iter().filter(|with| with.split('+').next() == Some(arm));
    with.filter_map(found).collect()
}

fn best(view: &View<'_>, arm: &str) -> Vec<Found> {
    in_each(view, Cases::All, |case| {
        let best = each(view, arm, case).into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
        best.map(|(_, found)| found)
    })
}

fn weir(view: &View<'_>) -> Vec<Found> {
    in_each(view, RECV, |case| each(view, WEIR, case).into_iter().map(|(_, found)| found))
}
