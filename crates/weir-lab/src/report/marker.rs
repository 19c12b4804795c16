//! How each mode looks in a plot: a colour, a marker and a width of its own, so that neither
//! colour alone nor shape alone has to tell two lines apart.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::results::Mode;
use crate::results::user_share::ShareMode;

/// A mode's look.
pub(super) struct Look {
    pub color: RGBColor,
    width_px: u32,
    shape: Shape,
}

impl Look {
    /// The style of its line.
    pub(super) fn line(&self) -> ShapeStyle {
        self.color.stroke_width(self.width_px)
    }
}

enum Shape {
    Circle,
    /// Corners relative to the point, in pixels.
    Corners(&'static [(i32, i32)]),
}

const SQUARE: Shape = Shape::Corners(&[(-4, -4), (4, -4), (4, 4), (-4, 4)]);
const TRIANGLE: Shape = Shape::Corners(&[(0, -6), (5, 4), (-5, 4)]);
const UPSIDE_DOWN: Shape = Shape::Corners(&[(0, 6), (5, -4), (-5, -4)]);
const DIAMOND: Shape = Shape::Corners(&[(0, -6), (6, 0), (0, 6), (-6, 0)]);
const PLUS: Shape = Shape::Corners(&[
    (-2, -5),
    (2, -5),
    (2, -2),
    (5, -2),
    (5, 2),
    (2, 2),
    (2, 5),
    (-2, 5),
    (-2, 2),
    (-5, 2),
    (-5, -2),
    (-2, -2),
]);

const HOURGLASS: Shape = Shape::Corners(&[(-5, -5), (5, -5), (-5, 5), (5, 5)]);
const BOW: Shape = Shape::Corners(&[(-5, -5), (-5, 5), (5, -5), (5, 5)]);
const FLAT: Shape = Shape::Corners(&[(-6, -2), (6, -2), (6, 2), (-6, 2)]);

/// Colours by Okabe and Ito, which the colour-blind can tell apart.
pub(super) fn look(mode: Mode) -> Look {
    let (color, width_px, shape) = match mode {
        Mode::Stock => (RGBColor(0xd5, 0x5e, 0x00), 2, Shape::Circle),
        Mode::Threaded => (RGBColor(0xe6, 0x9f, 0x00), 2, SQUARE),
        Mode::Niced => (RGBColor(0x00, 0x9e, 0x73), 2, TRIANGLE),
        Mode::Gate => (RGBColor(0x56, 0xb4, 0xe9), 2, UPSIDE_DOWN),
        Mode::IdleWeir => (RGBColor(0xcc, 0x79, 0xa7), 2, PLUS),
        Mode::Weir => (RGBColor(0x00, 0x72, 0xb2), 3, DIAMOND),
        Mode::Softirq => (RGBColor(0x40, 0x40, 0x40), 2, HOURGLASS),
    };
    Look { color, width_px, shape }
}

/// The settings of weir share its colour's family, those of its fallback are grey; all differ in shape.
pub(super) fn look_of_share(key: ShareMode) -> Look {
    match key {
        ShareMode::Threaded => look(Mode::Threaded),
        ShareMode::Niced => look(Mode::Niced),
        ShareMode::Weir25 => {
            Look { color: RGBColor(0x56, 0xb4, 0xe9), width_px: 2, shape: UPSIDE_DOWN }
        }
        ShareMode::Weir50 => look(Mode::Weir),
        ShareMode::Weir75 => Look { color: RGBColor(0xcc, 0x79, 0xa7), width_px: 2, shape: PLUS },
        ShareMode::Softirq25 => Look { color: RGBColor(0xa0, 0xa0, 0xa0), width_px: 2, shape: BOW },
        ShareMode::Softirq50 => look(Mode::Softirq),
        ShareMode::Softirq75 => {
            Look { color: RGBColor(0x70, 0x70, 0x70), width_px: 2, shape: FLAT }
        }
    }
}

/// Draws a mode's marker at a place of the whole drawing, in pixels.
pub(super) fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    look: &Look,
    (x, y): (i32, i32),
    hollow: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let fill = if hollow { WHITE } else { look.color };
    match look.shape {
        Shape::Circle => {
            area.draw(&Circle::new((x, y), 4, fill.filled()))?;
            area.draw(&Circle::new((x, y), 4, look.color.stroke_width(2)))?;
        }
        Shape::Corners(corners) => {
            let mut outline: Vec<(i32, i32)> =
                corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
            area.draw(&Polygon::new(outline.clone(), fill.filled()))?;
            outline.extend(outline.first().copied());
            outline.extend(outline.get(1).copied());
            area.draw(&PathElement::new(outline, look.color.stroke_width(2)))?;
        }
    }
    Ok(())
}
