//! Made-up runs of a made-up experiment, for tests.

use crate::experiment::{
    Against, At, BEST, Bound, Case, Cases, Choice, Experiment, Figure, Goal, Search, Table, words,
};
use crate::goals::find;
use crate::machine::Machine;
use crate::metric::{Metric, m};
use crate::run::{Head, Load, Run, SCHEMA, Setup, Trial};
use crate::scene::Scene;
use crate::view::View;

const ARMS: &str = "stock,niced,weir-native";

/// An overload, like the first of the real ones.
pub static OVERLOAD: Experiment = Experiment {
    name: "udp-overload",
    paper: "LRP fig. 3",
    question: "what is left of <b>a flood</b>?",
    found: "nothing & less",
    needs: &[],
    arms: ARMS,
    main: "weir-native",
    says: "delivers {} packets/s",
    cases: || vec![Case::always("recv"), Case::always("echo")],
    loads: "100k,top",
    times: Choice::times((1, 100, 3), (1, 100, 3)),
    skip: |_, _, _| false,
    scene: |_| Ok(Scene::default()),
    derive: None,
    merits: &[&m::delivered_pps],
    searches: &[Search {
        of: "recv",
        case: "pdr",
        arms: ARMS,
        steps: Choice::both(1),
        majority: Choice::both(1),
        window_ms: Choice::both(100),
        between: |_, _, _| Some((1e5, 4e5)),
        passes: |_, trial| trial.get(&m::loss) == Some(0.0),
    }],
    tables: &[
        Table { title: "Delivered, packets/s", figures: &[&m::delivered_pps], cases: Cases::All },
        Table {
            title: "Age at delivery: median, 99th percentile",
            figures: &[&m::age_p50_us, &m::age_p99_us],
            cases: Cases::Of(&["recv"]),
        },
    ],
    figure: Figure {
        title: "Delivered <packets> by offered rate",
        case: Some("recv"),
        y: &m::delivered_pps,
    },
    goals: || {
        let goal = |text, (arm, cases, at), against, want| {
            let find =
                move |view: &View<'_>| find(view, arm, cases, at, &m::delivered_pps, against);
            Goal::new(text, cases, want, find)
        };
        vec![
            goal(
                "weir: delivered at every rate, of the best baseline's",
                ("weir-native", Cases::All, At::Every),
                BEST,
                Bound::AtLeast(0.97),
            ),
            goal(
                "stock: livelock is visible (delivered at the top, of its peak)",
                ("stock", Cases::Of(&["recv"]), At::Only(Load::Top)),
                Against::OwnPeak,
                Bound::AtMost(0.2),
            ),
        ]
    },
    notes: "Read it with 1 < 2.",
};

/// A computation beside a flood: less is better, bars.
pub static BESIDE: Experiment = Experiment {
    name: "beside",
    says: "completes a call in {}",
    cases: || ["fast", "slow"].map(Case::always).into(),
    merits: &[&m::completion_ms],
    searches: &[],
    tables: &[Table { title: "Calls/s", figures: &[&m::calls_per_s], cases: Cases::All }],
    figure: Figure { title: "Time per call", case: None, y: &m::completion_ms },
    goals: || vec![],
    ..OVERLOAD
};

/// A trial with these values.
pub fn trial(
    (arm, case, load): (&str, &str, Load),
    repeat: u32,
    values: &[(&Metric, f64)],
) -> Trial {
    let mut trial = Trial { repeat, ..Trial::of(arm, case, load) };
    values.iter().for_each(|(metric, value)| trial.set(metric, Some(*value)));
    trial
}

