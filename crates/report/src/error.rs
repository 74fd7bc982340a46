//! The reasons why there is no report.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{} does not exist; measure first: unisono study --out DIR", path.display())]
    Missing { path: PathBuf },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}:{column}: {what}; expected a JSON object of the format unisono-record-1", path.display())]
    Bad {
        path: PathBuf,
        line: usize,
        /// In bytes, from 1.
        column: usize,
        what: String,
    },
    #[error("{}:{line}: the record has the format {found:?}; this version reads unisono-record-1", path.display())]
    Format { path: PathBuf, line: usize, found: String },
    #[error("{} holds no records; measure first: unisono study --out DIR", path.display())]
    Empty { path: PathBuf },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
}
