//! What the experiments share that ask what a service keeps of one figure of merit: from trials to
//! points, summaries and the whole result.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::load::Session;
use crate::results::load::{Conditions, LoadPoint};
use crate::results::merit::{Detail, Fact, Kept, MeritPoint, MeritRun, MeritSummary, MeritTrial};
use crate::results::{Mode, ModeSetup, SCHEMA};
use crate::speed::Speeds;
use crate::stats::{median, median_of_some, spread};
use crate::trial::Flood;
use crate::warnings;

/// What an experiment of this kind says of itself.
pub struct About {
    /// Its id.
    pub name: &'static str,
    /// Its figure of merit, with the unit.
    pub merit: &'static str,
    /// The variants, in order.
    pub variants: Vec<&'static str>,
    /// The applications and what they are sent.
    pub workload: Vec<Fact>,
    /// What ran where.
    pub setup: BTreeMap<Mode, ModeSetup>,
}

/// The result; goals and sentence are left to the experiment. `loads` are lowest first, the first
/// of them none.
pub fn finish<D: Detail>(
    session: &Session<'_>,
    about: About,
    loads: &[Flood],
    trials: Vec<MeritTrial<D>>,
) -> MeritRun<D> {
    let series = series(&session.plan.modes, &about.variants, loads, &trials);
    let mut run = MeritRun {
        schema: SCHEMA,
        experiment: about.name.into(),
        weir_version: env!("CARGO_PKG_VERSION").into(),
        started_at: session.started_at.clone(),
        duration_s: 0.0,
        quick: session.plan.quick,
        machine: session.machine(),
        merit: about.merit.into(),
        variants: about.variants.iter().map(|variant| (*variant).into()).collect(),
        workload: about.workload,
        setup: about.setup,
        summary: summary(&about.variants, &series),
        series,
        goals: vec![],
        sentence: String::new(),
        warnings: vec![],
        trials,
    };
    let conditions = run.series.values().flatten().map(LoadPoint::conditions);
    run.warnings = warnings::of_points(conditions, session.plan.repeats);
    run.warnings.extend(warnings::missed(run.trials.iter().map(|trial| &trial.load)));
    run.warnings.extend(warnings::circumstances(&run.machine, run.quick));
    run.duration_s = session.began.elapsed().as_secs_f64();
    run
}

/// Per mode, the points of each variant.
pub fn series<D: Detail>(
    modes: &[Mode],
    variants: &[&str],
    loads: &[Flood],
    trials: &[MeritTrial<D>],
) -> BTreeMap<Mode, Vec<MeritPoint<D>>> {
    let speeds = Speeds::of(trials.iter().map(|trial| &trial.load));
    let of_mode = |mode: &Mode| {
        let points = variants.iter().flat_map(|variant| {
            let mut points: Vec<MeritPoint<D>> = loads
                .iter()
                .filter_map(|load| point(*mode, variant, *load, trials, speeds))
                .collect();
            let unloaded = unloaded(&points);
            for point in &mut points {
                point.of_unloaded = unloaded.map(|unloaded| point.merit / unloaded);
            }
            points
        });
        (*mode, points.collect())
    };
    modes.iter().map(of_mode).collect()
}

/// The figure of merit without a flood, if there was one.
fn unloaded<D>(points: &[MeritPoint<D>]) -> Option<f64> {
    let calm = points.iter().find(|point| point.target_pps == Flood::Off.target_pps())?;
    (calm.merit > 0.0).then_some(calm.merit)
}

fn point<D: Detail>(
    mode: Mode,
    variant: &str,
    load: Flood,
    trials: &[MeritTrial<D>],
    speeds: Speeds,
) -> Option<MeritPoint<D>> {
    let target_pps = load.target_pps();
    let of_it = |trial: &&MeritTrial<D>| {
        let load = &trial.load;
        load.mode == mode && load.purpose == variant && load.target_pps == target_pps
    };
    let trials: Vec<&MeritTrial<D>> = trials.iter().filter(of_it).collect();
    if trials.is_empty() {
        return None;
    }
    let mid = |of: fn(&MeritTrial<D>) -> f64| median(trials.iter().map(|trial| of(trial)));
    let merit_range = spread(trials.iter().map(|trial| trial.merit));
    let (sut_speed, marked) = speeds.judge(mid(|trial| trial.load.sut_loop_ns));
    let details: Vec<&D> = trials.iter().map(|trial| &trial.detail).collect();
    Some(MeritPoint {
        variant: variant.into(),
        target_pps,
        flood_pps: mid(|trial| trial.load.offered_pps),
        merit: merit_range.median,
        merit_range,
        of_unloaded: None,
        ring_loss: mid(|trial| {
            let offered = trial.load.offered_pps;
            if offered > 0.0 { trial.load.nic_drop_pps / offered } else { 0.0 }
        }),
        nic_drop_pps: mid(|trial| trial.load.nic_drop_pps),
        discarded_pps: mid(|trial| trial.load.discarded_pps),
        delivered_pps: mid(|trial| trial.load.delivered_pps),
        input_cpu: median_of_some(
            trials.iter().map(|t| Some(t.input_cpu_ns? as f64 / 1e9 / t.load.window_s)),
        ),
        detail: D::of_trials(&details),
        conditions: Conditions {
            sut_speed,
            steal: mid(|trial| trial.load.steal),
            marked,
            repeats: trials.len() as u32,
        },
    })
}

/// Per mode, what each variant keeps at the highest flood.
pub fn summary<D>(
    variants: &[&str],
    series: &BTreeMap<Mode, Vec<MeritPoint<D>>>,
) -> BTreeMap<Mode, MeritSummary> {
    let of_mode = |points: &[MeritPoint<D>]| {
        let kept: BTreeMap<String, Kept> = variants
            .iter()
            .filter_map(|variant| {
                let own = || points.iter().filter(|point| point.variant == *variant);
                let highest = own().max_by(|a, b| a.flood_pps.total_cmp(&b.flood_pps))?;
                let calm = own().find(|point| point.target_pps == Flood::Off.target_pps());
                let unloaded = calm.map_or(0.0, |point| point.merit);
                let retained = highest.of_unloaded.unwrap_or(0.0);
                let kept = Kept { unloaded, overload: highest.merit, retained };
                Some(((*variant).to_owned(), kept))
            })
            .collect();
        let worst = kept.iter().min_by(|a, b| a.1.retained.total_cmp(&b.1.retained));
        let (variant, worst) = worst.map(|(v, kept)| (v.clone(), *kept)).unwrap_or_default();
        MeritSummary {
            variant,
            unloaded: worst.unloaded,
            overload: worst.overload,
            retained: worst.retained,
            variants: kept,
        }
    };
    series.iter().map(|(mode, points)| (*mode, of_mode(points))).collect()
}