/// A run of [`OVERLOAD`] with these arms; a later arm delivers more.
pub fn overload(arms: &[&str]) -> Run {
    let mut trials = vec![];
    for repeat in 0..3_u32 {
        for (at, arm) in arms.iter().enumerate() {
            let noise = 1.0 + f64::from(repeat) / 100.0;
            let points = [
                ("recv", Load::Rate(1e5), 1e5, 99e3, 85.0),
                (
                    "recv",
                    Load::Top,
                    5.1e6,
                    if at == 0 { 799.0 } else { 590e3 + at as f64 * 4e3 },
                    2e3,
                ),
                ("echo", Load::Top, 2.3e6, 2e5 + at as f64 * 1e4, 400.0),
            ];
            for (case, load, offered, delivered, age) in points {
                let slow = *arm == "niced" && case == "recv" && load == Load::Top;
                trials.push(trial(
                    (arm, case, load),
                    repeat,
                    &[
                        (&m::offered_pps, offered),
                        (&m::delivered_pps, delivered * noise),
                        (&m::age_p50_us, age),
                        (&m::age_p99_us, age * 3.0 * noise),
                        (&m::loop_ns, if slow { 1100.0 } else { 1000.0 }),
                        (&m::steal, if slow { 0.034 } else { 0.0 }),
                        (&m::missed, if case == "echo" { 1e3 } else { 0.0 }),
                        (&m::window_s, 0.1),
                    ],
                ));
            }
        }
    }
    for (at, arm) in arms.iter().enumerate().skip(1) {
        let rate = 2e5 + at as f64 * 1e4;
        let values = [(&m::offered_pps, rate), (&m::loss, 0.0), (&m::loop_ns, 1000.0)];
        trials.push(trial((arm, "pdr", Load::Rate(2e5)), 0, &values));
    }
    Run { head: head("udp-overload", arms), trials }
}

/// A run of [`BESIDE`].
pub fn beside() -> Run {
    let mut trials = vec![];
    for (case, pace) in [("fast", 1.0), ("slow", 8.0)] {
        for (load, slower) in [(Load::Off, 1.0), (Load::Rate(4e5), 2.0)] {
            for (arm, better) in [("stock", 1.0), ("niced", 0.9), ("weir-native", 0.8)] {
                let time_ms = 2.0 * pace * slower * better;
                let values = [(&m::completion_ms, time_ms), (&m::calls_per_s, 1e3 / time_ms)];
                trials.push(trial((arm, case, load), 0, &values));
            }
        }
    }
    Run { head: head("beside", &words(ARMS).collect::<Vec<_>>()), trials }
}

/// What made a run that nobody made.
pub fn head(experiment: &str, arms: &[&str]) -> Head {
    let setup = Setup {
        driver_poll: "CPU 1 at nice 19, NAPI thread".into(),
        gate: "none".into(),
        application: "CPU 1, session 7".into(),
        attach: "none".into(),
        rps_cpus: "0".into(),
        queue_depth_packets: Some(277),
        rcvbuf_bytes: Some(212_992),
        daemon: "none".into(),
        ..Setup::default()
    };
    Head {
        schema: SCHEMA,
        experiment: experiment.to_owned(),
        weir_version: "0.1.0".into(),
        commit: "0123abc".into(),
        uncommitted: true,
        command: ["weir", "lab", "run", experiment].map(str::to_owned).into(),
        started_at: "2026-11-24T01:02:03Z".into(),
        duration_s: 45.2,
        quick: false,
        window_s: 0.1,
        programs: [("nginx".to_owned(), "1.22.1".to_owned())].into(),
        machine: Machine {
            kernel: "6.18.44".into(),
            cpu_model: "Made-up CPU".into(),
            cpus: 2,
            virtual_machine: true,
            memory_mib: 4096,
            preemption: "voluntary".into(),
            hz: Some(250),
            scheduler_slice_ns: Some(2_800_000),
            mitigations: [("spectre_v1".to_owned(), "Mitigation: usercopy".to_owned())].into(),
            sut_cpu: 1,
            generator_cpu: 0,
            shared_core: false,
        },
        setup: arms.iter().map(|arm| ((*arm).to_owned(), setup.clone())).collect(),
    }
}
