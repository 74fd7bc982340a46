//! Axes: grid lines, ticks with units, and a label that names the quantity.

use super::scale::PixelScale;
use super::svg::{Anchor, Canvas};
use super::text::{SIZE, extra_height, visible_labels, width, wrap};
use crate::number;

/// The rectangle in which values are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plot {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Plot {
    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }
}

pub(crate) type TickFormat<'a> = &'a dyn Fn(f64) -> String;

/// Draws a horizontal axis below the plot, with vertical grid lines through it. Returns the y of the
/// drawing's lower end.
pub(crate) fn draw_bottom(
    canvas: &mut Canvas,
    plot: Plot,
    scale: &PixelScale,
    format_value: TickFormat<'_>,
    label: &str,
) -> f64 {
    let ticks = scale.ticks(((plot.width() / 64.0) as usize).clamp(2, 9));
    let texts: Vec<String> = ticks.iter().map(|tick| format_value(*tick)).collect();
    let boxes: Vec<(f64, f64)> =
        ticks.iter().zip(&texts).map(|(tick, text)| (scale.place(*tick), width(text, SIZE))).collect();
    let grid: Vec<_> =
        ticks.iter().map(|tick| scale.place(*tick)).map(|x| ((x, plot.top), (x, plot.bottom))).collect();
    canvas.strokes("grid", &grid);
    canvas.begin_texts("tick", Anchor::Average);
    for ((tick, text), kept) in ticks.iter().zip(&texts).zip(visible_labels(&boxes, 8.0)) {
        let x = scale.place(*tick);
        if kept {
            // the outermost labels stay within the canvas
            let half = width(text, SIZE) / 2.0;
            let x =
                x.clamp(half.min(canvas.width() / 2.0), (canvas.width() - half).max(canvas.width() / 2.0));
            canvas.text_of_group((x, plot.bottom + 17.0), text);
        }
    }
    canvas.end();
    if let Some(gap) = scale.gap() {
        canvas.rect("break", (gap - 3.0, plot.bottom - 4.0), (6.0, 8.0));
        let slanted = |from: f64| ((from, plot.bottom + 4.0), (from + 4.0, plot.bottom - 4.0));
        canvas.strokes("axis", &[slanted(gap - 5.0), slanted(gap + 1.0)]);
    }
    if label.is_empty() {
        return plot.bottom + 24.0;
    }
    let label = wrap(label, plot.width() + plot.left.min(60.0), SIZE);
    canvas.lines("label", (plot.right, plot.bottom + 35.0), Anchor::End, &label);
    plot.bottom + 42.0 + extra_height(&label)
}

/// Draws horizontal grid lines with their values at the left of the plot.
pub(crate) fn draw_left(canvas: &mut Canvas, plot: Plot, scale: &PixelScale, format_value: TickFormat<'_>) {
    let ticks = scale.ticks(((plot.height() / 38.0) as usize).clamp(2, 8));
    let places: Vec<f64> = ticks.iter().map(|tick| scale.place(*tick)).collect();
    let grid: Vec<_> = places.iter().map(|y| ((plot.left, *y), (plot.right, *y))).collect();
    canvas.strokes("grid", &grid);
    canvas.begin_texts("tick", Anchor::End);
    for (tick, y) in ticks.iter().zip(places) {
        canvas.text_of_group((plot.left - 6.0, y + 4.0), &format_value(*tick));
    }
    canvas.end();
}

/// Returns the width of the texts that [`draw_left`] draws.
pub(crate) fn room(scale: &PixelScale, height: f64, format_value: TickFormat<'_>) -> f64 {
    let ticks = scale.ticks(((height / 38.0) as usize).clamp(2, 8));
    ticks.iter().map(|tick| width(&format_value(*tick), SIZE)).fold(0.0, f64::max) + 8.0
}

pub(crate) fn in_unit(unit: &str) -> impl Fn(f64) -> String + use<> {
    let unit = unit.to_owned();
    move |value| if value == 0.0 { "0".to_owned() } else { number::quantity(value, &unit) }
}
