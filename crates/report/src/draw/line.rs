//! Lines over a numeric parameter, one for each series: medians joined, a band from the least run to the
//! greatest, and a dot for each run if there are more than three.
//!
//! The band and the dots matter: a line of medians alone would hide that a variant has two modes. On a wide
//! page the names are at the ends of their lines, on a phone above the plot.

use super::axis::{self, Plot};
use super::legend;
use super::scale::PixelScale;
use super::style::VariantStyle;
use super::svg::{Anchor, Canvas, MarkerSize, ViewPort};
use super::text::{SIZE, bold, extra_height, spread_positions, wrap};
use unisono_measure::quantile;
use unisono_measure::record;
use unisono_text::counted;

#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) style: VariantStyle,
    /// The points in ascending order of x.
    pub(crate) points: Vec<Point>,
}

/// All runs with one value of x.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    /// One value for each run.
    pub(crate) runs: Vec<f64>,
    /// The band, if it is not the range of the runs (for example a bootstrap interval).
    pub(crate) band: Option<(f64, f64)>,
    /// The height of the line, if it is not the median of the runs.
    pub(crate) middle: Option<f64>,
}

impl Point {
    fn middle(&self) -> Option<f64> {
        self.middle.or_else(|| quantile::median(&self.runs))
    }

    fn band(&self) -> Option<(f64, f64)> {
        self.band.or_else(|| {
            let sorted = quantile::sorted(&self.runs);
            Some((*sorted.first()?, *sorted.last()?))
        })
    }
}

pub(crate) struct LineSeries<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) series: &'a [Series],
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    pub(crate) x_scale: record::Scale,
    pub(crate) y_scale: record::Scale,
    pub(crate) format_x: &'a dyn Fn(f64) -> String,
    pub(crate) says_y: &'a dyn Fn(f64) -> String,
    /// A horizontal line with its label.
    pub(crate) reference: Option<(f64, &'a str)>,
    /// The paper's lines, drawn dashed behind the lines of the study.
    pub(crate) paper: &'a [Shape],
    /// Further values that the x axis must include, so that two charts have the same axis.
    pub(crate) x_also: &'a [f64],
    pub(crate) y_also: &'a [f64],
    /// Draws the chart at half the height.
    pub(crate) small: bool,
}

/// A line from a paper; only its points are known.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) style: VariantStyle,
    pub(crate) points: Vec<(f64, f64)>,
}

/// With fewer published points than this, the points get markers: a line through them would be barely
/// visible.
const MIN_UNMARKED_POINTS: usize = 4;

/// With at most this many runs, band and line show all of them: the least, the median and the greatest.
const MAX_RUNS_WITHOUT_DOTS: usize = 3;

/// Dots of runs that are closer than this many pixels are drawn once.
const MIN_DOT_DISTANCE: f64 = 0.4;

/// Names wider than this (in pixels) are placed above the plot, which keeps two thirds of the width.
const MAX_NAMES_WIDTH: f64 = 220.0;

pub(crate) fn draw(chart: &LineSeries<'_>, window: ViewPort) -> String {
    let mut canvas = Canvas::new(window);
    let plot_height = match (window, chart.small) {
        (_, true) => 120.0,
        (ViewPort::Phone | ViewPort::Folded, false) => 220.0,
        (ViewPort::Wide, false) => 270.0,
    };
    let mut top = 0.0;
    if !chart.y_label.is_empty() {
        let label = wrap(chart.y_label, canvas.width(), SIZE);
        canvas.lines("label", (0.0, SIZE), Anchor::Start, &label);
        top += 20.0 + extra_height(&label);
    }
    let names = chart.series.iter().map(|s| &s.name).chain(chart.paper.iter().map(|s| &s.name));
    let names = names.map(|name| bold(name, SIZE)).fold(0.0, f64::max);
    let is_few = chart.series.len() + chart.paper.len() <= 12;
    let labels_at_ends = window == ViewPort::Wide && is_few && names <= MAX_NAMES_WIDTH;
    if !labels_at_ends {
        let ours = chart.series.iter().map(|s| (s.style, s.name.as_str()));
        let entries: Vec<_> = ours.chain(chart.paper.iter().map(|s| (s.style, s.name.as_str()))).collect();
        top += legend::draw(&mut canvas, 0.0, top, &entries);
    }
    top += 8.0;
    let values = chart
        .series
        .iter()
        .flat_map(|s| &s.points)
        .flat_map(|p| p.runs.iter().copied().chain(p.band.into_iter().flat_map(|(a, b)| [a, b])))
        .chain(chart.paper.iter().flat_map(|s| s.points.iter().map(|p| p.1)))
        .chain(chart.reference.iter().map(|r| r.0))
        .chain(chart.y_also.iter().copied());
    let y = PixelScale::new(chart.y_scale, values, top + plot_height, top);
    let plot = Plot {
        left: axis::room(&y, plot_height, chart.says_y),
        right: canvas.width() - if labels_at_ends { names + 16.0 } else { 8.0 },
        top,
        bottom: top + plot_height,
    };
    let xs = chart.series.iter().flat_map(|s| s.points.iter().map(|p| p.x));
    let xs = xs.chain(chart.paper.iter().flat_map(|s| s.points.iter().map(|p| p.0)));
    let xs = xs.chain(chart.x_also.iter().copied());
    let x = PixelScale::new(chart.x_scale, xs, plot.left + 4.0, plot.right - 6.0);
    axis::draw_left(&mut canvas, plot, &y, chart.says_y);
    canvas.line("axis", (plot.left, plot.bottom), (plot.right, plot.bottom));
    let height = axis::draw_bottom(&mut canvas, plot, &x, chart.format_x, chart.x_label);
    if let Some((value, _)) = chart.reference {
        let at = y.place(value);
        canvas.line("reference", (plot.left, at), (plot.right, at));
    }
    for shape in chart.paper {
        canvas.begin(shape.style.class);
        let places: Vec<_> = shape.points.iter().map(|(a, b)| (x.place(*a), y.place(*b))).collect();
        canvas.path("paper", &places, false);
        canvas.end();
    }
    for series in chart.series {
        draw_series(&mut canvas, series, &x, &y, chart);
    }
    for shape in chart.paper.iter().filter(|shape| shape.points.len() < MIN_UNMARKED_POINTS) {
        canvas.begin(shape.style.class);
        for (at, value) in &shape.points {
            canvas.outline("published", shape.style.shape, (x.place(*at), y.place(*value)), 7.0);
        }
        canvas.end();
    }
    if let Some((value, label)) = chart.reference {
        // drawn last, with a halo, because lines may pass behind it
        let label = wrap(label, plot.width(), SIZE);
        let at = (plot.left + 6.0, y.place(value) - 6.0 - extra_height(&label));
        canvas.lines("refname", at, Anchor::Start, &label);
    }
    if labels_at_ends {
        label_line_ends(&mut canvas, chart, &y, plot);
    }
    canvas.finish(height, chart.id, chart.title, chart.description)
}

