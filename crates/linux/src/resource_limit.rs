//! The limit of this process's open descriptors: getrlimit(2), setrlimit(2).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the limit of open descriptors as far as this process may, at most to `wanted`; returns the
/// resulting limit.
pub fn raise_open_files(wanted: u64) -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    // no number means no limit
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return Ok(current);
    }
    if crate::process::is_root() {
        limit.maximum = limit.maximum.map(|max| max.max(wanted)); // root may, up to fs.nr_open
    }
    let may = limit.maximum.map_or(wanted, |max| wanted.min(max));
    setrlimit(Resource::Nofile, Rlimit { current: Some(may), ..limit })?;
    Ok(may)
}
