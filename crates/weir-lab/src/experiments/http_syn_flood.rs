//! `http-syn-flood` (LRP, figure 5).

use super::shared::*;
use crate::apps::http::PATIENCE;
use crate::programs::NGINX;

/// LRP's eight clients.
pub(super) const CONNECTIONS: u32 = 8;
/// The case whose flood is sent to the server's own port, beside a process that computes.
const OWN: &str = "own-port";
/// The same without the process.
const OWN_ALONE: &str = "own-port-alone";
/// Those whose flood is sent to another listener.
const OTHERS: Cases = Cases::Where(|case| !case.starts_with(OWN));
/// The flood at which the goal is asked, SYN/s.
const ASKED: Load = Load::Rate(400e3);
/// A connection whose SYN the ring lost as the flood began stands still for the client's patience. The
/// window opens when that is over.
pub(super) const SETTLE: Duration = PATIENCE.saturating_add(Duration::from_millis(200));

pub static EXPERIMENT: Experiment = Experiment {
    name: "http-syn-flood",
    paper: "LRP fig. 5",
    question: "what does a web server keep when SYNs flood another listener of the same host, or its own port?",
    found: "BSD answered nothing near 10,000 SYN/s; LRP kept half of its throughput at 20,000",
    needs: &["nginx"],
    arms: "stock,threaded?,niced,batch?,gate?,weir?,weir-native,stock+nat?,weir-native+nat?",
    cases: || {
        let own = Case::always(OWN).at("0,3k?,10k?,30k,100k,400k?");
        let alone = Case::always(OWN_ALONE).at("0?,100k?,400k,800k?");
        vec![Case::always("keep-alive"), Case::always("connection"), own, alone]
    },
    loads: "0,50k?,100k?,200k?,400k,800k?",
    times: Choice::times((300, 2000, 10), (50, 200, 2)),
    scene,
    says: "answers {} requests/s",
    merits: &[&m::per_s],
    tables: tables! {
        "Requests/s" in Cases::All => per_s;
        "Time of a request, us: median, 99th percentile; failed requests"
            in Cases::All => took_p50_us, took_p99_us, failed;
        "Where SYNs ended, packets/s: ring, discarded, answered by a cookie; the client's lost"
            in Cases::All => nic_drop_pps, discarded_pps, cookies_pps, client_lost_pps;
    },
    figure: lines("Requests per second by SYNs per second", "keep-alive", &m::per_s),
    goals: goals! {
        "requests/s at 400 k SYN/s, of those without a flood" => of(WEIRS, kept, OTHERS), AtLeast(0.9);
        "requests/s of a server whose own port is flooded, of the best baseline's" =>
            figure(WEIRS, Cases::Of(&[OWN, OWN_ALONE]), Every, per_s, BEST), AtLeast(0.97);
        "requests/s, of those without NAT rules" =>
            figure("weir-native+nat", Cases::All, Every, per_s, Best(&["weir-native"])),
            AtLeast(0.95);
    },
    notes: "The flooded listener's queue is full at once, so the kernel, or weir's gate, answers each SYN by a \
            cookie: that costs CPU and fills no queue. The client's packets share the receive ring with the flood. \
            In own-port and own-port-alone the flooded listener is the server's, with a connection per request, so \
            that its clients' SYNs are answered by cookie, too; in the first a process that computes at nice 0 \
            leaves no CPU idle.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let port = NGINX.port;
    let flooded = if ask.case.starts_with(OWN) { port } else { FLOODED_PORT };
    let flood = ask.flood(flooded).map(|flow| segments(Transport::TcpSyn, flooded, flow));
    Ok(Scene {
        apps: vec![
            App::new(AppKind::Real(&NGINX), port, Role::Flooded),
            App::new(AppKind::Tcp { echo: false }, FLOODED_PORT, Role::Other),
        ],
        flows: flood.into_iter().collect(),
        client: Some(Client::Http {
            connections: CONNECTIONS,
            keep_alive: ask.case == "keep-alive",
            port,
        }),
        needs: vec![Need::FarEnd, Need::AnswersDropped],
        beside: (ask.case == OWN).then_some(Beside::Hog(0)),
        books: Books::Tcp,
        settle: SETTLE,
        ..Scene::default()
    })
}

/// Of each case with another listener, where so many SYNs were sent.
fn kept(view: &View<'_>, arm: &str) -> Vec<Found> {
    in_each(view, OTHERS, |case| {
        let (flooded, place) = ((arm, case, ASKED), place(view, case, ASKED));
        let pairs = || view.pairs(flooded, (arm, case, Load::Off), &m::per_s);
        unsent(view, &[flooded], &place, "SYN/s").or_else(|| compare(pairs(), place))
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

    #[test]
    fn a_port_that_was_not_flooded_decides_nothing_whichever_arm_it_is_of() {
        for sent in [[655.0, 1e5], [1e5, 655.0]] {
            let mut run = made_up::overload(&[]);
            for (arm, sent) in ["weir", "niced"].into_iter().zip(sent) {
                let values = [(&m::offered_pps, sent), (&m::per_s, 1e4)];
                run.trials.push(made_up::trial((arm, OWN, Load::Rate(1e5)), 0, &values));
            }
            let found = judge(&View::new(&EXPERIMENT, &run)).pop().unwrap();
            assert_eq!(found.got, "not measured: at 100 k, of niced: 655 packets/s were sent");
        }
    }
}
