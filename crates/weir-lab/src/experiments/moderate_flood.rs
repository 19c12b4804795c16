//! `moderate-flood`: a web server and a light flow beside a flood that the CPU has time for, and beside a process.

use super::http_syn_flood::{CONNECTIONS, SETTLE};
use super::shared::*;
use crate::programs::NGINX;

const LIGHT_PPS: f64 = 5000.0;
/// Eight with a connection for each request, eight with one for all, and one alone.
const CLIENTS: [&str; 3] = ["conn", "keep", "one"];
const FLOODS: [&str; 8] = ["syn", "ack", "closed", "icmp", "udp", "mixed", "fragments", "options"];
const QUICK: [&str; 3] = ["conn-closed", "conn-closed+hog", "keep-udp+idle"];

pub static EXPERIMENT: Experiment = Experiment {
    name: "moderate-flood",
    paper: "MR 5, LRP 4.2",
    question: "what do a web server and a light flow keep beside a flood that the CPU has time for?",
    found: "argued, not plotted: input must neither wait for others nor starve them",
    needs: &["nginx"],
    arms: "stock,threaded?,niced?,batch?,weir,weir-native",
    cases: || {
        let case = |client: &str, flood: &str, beside: &str| {
            let name = format!("{client}-{flood}{beside}");
            Case { quick: QUICK.contains(&&*name), ..Case::full(name) }
        };
        let of = |client| {
            FLOODS
                .into_iter()
                .flat_map(move |flood| BESIDE.map(|(with, _)| case(client, flood, with)))
        };
        CLIENTS.into_iter().flat_map(of).collect()
    },
    loads: "0,30k?,150k",
    times: Choice::times((300, 1000, 10), (50, 300, 2)),
    scene,
    says: "answers {} requests/s",
    merits: &[&m::per_s, &m::light_goodput],
    tables: tables! {
        "Requests/s" in Cases::All => per_s;
        "Goodput of the light flow; refused by the ring, packets/s"
            in Cases::All => light_goodput, nic_drop_pps;
        "Passes of the calibrated loop per second by the process beside it"
            in ACCOMPANIED => hog_per_s;
    },
    figure: lines("Requests per second by the flood's rate", "conn-closed+hog", &m::per_s),
    goals: goals! {
        "the light flow's goodput, of the best baseline's" =>
            figure(WEIRS, Cases::All, Every, light_goodput, BEST), AtLeast(0.99);
        "requests/s, of the best baseline's" =>
            figure(WEIRS, ALONE, Every, per_s, BEST), AtLeast(0.97);
        "requests/s beside a process, of the best baseline's" =>
            figure(WEIRS, ACCOMPANIED, Every, per_s, BEST), AtLeast(0.97);
        "work of a process beside it, of what stock leaves it" =>
            figure(WEIRS, ACCOMPANIED, Every, hog_per_s, Best(&["stock"])), AtLeast(1.0);
    },
    notes: "Eight clients, of one request per connection (conn) or of one connection each (keep), or a single one with \
            one connection (one); their SYNs and the light flow share the ring with the flood: of requests and ACKs to \
            the server's own port, of datagrams to a closed port, echo requests, datagrams to a receiver that can take \
            them, of one length or mixed, fragments, or datagrams with an IP option. +hog is a process that computes \
            at nice 0, +nice-19 one at nice 19, +idle one of SCHED_IDLE, each in a session of its own, +group one at \
            nice 0 in a control group, and +bursts one at nice 0 that has computed for 4 ms and then sleeps for 96.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let (name, beside) = accompanied(ask.case);
    let (client, flood) = name.split_once('-').unwrap_or((name, ""));
    let port = NGINX.port;
    let mut apps = receivers();
    apps.push(App::new(AppKind::Real(&NGINX), port, Role::Other));
    let sorts = |flow: Flow| match flood {
        "syn" => vec![segments(Transport::TcpSyn, port, flow)],
        "ack" => vec![segments(Transport::TcpAck, port, flow)],
        "fragments" => fragments(&flow).into(),
        _ => vec![of_kind(flood, flow)],
    };
    let sorts = ask.flood(FLOODED_PORT).map_or(vec![], sorts);
    Ok(Scene {
        apps,
        flows: std::iter::once(Flow::light(LIGHT_PORT, LIGHT_PPS))
            .chain(share_out(sorts, ask.load))
            .collect(),
        client: Some(Client::Http {
            connections: if client == "one" { 1 } else { CONNECTIONS },
            keep_alive: client != "conn",
            port,
        }),
        needs: vec![Need::FarEnd, Need::AnswersDropped],
        beside,
        books: Books::None,
        settle: SETTLE,
        ..Scene::default()
    })
}
