//! The tables of a report, made once: for the terminal and for the page.

use super::units::{ABSENT, age, clean, count, percent, plural, rate, rates};
use crate::results::{BystanderPoint, Experiment, Goal, Point};

/// Asked for and really sent may differ by this share before a point says so.
const SHORTFALL: f64 = 0.05;

/// Beside more modes than this the bystander's rate is left to its share, to fit a terminal.
const BYSTANDER_MODES_MAX: usize = 6;

/// Follows a figure whose trials ran on a faster or slower CPU.
const MARKED: &str = "*";
/// Follows a figure that was taken at a lower rate than was asked for.
const SHORT: &str = "!";

/// One table.
pub struct Grid {
    /// Over the table.
    pub title: &'static str,
    /// One line under the title.
    pub note: &'static str,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Below them.
    pub rows: Vec<Row>,
    /// So many leading columns are text; the others are figures.
    pub text_columns: usize,
    /// Under the table.
    pub footnotes: Vec<String>,
}

/// A line of a [`Grid`].
pub enum Row {
    /// A heading over the rows that follow.
    Group(String),
    /// A cell for each column.
    Cells(Vec<String>),
}

/// Every table of a sweep but for the goals, in reading order.
pub(super) fn tables(experiment: &Experiment) -> Vec<Grid> {
    vec![
        delivered(experiment),
        ended(experiment),
        echo(experiment),
        bystander(experiment),
        summary(experiment),
    ]
}

/// Delivered rate by offered rate, a column per mode.
fn delivered(experiment: &Experiment) -> Grid {
    let series = &experiment.series;
    let targets = targets(series.values().flatten().map(|point| point.target_pps));
    let rows = targets.iter().map(|target| {
        let points: Vec<Option<&Point>> =
            series.values().map(|points| find(points, *target)).collect();
        let offered = points.iter().flatten().map(|point| point.offered_pps);
        let cells = points.iter().map(|point| match point {
            Some(point) => marked(rate(point.delivered_pps), point_marks(point)),
            None => ABSENT.to_owned(),
        });
        Row::Cells(std::iter::once(label(*target, offered)).chain(cells).collect())
    });
    let mut head = vec!["offered".to_owned()];
    head.extend(series.keys().map(|mode| marked(mode.to_string(), "")));
    let rows = rows.collect();
    Grid {
        title: "Delivered, packets/s",
        note: "Median of the trials, by offered rate.",
        head,
        rows,
        text_columns: 1,
        footnotes: footnotes(experiment),
    }
}

/// Where every packet ended, per mode and rate.
fn ended(experiment: &Experiment) -> Grid {
    let mut rows = Vec::new();
    for (mode, points) in &experiment.series {
        if !points.is_empty() {
            rows.push(Row::Group(mode.to_string()));
        }
        for point in points {
            let short = if short(point.target_pps, point.offered_pps) { SHORT } else { "" };
            let mark = if point.marked { MARKED } else { "" };
            rows.push(Row::Cells(vec![
                point.target_pps.map_or_else(|| "top".to_owned(), rate),
                marked(rate(point.offered_pps), short),
                rate(point.nic_drop_pps),
                rate(point.discarded_pps),
                rate(point.late_drop_pps),
                marked(rate(point.delivered_pps), mark),
                rates(point.delivered.min, point.delivered.max),
                age(point.age_p50_us),
                age(point.age_p99_us),
            ]));
        }
    }
    Grid {
        title: "Where every packet ended, packets/s",
        note: "Each column is its own median, so a row need not add up; each trial's ledger does.",
        head: strings([
            "target",
            "offered ",
            "NIC drop",
            "discarded",
            "late drop",
            "delivered ",
            "min-max",
            "age p50",
            "age p99",
        ]),
        rows,
        text_columns: 1,
        footnotes: footnotes(experiment),
    }
}

