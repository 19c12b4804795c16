//! A figure by offered rate, one line per mode, as an SVG drawing.

use std::ops::RangeInclusive;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ReportError;
use super::axis::Axis;
use super::marker::{self, Look};
use super::units::clean;
use crate::results::Machine;

/// Size of the drawing.
const SIZE_PX: (u32, u32) = (900, 520);
/// Above the axes: title, machine and legend.
const HEADING_PX: i32 = 92;
/// Left of the axes: margin, axis title and labels.
const LEFT_PX: i32 = 84;
const MARGIN_PX: i32 = 20;
/// Offered rates are drawn in thousands.
const UNIT_PPS: f64 = 1e3;
/// No sweep goes beyond; keeps the arithmetic of a foreign file finite.
const DRAWN: RangeInclusive<f64> = 1.0..=1e12;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0x6b, 0x6b, 0x6b);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
const DIAGONAL: RGBColor = RGBColor(0xa0, 0xa0, 0xa0);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Axes<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// What is drawn.
pub(super) struct Drawing<'a> {
    /// The experiment's id.
    pub experiment: &'a str,
    /// What is drawn by what, after the id.
    pub title: &'static str,
    /// What it ran on.
    pub machine: &'a Machine,
    /// What the axis to the right is of, such as `offered`.
    pub across: &'static str,
    /// What the axis upwards is of, with its unit.
    pub upwards: &'static str,
    /// Whether that may be logarithmic, where its figures are far apart.
    pub logarithmic: bool,
    /// A figure of the axis upwards is so many of the unit that is drawn.
    pub unit: f64,
    /// A line where every packet offered is delivered.
    pub all_delivered: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One mode's line.
pub(super) struct Line {
    /// Its name.
    pub name: &'static str,
    /// Its look.
    pub look: Look,
    /// Its points.
    pub dots: Vec<Dot>,
}

/// A point with its range.
#[derive(Clone, Copy)]
pub(super) struct Dot {
    /// Offered, packets/s.
    pub pps: f64,
    /// The figure: median, lowest, highest.
    pub figure: [f64; 3],
    /// Drawn hollow.
    pub marked: bool,
}

/// Drawings one below the other, as one.
pub(super) fn stacked(svgs: &[String]) -> String {
    let (width, height) = (SIZE_PX.0, SIZE_PX.1 * svgs.len() as u32);
    let mut all = format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n"
    );
    for (position, svg) in svgs.iter().enumerate() {
        let top = SIZE_PX.1 * position as u32;
        all.push_str(&svg.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1));
    }
    all.push_str("</svg>\n");
    all
}

