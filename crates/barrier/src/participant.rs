//! One member's handle on a barrier.

use crate::algorithm::{EpisodeWait, GroupWords, Leadership};
use crate::control::{ATTENTION_CHANGE, ATTENTION_JOIN};
use crate::error::{Cause, Error};
use crate::group::Group;
use crate::guard::{Guard, Stopped};
use crate::membership::{self, Boundary, MemberRank};
use crate::protocols::AnyProtocol;
use std::time::Duration;
use unisono_linux::clock::{Instant, Ticks};
use unisono_sync::atomics::{Ordering, now, ticks};
use unisono_sync::{Block, EpisodeBatch, GroupState, Unwatched, Waited, Waiter, Wakeups};

/// One member of a barrier. Dropping it without [`leave`](Self::leave) makes the next episode fail for the
/// others, with an error that names this member.
///
/// (Aligned to cache lines: each episode writes here, and two participants that are made one after the other
/// could otherwise share a line.)
#[derive(Debug)]
#[repr(align(128))]
pub struct Participant {
    pub(crate) group: Group,
    id: usize,
    rank: MemberRank,
    protocol: AnyProtocol,
    waiter: Waiter,
    /// The last episode this participant arrived in.
    episode: u32,
    pub(crate) stage: ParticipantStage,
    /// The number of episodes that may still take the fast path; zero unless the participant is idle.
    batch: EpisodeBatch,
    /// The number of sleeps at boundaries, where members always block, with any wait policy.
    boundary_blocks: u64,
    /// The total time of this participant's waits, each counted from the end of its initial polls.
    slow_waits: Ticks,
}

/// The state of a participant between two calls.
#[derive(Debug)]
pub(crate) enum ParticipantStage {
    Idle,
    Arrived,
    /// The episode is complete, but members change before the next.
    Boundary(Boundary, Leadership),
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    number: u32,
    role: Leadership,
}

impl Episode {
    /// Returns whether this participant leads: exactly one participant of an episode does, as in
    /// `std::sync::BarrierWaitResult`.
    pub fn is_leader(self) -> bool {
        self.role == Leadership::Leader
    }

    /// Returns the episode's number. The first is 1, and numbers wrap after 2^32.
    pub fn number(self) -> u32 {
        self.number
    }
}

/// An arrival whose episode is not complete yet; its wait is the second half of a split barrier.
///
/// A dropped token loses nothing: the participant's next arrival first completes this episode.
#[must_use = "the episode is complete only after wait()"]
pub struct ArrivalToken<'a> {
    participant: &'a mut Participant,
}

impl ArrivalToken<'_> {
    pub fn wait(self) -> Result<Episode, Error> {
        self.participant.finish(WaitLimit::Never)
    }

    /// Waits until all members have arrived, or until `timeout` has passed. After [`Error::TimedOut`],
    /// [`Participant::wait`] resumes the episode.
    pub fn wait_timeout(self, timeout: Duration) -> Result<Episode, Error> {
        self.participant.finish(WaitLimit::In(timeout))
    }
}

impl Participant {
    pub(crate) fn new(group: Group, id: usize, rank: MemberRank, episode: u32) -> Self {
        let waiter = Waiter::new(group.wait, group.spin_budget, group.wakeups);
        let protocol = AnyProtocol::new(group.algorithm, rank.rank, rank.members);
        let batch = protocol.batch();
        Self {
            group,
            id,
            rank,
            protocol,
            waiter,
            episode,
            stage: ParticipantStage::Idle,
            batch,
            boundary_blocks: 0,
            slow_waits: Ticks(0),
        }
    }

    /// Arrives and waits until all members have arrived. Fails with [`Error::Gone`] when a member panicked,
    /// was dropped or died.
    #[inline]
    pub fn wait(&mut self) -> Result<Episode, Error> {
        self.wait_within(WaitLimit::Never)
    }

    /// Waits on the fast path if four conditions hold: nothing has to be recorded or learned in this episode,
    /// nothing needs attention, members stay awake while they wait, and the signals come within the initial
    /// polls. Otherwise it waits in full.
    #[inline]
    fn wait_within(&mut self, limit: WaitLimit) -> Result<Episode, Error> {
        if !self.group.control.regime().is_awake_and_undisturbed() || !self.batch.take_episode() {
            return self.wait_in_full(limit);
        }
        self.episode = self.episode.wrapping_add(1);
        match self.protocol.pass(&words(&self.group), self.episode, self.batch.initial_poll) {
            Some(role) if self.group.control.attention().load(Ordering::Relaxed) & ATTENTION_CHANGE == 0 => {
                Ok(Episode { number: self.episode, role })
            }
            role => self.leave_fast_path(role, limit),
        }
    }

    #[inline(never)]
    fn wait_in_full(&mut self, limit: WaitLimit) -> Result<Episode, Error> {
        if matches!(self.stage, ParticipantStage::Idle) {
            self.begin()?;
        }
        self.finish(limit)
    }

