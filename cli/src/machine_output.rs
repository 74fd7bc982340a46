//! Output for other programs: JSON objects that name their format, and tables as comma-separated values.
//! `docs/output.schema.json` describes each format under its name.

use crate::output;
use serde::Serialize;
use serde_json::Value;

#[derive(clap::Args)]
pub(crate) struct CsvFlag {
    /// Print the table once, as comma-separated values (RFC 4180); the columns have the names of the JSON's
    /// keys
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

/// Formats an object as JSON in one line. The first key, `format`, names the format and ends in its version
/// number. That number increases when a key is removed or changes its meaning; a new key does not change it.
pub(crate) fn json(format: &str, object: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(&named(format, object))
}

/// Formats an object as [`json`] does, but on several lines, for files that people also read.
pub(crate) fn pretty_json(format: &str, object: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&named(format, object))
}

fn named<'a, T: Serialize>(format: &'a str, object: &'a T) -> impl Serialize + use<'a, T> {
    #[derive(Serialize)]
    struct Named<'a, T> {
        format: &'a str,
        #[serde(flatten)]
        object: &'a T,
    }
    Named { format, object }
}

/// The form of an answer with a table.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum TableForm {
    /// Words and columns, for people.
    Text,
    Json,
    /// The table alone, as comma-separated values.
    Csv,
}

impl TableForm {
    pub(crate) fn chosen(json: bool, csv: bool) -> Self {
        match (json, csv) {
            (true, _) => TableForm::Json,
            (_, true) => TableForm::Csv,
            _ => TableForm::Text,
        }
    }

    /// Prints an answer in this form: `object` as JSON of this format, `rows` as comma-separated values, or
    /// `text`.
    pub(crate) fn answer(
        self,
        format: &str,
        object: &impl Serialize,
        rows: &[impl Serialize],
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        Ok(output::answer(&match self {
            TableForm::Json => json(format, object)?,
            TableForm::Csv => csv(rows)?,
            TableForm::Text => text().trim_end().to_owned(),
        })?)
    }
}

/// Formats objects as comma-separated values, with a column for each key, in the order of first appearance. A
/// key of an inner object becomes the column `outer.inner`; lists are written as JSON.
pub(crate) fn csv(rows: &[impl Serialize]) -> serde_json::Result<String> {
    let row = |row| Ok(cells(&serde_json::to_value(row)?));
    let rows: Vec<Vec<(String, String)>> = rows.iter().map(row).collect::<serde_json::Result<_>>()?;
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    // if a key such as `delay` is null in one row and an object in another, only the columns of the object
    // remain
    let outer = |name: &str| columns.iter().any(|other| other.starts_with(&format!("{name}.")));
    let columns: Vec<&str> = columns.iter().copied().filter(|name| !outer(name)).collect();
    let line = |cells: Vec<&str>| cells.into_iter().map(quoted).collect::<Vec<_>>().join(",");
    let row = |row: &Vec<(String, String)>| {
        let cell = |column: &&str| row.iter().find(|(name, _)| name == column).map_or("", |(_, cell)| cell);
        line(columns.iter().map(cell).collect())
    };
    Ok([line(columns.clone())].into_iter().chain(rows.iter().map(row)).collect::<Vec<_>>().join("\n"))
}

/// Returns the cells of an object, each with the name of its column.
fn cells(object: &Value) -> Vec<(String, String)> {
    let mut cells = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => {
                cells.extend(
                    self::cells(value).into_iter().map(|(inner, cell)| (format!("{name}.{inner}"), cell)),
                );
            }
            Value::Null => cells.push((name.clone(), String::new())),
            Value::String(text) => cells.push((name.clone(), text.clone())),
            other => cells.push((name.clone(), other.to_string())),
        }
    }
    cells
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", cell.replace('"', "\"\""));
    }
    cell.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_format_is_the_first_key_and_only_objects_have_one() {
        assert_eq!(super::json("a-1", &json!({"b": 2})).expect("an object"), r#"{"format":"a-1","b":2}"#);
        assert!(super::json("a-1", &json!([1])).is_err());
    }

    #[test]
    fn a_table_has_a_column_for_each_key_and_quotes_what_would_break_it() {
        let rows = [
            json!({"name": "a, \"b\"", "n": 3, "delay": null, "late": [1, 2]}),
            json!({"name": "c", "delay": {"p99": 0.5, "max": 7}, "found": true}),
        ];
        let table = "name,n,late,delay.p99,delay.max,found\n\"a, \"\"b\"\"\",3,\"[1,2]\",,,\nc,,,0.5,7,true";
        assert_eq!(csv(&rows).expect("objects"), table);
        assert_eq!(csv(&[(); 0]).expect("no object"), "");
    }
}
