//! The experiment's figure as an SVG drawing: a line for each arm over the load sent, or bars.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::error::{Error, Result};
use crate::experiment::Figure;
use crate::metric::{Unit, m};
use crate::report::units::{clean, tick};
use crate::run::Load;
use crate::stats::Spread;
use crate::view::{Point, View};

const SIZE_PX: (i32, i32) = (900, 520);
const LEFT_PX: i32 = 84;
const RIGHT_PX: i32 = SIZE_PX.0 - 24;
const BOTTOM_PX: i32 = SIZE_PX.1 - 56;
const LEGEND_PX: i32 = 66;
const LEGEND_ROW_PX: i32 = 20;
/// A span of loads wider than this is drawn logarithmically.
const LOADS_LINEAR_MAX: f64 = 20.0;
/// The same of times along the ordinate.
const TIMES_LINEAR_MAX: f64 = 50.0;
/// More groups of bars than this run into each other: then each case's highest load alone.
const GROUPS_MAX: usize = 12;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0x6b, 0x6b, 0x6b);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// By Okabe and Ito: the colour-blind can tell them apart. The first is the main arm's.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x40, 0x40, 0x40),
    RGBColor(0xa0, 0x8a, 0x00),
];
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

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// An arm's line or bars.
struct Series {
    name: String,
    look: usize,
    dots: Vec<Dot>,
}

/// A point: of lines at a load, of bars at the group of that number.
struct Dot {
    x: f64,
    y: Spread,
    marked: bool,
}

/// The drawing, where the experiment has one and something of it was measured.
///
/// # Errors
/// Where the drawing library refuses.
pub fn svg(view: &View<'_>) -> Result<Option<String>> {
    let Some(figure) = &view.experiment.figure else { return Ok(None) };
    let groups = if figure.bars { groups(view, figure) } else { vec![] };
    let series = series(view, figure, &groups);
    if series.is_empty() {
        return Ok(None);
    }
    let size_px = (SIZE_PX.0 as u32, SIZE_PX.1 as u32);
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size_px).into_drawing_area();
    draw(&area, figure, &groups, &series).map_err(|error| {
        let name = view.experiment.name;
        Error::refused(
            format!("the figure of {name} cannot be drawn: {error}"),
            "please report this",
        )
    })?;
    drop(area);
    Ok(Some(svg))
}

/// The groups of bars: each case and load, or of too many each case's highest load.
fn groups(view: &View<'_>, figure: &Figure) -> Vec<(String, Load)> {
    let there = |case: &str, load: Load| {
        view.arms().iter().any(|arm| view.get(arm, case, load, figure.y).is_some())
    };
    let of = |case: crate::experiment::Case| -> Vec<(String, Load)> {
        let loads = view.loads(&case.name).into_iter().filter(|load| there(&case.name, *load));
        loads.map(|load| (case.name.clone(), load)).collect()
    };
    let all: Vec<Vec<_>> = view.cases().into_iter().map(of).collect();
    let many = all.iter().map(Vec::len).sum::<usize>() > GROUPS_MAX;
    all.into_iter()
        .flat_map(|case| case.into_iter().rev().take(if many { 1 } else { usize::MAX }).rev())
        .collect()
}

fn series(view: &View<'_>, figure: &Figure, groups: &[(String, Load)]) -> Vec<Series> {
    let place = |point: &Point| {
        if figure.bars {
            let group = groups.iter().position(|(c, l)| *c == point.case && *l == point.load)?;
            return Some(group as f64);
        }
        let sent = point.get(&m::offered_pps).unwrap_or(point.load.pps());
        (point.case == figure.case && sent.is_finite()).then_some(sent)
    };
    let dot = |point: &Point| {
        let (x, y) = (place(point)?, point.spread(figure.y)?);
        Some(Dot { x, y, marked: point.marked })
    };
    let arms = view.arms();
    let mut others = 0;
    let mut all = vec![];
    for arm in arms {
        let main = arm == view.experiment.main;
        others += usize::from(!main);
        let points = view.points.iter().filter(|point| point.arm == arm);
        let mut dots: Vec<Dot> = points.filter_map(dot).collect();
        dots.sort_by(|a, b| a.x.total_cmp(&b.x));
        if !dots.is_empty() {
            all.push(Series { name: clean(arm), look: if main { 0 } else { others }, dots });
        }
    }
    all
}

/// An axis: which value is at which pixel.
struct Axis {
    is_log: bool,
    low: f64,
    high: f64,
    from_px: i32,
    to_px: i32,
}

