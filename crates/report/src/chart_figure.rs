//! Turns a study's chart into an HTML figure: the drawings for a phone and for a wide window, a description
//! in words, and a folded table of the numbers.

use crate::chart_table::{NumbersRow, numbers, places};
use crate::draw::axis::in_unit;
use crate::draw::line::{self, LineSeries, Point, Series, Shape};
use crate::draw::style::VariantStyle;
use crate::draw::svg::ViewPort;
use crate::draw::{bars, map, strip};
use crate::number;
use crate::points::{curve, swept};
use crate::study::{ChartRow, Study};
use crate::wording;
use askama::Template;
use unisono_measure::quantile;
use unisono_measure::record::{Chart, ChartKind, PointsAre, Scale, Verdict};
use unisono_text::counted;

/// From this many comparisons of one kind on, a table is easier to read than lines or paragraphs.
pub(crate) const MIN_TABLE_ROWS: usize = 6;

/// A chart gets an axis of its own if its neighbor's values exceed its own by more than this factor: on a
/// common linear axis its values would lie in the lowest fifth, on a common logarithmic axis a decade would
/// be empty.
const MAX_COMMON_AXIS_RATIO: f64 = 5.0;

#[derive(Template)]
#[template(path = "figure.html")]
struct ChartFigure<'a> {
    study: &'a Study<'a>,
    chart: &'a Chart,
    /// The reason why there is nothing to draw.
    nothing: Option<String>,
    drawings: String,
    /// The drawing of the paper's shape, and a note on it.
    paper: Option<(String, String)>,
    /// The parameter on the x axis of a line chart.
    x: Option<&'a str>,
    numbers: Vec<NumbersRow>,
}

impl ChartFigure<'_> {
    /// Returns the rows of the table, grouped by variant.
    fn by_variant(&self) -> Vec<&[NumbersRow]> {
        self.numbers.chunk_by(|a, b| a.name == b.name).collect()
    }
}

/// Whether a chart is visible at once or folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChartVisibility {
    Open,
    Folded,
}

impl ChartVisibility {
    /// Returns the drawings of a chart in this place.
    fn drawings(self, draw: impl Fn(ViewPort) -> String) -> String {
        match self {
            ChartVisibility::Open => ViewPort::OF_OPEN.into_iter().map(draw).collect(),
            ChartVisibility::Folded => draw(ViewPort::Folded),
        }
    }

    /// Returns the description of a chart in this place. A folded chart has the same numbers in the table
    /// below it.
    fn described(self, whole: &str) -> &str {
        match self {
            ChartVisibility::Open => whole,
            ChartVisibility::Folded => "The table below has the numbers.",
        }
    }
}

/// A chart with the rows to draw.
struct ChartDrawing<'a> {
    study: &'a Study<'a>,
    chart: &'a Chart,
    rows: &'a [ChartRow<'a>],
    id: &'a str,
    shown: ChartVisibility,
}

/// Returns a `<figure>` with one drawing for each figure (bars: one for all).
pub(crate) fn html(study: &Study<'_>, chart: &Chart, index: usize, shown: ChartVisibility) -> String {
    let x = chart.x.as_deref().filter(|_| matches!(chart.kind, ChartKind::Line | ChartKind::Map));
    let mut rows = study.rows(chart, x);
    if matches!(chart.kind, ChartKind::Strip | ChartKind::Bars) {
        study.rank(&mut rows, chart);
    }
    let id = format!("{}-{index}", study.head.study);
    if !chart.y.iter().any(|figure| rows.iter().any(|row| !row.values(figure).is_empty())) {
        let reasons = rows.iter().filter_map(|row| Some(format!("{}: {}", row.name, row.note()?)));
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        let nothing = Some(if reasons.is_empty() { reasons } else { format!(" {reasons}.") });
        let (drawings, paper, numbers) = (String::new(), None, Vec::new());
        return ChartFigure { study, chart, nothing, drawings, paper, x, numbers }.to_string();
    }
    let drawing = ChartDrawing { study, chart, rows: &rows, id: &id, shown };
    let drawings = match chart.kind {
        ChartKind::Bars => drawing.bars(),
        ChartKind::Strip => drawing.per_figure(ChartDrawing::strip),
        ChartKind::Line => drawing.per_figure(ChartDrawing::lines),
        ChartKind::Map => drawing.per_figure(ChartDrawing::map),
    };
    let paper = if chart.paper { drawing.paper_shape() } else { None };
    let numbers = numbers(study, chart, &rows, x);
    ChartFigure { study, chart, nothing: None, drawings, paper, x, numbers }.to_string()
}

