//! `parity` (LRP, table 1).

use super::shared::*;
use crate::apps::parity::{DATAGRAM_BYTES, Measure, Talk};
use crate::apps::udp::Answer;
use crate::programs::{IPERF3, IPERF3_CLIENT};

const PORT: u16 = 6000;
const FLOWS: [u16; 2] = [1, 1000];
const NIC: List = "weir-native,weir --attach generic,weir";
const TRIPS: Cases = Cases::Where(is_trip);
const STREAMS: Cases = Cases::Where(|case| !is_trip(case));
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
    arms: Choice {
        full: "stock,stock-rps,threaded,niced,batch,weir-native,weir --attach generic,weir,\
               veth-stock,veth-weir",
        quick: "stock,stock-rps,threaded,weir-native,weir,veth-stock,veth-weir",
    },
    main: "weir",
    cases: || {
        let case = |measure: Measure, flows| {
            let quick = flows == 1 && measure != Measure::TcpRoundTrip;
            Case { quick, ..Case::full(format!("{}-{flows}", measure.name())) }
        };
        Measure::ALL.into_iter().flat_map(|of| FLOWS.map(|flows| case(of, flows))).collect()
    },
    loads: Choice::both("0"),
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
            the tested CPU. The sliding window has 32 datagrams of 1,472 bytes under way. The stream of \
            one connection is iperf3's.",
    ..USUAL
};

fn is_trip(case: &str) -> bool {
    case.contains("round-trip")
}

fn talk(case: &str) -> Option<Talk> {
    let (name, flows) = case.rsplit_once('-')?;
    let measure = Measure::ALL.into_iter().find(|measure| measure.name() == name)?;
    Some(Talk { measure, flows: flows.parse().ok()? })
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let talk = talk(ask.case).unwrap_or(Talk { measure: Measure::UdpRoundTrip, flows: 1 });
    let scene = Scene {
        needs: vec![Need::FarEndRps],
        books: if talk.measure.is_udp() { Books::Client } else { Books::None },
        without_generator: true,
        ..Scene::default()
    };
    if talk == (Talk { measure: Measure::TcpStream, flows: 1 }) {
        let app = App::new(AppKind::Real(&IPERF3), IPERF3.port, Role::Flooded);
        let program = Some((&IPERF3_CLIENT, String::new()));
        return Ok(Scene { apps: vec![app], program, ..scene });
    }
    let Talk { measure, flows } = talk;
    let answer = if measure.is_time() { Answer::Echo } else { Answer::Count };
    let server = match measure.is_udp() {
        true => AppKind::Udp(udp::Server { further: flows - 1, answer, ..Default::default() }),
        false => AppKind::Tcp(tcp::Server { connections: flows, echo: measure.is_time() }),
    };
    let app = App { per_trial: true, ..App::new(server, PORT, Role::Flooded) };
    Ok(Scene { apps: vec![app], client: Some(Client::Parity(talk, PORT)), ..scene })
}

/// What the lab's own server receives is counted in datagrams, or in bytes.
fn throughput(trials: &mut [Trial]) {
    for trial in trials {
        let Some(talk) = talk(&trial.case).filter(|talk| !talk.measure.is_time()) else { continue };
        let bytes = if talk.measure.is_udp() { DATAGRAM_BYTES as f64 } else { 1.0 };
        let received = trial.get(&m::delivered_pps).map(|per_s| per_s * bytes * 8.0 / 1e6);
        trial.set(&m::throughput_mbit, received.or(trial.get(&m::throughput_mbit)));
        if !talk.measure.is_udp() {
            trial.values.remove(m::delivered_pps.id);
        }
    }
}
