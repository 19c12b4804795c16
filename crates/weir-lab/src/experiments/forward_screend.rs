//! `forward-screend` (MR, figure 6-4): a router that forwards by way of a screen in user mode.

use std::time::Duration;

use super::shared::*;

pub static EXPERIMENT: Experiment = Experiment {
    name: "forward-screend",
    paper: "MR fig. 6-4",
    question: "how many packets does a router forward that a user-mode screen accepts?",
    found: "unmodified: 2,000 packets/s, none at 6,000; polling alone no better; with feedback from the screen's queue: flat",
    arms: Choice { full: "stock,threaded,niced,batch,weir,weir-native", quick: "stock,niced,weir" },
    main: "weir",
    cases: || vec![Case::always("alone"), Case::always("light")],
    loads: Choice { full: "25k,50k,100k,200k,400k,800k,1.6M,top", quick: "200k,800k,top" },
    times: Choice::times((2000, 2000, 5), (1000, 400, 2)),
    scene,
    says: "forwards {} packets/s",
    merits: &[&m::forwarded_pps, &m::light_pps],
    tables: &[
        table("Forwarded, packets/s", Cases::All, &[&m::forwarded_pps]),
        table("Discarded at the gate, packets/s", Cases::All, &[&m::discarded_pps]),
        table("To the router itself, packets/s of 1,000", Cases::Of(&["light"]), &[&m::light_pps]),
    ],
    figure: Some(lines("Forwarded by packets offered", "alone", &m::forwarded_pps)),
    goals: || {
        vec![
            Goal::figure(
                "weir: forwarded at the top rate, of its peak",
                ("weir", Cases::All, At::Highest),
                (&m::forwarded_pps, Against::OwnPeak),
                Bound::AtLeast(0.95),
            ),
            Goal::other("weir: its peak, of stock's", of_stocks_peak, Bound::AtLeast(1.0)),
        ]
    },
    notes: "As in forward, with a rule (iptables, `NFQUEUE`) for what leaves by the egress; a program on the tested CPU takes \
            each packet from the queue and accepts it. In `light`, 1,000 packets a second are for the router itself, and do not \
            go through the queue. The flood begins 2 s before the window, in a quick run 1 s.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let screen = App { per_trial: true, ..App::new(AppKind::Screen, 0, Role::Other) };
    let light = (ask.case == "light").then(|| Flow::light(LIGHT_PORT, 1000.0));
    let flood = ask.flood(FLOODED_PORT).map(|flow| Flow { to: To::Behind, ..flow });
    Ok(Scene {
        apps: vec![screen, App::sink(Duration::ZERO, LIGHT_PORT, Role::Light)],
        flows: light.into_iter().chain(flood).collect(),
        needs: vec![Need::Screened],
        books: Books::Ring,
        ..Scene::default()
    })
}

fn of_stocks_peak(view: &View<'_>) -> Vec<Found> {
    in_each(view, Cases::All, |case| {
        let peak = |arm| view.peak(arm, case, &m::forwarded_pps);
        Some(Found::exact(peak("weir")? / peak("stock")?, case))
    })
}
