//! One member's handle on a barrier.

#[cfg(not(loom))]
use crate::adaptivity::Adaptivity;
use crate::algorithm::{Place, Role};
use crate::control::{ATTENTION_CHANGE, ATTENTION_JOIN, Control};
use crate::error::{Cause, Error};
use crate::group::Group;
use crate::guard::{Guard, Stopped};
use crate::membership::{self, Boundary, Rank};
use crate::protocols::AnyProtocol;
use crate::quick::{Passed, Quick};
use std::time::Duration;
use unisono_linux::clock::{Nanos, Ticks};
use unisono_sync::atomics::Ordering;
use unisono_sync::{Adaptive, Block, Spin, SpinBlock, Wait, WaitPolicy, Waited, Wakeups, Yield};

/// One member of a barrier. Dropping it without [`leave`](Self::leave) makes the next episode fail for the
/// others, with an error that names this one.
///
/// (Aligned to lines of cache: each episode writes here, and the participants of two threads, made one after the
/// other, otherwise share a line as often as the allocator likes.)
#[derive(Debug)]
#[repr(align(128))]
pub struct Participant {
    group: Group,
    id: usize,
    rank: Rank,
    protocol: AnyProtocol,
    policy: Policy,
    /// The last episode this participant arrived in.
    episode: u32,
    stage: Stage,
    quick: Quick,
    /// Sleeps at boundaries, which are nobody's policy.
    boundary_blocks: u64,
    /// How long this participant waited in earnest.
    in_earnest: Ticks,
}

/// Where a participant is between two calls.
#[derive(Debug)]
enum Stage {
    /// Between two episodes.
    Idle,
    /// In an episode, arrived.
    Arrived,
    /// The episode is complete, but members change before the next.
    Boundary(Boundary, Role),
    /// No member any more.
    Left,
}

#[derive(Debug)]
enum Policy {
    Spin(Spin),
    Yield(Yield),
    Block(Block),
    SpinBlock(SpinBlock),
    #[cfg(not(loom))]
    Adaptive(Adaptive, Adaptivity),
    /// In a model there is no clock and no CPU to learn from.
    #[cfg(loom)]
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
        self.participant.finish(Limit::Never)
    }

    /// Waits until everybody has arrived, at most so long.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::TimedOut`], after which [`Participant::wait`] resumes the episode.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Episode, Error> {
        self.participant.finish(Limit::In(timeout))
    }
}

impl Participant {
    pub(crate) fn new(group: Group, id: usize, rank: Rank, episode: u32) -> Self {
        let (budget, wakeups) = (group.spin_budget, group.wakeups);
        let policy = match group.wait {
            Wait::Spin => Policy::Spin(Spin),
            Wait::Yield => Policy::Yield(Yield),
            Wait::Block => Policy::Block(Block::new(wakeups)),
            Wait::SpinBlock => Policy::SpinBlock(SpinBlock::new(budget, wakeups)),
            #[cfg(not(loom))]
            Wait::Adaptive => Policy::Adaptive(Adaptive::new(budget, wakeups), Adaptivity::new()),
            #[cfg(loom)]
            Wait::Adaptive => Policy::Adaptive(Adaptive::new(budget, wakeups)),
        };
        let protocol = AnyProtocol::new(group.algorithm, rank.rank, rank.members);
        let stage = Stage::Idle;
        let quick = Quick::default();
        Self {
            group,
            id,
            rank,
            protocol,
            policy,
            episode,
            stage,
            quick,
            boundary_blocks: 0,
            in_earnest: Ticks(0),
        }
    }

    /// Arrives and waits until everybody has arrived.
    ///
    /// # Errors
    /// [`Error::Gone`] when a member panicked, went away or died.
    #[inline]
    pub fn wait(&mut self) -> Result<Episode, Error> {
        self.wait_within(Limit::Never)
    }

