//! The experiment's figure as an SVG drawing: a line for each arm over the load sent, or bars.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use crate::error::{Error, Result};
use crate::experiment::Figure;
use crate::metric::{Metric, Unit, m};
use crate::report::units::{clean, tick};
use crate::run::Load;
use crate::stats::Spread;
use crate::view::{Point, View};

const SIZE_PX: (u32, u32) = (1000, 520);
/// To the right of the drawing, for the arms' names.
const LEGEND_PX: i32 = 220;
/// A span of loads wider than this is drawn logarithmically.
const LOADS_LINEAR_MAX: f64 = 20.0;
/// The same of times along the ordinate.
const TIMES_LINEAR_MAX: f64 = 50.0;
/// More groups of bars than this run into each other: then each case's highest load alone.
const GROUPS_MAX: usize = 12;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// By Okabe and Ito: the colour-blind can tell them apart. The first is the main arm's.
const COLORS: [u32; 8] =
    [0x0072b2, 0xd55e00, 0xe69f00, 0x009e73, 0x56b4e9, 0xcc79a7, 0x404040, 0xa08a00];
/// Dash and gap of a line, pixels: a colour's first arm is solid, and so on. Of bars: full, hollow, pale.
const DASHES_PX: [(i32, i32); 3] = [(1 << 16, 0), (9, 5), (2, 4)];

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Group = (String, Load);

/// An arm's line or bars: of each point where it stands (at a load, or in the group of that number), its
/// figure, and whether it is marked.
struct Series {
    name: String,
    look: usize,
    dots: Vec<(f64, Spread, bool)>,
}

/// The drawing, where something of it was measured.
pub fn svg(view: &View<'_>) -> Result<Option<String>> {
    let figure = &view.experiment.figure;
    let groups = groups(view, figure.y);
    let series = series(view, figure, &groups);
    if series.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE_PX).into_drawing_area();
    draw(&area, figure, &groups, &series).map_err(|error| {
        let problem = format!("the figure of {} cannot be drawn: {error}", view.experiment.name);
        Error::refused(problem, "please report this")
    })?;
    drop(area);
    Ok(Some(svg))
}

/// Each case and load with a figure, or of too many each case's highest load.
fn groups(view: &View<'_>, y: &Metric) -> Vec<Group> {
    let mut all: Vec<Group> = vec![];
    for case in view.cases().into_iter().map(|case| case.name) {
        let drawn =
            |load: &Load| view.arms().iter().any(|a| view.get(a, &case, *load, y).is_some());
        all.extend(view.loads(&case).into_iter().filter(drawn).map(|load| (case.clone(), load)));
    }
    if all.len() > GROUPS_MAX {
        all.reverse();
        all.dedup_by(|lower, higher| lower.0 == higher.0);
        all.reverse();
    }
    all
}

fn series(view: &View<'_>, figure: &Figure, groups: &[Group]) -> Vec<Series> {
    let dot = |point: &Point| {
        let group = || groups.iter().position(|(c, load)| *c == point.case && *load == point.load);
        let sent = point.get(&m::offered_pps).unwrap_or(point.load.pps());
        let x = match figure.case {
            Some(case) => Some(sent).filter(|sent| sent.is_finite() && point.case == case)?,
            None => group()? as f64,
        };
        Some((x, point.spread(figure.y)?, point.marked))
    };
    let arms = view.arms();
    let main = arms.iter().position(|arm| *arm == view.experiment.main).unwrap_or(usize::MAX);
    let of = |(at, arm): (usize, &&str)| {
        let points = view.points.iter().filter(|point| point.arm == *arm);
        let mut dots: Vec<_> = points.filter_map(dot).collect();
        dots.sort_by(|a, b| a.0.total_cmp(&b.0));
        let look = if at == main { 0 } else { at + usize::from(at < main) };
        Series { name: clean(arm), look, dots }
    };
    arms.iter().enumerate().map(of).filter(|series| !series.dots.is_empty()).collect()
}

