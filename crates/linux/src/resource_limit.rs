//! How many descriptors this process may have open: getrlimit(2), setrlimit(2).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Allows this process as many open descriptors as it may allow itself, at most `wanted`; answers how many it
/// may now have.
pub fn raise_open_files(wanted: u64) -> io::Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    // no number: without a limit
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return Ok(current);
    }
    if crate::process::is_root() {
        limit.maximum = limit.maximum.map(|most| most.max(wanted)); // root may, up to fs.nr_open
    }
    let may = limit.maximum.map_or(wanted, |most| wanted.min(most));
    setrlimit(Resource::Nofile, Rlimit { current: Some(may), ..limit })?;
    Ok(may)
}
