//! What is wanted: stock's mis-accounting is seen, weir charges nobody for what is not his, and its meter
//! knows of all input's time.

use crate::goals::{accounted, goal, least};
use crate::results::accounting::{Accounting, AccountingRun};
use crate::results::merit::MeritPoint;
use crate::results::{Goal, Mode};
use crate::trial::{Books, Flood};

/// At the highest rate `stock` charges the bystander this much for others' work, or the experiment does not
/// show what it is about.
const STOCK_MIN: f64 = 0.1;
/// `weir` never more than this.
const WEIR_MAX: f64 = 0.05;
/// The sum of what is charged, and what discarding took, is input's time to within this.
const METER_WITHIN: f64 = 0.05;

/// The goals; one that this run could not measure is not met.
pub(super) fn goals(run: &AccountingRun) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Books::ALL.iter().map(|books| stock(run, *books)).collect();
    goals.extend(Books::ALL.iter().map(|books| weir(run, *books)));
    goals.push(meter(run));
    goals.push(accounted(run.trials.iter().map(|trial| &trial.load)));
    goals
}

/// A mode's points of a variant that had a flood.
fn flooded(
    run: &AccountingRun,
    mode: Mode,
    books: Books,
) -> impl Iterator<Item = &MeritPoint<Accounting>> {
    let points = run.series.get(&mode).map_or(&[][..], Vec::as_slice).iter();
    points.filter(move |point| {
        point.variant == books.name() && point.target_pps != Flood::Off.target_pps()
    })
}

fn stock(run: &AccountingRun, books: Books) -> Goal {
    let highest =
        flooded(run, Mode::Stock, books).max_by(|a, b| a.flood_pps.total_cmp(&b.flood_pps));
    goal(
        &format!(
            "stock, {}: the bystander is charged for others' work (highest rate)",
            books.name()
        ),
        format!(">= {STOCK_MIN} of what it is charged"),
        highest.map(|point| told(point.detail.mischarged, point.flood_pps, |m| m >= STOCK_MIN)),
    )
}

fn weir(run: &AccountingRun, books: Books) -> Goal {
    let off = |point: &MeritPoint<Accounting>| (point.merit, point.flood_pps);
    let worst = least(flooded(run, Mode::Weir, books).map(off));
    goal(
        &format!("weir, {}: the same, at every rate", books.name()),
        format!("<= {WEIR_MAX}"),
        worst.map(|(merit, rate)| told(1.0 - merit, rate, |m| m <= WEIR_MAX)),
    )
}

fn told(mischarged: f64, rate: f64, met: impl Fn(f64) -> bool) -> (String, bool) {
    (format!("{mischarged:.3} at {:.0} k packets/s", rate / 1000.0), met(mischarged))
}

/// The rate at which it is farthest from the truth.
fn meter(run: &AccountingRun) -> Goal {
    let sums = flooded(run, Mode::Weir, Books::Mixed)
        .filter_map(|point| Some((point.detail.metered.as_ref()?.accounted?, point.flood_pps)));
    let worst = sums.max_by(|a, b| (a.0 - 1.0).abs().total_cmp(&(b.0 - 1.0).abs()));
    goal(
        "weir, mixed: what the meter charged, and discarding, against input's time by perf",
        format!("within {:.0} %, at every rate", METER_WITHIN * 100.0),
        worst.map(|(sum, rate)| {
            let got = format!("{sum:.3} at worst, at {:.0} k packets/s", rate / 1000.0);
            (got, (sum - 1.0).abs() <= METER_WITHIN)
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::goals;
    use crate::report::fixture_accounting::accounting;
    use crate::results::Mode;

    #[test]
    fn what_is_charged_wrongly_is_asked_of_each_variant() {
        let mut run = accounting();
        let of =
            |run: &_| goals(run).into_iter().map(|goal| (goal.got, goal.met)).collect::<Vec<_>>();
        let told = of(&run);
        assert_eq!(told[0], ("0.500 at 400 k packets/s".to_owned(), true));
        assert_eq!(told[2], ("0.031 at 400 k packets/s".to_owned(), true));
        assert_eq!(told[4], ("1.000 at worst, at 400 k packets/s".to_owned(), true));
        let points = run.series.get_mut(&Mode::Weir).unwrap();
        points[1].merit = 0.9;
        points[3].detail.metered.as_mut().unwrap().accounted = Some(0.9);
        run.series.get_mut(&Mode::Stock).unwrap()[3].detail.mischarged = 0.0;
        let met: Vec<bool> = of(&run).into_iter().map(|(_, met)| met).collect();
        assert_eq!(met, [true, false, false, true, false, true]);
        run.series.clear();
        assert!(of(&run)[..5].iter().all(|(got, met)| got.contains("not measured") && !met));
    }
}
