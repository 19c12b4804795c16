//! `udp-latency` (LRP, figure 4): round trips of pings to an echo server while another socket of the host
//! is flooded.
//!
//! The generator sends the pings itself, so that no client waits for the CPU that it keeps busy, and
//! writes the time into each; a program at the server's interface sees when the reply leaves. At the far
//! end the same program saw the slowest percent 62 us later in `stock` from 1.6 M packets/s on, since the
//! far end's softirq waits for the generator.

use super::shared::*;

/// Few enough to cost the server next to nothing.
const PINGS_PER_S: f64 = 2000.0;

pub static EXPERIMENT: Experiment = Experiment {
    name: "udp-latency",
    paper: "LRP fig. 4",
    question: "how long does a ping to one socket take while another socket is flooded?",
    found: "BSD: 1,020 us more at its peak, unmeasurable past 15,000 packets/s; LRP barely rose",
    arms: "stock,threaded?,niced,batch,weir-native,weir?",
    cases: || {
        let mixes = ["pings-mixed", "pings-dns", "pings-sources"];
        let mixes = mixes.map(|mix| Case::full(mix).at("0,400k,1.6M?,top?"));
        std::iter::once(Case::always("pings")).chain(mixes).collect()
    },
    loads: "0,100k,200k?,400k,800k?,1.6M?,top",
    times: Choice::times((300, 2000, 10), (50, 500, 3)),
    scene,
    says: "answers 99 % of pings within {}",
    merits: &[&m::rtt_p99_us, &m::pings_lost],
    tables: tables! {
        "Round trip, us: median, 99th, 99.9th percentile"
            in Cases::All => rtt_p50_us, rtt_p99_us, rtt_p999_us;
        "Pings lost, of those sent" in Cases::All => pings_lost, pings_sent;
    },
    figure: lines("99th percentile of the round trip by offered rate", "pings", &m::rtt_p99_us),
    goals: goals! {
        "99th percentile of the round trip up to R_ring, of the unloaded one" =>
            figure(WEIRS, Cases::All, WhileRingHolds, rtt_p99_us, Unloaded), AtMost(2.0);
        "pings lost up to R_ring" =>
            figure(WEIRS, Cases::All, WhileRingHolds, pings_lost, Nothing), AtMost(0.0);
    },
    notes: "Without a flood a process computes when nobody else wants the CPU, so that leaving idle is not \
            measured. Percentiles are of the pings that were replied to.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let pings = Flow { from: From::Client, ..Flow::light(ECHO_PORT, PINGS_PER_S) };
    let flood = ask.flood(FLOODED_PORT).map(|flow| mixed(flow, ask.case));
    Ok(Scene {
        apps: vec![App::sink(Duration::ZERO, FLOODED_PORT, Role::Flooded), echo(Role::Light)],
        flows: std::iter::once(pings).chain(flood).collect(),
        beside: (ask.load == Load::Off).then_some(Beside::Spinner),
        watch: Some(Watch::RoundTrips),
        ..Scene::default()
    })
}
