//! `http-syn-flood` (LRP, figure 5).

use super::shared::*;
use crate::apps::http::PATIENCE;
use crate::programs::NGINX;

/// LRP's eight clients.
const CONNECTIONS: u32 = 8;
/// The flood at which the goal is asked, SYN/s.
const ASKED: Load = Load::Rate(400e3);
/// It was that flood if this share of it was sent.
const SENT_MIN: f64 = 0.95;
/// A connection whose SYN the ring lost as the flood began stands still for the client's patience. The
/// window opens when that is over.
const SETTLE: Duration = PATIENCE.saturating_add(Duration::from_millis(200));

pub static EXPERIMENT: Experiment = Experiment {
    name: "http-syn-flood",
    paper: "LRP fig. 5",
    question: "what does a web server keep when SYNs flood another listener of the same host?",
    found: "BSD answered nothing near 10,000 SYN/s; LRP kept half of its throughput at 20,000",
    needs: &["nginx"],
    arms: Choice {
        full: "stock,threaded,niced,batch,gate,weir,weir-native,stock+nat,weir-native+nat",
        quick: "stock,niced,weir-native",
    },
    cases: || vec![Case::always("keep-alive"), Case::always("connection")],
    loads: Choice { full: "0,50k,100k,200k,400k,800k", quick: "0,400k" },
    times: Choice::times((300, 2000, 10), (50, 200, 2)),
    scene,
    says: "answers {} requests/s",
    merits: &[&m::per_s],
    tables: tables! {
        "Requests/s" in Cases::All => per_s;
        "Requests/s, of the same arm's without a flood" in Cases::All => per_s of unloaded;
        "Time of a request, us: median, 99th percentile; failed requests"
            in Cases::All => took_p50_us, took_p99_us, failed;
        "Where SYNs ended, packets/s: ring, discarded, answered by a cookie; the client's lost"
            in Cases::All => nic_drop_pps, discarded_pps, cookies_pps, client_lost_pps;
    },
    figure: lines("Requests per second by SYNs per second", "keep-alive", &m::per_s),
    goals: goals! {
        "weir: requests/s at 400 k SYN/s, of those without a flood, in both cases" =>
            find(kept), AtLeast(0.9);
        "weir: requests/s on a host with NAT rules, of those without" =>
            figure("weir-native+nat", Cases::All, Every, per_s, Best(&["weir-native"])),
            AtLeast(0.95);
    },
    notes: "The flooded listener's queue is full at once, so the kernel answers each SYN by a cookie: that \
            costs CPU and fills no queue. The client's packets share the receive ring with the flood.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let flood = Flow {
        transport: Transport::TcpSyn,
        sources: Sources::Random { address_bits: 16, port_bits: 15 },
        from: From::FloodNet,
        from_port: RANDOM_PORTS,
        ..Flow::udp(FLOODED_PORT, ask.load)
    };
    let port = NGINX.port;
    Ok(Scene {
        apps: vec![
            App::new(AppKind::Real(&NGINX), port, Role::Flooded),
            App::new(AppKind::Tcp(tcp::Server::default()), FLOODED_PORT, Role::Other),
        ],
        flows: if ask.load == Load::Off { vec![] } else { vec![flood] },
        client: Some(Client::Http {
            connections: CONNECTIONS,
            keep_alive: ask.case == "keep-alive",
            port,
        }),
        needs: vec![Need::FarEnd, Need::AnswersDropped],
        books: Books::Tcp,
        settle: SETTLE,
        ..Scene::default()
    })
}

/// Of each case, where so many SYNs were sent; a case without is a goal that is not met.
fn kept(view: &View<'_>) -> Vec<Found> {
    let arm = EXPERIMENT.main;
    let of = |cases: &'static [&'static str; 1]| {
        let (case, at) = (cases[0], At::Only(ASKED));
        let found = find(view, arm, Cases::Of(cases), at, &m::per_s, Against::Unloaded);
        let sent = view.get(arm, case, ASKED, &m::offered_pps).unwrap_or(0.0);
        if sent >= SENT_MIN * ASKED.pps() && !found.is_empty() {
            return found;
        }
        let why = format!("{}: {:.0} k SYN/s were sent", place(view, case, ASKED), sent / 1e3);
        vec![Found::exact(0.0, why)]
    };
    [&["keep-alive"], &["connection"]].into_iter().flat_map(of).collect()
}