impl Axis {
    fn new(values: &[f64], linear_max: f64, (from_px, to_px): (i32, i32)) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max);
        let above_0 = values.iter().copied().filter(|value| *value > 0.0);
        let least = above_0.fold(f64::INFINITY, f64::min);
        if most > least * linear_max {
            // What is 0 stands at the left end, below the lowest of the others.
            let below = if values.iter().any(|value| *value <= 0.0) { 2.0 } else { 1.15 };
            return Self { is_log: true, low: least / below, high: most * 1.15, from_px, to_px };
        }
        let high = if most > 0.0 { most * 1.06 } else { 1.0 };
        Self { is_log: false, low: 0.0, high, from_px, to_px }
    }

    fn at(&self, value: f64) -> i32 {
        let value = value.max(self.low);
        let share = match self.is_log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high,
        };
        self.from_px + (share * f64::from(self.to_px - self.from_px)).round() as i32
    }

    /// Round figures: on a logarithmic axis 1, 2, 5, 10, else at most seven equal steps.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let digits: &[f64] =
                if decades.clone().count() > 5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|d| digits.iter().map(move |digit| digit * 10f64.powi(d)));
            return all.filter(|value| (self.low..=self.high).contains(value)).collect();
        }
        let raw = self.high / 7.0;
        let decade = 10f64.powf(raw.log10().floor());
        let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|digit| digit * decade);
        let step = round.into_iter().find(|step| *step >= raw).unwrap_or(raw);
        (0..=7).map(|n| f64::from(n) * step).filter(|value| *value <= self.high).collect()
    }
}

fn draw(area: &Area<'_>, figure: &Figure, groups: &[(String, Load)], series: &[Series]) -> Drawn {
    area.fill(&WHITE)?;
    area.draw(&Text::new(figure.title, (LEFT_PX, 12), text(19, INK, HPos::Left, VPos::Top)))?;
    let what =
        format!("{} ({}); bars: range", figure.y.help.trim_end_matches('.'), figure.y.unit.name());
    area.draw(&Text::new(what, (LEFT_PX, 38), text(13, FAINT, HPos::Left, VPos::Top)))?;
    let top_px = legend(area, series)? + LEGEND_ROW_PX;
    let dots = || series.iter().flat_map(|series| &series.dots);
    let is_time = matches!(figure.y.unit, Unit::Micros | Unit::Millis | Unit::Nanos);
    let linear_max = if is_time && !figure.bars { TIMES_LINEAR_MAX } else { f64::INFINITY };
    let figures: Vec<f64> = dots().flat_map(|dot| [dot.y.min, dot.y.median, dot.y.max]).collect();
    let y = Axis::new(&figures, linear_max, (BOTTOM_PX, top_px));
    for value in y.ticks() {
        let (at, style) = (y.at(value), text(13, INK, HPos::Right, VPos::Center));
        area.draw(&PathElement::new(vec![(LEFT_PX, at), (RIGHT_PX, at)], GRID))?;
        area.draw(&Text::new(tick(figure.y.unit, value), (LEFT_PX - 8, at), style))?;
    }
    if figure.bars {
        bars(area, groups, series, &y)?;
    } else {
        let sent: Vec<f64> = dots().map(|dot| dot.x).collect();
        lines(area, series, &Axis::new(&sent, LOADS_LINEAR_MAX, (LEFT_PX, RIGHT_PX)), &y)?;
    }
    if dots().any(|dot| dot.marked) && !figure.bars {
        let note = "hollow: the tested CPU was faster or slower than usual";
        let style = text(12, FAINT, HPos::Right, VPos::Bottom);
        area.draw(&Text::new(note, (RIGHT_PX, SIZE_PX.1 - 6), style))?;
    }
    area.present()?;
    Ok(())
}

/// Marker and name for each arm, in rows. Returns where it ends.
fn legend(
    area: &Area<'_>,
    series: &[Series],
) -> std::result::Result<i32, Box<dyn std::error::Error>> {
    let (mut x, mut y) = (LEFT_PX, LEGEND_PX);
    for Series { name, look, .. } in series {
        let width = 40 + name.chars().count() as i32 * 8;
        if x > LEFT_PX && x + width > RIGHT_PX {
            (x, y) = (LEFT_PX, y + LEGEND_ROW_PX);
        }
        area.draw(&PathElement::new(vec![(x, y), (x + 24, y)], stroke(*look)))?;
        marker(area, *look, (x + 12, y), false)?;
        area.draw(&Text::new(name.as_str(), (x + 30, y), text(13, INK, HPos::Left, VPos::Center)))?;
        x += width;
    }
    Ok(y)
}

