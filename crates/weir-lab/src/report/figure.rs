//! The experiment's figure as an SVG drawing: a line for each arm over the load sent, or bars.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::{Error, Result};
use crate::experiment::Figure;
use crate::metric::{Metric, Unit, m};
use crate::report::units::{clean, tick};
use crate::run::Load;
use crate::stats::Spread;
use crate::view::{Point, View};

const SIZE_PX: (u32, u32) = (900, 520);
const LEFT_PX: i32 = 84;
const RIGHT_PX: i32 = 876;
const BOTTOM_PX: i32 = 464;
/// A span of loads wider than this is drawn logarithmically.
const LOADS_LINEAR_MAX: f64 = 20.0;
/// The same of times along the ordinate.
const TIMES_LINEAR_MAX: f64 = 50.0;
/// More groups of bars than this run into each other: then each case's highest load alone.
const GROUPS_MAX: usize = 12;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0xc0, 0xc0, 0xc0);
/// By Okabe and Ito: the colour-blind can tell them apart. The first is the main arm's.
const COLORS: [u32; 8] =
    [0x0072b2, 0xd55e00, 0xe69f00, 0x009e73, 0x56b4e9, 0xcc79a7, 0x404040, 0xa08a00];
/// Corners of the markers. Seven, so that with eight colours no two of 56 arms look the same.
const MARKERS: [&[(i32, i32)]; 7] = [
    &[(0, -6), (6, 0), (0, 6), (-6, 0)],
    &[(-2, -5), (2, -5), (5, -2), (5, 2), (2, 5), (-2, 5), (-5, 2), (-5, -2)],
    &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
    &[(0, -6), (5, 4), (-5, 4)],
    &[(0, 6), (5, -4), (-5, -4)],
    &[(-5, -5), (5, -5), (-5, 5), (5, 5)],
    &[(-6, -2), (6, -2), (6, 2), (-6, 2)],
];

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;
type Place = (i32, i32);
type Group = (String, Load);

/// An arm's line or bars: of each point where it stands (at a load, or in the group of that number), its
/// figure, and whether it is marked.
struct Series {
    name: String,
    look: usize,
    dots: Vec<(f64, Spread, bool)>,
}

/// The drawing, where the experiment has one and something of it was measured.
pub fn svg(view: &View<'_>) -> Result<Option<String>> {
    let Some(figure) = &view.experiment.figure else { return Ok(None) };
    let groups = groups(view, figure.y);
    let series = series(view, figure, &groups);
    if series.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    let canvas = Canvas(SVGBackend::with_string(&mut svg, SIZE_PX).into_drawing_area());
    draw(&canvas, figure, &groups, &series).map_err(|error| {
        let problem = format!("the figure of {} cannot be drawn: {error}", view.experiment.name);
        Error::refused(problem, "please report this")
    })?;
    drop(canvas);
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
        let line = || Some(sent).filter(|sent| sent.is_finite() && point.case == figure.case);
        let x = if figure.bars { group()? as f64 } else { line()? };
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

/// An axis: which value is at which pixel.
struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    ends_px: (i32, i32),
}

impl Axis {
    fn new(values: &[f64], linear_max: f64, ends_px: (i32, i32)) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max);
        let above_0 = values.iter().copied().filter(|value| *value > 0.0);
        let least = above_0.fold(f64::INFINITY, f64::min);
        if most > least * linear_max {
            // What is 0 stands at the end, below the lowest of the others.
            let below = if values.iter().any(|value| *value <= 0.0) { 2.0 } else { 1.15 };
            return Self { is_log: true, low: least / below, high: most * 1.15, ends_px };
        }
        let high = if most > 0.0 { most * 1.06 } else { 1.0 };
        Self { is_log: false, low: 0.0, high, ends_px }
    }

    fn at(&self, value: f64) -> i32 {
        let (value, (from, to)) = (value.max(self.low), self.ends_px);
        let share = match self.is_log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high,
        };
        from + (share * f64::from(to - from)).round() as i32
    }

    /// Round figures: on a logarithmic axis 1, 2, 5, 10, else at most seven equal steps.
    fn ticks(&self) -> Vec<f64> {
        let log = |value: f64| value.log10().floor() as i32;
        if self.is_log {
            let decades = log(self.low)..=log(self.high);
            let digits = if decades.clone().count() > 5 { &[1.0][..] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|d| digits.iter().map(move |digit| digit * 10f64.powi(d)));
            return all.filter(|value| (self.low..=self.high).contains(value)).collect();
        }
        let (raw, decade) = (self.high / 7.0, 10f64.powi(log(self.high / 7.0)));
        let mut round = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|digit| digit * decade);
        let step = round.find(|step| *step >= raw).unwrap_or(raw);
        (0..=7).map(|n| f64::from(n) * step).filter(|value| *value <= self.high).collect()
    }
}