impl Drawing<'_> {
    /// The drawing, 900 by 520 pixels, with min-max bars and hollow markers for marked points.
    /// Without points it says so.
    pub fn svg(mut self) -> Result<String, ReportError> {
        self.keep_what_can_be_drawn();
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, SIZE_PX).into_drawing_area()).map_err(
            |cause| ReportError::Plot {
                experiment: clean(self.experiment),
                problem: cause.to_string(),
            },
        )?;
        Ok(svg)
    }

    /// Points whose figures are sane, lowest offered first, in the units of the axes.
    fn keep_what_can_be_drawn(&mut self) {
        for line in &mut self.lines {
            line.dots.retain(|dot| {
                DRAWN.contains(&dot.pps)
                    && dot.figure.iter().all(|figure| (0.0..=*DRAWN.end()).contains(figure))
            });
            line.dots.sort_by(|a, b| a.pps.total_cmp(&b.pps));
            for dot in &mut line.dots {
                dot.pps /= UNIT_PPS;
                dot.figure = dot.figure.map(|figure| figure / self.unit);
            }
        }
        self.lines.retain(|line| !line.dots.is_empty());
    }

    fn dots(&self) -> impl Iterator<Item = &Dot> {
        self.lines.iter().flat_map(|line| &line.dots)
    }

    fn draw(&self, root: &Area<'_>) -> Drawn {
        root.fill(&WHITE)?;
        self.heading(root)?;
        let (low, high) = self.dots().fold((f64::INFINITY, 0.0), |(low, high), dot| {
            (f64::min(low, dot.pps), f64::max(high, dot.pps))
        });
        if self.lines.is_empty() {
            let middle = (SIZE_PX.0 as i32 / 2, SIZE_PX.1 as i32 / 2);
            let style = text(16, FAINT).pos(Pos::new(HPos::Center, VPos::Center));
            root.draw(&Text::new("No rates were swept.", middle, style))?;
        } else {
            self.legend(root)?;
            self.chart(root, &Axis::offered(low, high))?;
        }
        root.present()?;
        Ok(())
    }

    fn chart(&self, root: &Area<'_>, x: &Axis) -> Drawn {
        let figures = || self.dots().flat_map(|dot| dot.figure);
        let (least, most) =
            (figures().fold(f64::INFINITY, f64::min), figures().fold(0.0, f64::max));
        let y = if self.logarithmic && least > 0.0 {
            Axis::offered(least, most)
        } else {
            Axis::delivered(most)
        };
        let scale = if x.logarithmic { ", logarithmic" } else { "" };
        let mut axes: Axes<'_, '_> = ChartBuilder::on(root)
            .margin_top(HEADING_PX)
            .margin_left(MARGIN_PX)
            .margin_right(MARGIN_PX)
            .margin_bottom(10)
            .x_label_area_size(48)
            .y_label_area_size(LEFT_PX - MARGIN_PX)
            .build_cartesian_2d(x.clone(), y.clone())?;
        axes.configure_mesh()
            .x_desc(format!("{} (k packets/s{scale})", self.across))
            .y_desc(self.upwards)
            .axis_desc_style(text(14, INK))
            .label_style(text(13, INK))
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(FAINT)
            .draw()?;
        if self.all_delivered {
            diagonal(&mut axes, x, y.high)?;
        }
        for line in &self.lines {
            line.draw(root, &mut axes)?;
        }
        Ok(())
    }

    /// Title and machine.
    fn heading(&self, root: &Area<'_>) -> Drawn {
        let machine = self.machine;
        let title = format!("{}: {}", self.experiment, self.title);
        let where_ = format!(
            "Linux {}, {}, {} CPUs; median of the trials, bars from least to most",
            machine.kernel, machine.cpu_model, machine.cpus
        );
        root.draw(&Text::new(clean(&title), (LEFT_PX, 14), text(19, INK)))?;
        root.draw(&Text::new(shortened(&clean(&where_), 120), (LEFT_PX, 40), text(13, FAINT)))?;
        Ok(())
    }

    /// A row of line, marker and name per mode, and what a hollow marker means where there is one.
    fn legend(&self, root: &Area<'_>) -> Drawn {
        const Y: i32 = 72;
        let beside = text(13, INK).pos(Pos::new(HPos::Left, VPos::Center));
        let mut left = LEFT_PX;
        for Line { name, look, .. } in &self.lines {
            root.draw(&PathElement::new(vec![(left, Y), (left + 30, Y)], look.line()))?;
            marker::draw(root, look, (left + 15, Y), false)?;
            root.draw(&Text::new(*name, (left + 37, Y), beside.clone()))?;
            left += 37 + name.len() as i32 * 8 + 22;
        }
        if self.dots().any(|dot| dot.marked) {
            let note = "hollow: CPU speed off by more than 5 %";
            let (right, bottom) = (SIZE_PX.0 as i32 - MARGIN_PX, SIZE_PX.1 as i32 - 12);
            let style = text(12, FAINT).pos(Pos::new(HPos::Right, VPos::Bottom));
            root.draw(&Text::new(note, (right, bottom), style))?;
        }
        Ok(())
    }
}

impl Line {
    /// The line, a min-max bar on each point, and a marker.
    fn draw(&self, root: &Area<'_>, axes: &mut Axes<'_, '_>) -> Drawn {
        let look = &self.look;
        let median = self.dots.iter().map(|dot| (dot.pps, dot.figure[0]));
        axes.draw_series(LineSeries::new(median, look.line()))?;
        for Dot { pps, figure: [_, least, most], .. } in &self.dots {
            let ends = [(*pps, *least), (*pps, *most)];
            axes.draw_series([PathElement::new(ends.to_vec(), look.color)])?;
            axes.draw_series(ends.map(|end| {
                EmptyElement::at(end) + PathElement::new(vec![(-4, 0), (4, 0)], look.color)
            }))?;
        }
        for dot in &self.dots {
            let place = axes.backend_coord(&(dot.pps, dot.figure[0]));
            marker::draw(root, look, place, dot.marked)?;
        }
        Ok(())
    }
}

/// "All delivered": where a packet offered is a packet delivered. It leaves the drawing at the top.
fn diagonal(axes: &mut Axes<'_, '_>, x: &Axis, top: f64) -> Drawn {
    let end = x.high.min(top);
    if end <= x.low {
        return Ok(());
    }
    // A curve on a logarithmic axis. Places are whole pixels: more points would make it jagged.
    let along = (0..=32).map(|n| x.value_at(f64::from(n) / 32.0)).filter(|rate| *rate < end);
    let curve = along.chain([end]).map(|rate| (rate, rate));
    axes.draw_series(LineSeries::new(curve, DIAGONAL))?;
    let style = text(12, FAINT).pos(Pos::new(HPos::Right, VPos::Top));
    let label = EmptyElement::at((end, end)) + Text::new("all delivered", (-10, 4), style);
    axes.draw_series(std::iter::once(label))?;
    Ok(())
}

fn text(size_px: u32, color: RGBColor) -> TextStyle<'static> {
    let mut style = TextStyle::from(("sans-serif", size_px));
    style.color = color.to_backend_color();
    style
}

/// At most `most` characters, so that a long name does not run out of the drawing.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(std::iter::once('…')).collect()
}
