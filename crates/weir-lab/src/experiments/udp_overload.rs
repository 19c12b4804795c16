//! `udp-overload` (LRP, figure 3).

use std::time::Duration;

use weir_bpf::traffic::Lengths;

use crate::error::Result;
use crate::experiment::{
    Against, Ask, At, BEST, Bound, Case, Cases, Choice, Experiment, Figure, Found, Goal, Search,
    Table, Times,
};
use crate::goals;
use crate::metric::m;
use crate::run::{Load, Trial};
use crate::scene::{
    App, AppKind, ECHO_PORT, FLOODED_PORT, Flow, From, LIGHT_PORT, Role, Scene, Traffic, Watch,
};

/// How often what arrives of an echo server's replies is read: long against the microseconds that it takes.
const SLICE: Duration = Duration::from_millis(10);
/// Loss that the maximum loss-free rate may have (PDR): a hiccup of 1.4 ms fills a default socket.
const LOSS_MAX: f64 = 0.005;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "udp-overload",
    paper: "LRP fig. 3",
    question: "what does an unmodified UDP receiver get of packets that arrive faster than it can use them?",
    found: "BSD peaked at 7,380 packets/s and livelocked near 20,000; LRP stayed flat past its peak",
    needs: &[],
    arms: Choice {
        full: &["stock", "threaded", "niced", "batch", "gate", "idle-weir", "weir-native", "weir"],
        quick: &["stock", "threaded", "niced", "batch", "weir-native", "weir"],
    },
    main: "weir-native",
    says: "delivers {} packets/s",
    cases,
    case_option: "cases",
    loads: Choice {
        full: &[
            "50k", "100k", "200k", "300k", "400k", "600k", "800k", "1.2M", "1.6M", "2.4M", "3.2M",
            "4.8M", "top",
        ],
        quick: &["100k", "300k", "600k", "1.2M", "top"],
    },
    times: Choice {
        full: Times { warm_up_ms: 300, window_ms: 1000, repeats: 10 },
        quick: Times { warm_up_ms: 50, window_ms: 200, repeats: 3 },
    },
    traffic: true,
    skip: None,
    scene,
    special: None,
    derive: None,
    merits: &[&m::delivered_pps, &m::echo_pps],
    searches: &[
        Search {
            of: "recv",
            case: "pdr",
            arms: Choice {
                full: &[
                    "stock",
                    "threaded",
                    "niced",
                    "batch",
                    "gate",
                    "idle-weir",
                    "weir-native",
                    "weir",
                ],
                quick: &["stock", "niced", "batch", "weir-native"],
            },
            steps: Choice { full: 9, quick: 4 },
            window_ms: Choice { full: 1000, quick: 100 },
            between: |done, arm| around_peak(done, arm),
            passes: |trial, _| loss(trial) <= LOSS_MAX,
        },
        Search {
            of: "recv",
            case: "ndr",
            arms: Choice {
                full: &["stock", "threaded", "niced", "batch", "weir-native", "weir"],
                quick: &[],
            },
            steps: Choice { full: 9, quick: 0 },
            window_ms: Choice { full: 1000, quick: 100 },
            between: |done, arm| around_peak(done, arm),
            passes: |trial, _| loss(trial) == 0.0,
        },
    ],
    tables: &[
        Table {
            title: "Delivered, packets/s",
            figures: &[&m::delivered_pps],
            cases: Cases::Where(|case| case != "echo"),
            of_unloaded: false,
        },
        Table {
            title: "Replies of an echo server at the far end, packets/s",
            figures: &[&m::echo_pps, &m::echo_steady],
            cases: Cases::Of(&["echo"]),
            of_unloaded: false,
        },
        Table {
            title: "Where the rest ended, packets/s: ring, discarded, late",
            figures: &[&m::nic_drop_pps, &m::discarded_pps, &m::late_drop_pps],
            cases: Cases::Of(&["recv", "mixed"]),
            of_unloaded: false,
        },
        Table {
            title: "Age at delivery, us: median, 99th percentile",
            figures: &[&m::age_p50_us, &m::age_p99_us],
            cases: Cases::Of(&["recv"]),
            of_unloaded: false,
        },
    ],
    figure: Some(Figure {
        title: "Delivered packets by offered rate",
        case: "recv",
        y: &m::delivered_pps,
        bars: false,
    }),
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
                late,
                Bound::AtMost(0.01),
            ),
        ]
    },
    notes: "Everything of a threaded arm runs on the tested CPU; stock's softirqs do too. The ring is a \
            veth's, of 256 packets: what overflows it costs the tested CPU nothing.",
};

