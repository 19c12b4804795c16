//! `http-syn-flood` (LRP, figure 5).

use super::shared::*;
use crate::apps::http::PATIENCE;
use crate::programs::NGINX;

/// LRP's eight clients.
const CONNECTIONS: u32 = 8;
/// Enough that the server has no time to spare.
const MANY: u32 = 64;
/// The case whose flood is sent to the server's own port.
const OWN: &str = "own-port";
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
    question: "what does a web server keep when SYNs flood another listener of the same host, or its own port?",
    found: "BSD answered nothing near 10,000 SYN/s; LRP kept half of its throughput at 20,000",
    needs: &["nginx"],
    arms: Choice {
        full: "stock,threaded,niced,batch,gate,weir,weir-native,stock+nat,weir-native+nat",
        quick: "stock,niced,weir-native",
    },
    cases: || {
        let own = Case::always(OWN).at("0,3k,10k,30k,100k,400k", "0,30k,100k");
        vec![Case::always("keep-alive"), Case::always("connection"), own]
    },
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
        "requests/s at 400 k SYN/s, of those without a flood" => of(WEIRS, kept), AtLeast(0.9);
        "requests/s of a server whose own port is flooded, of the best that a thread polls for" =>
            figure(WEIRS, Cases::Of(&[OWN]), Every, per_s, Best(&["threaded", "niced", "batch"])),
            AtLeast(0.97);
        "requests/s, of those without NAT rules" =>
            figure("weir-native+nat", Cases::All, Every, per_s, Best(&["weir-native"])),
            AtLeast(0.95);
    },
    notes: "The flooded listener's queue is full at once, so the kernel answers each SYN by a cookie: that \
            costs CPU and fills no queue. The client's packets share the receive ring with the flood. In \
            own-port the flooded listener is the server's, with a connection per request, so that its clients' \
            SYNs are answered by cookie, too. To wake a thread costs the clients' CPU more than to wait for \
            stock's timer, and 64 clients need all of that CPU.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let port = NGINX.port;
    let flooded = if ask.case == OWN { port } else { FLOODED_PORT };
    let flood = Flow {
        transport: Transport::TcpSyn,
        sources: Sources::Random { address_bits: 16, port_bits: 15 },
        from: From::FloodNet,
        from_port: RANDOM_PORTS,
        ..Flow::udp(flooded, ask.load)
    };
    Ok(Scene {
        apps: vec![
            App::new(AppKind::Real(&NGINX), port, Role::Flooded),
            App::new(AppKind::Tcp(tcp::Server::default()), FLOODED_PORT, Role::Other),
        ],
        flows: if ask.load == Load::Off { vec![] } else { vec![flood] },
        client: Some(Client::Http {
            connections: if ask.case == OWN { MANY } else { CONNECTIONS },
            keep_alive: ask.case == "keep-alive",
            port,
        }),
        needs: vec![Need::FarEnd, Need::AnswersDropped],
        books: Books::Tcp,
        settle: SETTLE,
        ..Scene::default()
    })
}

/// Of each case with another listener, where so many SYNs were sent.
fn kept(view: &View<'_>, arm: &str) -> Vec<Found> {
    in_each(view, Cases::Where(|case| case != OWN), |case| {
        let sent = view.get(arm, case, ASKED, &m::offered_pps).unwrap_or(0.0);
        let place = place(view, case, ASKED);
        if sent < SENT_MIN * ASKED.pps() {
            return Some(Found::unknown(format!("{place}: {:.0} k SYN/s were sent", sent / 1e3)));
        }
        compare(view.pairs((arm, case, ASKED), (arm, case, Load::Off), &m::per_s), place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::{Verdict, judge};
    use crate::report::made_up;

    #[test]
    fn a_flood_that_was_not_sent_decides_nothing() {
        let mut run = made_up::overload(&[]);
        for repeat in 0..3 {
            for (load, sent, per_s) in [(Load::Off, 0.0, 1e4), (ASKED, 3.7e5, 0.9e4)] {
                let values = [(&m::offered_pps, sent), (&m::per_s, per_s)];
                run.trials.push(made_up::trial(("weir", "connection", load), repeat, &values));
            }
        }
        let found = judge(&View::new(&EXPERIMENT, &run));
        assert_eq!((found.len(), found[0].verdict), (1, Verdict::Undecided));
        assert_eq!(found[0].got, "not measured: at 400 k: 370 k SYN/s were sent");
    }
}
