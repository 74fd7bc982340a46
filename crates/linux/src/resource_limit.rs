//! How many descriptors this process may have open: getrlimit(2), setrlimit(2).

use std::io;

/// Allows this process as many open descriptors as it may allow itself, at most `wanted`; answers how many it
/// may now have.
///
/// # Errors
/// The kernel refuses.
pub fn raise_open_files(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur >= wanted {
        return Ok(limit.rlim_cur);
    }
    if crate::process::is_root() {
        limit.rlim_max = limit.rlim_max.max(wanted); // root may, up to fs.nr_open
    }
    limit.rlim_cur = wanted.min(limit.rlim_max);
    // SAFETY: `limit` is valid for reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit.rlim_cur)
}