/// An axis: what is where, and which figures are written.
struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// With round figures: on a logarithmic axis 1, 2, 5, 10, of which the library would write the last alone; else what
    /// it writes.
    fn new(values: &[f64], linear_max: f64) -> Self {
        let log = |value: f64| value.log10().floor() as i32;
        let most = values.iter().copied().fold(0.0, f64::max);
        let above_0 = values.iter().copied().filter(|value| *value > 0.0);
        let least = above_0.fold(f64::INFINITY, f64::min);
        if most > least * linear_max {
            let has_0 = values.iter().any(|value| *value <= 0.0);
            // What is 0 stands at the end, below the lowest of the others.
            let (low, high) = (least / if has_0 { 2.0 } else { 1.15 }, most * 1.15);
            let decades = log(low)..=log(high);
            let digits = if decades.clone().count() > 5 { &[1.0][..] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|d| digits.iter().map(move |digit| digit * 10f64.powi(d)));
            let inside = all.filter(|value| (low..=high).contains(value));
            let ticks = has_0.then_some(0.0).into_iter().chain(inside).collect();
            return Self { is_log: true, low, high, ticks };
        }
        let high = if most > 0.0 { most * 1.06 } else { 1.0 };
        let ticks = RangedCoordf64::from(0.0..high).key_points(8);
        Self { is_log: false, low: 0.0, high, ticks }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = match self.is_log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// An arm's colour, and the number of its dash.
pub fn appearance(look: usize) -> (u32, usize) {
    (COLORS[look % COLORS.len()], look / COLORS.len() % DASHES_PX.len())
}

fn draw(area: &Area<'_>, figure: &Figure, groups: &[Group], series: &[Series]) -> Drawn {
    let Figure { title, case, y } = *figure;
    let bars = case.is_none();
    let help = y.help.trim_end_matches('.');
    let what =
        format!("{help} ({}); whiskers: range; hollow: machine's speed unusual", y.unit.name());
    area.fill(&WHITE)?;
    let area = area.titled(title, ("sans-serif", 19))?.titled(&what, ("sans-serif", 13))?;
    let dots = || series.iter().flat_map(|series| &series.dots);
    let is_time = matches!(y.unit, Unit::Micros | Unit::Millis | Unit::Nanos);
    let linear_max = if is_time && !bars { TIMES_LINEAR_MAX } else { f64::INFINITY };
    let figures: Vec<f64> = dots().flat_map(|(_, of, _)| [of.min, of.median, of.max]).collect();
    let y_axis = Axis::new(&figures, linear_max);
    let x_axis = if bars {
        let ticks: Vec<f64> = (0..groups.len()).map(|group| group as f64).collect();
        Axis { is_log: false, low: -0.5, high: groups.len() as f64 - 0.5, ticks }
    } else {
        Axis::new(&dots().map(|dot| dot.0).collect::<Vec<_>>(), LOADS_LINEAR_MAX)
    };
    let x_name = match (bars, x_axis.is_log) {
        (true, _) => "",
        (false, true) => "sent, packets/s (logarithmic)",
        (false, false) => "sent, packets/s",
    };
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .margin_right(LEGEND_PX)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x_axis, y_axis)?;
    let group = |at: f64| format!("{} {}", clean(&groups[at as usize].0), groups[at as usize].1);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc(x_name)
        .label_style(("sans-serif", 14))
        .x_label_formatter(&|at| if bars { group(*at) } else { tick(Unit::Pps, *at) })
        .y_label_formatter(&|at| tick(y.unit, *at))
        .draw()?;
    for (index, Series { name, look, dots }) in series.iter().enumerate() {
        let (color, round) = appearance(*look);
        let [_, red, green, blue] = color.to_be_bytes();
        let color = RGBColor(red, green, blue);
        let stroke = color.stroke_width(if *look == 0 { 3 } else { 2 });
        let fill = [color.filled(), stroke, color.mix(0.4).filled()][round];
        let (dash, gap) = DASHES_PX[round];
        let width = 0.8 / series.len() as f64;
        let left = |group: f64| group - 0.4 + width * index as f64;
        let x = |at: f64| if bars { left(at) + width / 2.0 } else { at };
        let places = dots.iter().map(|(at, of, _)| (x(*at), of.median));
        if bars {
            let bar = |(at, of, _): &(f64, Spread, bool)| {
                Rectangle::new([(left(*at), 0.0), (left(*at) + width, of.median)], fill)
            };
            chart.draw_series(dots.iter().map(bar))?;
        } else {
            chart.draw_series(DashedLineSeries::new(places.clone(), dash, gap, stroke))?;
        }
        let whisker = |(at, of, _): &(f64, Spread, bool)| {
            let ends = [of.min, of.max].map(|end| (x(*at), end));
            PathElement::new(ends, if bars { INK } else { color })
        };
        chart.draw_series(dots.iter().map(whisker))?;
        let marks = places.zip(dots).filter(|_| !bars).map(|(place, (.., marked))| {
            Circle::new(place, 4, if *marked { stroke } else { color.filled() })
        });
        chart.draw_series(marks)?;
        let (x, y) = (SIZE_PX.0 as i32 - LEGEND_PX, 20 * index as i32 + 16);
        if bars {
            area.draw(&Rectangle::new([(x, y + 3), (x + 24, y + 9)], fill))?;
        } else {
            area.draw(&DashedPathElement::new([(x, y + 6), (x + 24, y + 6)], dash, gap, stroke))?;
        }
        area.draw(&Text::new(name.as_str(), (x + 32, y), ("sans-serif", 14)))?;
    }
    Ok(())
}