fn draw_series(canvas: &mut Canvas, series: &Series, x: &PixelScale, y: &PixelScale, chart: &LineSeries<'_>) {
    canvas.begin(series.style.class);
    let mut upper = Vec::new();
    let mut lower = Vec::new();
    let mut middle = Vec::new();
    for point in &series.points {
        if let (Some((low, high)), Some(median)) = (point.band(), point.middle()) {
            let at = x.place(point.x);
            upper.push((at, y.place(high)));
            lower.push((at, y.place(low)));
            middle.push((at, y.place(median)));
        }
    }
    let outline: Vec<_> = upper.iter().copied().chain(lower.iter().rev().copied()).collect();
    if middle.len() > 1 {
        canvas.path("band", &outline, true);
        canvas.path("middle", &middle, false);
    } else if let (Some(upper), Some(lower)) = (upper.first(), lower.first()) {
        canvas.line("whisker", *upper, *lower);
    }
    let mut runs: Vec<(f64, f64)> = Vec::new();
    for point in series.points.iter().filter(|point| point.runs.len() > MAX_RUNS_WITHOUT_DOTS) {
        let seen = runs.len();
        for value in point.runs.iter().filter(|v| v.is_finite()) {
            let dot = (x.place(point.x), y.place(*value));
            // a dot on top of another is invisible
            if runs[seen..].iter().all(|other| (other.1 - dot.1).abs() >= MIN_DOT_DISTANCE) {
                runs.push(dot);
            }
        }
    }
    if !runs.is_empty() {
        canvas.dots(&runs);
    }
    for point in &series.points {
        let at = x.place(point.x);
        if let Some(median) = point.middle() {
            let tooltip = format!(
                "{}, {}: {} ({})",
                series.name,
                (chart.format_x)(point.x),
                (chart.says_y)(median),
                counted(point.runs.len(), "run")
            );
            canvas.marker(series.style.shape, MarkerSize::Median, (at, y.place(median)), &tooltip);
        }
    }
    canvas.end();
}

fn label_line_ends(canvas: &mut Canvas, chart: &LineSeries<'_>, y: &PixelScale, plot: Plot) {
    let ours = chart.series.iter().filter_map(|s| {
        let end = s.points.iter().rev().find_map(Point::middle)?;
        Some((s.name.as_str(), s.style, y.place(end)))
    });
    let papers =
        chart.paper.iter().filter_map(|s| Some((s.name.as_str(), s.style, y.place(s.points.last()?.1))));
    let ends: Vec<(&str, VariantStyle, f64)> = ours.chain(papers).collect();
    let wanted: Vec<f64> = ends.iter().map(|end| end.2).collect();
    let placed = spread_positions(&wanted, SIZE + 4.0, plot.top + 2.0, plot.bottom - 2.0);
    for ((name, style, end), place) in ends.into_iter().zip(placed) {
        canvas.begin(style.class);
        if (end - place).abs() > 3.0 {
            canvas.line("leader", (plot.right - 2.0, end), (plot.right + 8.0, place));
        }
        canvas.text("end", (plot.right + 11.0, place + 4.0), Anchor::Start, name);
        canvas.end();
    }
}
