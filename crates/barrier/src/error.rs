//! The errors of a group, and the members that they name.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A member is gone, and the episode can never complete. The error is final: every later wait fails with
    /// it.
    #[error("{0}: the barrier cannot complete; start the group anew without it")]
    Gone(GoneMember),
    /// The deadline passed. The arrival still counts: wait again to resume the same episode.
    #[error("timed out in episode {episode} of the barrier; wait again to resume it")]
    TimedOut { episode: u32 },
    #[error("a barrier needs at least one participant")]
    NoParticipants,
    /// The group is larger than [`GroupSpec::MAX_PARTICIPANTS`](crate::GroupSpec::MAX_PARTICIPANTS), or has
    /// no place left.
    #[error("{wanted} participants are too many: at most {max}")]
    TooMany { wanted: usize, max: usize },
    /// There is no such place in the group.
    #[error("participant {id} does not exist: the group has places 0 to {}", capacity - 1)]
    NoSuchPlace { id: usize, capacity: usize },
    /// Another participant has, or had, this place.
    #[error("participant {id} is taken{}: each place is for one, once", by_process(*.process))]
    Taken {
        id: usize,
        /// The process of that participant, or 0 if unknown.
        process: u32,
    },
    #[error("all participants have left: create a new group")]
    Disbanded,
    /// Shared memory could not be created or mapped.
    #[error("cannot map the barrier's shared memory{}: {source}", at(path.as_ref()))]
    SharedMemory {
        /// The region's path, if it was being opened.
        path: Option<PathBuf>,
        source: io::Error,
    },
    #[error("{path}: not a barrier of this version of unisono ({what}); create it with the same version")]
    NotABarrier { path: PathBuf, what: String },
    /// The creator relies on membarrier(2), and this process may not use it.
    #[error("membarrier is refused here ({0}), but the group's creator uses it: create the group here")]
    NoMembarrier(io::Error),
}

/// A member that the others cannot wait for any more.
///
/// ```
/// use unisono_barrier::{Cause, Error, GroupSpec};
///
/// let group = GroupSpec::new(2)?.for_threads()?;
/// let (mut staying, dropped) = (group.participant(0)?, group.participant(1)?);
/// drop(dropped); // without `leave`: the barrier can never complete
/// match staying.wait() {
///     Err(Error::Gone(member)) => assert_eq!((member.participant, member.cause), (1, Cause::Left)),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GoneMember {
    /// The member's place in the group.
    pub participant: usize,
    pub process: u32,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    Panicked,
    /// The participant was dropped without [`leave`](crate::Participant::leave).
    Left,
    /// The member's process ended or was killed.
    Died,
}

impl fmt::Display for GoneMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { participant, process, cause } = self;
        match cause {
            Cause::Panicked => write!(f, "participant {participant} (process {process}) panicked"),
            Cause::Left => write!(f, "participant {participant} (process {process}) left without saying so"),
            Cause::Died => write!(f, "participant {participant} (process {process}) died"),
        }
    }
}

fn by_process(process: u32) -> String {
    if process == std::process::id() || process == 0 {
        String::new()
    } else {
        format!(" by process {process}")
    }
}

fn at(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| format!(" at {}", path.display()))
}