fn cases() -> Vec<Case> {
    let few: &[&str] = &["100k", "400k", "800k", "1.6M", "top"];
    vec![
        Case::always("recv"),
        Case::always("echo")
            .at(&["50k", "100k", "200k", "400k", "800k", "1.6M", "top"], &["100k", "300k", "top"]),
        Case::full("mixed").at(few, &["600k", "top"]),
        Case::full("dns").at(few, &["600k", "top"]),
        Case::full("sources").at(few, &["600k", "top"]),
    ]
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let Traffic { reader, .. } = ask.traffic;
    // A second receiver stands by, asleep, as on any host.
    let apps = vec![
        App::sink(*reader, FLOODED_PORT, Role::Flooded),
        App::sink(*reader, LIGHT_PORT, Role::Light),
    ];
    let flood = ask.flood(FLOODED_PORT);
    let lengths = match ask.case {
        "mixed" => Some(Lengths::Uniform { from: 18, to: 1472 }),
        "dns" => Some(Lengths::dns()),
        _ => None,
    };
    let mut flows: Vec<Flow> = flood
        .into_iter()
        .map(|flow| Flow { lengths: lengths.clone().unwrap_or(flow.lengths.clone()), ..flow })
        .collect();
    match ask.case {
        "echo" => {
            for flow in &mut flows {
                (flow.port, flow.from) = (ECHO_PORT, From::Client);
            }
            Ok(Scene {
                apps: vec![App {
                    per_trial: true,
                    ..App::new(AppKind::UdpEcho, ECHO_PORT, Role::Flooded)
                }],
                flows,
                watch: vec![Watch::Replies(SLICE)],
                ..Scene::default()
            })
        }
        "sources" => {
            for flow in &mut flows {
                flow.sources = weir_bpf::traffic::Sources::Some(100);
            }
            Ok(Scene { apps, flows, ..Scene::default() })
        }
        _ => Ok(Scene { apps, flows, ..Scene::default() }),
    }
}

/// Share of what was sent that was not delivered, to the packet where there is a ledger.
fn loss(trial: &Trial) -> f64 {
    trial.ledger.map_or(1.0, |ledger| 1.0 - ledger.delivered as f64 / ledger.offered.max(1) as f64)
}

/// The loss-free rate lies between a tenth of what an arm delivered at most and a little above it.
fn around_peak(done: &[Trial], arm: &str) -> Option<(f64, f64)> {
    let delivered =
        |t: &Trial| (t.arm == arm && t.case == "recv").then(|| t.get(&m::delivered_pps))?;
    let peak = done.iter().filter_map(delivered).reduce(f64::max)?;
    Some((peak * 0.1, peak * 1.1))
}

fn mlfrr(view: &crate::view::View<'_>) -> Vec<Found> {
    let search = &EXPERIMENT.searches[0];
    let of = |arm: &str| view.found(search, arm);
    let baselines = crate::arm::BASELINES.iter().filter_map(|arm| Some((*arm, of(arm)?)));
    let best = baselines.max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((weir, (arm, best))) = of("weir-native").zip(best) else { return vec![] };
    let place = format!("{:.0} k of {arm}'s {:.0} k", weir / 1e3, best / 1e3);
    vec![Found::exact(weir / best, place)]
}

/// Late drops at each point at which the gate discards anything to speak of.
fn late(view: &crate::view::View<'_>) -> Vec<Found> {
    let of_weir = view.points.iter().filter(|point| point.arm == "weir-native");
    of_weir
        .filter_map(|point| {
            let (late, discarded) = (point.get(&m::late_drop_pps)?, point.get(&m::discarded_pps)?);
            let much = discarded > 0.01 * point.get(&m::offered_pps)?;
            let place = goals::place(view, &point.case, point.load);
            much.then(|| Found::exact(late / discarded, place))
        })
        .collect()
}
