//! Delivered against offered rate, one line per mode: the shape of LRP's figure 3.

use std::ops::RangeInclusive;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ReportError;
use super::axis::Axis;
use super::marker::{self, Look};
use super::units::clean;
use crate::results::{Experiment, Mode, Point};

/// Size of the drawing.
const SIZE_PX: (u32, u32) = (900, 520);
/// Above the axes: title, machine and legend.
const HEADING_PX: i32 = 92;
/// Left of the axes: margin, axis title and labels.
const LEFT_PX: i32 = 84;
const MARGIN_PX: i32 = 20;
/// Rates are drawn in thousands.
const UNIT_PPS: f64 = 1e3;
/// No sweep goes beyond; keeps the arithmetic of a foreign file finite.
const PPS_DRAWN: RangeInclusive<f64> = 1.0..=1e12;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const FAINT: RGBColor = RGBColor(0x6b, 0x6b, 0x6b);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
const DIAGONAL: RGBColor = RGBColor(0xa0, 0xa0, 0xa0);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Axes<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// The sweep as an SVG drawing of 900 by 520 pixels, with min-max bars and hollow markers for
/// marked points. An experiment without a sweep gives a drawing that says so.
///
/// # Errors
///
/// [`ReportError::Plot`] if the drawing library refuses.
pub fn plot_svg(experiment: &Experiment) -> Result<String, ReportError> {
    let mut svg = String::new();
    draw(&SVGBackend::with_string(&mut svg, SIZE_PX).into_drawing_area(), experiment).map_err(
        |cause| ReportError::Plot {
            experiment: clean(&experiment.experiment),
            problem: cause.to_string(),
        },
    )?;
    Ok(svg)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(root: &Area<'_>, experiment: &Experiment) -> Drawn {
    root.fill(&WHITE)?;
    let series = series(experiment);
    heading(root, experiment)?;
    match offered(&series) {
        None => {
            let middle = (SIZE_PX.0 as i32 / 2, SIZE_PX.1 as i32 / 2);
            let style = text(16, FAINT).pos(Pos::new(HPos::Center, VPos::Center));
            root.draw(&Text::new("No rates were swept.", middle, style))?;
        }
        Some(x) => {
            legend(root, &series)?;
            chart(root, &series, &x)?;
        }
    }
    root.present()?;
    Ok(())
}

/// What can be drawn: points whose figures are rates, lowest offered first.
fn series(experiment: &Experiment) -> Vec<(Mode, Vec<&Point>)> {
    let drawable = |point: &&Point| {
        let rates = [point.delivered_pps, point.delivered.min, point.delivered.max];
        PPS_DRAWN.contains(&point.offered_pps)
            && rates.iter().all(|pps| (0.0..=*PPS_DRAWN.end()).contains(pps))
    };
    experiment
        .series
        .iter()
        .map(|(mode, points)| {
            let mut kept: Vec<&Point> = points.iter().filter(drawable).collect();
            kept.sort_by(|a, b| a.offered_pps.total_cmp(&b.offered_pps));
            (*mode, kept)
        })
        .filter(|(_, points)| !points.is_empty())
        .collect()
}

/// The axis over every point; none without points.
fn offered(series: &[(Mode, Vec<&Point>)]) -> Option<Axis> {
    let offered = || series.iter().flat_map(|(_, points)| points).map(|point| point.offered_pps);
    let (low, high) = (offered().reduce(f64::min)?, offered().reduce(f64::max)?);
    Some(Axis::offered(low / UNIT_PPS, high / UNIT_PPS))
}

fn chart(root: &Area<'_>, series: &[(Mode, Vec<&Point>)], x: &Axis) -> Drawn {
    let most = series.iter().flat_map(|(_, points)| points);
    let most = most.map(|p| p.delivered_pps.max(p.delivered.max)).fold(0.0, f64::max) / UNIT_PPS;
    let y = Axis::delivered(most);
    let offered =
        if x.logarithmic { "offered (k packets/s, logarithmic)" } else { "offered (k packets/s)" };
    let mut axes: Axes<'_, '_> = ChartBuilder::on(root)
        .margin_top(HEADING_PX)
        .margin_left(MARGIN_PX)
        .margin_right(MARGIN_PX)
        .margin_bottom(10)
        .x_label_area_size(48)
        .y_label_area_size(LEFT_PX - MARGIN_PX)
        .build_cartesian_2d(x.clone(), y.clone())?;
    axes.configure_mesh()
        .x_desc(offered)
        .y_desc("delivered to the application (k packets/s)")
        .axis_desc_style(text(14, INK))
        .label_style(text(13, INK))
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(FAINT)
        .draw()?;
    diagonal(&mut axes, x, y.high)?;
    for (mode, points) in series {
        lines(root, &mut axes, *mode, points)?;
    }
    Ok(())
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

/// One mode: its line, a min-max bar on each point, and a marker.
fn lines(root: &Area<'_>, axes: &mut Axes<'_, '_>, mode: Mode, points: &[&Point]) -> Drawn {
    let look = marker::look(mode);
    let at = |point: &Point, pps: f64| (point.offered_pps / UNIT_PPS, pps / UNIT_PPS);
    let median = points.iter().map(|point| at(point, point.delivered_pps));
    axes.draw_series(LineSeries::new(median, look.line()))?;
    for point in points {
        let ends = [point.delivered.min, point.delivered.max].map(|pps| at(point, pps));
        axes.draw_series([PathElement::new(ends.to_vec(), look.color)])?;
        axes.draw_series(ends.map(|end| {
            EmptyElement::at(end) + PathElement::new(vec![(-4, 0), (4, 0)], look.color)
        }))?;
    }
    for point in points {
        let place = axes.backend_coord(&at(point, point.delivered_pps));
        marker::draw(root, &look, place, point.marked)?;
    }
    Ok(())
}

/// Title and machine.
fn heading(root: &Area<'_>, experiment: &Experiment) -> Drawn {
    let machine = &experiment.machine;
    let title = format!("{}: delivered by offered rate", experiment.experiment);
    let where_ = format!(
        "Linux {}, {}, {} CPUs; median of the trials, bars from least to most",
        machine.kernel, machine.cpu_model, machine.cpus
    );
    root.draw(&Text::new(clean(&title), (LEFT_PX, 14), text(19, INK)))?;
    root.draw(&Text::new(shortened(&clean(&where_), 120), (LEFT_PX, 40), text(13, FAINT)))?;
    Ok(())
}

/// A row of line, marker and name per mode, and what a hollow marker means where there is one.
fn legend(root: &Area<'_>, series: &[(Mode, Vec<&Point>)]) -> Drawn {
    const Y: i32 = 72;
    let beside = text(13, INK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut left = LEFT_PX;
    for (mode, _) in series {
        let look: Look = marker::look(*mode);
        root.draw(&PathElement::new(vec![(left, Y), (left + 30, Y)], look.line()))?;
        marker::draw(root, &look, (left + 15, Y), false)?;
        root.draw(&Text::new(mode.name(), (left + 37, Y), beside.clone()))?;
        left += 37 + mode.name().len() as i32 * 8 + 22;
    }
    if series.iter().any(|(_, points)| points.iter().any(|point| point.marked)) {
        let note = "hollow: CPU speed off by more than 5 %";
        let (right, bottom) = (SIZE_PX.0 as i32 - MARGIN_PX, SIZE_PX.1 as i32 - 12);
        let style = text(12, FAINT).pos(Pos::new(HPos::Right, VPos::Bottom));
        root.draw(&Text::new(note, (right, bottom), style))?;
    }
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
