//! `forward` (MR, figures 6-1 and 6-3): a router, its egress fast or slow, and what else runs on it.

use super::shared::*;
use crate::arm::BASELINES;

/// As BFD's at an interval of 50 ms: three that are missed mean that the neighbour is down (RFC 5880, 6.8.4).
const HEARTBEATS_PER_S: f64 = 20.0;
const DOWN: f64 = 3.0;
/// Of the slow egress. The bucket starts a timer for each packet, which costs a virtual machine some 10 us: at 40 Mbit/s
/// timers took the whole CPU.
const SLOW_MBIT: u32 = 5;

pub static EXPERIMENT: Experiment = Experiment {
    name: "forward",
    paper: "MR fig. 6-1, 6-3",
    question: "how many packets does a router forward, and does its neighbour still hear of it?",
    found: "unmodified: 4,700 packets/s, then livelock; polling with a quota: flat",
    arms: Choice {
        full: "stock,threaded,niced,batch,weir,weir-native,weir-xdp",
        quick: "stock,threaded,niced,batch,weir,weir-xdp",
    },
    main: "weir",
    cases: || {
        vec![
            Case::always("fast"),
            Case::always("slow"),
            Case::full("fast+hog"),
            Case::full("slow+hog"),
        ]
    },
    loads: Choice { full: "100k,200k,400k,800k,1.6M,top", quick: "200k,800k,top" },
    times: Choice::times((300, 2000, 5), (100, 500, 2)),
    scene,
    says: "forwards {} packets/s",
    merits: &[&m::forwarded_pps, &m::pings_lost],
    tables: &[
        table("Forwarded, packets/s", Cases::All, &[&m::forwarded_pps]),
        table(
            "Heartbeats lost, of those sent; most in a row",
            Cases::All,
            &[&m::pings_lost, &m::pings_sent, &m::pings_lost_in_row],
        ),
        table(
            "Passes of the calibrated loop per second by the process beside it",
            Cases::Of(&["fast+hog", "slow+hog"]),
            &[&m::hog_per_s],
        ),
    ],
    figure: Some(lines("Forwarded by packets offered", "fast", &m::forwarded_pps)),
    goals: || {
        let alone = Cases::Of(&["fast", "slow"]);
        vec![
            Goal::figure(
                "weir: forwarded at the top rate, of its peak",
                ("weir", alone, At::Highest),
                (&m::forwarded_pps, Against::OwnPeak),
                Bound::AtLeast(0.97),
            ),
            Goal::other(
                "weir: forwarded at the top rate, of stock's peak",
                of_stocks_peak,
                Bound::AtLeast(1.0),
            ),
            Goal::other(
                "weir-xdp: its peak, of the kernel's best",
                of_the_kernels_peak,
                Bound::AtLeast(3.0),
            ),
            Goal::figure(
                "weir: heartbeats lost in a row while the ring holds",
                ("weir", Cases::All, At::WhileRingHolds),
                (&m::pings_lost_in_row, Against::Nothing),
                Bound::AtMost(DOWN - 1.0),
            ),
        ]
    },
    notes: "The kernel forwards UDP packets to a host behind the router; what its egress sends is counted. That costs \
            the tested CPU up to the far end of a veth, where a chain at ingress drops them. `slow` is an egress of 5 Mbit/s (tbf: 11,160 of \
            these packets/s). Heartbeats are pings to a server on the tested CPU, 20 a \
            second: three lost in a row mean that the neighbour is down.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let heartbeats = Flow { from: From::Client, ..Flow::light(ECHO_PORT, HEARTBEATS_PER_S) };
    let flood = ask.flood(FLOODED_PORT).map(|flow| Flow { to: To::Behind, ..flow });
    Ok(Scene {
        apps: vec![echo(Role::Light)],
        flows: std::iter::once(heartbeats).chain(flood).collect(),
        beside: if ask.case.ends_with("+hog") { vec![Beside::Hog(0)] } else { vec![] },
        needs: vec![Need::Egress],
        watch: vec![Watch::RoundTrips],
        books: Books::Ring,
        egress_mbit: ask.case.starts_with("slow").then_some(SLOW_MBIT),
        ..Scene::default()
    })
}

fn of_stocks_peak(view: &View<'_>) -> Vec<Found> {
    in_each(view, Cases::Of(&["fast", "slow"]), |case| {
        let top = view.get("weir", case, *view.loads(case).last()?, &m::forwarded_pps)?;
        Some(Found::exact(top / view.peak("stock", case, &m::forwarded_pps)?, case))
    })
}

fn of_the_kernels_peak(view: &View<'_>) -> Vec<Found> {
    in_each(view, Cases::Of(&["fast"]), |case| {
        let peak = |arm| view.peak(arm, case, &m::forwarded_pps);
        let best = BASELINES.into_iter().filter_map(peak).reduce(f64::max)?;
        Some(Found::exact(peak("weir-xdp")? / best, case))
    })
}
