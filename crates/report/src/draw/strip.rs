//! A row for each variant: a dot for each run, a bar at the median, the median's value at the right.
//!
//! Nothing is summarized: two modes are two clusters, and an outlier is a dot far from the others.

use super::axis::{self, Plot};
use super::look::VariantLook;
use super::scale::PixelScale;
use super::svg::{Anchor, Canvas, ViewPort};
use super::text::{SIZE, bold, fit, width, wrap};
use unisono_measure::{quantile, record};

#[derive(Clone, Debug)]
pub(crate) struct StripRow {
    pub(crate) name: String,
    pub(crate) look: VariantLook,
    /// One value for each run.
    pub(crate) runs: Vec<f64>,
    /// The text if there are no runs: skipped or failed, and why.
    pub(crate) note: Option<String>,
}

pub(crate) struct Strip<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) rows: &'a [StripRow],
    pub(crate) label: &'a str,
    pub(crate) scale: record::Scale,
    pub(crate) says: &'a dyn Fn(f64) -> String,
    /// A vertical line with its label.
    pub(crate) reference: Option<(f64, &'a str)>,
}

pub(crate) fn draw(chart: &Strip<'_>, window: ViewPort) -> String {
    let mut canvas = Canvas::new(window);
    let phone = window == ViewPort::Phone;
    let medians: Vec<Option<String>> =
        chart.rows.iter().map(|row| quantile::median(&row.runs).map(chart.says)).collect();
    let values = medians.iter().flatten().map(|text| bold(text, SIZE)).fold(30.0, f64::max);
    let names = chart.rows.iter().map(|row| width(&row.name, SIZE)).fold(30.0, f64::max);
    let top = 6.0 + if chart.reference.is_some() { 18.0 } else { 0.0 };
    let row_height = if phone { 40.0 } else { 30.0 };
    let mut plot = Plot {
        left: if phone { 6.0 } else { names.min(200.0) + 14.0 },
        right: canvas.width() - values - 14.0,
        top,
        bottom: top + row_height * chart.rows.len().max(1) as f64,
    };
    plot.right = plot.right.max(plot.left + 80.0);
    let all = chart.rows.iter().flat_map(|row| row.runs.iter().copied());
    let scale = PixelScale::new(
        chart.scale,
        all.chain(chart.reference.map(|r| r.0)),
        plot.left + 6.0,
        plot.right - 6.0,
    );
    canvas.line("axis", (plot.left, plot.bottom), (plot.right, plot.bottom));
    axis::below(&mut canvas, plot, &scale, chart.says, chart.label);
    if let Some((value, label)) = chart.reference {
        let at = scale.place(value);
        let label = fit(label, canvas.width() - 4.0, SIZE);
        let half = width(&label, SIZE) / 2.0;
        canvas.line("reference", (at, top - 4.0), (at, plot.bottom));
        let x = at.clamp(half, (canvas.width() - half).max(half));
        canvas.text("refname", (x, SIZE), Anchor::Middle, &label);
    }
    for (i, (row, median)) in chart.rows.iter().zip(&medians).enumerate() {
        let above = top + row_height * i as f64;
        let middle = above + if phone { 27.0 } else { row_height / 2.0 };
        if i > 0 {
            canvas.line("between", (0.0, above), (canvas.width(), above));
        }
        if phone {
            let name = fit(&row.name, canvas.width(), SIZE);
            canvas.text("name", (0.0, above + 14.0), Anchor::Start, &name);
        } else {
            let lines = wrap(&row.name, plot.left - 12.0, SIZE, 2);
            for (j, line) in lines.iter().enumerate() {
                let shift = (j as f64 - (lines.len() as f64 - 1.0) / 2.0) * 13.0;
                canvas.text("name", (plot.left - 12.0, middle + 4.0 + shift), Anchor::End, line);
            }
        }
        draw_row(&mut canvas, row, &scale, plot, middle, chart);
        if let Some(median) = median {
            canvas.text("value", (canvas.width(), middle + 4.0), Anchor::End, median);
        }
    }
    let height = plot.bottom + if chart.label.is_empty() { 24.0 } else { 42.0 };
    canvas.finish(height, chart.id, chart.title, chart.description)
}

fn draw_row(
    canvas: &mut Canvas,
    row: &StripRow,
    scale: &PixelScale,
    plot: Plot,
    middle: f64,
    chart: &Strip<'_>,
) {
    let Some(median) = quantile::median(&row.runs) else {
        let note = row.note.as_deref().unwrap_or("no runs");
        let note = fit(note, canvas.width() - plot.left - 8.0, SIZE);
        canvas.rect("paper-behind", (plot.left + 4.0, middle - 9.0), (width(&note, SIZE) + 8.0, 18.0));
        canvas.text("note", (plot.left + 8.0, middle + 4.0), Anchor::Start, &note);
        return;
    };
    canvas.begin(row.look.class);
    let sorted = quantile::sorted(&row.runs);
    if let (Some(least), Some(greatest)) = (sorted.first(), sorted.last()) {
        canvas.line("span", (scale.place(*least), middle), (scale.place(*greatest), middle));
    }
    let at = scale.place(median);
    canvas.line("median", (at, middle - 10.0), (at, middle + 10.0));
    let places: Vec<f64> = sorted.iter().map(|v| scale.place(*v)).collect();
    for ((value, x), lift) in sorted.iter().zip(&places).zip(lifts(&places)) {
        let says = format!("{}: {}", row.name, (chart.says)(*value));
        canvas.marker("run", row.look.shape, (*x, middle + lift), 3.2, &says);
    }
    canvas.end();
}

/// Moves dots that would cover each other up and down, so that they can be counted.
fn lifts(ascending: &[f64]) -> Vec<f64> {
    let mut lifts = Vec::with_capacity(ascending.len());
    let mut crowd = 0usize;
    for (i, x) in ascending.iter().enumerate() {
        crowd = if i > 0 && x - ascending[i - 1] < 4.0 { crowd + 1 } else { 0 };
        let step = [0.0, -4.0, 4.0, -8.0, 8.0][crowd % 5];
        lifts.push(step);
    }
    lifts
}
