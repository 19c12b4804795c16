//! `forward` (MR, figures 6-1 and 6-3): a router, its egress fast or slow, and what else runs on it.

use super::shared::*;

/// As BFD's at an interval of 50 ms: three that are missed mean that the neighbour is down (RFC 5880, 6.8.4).
const HEARTBEATS_PER_S: f64 = 20.0;
/// Of the slow egress. The bucket starts a timer for each packet, which is dear on a virtual machine
/// (docs/results/bench/timer-wakes.txt): at a higher rate timers take the whole CPU.
const SLOW_MBIT: u32 = 5;
const ALONE: Cases = Cases::Of(&["fast", "slow"]);

pub static EXPERIMENT: Experiment = Experiment {
    name: "forward",
    paper: "MR fig. 6-1, 6-3",
    question: "how many packets does a router forward, and does its neighbour still hear of it?",
    found: "unmodified: 4,700 packets/s, then livelock; polling with a quota: flat",
    arms: "stock,threaded,niced,batch,weir,weir-native?,weir-xdp",
    main: "weir",
    cases: || {
        let alone = ["fast", "slow"].map(Case::always);
        alone.into_iter().chain(["fast+hog", "slow+hog"].map(Case::full)).collect()
    },
    loads: "100k?,200k,400k?,800k,1.6M?,top",
    times: Choice::times((300, 2000, 5), (100, 500, 2)),
    // It does not start where a queueing discipline shapes.
    skip: |arm, case, _| arm.forwards_in_driver() && case.starts_with("slow"),
    scene,
    says: "forwards {} packets/s",
    merits: &[&m::forwarded_pps, &m::pings_lost],
    tables: tables! {
        "Forwarded, packets/s" in Cases::All => forwarded_pps;
        "Heartbeats lost, of those sent; most in a row"
            in Cases::All => pings_lost, pings_sent, pings_lost_in_row;
        "Passes of the calibrated loop per second by the process beside it"
            in Cases::Of(&["fast+hog", "slow+hog"]) => hog_per_s;
    },
    figure: lines("Forwarded by packets offered", "fast", &m::forwarded_pps),
    goals: goals! {
        "forwarded at the top rate, of its peak" =>
            figure(WEIRS, ALONE, Highest, forwarded_pps, OwnPeak), AtLeast(0.97);
        "forwarded at the top rate, of stock's peak" =>
            figure(WEIRS, ALONE, Highest, forwarded_pps, PeakOf(&["stock"])), AtLeast(1.0);
        "its peak, of the kernel's best" =>
            figure("weir-xdp", Cases::Of(&["fast"]), Peak, forwarded_pps, PeakOf(&BASELINES)),
            AtLeast(3.0);
        "heartbeats lost while the ring holds" =>
            figure("weir-native,weir,weir-xdp", Cases::All, WhileRingHolds, pings_lost, Nothing),
            AtMost(0.0);
    },
    notes: "The kernel forwards UDP packets to a host behind the router; what its egress sends is counted. That costs \
            the tested CPU up to the far end of a veth, where a chain at ingress drops them, or XDP those that were \
            never an skb. `slow` is an egress of 5 Mbit/s (tbf: 11,160 of these packets/s). Heartbeats are pings to a server on the tested CPU, 20 a \
            second: three lost in a row mean that the neighbour is down. How steady the rate is within a window is not measured.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let heartbeats = Flow { from: From::Client, ..Flow::light(ECHO_PORT, HEARTBEATS_PER_S) };
    let flood = ask.flood(FLOODED_PORT).map(|flow| Flow { to: To::Behind, ..flow });
    Ok(Scene {
        apps: vec![echo(Role::Light)],
        flows: std::iter::once(heartbeats).chain(flood).collect(),
        beside: ask.case.ends_with("+hog").then_some(Beside::Hog(0)),
        needs: vec![Need::Egress],
        watch: Some(Watch::RoundTrips),
        books: Books::Ring,
        egress_mbit: ask.case.starts_with("slow").then_some(SLOW_MBIT),
        ..Scene::default()
    })
}