    /// Leaves the fast path in the middle of an episode, or at its end.
    #[cold]
    fn leave_fast_path(&mut self, role: Option<Leadership>, limit: WaitLimit) -> Result<Episode, Error> {
        self.end_batch();
        if let Some(role) = role {
            return self.completed(role, limit);
        }
        self.stage = ParticipantStage::Arrived;
        self.finish_slow(limit)
    }

    /// Ends the batch, and adds its episodes to the waiter's count.
    #[inline]
    fn end_batch(&mut self) {
        let passed = self.batch.end();
        self.waiter.add_uncounted(passed);
    }

    /// Arrives and waits, as [`wait`](Self::wait) does, but for at most `timeout`. After [`Error::TimedOut`],
    /// waiting again resumes the same episode.
    ///
    /// ```
    /// use std::time::Duration;
    /// use unisono_barrier::{Error, GroupSpec};
    ///
    /// let group = GroupSpec::new(2)?.for_threads()?;
    /// let (mut early, mut late) = (group.participant(0)?, group.participant(1)?);
    /// let first = early.wait_timeout(Duration::from_millis(1));
    /// assert!(matches!(first, Err(Error::TimedOut { .. })));
    /// let arrival = late.arrive()?;
    /// early.wait()?; // the same episode
    /// arrival.wait()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Episode, Error> {
        self.wait_within(WaitLimit::In(timeout))
    }

    /// Arrives without waiting. Until the token waits, this participant may do work that does not depend on
    /// the others. An unfinished episode of an earlier arrival is completed first.
    ///
    /// ```
    /// use unisono_barrier::GroupSpec;
    ///
    /// let group = GroupSpec::new(1)?.for_threads()?;
    /// let mut member = group.participant(0)?;
    /// let arrival = member.arrive()?;
    /// let independent: u64 = (1..=10).sum(); // work that needs nothing of the others
    /// let episode = arrival.wait()?;
    /// assert_eq!((independent, episode.is_leader()), (55, true));
    /// # Ok::<(), unisono_barrier::Error>(())
    /// ```
    pub fn arrive(&mut self) -> Result<ArrivalToken<'_>, Error> {
        if !matches!(self.stage, ParticipantStage::Idle) {
            self.finish(WaitLimit::Never)?;
        }
        self.begin()?;
        Ok(ArrivalToken { participant: self })
    }

    /// Takes part in one more episode and then leaves the group; the others go on without this member. An
    /// unfinished episode is completed first.
    ///
    /// ```
    /// use unisono_barrier::GroupSpec;
    ///
    /// let group = GroupSpec::new(2)?.for_threads()?;
    /// let mut members = group.participants()?;
    /// let (leaving, mut staying) = (members.remove(1), members.remove(0));
    /// let other = std::thread::spawn(move || leaving.leave().is_ok());
    /// staying.wait()?;
    /// assert!(other.join().is_ok_and(|left| left));
    /// staying.wait()?; // alone
    /// assert_eq!(staying.members(), 1);
    /// # Ok::<(), unisono_barrier::Error>(())
    /// ```
    pub fn leave(mut self) -> Result<Episode, Error> {
        if !matches!(self.stage, ParticipantStage::Idle) {
            self.finish(WaitLimit::Never)?;
        }
        membership::announce_leave(&self.group.control, self.id, self.episode.wrapping_add(1));
        self.begin()?;
        self.finish(WaitLimit::Never)
    }

    /// Returns the number of members in the next episode.
    pub fn members(&self) -> usize {
        self.rank.members
    }

    /// Returns this member's place in the group; errors name members by it.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Returns the number of times that this participant has slept in the kernel so far.
    pub fn blocks(&self) -> u64 {
        self.boundary_blocks + self.waiter.blocks()
    }

    /// Returns the time that this participant has waited so far. Waits that ended within the initial polls
    /// are not counted.
    pub fn waited(&self) -> Waited {
        let asleep = self.waiter.asleep();
        Waited { awake: self.slow_waits.to_duration() - asleep, asleep }
    }

    #[inline]
    fn begin(&mut self) -> Result<(), Error> {
        self.end_batch();
        let episode = self.episode.wrapping_add(1);
        let attention = self.group.control.attention().load(Ordering::Relaxed);
        if attention != 0 {
            self.attend(attention, episode)?;
        }
        self.episode = episode;
        self.stage = ParticipantStage::Arrived;
        self.waiter.record_cpu(group_state(&self.group, self.rank), self.id, episode);
        self.protocol.arrive(&words(&self.group), episode);
        Ok(())
    }

    #[inline]
    fn finish(&mut self, limit: WaitLimit) -> Result<Episode, Error> {
        if matches!(self.stage, ParticipantStage::Arrived)
            && self.waiter.polls_first(self.group.control.regime())
        {
            let (words, episode, policy) = (words(&self.group), self.episode, &mut self.batch.initial_poll);
            let wait = EpisodeWait { words: &words, episode, policy, watch: &mut Unwatched };
            if let Some(role) = self.protocol.complete(wait) {
                return self.completed(role, limit);
            }
        }
        self.finish_slow(limit)
    }

    fn finish_slow(&mut self, limit: WaitLimit) -> Result<Episode, Error> {
        if let ParticipantStage::Boundary(..) = self.stage {
            return self.cross(limit);
        }
        let limit = limit.fixed();
        let number = self.episode;
        let before = ticks();
        let mut guard = Guard::new(&self.group.control, number, limit.moment());
        let (group, rank, id) = (&self.group, self.rank, self.id);
        let mut policy = self.waiter.policy(|| group_state(group, rank).hints(id, number));
        let words = words(group);
        let wait = EpisodeWait { words: &words, episode: number, policy: &mut policy, watch: &mut guard };
        let role = self.protocol.complete(wait);
        let stopped_by = guard.stopped;
        self.slow_waits.0 += ticks().since(before).0;
        match role {
            Some(role) => self.completed(role, limit),
            None => Err(stopped(stopped_by, number)),
        }
    }

    /// Ends an episode that is complete: lets rank 0 learn, and changes the members if a change is announced.
    #[inline]
    fn completed(&mut self, role: Leadership, limit: WaitLimit) -> Result<Episode, Error> {
        let decides = self.rank.rank == 0;
        if decides {
            self.waiter.learn(self.group.control.regime());
        }
        self.stage = ParticipantStage::Idle;
        if self.group.control.attention().load(Ordering::Relaxed) & ATTENTION_CHANGE != 0 {
            return self.reach_boundary(role, limit);
        }
        let spare = self.waiter.uncounted_remaining(decides, self.episode);
        if spare > 0 {
            self.batch.start(spare, decides, self.group.control.regime().poll_choice());
        }
        Ok(Episode { number: self.episode, role })
    }

    /// Checks for members that are gone, and lets rank 0 admit joiners. It is called before an arrival.
    #[cold]
    fn attend(&mut self, attention: u32, episode: u32) -> Result<(), Error> {
        let control = &self.group.control;
        if let Some(gone) = control.find_gone(Some(episode)) {
            return Err(Error::Gone(gone));
        }
        if attention & ATTENTION_JOIN != 0 && self.rank.rank == 0 {
            membership::admit_joiners(control, episode);
        }
        Ok(())
    }

    /// Crosses the boundary at the end of the complete episode, if the announced change is due there; it may
    /// be due only after a later episode.
    #[cold]
    fn reach_boundary(&mut self, role: Leadership, limit: WaitLimit) -> Result<Episode, Error> {
        let (control, number) = (&self.group.control, self.episode);
        let Some(boundary) = membership::boundary(control, self.id, number) else {
            return Ok(Episode { number, role });
        };
        if self.rank.rank == 0 {
            membership::call_joiners(control, number);
        }
        self.stage = ParticipantStage::Boundary(boundary, role);
        self.cross(limit)
    }

    #[cold]
    fn cross(&mut self, limit: WaitLimit) -> Result<Episode, Error> {
        let number = self.episode;
        let ParticipantStage::Boundary(boundary, role) = &mut self.stage else {
            return Ok(Episode { number, role: Leadership::Follower });
        };
        let role = *role;
        let control = &self.group.control;
        // A member that is gone from the next episode on does not come to this boundary either.
        let mut guard = Guard::new(control, number.wrapping_add(1), limit.moment());
        let mut policy = Block::new(Wakeups::Symmetric(control.scope));
        let crossed = membership::cross(control, boundary, &mut policy, &mut guard);
        self.boundary_blocks += policy.blocks();
        if crossed.is_none() {
            return Err(stopped(guard.stopped, number));
        }
        match boundary.rank {
            None => self.stage = ParticipantStage::Left,
            Some(rank) => {
                self.stage = ParticipantStage::Idle;
                self.rank = rank;
                self.protocol = AnyProtocol::new(self.group.algorithm, rank.rank, rank.members);
                self.batch = self.protocol.batch();
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
        // A drop in the middle of an episode makes that episode impossible; a drop between two episodes makes
        // the next one impossible.
        let first_impossible = match self.stage {
            ParticipantStage::Left => return,
            ParticipantStage::Arrived => self.episode,
            ParticipantStage::Idle | ParticipantStage::Boundary(..) => self.episode.wrapping_add(1),
        };
        let cause = if std::thread::panicking() { Cause::Panicked } else { Cause::Left };
        self.group.control.declare_gone(self.id, cause, first_impossible);
    }
}

fn words(group: &Group) -> GroupWords<'_> {
    GroupWords { lines: &group.control.lines, first: group.control.first, wakeups: group.wakeups }
}

fn group_state(group: &Group, rank: MemberRank) -> GroupState<'_> {
    GroupState { regime: group.control.regime(), last_cpus: group.control.last_cpus(), members: rank.members }
}

/// The deadline of a wait. The clock is read only after the initial polls, because most waits end before
/// that.
#[derive(Clone, Copy)]
enum WaitLimit {
    Never,
    In(Duration),
    At(Instant),
}

impl WaitLimit {
    fn fixed(self) -> Self {
        self.moment().map_or(Self::Never, Self::At)
    }

    fn moment(self) -> Option<Instant> {
        match self {
            Self::Never => None,
            Self::In(timeout) => Some(now() + timeout.into()),
            Self::At(moment) => Some(moment),
        }
    }
}
