//! `parity` (LRP, table 1).

use super::shared::*;
use crate::apps::parity::{DATAGRAM_BYTES, Talk};
use crate::apps::udp::Answer;
use crate::programs::{IPERF3, IPERF3_CLIENT};

const PORT: u16 = 6000;
const NIC: List = "weir-native,weir --attach generic,weir";
const TRIP: &str = "udp-round-trip-1";
const WINDOW: &str = "udp-window-1";
const STREAM: &str = "tcp-stream-1";
const TRIPS: Cases = Cases::Of(&[TRIP]);
const STREAMS: Cases = Cases::Of(&[WINDOW, STREAM]);
/// What weir is held against where every packet comes by the ring.
const STOCKS: Against = Against::Best(&["stock", "stock-rps"]);
/// The same on a veth as it is made.
const VETH_STOCK: Against = Against::Best(&["veth-stock"]);

pub static EXPERIMENT: Experiment = Experiment {
    name: "parity",
    paper: "LRP table 1",
    question: "what does weir cost where nothing is overloaded?",
    found: "LRP's round trips and throughput were within noise of BSD's",
    needs: &["iperf3"],
    arms: "stock,stock-rps,threaded,niced?,batch?,weir-native,weir --attach generic?,weir,\
           veth-stock,veth-weir",
    main: "weir",
    cases: || [TRIP, WINDOW, STREAM].map(Case::always).into(),
    loads: "0",
    times: Choice::times((300, 2000, 10), (50, 200, 3)),
    scene,
    derive: Some(throughput),
    says: "takes {} for a round trip",
    merits: &[&m::trip_us, &m::throughput_mbit],
    tables: tables! {
        "Time of a round trip of one byte, us: mean, 99th percentile"
            in TRIPS => trip_us, took_p99_us;
        "Payload received, Mbit/s" in STREAMS => throughput_mbit;
        "Time in which the tested CPU had nothing to do" in Cases::All => idle_cpu;
    },
    figure: bars("Time of a round trip of one byte", &m::trip_us),
    goals: goals! {
        "time of a round trip, of the best stock's of its wire" =>
            figure(NIC, TRIPS, Every, trip_us, STOCKS), AtMost(1.03);
        "payload received, of the best stock's of its wire" =>
            figure(NIC, STREAMS, Every, throughput_mbit, STOCKS), AtLeast(0.97);
        "time of a round trip, of veth-stock's" =>
            figure("veth-weir", TRIPS, Every, trip_us, VETH_STOCK), AtMost(1.03);
        "payload received, of veth-stock's" =>
            figure("veth-weir", STREAMS, Every, throughput_mbit, VETH_STOCK), AtLeast(0.97);
        also nothing_discarded();
    },
    notes: "On the NIC-like wire neither end has TSO, so every packet comes by the ring and NAPI; \
            weir-native is there alone, because native XDP takes a veth's TSO away. The veth arms are a \
            veth as it is made: packets of its own host's sockets go past NAPI to the backlog, by RPS on \
            the tested CPU. The sliding window has 32 datagrams of 1,472 bytes under way. The TCP stream \
            is iperf3's.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let scene = Scene { needs: vec![Need::FarEndRps], without_generator: true, ..Scene::default() };
    let app = |kind, port| App { per_trial: true, ..App::new(kind, port, Role::Flooded) };
    let (talk, answer) = match ask.case {
        STREAM => {
            let app = app(AppKind::Real(&IPERF3), IPERF3.port);
            let program = Some((&IPERF3_CLIENT, String::new()));
            return Ok(Scene { apps: vec![app], program, books: Books::None, ..scene });
        }
        WINDOW => (Talk::Window, Answer::Count),
        _ => (Talk::RoundTrip, Answer::Echo),
    };
    let server = AppKind::Udp(udp::Server { answer, ..Default::default() });
    let client = Some(Client::Parity(talk, PORT));
    Ok(Scene { apps: vec![app(server, PORT)], client, ..scene })
}

/// What the lab's own server receives is counted in datagrams.
fn throughput(trials: &mut [Trial]) {
    for trial in trials.iter_mut().filter(|trial| trial.case == WINDOW) {
        let pps = trial.get(&m::delivered_pps);
        trial.set(&m::throughput_mbit, pps.map(|pps| pps * DATAGRAM_BYTES as f64 * 8.0 / 1e6));
    }
}
