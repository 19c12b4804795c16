//! `accounting` (LRP 2.2): who is charged for the receive work that a flood to one server makes, while a
//! CPU hog that has nothing to do with it computes on the same CPU.
//!
//! The hog counts passes of the calibrated loop beside its own clock of CPU time, so it is known what its
//! work took, and what it was charged beyond that.

use super::shared::{pings, share_out, to_closed_port, unloaded};
use crate::error::Result;
use crate::experiment::{
    Against, Ask, At, Bound, Case, Cases, Choice, Experiment, Figure, Goal, Table, Times,
};
use crate::metric::m;
use crate::run::Trial;
use crate::scene::{App, Beside, Books, FLOODED_PORT, Flow, LIGHT_PORT, Role, Scene, Watch};

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "accounting",
    paper: "LRP 2.2",
    question: "who is charged for the receive work that a flood to one server makes?",
    found: "BSD charges whichever process an interrupt finds; LRP charges the receiver",
    needs: &[],
    arms: Choice {
        full: &[
            "stock",
            "threaded",
            "niced",
            "batch",
            "gate",
            "weir-native --awake",
            "weir --awake",
        ],
        quick: &["stock", "threaded", "niced", "weir-native --awake"],
    },
    main: "weir-native --awake",
    cases: || vec![Case::always("udp"), Case::always("mixed")],
    case_option: "cases",
    loads: Choice { full: &["0", "50k", "100k", "200k", "400k"], quick: &["0", "50k", "400k"] },
    times: Choice {
        full: Times { warm_up_ms: 300, window_ms: 1000, repeats: 10 },
        quick: Times { warm_up_ms: 50, window_ms: 200, repeats: 3 },
    },
    traffic: false,
    skip: None,
    scene,
    special: None,
    derive: Some(derive),
    says: "charges a CPU hog {} for the work of others",
    merits: &[&m::mischarged],
    searches: &[],
    tables: &[
        Table {
            title: "CPU time charged to the hog that was not its own work, of what it was charged",
            figures: &[&m::mischarged],
            cases: Cases::All,
            of_unloaded: false,
        },
        Table {
            title: "CPU time charged: the server, the hog, NAPI threads",
            figures: &[&m::user_cpu, &m::hog_cpu, &m::threads_cpu],
            cases: Cases::All,
            of_unloaded: false,
        },
        Table {
            title: "Softirqs and ksoftirqd, as the kernel accounts for them",
            figures: &[&m::softirq_cpu, &m::ksoftirqd_cpu],
            cases: Cases::All,
            of_unloaded: false,
        },
        Table {
            title: "weir's meter: all of input's time; the server's part of what was charged",
            figures: &[&m::meter_sum, &m::meter_flooded],
            cases: Cases::All,
            of_unloaded: false,
        },
    ],
    figure: Some(Figure {
        title: "CPU time charged to the hog for others' work, by offered rate",
        case: "udp",
        y: &m::mischarged,
        bars: false,
    }),
    goals: || {
        vec![
            Goal::figure(
                "stock: the hog is charged for others' work at the highest rate",
                ("stock", Cases::All, At::Highest),
                (&m::mischarged, Against::Nothing),
                Bound::AtLeast(0.1),
            ),
            Goal::figure(
                "weir: the same, at every rate",
                ("weir-native --awake", Cases::All, At::Flooded),
                (&m::mischarged, Against::Nothing),
                Bound::AtMost(0.05),
            ),
            Goal::figure(
                "weir: what the meter charged, and discarding, of input's time by perf",
                ("weir-native --awake", Cases::Of(&["mixed"]), At::Flooded),
                (&m::meter_sum, Against::Nothing),
                Bound::Within(1.0, 0.05),
            ),
        ]
    },
    notes: "A third of the mixed flood goes to the server, a third are pings, a third go to a closed port. \
            Without CONFIG_IRQ_TIME_ACCOUNTING the kernel charges softirqs to the process that runs.",
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let reader = ask.traffic.reader;
    let udp = ask.flood(FLOODED_PORT);
    let mixed = ask.case == "mixed";
    let flows = match udp {
        Some(udp) if mixed => share_out(vec![pings(&udp), to_closed_port(&udp), udp], ask.load),
        udp => udp.into_iter().collect::<Vec<Flow>>(),
    };
    Ok(Scene {
        // The second receiver is sent nothing.
        apps: vec![
            App::sink(reader, FLOODED_PORT, Role::Flooded),
            App::sink(reader, LIGHT_PORT, Role::Light),
        ],
        flows,
        beside: vec![Beside::Hog(0)],
        watch: vec![Watch::Accounts],
        books: if mixed { Books::Ip } else { Books::Udp },
        ..Scene::default()
    })
}

/// A pass of the hog's loop takes what it is charged without a flood.
fn derive(trials: &mut [Trial]) {
    let pass = |t: &Trial| Some(t.get(&m::hog_cpu)? / t.get(&m::hog_per_s)?);
    let Some(pass_s) = unloaded(trials, Cases::All, pass) else { return };
    for trial in trials {
        let work = trial.get(&m::hog_per_s).map(|per_s| per_s * pass_s);
        let own = work.zip(trial.get(&m::hog_cpu)).map(|(work, charged)| work / charged);
        trial.set(&m::mischarged, own.map(|own| 1.0 - own));
    }
}
