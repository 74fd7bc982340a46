//! Barrier episodes of a job's members, for fences and for the job's own barrier.
//!
//! The idea: in shared memory a barrier needs no messages ([`unisono_barrier`]). A job adds its hook, its
//! progress, and its record of the first member that was gone. Cost: a barrier episode; if the job has
//! windows on the message path, a check for packets every [`SERVING`]. When not to use: between hosts.

use super::segment::{Segment, agreed, outcome};
use crate::host::HostMembers;
use crate::model::{Error, Rank};
use crate::path::message::{MessageEngine, PacketServing};
use std::path::Path;
use std::sync::Arc;
use unisono_barrier::{Cause, Group, GroupSpec, Participant, RecommendedLoad, recommended};
use unisono_linux::clock::Duration;
use unisono_sync::{CacheLine, Lines, Waited};

/// The time that a member waits between two checks for packets that others may need served. A packet does not
/// wake a member in a barrier, so a rank that needs the answer waits half of this time on average. Half the
/// time would double the wake-ups of all waiting members. Chosen, not measured: it matters only to jobs that
/// mix windows of both paths.
const SERVING: Duration = Duration::from_micros(200);

/// One member's end of the barrier.
#[derive(Debug)]
pub(crate) struct Episodes {
    host: Arc<HostMembers>,
    shared: Arc<MessageEngine>,
    participant: Participant,
}

impl Episodes {
    pub(crate) fn new(
        host: &Arc<HostMembers>,
        shared: &Arc<MessageEngine>,
        participant: Participant,
    ) -> Self {
        Self { host: Arc::clone(host), shared: Arc::clone(shared), participant }
    }

    /// Makes a group of the job's members; collective.
    pub(crate) fn make(host: &Arc<HostMembers>, shared: &Arc<MessageEngine>) -> Result<Self, Error> {
        let spec = spec(host)?;
        let bytes = spec.lines() * size_of::<CacheLine>();
        let prepare = |lines: &Lines| drop(spec.for_processes_in(lines));
        let Segment { lines, descriptor } = Segment::share(host, shared, bytes, prepare)?;
        let joined = lines.and_then(|lines| join(host, &lines));
        let all = shared.gather(&outcome(&joined).to_le_bytes())?;
        drop(descriptor);
        let outcomes = all
            .iter()
            .map(|published| published.first_chunk().map_or(u32::MAX, |code| u32::from_le_bytes(*code)));
        let participant = agreed(host, joined, outcomes, "join the job's barrier")?;
        Ok(Self::new(host, shared, participant))
    }

    /// Returns the time that this member has waited in this barrier.
    pub(crate) fn waited(&self) -> Waited {
        self.participant.waited()
    }

    #[inline]
    pub(crate) fn wait(&mut self, serving: PacketServing) -> Result<(), Error> {
        let mut pause = match (self.shared.hook.first_delay(), serving) {
            (None, PacketServing::Unneeded) => {
                return self.participant.wait().map(drop).map_err(|error| self.stopped(error));
            }
            (pause, PacketServing::Unneeded) => pause.unwrap_or(SERVING),
            (pause, PacketServing::Needed) => pause.unwrap_or(SERVING).min(SERVING),
        };
        loop {
            match self.participant.wait_timeout(pause.into()) {
                Ok(_) => return Ok(()),
                Err(unisono_barrier::Error::TimedOut { .. }) if serving == PacketServing::Needed => {
                    pause = self.shared.hook.call().map_or(SERVING, |soon| soon.min(SERVING));
                    self.shared.core().progress()?;
                    self.check_deaths()?;
                }
                Err(unisono_barrier::Error::TimedOut { .. }) => {
                    pause = self.shared.hook.call_due().unwrap_or(pause);
                    self.check_deaths()?;
                }
                Err(error) => return Err(self.stopped(error)),
            }
        }
    }

    /// Checks for deaths between two pieces of a wait: each piece is too short for the barrier to do so. A
    /// member that left has already passed the current episode; only the barrier knows whether this member's
    /// episode is complete.
    #[cold]
    fn check_deaths(&self) -> Result<(), Error> {
        self.host.dead_member().map_or(Ok(()), |gone| Err(gone.into()))
    }

    /// Converts a barrier's error to an error of this crate. A death is declared to the job, and the error
    /// names the member that the job knows as the first: members that wait elsewhere name the same member.
    #[cold]
    fn stopped(&self, error: unisono_barrier::Error) -> Error {
        if let unisono_barrier::Error::Gone(gone) = &error {
            if gone.cause == Cause::Died {
                self.host.died(Rank::at(gone.participant));
            }
            if let Some(first) = self.host.gone_member() {
                return first.into();
            }
        }
        refused(error)
    }
}

/// Computes the specification of the barrier for the members of a job. All members compute the same, and each
/// only once.
pub(crate) fn spec(host: &HostMembers) -> Result<GroupSpec, Error> {
    if let Some(spec) = host.barrier.get() {
        return Ok(*spec);
    }
    let algorithm = recommended(host.size, host.processors, RecommendedLoad::Unknown).algorithm;
    let spec = GroupSpec::with_algorithm(host.size, algorithm).map_err(refused)?;
    Ok(*host.barrier.get_or_init(|| spec))
}

/// Joins this member to the barrier that rank 0 has made in the first lines of a segment.
pub(crate) fn join(host: &HostMembers, lines: &Lines) -> Result<Participant, Error> {
    let group = Group::open_in(lines.clone(), Path::new("the job's memory")).map_err(refused)?;
    group.participant(host.rank.index()).map_err(refused)
}

/// Converts a barrier's error to an error of this crate.
pub(crate) fn refused(error: unisono_barrier::Error) -> Error {
    match error {
        unisono_barrier::Error::Gone(gone) => {
            Error::Gone { rank: Rank::at(gone.participant), why: gone.to_string() }
        }
        other => Error::Job(other.to_string()),
    }
}
