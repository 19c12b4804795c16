//! What is wanted beside floods of every kind, of mode `weir`.

use crate::goals::{accounted, goal};
use crate::results::kinds::{Kind, KindSummary, KindsRun};
use crate::results::{Goal, Mode};

/// Both services must keep this share of their unflooded goodput.
const KEPT_MIN: f64 = 0.95;

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &KindsRun) -> Vec<Goal> {
    let summary = run.summary.get(&Mode::Weir);
    let kinds = Kind::ALL.iter().filter_map(|kind| Some((kind, summary?.kinds.get(kind)?)));
    let mut goals: Vec<Goal> = kinds.map(|(kind, summary)| of_kind(*kind, summary)).collect();
    if goals.is_empty() {
        goals.push(goal("weir: both services' goodput beside any flood", want(), None));
    }
    goals.push(accounted(run.trials.iter().map(|trial| &trial.load)));
    goals
}

fn want() -> String {
    format!(">= {KEPT_MIN}")
}

fn of_kind(kind: Kind, summary: &KindSummary) -> Goal {
    let name = format!("weir: both services' goodput beside {kind} up to R_ring");
    let kept = summary.udp_kept.zip(summary.tcp_kept).zip(summary.r_ring_pps);
    let got = kept.map(|((udp, tcp), r_ring)| {
        let worst = if udp < tcp { (udp, "UDP") } else { (tcp, "TCP") };
        let got = format!("{:.3} at worst ({}), up to {:.0} k/s", worst.0, worst.1, r_ring / 1e3);
        (got, worst.0 >= KEPT_MIN)
    });
    let overflows = || ("the ring overflows at the lowest rate".to_owned(), false);
    goal(&name, want(), Some(got.unwrap_or_else(overflows)))
}