/// Explains how to read a chart of this kind.
fn marks_explained(kind: ChartKind, scale: Scale) -> &'static str {
    match (kind, scale) {
        (ChartKind::Line, _) => {
            "Line: median of the runs. Band: least to greatest. Small dots: single runs, where there are more than three."
        }
        (ChartKind::Strip, Scale::Linear) => "Each dot is a run; the bar and the number are the median.",
        (ChartKind::Strip, Scale::Log) => {
            "Each dot is a run; the bar and the number are the median. Logarithmic: each step along the axis is a factor."
        }
        (ChartKind::Bars, Scale::Linear) => "Bar and number: median of the runs. Whisker: least to greatest.",
        (ChartKind::Bars, Scale::Log) => {
            "Marker and number: median of the runs. Whisker: least to greatest. Logarithmic, so no bars."
        }
        (ChartKind::Map, _) => {
            "Number: median of the runs. Blue: above no difference; another colour: below. Darker from a factor of 2 and of 8 on."
        }
    }
}

fn axis_label(study: &Study<'_>, given: Option<&str>, name: &str) -> String {
    match given {
        Some(label) => number::without_unit(label).to_owned(),
        None => study.label(name),
    }
}

/// Returns the medians in words, for screen readers.
fn medians(rows: &[ChartRow<'_>], figure: &str, format_value: &dyn Fn(f64) -> String) -> String {
    let one = |row: &ChartRow<'_>| {
        let values = row.values(figure);
        let text = match quantile::median(&values) {
            Some(median) => format!("median {} of {}", format_value(median), counted(values.len(), "run")),
            None => row.note().unwrap_or_else(|| "no runs".to_owned()),
        };
        format!("{}: {text}", row.name)
    };
    rows.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl ChartDrawing<'_> {
    /// Draws each of the chart's figures, under an id of its own.
    fn per_figure(&self, draw: fn(&Self, &str, &str) -> String) -> String {
        let figures = self.chart.y.iter().enumerate();
        figures.map(|(i, figure)| draw(self, figure, &format!("{}-{i}", self.id))).collect()
    }

    /// Returns the reference line and its label.
    fn reference(&self) -> Option<(f64, &str)> {
        self.chart.reference.as_ref().map(|reference| (reference.value, reference.label.as_str()))
    }

    fn strip(&self, figure: &str, id: &str) -> String {
        let Self { study, chart, rows, shown, .. } = *self;
        let format_value = in_unit(&study.unit(figure));
        let drawing: Vec<strip::StripRow> = rows
            .iter()
            .map(|row| strip::StripRow {
                name: row.name.clone(),
                style: study.styles.style(row.variant),
                runs: row.values(figure),
                note: row.note(),
            })
            .collect();
        let description = medians(rows, figure, &format_value);
        let label = axis_label(study, chart.y_label.as_deref(), figure);
        let strip = strip::Strip {
            id,
            title: &chart.title,
            description: shown.described(&description),
            rows: &drawing,
            label: &label,
            scale: chart.y_scale,
            also: &self.neighbouring_values(figure),
            format_value: &format_value,
            reference: self.reference(),
        };
        shown.drawings(|window| strip::draw(&strip, window))
    }

    fn bars(&self) -> String {
        let Self { study, chart, rows, id, shown } = *self;
        let unit = chart.y.first().map(|figure| study.unit(figure)).unwrap_or_default();
        let format_value = in_unit(&unit);
        let names: Vec<String> = chart.y.iter().map(|figure| study.label(figure)).collect();
        let legend: Vec<(VariantStyle, &str)> =
            names.iter().enumerate().map(|(i, name)| (study.styles.unassigned(i), name.as_str())).collect();
        let groups: Vec<bars::BarGroup> = rows
            .iter()
            .map(|row| bars::BarGroup {
                name: row.name.clone(),
                bars: chart
                    .y
                    .iter()
                    .enumerate()
                    .map(|(i, figure)| {
                        let style = if chart.y.len() == 1 {
                            study.styles.style(row.variant)
                        } else {
                            study.styles.unassigned(i)
                        };
                        bars::Bar { style, runs: row.values(figure) }
                    })
                    .collect(),
                note: row.note(),
            })
            .collect();
        let described: Vec<String> = chart
            .y
            .iter()
            .zip(&names)
            .map(|(figure, name)| format!("{name}: {}", medians(rows, figure, &format_value)))
            .collect();
        let label = chart.y_label.as_deref().map(|label| number::without_unit(label).to_owned());
        let label = label.or_else(|| names.first().filter(|_| names.len() == 1).cloned()).unwrap_or_default();
        let described = described.join(". ");
        let bars = bars::Bars {
            id,
            title: &chart.title,
            description: shown.described(&described),
            groups: &groups,
            legend: &legend,
            label: &label,
            scale: chart.y_scale,
            also: &chart.y.first().map(|figure| self.neighbouring_values(figure)).unwrap_or_default(),
            format_value: &format_value,
            reference: self.reference(),
        };
        shown.drawings(|window| bars::draw(&bars, window))
    }

    fn map(&self, figure: &str, id: &str) -> String {
        let Self { study, chart, rows, shown, .. } = *self;
        let x = chart.x.as_deref().unwrap_or_default();
        let mut columns: Vec<&serde_json::Value> = Vec::new();
        for place in rows.iter().flat_map(|row| places(row, Some(x))).filter_map(|(place, _)| place) {
            if !columns.contains(&place) {
                columns.push(place);
            }
        }
        columns.sort_by(|a, b| a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)));
        let cells = |row: &ChartRow<'_>| {
            let of = |column: &&serde_json::Value| {
                let here = row.runs.iter().filter(|run| run.parameters.get(x) == Some(column));
                quantile::median(&here.filter_map(|run| run.value(figure)).collect::<Vec<_>>())
            };
            columns.iter().map(of).collect()
        };
        let drawing: Vec<map::MapRow> =
            rows.iter().map(|row| map::MapRow { name: row.name.clone(), cells: cells(row) }).collect();
        let format_value = |value: f64| format!("{}\u{d7}", number::plain(value));
        let names: Vec<String> = columns.iter().map(|column| study.parameter(x, column)).collect();
        let describe = |row: &map::MapRow| {
            let at = |(name, value): (&String, &Option<f64>)| {
                value.map(|value| format!("{} at {name}", format_value(value)))
            };
            format!(
                "{}: {}",
                row.name,
                names.iter().zip(&row.cells).filter_map(at).collect::<Vec<_>>().join(", ")
            )
        };
        let described = drawing.iter().map(describe).collect::<Vec<_>>().join("; ");
        let ratios = map::RatioMap {
            id,
            title: &chart.title,
            description: shown.described(&described),
            rows: &drawing,
            columns: &names,
            x_label: &axis_label(study, chart.x_label.as_deref(), x),
            format_value: &format_value,
            even: chart.reference.as_ref().map_or(1.0, |reference| reference.value),
        };
        shown.drawings(|window| map::draw(&ratios, window))
    }

    fn lines(&self, figure: &str, id: &str) -> String {
        let Self { study, chart, rows, shown, .. } = *self;
        let says_y = in_unit(&study.unit(figure));
        let x = chart.x.as_deref().unwrap_or_default();
        let format_x = in_unit(number::unit_in_name(x));
        let mut series: Vec<Series> = Vec::new();
        for row in rows {
            let mut points = curve(row, x, figure);
            if points.is_empty() {
                points = swept(row, x, figure);
            }
            if !points.is_empty() {
                series.push(Series {
                    name: row.name.clone(),
                    style: study.styles.style(row.variant),
                    points,
                });
            }
        }
        let describe = |s: &Series| {
            let at = |p: &Point| Some(format!("{} at {}", says_y(quantile::median(&p.runs)?), format_x(p.x)));
            format!("{}: {}", s.name, s.points.iter().filter_map(at).collect::<Vec<_>>().join(", "))
        };
        let description = series.iter().map(describe).collect::<Vec<_>>().join("; ");
        let papers = if chart.paper { paper_lines(study, PointsAre::Values) } else { Vec::new() };
        let lines = LineSeries {
            id,
            title: &chart.title,
            description: shown.described(&description),
            series: &series,
            x_label: &axis_label(study, chart.x_label.as_deref(), x),
            y_label: &axis_label(study, chart.y_label.as_deref(), figure),
            x_scale: chart.x_scale,
            y_scale: chart.y_scale,
            format_x: &format_x,
            says_y: &says_y,
            reference: self.reference(),
            paper: &papers,
            x_also: &[],
            y_also: &self.neighbouring_values(figure),
            small: false,
        };
        shown.drawings(|window| line::draw(&lines, window))
    }

    /// Returns the paper's shape in a small chart, over the same x axis as the study's chart.
    fn paper_shape(&self) -> Option<(String, String)> {
        let Self { study, chart, id, shown, .. } = *self;
        let mut shapes = paper_lines(study, PointsAre::Shape);
        let x = chart.x.as_deref().filter(|_| !shapes.is_empty())?;
        for shape in &mut shapes {
            shape.name = shape.name.trim_start_matches("paper: ").to_owned();
        }
        let ours: Vec<f64> = study
            .runs
            .iter()
            .filter(|run| run.has_parameters(&chart.only))
            .filter_map(|run| run.parameters.get(x)?.as_f64())
            .collect();
        let note =
            study.head.paper.as_ref().and_then(|paper| paper.points_note.as_deref()).unwrap_or_default();
        let format_x = in_unit(number::unit_in_name(x));
        let lines = LineSeries {
            id: &format!("{id}-paper"),
            title: "The paper's shape",
            description: note,
            series: &[],
            x_label: "",
            y_label: "",
            x_scale: chart.x_scale,
            y_scale: Scale::Linear,
            format_x: &format_x,
            says_y: &|_| String::new(),
            reference: None,
            paper: &shapes,
            x_also: &ours,
            y_also: &[],
            small: true,
        };
        Some((shown.drawings(|window| line::draw(&lines, window)), note.to_owned()))
    }

    /// Returns the values of the study's other charts that share this chart's axis (the same kind of chart,
    /// scale and unit), so that panels can be compared. An axis is shared only by panels of similar values
    /// ([`MAX_COMMON_AXIS_RATIO`]); on a logarithmic axis panels of the same variants always share it,
    /// because such panels are compared by their distance from each other.
    fn neighbouring_values(&self, figure: &str) -> Vec<f64> {
        let Self { study, chart, .. } = *self;
        let unit = study.unit(figure);
        let is_same = |other: &str| {
            // the unit of counts and quotients does not tell different quantities apart
            if matches!(unit.as_str(), "1" | "") { other == figure } else { study.unit(other) == unit }
        };
        let values = |of: &Chart| -> Vec<f64> {
            let x = of.x.as_deref().filter(|_| of.kind == ChartKind::Line);
            let rows = study.rows(of, x);
            let figures = of.y.iter().filter(|figure| is_same(figure));
            figures.flat_map(|figure| rows.iter().flat_map(|row| row.values(figure))).collect()
        };
        let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let least = |values: &[f64]| {
            values.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min)
        };
        let own = values(chart);
        let (own_least, own_most) = (least(&own), most(&own));
        let neighbours = study.head.charts.iter().filter(|other| {
            (other.kind, other.y_scale) == (chart.kind, chart.y_scale) && !std::ptr::eq(*other, chart)
        });
        let is_alike = |other: &Chart, values: &[f64]| match chart.y_scale {
            Scale::Linear => most(values) <= own_most * MAX_COMMON_AXIS_RATIO,
            Scale::Log => {
                other.variants == chart.variants
                    || (most(values) <= own_most * MAX_COMMON_AXIS_RATIO
                        && least(values) * MAX_COMMON_AXIS_RATIO >= own_least)
            }
        };
        let alike = neighbours.map(|other| (other, values(other))).filter(|(other, of)| is_alike(other, of));
        alike.flat_map(|(_, values)| values).collect()
    }
}