/// Replies of an echo server by offered rate, a column per mode.
fn echo(experiment: &Experiment) -> Grid {
    let series = &experiment.series;
    let measured = || series.values().flatten().filter(|point| point.echo_pps.is_some());
    let targets = targets(measured().map(|point| point.target_pps));
    let mut rows = Vec::new();
    let mut part = |name: &str, cell: fn(&Point) -> Option<String>| {
        rows.push(Row::Group(name.to_owned()));
        for target in &targets {
            let of_mode = |points: &Vec<Point>| {
                let text = find(points, *target).and_then(cell);
                marked(text.unwrap_or_else(|| ABSENT.to_owned()), "")
            };
            let name = target.map_or_else(|| "top".to_owned(), rate);
            rows.push(Row::Cells(
                std::iter::once(name).chain(series.values().map(of_mode)).collect(),
            ));
        }
    };
    if !targets.is_empty() {
        part("replies, packets/s", |point| point.echo_pps.map(rate));
        part("slowest 10 ms of the window against the median 10 ms", |point| {
            point.echo_steady.map(percent)
        });
    }
    let mut head = vec!["target".to_owned()];
    head.extend(series.keys().map(|mode| marked(mode.to_string(), "")));
    Grid {
        title: "Echo: a UDP echo server flooded in the application's place",
        note: "Replies that arrived at the far end; medians of trials of their own.",
        head,
        rows,
        text_columns: 1,
        footnotes: Vec::new(),
    }
}

/// What a light flow to a second socket kept beside the flood.
fn bystander(experiment: &Experiment) -> Grid {
    let series = &experiment.bystander;
    let targets = targets(series.values().flatten().map(|point| point.flood_target_pps));
    let mut any_short = false;
    let mut rows = Vec::new();
    for target in targets {
        let points: Vec<Option<&BystanderPoint>> = series
            .values()
            .map(|points| points.iter().find(|point| same(point.flood_target_pps, target)))
            .collect();
        let sent = points.iter().flatten().map(|point| point.offered_pps);
        let mut cells = vec![
            label(target, points.iter().flatten().map(|point| point.flood_pps)),
            extent(sent).map_or_else(|| ABSENT.to_owned(), |(low, high)| rates(low, high)),
        ];
        for point in points {
            let Some(point) = point else {
                cells.push(ABSENT.to_owned());
                continue;
            };
            let is_short = short(point.flood_target_pps, point.flood_pps);
            any_short |= is_short;
            let kept = if point.offered_pps > 0.0 {
                percent(point.goodput_pps / point.offered_pps)
            } else {
                ABSENT.to_owned()
            };
            let text = if series.len() > BYSTANDER_MODES_MAX {
                kept
            } else {
                format!("{} ({kept})", rate(point.goodput_pps))
            };
            cells.push(marked(text, if is_short { SHORT } else { "" }));
        }
        rows.push(Row::Cells(cells));
    }
    let mut head = strings(["flood", "sent"]);
    head.extend(series.keys().map(|mode| marked(mode.to_string(), "")));
    let footnotes = any_short
        .then(|| format!("{SHORT} the flood was more than 5 % slower than was asked for"))
        .into_iter()
        .collect();
    Grid {
        title: "The bystander: a light flow to a second socket, packets/s",
        note: "What it received of what it was sent while another socket was flooded.",
        head,
        rows,
        text_columns: 1,
        footnotes,
    }
}

/// Six figures per mode.
fn summary(experiment: &Experiment) -> Grid {
    let optional = |pps: Option<f64>| pps.map_or_else(|| ABSENT.to_owned(), rate);
    let rows = experiment.summary.iter().map(|(mode, summary)| {
        Row::Cells(vec![
            mode.to_string(),
            optional(summary.mlfrr_pps),
            optional(summary.ndr_pps),
            rate(summary.peak_pps),
            rate(summary.overload_pps),
            percent(summary.retained),
        ])
    });
    Grid {
        title: "Summary, packets/s",
        note: "MLFRR: highest rate with at most 0.5 % loss; NDR: with none; retained: overload \
               of peak.",
        head: strings(["mode", "MLFRR (PDR)", "NDR", "peak", "overload", "retained"]),
        rows: rows.collect(),
        text_columns: 1,
        footnotes: Vec::new(),
    }
}