    #[inline]
    fn wait_within(&mut self, limit: Limit) -> Result<Episode, Error> {
        // Only idle participants are given episodes to pass quickly.
        let (episode, rank) = (self.episode.wrapping_add(1), self.rank.rank);
        match self.quick.pass(&self.group.control, &place(&self.group), rank, episode) {
            Passed::No => self.wait_in_full(limit),
            Passed::Whole => {
                self.episode = episode;
                Ok(Episode { number: episode, role: if rank == 0 { Role::Leader } else { Role::Follower } })
            }
            passed => self.resume(episode, &passed, limit),
        }
    }

    #[inline(never)]
    fn wait_in_full(&mut self, limit: Limit) -> Result<Episode, Error> {
        if matches!(self.stage, Stage::Idle) {
            self.begin()?;
        }
        self.finish(limit)
    }

    /// Leaves the quick way in the middle of an episode, or at its end.
    #[cold]
    fn resume(&mut self, episode: u32, passed: &Passed, limit: Limit) -> Result<Episode, Error> {
        self.episode = episode;
        self.catch_up();
        if matches!(passed, Passed::WholeAndChange) {
            let role = if self.rank.rank == 0 { Role::Leader } else { Role::Follower };
            return self.completed(role, limit);
        }
        self.stage = Stage::Arrived;
        self.protocol.has_arrived();
        self.finish_in_earnest(limit)
    }

    /// Ends the quick way, and says what it was used for to who counts episodes.
    #[inline]
    fn catch_up(&mut self) {
        let passed = self.quick.end();
        #[cfg(not(loom))]
        if let Policy::Adaptive(_, adaptivity) = &mut self.policy {
            adaptivity.catch_up(passed);
        }
        let _ = passed;
    }

    /// How many of the next episodes may be passed quickly.
    #[inline]
    fn episodes_to_spare(&self) -> u32 {
        if !self.protocol.is_exchange() {
            return 0;
        }
        match &self.policy {
            Policy::Spin(_) => u32::MAX,
            Policy::SpinBlock(_) if self.group.spin_budget.nanos() > Nanos::ZERO => u32::MAX,
            #[cfg(not(loom))]
            Policy::Adaptive(_, adaptivity) => adaptivity.episodes_to_spare(self.rank.rank, self.episode),
            #[cfg(loom)]
            Policy::Adaptive(_) => u32::MAX,
            _ => 0,
        }
    }

