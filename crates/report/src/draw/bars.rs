//! Horizontal bars from zero: a group for each variant, a bar for each figure, a whisker from the least to
//! the greatest run.
//!
//! Horizontal bars keep their names readable on a phone. A bar that did not start at zero would mislead, so a
//! logarithmic axis has only the dots, the median and the whisker.

use super::axis::{self, Plot};
use super::legend;
use super::look::VariantLook;
use super::scale::PixelScale;
use super::svg::{Anchor, Canvas, ViewPort};
use super::text::{SIZE, bold, fit, width};
use unisono_linux::counted::counted;
use unisono_measure::{quantile, record};

#[derive(Clone, Debug)]
pub(crate) struct BarGroup {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
    /// The text if nothing was measured.
    pub(crate) note: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) look: VariantLook,
    pub(crate) runs: Vec<f64>,
}

pub(crate) struct Bars<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) groups: &'a [BarGroup],
    pub(crate) legend: &'a [(VariantLook, &'a str)],
    pub(crate) label: &'a str,
    pub(crate) scale: record::Scale,
    pub(crate) says: &'a dyn Fn(f64) -> String,
    pub(crate) reference: Option<(f64, &'a str)>,
}

const BAR: f64 = 18.0;

pub(crate) fn draw(chart: &Bars<'_>, window: ViewPort) -> String {
    let mut canvas = Canvas::new(window);
    let phone = window == ViewPort::Phone;
    let says_median = |bar: &Bar| quantile::median(&bar.runs).map(chart.says).unwrap_or_default();
    let values = chart
        .groups
        .iter()
        .flat_map(|g| &g.bars)
        .map(|bar| bold(&says_median(bar), SIZE))
        .fold(30.0, f64::max);
    let names = chart.groups.iter().map(|group| width(&group.name, SIZE)).fold(30.0, f64::max);
    let mut top =
        if chart.legend.len() > 1 { legend::draw(&mut canvas, 0.0, 0.0, chart.legend) } else { 0.0 };
    if chart.reference.is_some() {
        top += 18.0;
    }
    top += 4.0;
    let head = if phone { 18.0 } else { 0.0 };
    let height_of = |group: &BarGroup| head + BAR * group.bars.len().max(1) as f64 + 12.0;
    let left = if phone { 2.0 } else { names.min(200.0) + 14.0 };
    let plot = Plot {
        left,
        right: (canvas.width() - values - 14.0).max(left + 80.0),
        top,
        bottom: top + chart.groups.iter().map(height_of).sum::<f64>().max(30.0),
    };
    let all = chart.groups.iter().flat_map(|g| &g.bars).flat_map(|bar| bar.runs.iter().copied());
    let from = if chart.scale == record::Scale::Log { plot.left + 6.0 } else { plot.left };
    let scale = PixelScale::new(chart.scale, all.chain(chart.reference.map(|r| r.0)), from, plot.right - 4.0);
    axis::below(&mut canvas, plot, &scale, chart.says, chart.label);
    canvas.line("axis", (plot.left, plot.top), (plot.left, plot.bottom));
    let mut above = top;
    for (i, group) in chart.groups.iter().enumerate() {
        if i > 0 {
            canvas.line("between", (0.0, above), (canvas.width(), above));
        }
        let centre = above + (height_of(group)) / 2.0;
        if phone {
            canvas.text("name", (0.0, above + 15.0), Anchor::Start, &fit(&group.name, canvas.width(), SIZE));
        } else {
            let name = fit(&group.name, plot.left - 10.0, SIZE);
            canvas.text("name", (plot.left - 10.0, centre + 4.0), Anchor::End, &name);
        }
        let first = above + head + 6.0;
        if group.bars.iter().all(|bar| quantile::median(&bar.runs).is_none()) {
            let note = group.note.as_deref().unwrap_or("no runs");
            let note = fit(note, canvas.width() - plot.left - 8.0, SIZE);
            let middle = first + BAR * group.bars.len().max(1) as f64 / 2.0;
            canvas.rect("paper-behind", (plot.left + 4.0, middle - 9.0), (width(&note, SIZE) + 8.0, 18.0));
            canvas.text("note", (plot.left + 8.0, middle + 4.0), Anchor::Start, &note);
        } else {
            for (j, bar) in group.bars.iter().enumerate() {
                draw_bar(&mut canvas, bar, &scale, chart, plot, first + BAR * j as f64, &group.name);
            }
        }
        above += height_of(group);
    }
    if let Some((value, label)) = chart.reference {
        let at = scale.place(value);
        let label = fit(label, canvas.width() - 4.0, SIZE);
        let half = width(&label, SIZE) / 2.0;
        canvas.line("reference", (at, plot.top - 2.0), (at, plot.bottom));
        let x = at.clamp(half, (canvas.width() - half).max(half));
        canvas.text("refname", (x, plot.top - 6.0), Anchor::Middle, &label);
    }
    let height = plot.bottom + if chart.label.is_empty() { 24.0 } else { 42.0 };
    canvas.finish(height, chart.id, chart.title, chart.description)
}

fn draw_bar(
    canvas: &mut Canvas,
    bar: &Bar,
    scale: &PixelScale,
    chart: &Bars<'_>,
    plot: Plot,
    above: f64,
    name: &str,
) {
    let Some(median) = quantile::median(&bar.runs) else { return };
    let middle = above + BAR / 2.0;
    let at = scale.place(median);
    canvas.begin(bar.look.class);
    if chart.scale == record::Scale::Linear {
        let zero = scale.place(0.0);
        canvas.rect("bar", (zero.min(at), above + 2.0), ((at - zero).abs(), BAR - 4.0));
    }
    let sorted = quantile::sorted(&bar.runs);
    if let (Some(least), Some(greatest)) = (sorted.first(), sorted.last()) {
        let (least, greatest) = (scale.place(*least), scale.place(*greatest));
        canvas.line("whisker", (least, middle), (greatest, middle));
        for end in [least, greatest] {
            canvas.line("whisker", (end, middle - 3.0), (end, middle + 3.0));
        }
    }
    let says = format!("{name}: {} ({})", (chart.says)(median), counted(bar.runs.len(), "run"));
    canvas.marker("dot", bar.look.shape, (at, middle), 4.0, &says);
    canvas.end();
    canvas.text("value", (canvas.width(), middle + 4.0), Anchor::End, &(chart.says)(median));
    let _ = plot;
}
