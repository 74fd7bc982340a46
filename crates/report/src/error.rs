//! Why there is no report.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such file.
    #[error("{} does not exist; measure first: unisono study --out DIR", path.display())]
    Missing { path: PathBuf },
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A line is not a record.
    #[error("{}:{line}:{column}: {what}; expected a JSON object of the format unisono-record-1", path.display())]
    Bad {
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A line is a record of a format that this version does not read.
    #[error("{}:{line}: the record has the format {found:?}; this version reads unisono-record-1", path.display())]
    Format {
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The format it names.
        found: String,
    },
    /// There are no records in the file.
    #[error("{} holds no records; measure first: unisono study --out DIR", path.display())]
    Empty { path: PathBuf },
    /// The page cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}