/// Returns the paper's points as lines, if they are of this kind.
fn paper_lines(study: &Study<'_>, kind: PointsAre) -> Vec<Shape> {
    let Some(paper) = study.head.paper.as_ref().filter(|paper| paper.points_are == kind) else {
        return Vec::new();
    };
    let mut lines: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for point in paper.points.iter().filter(|p| p.x.is_finite() && p.y.is_finite()) {
        match lines.iter_mut().find(|(series, _)| *series == point.series) {
            Some((_, points)) => points.push((point.x, point.y)),
            None => lines.push((&point.series, vec![(point.x, point.y)])),
        }
    }
    lines
        .into_iter()
        .enumerate()
        .map(|(i, (series, mut points))| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let style = study.styles.known(series).unwrap_or_else(|| study.styles.unassigned(i));
            Shape { name: format!("paper: {}", study.label(series)), style, points }
        })
        .collect()
}

/// Draws the ratios of a sweep with their intervals, if the study has verdicts at three or more points.
pub(crate) fn ratios_html(study: &Study<'_>) -> String {
    let mut html = String::new();
    let mut done: Vec<(&Option<String>, &str)> = Vec::new();
    for (verdict, _) in study.verdicts() {
        let key = (&verdict.by, verdict.figure.as_str());
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let alike: Vec<(&Verdict, Vec<Point>)> = study
            .verdicts()
            .filter(|(other, _)| (&other.by, other.figure.as_str()) == key && other.better == verdict.better)
            .map(|(other, judged)| (other, judged.iter().filter_map(ratio_point).collect::<Vec<_>>()))
            .filter(|(_, points)| points.len() >= 3)
            .collect();
        // a chart with more lines is unreadable; then there is only the table
        if let (1..MIN_TABLE_ROWS, Some(by)) = (alike.len(), verdict.by.as_deref()) {
            let id = format!("{}-ratio-{}", study.head.study, done.len());
            html.push_str(&draw_ratios(study, by, &alike, &id));
        }
    }
    html
}

