//! Tests of whole charts: small snapshots, and that labels never overlap, for any input.

use super::bars::{self, Bar, BarGroup, Bars};
use super::line::{self, LineSeries, Point, Series};
use super::strip::{self, Strip, StripRow};
use super::style::{ReportStyles, VariantStyle};
use super::svg::ViewPort;
use super::text::{SIZE, bold, width};
use crate::number;
use proptest::prelude::*;
use unisono_measure::record::Scale;

/// A text of a drawing as a box: left, right, baseline, and the text.
struct Label {
    left: f64,
    right: f64,
    base: f64,
    text: String,
}

/// Returns all texts of a drawing, with their estimated widths.
fn labels(svg: &str) -> Vec<Label> {
    let attribute = |tag: &str, name: &str| {
        let rest = tag.split_once(&format!(" {name}=\""))?.1;
        Some(rest.split_once('"')?.0.to_owned())
    };
    // the tag of the innermost group, which holds the class and the anchor of its texts
    let group = |before: &str| {
        let from = before.rfind("<g ").filter(|from| !before[*from..].contains("</g>"))?;
        Some(before[from..].split_once('>')?.0.to_owned())
    };
    svg.match_indices("<text")
        .filter_map(|(at, _)| {
            let (tag, rest) = svg[at..].split_once('>')?;
            let tag = if tag.contains(" class=") {
                tag.to_owned()
            } else {
                format!("{tag}{}", &group(&svg[..at])?[2..])
            };
            let tag = tag.as_str();
            let text =
                rest.split_once("</text>")?.0.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
            let text = text.replace("&quot;", "\"").replace("&#39;", "'");
            let class = attribute(tag, "class")?;
            let wide = if matches!(class.as_str(), "value" | "end") {
                bold(&text, SIZE)
            } else {
                width(&text, SIZE)
            };
            let x: f64 = attribute(tag, "x")?.parse().ok()?;
            let base: f64 = attribute(tag, "y")?.parse().ok()?;
            let left = match attribute(tag, "text-anchor").as_deref() {
                Some("end") => x - wide,
                Some("middle") => x - wide / 2.0,
                _ => x,
            };
            Some(Label { left, right: left + wide, base, text })
        })
        .collect()
}

/// Returns the style of the `index`-th variant of a study.
fn nth(index: usize) -> VariantStyle {
    ReportStyles::default().assign_study("", &[], &[]).unassigned(index)
}

fn check(svg: &str, window: ViewPort) -> Result<(), TestCaseError> {
    let labels = labels(svg);
    prop_assert!(!svg.contains('\u{2026}'), "a label is cut: {svg}");
    for (i, a) in labels.iter().enumerate() {
        prop_assert!(
            a.left >= -1.0 && a.right <= window.width() + 1.0,
            "{:?} leaves the page: {svg}",
            a.text
        );
        for b in &labels[..i] {
            let across = a.right.min(b.right) - a.left.max(b.left);
            let apart = (a.base - b.base).abs();
            prop_assert!(across <= 0.5 || apart >= SIZE - 1.0, "{:?} lies on {:?}: {svg}", a.text, b.text);
        }
    }
    Ok(())
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,12}",
        "[A-Za-z0-9 ,/]{1,60}",
        Just("Unisono, spin 50 us then block, threads 8".to_owned())
    ]
}

fn runs() -> impl Strategy<Value = Vec<f64>> {
    proptest::collection::vec(prop_oneof![1e-2f64..1e8, Just(0.0), 100.0f64..101.0], 0..6)
}

fn scale() -> impl Strategy<Value = Scale> {
    prop_oneof![Just(Scale::Linear), Just(Scale::Log)]
}

fn window() -> impl Strategy<Value = ViewPort> {
    prop_oneof![Just(ViewPort::Phone), Just(ViewPort::Wide)]
}

fn format_value(value: f64) -> String {
    number::quantity(value, "ns")
}

