//! Strips: a row for each variant with a dot for each run, a bar at the median, and the median's value at the
//! right.
//!
//! Nothing is summarized: two modes show as two clusters, and an outlier as a dot far from the others.

use super::axis::{self, Plot};
use super::scale::PixelScale;
use super::style::VariantStyle;
use super::svg::{Anchor, Canvas, MarkerSize, ViewPort};
use super::text::{LEADING, SIZE, bold, extra_height, width, wrap};
use unisono_measure::{quantile, record};

#[derive(Clone, Debug)]
pub(crate) struct StripRow {
    pub(crate) name: String,
    pub(crate) style: VariantStyle,
    /// One value for each run.
    pub(crate) runs: Vec<f64>,
    /// The text if there are no runs: skipped or failed, and the reason.
    pub(crate) note: Option<String>,
}

pub(crate) struct Strip<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) rows: &'a [StripRow],
    pub(crate) label: &'a str,
    pub(crate) scale: record::Scale,
    /// Further values that the axis must include, so that charts have the same axis.
    pub(crate) also: &'a [f64],
    pub(crate) format_value: &'a dyn Fn(f64) -> String,
    /// A vertical line with its label.
    pub(crate) reference: Option<(f64, &'a str)>,
}

pub(crate) fn draw(chart: &Strip<'_>, window: ViewPort) -> String {
    let mut canvas = Canvas::new(window);
    let phone = window != ViewPort::Wide;
    let medians: Vec<Option<String>> =
        chart.rows.iter().map(|row| quantile::median(&row.runs).map(chart.format_value)).collect();
    let values = medians.iter().flatten().map(|text| bold(text, SIZE)).fold(30.0, f64::max);
    let names = chart.rows.iter().map(|row| width(&row.name, SIZE)).fold(30.0, f64::max);
    let reference = chart.reference.map(|(value, label)| (value, wrap(label, canvas.width() - 4.0, SIZE)));
    let top = 6.0 + reference.as_ref().map_or(0.0, |(_, label)| 18.0 + extra_height(label));
    let left = if phone { 6.0 } else { names.min(200.0) + 14.0 };
    let room = if phone { canvas.width() } else { left - 12.0 };
    let texts: Vec<RowTexts> =
        chart.rows.iter().map(|row| RowTexts::new(row, room, canvas.width() - left - 8.0, phone)).collect();
    let mut plot = Plot {
        left,
        right: canvas.width() - values - 14.0,
        top,
        bottom: top + texts.iter().map(|row| row.height).sum::<f64>().max(30.0),
    };
    plot.right = plot.right.max(plot.left + 80.0);
    let all = chart.rows.iter().flat_map(|row| row.runs.iter().copied());
    let all = all.chain(chart.reference.map(|r| r.0)).chain(chart.also.iter().copied());
    let scale = PixelScale::new(chart.scale, all, plot.left + 6.0, plot.right - 6.0);
    canvas.line("axis", (plot.left, plot.bottom), (plot.right, plot.bottom));
    let height = axis::draw_bottom(&mut canvas, plot, &scale, chart.format_value, chart.label);
    if let Some((value, label)) = &reference {
        let at = scale.place(*value);
        let half = label.iter().map(|line| width(line, SIZE)).fold(0.0, f64::max) / 2.0;
        canvas.line("reference", (at, top - 4.0), (at, plot.bottom));
        let x = at.clamp(half, (canvas.width() - half).max(half));
        canvas.lines("refname", (x, SIZE), Anchor::Average, label);
    }
    let mut above = top;
    for (i, ((row, median), texts)) in chart.rows.iter().zip(&medians).zip(&texts).enumerate() {
        let middle = above + if phone { 27.0 + extra_height(&texts.name) } else { texts.height / 2.0 };
        if i > 0 {
            canvas.line("between", (0.0, above), (canvas.width(), above));
        }
        if phone {
            canvas.lines("name", (0.0, above + 14.0), Anchor::Start, &texts.name);
        } else {
            let first = middle + 4.0 - extra_height(&texts.name) / 2.0;
            canvas.lines("name", (plot.left - 12.0, first), Anchor::End, &texts.name);
        }
        draw_row(&mut canvas, row, texts, &scale, plot, middle, chart);
        if let Some(median) = median {
            canvas.text("value", (canvas.width(), middle + 4.0), Anchor::End, median);
        }
        above += texts.height;
    }
    canvas.finish(height, chart.id, chart.title, chart.description)
}

/// The texts of a row, split into lines, and the height that they need.
struct RowTexts {
    name: Vec<String>,
    note: Vec<String>,
    height: f64,
}

impl RowTexts {
    fn new(row: &StripRow, room: f64, note_room: f64, phone: bool) -> Self {
        let name = wrap(&row.name, room, SIZE);
        let has_runs = quantile::median(&row.runs).is_some();
        let note = row.note.as_deref().unwrap_or("no runs");
        let note = if has_runs { Vec::new() } else { wrap(note, note_room, SIZE) };
        let height = if phone {
            40.0 + extra_height(&name) + extra_height(&note)
        } else {
            (name.len().max(note.len()) as f64 * LEADING + 8.0).max(30.0)
        };
        Self { name, note, height }
    }
}

fn draw_row(
    canvas: &mut Canvas,
    row: &StripRow,
    texts: &RowTexts,
    scale: &PixelScale,
    plot: Plot,
    middle: f64,
    chart: &Strip<'_>,
) {
    let Some(median) = quantile::median(&row.runs) else {
        let wide = texts.note.iter().map(|line| width(line, SIZE)).fold(0.0, f64::max);
        let more = extra_height(&texts.note);
        // on a phone the name stands above, so the note continues downwards
        let above = if canvas.is_narrow() { middle } else { middle - more / 2.0 };
        canvas.rect("paper-behind", (plot.left + 4.0, above - 9.0), (wide + 8.0, 18.0 + more));
        canvas.lines("note", (plot.left + 8.0, above + 4.0), Anchor::Start, &texts.note);
        return;
    };
    canvas.begin(row.style.class);
    let sorted = quantile::sorted(&row.runs);
    if let (Some(least), Some(greatest)) = (sorted.first(), sorted.last()) {
        canvas.line("span", (scale.place(*least), middle), (scale.place(*greatest), middle));
    }
    let at = scale.place(median);
    canvas.line("median", (at, middle - 10.0), (at, middle + 10.0));
    let places: Vec<f64> = sorted.iter().map(|v| scale.place(*v)).collect();
    for ((value, x), lift) in sorted.iter().zip(&places).zip(dot_offsets(&places)) {
        let tooltip = format!("{}: {}", row.name, (chart.format_value)(*value));
        canvas.marker(row.style.shape, MarkerSize::Run, (*x, middle + lift), &tooltip);
    }
    canvas.end();
}

/// Returns offsets that move overlapping dots up and down, so that they can be counted.
fn dot_offsets(ascending: &[f64]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(ascending.len());
    let mut crowd = 0usize;
    for (i, x) in ascending.iter().enumerate() {
        crowd = if i > 0 && x - ascending[i - 1] < 4.0 { crowd + 1 } else { 0 };
        let step = [0.0, -4.0, 4.0, -8.0, 8.0][crowd % 5];
        offsets.push(step);
    }
    offsets
}
