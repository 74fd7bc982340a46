//! The columns of a table of subscribers, by the names in its first line.
//!
//! A name that is not known is an error, because a limit under a misspelt name would be lost. Columns of
//! LibreQoS's `ShapedDevices.csv` that say nothing about classes are known, and ignored; so are remarks.

use super::error::{Mistake, wrong};
use unisono_text::nearest;

/// The columns that the rates are read from if a table has columns for both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RateColumns {
    #[default]
    Download,
    Upload,
}

/// The columns that are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TableColumn {
    Name,
    Addresses,
    Minimum,
    Ceiling,
    Parent,
}

/// The names of columns, as messages write them, and the content of each; `None` for ignored columns.
const COLUMNS: [(&str, Option<TableColumn>); 21] = [
    ("Name", Some(TableColumn::Name)),
    ("Addresses", Some(TableColumn::Addresses)),
    ("Rate", Some(TableColumn::Minimum)),
    ("Ceiling", Some(TableColumn::Ceiling)),
    ("Parent", Some(TableColumn::Parent)),
    ("Comment", None),
    ("Note", None),
    ("Guaranteed", Some(TableColumn::Minimum)),
    ("Address", Some(TableColumn::Addresses)),
    ("IP", Some(TableColumn::Addresses)),
    // LibreQoS
    ("Circuit ID", Some(TableColumn::Name)),
    ("Circuit Name", None),
    ("Device ID", None),
    ("Device Name", None),
    ("Parent Node", Some(TableColumn::Parent)),
    ("Parent Node ID", None),
    ("MAC", None),
    ("IPv4", Some(TableColumn::Addresses)),
    ("IPv6", Some(TableColumn::Addresses)),
    ("SQM", None),
    ("Circuit SQM", None),
];
/// The number of [`COLUMNS`] that an error lists if no name is near.
const LISTED: usize = 6;
/// The rates of a direction: at least, and at most.
const RATES: [(&str, TableColumn); 4] = [
    ("Min Mbps", TableColumn::Minimum),
    ("Max Mbps", TableColumn::Ceiling),
    ("Min", TableColumn::Minimum),
    ("Max", TableColumn::Ceiling),
];
const DIRECTIONS: [(&str, RateColumns); 2] =
    [("Download", RateColumns::Download), ("Upload", RateColumns::Upload)];

/// Returns the content of each column of a table with this first line; `None` for columns that are ignored.
/// Fails if a column is not known, is there twice, or is missing.
pub(super) fn columns(
    at: usize,
    head: &[(usize, String)],
    rates: RateColumns,
) -> Result<Vec<Option<TableColumn>>, Mistake> {
    if let [(at, only)] = head {
        for (separator, name) in [(';', "semicolons"), ('\t', "tabs")] {
            if only.contains(separator) {
                let what = format!(
                    "the columns are separated by {name}; separate them by commas, as in Name,Addresses,Rate,Ceiling,Parent"
                );
                return wrong(*at, what);
            }
        }
    }
    let mut columns = Vec::new();
    for (at, name) in head {
        let column = named(*at, name, rates)?;
        if column.is_some_and(|column| column != TableColumn::Addresses) && columns.contains(&column) {
            return wrong(*at, format!("`{}` repeats an earlier column; leave one of them out", name.trim()));
        }
        columns.push(column);
    }
    for (column, name) in [(TableColumn::Name, "Name"), (TableColumn::Addresses, "Addresses")] {
        if !columns.contains(&Some(column)) {
            let present: Vec<&str> = head.iter().map(|(_, name)| name.trim()).collect();
            return wrong(at, format!("there is no column `{name}`; the table has {}", present.join(", ")));
        }
    }
    Ok(columns)
}

/// Returns the content of the column of this name.
fn named(at: usize, name: &str, rates: RateColumns) -> Result<Option<TableColumn>, Mistake> {
    let word = |name: &str| name.trim().to_ascii_lowercase().replace('_', " ");
    let directed = DIRECTIONS.iter().flat_map(|(direction, of)| {
        RATES.map(|(rate, column)| (format!("{direction} {rate}"), Some(column).filter(|_| *of == rates)))
    });
    let known: Vec<(String, Option<TableColumn>)> =
        COLUMNS.map(|(name, column)| (name.to_owned(), column)).into_iter().chain(directed).collect();
    let wanted = word(name);
    if let Some((_, column)) = known.iter().find(|(name, _)| word(name) == wanted) {
        return Ok(*column);
    }
    let words: Vec<String> = known.iter().map(|(name, _)| word(name)).collect();
    let near = nearest(&wanted, words.iter().map(String::as_str));
    let near = known.iter().find(|(name, _)| near == Some(word(name).as_str()));
    let advice = near.map_or_else(
        || {
            let listed: Vec<&str> = COLUMNS.iter().take(LISTED).map(|(name, _)| *name).collect();
            let [(download, _), ..] = DIRECTIONS;
            format!(
                "expected one of {}, or a column of LibreQoS, such as {download} {}",
                listed.join(", "),
                RATES[1].0
            )
        },
        |(name, _)| format!("did you mean `{name}`?"),
    );
    wrong(at, format!("unknown column `{}`; {advice}", name.trim()))
}
