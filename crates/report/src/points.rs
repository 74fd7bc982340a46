//! The points of a line: a figure at each value of a parameter, or the curve that each run recorded.

use crate::draw::line::Point;
use crate::study::ChartRow;
use unisono_measure::quantile;

/// Returns a figure at each value of a parameter.
pub(crate) fn swept(row: &ChartRow<'_>, x: &str, figure: &str) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for run in &row.runs {
        let place = run.parameters.get(x).and_then(serde_json::Value::as_f64).filter(|v| v.is_finite());
        let Some((place, value)) = place.zip(run.value(figure)) else { continue };
        match points.iter_mut().find(|point| point.x == place) {
            Some(point) => point.runs.push(value),
            None => points.push(Point { x: place, runs: vec![value], band: None, middle: None }),
        }
    }
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

/// Merges the runs' curves of a figure over `x`: the nth point lies at the median x of the runs' nth points.
pub(crate) fn curve(row: &ChartRow<'_>, x: &str, figure: &str) -> Vec<Point> {
    let curves: Vec<&[(f64, f64)]> = row.runs.iter().filter_map(|run| run.curve(figure, x)).collect();
    let longest = curves.iter().map(|curve| curve.len()).max().unwrap_or(0);
    let point = |at: usize| {
        let here = curves.iter().filter_map(|curve| curve.get(at));
        let here = here.filter(|(place, value)| place.is_finite() && value.is_finite());
        let (places, runs): (Vec<f64>, Vec<f64>) = here.copied().unzip();
        Some(Point { x: quantile::median(&places)?, runs, band: None, middle: None })
    };
    let mut points: Vec<Point> = (0..longest).filter_map(point).collect();
    // records written by other programs may be unordered
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Chart, ChartKind, Figure, Line, RunLine, StudyLine};

    #[test]
    fn curves_of_several_runs_are_one_whose_places_are_medians() {
        let chart = Chart {
            kind: ChartKind::Line,
            x: Some("elapsed_s".into()),
            y: vec!["received_mb".into()],
            ..Chart::default()
        };
        let head = StudyLine { study: "s".into(), charts: vec![chart.clone()], ..StudyLine::default() };
        let mut lines = vec![Line::Study(Box::new(head))];
        lines.extend([(1.0, 10.0), (3.0, 10.0), (2.0, 16.0)].map(|point| {
            let figure =
                Figure::new("received_mb", 35.0, "MB").with_curve("elapsed_s", vec![(0.0, 0.0), point]);
            let run = RunLine { study: "s".into(), variant: "tcp".into(), ..RunLine::default() };
            Line::Run(Box::new(RunLine { figures: vec![figure], ..run }))
        }));
        let studies = crate::study::studies(&lines);
        let rows = studies[0].rows(&chart, chart.x.as_deref());
        let points = curve(&rows[0], "elapsed_s", "received_mb");
        let points: Vec<(f64, &[f64])> =
            points.iter().map(|point| (point.x, point.runs.as_slice())).collect();
        assert_eq!(points, [(0.0, &[0.0; 3][..]), (2.0, &[10.0, 10.0, 16.0])]);
        assert!(curve(&rows[0], "after_ms", "received_mb").is_empty(), "another axis");
        let page =
            crate::chart_figure::html(&studies[0], &chart, 0, crate::chart_figure::ChartVisibility::Open);
        assert_eq!(page.matches("</td></tr>").count(), 2, "a row of numbers for each point: {page}");
    }
}
