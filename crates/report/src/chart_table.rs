//! The numbers of a chart, as the rows of its table.

use crate::draw::axis::in_unit;
use crate::number;
use crate::points::curve;
use crate::study::{ChartRow, Study};
use unisono_measure::modes::two_modes;
use unisono_measure::quantile;
use unisono_measure::record::{Chart, RunLine};

/// The numbers of one row of a chart (of one point, for lines), for one figure.
pub(crate) struct NumbersRow {
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) figure: String,
    pub(crate) n: usize,
    /// The median and all runs, or why there are none.
    pub(crate) values: Result<[String; 2], String>,
}

pub(crate) fn numbers(
    study: &Study<'_>,
    chart: &Chart,
    rows: &[ChartRow<'_>],
    x: Option<&str>,
) -> Vec<NumbersRow> {
    let mut numbers = Vec::new();
    for (row, figure) in rows.iter().flat_map(|row| chart.y.iter().map(move |figure| (row, figure))) {
        let (Some(x), format_value) = (x, in_unit(&study.unit(figure))) else { break };
        let format_x = in_unit(number::unit_in_name(x));
        numbers.extend(curve(row, x, figure).into_iter().map(|point| NumbersRow {
            name: row.name.clone(),
            place: format_x(point.x),
            figure: study.label(figure),
            n: point.runs.len(),
            values: in_numbers(&point.runs, &format_value).ok_or_else(String::new),
        }));
    }
    if !numbers.is_empty() {
        return numbers;
    }
    for row in rows {
        for (place, runs) in places(row, x) {
            for figure in &chart.y {
                let values: Vec<f64> = runs.iter().filter_map(|run| run.value(figure)).collect();
                let place = x.zip(place).map(|(x, place)| study.parameter(x, place));
                numbers.push(NumbersRow {
                    name: row.name.clone(),
                    place: place.unwrap_or_default(),
                    figure: study.label(figure),
                    n: values.len(),
                    values: in_numbers(&values, &in_unit(&study.unit(figure)))
                        .ok_or_else(|| row.note().unwrap_or_else(|| "no runs".to_owned())),
                });
            }
        }
    }
    numbers
}

fn in_numbers(values: &[f64], format_value: &dyn Fn(f64) -> String) -> Option<[String; 2]> {
    let median = quantile::median(values)?;
    let mut all = values.iter().map(|v| format_value(*v)).collect::<Vec<_>>().join(", ");
    if two_modes(values).is_some() {
        all += " (two modes)";
    }
    Some([format_value(median), all])
}

/// Returns the runs of a row, grouped by their position on the x axis.
pub(crate) fn places<'a>(
    row: &'a ChartRow<'a>,
    x: Option<&str>,
) -> Vec<(Option<&'a serde_json::Value>, Vec<&'a RunLine>)> {
    let mut places: Vec<(Option<&serde_json::Value>, Vec<_>)> = Vec::new();
    for run in &row.runs {
        let place = x.and_then(|x| run.parameters.get(x));
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, runs)) => runs.push(*run),
            None => places.push((place, vec![*run])),
        }
    }
    places.sort_by(|a, b| {
        let number =
            |v: &Option<&serde_json::Value>| v.and_then(serde_json::Value::as_f64).unwrap_or(f64::MIN);
        number(&a.0).total_cmp(&number(&b.0))
    });
    places
}