fn draw(canvas: &Canvas<'_>, figure: &Figure, groups: &[Group], series: &[Series]) -> Drawn {
    let y = figure.y;
    canvas.0.fill(&WHITE)?;
    canvas.text(figure.title, (LEFT_PX, 22), 19, HPos::Left)?;
    let help = y.help.trim_end_matches('.');
    let what =
        format!("{help} ({}); whiskers: range; hollow: machine's speed unusual", y.unit.name());
    canvas.text(&what, (LEFT_PX, 44), 13, HPos::Left)?;
    let (mut x_px, mut top_px) = (LEFT_PX, 66);
    for Series { name, look, .. } in series {
        let width_px = 40 + name.chars().count() as i32 * 8;
        if x_px > LEFT_PX && x_px + width_px > RIGHT_PX {
            (x_px, top_px) = (LEFT_PX, top_px + 20);
        }
        canvas.path(&[(x_px, top_px), (x_px + 24, top_px)], stroke(*look))?;
        canvas.marker(*look, (x_px + 12, top_px), false)?;
        canvas.text(name, (x_px + 30, top_px), 13, HPos::Left)?;
        x_px += width_px;
    }
    let dots = || series.iter().flat_map(|series| &series.dots);
    let is_time = matches!(y.unit, Unit::Micros | Unit::Millis | Unit::Nanos);
    let linear_max = if is_time && !figure.bars { TIMES_LINEAR_MAX } else { f64::INFINITY };
    let figures: Vec<f64> = dots().flat_map(|(_, of, _)| [of.min, of.median, of.max]).collect();
    let axis = Axis::new(&figures, linear_max, (BOTTOM_PX, top_px + 20));
    for value in axis.ticks() {
        canvas.path(&[(LEFT_PX, axis.at(value)), (RIGHT_PX, axis.at(value))], FAINT)?;
        canvas.text(&tick(y.unit, value), (LEFT_PX - 8, axis.at(value)), 13, HPos::Right)?;
    }
    if figure.bars {
        return bars(canvas, groups, series, &axis);
    }
    let sent: Vec<f64> = dots().map(|dot| dot.0).collect();
    lines(canvas, series, &Axis::new(&sent, LOADS_LINEAR_MAX, (LEFT_PX, RIGHT_PX)), &axis)
}

fn lines(canvas: &Canvas<'_>, series: &[Series], x: &Axis, y: &Axis) -> Drawn {
    let ticks = x.ticks();
    // A logarithmic axis has its end for what is 0.
    let zero = (x.is_log && series.iter().any(|series| series.dots[0].0 <= 0.0)).then_some(0.0);
    for value in ticks.into_iter().chain(zero) {
        canvas.path(&[(x.at(value), BOTTOM_PX), (x.at(value), BOTTOM_PX + 5)], INK)?;
        canvas.text(&tick(Unit::Pps, value), (x.at(value), BOTTOM_PX + 16), 13, HPos::Center)?;
    }
    let name = if x.is_log { "sent, packets/s (logarithmic)" } else { "sent, packets/s" };
    canvas.text(name, ((LEFT_PX + RIGHT_PX) / 2, BOTTOM_PX + 38), 14, HPos::Center)?;
    for Series { look, dots, .. } in series {
        let places: Vec<Place> = dots.iter().map(|dot| (x.at(dot.0), y.at(dot.1.median))).collect();
        canvas.path(&places, stroke(*look))?;
        for ((_, of, marked), place) in dots.iter().zip(places) {
            canvas.whisker(place.0, (y.at(of.min), y.at(of.max)), color(*look))?;
            canvas.marker(*look, place, *marked)?;
        }
    }
    Ok(())
}

fn bars(canvas: &Canvas<'_>, groups: &[Group], series: &[Series], y: &Axis) -> Drawn {
    let group_px = f64::from(RIGHT_PX - LEFT_PX) / groups.len() as f64;
    let bar_px = group_px * 0.8 / series.len() as f64;
    let at_px = |group: f64| LEFT_PX + (group * group_px).round() as i32;
    for (at, Series { look, dots, .. }) in series.iter().enumerate() {
        for (group, of, _) in dots {
            let from = at_px(group + 0.1) + (at as f64 * bar_px) as i32;
            let to = from + bar_px as i32 - 1;
            let corners = [(from, y.at(of.median)), (to, BOTTOM_PX)];
            canvas.0.draw(&Rectangle::new(corners, color(*look).filled()))?;
            canvas.whisker((from + to) / 2, (y.at(of.min), y.at(of.max)), INK)?;
        }
    }
    for (at, (case, load)) in groups.iter().enumerate() {
        let x = at_px(at as f64 + 0.5);
        canvas.text(&clean(case), (x, BOTTOM_PX + 16), 12, HPos::Center)?;
        canvas.text(&load.to_string(), (x, BOTTOM_PX + 32), 12, HPos::Center)?;
    }
    Ok(())
}

fn color(look: usize) -> RGBColor {
    let [_, red, green, blue] = COLORS[look % COLORS.len()].to_be_bytes();
    RGBColor(red, green, blue)
}

fn stroke(look: usize) -> ShapeStyle {
    color(look).stroke_width(if look == 0 { 3 } else { 2 })
}

struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

impl Canvas<'_> {
    /// Text beside a place, or with it in its middle.
    fn text(&self, text: &str, place: Place, size_px: u32, side: HPos) -> Drawn {
        let style = TextStyle::from(("sans-serif", size_px)).pos(Pos::new(side, VPos::Center));
        Ok(self.0.draw(&Text::new(text, place, style.color(&INK)))?)
    }

    fn path(&self, places: &[Place], style: impl Into<ShapeStyle>) -> Drawn {
        Ok(self.0.draw(&PathElement::new(places.to_vec(), style))?)
    }

    /// From the lowest to the highest of the repeats.
    fn whisker(&self, x: i32, (low, high): (i32, i32), color: RGBColor) -> Drawn {
        self.path(&[(x, low), (x, high)], color)?;
        self.path(&[(x - 4, low), (x + 4, low)], color)?;
        self.path(&[(x - 4, high), (x + 4, high)], color)
    }

    fn marker(&self, look: usize, (x, y): Place, is_hollow: bool) -> Drawn {
        let corners = MARKERS[look % MARKERS.len()].iter().map(|(dx, dy)| (x + dx, y + dy));
        let mut outline: Vec<Place> = corners.collect();
        let fill = if is_hollow { WHITE } else { color(look) };
        self.0.draw(&Polygon::new(outline.clone(), fill.filled()))?;
        outline.push(outline[0]);
        self.path(&outline, color(look).stroke_width(2))
    }
}
