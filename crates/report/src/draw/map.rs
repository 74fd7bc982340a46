//! A map of ratios: a row for each variant, a column for each value of a parameter. The darker a cell, the
//! farther its ratio is from no difference; the color shows on which side.
//!
//! A map shows at a glance where a mechanism pays. Each cell also has the number, so nothing depends on color
//! alone.

use super::svg::{Anchor, Canvas, ViewPort};
use super::text::{SIZE, extra_height, width, wrap};

#[derive(Clone, Debug)]
pub(crate) struct MapRow {
    pub(crate) name: String,
    /// The median of each column; `None` if not measured.
    pub(crate) cells: Vec<Option<f64>>,
}

pub(crate) struct RatioMap<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) rows: &'a [MapRow],
    pub(crate) columns: &'a [String],
    pub(crate) x_label: &'a str,
    pub(crate) format_value: &'a dyn Fn(f64) -> String,
    /// The ratio that means no difference.
    pub(crate) even: f64,
}

const CELL: f64 = 22.0;
/// The share of a wide window that names may take; the cells need the rest for their numbers.
const NAMES: f64 = 0.42;

pub(crate) fn draw(map: &RatioMap<'_>, window: ViewPort) -> String {
    let mut canvas = Canvas::new(window);
    let phone = window != ViewPort::Wide;
    let names = map.rows.iter().map(|row| width(&row.name, SIZE)).fold(30.0, f64::max);
    let left = if phone { 0.0 } else { names.min(canvas.width() * NAMES) + 12.0 };
    let each = (canvas.width() - left) / map.columns.len().max(1) as f64;
    let centre = |column: usize| left + each * (column as f64 + 0.5);
    let heads: Vec<Vec<String>> = map.columns.iter().map(|text| wrap(text, each - 2.0, SIZE)).collect();
    for (column, lines) in heads.iter().enumerate() {
        canvas.lines("tick", (centre(column), 14.0), Anchor::Average, lines);
    }
    let mut above = 22.0 + heads.iter().map(|lines| extra_height(lines)).fold(0.0, f64::max);
    for row in map.rows {
        let name = wrap(&row.name, if phone { canvas.width() } else { left - 10.0 }, SIZE);
        if phone {
            canvas.lines("name", (0.0, above + 13.0), Anchor::Start, &name);
            above += 18.0 + extra_height(&name);
        } else {
            canvas.lines("name", (left - 10.0, above + 15.0), Anchor::End, &name);
        }
        for (column, value) in row.cells.iter().enumerate() {
            let Some(value) = value else { continue };
            let corner = (left + each * column as f64 + 1.0, above + 1.0);
            if let Some(shade) = shade(value / map.even) {
                canvas.begin(if *value < map.even { "c2" } else { "c0" });
                canvas.rect(shade, corner, (each - 2.0, CELL - 2.0));
                canvas.end();
            }
            canvas.text(
                "value",
                (centre(column), above + 15.0),
                Anchor::Average,
                &(map.format_value)(*value),
            );
        }
        above += CELL + if phone { 0.0 } else { extra_height(&name) };
    }
    let label = wrap(map.x_label, canvas.width(), SIZE);
    canvas.lines("label", (canvas.width(), above + 16.0), Anchor::End, &label);
    canvas.finish(above + 22.0 + extra_height(&label), map.id, map.title, map.description)
}

/// Returns the class of a cell: none if the ratio is below a factor of 1.1, then three classes, the darker
/// ones from a factor of 2 and of 8 on. The classes are shared with other charts and differ in how strongly
/// they fill.
fn shade(ratio: f64) -> Option<&'static str> {
    match ratio.max(1.0 / ratio) {
        far if far >= 8.0 => Some("run"),
        far if far >= 2.0 => Some("bar"),
        far if far >= 1.1 => Some("band"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_as_dark_as_its_ratio_is_far_from_one_on_either_side() {
        for (ratio, class) in [
            (1.0, None),
            (0.95, None),
            (1.5, Some("band")),
            (0.6, Some("band")),
            (2.0, Some("bar")),
            (0.2, Some("bar")),
            (40.0, Some("run")),
        ] {
            assert_eq!(shade(ratio), class, "{ratio}");
        }
    }

    #[test]
    fn a_map_has_a_number_for_each_cell_that_was_measured() {
        let rows = [
            MapRow { name: "two programs".into(), cells: vec![Some(6.9), None] },
            MapRow { name: "four programs".into(), cells: vec![Some(0.5), Some(1.0)] },
        ];
        let map = RatioMap {
            id: "map",
            title: "Map",
            description: "two rows",
            rows: &rows,
            columns: &["10 us".to_owned(), "1 ms".to_owned()],
            x_label: "interval",
            format_value: &|value| format!("{value:.1}"),
            even: 1.0,
        };
        for window in [ViewPort::Phone, ViewPort::Folded, ViewPort::Wide] {
            let drawn = draw(&map, window);
            assert_eq!(drawn.matches("class=\"value\"").count(), 3, "{drawn}");
            assert!(
                drawn.contains("<g class=\"c0\"><rect class=\"bar\"") && drawn.contains("<g class=\"c2\">")
            );
            assert!(drawn.contains(">6.9<") && drawn.contains(">1 ms<"), "{drawn}");
        }
    }
}
