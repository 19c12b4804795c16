//! Whether B differs from A: rows of ratios, judged together, for `weir lab ab` and `weir lab compare`.

use crate::metric::{Better, Metric, m};
use crate::report::content::{Cell, Grid};
use crate::report::table::{For, table};
use crate::report::units;
use crate::run::Trial;
use crate::stats::median;
use crate::stats::rank::{Design, Shift};
use crate::view::SPEED_TOLERANCE;

/// Equals are called different in at most this share of commands, however many figures each judges.
pub const FALSE_POSITIVES_MAX: f64 = 0.02;

/// Stands for 0, and for what is below, where logarithms are compared: below every figure, so that it has its
/// rank, and a mean of many of its logarithms with one other is still a number.
const ZERO: f64 = 1e-250;

/// The conclusion names up to so many differences; the table has them all.
const NAMED_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Difference,
    /// It may or may not.
    NoDifference,
    /// However different the figures, so few could not tell.
    TooFew,
    /// It is not judged.
    Information,
}

/// One metric, compared: A's and B's medians, B / A, and where that lies.
#[derive(Debug)]
pub struct Row {
    metric: &'static Metric,
    at: String,
    a: f64,
    b: f64,
    /// The Hodges-Lehmann estimate; none where a figure is not above 0.
    pub(crate) ratio: Option<f64>,
    interval: Option<(f64, f64)>,
    /// Of A and B; of pairs these are the same.
    pub(crate) counts: [usize; 2],
    /// Whether B's figures are the higher ones.
    is_more: bool,
    pub verdict: Verdict,
    /// The points that it is the mean of, if there are several.
    points: Vec<Row>,
    logarithms: [Vec<f64>; 2],
}

/// One experiment, compared.
#[derive(Debug)]
pub struct Part {
    pub experiment: &'static str,
    /// What A and B are.
    pub sides: [String; 2],
    /// Seed of the random order.
    pub seed: Option<u64>,
    pub warnings: Vec<String>,
    pub rows: Vec<Row>,
}

/// All that a command compares.
#[derive(Debug)]
pub struct Compared {
    design: Design,
    /// Of each interval: the chance that it does not hold the true ratio.
    level: f64,
    pub(crate) parts: Vec<Part>,
    pub(crate) conclusion: String,
}

/// Says so if the machine was not equally fast for both, by the calibrated loop's mean time (`loop_ns`).
pub fn speed_warning<'a>(trials: [impl Iterator<Item = &'a Trial>; 2]) -> Option<String> {
    let [a, b] = trials.map(|trials| {
        let times: Vec<f64> = trials.filter_map(|trial| trial.get(&m::loop_ns)).collect();
        times.iter().sum::<f64>() / times.len() as f64
    });
    let said = || format!("in B's trials the tested CPU took {:.2} of A's time for a loop", b / a);
    ((b / a - 1.0).abs() > SPEED_TOLERANCE).then(said)
}