fn lines(area: &Area<'_>, series: &[Series], x: &Axis, y: &Axis) -> Drawn {
    let zero = series.iter().flat_map(|series| &series.dots).any(|dot| dot.x <= 0.0);
    for value in x.ticks().into_iter().chain((x.is_log && zero).then_some(0.0)) {
        let (at, style) = (x.at(value), text(13, INK, HPos::Center, VPos::Top));
        area.draw(&PathElement::new(vec![(at, BOTTOM_PX), (at, BOTTOM_PX + 5)], FAINT))?;
        area.draw(&Text::new(tick(Unit::Pps, value), (at, BOTTOM_PX + 9), style))?;
    }
    let name = if x.is_log { "sent, packets/s (logarithmic)" } else { "sent, packets/s" };
    let middle = ((LEFT_PX + RIGHT_PX) / 2, BOTTOM_PX + 30);
    area.draw(&Text::new(name, middle, text(14, INK, HPos::Center, VPos::Top)))?;
    for Series { look, dots, .. } in series {
        let places: Vec<(i32, i32)> =
            dots.iter().map(|dot| (x.at(dot.x), y.at(dot.y.median))).collect();
        area.draw(&PathElement::new(places.clone(), stroke(*look)))?;
        for (dot, place) in dots.iter().zip(places) {
            whisker(area, place.0, dot.y, y, color(*look))?;
            marker(area, *look, place, dot.marked)?;
        }
    }
    Ok(())
}

fn bars(area: &Area<'_>, groups: &[(String, Load)], series: &[Series], y: &Axis) -> Drawn {
    let group_px = f64::from(RIGHT_PX - LEFT_PX) / groups.len().max(1) as f64;
    let bar_px = group_px * 0.8 / series.len() as f64;
    let left_px =
        |group: f64, bar: f64| LEFT_PX + ((group + 0.1) * group_px + bar * bar_px).round() as i32;
    for (at, Series { look, dots, .. }) in series.iter().enumerate() {
        for dot in dots {
            let (from, to) = (left_px(dot.x, at as f64), left_px(dot.x, at as f64 + 1.0) - 1);
            let corners = [(from, y.at(dot.y.median)), (to, BOTTOM_PX)];
            area.draw(&Rectangle::new(corners, color(*look).filled()))?;
            whisker(area, (from + to) / 2, dot.y, y, INK)?;
        }
    }
    let loads_differ = groups.iter().any(|(_, load)| *load != Load::Off);
    for (at, (case, load)) in groups.iter().enumerate() {
        let x = LEFT_PX + ((at as f64 + 0.5) * group_px) as i32;
        let style = || text(12, INK, HPos::Center, VPos::Top);
        area.draw(&Text::new(clean(case), (x, BOTTOM_PX + 9), style()))?;
        if loads_differ {
            area.draw(&Text::new(load.to_string(), (x, BOTTOM_PX + 26), style()))?;
        }
    }
    Ok(())
}

/// From the lowest to the highest of the repeats.
fn whisker(area: &Area<'_>, x: i32, of: Spread, y: &Axis, color: RGBColor) -> Drawn {
    let (low, high) = (y.at(of.min), y.at(of.max));
    for path in
        [[(x, low), (x, high)], [(x - 4, low), (x + 4, low)], [(x - 4, high), (x + 4, high)]]
    {
        area.draw(&PathElement::new(path.to_vec(), color))?;
    }
    Ok(())
}

fn marker(area: &Area<'_>, look: usize, (x, y): (i32, i32), hollow: bool) -> Drawn {
    let corners = MARKERS[look % MARKERS.len()].iter().map(|(dx, dy)| (x + dx, y + dy));
    let mut outline: Vec<(i32, i32)> = corners.collect();
    let fill = if hollow { WHITE } else { color(look) };
    area.draw(&Polygon::new(outline.clone(), fill.filled()))?;
    outline.push(outline[0]);
    area.draw(&PathElement::new(outline, color(look).stroke_width(2)))?;
    Ok(())
}

fn color(look: usize) -> RGBColor {
    COLORS[look % COLORS.len()]
}

/// The main arm's line is wider.
fn stroke(look: usize) -> ShapeStyle {
    color(look).stroke_width(if look == 0 { 3 } else { 2 })
}

fn text(size_px: u32, color: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    let mut style = TextStyle::from(("sans-serif", size_px)).pos(Pos::new(h, v));
    style.color = color.to_backend_color();
    style
}
