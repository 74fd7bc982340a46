//! One member's handle on a barrier.

use crate::algorithm::{Place, Protocol, Role};
use crate::central::Central;
use crate::control::Control;
use crate::error::{Cause, Error};
use crate::group::Group;
use crate::guard::{Guard, Stopped};
use std::time::Duration;
use unisono_linux::clock::Nanos;
use unisono_sync::{Adaptive, Block, Spin, SpinBlock, Wait, WaitPolicy, Yield};

/// One member of a barrier. Dropping it without [`leave`](Self::leave) makes the next episode fail for the
/// others, with an error that names this one.
pub struct Participant {
    group: Group,
    id: usize,
    protocol: Central,
    policy: Policy,
    /// The last episode this participant arrived in.
    episode: u32,
    arrived: bool,
    left: bool,
}

enum Policy {
    Spin(Spin),
    Yield(Yield),
    Block(Block),
    SpinBlock(SpinBlock),
    Adaptive(Adaptive),
}

/// A completed episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    number: u32,
    role: Role,
}

impl Episode {
    /// Whether this participant is the one of all that is told so, as in `std::sync::BarrierWaitResult`.
    #[must_use]
    pub fn is_leader(self) -> bool {
        self.role == Role::Leader
    }

    /// Its number: the first is 1, and it wraps after 2^32.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }
}

/// An arrival whose episode is yet to complete: the second half of a split barrier.
///
/// Dropped, it is not lost: the participant's next arrival first completes this episode.
#[must_use = "the episode is complete only after wait()"]
pub struct Arrival<'a> {
    participant: &'a mut Participant,
}

impl Arrival<'_> {
    /// Waits until everybody has arrived.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn wait(self) -> Result<Episode, Error> {
        self.participant.finish(None)
    }

    /// Waits until everybody has arrived, at most so long.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::TimedOut`], after which [`Participant::wait`] resumes the episode.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Episode, Error> {
        self.participant.finish(Some(deadline(timeout)))
    }
}

impl Participant {
    pub(crate) fn new(group: Group, id: usize) -> Self {
        let (budget, wakeups) = (group.spin_budget, group.wakeups);
        let policy = match group.wait {
            Wait::Spin => Policy::Spin(Spin),
            Wait::Yield => Policy::Yield(Yield),
            Wait::Block => Policy::Block(Block::new(wakeups)),
            Wait::SpinBlock => Policy::SpinBlock(SpinBlock::new(budget, wakeups)),
            Wait::Adaptive => Policy::Adaptive(Adaptive::new(budget, wakeups)),
        };
        let protocol = Central::new(id, group.participants);
        Self { group, id, protocol, policy, episode: 0, arrived: false, left: false }
    }

    /// Arrives and waits until everybody has arrived.
    ///
    /// # Errors
    /// [`Error::Gone`] when a member panicked, went away or died.
    #[inline]
    pub fn wait(&mut self) -> Result<Episode, Error> {
        if !self.arrived {
            self.begin()?;
        }
        self.finish(None)
    }

    /// As [`wait`](Self::wait), at most so long.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::TimedOut`], after which waiting again resumes the same episode.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Episode, Error> {
        if !self.arrived {
            self.begin()?;
        }
        self.finish(Some(deadline(timeout)))
    }

    /// Arrives, and leaves the waiting for later: between the two this participant may do what the others
    /// need not wait for. If an earlier arrival's episode is unfinished, that is completed first.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn arrive(&mut self) -> Result<Arrival<'_>, Error> {
        if self.arrived {
            self.finish(None)?;
        }
        self.begin()?;
        Ok(Arrival { participant: self })
    }

    /// The place in the group; errors name members by it.
    #[must_use]
    pub fn id(&self) -> usize {
        self.id
    }

    /// How often this participant slept in the kernel so far.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match &self.policy {
            Policy::Spin(policy) => policy.blocks(),
            Policy::Yield(policy) => policy.blocks(),
            Policy::Block(policy) => policy.blocks(),
            Policy::SpinBlock(policy) => policy.blocks(),
            Policy::Adaptive(policy) => policy.blocks(),
        }
    }

    #[inline]
    fn begin(&mut self) -> Result<(), Error> {
        let episode = self.episode.wrapping_add(1);
        if let Some(gone) = self.group.control.find_gone(episode) {
            return Err(Error::Gone(gone));
        }
        self.episode = episode;
        self.arrived = true;
        let place = place(&self.group);
        self.protocol.arrive(&place, episode);
        Ok(())
    }

    #[inline]
    fn finish(&mut self, deadline: Option<Nanos>) -> Result<Episode, Error> {
        let (place, number) = (place(&self.group), self.episode);
        let mut guard = Guard::new(&self.group.control, number, deadline);
        let protocol = &mut self.protocol;
        let role = match &mut self.policy {
            Policy::Spin(policy) => protocol.complete(&place, number, policy, &mut guard),
            Policy::Yield(policy) => protocol.complete(&place, number, policy, &mut guard),
            Policy::Block(policy) => protocol.complete(&place, number, policy, &mut guard),
            Policy::SpinBlock(policy) => protocol.complete(&place, number, policy, &mut guard),
            Policy::Adaptive(policy) => protocol.complete(&place, number, policy, &mut guard),
        };
        match (role, guard.stopped) {
            (Some(role), _) => {
                self.arrived = false;
                Ok(Episode { number, role })
            }
            (None, Some(Stopped::Gone(gone))) => Err(Error::Gone(gone)),
            (None, _) => Err(Error::TimedOut { episode: number }),
        }
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let cause = if std::thread::panicking() { Cause::Panicked } else { Cause::Left };
        // In the middle of an episode that one is lost; between two, the next.
        let first_impossible = if self.arrived { self.episode } else { self.episode.wrapping_add(1) };
        self.group.control.declare_gone(self.id, cause, first_impossible);
    }
}

fn place(group: &Group) -> Place<'_> {
    Place {
        lines: &group.control.lines,
        first: Control::lines(group.control.capacity),
        wakeups: group.wakeups,
    }
}

fn deadline(timeout: Duration) -> Nanos {
    Nanos::from(timeout).after(unisono_linux::clock::now())
}