impl Row {
    /// A metric's figures of A and B; nothing is judged yet. `None` where one has none.
    pub fn new(
        (metric, judged): (&'static Metric, bool),
        at: String,
        [a, b]: [&[f64]; 2],
    ) -> Option<Self> {
        let logarithms = [a, b].map(|figures| figures.iter().copied().map(logarithm).collect());
        Some(Self {
            metric,
            at,
            a: median(a.iter().copied())?,
            b: median(b.iter().copied())?,
            ratio: None,
            interval: None,
            counts: [a.len(), b.len()],
            is_more: false,
            verdict: if judged { Verdict::TooFew } else { Verdict::Information },
            points: vec![],
            logarithms,
        })
    }

    /// The mean of points: of each repeat the geometric mean.
    pub fn mean(
        metric: (&'static Metric, bool),
        points: Vec<Row>,
        repeats: [&[f64]; 2],
    ) -> Option<Self> {
        let at = format!("{} points", points.len());
        Some(Self { points, ..Self::new(metric, at, repeats)? })
    }

    /// A difference is what leaves 1 out of the interval.
    fn judge(&mut self, design: Design, level: f64) {
        let [a, b] = &self.logarithms;
        let Some(Shift { estimate, interval, .. }) = design.shift(a, b, level) else { return };
        let has_zero = |row: &Row| row.logarithms.iter().flatten().any(|log| *log <= ZERO.ln());
        if !has_zero(self) && !self.points.iter().any(has_zero) {
            self.ratio = Some(estimate.exp());
            self.interval = interval.map(|(low, high)| (low.exp(), high.exp()));
        }
        if let Some((low, high)) = interval.filter(|_| self.verdict != Verdict::Information) {
            let differs = low > 0.0 || high < 0.0;
            self.verdict = if differs { Verdict::Difference } else { Verdict::NoDifference };
            self.is_more = low > 0.0;
        }
        self.points.iter_mut().for_each(|point| point.judge(design, level));
    }

    fn cells(&self, design: Design) -> [String; 8] {
        let [a, b] = self.counts;
        let count = if design == Design::Pairs { a.to_string() } else { format!("{a}, {b}") };
        let better = self.is_more == (self.metric.better == Better::More);
        let verdict = match self.verdict {
            Verdict::Information => "(information)",
            Verdict::NoDifference => "no difference seen",
            Verdict::TooFew => "too few to tell",
            Verdict::Difference if self.metric.better == Better::Neither => "difference",
            Verdict::Difference if better => "difference: B is better",
            Verdict::Difference => "difference: B is worse",
        };
        [
            self.metric.id.to_owned(),
            self.at.clone(),
            verdict.to_owned(),
            figure(self.metric, self.a),
            figure(self.metric, self.b),
            self.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
            self.interval.map_or("-".into(), |(low, high)| format!("{low:.3} to {high:.3}")),
            count,
        ]
    }
}

fn figure(metric: &Metric, value: f64) -> String {
    units::figure(metric.unit, value)
}

/// Of a figure, as it is compared.
pub fn logarithm(figure: f64) -> f64 {
    figure.max(ZERO).ln()
}

/// Judges the figures of all experiments together: the level of each is the whole divided by the number judged
/// (Bonferroni). Holm's steps would find a little more, but no intervals belong to them.
pub fn together(design: Design, mut parts: Vec<Part>) -> Compared {
    let rows = parts.iter().flat_map(|part| &part.rows);
    let judged = rows.filter(|row| row.verdict != Verdict::Information).count().max(1) as f64;
    let level = FALSE_POSITIVES_MAX / judged;
    for row in parts.iter_mut().flat_map(|part| &mut part.rows) {
        row.judge(design, level);
    }
    let conclusion = conclude(design, &parts, design.needed(level));
    Compared { design, level, parts, conclusion }
}

fn conclude(design: Design, parts: &[Part], needed: usize) -> String {
    let all = || parts.iter().flat_map(|part| part.rows.iter().map(move |row| (part, row)));
    let of = |verdict| all().filter(move |(_, row)| row.verdict == verdict);
    let (command, unit, each) = match design {
        Design::Pairs => ("ab", "pairs", ""),
        Design::Runs => ("compare", "trials", " of a point in each run"),
    };
    let judged = || all().map(|(_, row)| row).filter(|row| row.verdict != Verdict::Information);
    let fewest = judged().flat_map(|row| row.counts).min().unwrap_or(0);
    let say = |(part, row): (&Part, &Row)| {
        let at = if design == Design::Runs { format!(" at {}", row.at) } else { String::new() };
        let (name, id) = (part.experiment, row.metric.id);
        let figures = match (row.ratio, row.interval) {
            (Some(ratio), Some((low, high))) => format!("{ratio:.3} of A ({low:.3} to {high:.3})"),
            _ => format!("{}, A {}", figure(row.metric, row.b), figure(row.metric, row.a)),
        };
        format!("a difference in {name} {id}{at}: B has {figures}")
    };
    let mut said: Vec<String> = of(Verdict::Difference).map(say).collect();
    let (few, unseen) = (of(Verdict::TooFew).count(), of(Verdict::NoDifference).count());
    if said.len() > NAMED_MAX {
        said = vec![format!("{} differences in {} figures", said.len(), judged().count())];
    }
    if said.is_empty() && unseen > 0 {
        let figures = if unseen == 1 { "figure" } else { "figures" };
        let share = FALSE_POSITIVES_MAX * 100.0;
        said.push(format!(
            "no difference seen in {unseen} {figures} ({fewest} {unit}{each}, false positives at most {share} % of comparisons)"
        ));
    }
    if few > 0 {
        let whole = judged().count();
        said.push(format!(
            "too few {unit} to tell in {few} of {whole}: needs {needed}{each}, has {fewest}"
        ));
    }
    if said.is_empty() {
        said.push("nothing to compare: A and B have no figure of merit in common".into());
    }
    format!("{command}: {}", said.join("; "))
}

impl Compared {
    pub fn text(&self) -> String {
        let design = self.design;
        let (counts, assumed) = match design {
            Design::Pairs => ("pairs", "They are exact: the order within each pair is random."),
            Design::Runs => {
                ("trials", "No order was random: they hold if nothing but A and B differs.")
            }
        };
        let mut text = String::new();
        for Part { experiment, sides: [a, b], seed, warnings, rows } in &self.parts {
            let order = seed.map_or(String::new(), |seed| format!("; random order, seed {seed}"));
            text.extend(warnings.iter().map(|warning| format!("warning: {warning}\n")));
            let mut lines = vec![];
            for row in rows {
                lines.push(row.cells(design));
                for point in row.points.iter().filter(|_| row.verdict != Verdict::Information) {
                    let [_, at, _, rest @ ..] = point.cells(design);
                    let [a, b, ratio, interval, count] = rest;
                    let (at, none) = (format!("  {at}"), String::new);
                    lines.push([none(), at, none(), a, b, ratio, interval, count]);
                }
            }
            let rows = lines.into_iter().map(|line| line.map(Cell::from).into()).collect();
            let title = format!("{experiment}: A is {a}, B is {b}{order}");
            let heads = ["metric", "at", "verdict", "A", "B", "B/A", "interval", counts];
            let grid = Grid { labels: 3, ..Grid::of_text(&title, &heads, rows) };
            text += &format!("\n{title}\n{}\n", table(&grid, For::Terminal));
        }
        let (each, all) = ((1.0 - self.level) * 100.0, (1.0 - FALSE_POSITIVES_MAX) * 100.0);
        let each = (each * 1e4).round() / 1e4;
        text += &format!(
            "Each interval is at {each} %, so that all that are judged hold with {all} %. "
        );
        text + assumed + "\n" + &self.conclusion + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static METRICS_OF_MERIT: [&Metric; 4] =
        [&m::delivered_pps, &m::echo_pps, &m::per_s, &m::took_p99_us];

    /// Noise with far outliers: one trial in ten is disturbed.
    fn noise(random: &mut fastrand::Rng) -> f64 {
        let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        normal * if random.u8(..) < 26 { 0.1 } else { 0.02 }
    }

    fn simulated(random: &mut fastrand::Rng, pairs: usize, shift: f64) -> Vec<Row> {
        METRICS_OF_MERIT
            .iter()
            .map(|metric| {
                let mut figures = |shift: f64| -> Vec<f64> {
                    (0..pairs).map(|_| (10.0 + shift + noise(random)).exp()).collect()
                };
                let (a, b) = (figures(0.0), figures(shift));
                Row::new((metric, true), "recv, top".into(), [&a, &b]).unwrap()
            })
            .collect()
    }

    fn part(rows: Vec<Row>) -> Part {
        let (sides, warnings) = (["weir".into(), "weir --nice 0".into()], vec![]);
        Part { experiment: "udp-overload", sides, seed: Some(7), warnings, rows }
    }

    fn share(design: Design, commands: u32, shift: f64, of: fn(&Compared) -> bool) -> f64 {
        let mut random = fastrand::Rng::with_seed(20_261_123);
        let hits = (0..commands)
            .filter(|_| of(&together(design, vec![part(simulated(&mut random, 10, shift))])))
            .count();
        hits as f64 / f64::from(commands)
    }

    fn is_found(row: &Row) -> bool {
        row.verdict == Verdict::Difference
    }

    #[test]
    fn equals_differ_in_at_most_two_commands_of_a_hundred_and_eight_per_cent_are_seen() {
        for (design, commands) in [(Design::Pairs, 2000), (Design::Runs, 200)] {
            let any = share(design, commands, 0.0, |compared| {
                compared.parts[0].rows.iter().any(is_found)
            });
            assert!((0.002..=FALSE_POSITIVES_MAX).contains(&any), "{design:?}: {any}");
            let first = share(design, 100, 0.08, |compared| is_found(&compared.parts[0].rows[0]));
            assert!(first >= 0.7, "{design:?}: {first}");
        }
    }

    #[test]
    fn a_verdict_is_what_the_interval_says() {
        let mut random = fastrand::Rng::with_seed(5);
        for shift in [0.0, 0.02, 0.04, 0.06] {
            for design in [Design::Pairs, Design::Runs] {
                let compared = together(design, vec![part(simulated(&mut random, 10, shift))]);
                for row in &compared.parts[0].rows {
                    let (low, high) = row.interval.unwrap();
                    assert_eq!(is_found(row), low > 1.0 || high < 1.0, "{row:?}");
                }
            }
        }
    }

    fn exact(metric: &'static Metric, judged: bool, ratio: f64, pairs: usize) -> Row {
        let a: Vec<f64> = (1..=pairs).map(|at| 1000.0 + at as f64).collect();
        let b = a.iter().enumerate().map(|(at, a)| a * ratio * (1.0 + 1e-3 * at as f64));
        let b: Vec<f64> = b.collect();
        Row::new((metric, judged), "recv, top".into(), [&a, &b]).unwrap()
    }

    /// Twelve trials, as many of them 0 as told, and a twelfth each a little more than the one before.
    fn with_zeros(zeros: usize) -> Vec<f64> {
        (0..12).map(|at| if at < zeros { 0.0 } else { 3e5 + at as f64 }).collect()
    }

    #[test]
    fn what_is_zero_has_a_rank_and_no_ratio() {
        for design in [Design::Pairs, Design::Runs] {
            let of = |a: usize, b: usize| {
                let figures = [with_zeros(a), with_zeros(b)];
                let row =
                    Row::new((&m::late_drop_pps, true), "one".into(), [&figures[0], &figures[1]]);
                together(design, vec![part(vec![row.unwrap()])])
            };
            let verdict = |a, b| of(a, b).parts[0].rows[0].verdict;
            assert_eq!([verdict(12, 12), verdict(3, 3)], [Verdict::NoDifference; 2], "{design:?}");
            assert_eq!([verdict(12, 0), verdict(0, 10)], [Verdict::Difference; 2], "{design:?}");
            let text = of(12, 0).text();
            assert!(
                text.contains("B is worse") && text.ends_with(": B has 300 k, A 0\n"),
                "{text}"
            );
            assert!(of(0, 10).text().contains("B is better"), "{design:?}");
            assert_eq!(of(6, 0).parts[0].rows[0].ratio, None);
        }
    }

    #[test]
    fn too_few_pairs_say_how_many_are_needed() {
        let rows = vec![exact(&m::delivered_pps, true, 2.0, 6), exact(&m::echo_pps, true, 2.0, 6)];
        let conclusion = together(Design::Pairs, vec![part(rows)]).conclusion;
        assert_eq!(conclusion, "ab: too few pairs to tell in 2 of 2: needs 8, has 6");
        let rows = vec![exact(&m::delivered_pps, true, 2.0, 9), exact(&m::echo_pps, true, 2.0, 6)];
        let conclusion = together(Design::Pairs, vec![part(rows)]).conclusion;
        assert!(
            conclusion.starts_with("ab: a difference in udp-overload delivered_pps: B has 2.00")
        );
        assert!(
            conclusion.ends_with("; too few pairs to tell in 1 of 2: needs 8, has 6"),
            "{conclusion}"
        );
        assert!(
            together(Design::Pairs, vec![]).conclusion.contains("no figure of merit in common")
        );
    }

    #[test]
    fn many_differences_are_counted_in_the_conclusion() {
        let rows = (0..4).map(|_| exact(&m::delivered_pps, true, 2.0, 10)).collect();
        let conclusion = together(Design::Pairs, vec![part(rows)]).conclusion;
        assert_eq!(conclusion, "ab: 4 differences in 4 figures");
    }

    #[test]
    fn as_it_is_printed() {
        let merit = (&m::delivered_pps, true);
        let points = vec![
            exact(merit.0, false, 1.0, 10),
            Row::new((merit.0, false), "echo, top".into(), [&[0.0], &[1.0]]).unwrap(),
        ];
        let repeats: Vec<f64> = points[0].logarithms[0].iter().map(|log| log.exp()).collect();
        let several = Row::mean(merit, points, [&repeats, &repeats]).unwrap();
        let rows = vec![
            several,
            exact(&m::age_p99_us, true, 1.06, 10),
            exact(&m::daemon_cpu, false, 0.98, 3),
        ];
        let mut part = part(rows);
        part.warnings.push("something".into());
        let compared = together(Design::Pairs, vec![part]);
        insta::assert_snapshot!(compared.text(), @r"
        warning: something

        udp-overload: A is weir, B is weir --nice 0; random order, seed 7
        | metric        | at          | verdict                |        A |       B |   B/A |       interval | pairs |
        | ------------- | ----------- | ---------------------- | -------: | ------: | ----: | -------------: | ----: |
        | delivered_pps | 2 points    | no difference seen     |   1.01 k |  1.01 k |     - |              - |    10 |
        |               |   recv, top |                        |   1.01 k |  1.01 k | 1.004 | 1.001 to 1.008 |    10 |
        |               |   echo, top |                        |        0 |       1 |     - |              - |     1 |
        | age_p99_us    | recv, top   | difference: B is worse |   1.0 ms |  1.1 ms | 1.065 | 1.061 to 1.068 |    10 |
        | daemon_cpu    | recv, top   | (information)          | 100000 % | 98300 % | 0.981 |              - |     3 |

        Each interval is at 99 %, so that all that are judged hold with 98 %. They are exact: the order within each pair is random.
        ab: a difference in udp-overload age_p99_us: B has 1.065 of A (1.061 to 1.068)
        ");
        assert_eq!(Some(&*compared.conclusion), compared.text().lines().last());
    }
}
