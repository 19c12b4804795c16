//! `udp-latency` (LRP, figure 4): round trips of pings to an echo server while another socket of the host
//! is flooded, or the server's own.
//!
//! The generator sends the pings itself, so that no client waits for the CPU that it keeps busy, and
//! writes the time into each; a program at the server's interface sees when the reply leaves. At the far
//! end the same program saw the slowest percent 62 us later in `stock` from 1.6 M packets/s on, since the
//! far end's softirq waits for the generator.

use super::shared::*;
use crate::apps::compute::Work;

/// Few enough to cost the server next to nothing.
const PINGS_PER_S: f64 = 2000.0;
/// A flood of the server's own socket: by one sender, beside a process that computes, too, and from an address of its own
/// in each packet.
const OWN: Cases = Cases::Where(|case| case.starts_with("own-"));
const ONE_SENDER: Cases = Cases::Of(&["own-socket", "own-socket+hog"]);
const OTHERS: Cases = Cases::Where(|case| !OWN.has(case));
/// Who send the pings to a flooded server, twenty a second each.
const SENDERS: u32 = 100;
/// A flooded server computes for so long for each packet: any of these rates is several times what it can take.
const WORK: Duration = Duration::from_micros(20);
/// A payload too short for the stamp by which a reply is known as a ping's.
const UNSTAMPED: Lengths = Lengths::One(8);
const SELECTIVE: List = "weir-native --selective true";
const NOT_SELECTIVE: Against = Against::Best(&["weir-native"]);

pub static EXPERIMENT: Experiment = Experiment {
    name: "udp-latency",
    paper: "LRP fig. 4",
    question: "how long does a ping to one socket take while another socket is flooded?",
    found: "BSD: 1,020 us more at its peak, unmeasurable past 15,000 packets/s; LRP barely rose",
    arms: "stock,threaded?,niced,batch,weir-native,weir?",
    cases: || {
        let mixes = ["pings-mixed", "pings-dns", "pings-sources"];
        let mixes = mixes.map(|mix| Case::full(mix).at("0,400k,1.6M?,top?"));
        let more = ["own-socket+hog", "own-random"].map(|own| Case::asked(own).at("100k?,400k"));
        let own = Case::asked("own-socket").at("100k,400k");
        std::iter::once(Case::always("pings")).chain(mixes).chain([own]).chain(more).collect()
    },
    loads: "0,100k,200k?,400k,800k?,1.6M?,top",
    times: Choice::times((300, 2000, 10), (50, 500, 3)),
    scene,
    says: "loses {} pings",
    merits: &[&m::pings_lost, &m::rtt_p99_us],
    tables: tables! {
        "Round trip, us: median, 99th, 99.9th percentile"
            in Cases::All => rtt_p50_us, rtt_p99_us, rtt_p999_us;
        "Pings lost, of those sent" in Cases::All => pings_lost, pings_sent;
        "Received by the server in all, packets/s" in OWN => delivered_pps;
    },
    figure: lines("99th percentile of the round trip by offered rate", "pings", &m::rtt_p99_us),
    goals: goals! {
        "99th percentile of the round trip up to R_ring, of the unloaded one" =>
            figure(WEIRS, OTHERS, WhileRingHolds, rtt_p99_us, Unloaded), AtMost(2.0);
        "pings lost up to R_ring" =>
            figure(WEIRS, OTHERS, WhileRingHolds, pings_lost, Nothing), AtMost(0.0);
        "pings lost to a flooded server, of those lost without it" =>
            figure(SELECTIVE, ONE_SENDER, Every, pings_lost, NOT_SELECTIVE), AtMost(0.1);
        "the same where each packet of the flood has an address of its own" =>
            figure(SELECTIVE, Cases::Of(&["own-random"]), Every, pings_lost, NOT_SELECTIVE), AtMost(1.1);
        "received in all by a flooded server, of that without it" =>
            figure(SELECTIVE, OWN, Every, delivered_pps, NOT_SELECTIVE), AtLeast(0.9);
    },
    notes: "Without a flood a process computes when nobody else wants the CPU, so that leaving idle is not \
            measured. Percentiles are of all pings; where more are lost than lie beyond one, there is none. In the cases that begin with own- the flood goes to \
            the pinged socket itself: own-socket by one sender, beside a process that computes (+hog), and own-random \
            from an address of its own in each packet. There the pings come from 100 senders, and the server computes \
            for 20 us per packet.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    if OWN.has(ask.case) {
        return Ok(flooded(ask));
    }
    let pings = Flow { from: From::Client, ..Flow::light(ECHO_PORT, PINGS_PER_S) };
    let flood = ask.flood(FLOODED_PORT).map(|flow| of_kind(ask.case, flow));
    Ok(Scene {
        apps: vec![App::sink(Duration::ZERO, FLOODED_PORT, Role::Flooded), echo(Role::Light)],
        flows: std::iter::once(pings).chain(flood).collect(),
        beside: (ask.load == Load::Off).then_some(Beside::Spinner),
        watch: Some(Watch::RoundTrips),
        ..Scene::default()
    })
}

/// The server itself is flooded, among many who send it pings.
fn flooded(ask: &Ask<'_>) -> Scene {
    let (name, beside) = accompanied(ask.case);
    let (from, sources) = match name {
        "own-random" => (From::FloodNet, Sources::Random { address_bits: 16, port_bits: 0 }),
        _ => (From::Client, Sources::One),
    };
    let pings = Flow::light(ECHO_PORT, PINGS_PER_S);
    let pings = Flow { from: From::FloodNet, sources: Sources::Some(SENDERS), ..pings };
    let flood = ask.flood(ECHO_PORT);
    let flood = flood.map(|flow| Flow { lengths: UNSTAMPED, from, sources, ..flow });
    let server = udp::Server::echo(Work { time: WORK, ..Work::default() });
    let server = App::new(AppKind::Udp(server), ECHO_PORT, Role::Flooded);
    Scene {
        apps: vec![App { per_trial: true, ..server }],
        flows: std::iter::once(pings).chain(flood).collect(),
        needs: vec![Need::AnswersDropped],
        watch: Some(Watch::RoundTrips),
        beside,
        ..Scene::default()
    }
}
