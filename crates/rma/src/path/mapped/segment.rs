//! Memory that all members of a job map: for a window, and for the job's own barrier.
//!
//! The idea: rank 0 makes a segment and sends its path to the others, and all members map it. Then rank 0
//! closes the descriptor. The mappings keep the segment, so a job may have more windows than a process may
//! have descriptors. The segment disappears with the last process that maps it. If one member fails, all get
//! an error ([`agreed`]) with the kernel's reason.
//!
//! ```text
//!   rank 0   makes it, gathers its path      maps it     gathers outcomes       closes the descriptor
//!   others                      gather       open it, map it, close   gather
//! ```
//! Cost: two gathers; one descriptor at each member between them. When not to use: for memory that a process
//! finds later. Reference: memfd_create(2), mmap(2).

use crate::host::{HostMembers, create, open};
use crate::model::{Error, Rank};
use crate::path::message::MessageEngine;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use unisono_sync::Lines;

/// A member's attempt to map the memory.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The mapping, or the error.
    pub(crate) lines: Result<Lines, Error>,
    /// Rank 0's descriptor. The others open the segment through it, so rank 0 keeps it until they have mapped
    /// it.
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Segment {
    /// Makes a segment of `bytes` bytes at rank 0, which calls `prepare` with it; all members map it.
    /// Collective. The caller gathers [`outcome`] to find out whether all members have mapped it.
    pub(crate) fn share(
        host: &HostMembers,
        shared: &MessageEngine,
        bytes: usize,
        prepare: impl FnOnce(&Lines),
    ) -> Result<Self, Error> {
        if host.rank != Rank(0) {
            let paths = shared.gather(&[])?;
            return Ok(Self { lines: map(&paths[0], bytes), descriptor: None });
        }
        let (path, lines, descriptor) = match create(bytes) {
            Ok(memory) => {
                let (path, (mapping, descriptor)) = (memory.path(), memory.into_parts());
                let lines = Lines::in_mapping(mapping);
                prepare(&lines);
                (path, Ok(lines), Some(descriptor))
            }
            Err(error) => (PathBuf::new(), Err(error), None),
        };
        shared.gather(path.as_os_str().as_bytes())?;
        Ok(Self { lines, descriptor })
    }
}

fn map(path: &[u8], bytes: usize) -> Result<Lines, Error> {
    if path.is_empty() {
        return Err(Error::Job("rank 0 could not make the memory; see its error".to_owned()));
    }
    let memory = open(Path::new(std::ffi::OsStr::from_bytes(path)))?;
    if memory.len() < bytes {
        return Err(Error::Job("the memory that rank 0 made has another size; use one version".to_owned()));
    }
    let (mapping, _) = memory.into_parts();
    Ok(Lines::in_mapping(mapping))
}

/// Encodes the outcome of a member's attempt for the others: 0 for success, the errno of its failure, or
/// [`OTHER`].
pub(crate) fn outcome<T>(attempt: &Result<T, Error>) -> u32 {
    match attempt {
        Ok(_) => 0,
        Err(Error::System { source, .. } | Error::Exhausted { source, .. }) => {
            source.raw_os_error().and_then(|number| u32::try_from(number).ok()).unwrap_or(OTHER)
        }
        Err(_) => OTHER,
    }
}

/// A failure without an errno.
const OTHER: u32 = u32::MAX;

/// Returns this member's attempt, if all attempts succeeded. Otherwise returns the error of the first rank
/// that failed, with the error class that it has at that rank.
pub(crate) fn agreed<T>(
    host: &HostMembers,
    mine: Result<T, Error>,
    outcomes: impl Iterator<Item = u32>,
    doing: &str,
) -> Result<T, Error> {
    let Some((rank, code)) = outcomes.enumerate().find(|(_, code)| *code != 0) else { return mine };
    let theirs = match i32::try_from(code) {
        Ok(number) => {
            let reason = std::io::Error::from_raw_os_error(number);
            Error::system(format!("rank {rank} cannot {doing}"))(reason)
        }
        Err(_) => Error::Job(format!("rank {rank} cannot {doing}; see its error")),
    };
    Err(mine.err().filter(|_| rank == host.rank.index()).unwrap_or(theirs))
}