    /// As [`wait`](Self::wait), at most so long.
    ///
    /// # Errors
    /// [`Error::Gone`]; [`Error::TimedOut`], after which waiting again resumes the same episode.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Episode, Error> {
        self.wait_within(Limit::In(timeout))
    }

    /// Arrives, and leaves the waiting for later: between the two this participant may do what the others
    /// need not wait for. If an earlier arrival's episode is unfinished, that is completed first.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn arrive(&mut self) -> Result<Arrival<'_>, Error> {
        if !matches!(self.stage, Stage::Idle) {
            self.finish(Limit::Never)?;
        }
        self.begin()?;
        Ok(Arrival { participant: self })
    }

    /// Takes part in one more episode, and then is no member any more: the others go on without it. (An
    /// unfinished episode is completed first.)
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn leave(mut self) -> Result<Episode, Error> {
        if !matches!(self.stage, Stage::Idle) {
            self.finish(Limit::Never)?;
        }
        membership::announce_leave(&self.group.control, self.id, self.episode.wrapping_add(1));
        self.begin()?;
        self.finish(Limit::Never)
    }

    /// Tells all adaptive members how to wait from now on, as the controller of the first does elsewhere.
    #[cfg(loom)]
    pub fn advise(&self, advice: unisono_sync::Advice) {
        let word = match advice {
            unisono_sync::Advice::Spin => 0,
            unisono_sync::Advice::Sleep => 1,
            unisono_sync::Advice::GiveWay => 2,
        };
        self.group.control.mode().store(word, Ordering::Relaxed);
    }

    /// Ends a participant without a word to the others, for models that end after their last episode.
    #[cfg(loom)]
    pub fn forget(mut self) {
        self.stage = Stage::Left;
    }

    /// How many members the next episode has.
    #[must_use]
    pub fn members(&self) -> usize {
        self.rank.members
    }

    /// The place in the group; errors name members by it.
    #[must_use]
    pub fn id(&self) -> usize {
        self.id
    }

    /// How often this participant slept in the kernel so far.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.boundary_blocks
            + match &self.policy {
                Policy::Spin(policy) => policy.blocks(),
                Policy::Yield(policy) => policy.blocks(),
                Policy::Block(policy) => policy.blocks(),
                Policy::SpinBlock(policy) => policy.blocks(),
                #[cfg(not(loom))]
                Policy::Adaptive(policy, _) => policy.blocks(),
                #[cfg(loom)]
                Policy::Adaptive(policy) => policy.blocks(),
            }
    }

    /// How long this participant has waited so far, but for waits that were over in their first moment.
    #[must_use]
    pub fn waited(&self) -> Waited {
        let asleep = match &self.policy {
            Policy::Spin(policy) => policy.asleep(),
            Policy::Yield(policy) => policy.asleep(),
            Policy::Block(policy) => policy.asleep(),
            Policy::SpinBlock(policy) => policy.asleep(),
            #[cfg(not(loom))]
            Policy::Adaptive(policy, _) => policy.asleep(),
            #[cfg(loom)]
            Policy::Adaptive(policy) => policy.asleep(),
        };
        Waited { awake: self.in_earnest.to_nanos().since(asleep), asleep }
    }

    #[inline]
    fn begin(&mut self) -> Result<(), Error> {
        self.catch_up();
        let episode = self.episode.wrapping_add(1);
        let attention = self.group.control.attention().load(Ordering::Relaxed);
        if attention != 0 {
            self.attend(attention, episode)?;
        }
        self.episode = episode;
        self.stage = Stage::Arrived;
        #[cfg(not(loom))]
        if let Policy::Adaptive(_, adaptivity) = &mut self.policy {
            adaptivity.note_presence(&self.group.control, self.id, self.rank.members, episode);
        }
        let place = place(&self.group);
        self.protocol.arrive(&place, episode);
        Ok(())
    }

    #[inline]
    fn finish(&mut self, limit: Limit) -> Result<Episode, Error> {
        if matches!(self.stage, Stage::Arrived) && self.starts_brief() {
            let place = place(&self.group);
            if let Some(role) = self.protocol.complete_briefly(&place, self.episode) {
                return self.completed(role, limit);
            }
        }
        self.finish_in_earnest(limit)
    }

    /// Whether the first moment of a wait is spent polling.
    #[inline]
    fn starts_brief(&self) -> bool {
        match &self.policy {
            Policy::Spin(_) => true,
            Policy::SpinBlock(_) => self.group.spin_budget.nanos() > Nanos::ZERO,
            #[cfg(not(loom))]
            Policy::Adaptive(_, adaptivity) => adaptivity.starts_brief(&self.group.control),
            _ => false,
        }
    }

    fn finish_in_earnest(&mut self, limit: Limit) -> Result<Episode, Error> {
        if let Stage::Boundary(..) = self.stage {
            return self.cross(limit);
        }
        let limit = limit.fixed();
        let (place, number) = (place(&self.group), self.episode);
        let before = ticks();
        let mut guard = Guard::new(&self.group.control, number, limit.moment());
        let protocol = &mut self.protocol;
        let role = match &mut self.policy {
            Policy::Spin(policy) => protocol.complete(&place, number, policy, &mut guard),
            Policy::Yield(policy) => protocol.complete(&place, number, policy, &mut guard),
            Policy::Block(policy) => protocol.complete(&place, number, policy, &mut guard),
            Policy::SpinBlock(policy) => protocol.complete(&place, number, policy, &mut guard),
            #[cfg(not(loom))]
            Policy::Adaptive(policy, _) => {
                guard = guard.advised(self.id, self.rank.members);
                protocol.complete(&place, number, policy, &mut guard)
            }
            #[cfg(loom)]
            Policy::Adaptive(policy) => protocol.complete(&place, number, policy, &mut guard),
        };
        let stopped_by = guard.stopped;
        self.in_earnest.0 += ticks().since(before).0;
        match role {
            Some(role) => self.completed(role, limit),
            None => Err(stopped(stopped_by, number)),
        }
    }

    /// The episode is complete; members may change before the next.
    #[inline]
    fn completed(&mut self, role: Role, limit: Limit) -> Result<Episode, Error> {
        #[cfg(not(loom))]
        if let Policy::Adaptive(policy, adaptivity) = &mut self.policy {
            adaptivity.learn(&self.group.control, self.rank.rank, policy.blocks());
        }
        self.stage = Stage::Idle;
        if self.group.control.attention().load(Ordering::Relaxed) & ATTENTION_CHANGE != 0 {
            return self.reach_boundary(role, limit);
        }
        self.quick.give(self.episodes_to_spare());
        Ok(Episode { number: self.episode, role })
    }

    /// Before an arrival, something needs attention.
    #[cold]
    fn attend(&mut self, attention: u32, episode: u32) -> Result<(), Error> {
        let control = &self.group.control;
        if let Some(gone) = control.find_gone(Some(episode)) {
            return Err(Error::Gone(gone));
        }
        if attention & ATTENTION_JOIN != 0 && self.rank.rank == 0 {
            membership::admit_who_asks(control, episode);
        }
        Ok(())
    }

    /// The episode is complete, and members change, perhaps right after it.
    #[cold]
    fn reach_boundary(&mut self, role: Role, limit: Limit) -> Result<Episode, Error> {
        let (control, number) = (&self.group.control, self.episode);
        let Some(boundary) = membership::boundary(control, self.id, number) else {
            return Ok(Episode { number, role });
        };
        if self.rank.rank == 0 {
            membership::call_who_comes(control, number);
        }
        self.stage = Stage::Boundary(boundary, role);
        self.cross(limit)
    }

    #[cold]
    fn cross(&mut self, limit: Limit) -> Result<Episode, Error> {
        let number = self.episode;
        let Stage::Boundary(boundary, role) = &mut self.stage else {
            return Ok(Episode { number, role: Role::Follower });
        };
        let role = *role;
        let control = &self.group.control;
        // Whoever is gone from the next episode on may be missed here already.
        let mut guard = Guard::new(control, number.wrapping_add(1), limit.moment());
        let mut policy = Block::new(Wakeups::Symmetric(control.scope));
        let first = Control::lines(control.capacity);
        let crossed = membership::cross(control, first, boundary, &mut policy, &mut guard);
        self.boundary_blocks += policy.blocks();
        if crossed.is_none() {
            return Err(stopped(guard.stopped, number));
        }
        match boundary.rank {
            None => self.stage = Stage::Left,
            Some(rank) => {
                self.stage = Stage::Idle;
                self.rank = rank;
                self.protocol = AnyProtocol::new(self.group.algorithm, rank.rank, rank.members);
            }
        }
        Ok(Episode { number, role })
    }
}

