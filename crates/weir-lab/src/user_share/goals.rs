//! What is wanted of each setting.

use super::analysis::{OF_REST_MIN, SHORT_MAX, fits};
use crate::goals::{accounted, goal, least};
use crate::results::load::LoadKey;
use crate::results::user_share::{ShareMode, SharePoint, UserShareRun};
use crate::results::{Goal, Mode};

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &UserShareRun) -> Vec<Goal> {
    let settings = ShareMode::ALL.into_iter().filter_map(|key| Some((key, key.setting()?)));
    let mut goals: Vec<Goal> = settings
        .flat_map(|(key, setting)| {
            let points = run.series.get(&key).map(Vec::as_slice);
            match (key.mode(), points) {
                // The fallback has a goal of its own, if it was run; what input needs is not known there.
                (Mode::Softirq, points) => {
                    let share = points.map(|points| share(key, " (the fallback)", setting, points));
                    [share, None]
                }
                (_, points) => {
                    let points = points.unwrap_or_default();
                    [Some(share(key, "", setting, points)), Some(rest(key, setting, points))]
                }
            }
        })
        .flatten()
        .collect();
    goals.push(accounted(run.trials.iter().map(|trial| &trial.load)));
    goals
}

/// Never more than three points under the setting.
fn share(key: ShareMode, what: &str, setting: f64, points: &[SharePoint]) -> Goal {
    let worst = least(points.iter().map(|point| (point.user, point.flood_pps)));
    let wanted = setting - SHORT_MAX;
    goal(
        &format!("{key}{what}: user processes' work, at every rate"),
        format!(">= {wanted:.2} (the setting less {:.0} points)", SHORT_MAX * 100.0),
        worst.map(|(user, rate)| {
            let off = (user - setting) * 100.0;
            let rate = rate / 1000.0;
            let got = format!("{user:.3} at worst ({off:+.1} points), at {rate:.0} k packets/s");
            (got, user >= wanted)
        }),
    )
}

/// What input does not need is not wasted.
fn rest(key: ShareMode, setting: f64, points: &[SharePoint]) -> Goal {
    let known = points.iter().filter_map(|point| Some((point, point.input_need?)));
    let fitting = known.filter(|(_, need)| fits(setting, *need));
    let worst = least(fitting.map(|(point, need)| (point.user / (1.0 - need), point.flood_pps)));
    goal(
        &format!("{key}: user processes' work against what input leaves, where it fits its share"),
        format!(">= {OF_REST_MIN}"),
        worst.map(|(ratio, rate)| {
            let got = format!("{ratio:.3} at worst, at {:.0} k packets/s", rate / 1000.0);
            (got, ratio >= OF_REST_MIN)
        }),
    )
}
