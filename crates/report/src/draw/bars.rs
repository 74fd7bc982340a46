//! Horizontal bars from zero: a group for each variant, a bar for each figure, a whisker from the least run
//! to the greatest.
//!
//! Horizontal bars keep their names readable on a phone. A bar that does not start at zero would mislead, so
//! on a logarithmic axis only the dots, the median and the whisker are drawn.

use super::axis::{self, Plot};
use super::legend;
use super::scale::PixelScale;
use super::style::VariantStyle;
use super::svg::{Anchor, Canvas, MarkerSize, ViewPort};
use super::text::{LEADING, SIZE, bold, extra_height, width, wrap};
use unisono_measure::{quantile, record};
use unisono_text::counted;

#[derive(Clone, Debug)]
pub(crate) struct BarGroup {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
    /// The text if nothing was measured.
    pub(crate) note: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) style: VariantStyle,
    pub(crate) runs: Vec<f64>,
}

pub(crate) struct Bars<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) groups: &'a [BarGroup],
    pub(crate) legend: &'a [(VariantStyle, &'a str)],
    pub(crate) label: &'a str,
    pub(crate) scale: record::Scale,
    /// Further values that the axis must include, so that charts have the same axis.
    pub(crate) also: &'a [f64],
    pub(crate) format_value: &'a dyn Fn(f64) -> String,
    pub(crate) reference: Option<(f64, &'a str)>,
}

const BAR: f64 = 18.0;

pub(crate) fn draw(chart: &Bars<'_>, window: ViewPort) -> String {
    let mut canvas = Canvas::new(window);
    let phone = window != ViewPort::Wide;
    let median_text = |bar: &Bar| quantile::median(&bar.runs).map(chart.format_value).unwrap_or_default();
    let values = chart
        .groups
        .iter()
        .flat_map(|g| &g.bars)
        .map(|bar| bold(&median_text(bar), SIZE))
        .fold(30.0, f64::max);
    let names = chart.groups.iter().map(|group| width(&group.name, SIZE)).fold(30.0, f64::max);
    let mut top =
        if chart.legend.len() > 1 { legend::draw(&mut canvas, 0.0, 0.0, chart.legend) } else { 0.0 };
    let reference = chart.reference.map(|(value, label)| (value, wrap(label, canvas.width() - 4.0, SIZE)));
    let named = top;
    top += 4.0 + reference.as_ref().map_or(0.0, |(_, label)| 18.0 + extra_height(label));
    let left = if phone { 2.0 } else { names.min(200.0) + 14.0 };
    let room = if phone { canvas.width() } else { left - 10.0 };
    let note_room = canvas.width() - left - 8.0;
    let texts = |group: &BarGroup| {
        let has_runs = group.bars.iter().any(|bar| quantile::median(&bar.runs).is_some());
        let note = group.note.as_deref().unwrap_or("no runs");
        let note = if has_runs { Vec::new() } else { wrap(note, note_room, SIZE) };
        (wrap(&group.name, room, SIZE), note)
    };
    let head = |name: &[String]| if phone { 18.0 + extra_height(name) } else { 0.0 };
    let height_of = |group: &BarGroup| {
        let (name, note) = texts(group);
        let bars = (BAR * group.bars.len().max(1) as f64).max(note.len() as f64 * LEADING);
        (head(&name) + bars + 12.0).max(if phone { 0.0 } else { name.len() as f64 * LEADING + 8.0 })
    };
    let plot = Plot {
        left,
        right: (canvas.width() - values - 14.0).max(left + 80.0),
        top,
        bottom: top + chart.groups.iter().map(height_of).sum::<f64>().max(30.0),
    };
    let all = chart.groups.iter().flat_map(|g| &g.bars).flat_map(|bar| bar.runs.iter().copied());
    let all = all.chain(chart.also.iter().copied());
    let from = if chart.scale == record::Scale::Log { plot.left + 6.0 } else { plot.left };
    let scale = PixelScale::new(chart.scale, all.chain(chart.reference.map(|r| r.0)), from, plot.right - 4.0);
    let height = axis::draw_bottom(&mut canvas, plot, &scale, chart.format_value, chart.label);
    canvas.line("axis", (plot.left, plot.top), (plot.left, plot.bottom));
    let mut above = top;
    for (i, group) in chart.groups.iter().enumerate() {
        if i > 0 {
            canvas.line("between", (0.0, above), (canvas.width(), above));
        }
        let centre = above + height_of(group) / 2.0;
        let (name, note) = texts(group);
        if phone {
            canvas.lines("name", (0.0, above + 15.0), Anchor::Start, &name);
        } else {
            let first = centre + 4.0 - extra_height(&name) / 2.0;
            canvas.lines("name", (plot.left - 10.0, first), Anchor::End, &name);
        }
        let first = above + head(&name) + 6.0;
        if note.is_empty() {
            for (j, bar) in group.bars.iter().enumerate() {
                draw_bar(&mut canvas, bar, &scale, chart, plot, first + BAR * j as f64, &group.name);
            }
        } else {
            let wide = note.iter().map(|line| width(line, SIZE)).fold(0.0, f64::max);
            canvas.rect("paper-behind", (plot.left + 4.0, first), (wide + 8.0, 18.0 + extra_height(&note)));
            canvas.lines("note", (plot.left + 8.0, first + 13.0), Anchor::Start, &note);
        }
        above += height_of(group);
    }
    if let Some((value, label)) = &reference {
        let at = scale.place(*value);
        let half = label.iter().map(|line| width(line, SIZE)).fold(0.0, f64::max) / 2.0;
        canvas.line("reference", (at, plot.top - 2.0), (at, plot.bottom));
        let x = at.clamp(half, (canvas.width() - half).max(half));
        canvas.lines("refname", (x, named + SIZE), Anchor::Average, label);
    }
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
    canvas.begin(bar.style.class);
    if chart.scale == record::Scale::Linear {
        let zero = scale.place(0.0);
        canvas.rect("bar", (zero.min(at), above + 2.0), ((at - zero).abs(), BAR - 4.0));
    }
    let sorted = quantile::sorted(&bar.runs);
    if let (Some(least), Some(greatest)) = (sorted.first(), sorted.last()) {
        let (least, greatest) = (scale.place(*least), scale.place(*greatest));
        let upright = |x: f64| ((x, middle - 3.0), (x, middle + 3.0));
        let across = ((least, middle), (greatest, middle));
        canvas.strokes("whisker", &[across, upright(least), upright(greatest)]);
    }
    let tooltip = format!("{name}: {} ({})", (chart.format_value)(median), counted(bar.runs.len(), "run"));
    canvas.marker(bar.style.shape, MarkerSize::Median, (at, middle), &tooltip);
    canvas.end();
    canvas.text("value", (canvas.width(), middle + 4.0), Anchor::End, &(chart.format_value)(median));
    let _ = plot;
}
