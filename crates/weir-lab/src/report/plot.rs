//! Delivered against offered rate, one line per mode: the shape of LRP's figure 3.

use super::ReportError;
use super::drawing::{Dot, Drawing, Line};
use super::marker;
use crate::results::{Experiment, Point};

/// The sweep as an SVG drawing of 900 by 520 pixels, with min-max bars and hollow markers for
/// marked points. An experiment without a sweep gives a drawing that says so.
///
/// # Errors
///
/// [`ReportError::Plot`] if the drawing library refuses.
pub fn plot_svg(experiment: &Experiment) -> Result<String, ReportError> {
    let dot = |point: &Point| Dot {
        pps: point.offered_pps,
        figure: [point.delivered_pps, point.delivered.min, point.delivered.max],
        marked: point.marked,
    };
    let lines = experiment.series.iter().map(|(mode, points)| Line {
        name: mode.name(),
        look: marker::look(*mode),
        dots: points.iter().map(dot).collect(),
    });
    let drawing = Drawing {
        experiment: &experiment.experiment,
        title: "delivered by offered rate",
        machine: &experiment.machine,
        across: "offered",
        upwards: "delivered to the application (k packets/s)",
        unit: 1e3,
        logarithmic: false,
        all_delivered: true,
        lines: lines.collect(),
    };
    drawing.svg()
}