fn stopped(why: Option<Stopped>, episode: u32) -> Error {
    match why {
        Some(Stopped::Gone(gone)) => Error::Gone(gone),
        Some(Stopped::Disbanded) => Error::Disbanded,
        Some(Stopped::TimedOut) | None => Error::TimedOut { episode },
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        // In the middle of an episode that one is lost; between two, the next.
        let first_impossible = match self.stage {
            Stage::Left => return,
            Stage::Arrived => self.episode,
            Stage::Idle | Stage::Boundary(..) => self.episode.wrapping_add(1),
        };
        let cause = if std::thread::panicking() { Cause::Panicked } else { Cause::Left };
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

/// Now, by the cheapest clock; in a model time does not pass.
fn ticks() -> Ticks {
    #[cfg(not(loom))]
    return unisono_linux::clock::ticks();
    #[cfg(loom)]
    return Ticks(0);
}

/// How long a wait may last. The clock is read when it has become one in earnest: most end before.
#[derive(Clone, Copy)]
enum Limit {
    Never,
    In(Duration),
    At(Nanos),
}

impl Limit {
    fn fixed(self) -> Self {
        self.moment().map_or(Self::Never, Self::At)
    }

    fn moment(self) -> Option<Nanos> {
        match self {
            Self::Never => None,
            Self::In(timeout) => Some(Nanos::from(timeout).after(unisono_linux::clock::now())),
            Self::At(moment) => Some(moment),
        }
    }
}