proptest! {
    #[test]
    fn labels_of_strips_never_overlap(
        rows in proptest::collection::vec((name(), runs()), 1..7),
        reference in proptest::option::of((1f64..1e6, name())),
        label in name(),
        scale in scale(),
        window in window(),
    ) {
        let rows: Vec<StripRow> = rows
            .into_iter()
            .enumerate()
            .map(|(i, (name, runs))| StripRow { note: Some(name.clone()), name, style: nth(i), runs })
            .collect();
        let strip = Strip {
            id: "s", title: "t", description: "d", rows: &rows, label: &label, scale, also: &[], format_value: &format_value,
            reference: reference.as_ref().map(|(value, name)| (*value, name.as_str())),
        };
        check(&strip::draw(&strip, window), window)?;
    }

    #[test]
    fn labels_of_bars_never_overlap(
        groups in proptest::collection::vec((name(), proptest::collection::vec(runs(), 1..4)), 1..6),
        reference in proptest::option::of((1f64..1e6, name())),
        names in proptest::collection::vec(name(), 0..4),
        scale in scale(),
        window in window(),
    ) {
        let groups: Vec<BarGroup> = groups
            .into_iter()
            .map(|(name, bars)| {
                let bars = bars.into_iter().enumerate().map(|(i, runs)| Bar { style: nth(i), runs }).collect();
                BarGroup { note: Some(name.clone()), name, bars }
            })
            .collect();
        let legend: Vec<_> = names.iter().enumerate().map(|(i, name)| (nth(i), name.as_str())).collect();
        let bars = Bars {
            id: "b", title: "t", description: "d", groups: &groups, legend: &legend, label: "figure", scale,
            also: &[], format_value: &format_value, reference: reference.as_ref().map(|(value, name)| (*value, name.as_str())),
        };
        check(&bars::draw(&bars, window), window)?;
    }

    #[test]
    fn labels_of_lines_never_overlap(
        series in proptest::collection::vec((name(), proptest::collection::vec((0f64..1e6, runs()), 1..6)), 1..6),
        x_label in name(),
        y_label in name(),
        scales in (scale(), scale()),
        window in window(),
    ) {
        let series: Vec<Series> = series
            .into_iter()
            .enumerate()
            .map(|(i, (name, points))| {
                let mut points: Vec<Point> =
                    points.into_iter().map(|(x, runs)| Point { x, runs, band: None, middle: None }).collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                Series { name, style: nth(i), points }
            })
            .collect();
        let lines = LineSeries {
            id: "l", title: "t", description: "d", series: &series, x_label: &x_label, y_label: &y_label,
            x_scale: scales.0, y_scale: scales.1, format_x: &format_value, says_y: &format_value, reference: None, paper: &[],
            x_also: &[], y_also: &[], small: false,
        };
        check(&line::draw(&lines, window), window)?;
    }
}

#[test]
fn a_strip_shows_every_run_and_says_why_there_is_none() {
    let rows = [
        StripRow { name: "plain Linux".into(), style: nth(0), runs: vec![40.0, 41.0, 5000.0], note: None },
        StripRow {
            name: "gangs".into(),
            style: nth(1),
            runs: vec![],
            note: Some("skipped: not root".into()),
        },
    ];
    let strip = Strip {
        id: "strip",
        title: "Two modes",
        description: "one row with two modes, one without runs",
        rows: &rows,
        label: "time",
        scale: Scale::Log,
        also: &[],
        format_value: &format_value,
        reference: Some((50.0, "budget 50 ns")),
    };
    insta::assert_snapshot!(strip::draw(&strip, ViewPort::Phone).replace('>', ">\n"));
}

#[test]
fn a_line_has_a_band_a_dot_a_run_and_a_place_for_zero() {
    let point = |x: f64, runs: &[f64]| Point { x, runs: runs.to_vec(), band: None, middle: None };
    let series = [Series {
        name: "gangs".into(),
        style: nth(0),
        points: vec![
            point(0.0, &[10.0, 12.0, 12.5, 13.0]),
            point(100.0, &[40.0]),
            point(1000.0, &[90.0, 80.0]),
        ],
    }];
    let lines = LineSeries {
        id: "line",
        title: "A line",
        description: "rises",
        series: &series,
        x_label: "interval",
        y_label: "time",
        x_scale: Scale::Log,
        y_scale: Scale::Linear,
        format_x: &format_value,
        says_y: &format_value,
        reference: None,
        paper: &[],
        x_also: &[],
        y_also: &[],
        small: true,
    };
    insta::assert_snapshot!(line::draw(&lines, ViewPort::Wide).replace('>', ">\n"));
}

/// The bytes per point are bounded, because the page of all studies has thousands of points and a megabyte.
#[test]
fn a_point_of_four_runs_takes_few_bytes() {
    let point = |at: i32| {
        let x = f64::from(at);
        Point { x, runs: vec![40.0 + x, 43.0 - x, 5.0 * x, 7.0 * x], band: None, middle: None }
    };
    let series = |points: i32| {
        [Series {
            name: "unisono mpi on MPICH".into(),
            style: nth(5),
            points: (0..points).map(point).collect(),
        }]
    };
    let drawn = |points| {
        let series = series(points);
        let lines = LineSeries {
            id: "l",
            title: "t",
            description: "",
            series: &series,
            x_label: "",
            y_label: "",
            x_scale: Scale::Linear,
            y_scale: Scale::Linear,
            format_x: &format_value,
            says_y: &format_value,
            reference: None,
            paper: &[],
            x_also: &[1000.0],
            y_also: &[1000.0],
            small: false,
        };
        line::draw(&lines, ViewPort::Folded).len()
    };
    let each = (drawn(90) - drawn(10)) / 80;
    assert!((40..200).contains(&each), "{each} bytes a point");
}

#[test]
fn a_bar_starts_at_zero_and_ends_at_the_median() {
    let groups = [BarGroup {
        name: "gangs".into(),
        bars: vec![
            Bar { style: nth(0), runs: vec![50.0, 60.0, 70.0] },
            Bar { style: nth(1), runs: vec![100.0] },
        ],
        note: None,
    }];
    let bars = Bars {
        id: "bars",
        title: "Bars",
        description: "two",
        groups: &groups,
        legend: &[(nth(0), "App 1"), (nth(1), "App 2")],
        label: "",
        scale: Scale::Linear,
        also: &[],
        format_value: &format_value,
        reference: None,
    };
    insta::assert_snapshot!(bars::draw(&bars, ViewPort::Phone).replace('>', ">\n"));
}
