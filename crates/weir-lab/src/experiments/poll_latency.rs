//! `poll-latency` (MR, figure 7-6): how long a packet is on its way from the interrupt to IP.
//!
//! Today's interrupt raises a softirq or wakes the NAPI thread; tracepoints say when, and when the packet came from
//! the driver to IP.

use super::shared::*;

/// The paper's distributions are of so many.
const PACKETS: f64 = 10_000.0;

pub static EXPERIMENT: Experiment = Experiment {
    name: "poll-latency",
    paper: "MR fig. 7-6",
    question: "how long does a packet take from input's schedule to IP?",
    found: "median 13 us lower with polling, and less variance",
    arms: "stock,threaded,niced,batch,weir,weir-native",
    cases: || ["alone", "beside", "untraced"].map(Case::always).into(),
    loads: "10k",
    times: Choice::times((300, 2000, 10), (50, 500, 3)),
    scene,
    says: "brings a packet from input's schedule to IP in {}",
    merits: &[&m::poll_p50_us, &m::poll_p99_us],
    tables: tables! {
        "From input's schedule to IP, us: median, 90th, 99th percentile"
            in TRACED => poll_p50_us, poll_p90_us, poll_p99_us;
        "Age of a packet when it was received, us: median, 99th percentile"
            in Cases::All => age_p50_us, age_p99_us;
        "Packets traced" in TRACED => traced;
    },
    figure: bars("From input's schedule to IP, median", &m::poll_p50_us),
    goals: goals! {
        "every arm: packets traced" => find(packets, TRACED), AtLeast(PACKETS);
        "every arm: age of packets that are traced, of those that are not" =>
            find(of_untraced, TRACED), AtMost(1.1);
    },
    notes: "Packets come one by one, 10,000 a second. Input's schedule is the softirq's raise, or the NAPI thread's \
            wake-up; IP is where the driver hands over to the stack, before a gate at tc and after a native one. \
            Beside: a process that computes. Else one computes when nobody else wants the CPU.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let mut scene = traced(ask, udp::Turn { of: 1, number: 0 });
    if ask.case == "beside" {
        scene.beside = Some(Beside::Hog(0));
    }
    Ok(scene)
}

fn packets(view: &View<'_>) -> Vec<Found> {
    let traced = |point: &Point| {
        let place = format!("{}, {}", point.arm, point.case);
        Some(Found::exact(point.get(&m::traced)?, place))
    };
    view.points.iter().filter_map(traced).collect()
}