fn ratio_point(judgement: &unisono_measure::verdict::Judgement) -> Option<Point> {
    let x = judgement.at.as_ref()?.as_f64().filter(|x| x.is_finite())?;
    let ratio = judgement.comparison()?.ratio;
    let finite = ratio.low > 0.0 && ratio.high.is_finite();
    finite.then(|| Point {
        x,
        runs: Vec::new(),
        band: Some((ratio.low, ratio.high)),
        middle: Some(ratio.value),
    })
}

fn draw_ratios(study: &Study<'_>, by: &str, alike: &[(&Verdict, Vec<Point>)], id: &str) -> String {
    let own_styles = alike.iter().enumerate().all(|(i, (verdict, _))| {
        alike[..i]
            .iter()
            .all(|(other, _)| study.styles.style(&other.variant) != study.styles.style(&verdict.variant))
    });
    let name = |verdict: &Verdict| {
        let (ours, theirs) = wording::sides(study, verdict);
        let fixed = wording::fixed_part(study, verdict);
        let fixed = if fixed.is_empty() { String::new() } else { format!(", {}", fixed.join(", ")) };
        format!("{ours} / {theirs}{fixed}")
    };
    let series: Vec<Series> = alike
        .iter()
        .enumerate()
        .map(|(i, (verdict, points))| Series {
            name: name(verdict),
            style: if own_styles { study.styles.style(&verdict.variant) } else { study.styles.unassigned(i) },
            points: points.clone(),
        })
        .collect();
    let x_scale = study
        .head
        .charts
        .iter()
        .find(|chart| chart.x.as_deref() == Some(by))
        .map_or(Scale::Log, |chart| chart.x_scale);
    let papers = paper_lines(study, PointsAre::Ratios);
    let format_x = in_unit(number::unit_in_name(by));
    let says_y = |value: f64| format!("{}\u{d7}", number::plain(value));
    let describe = |s: &Series| {
        let at = |p: &Point| Some(format!("{} at {}", wording::times_sign(p.middle?), format_x(p.x)));
        format!("{}: {}", s.name, s.points.iter().filter_map(at).collect::<Vec<_>>().join(", "))
    };
    let description = series.iter().map(describe).collect::<Vec<_>>().join("; ");
    let figure = alike.first().map(|(verdict, _)| study.label(&verdict.figure)).unwrap_or_default();
    let title = format!("Compared run by run: ratio of {figure}");
    let lines = LineSeries {
        id,
        title: &title,
        description: &description,
        series: &series,
        x_label: &study.label(by),
        y_label: "",
        x_scale,
        y_scale: Scale::Log,
        format_x: &format_x,
        says_y: &says_y,
        reference: Some((1.0, "no difference")),
        paper: &papers,
        x_also: &[],
        y_also: &[],
        small: false,
    };
    let paper = study.head.paper.as_ref().filter(|_| !papers.is_empty());
    let note = paper.map(|paper| paper.points_note.as_deref().unwrap_or_default());
    RatiosFigure { title: &title, drawings: line::draw(&lines, ViewPort::Folded), note }.to_string()
}

