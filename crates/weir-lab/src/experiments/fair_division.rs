//! `fair-division`: a flooded receiver task beside a CPU hog, and how the two divide the CPU.
//!
//! The hog is a process of its own, in a session of its own. What it gets is measured by work: passes of
//! a calibrated loop, against those that it makes with the CPU to itself.

use super::shared::*;

/// What weir keeps for processes by default.
const USER_SHARE: f64 = 0.5;
/// Costs are taken at the highest rate at which this share is delivered without the hog: there nearly
/// every packet is admitted, so both costs are those of a delivered packet.
const DELIVERED_MIN: f64 = 0.95;

const BESIDE_HOG: Cases = Cases::Of(&["hog"]);

pub static EXPERIMENT: Experiment = Experiment {
    name: "fair-division",
    paper: "LRP 2.2, MR 7",
    question: "how do a flooded receiver and a CPU hog at the same priority divide the CPU?",
    found: "interrupts take what they want first, and the hog is charged for others' packets",
    arms: "stock,threaded,niced,batch,gate?,idle-weir?,weir-native,weir?",
    cases: || {
        let unloaded = Case::always("unloaded").at("0");
        vec![Case::always("alone"), Case::always("hog").against("alone"), unloaded]
    },
    loads: "50k?,100k,200k?,300k,400k?,600k?,800k?,1.6M?,3.2M?,top",
    skip: |arm, case, _| case == "unloaded" && !is_quiet(&arm.name),
    scene,
    derive: Some(hog_work),
    says: "delivers {} packets/s",
    merits: &[&m::delivered_pps, &m::hog_work],
    tables: tables! {
        "Delivered without the hog, packets/s" in Cases::Of(&["alone"]) => delivered_pps;
        "Beside the hog: delivered, packets/s; the hog's work, of an idle CPU's"
            in BESIDE_HOG => delivered_pps, hog_work;
        "CPU time charged beside the hog: to input, the receiver, the hog"
            in BESIDE_HOG => input_cpu, user_cpu, hog_cpu;
    },
    figure: lines("The hog's work by offered rate", "hog", &m::hog_work),
    goals: goals! {
        "delivered where all fits, of that without the hog" =>
            of(WEIRS, |view, arm| judged(view, arm, true, of_alone), BESIDE_HOG), AtLeast(0.95);
        "the hog's work where all fits, of the CPU that remains" =>
            of(WEIRS, |view, arm| judged(view, arm, true, hogs_share), BESIDE_HOG), AtLeast(0.95);
        "the hog's work past that, of its half of the user share" =>
            of(WEIRS, |view, arm| judged(view, arm, false, hogs_share), BESIDE_HOG), AtLeast(0.9);
        "delivered past that, of what the receiver's half can consume" =>
            of(WEIRS, |view, arm| judged(view, arm, false, receivers_share), BESIDE_HOG), AtLeast(0.9);
    },
    notes: "All fits while input needs no more than half of the CPU and the receiver no more than a \
            quarter, by the arm's own costs per packet without the hog.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    Ok(Scene {
        apps: receivers(),
        flows: ask.flood(FLOODED_PORT).into_iter().collect(),
        beside: (ask.case != "alone").then_some(Beside::Hog(0)),
        ..Scene::default()
    })
}

/// What the fair division gives at a rate.
struct Fair {
    fits: bool,
    pps: f64,
    hog: f64,
}

fn fair(view: &View<'_>, arm: &str, offered_pps: f64) -> Option<Fair> {
    let of_arm = |point: &&Point| point.arm == arm && point.case == "alone";
    let costs = |point: &Point| {
        let offered = point.get(&m::offered_pps)?;
        let fits = point.get(&m::delivered_pps)? >= DELIVERED_MIN * offered;
        let costs = (point.get(&m::cpu_ns_per_packet)?, point.get(&m::app_ns_per_packet)?);
        fits.then_some((offered, costs))
    };
    let costs = view.points.iter().filter(of_arm).filter_map(costs);
    let (_, (c_input, c_app)) = costs.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (input, app) = (offered_pps * c_input / 1e9, offered_pps * c_app / 1e9);
    let half = USER_SHARE / 2.0;
    Some(if input <= 1.0 - USER_SHARE && app <= half {
        Fair { fits: true, pps: offered_pps, hog: 1.0 - input - app }
    } else {
        Fair { fits: false, pps: offered_pps.min(half * 1e9 / c_app), hog: half }
    })
}

/// Pairs of figures of an arm's trials beside the hog, at each load at which all fits, or does not.
fn judged(
    view: &View<'_>,
    arm: &str,
    fits: bool,
    pairs: fn(&View<'_>, &str, Load, &Fair) -> Vec<Pair>,
) -> Vec<Found> {
    let of_load = |load: Load| {
        let fair = fair(view, arm, view.get(arm, "hog", load, &m::offered_pps)?)?;
        let found = compare(pairs(view, arm, load, &fair), place(view, "hog", load));
        found.filter(|_| fair.fits == fits).map(|found| found.of("hog"))
    };
    view.loads("hog").into_iter().filter_map(of_load).collect()
}

fn hogs_share(view: &View<'_>, arm: &str, load: Load, fair: &Fair) -> Vec<Pair> {
    of_fair(view, arm, load, &m::hog_work, fair.hog)
}

fn receivers_share(view: &View<'_>, arm: &str, load: Load, fair: &Fair) -> Vec<Pair> {
    of_fair(view, arm, load, &m::delivered_pps, fair.pps)
}

fn of_fair(view: &View<'_>, arm: &str, load: Load, metric: &Metric, fair: f64) -> Vec<Pair> {
    let trials = view.trials_of(arm, "hog", load);
    trials.filter_map(|trial| Some((trial.get(metric)?, fair))).collect()
}

fn of_alone(view: &View<'_>, arm: &str, load: Load, _: &Fair) -> Vec<Pair> {
    view.pairs((arm, "hog", load), (arm, "alone", load), &m::delivered_pps)
}
