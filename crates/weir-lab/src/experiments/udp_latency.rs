//! `udp-latency` (LRP, figure 4): round trips of pings to an echo server while another socket of the host
//! is flooded, or the server's own.
//!
//! The generator sends the pings itself, so that no client waits for the CPU that it keeps busy, and
//! writes the time into each; a program at the server's interface sees when the reply leaves. At the far
//! end the same program sees the slowest percent later in `stock` at high rates, since the far end's
//! softirq waits for the generator.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::{Outcome, Verdict, judge};
    use crate::report::made_up;

    const P99: usize = 0;
    const LOST: usize = 1;

    /// What is found of weir-native beside niced, whose rings refuse these shares at 400 k, by the pings lost of 1,000
    /// at 100 k in each trial.
    fn judged(refused: [f64; 2], lost_of_each: [f64; 3]) -> Vec<Outcome> {
        let mut run = made_up::overload(&[]);
        for (arm, refused) in ["weir-native", "niced"].into_iter().zip(refused) {
            for (repeat, lost) in (0..).zip(lost_of_each) {
                for (load, lost, refused) in
                    [(0.0, 0.0, 0.0), (1e5, lost, 0.0), (4e5, 0.0, refused)]
                {
                    let mut values = vec![
                        (&m::offered_pps, load),
                        (&m::nic_drop_pps, refused * load),
                        (&m::pings_sent, 1000.0),
                        (&m::pings_lost, lost),
                    ];
                    values.extend((lost <= 10.0).then_some((&m::rtt_p99_us, 50.0)));
                    let load = if load > 0.0 { Load::Rate(load) } else { Load::Off };
                    run.trials.push(made_up::trial((arm, "pings", load), repeat, &values));
                }
            }
        }
        judge(&View::new(&EXPERIMENT, &run))
    }

    #[test]
    fn a_ring_that_overflows_where_a_baselines_holds_excuses_nothing() {
        let alone = judged([0.02, 0.0], [0.0; 3]);
        for goal in &alone[..2] {
            assert_eq!(goal.verdict, Verdict::Undecided, "{goal:?}");
            let overflows = "; not measured: at 400 k: the ring overflows, niced's does not";
            assert!(goal.got.ends_with(overflows), "{goal:?}");
        }
        assert!(alone[P99].got.starts_with("1.000 (1.000 to 1.000, 3 pairs), at 100 k"));
        // Where every ring does, nobody keeps anything.
        assert!(judged([0.02, 0.02], [0.0; 3]).iter().all(|goal| goal.verdict == Verdict::Met));
        assert_eq!(judged([0.02, 0.0], [0.0, 1.0, 0.0])[LOST].verdict, Verdict::Unmet);
    }

    #[test]
    fn a_percentile_that_lost_pings_lie_beyond_is_endless() {
        assert_eq!(judged([0.0; 2], [10.0; 3])[P99].verdict, Verdict::Met);
        assert_eq!(judged([0.0; 2], [0.0, 0.0, 11.0])[P99].verdict, Verdict::Undecided);
        assert_eq!(judged([0.0; 2], [11.0; 3])[P99].verdict, Verdict::Unmet);
    }
}