/// What was wanted and what was got.
pub(super) fn goals_grid(goals: &[Goal]) -> Grid {
    let rows = goals.iter().map(|goal| {
        let verdict = if goal.met { "met" } else { "NOT met" };
        Row::Cells(vec![verdict.to_owned(), clean(&goal.name), clean(&goal.want), clean(&goal.got)])
    });
    Grid {
        title: "Goals",
        note: "",
        head: strings(["", "goal", "want", "got"]),
        rows: rows.collect(),
        text_columns: 4,
        footnotes: Vec::new(),
    }
}

/// Whether every packet is in some counter: of each trial how many were offered, and how many of
/// those are in none.
pub(super) fn packets_accounted(ledgers: impl Iterator<Item = (u64, i64)>) -> String {
    let (mut count_of_trials, mut offered, mut lost) = (0, 0_u128, 0_u128);
    for (sent, unaccounted) in ledgers {
        count_of_trials += 1;
        offered += u128::from(sent);
        lost += u128::from(unaccounted.unsigned_abs());
    }
    let trials = plural(count_of_trials, "trial");
    if count_of_trials == 0 {
        "No trial is recorded, so no packet is accounted for.".to_owned()
    } else if lost == 0 {
        format!("All {} packets offered in {trials} are accounted for.", count(offered))
    } else {
        format!(
            "{} of {} packets offered in {trials} are NOT accounted for: do not trust these \
             figures; run it again.",
            count(lost),
            count(offered)
        )
    }
}

/// What `*` and `!` mean, where they occur in the sweep.
fn footnotes(experiment: &Experiment) -> Vec<String> {
    let mut notes = Vec::new();
    let mut points = experiment.series.values().flatten();
    if points.any(|point| point.marked) {
        notes.push(format!(
            "{MARKED} the tested CPU's speed differed by more than 5 % from this run's median; \
             compare with care"
        ));
    }
    let mut shorts = Vec::new();
    for (mode, points) in &experiment.series {
        for point in points.iter().filter(|point| short(point.target_pps, point.offered_pps)) {
            let target = point.target_pps.map_or_else(String::new, rate);
            shorts.push(format!("{mode} {target} (sent {})", rate(point.offered_pps)));
        }
    }
    if !shorts.is_empty() {
        notes.push(format!(
            "{SHORT} the generator sent over 5 % less than the target: {}",
            shorts.join(", ")
        ));
    }
    notes
}

/// Whether a point was taken at a lower rate than was asked for.
pub(super) fn short(target_pps: Option<f64>, offered_pps: f64) -> bool {
    target_pps.is_some_and(|target| offered_pps < target * (1.0 - SHORTFALL))
}

fn point_marks(point: &Point) -> &'static str {
    match (point.marked, short(point.target_pps, point.offered_pps)) {
        (false, false) => "",
        (true, false) => MARKED,
        (false, true) => SHORT,
        (true, true) => "*!",
    }
}

/// A figure and room for its mark, so that the figures of a column stay in line.
fn marked(figure: String, marks: &str) -> String {
    format!("{figure}{marks:<1}")
}

/// The rates of all modes together, lowest first, the generator's top (absent) last.
fn targets(all: impl Iterator<Item = Option<f64>>) -> Vec<Option<f64>> {
    let key = |target: &Option<f64>| target.unwrap_or(f64::INFINITY);
    let mut targets: Vec<Option<f64>> = all.collect();
    targets.sort_by(|a, b| key(a).total_cmp(&key(b)));
    targets.dedup_by(|a, b| same(*a, *b));
    targets
}

/// Whether two rates that were asked for are one: they are copies of one number, so bits decide.
fn same(a: Option<f64>, b: Option<f64>) -> bool {
    a.map(f64::to_bits) == b.map(f64::to_bits)
}

fn find(points: &[Point], target: Option<f64>) -> Option<&Point> {
    points.iter().find(|point| same(point.target_pps, target))
}

/// A row's name: its target, or what the generator reached where it had none.
fn label(target: Option<f64>, offered: impl Iterator<Item = f64>) -> String {
    match (target, extent(offered)) {
        (Some(target), _) => rate(target),
        (None, Some((low, high))) => format!("top ({})", rates(low, high)),
        (None, None) => "top".to_owned(),
    }
}

/// Lowest and highest.
fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

pub(super) fn strings<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}
