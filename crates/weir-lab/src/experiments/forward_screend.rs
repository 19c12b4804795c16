//! `forward-screend` (MR, figures 6-4 and 6-6): a router that forwards by way of a screen in user mode.

use super::shared::*;

/// Each packet of a flow of its own: 2 million of them.
const NEW_FLOWS: Sources = Sources::Random { address_bits: 6, port_bits: 15 };

pub static EXPERIMENT: Experiment = Experiment {
    name: "forward-screend",
    paper: "MR fig. 6-4, 6-6",
    question: "how many packets does a router forward that a user-mode screen accepts?",
    found: "unmodified: 2,000 packets/s, none at 6,000; polling alone no better; with feedback from the screen's queue: flat",
    arms: "stock,threaded?,niced,batch?,weir,weir-native?,stock-screen?,weir-screen?,\
           weir-screen-xdp?,stock-rps+quota5?,stock-rps+unlimited?,weir+quota5?,weir+unlimited?",
    main: "weir",
    cases: || vec![Case::always("alone"), Case::always("light"), Case::full("new")],
    loads: "25k?,50k?,100k?,200k,400k?,800k,1.6M?,top",
    times: Choice::times((2000, 2000, 5), (1000, 400, 2)),
    scene,
    says: "forwards {} packets/s",
    merits: &[&m::forwarded_pps, &m::light_pps],
    tables: tables! {
        "Forwarded, packets/s" in Cases::All => forwarded_pps;
        "Discarded at the gate, packets/s" in Cases::All => discarded_pps;
        "To the router itself, packets/s of 1,000" in Cases::Of(&["light"]) => light_pps;
    },
    figure: lines("Forwarded by packets offered", "alone", &m::forwarded_pps),
    goals: goals! {
        "forwarded at the top rate, of its peak" =>
            figure(WEIRS, Cases::All, Highest, forwarded_pps, OwnPeak), AtLeast(0.95);
        "its peak, of stock's" =>
            figure(WEIRS, Cases::All, Peak, forwarded_pps, PeakOf(&["stock"])), AtLeast(1.0);
        "its peak, of the NFQUEUE screen's in the best baseline" =>
            figure("weir-screen,weir-screen-xdp", Cases::All, Peak, forwarded_pps, PeakOf(&BASELINES)), AtLeast(10.0);
    },
    notes: "As in forward, with a rule (iptables, `NFQUEUE`) for what leaves by the egress; a program on the tested CPU takes \
            each packet from the queue and accepts it. In `light`, 1,000 packets a second are for the router itself, and do not \
            go through the queue. In `new`, each packet is of a flow of its own. In weir-screen, weir-screen-xdp and stock-screen the packets \
            are judged by `weir screen` in place of the queue, by one rule that accepts all. Quotas are those of the experiment of \
            this name; where they are stock's, no screen's queue feeds back. The flood begins 2 s before the window, in a quick run 1 s.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let (kind, need) = match ask.arm.screen {
        Some(options) => (AppKind::Wall(options), Need::Egress),
        None => (AppKind::Screen, Need::Screened),
    };
    let screen = App { per_trial: true, ..App::new(kind, 0, Role::Other) };
    let light = (ask.case == "light").then(|| Flow::light(LIGHT_PORT, 1000.0));
    let flood = ask.flood(FLOODED_PORT).map(|flow| Flow { to: To::Behind, ..flow });
    let flood = flood.map(|flow| match ask.case {
        "new" => Flow { sources: NEW_FLOWS, from_port: RANDOM_PORTS, ..flow },
        _ => flow,
    });
    Ok(Scene {
        apps: vec![screen, App::sink(Duration::ZERO, LIGHT_PORT, Role::Light)],
        flows: light.into_iter().chain(flood).collect(),
        needs: vec![need],
        books: Books::Ring,
        ..Scene::default()
    })
}