#[derive(Template)]
#[template(path = "ratios.html")]
struct RatiosFigure<'a> {
    title: &'a str,
    drawings: String,
    /// The note on the paper's ratios, if they are drawn.
    note: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    #[test]
    fn a_logarithmic_axis_is_shared_with_near_values_and_with_panels_of_the_same_variants() {
        let chart = |variant: &str, members: u32| Chart {
            kind: ChartKind::Line,
            x: Some("members".into()),
            y: vec!["latency_us".into()],
            y_scale: Scale::Log,
            variants: vec![variant.to_owned()],
            only: [("members".to_owned(), members.into())].into(),
            ..Chart::default()
        };
        let points = [("a", 2, 10.0), ("near", 2, 40.0), ("far", 2, 900.0), ("a", 64, 5_000.0)];
        let charts = points.map(|(variant, members, _)| chart(variant, members)).to_vec();
        let head = StudyLine { study: "s".into(), charts, ..StudyLine::default() };
        let run = |(variant, members, value): (&str, u32, f64)| RunLine {
            study: "s".into(),
            variant: variant.into(),
            parameters: [("members".to_owned(), members.into())].into(),
            figures: vec![Figure::new("latency_us", value, "us")],
            ..RunLine::default()
        };
        let mut lines = vec![Line::Study(Box::new(head))];
        lines.extend(points.map(|point| Line::Run(Box::new(run(point)))));
        let studies = crate::study::studies(&lines);
        let study = &studies[0];
        let shared = |at: usize| {
            let (chart, shown) = (&study.head.charts[at], ChartVisibility::Folded);
            ChartDrawing { study, chart, rows: &[], id: "", shown }.neighbouring_values("latency_us")
        };
        assert_eq!(shared(0), [40.0, 5_000.0], "the values of `far` would leave a decade empty");
        assert_eq!(shared(2), Vec::<f64>::new());
    }
}
