//! What was seen, in one plain sentence made from the figures alone.

use super::units::{percent, rate};
use crate::results::{Experiment, Mode, Point, Summary};

/// At or below this share of its own peak a mode is said to be livelocked: it is busy receiving
/// and next to nothing arrives. The paper's figure 6-1 falls to zero; a tenth leaves no doubt.
const LIVELOCK_RETAINED: f64 = 0.1;

/// At or above this share of its own peak a mode is said to hold its rate.
const HELD_RETAINED: f64 = 0.9;

/// A mode that still received this share of the highest rate was never overloaded, and says
/// nothing of overload.
const NOT_OVERLOADED: f64 = 0.95;

/// One mode at the experiment's highest rate.
struct AtTop<'a> {
    mode: Mode,
    offered_pps: f64,
    summary: &'a Summary,
}

impl AtTop<'_> {
    fn overloaded(&self) -> bool {
        self.summary.overload_pps < self.offered_pps * NOT_OVERLOADED
    }

    fn livelocked(&self) -> bool {
        self.overloaded() && self.summary.retained <= LIVELOCK_RETAINED
    }
}

/// One plain sentence from the figures themselves, such as "On this kernel (6.18), stock delivers
/// 2 k of 5.1 M packets/s at the top rate, 0.6 % of its peak of 351 k: receive livelock; weir
/// keeps 95 % of its own peak."
///
/// `stock` leads where it was measured. Modes that were not measured are left out.
pub fn sentence(experiment: &Experiment) -> String {
    let kernel = kernel(&experiment.machine.kernel);
    let tops: Vec<AtTop<'_>> =
        Mode::ALL.iter().filter_map(|mode| at_top(experiment, *mode)).collect();
    let Some((first, rest)) = tops.split_first() else {
        return format!("{kernel}, no rates were swept, so nothing is said of overload.");
    };
    if first.mode != Mode::Stock {
        let offered = tops.iter().map(|top| top.offered_pps).fold(0.0, f64::max);
        let kept = kept(&tops);
        return format!("{kernel}, at the top rate of {} packets/s {kept}.", rate(offered));
    }
    let lead = lead(first);
    if rest.is_empty() {
        format!("{kernel}, {lead}.")
    } else {
        format!("{kernel}, {lead}; {}.", kept(rest))
    }
}

/// A mode's summary beside its highest offered rate; nothing for a mode without a sweep.
fn at_top(experiment: &Experiment, mode: Mode) -> Option<AtTop<'_>> {
    let summary = experiment.summary.get(&mode)?;
    let points: &Vec<Point> = experiment.series.get(&mode)?;
    let offered_pps = points.iter().map(|point| point.offered_pps).reduce(f64::max)?;
    (summary.peak_pps > 0.0).then_some(AtTop { mode, offered_pps, summary })
}

/// What became of the kernel's default.
fn lead(top: &AtTop<'_>) -> String {
    let AtTop { mode, offered_pps, summary } = top;
    let delivered = rate(summary.overload_pps);
    let offered = rate(*offered_pps);
    let what = format!("{mode} delivers {delivered} of {offered} packets/s at the top rate");
    if !top.overloaded() {
        return format!("{what}: it was not overloaded, so no receive livelock could be seen");
    }
    let kept = percent(summary.retained);
    let peak = rate(summary.peak_pps);
    let verdict = if top.livelocked() {
        "receive livelock"
    } else if summary.retained < HELD_RETAINED {
        "it loses throughput under overload, but no receive livelock was seen"
    } else {
        "no receive livelock was seen"
    };
    format!("{what}, {kept} of its peak of {peak}: {verdict}")
}

/// `threaded keeps 41 %, niced 96 % of its own peak; gate was not overloaded`.
fn kept(tops: &[AtTop<'_>]) -> String {
    let (overloaded, spared): (Vec<_>, Vec<_>) = tops.iter().partition(|top| top.overloaded());
    let mut clauses = Vec::new();
    if !overloaded.is_empty() {
        let each: Vec<String> = overloaded
            .iter()
            .enumerate()
            .map(|(position, top)| {
                let verb = if position == 0 { " keeps" } else { "" };
                let livelock = if top.livelocked() { " (receive livelock)" } else { "" };
                format!("{}{verb} {}{livelock}", top.mode, percent(top.summary.retained))
            })
            .collect();
        clauses.push(format!("{} of its own peak", each.join(", ")));
    }
    if !spared.is_empty() {
        let names: Vec<&str> = spared.iter().map(|top| top.mode.name()).collect();
        let verb = if names.len() == 1 { "was" } else { "were" };
        clauses.push(format!("{} {verb} not overloaded", names.join(", ")));
    }
    clauses.join("; ")
}

/// `On this kernel (6.18)`: the release's first two numbers, which is what people compare.
pub(super) fn kernel(release: &str) -> String {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if !major.is_empty() && !minor.is_empty() => {
            format!("On this kernel ({major}.{minor})")
        }
        _ => "On this kernel".to_owned(),
    }
}
