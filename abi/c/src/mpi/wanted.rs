//! The user's choice of statistics when MPI ends: tables (`UNISONO_MPI_STATS`), a file
//! (`UNISONO_MPI_STATS_JSON`), or none.

use std::path::PathBuf;
use std::sync::LazyLock;

/// Returns the path of the file that gets the statistics as JSON.
pub(super) fn json_file() -> Option<PathBuf> {
    std::env::var_os("UNISONO_MPI_STATS_JSON").filter(|file| !file.is_empty()).map(PathBuf::from)
}

pub(super) fn is_table_wanted() -> bool {
    std::env::var_os("UNISONO_MPI_STATS").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Whether the user asked for the tables or the file.
pub(super) fn is_wanted() -> bool {
    static WANTED: LazyLock<bool> = LazyLock::new(|| is_table_wanted() || json_file().is_some());
    *WANTED
}
