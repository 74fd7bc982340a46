//! Limits of this process, of open descriptors and of real-time priorities: getrlimit(2), setrlimit(2).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the limit of open descriptors as far as this process may, at most to `wanted`; returns the
/// resulting limit.
pub fn raise_open_files(wanted: u64) -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    // no number means no limit
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return Ok(current);
    }
    if crate::process::is_root() {
        let maximum = limit.maximum.map(|max| max.max(wanted));
        // fails without CAP_SYS_RESOURCE, and beyond fs.nr_open: then the rule for other users applies to
        // root, too
        if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok() {
            return Ok(wanted);
        }
    }
    let may = limit.maximum.map_or(wanted, |max| wanted.min(max));
    setrlimit(Resource::Nofile, Rlimit { current: Some(may), ..limit })?;
    Ok(may)
}

/// Lets this process put its threads into the real-time classes at its least urgent priority, even after it
/// has given up its privileges (`RLIMIT_RTPRIO`). Fails with `EPERM` without `CAP_SYS_RESOURCE`.
pub fn allow_least_real_time() -> io::Result<()> {
    Ok(setrlimit(Resource::Rtprio, Rlimit { current: Some(1), maximum: Some(1) })?)
}
