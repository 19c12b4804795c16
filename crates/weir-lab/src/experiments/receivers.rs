//! `receivers`: two receiver tasks of different weight, at nice 0 and nice 10, each flooded at the same
//! rate. Where both have more than they can take, their weights are to say who receives what (LRP 3:
//! receive work at its receiver's priority).
//!
//! Each session has the nice value too: between two sessions, autogroup ignores those of their processes.

use super::shared::*;

const HEAVIER_PORT: u16 = 5005;
const LIGHTER_PORT: u16 = 5006;
/// Computed for each packet: enough that a fair share of the CPU is too little for rates that the ring
/// takes.
const WORK: Duration = Duration::from_micros(5);
/// `sched_prio_to_weight[]` of nice 0 and nice 10 (kernel/sched/core.c).
const WEIGHTS_RATIO: f64 = 1024.0 / 110.0;
/// A receiver is overloaded if it receives less than this share of what it is sent.
const DELIVERED_MIN: f64 = 0.95;

pub static EXPERIMENT: Experiment = Experiment {
    name: "receivers",
    paper: "LRP 3",
    question: "do two overloaded receivers receive what their weights say?",
    found: "LRP processes packets at the receiver's priority; BSD at interrupt priority, for anybody",
    arms: "stock,threaded,niced,batch,gate?,weir-native,weir",
    cases: || vec![Case::always("both")],
    loads: "2k,10k?,50k?,100k,150k?,200k",
    scene,
    derive: Some(derive),
    says: "delivers {} packets to the heavier receiver for each of the lighter",
    merits: &[&m::delivered_ratio, &m::delivered_pps],
    tables: tables! {
        "Packets of the heavier receiver for each of the lighter, where both are overloaded"
            in Cases::All => delivered_ratio;
        "Delivered, packets/s: heavier, lighter" in Cases::All => delivered_pps, light_pps;
        "CPU time charged: heavier, lighter, input" in Cases::All => user_cpu, light_cpu, input_cpu;
    },
    figure: lines(
        "Packets of the heavier receiver for each of the lighter, by the rate sent to each",
        "both",
        &m::delivered_ratio,
    ),
    goals: goals! {
        "packets of the heavier receiver for each of the lighter, where both are overloaded" =>
            figure(WEIRS, Cases::All, Flooded, delivered_ratio, Nothing),
            Within(WEIGHTS_RATIO, 0.2);
    },
    notes: "Rates are those of either flood. Each receiver computes for 5 us per packet. Their weights \
            stand 9.31 to 1.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let Load::Rate(rate) = ask.load else {
        return Err(Error::refused(
            format!("receivers has no load {}: both receivers are to be sent as much", ask.load),
            "give it rates in packets/s, such as --rates 50k,200k",
        ));
    };
    let app = |port, role, nice| App { nice, ..App::sink(WORK, port, role) };
    Ok(Scene {
        apps: vec![app(HEAVIER_PORT, Role::Flooded, 0), app(LIGHTER_PORT, Role::Light, 10)],
        flows: std::iter::once(Flow::light(LIGHTER_PORT, rate))
            .chain(ask.flood(HEAVIER_PORT))
            .collect(),
        ..Scene::default()
    })
}

/// The ratio says something only where both are overloaded.
fn derive(trials: &mut [Trial]) {
    for trial in trials {
        let is_short = |sent, received| {
            let both = trial.get(received).zip(trial.get(sent));
            both.is_some_and(|(received, sent)| received < sent * DELIVERED_MIN)
        };
        let overloaded = is_short(&m::offered_pps, &m::delivered_pps)
            && is_short(&m::light_offered_pps, &m::light_pps);
        if !overloaded {
            trial.values.remove(m::delivered_ratio.id);
        } else if trial.get(&m::delivered_ratio).is_none() {
            // The lighter received nothing: the ratio is more than this.
            let at_least = trial.get(&m::delivered_pps).zip(trial.get(&m::window_s));
            trial.set(&m::delivered_ratio, at_least.map(|(pps, window_s)| pps * window_s));
        }
    }
}
