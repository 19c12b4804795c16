//! `udp-overload` (LRP, figure 3).

use super::shared::*;

/// Loss that the maximum loss-free rate may have (PDR): a hiccup of 1.4 ms fills a default socket.
const LOSS_MAX: f64 = 0.005;

const ARMS: &str = "stock,threaded,niced,batch,gate,idle-weir,weir-native,weir";
/// A search for the maximum loss-free rate.
const PDR: Search = Search {
    of: "recv",
    case: "pdr",
    arms: Choice { full: ARMS, quick: "stock,niced,batch,weir-native" },
    steps: Choice { full: 9, quick: 4 },
    window_ms: Choice { full: 1000, quick: 100 },
    between: around_peak,
    passes: |trial, _| loss(trial) <= LOSS_MAX,
};

pub static EXPERIMENT: Experiment = Experiment {
    name: "udp-overload",
    paper: "LRP fig. 3",
    question: "what does an unmodified UDP receiver get of packets that arrive faster than it can use them?",
    found: "BSD peaked at 7,380 packets/s and livelocked near 20,000; LRP stayed flat past its peak",
    arms: Choice { full: ARMS, quick: "stock,threaded,niced,batch,weir-native,weir" },
    says: "delivers {} packets/s",
    cases,
    loads: Choice {
        full: "50k,100k,200k,300k,400k,600k,800k,1.2M,1.6M,2.4M,3.2M,4.8M,top",
        quick: "100k,300k,600k,1.2M,top",
    },
    scene,
    merits: &[&m::delivered_pps, &m::echo_pps],
    searches: &[
        PDR,
        Search {
            case: "ndr",
            arms: Choice { full: "stock,threaded,niced,batch,weir-native,weir", quick: "" },
            steps: Choice { full: 9, quick: 0 },
            passes: |trial, _| loss(trial) == 0.0,
            ..PDR
        },
    ],
    tables: &[
        table("Delivered, packets/s", Cases::Where(|case| case != "echo"), &[&m::delivered_pps]),
        table(
            "Replies of an echo server at the far end, packets/s",
            Cases::Of(&["echo"]),
            &[&m::echo_pps, &m::echo_steady],
        ),
        table(
            "Where the rest ended, packets/s: ring, discarded, late",
            Cases::Of(&["recv", "mixed"]),
            &[&m::nic_drop_pps, &m::discarded_pps, &m::late_drop_pps],
        ),
        table(
            "Age at delivery, us: median, 99th percentile",
            Cases::Of(&["recv"]),
            &[&m::age_p50_us, &m::age_p99_us],
        ),
    ],
    figure: Some(lines("Delivered packets by offered rate", "recv", &m::delivered_pps)),
    goals: || {
        let recv = Cases::Of(&["recv", "mixed", "dns", "sources"]);
        let echo = Cases::Of(&["echo"]);
        vec![
            Goal::figure(
                "stock: livelock is visible (delivered at the top, of its peak)",
                ("stock", Cases::Of(&["recv"]), At::Only(Load::Top)),
                (&m::delivered_pps, Against::OwnPeak),
                Bound::AtMost(0.2),
            ),
            Goal::figure(
                "weir: delivered past its peak, of its peak",
                ("weir-native", recv, At::PastPeakOf("weir-native")),
                (&m::delivered_pps, Against::OwnPeak),
                Bound::AtLeast(0.97),
            ),
            Goal::figure(
                "weir: delivered at every rate, of the best baseline's",
                ("weir-native", recv, At::Every),
                (&m::delivered_pps, BEST),
                Bound::AtLeast(0.97),
            ),
            Goal::figure(
                "weir: echo replies past their peak, of their peak",
                ("weir-native", echo, At::PastPeakOf("weir-native")),
                (&m::echo_pps, Against::OwnPeak),
                Bound::AtLeast(0.97),
            ),
            Goal::figure(
                "weir: echo replies at every rate, of the best baseline's",
                ("weir-native", echo, At::Every),
                (&m::echo_pps, BEST),
                Bound::AtLeast(0.97),
            ),
            Goal::other(
                "weir: maximum loss-free rate (0.5 %), of the best baseline's",
                mlfrr,
                Bound::AtLeast(0.97),
            ),
            Goal::other(
                "weir: late drops, of discards, at any mix of lengths",
                |view| late_of_discards(view, "weir-native"),
                Bound::AtMost(0.01),
            ),
        ]
    },
    notes: "Everything of a threaded arm runs on the tested CPU; stock's softirqs do too. The ring is a \
            veth's, of 256 packets: what overflows it costs the tested CPU nothing.",
    ..USUAL
};

fn cases() -> Vec<Case> {
    let few = |name| Case::full(name).at("100k,400k,800k,1.6M,top", "600k,top");
    let echo = Case::always("echo").at("50k,100k,200k,400k,800k,1.6M,top", "100k,300k,top");
    vec![Case::always("recv"), echo, few("mixed"), few("dns"), few("sources")]
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let flood = ask.flood(FLOODED_PORT).map(|flow| mixed(flow, ask.case)).into_iter();
    if ask.case == "echo" {
        return Ok(Scene {
            apps: vec![echo(Role::Flooded)],
            flows: flood.map(|flow| Flow { port: ECHO_PORT, from: From::Client, ..flow }).collect(),
            watch: vec![Watch::Replies],
            ..Scene::default()
        });
    }
    Ok(Scene { apps: receivers(), flows: flood.collect(), ..Scene::default() })
}

/// Share of what was sent that was not delivered, to the packet where there is a ledger.
fn loss(trial: &Trial) -> f64 {
    trial.ledger.map_or(1.0, |ledger| 1.0 - ledger.delivered as f64 / ledger.offered.max(1) as f64)
}

/// The loss-free rate lies between a tenth of what an arm delivered at most and a little above it.
fn around_peak(done: &[Trial], arm: &str, case: &str) -> Option<(f64, f64)> {
    let delivered =
        |t: &Trial| (t.arm == arm && t.case == case).then(|| t.get(&m::delivered_pps))?;
    let peak = done.iter().filter_map(delivered).reduce(f64::max)?;
    Some((peak * 0.1, peak * 1.1))
}

fn mlfrr(view: &View<'_>) -> Vec<Found> {
    let of = |arm: &str| view.found(&PDR, arm);
    let baselines = crate::arm::BASELINES.iter().filter_map(|arm| Some((*arm, of(arm)?)));
    let best = baselines.max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((weir, (arm, best))) = of("weir-native").zip(best) else { return vec![] };
    let place = format!("{:.0} k of {arm}'s {:.0} k", weir / 1e3, best / 1e3);
    vec![Found::exact(weir / best, place)]
}
