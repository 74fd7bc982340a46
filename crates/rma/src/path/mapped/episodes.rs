//! Barrier episodes of a job's members, for fences and for the job's own barrier.
//!
//! The idea: where memory is shared a barrier needs no messages ([`unisono_barrier`]); what a job adds is its
//! hook, its progress, and its word on who was gone first. Cost: that of the episode; where the message path
//! has windows, a look at the packets every so often. When not to use: between hosts.

use super::segment::{Segment, agreed, outcome};
use crate::host::Host;
use crate::model::{Error, Rank};
use crate::path::message::{MessageEngine, Serving};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use unisono_barrier::{Cause, Group, Participant, RecommendedLoad, Spec, recommended};
use unisono_linux::clock::Nanos;
use unisono_sync::{Line, Lines, Waited};

/// How long one waits between two looks at packets that others may need served.
const SERVING: Nanos = Nanos(200_000);

/// One member's end.
#[derive(Debug)]
pub(crate) struct Episodes {
    host: Arc<Host>,
    shared: Arc<MessageEngine>,
    participant: Participant,
}

impl Episodes {
    pub(crate) fn new(host: &Arc<Host>, shared: &Arc<MessageEngine>, participant: Participant) -> Self {
        Self { host: Arc::clone(host), shared: Arc::clone(shared), participant }
    }

    /// Makes a group of the job's members; collective.
    pub(crate) fn make(host: &Arc<Host>, shared: &Arc<MessageEngine>) -> Result<Self, Error> {
        let spec = spec(host)?;
        let bytes = spec.lines() * size_of::<Line>();
        let prepare = |lines: &Lines| drop(spec.for_processes_in(lines));
        let Segment { lines, descriptor } = Segment::share(host, shared, bytes, prepare)?;
        let joined = lines.and_then(|lines| join(host, &lines));
        let all = shared.gather(&outcome(&joined).to_le_bytes())?;
        drop(descriptor);
        let outcomes =
            all.iter().map(|told| told.first_chunk().map_or(u32::MAX, |code| u32::from_le_bytes(*code)));
        let participant = agreed(host, joined, outcomes, "join the job's barrier")?;
        Ok(Self::new(host, shared, participant))
    }

    /// How long this member has waited here.
    pub(crate) fn waited(&self) -> Waited {
        self.participant.waited()
    }

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

    /// Between two pieces of a wait, each too short for the barrier to find out who died. Who has left has
    /// met everybody before: only the barrier knows whether this member is still to hear of it.
    #[cold]
    fn look_around(&self) -> Result<(), Error> {
        self.host.who_died().map_or(Ok(()), |gone| Err(gone.into()))
    }

    /// A barrier's error as this crate's. Who died is declared to the job, whose word on who was first
    /// counts: those who wait elsewhere are to name the same one.
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

/// A barrier for the members of a job; all compute the same.
pub(crate) fn spec(host: &Host) -> Result<Spec, Error> {
    let algorithm = recommended(host.size, host.processors, RecommendedLoad::Unknown).algorithm;
    Spec::new(host.size).map(|spec| spec.algorithm(algorithm)).map_err(refused)
}

/// Takes this member's place in the barrier that rank 0 has made in the first lines of a segment.
pub(crate) fn join(host: &Host, lines: &Lines) -> Result<Participant, Error> {
    let group = Group::open_in(lines.clone(), Path::new("the job's memory")).map_err(refused)?;
    group.participant(host.rank.index()).map_err(refused)
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
