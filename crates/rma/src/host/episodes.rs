//! Barrier episodes of a job's members, for fences and for the job's own barrier.
//!
//! The idea: where memory is shared a barrier needs no messages ([`unisono_barrier`]); what a job adds is its hook,
//! its progress, and its word on who was gone first. Cost: that of the episode; where the message path has windows,
//! a look at the packets every so often. When not to use: between hosts.

use super::Host;
use crate::error::Error;
use crate::message::Shared;
use crate::rank::Rank;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use unisono_barrier::{Cause, Group, Load, Participant, recommended};
use unisono_linux::clock::Nanos;
use unisono_sync::Waited;

/// How long one waits between two looks at packets that others may need served.
const SERVING: Nanos = Nanos(200_000);

/// One member's end.
#[derive(Debug)]
pub(crate) struct Episodes {
    host: Arc<Host>,
    shared: Arc<Shared>,
    participant: Participant,
}

/// Whether packets have to be served meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    Needed,
    Unneeded,
}

impl Episodes {
    pub(crate) fn new(host: &Arc<Host>, shared: &Arc<Shared>, participant: Participant) -> Self {
        Self { host: Arc::clone(host), shared: Arc::clone(shared), participant }
    }

    /// Makes a group of the job's members; collective.
    pub(crate) fn make(host: &Arc<Host>, shared: &Arc<Shared>) -> Result<Self, Error> {
        let first = if host.rank == Rank(0) { Some(group(host)) } else { None };
        let announced = first.as_ref().and_then(|made| made.as_ref().ok()).map(path).unwrap_or_default();
        let paths = shared.gather(&announced)?;
        let made = match first {
            Some(made) => made,
            None if paths[0].is_empty() => {
                Err(Error::Job("rank 0 could not make the job's barrier; see its error".to_owned()))
            }
            None => Group::open(Path::new(&*String::from_utf8_lossy(&paths[0]))).map_err(refused),
        };
        let joined = made.and_then(|group| group.participant(host.rank.index()).map_err(refused));
        // Rank 0 keeps the group open until all have it.
        let all = shared.gather(&[u8::from(joined.is_ok())])?;
        let participant = joined?;
        match all.iter().position(|answer| answer != &[1]) {
            Some(rank) => {
                Err(Error::Job(format!("rank {rank} could not join the job's barrier; see its error")))
            }
            None => Ok(Self::new(host, shared, participant)),
        }
    }

    /// How long this member has waited here.
    pub(crate) fn waited(&self) -> Waited {
        self.participant.waited()
    }

    /// One episode.
    #[inline]
    pub(crate) fn meet(&mut self, serving: Serving) -> Result<(), Error> {
        let mut pause = match (self.shared.hook.first(), serving) {
            (None, Serving::Unneeded) => {
                return self.participant.wait().map(drop).map_err(|error| self.stopped(error));
            }
            (pause, Serving::Unneeded) => pause.unwrap_or(SERVING),
            (pause, Serving::Needed) => pause.unwrap_or(SERVING).min(SERVING),
        };
        loop {
            match self.participant.wait_timeout(Duration::from(pause)) {
                Ok(_) => return Ok(()),
                Err(unisono_barrier::Error::TimedOut { .. }) if serving == Serving::Needed => {
                    pause = self.shared.hook.call().map_or(SERVING, |soon| soon.min(SERVING));
                    self.shared.core().progress()?;
                    self.look_around()?;
                }
                Err(unisono_barrier::Error::TimedOut { .. }) => {
                    pause = self.shared.hook.call_due().unwrap_or(pause);
                    self.look_around()?;
                }
                Err(error) => return Err(self.stopped(error)),
            }
        }
    }

    /// Between two pieces of a wait, each too short for the barrier to find out who died. Who has left has met everybody
    /// before: only the barrier knows whether this member is still to hear of it.
    #[cold]
    fn look_around(&self) -> Result<(), Error> {
        self.host.who_died().map_or(Ok(()), |gone| Err(gone.into()))
    }

    /// A barrier's error as this crate's. Who died is declared to the job, whose word on who was first counts: those who
    /// wait elsewhere are to name the same one.
    #[cold]
    fn stopped(&self, error: unisono_barrier::Error) -> Error {
        if let unisono_barrier::Error::Gone(gone) = &error {
            if gone.cause == Cause::Died {
                self.host.died(Rank::at(gone.participant));
            }
            if let Some(first) = self.host.who_is_gone() {
                return first.into();
            }
        }
        refused(error)
    }
}

/// A group for the members of a job.
pub(crate) fn group(host: &Host) -> Result<Group, Error> {
    let algorithm = recommended(host.size, host.processors, Load::Unknown).algorithm;
    unisono_barrier::Spec::new(host.size)
        .and_then(|spec| spec.algorithm(algorithm).for_processes())
        .map_err(refused)
}

/// Where others find it.
pub(crate) fn path(group: &Group) -> Vec<u8> {
    // Made for processes just now, so that it has one.
    group.path().map_or_else(Vec::new, |path| path.into_os_string().into_encoded_bytes())
}

/// A barrier's error as this crate's.
pub(crate) fn refused(error: unisono_barrier::Error) -> Error {
    match error {
        unisono_barrier::Error::Gone(gone) => {
            Error::Gone { rank: Rank::at(gone.participant), why: gone.to_string() }
        }
        other => Error::Job(other.to_string()),
    }
}
