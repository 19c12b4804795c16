//! `accounting`: who is charged for receive work while an unrelated CPU hog computes on the same CPU.
//!
//! The hog counts passes of the calibrated loop beside its own clock of CPU time, so it is known what its
//! work took, and what it was charged beyond that.

use super::shared::*;

pub static EXPERIMENT: Experiment = Experiment {
    name: "accounting",
    paper: "LRP 2.2",
    question: "who is charged for the receive work that a flood to one server makes?",
    found: "BSD charges whichever process an interrupt finds; LRP charges the receiver",
    arms: "stock,threaded,niced,batch?,gate?,weir-native --awake,weir --awake?",
    main: "weir-native --awake",
    cases: || vec![Case::always("udp"), Case::always("mixed")],
    loads: "0,50k,100k?,200k?,400k",
    scene,
    derive: Some(derive),
    says: "charges a CPU hog {} for the work of others",
    merits: &[&m::mischarged],
    tables: tables! {
        "CPU time charged to the hog that was not its own work, of what it was charged"
            in Cases::All => mischarged;
        "CPU time charged: the server, the hog, NAPI threads"
            in Cases::All => user_cpu, hog_cpu, threads_cpu;
        "weir's meter: all of input's time; the server's part of what was charged"
            in Cases::All => meter_sum, meter_flooded;
    },
    figure: lines(
        "CPU time charged to the hog for others' work, by offered rate",
        "udp",
        &m::mischarged,
    ),
    goals: goals! {
        "the hog is charged for others' work at the highest rate" =>
            figure("stock", Cases::All, Highest, mischarged, Nothing), AtLeast(0.1);
        "the hog is charged for others' work at every rate" =>
            figure("weir-native --awake,weir --awake", Cases::All, Flooded, mischarged, Nothing), AtMost(0.05);
        "what the meter charged, and discarding, of input's time by perf" =>
            figure("weir-native --awake,weir --awake", Cases::Of(&["mixed"]), Flooded, meter_sum, Nothing),
            Within(1.0, 0.05);
    },
    notes: "A third of the mixed flood goes to the server, a third are pings, a third go to a closed port. \
            Without CONFIG_IRQ_TIME_ACCOUNTING the kernel charges softirqs to the process that runs.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let udp = ask.flood(FLOODED_PORT);
    let mixed = ask.case == "mixed";
    let flows = match udp {
        Some(udp) if mixed => {
            let kinds = ["icmp", "closed", "udp"].map(|kind| of_kind(kind, udp.clone()));
            share_out(kinds.into(), ask.load)
        }
        udp => udp.into_iter().collect::<Vec<Flow>>(),
    };
    Ok(Scene {
        // The second receiver is sent nothing.
        apps: receivers(),
        flows,
        beside: Some(Beside::Hog(0)),
        watch: Some(Watch::Accounts),
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
