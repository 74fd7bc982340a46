//! The words that every group has, whatever its algorithm: the configuration, the standing (the state of the
//! membership) of each place, and the attention bits.
//!
//! ```text
//!   line 0      configuration, written once by the creator
//!   line 1      attention: bits for members that join, leave or are gone, else zero. All members read it in
//!               every episode, so it stays in every cache. A member publishes details in its line before it
//!               sets a bit. Beside it: how members wait ([`Regime`])
//!   line 2      the boundary: counter and flag of the pause in which a group changes its members
//!   line 3..    one line a place: its process and its standing
//!   then        sixteen members a line: where each last ran ([`LastCpus`])
//!   then        the algorithm's lines
//! ```

use unisono_linux::futex::Scope;
use unisono_sync::atomics::{AtomicU32, Ordering};
use unisono_sync::{CacheLine, Flag, LastCpus, Lines, Regime};

use crate::error::{Cause, GoneMember};

/// A member is gone or the group is disbanded; the member lines and line 2 say which.
pub(crate) const ATTENTION_GONE: u32 = 1;
/// A member leaves at the end of an episode, or a joiner was admitted.
pub(crate) const ATTENTION_CHANGE: u32 = 2;
/// A thread or process asks to join. Only the member of rank 0 acts on this bit.
pub(crate) const ATTENTION_JOIN: u32 = 4;

/// Lines before the members' lines.
const FIXED_LINES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceStanding {
    /// No member has ever had this place.
    Free,
    /// An initial place that no participant has taken yet.
    Reserved,
    Member,
    /// A member that leaves after the episode that its line records.
    Leaving,
    /// Taken by a joiner that is about to ask to join.
    Claimed,
    Asking,
    /// A joiner that becomes a member after the episode that its line records.
    Admitted,
    Retired,
    /// A member that went away without leaving, from the episode that its line records on.
    Gone(Cause),
}

/// The control lines of a group, in private or shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) lines: Lines,
    pub(crate) capacity: usize,
    pub(crate) scope: Scope,
    pub(crate) first: usize,
}

impl Control {
    /// Takes the first of `lines` as the control lines.
    pub(crate) fn new(lines: Lines, capacity: usize, scope: Scope) -> Self {
        Self { lines, capacity, scope, first: Self::lines(capacity) }
    }

    /// Returns the number of lines before the algorithm's lines.
    pub(crate) const fn lines(capacity: usize) -> usize {
        FIXED_LINES + capacity + LastCpus::lines(capacity)
    }

    #[inline]
    pub(crate) fn attention(&self) -> &AtomicU32 {
        self.lines.line(1).word(0)
    }

    /// Returns the regime, which says how members wait. It lies in the other words of the attention line.
    #[inline]
    pub(crate) fn regime(&self) -> Regime<'_> {
        Regime::new(self.lines.line(1))
    }

    /// Returns the processors on which members last ran.
    #[inline]
    pub(crate) fn last_cpus(&self) -> LastCpus<'_> {
        LastCpus::new(&self.lines, FIXED_LINES + self.capacity, self.capacity)
    }

    pub(crate) fn member(&self, id: usize) -> MemberLine<'_> {
        assert!(id < self.capacity, "place {id} of {}", self.capacity);
        MemberLine { line: self.lines.line(FIXED_LINES + id), id }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = MemberLine<'_>> {
        (0..self.capacity).map(|id| self.member(id))
    }

    /// Returns the flag that releases the members at a boundary.
    pub(crate) fn boundary(&self) -> Flag<'_> {
        self.lines.line(2).flag(0)
    }

    pub(crate) fn boundary_counter(&self) -> &AtomicU32 {
        self.lines.line(2).counter()
    }

    /// Records that all members have left.
    pub(crate) fn disband(&self) {
        // SYNC(disbanded) release: publishes the boundaries that the last members crossed
        self.lines.line(2).word(4).store(1, Ordering::Release);
        // SYNC(attention) release, acquire: the word above is written before the bit
        self.attention().fetch_or(ATTENTION_GONE, Ordering::AcqRel);
        self.disturb_all();
    }

    pub(crate) fn is_disbanded(&self) -> bool {
        // SYNC(disbanded) acquire: a member that stops for this sees the signal of its own boundary
        self.lines.line(2).word(4).load(Ordering::Acquire) != 0
    }

    /// Sets an algorithm's line to its state after `episode`: all flags at the episode, all other words zero.
    pub(crate) fn reset_line(&self, line: usize, episode: u32) {
        self.lines.line(line).reset(episode);
    }

    /// Returns the word that holds one more than the place of the member that was first declared gone, or 0
    /// while no member is gone. Members that got the error may end as well; because of this word, all errors
    /// name the same member.
    fn first_gone(&self) -> &AtomicU32 {
        self.lines.line(2).word(8)
    }

    /// Records that a member is gone from `episode` on, and wakes all members to check.
    pub(crate) fn declare_gone(&self, id: usize, cause: Cause, episode: u32) {
        let member = self.member(id);
        member.retire(PlaceStanding::Gone(cause), episode);
        if let (PlaceStanding::Gone(_), Ok(place)) = (member.standing(), u32::try_from(id + 1)) {
            // SYNC(first-gone) release: the member's line is written before its place; an earlier place stays
            let _ = self.first_gone().compare_exchange(0, place, Ordering::Release, Ordering::Relaxed);
        }
        // SYNC(attention) release: the member's line is written before the bit
        self.attention().fetch_or(ATTENTION_GONE, Ordering::AcqRel);
        self.disturb_all();
    }

    /// Finds a member that is gone and makes `episode` impossible; for `None`, any member that is gone.
    pub(crate) fn find_gone(&self, episode: Option<u32>) -> Option<GoneMember> {
        // SYNC(attention) acquire: the member's line is read after the bit
        if self.attention().load(Ordering::Acquire) & ATTENTION_GONE == 0 {
            return None;
        }
        let gone = |member: MemberLine<'_>| match member.standing() {
            PlaceStanding::Gone(cause)
                // The last episode of a dead process is unknown; the first waiter to notice may be an
                // episode ahead.
                if cause == Cause::Died
                    || episode.is_none_or(|episode| at_or_after(episode, member.last_episode())) =>
            {
                Some(GoneMember { participant: member.id, process: member.process(), cause })
            }
            _ => None,
        };
        // SYNC(first-gone) acquire: the member's line is read after its place
        let first = self.first_gone().load(Ordering::Acquire) as usize;
        let first = first.checked_sub(1).filter(|place| *place < self.capacity);
        first.and_then(|place| gone(self.member(place))).or_else(|| self.members().find_map(gone))
    }

    /// Wakes every sleeper of every flag, so that it checks its watch.
    pub(crate) fn disturb_all(&self) {
        // SYNC(sleepers) fence: the attention bit is written before the counts of sleepers are read
        unisono_sync::atomics::fence(Ordering::SeqCst);
        let presence = FIXED_LINES + self.capacity..self.first;
        for line in (2..self.lines.count()).filter(|line| !presence.contains(line)) {
            for flag in 0..CacheLine::FLAGS {
                self.lines.line(line).flag(flag).disturb(self.scope);
            }
        }
    }
}

/// One place's line. Words: 0 standing, 1 episode, 2 process, 3 and 4 start time of the process. Flag 4 calls
/// a joiner to the boundary.
#[derive(Clone, Copy)]
pub(crate) struct MemberLine<'a> {
    line: &'a CacheLine,
    pub(crate) id: usize,
}

impl MemberLine<'_> {
    pub(crate) fn standing(self) -> PlaceStanding {
        // SYNC(standing) acquire: the line's other words are read after its standing
        let word = self.line.word(0).load(Ordering::Acquire);
        STANDINGS.into_iter().find(|standing| code(*standing) == word).unwrap_or(PlaceStanding::Free)
    }

    pub(crate) fn set_standing(self, standing: PlaceStanding) {
        // SYNC(standing) release: the line's other words are written before its standing
        self.line.word(0).store(code(standing), Ordering::Release);
    }

    /// Changes the standing to `to` if it is still `from`; returns whether it did.
    pub(crate) fn change_standing(self, from: PlaceStanding, to: PlaceStanding) -> bool {
        let word = self.line.word(0);
        // SYNC(standing) release, acquire: the two orderings above, in one step
        word.compare_exchange(code(from), code(to), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a membership, unless it has already ended.
    fn retire(self, how: PlaceStanding, episode: u32) {
        for standing in
            [PlaceStanding::Member, PlaceStanding::Leaving, PlaceStanding::Asking, PlaceStanding::Admitted]
        {
            if self.standing() == standing {
                self.set_last_episode(episode);
                self.change_standing(standing, how);
            }
        }
    }

    /// Returns the episode of the last change of standing. For an admitted joiner it is the episode before
    /// its first, for a leaver its last episode, and for a member that is gone the first episode that cannot
    /// complete.
    pub(crate) fn last_episode(self) -> u32 {
        self.line.word(1).load(Ordering::Relaxed)
    }

    pub(crate) fn set_last_episode(self, episode: u32) {
        self.line.word(1).store(episode, Ordering::Relaxed);
    }

    /// Returns the flag that calls a joiner to the boundary.
    pub(crate) fn call(&self) -> Flag<'_> {
        self.line.flag(4)
    }

    pub(crate) fn process(self) -> u32 {
        self.line.word(2).load(Ordering::Relaxed)
    }

    /// Returns the start time of the process, in the kernel's clock ticks since boot. Together with its
    /// number it identifies the process.
    pub(crate) fn process_start(self) -> u64 {
        let word = |index: usize| u64::from(self.line.word(index).load(Ordering::Relaxed));
        word(3) | word(4) << 32
    }

    pub(crate) fn set_process(self, process: u32, start: u64) {
        self.line.word(2).store(process, Ordering::Relaxed);
        self.line.word(3).store((start & 0xffff_ffff) as u32, Ordering::Relaxed);
        self.line.word(4).store((start >> 32) as u32, Ordering::Relaxed);
    }
}

/// Returns whether `episode` is `other` or a later episode; numbers wrap.
pub(crate) const fn at_or_after(episode: u32, other: u32) -> bool {
    episode.wrapping_sub(other).cast_signed() >= 0
}

const STANDINGS: [PlaceStanding; 11] = [
    PlaceStanding::Free,
    PlaceStanding::Reserved,
    PlaceStanding::Member,
    PlaceStanding::Leaving,
    PlaceStanding::Claimed,
    PlaceStanding::Asking,
    PlaceStanding::Admitted,
    PlaceStanding::Retired,
    PlaceStanding::Gone(Cause::Panicked),
    PlaceStanding::Gone(Cause::Left),
    PlaceStanding::Gone(Cause::Died),
];

const fn code(standing: PlaceStanding) -> u32 {
    match standing {
        PlaceStanding::Free => 0,
        PlaceStanding::Reserved => 1,
        PlaceStanding::Member => 2,
        PlaceStanding::Leaving => 3,
        PlaceStanding::Asking => 4,
        PlaceStanding::Admitted => 5,
        PlaceStanding::Retired => 6,
        PlaceStanding::Gone(Cause::Panicked) => 7,
        PlaceStanding::Gone(Cause::Left) => 8,
        PlaceStanding::Gone(Cause::Died) => 9,
        PlaceStanding::Claimed => 10,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_was_gone_is_named_also_when_a_lower_place_is_gone_later() {
        let control = Control::new(Lines::on_heap(Control::lines(4)), 4, Scope::Private);
        (0..4).for_each(|place| control.member(place).set_standing(PlaceStanding::Member));
        assert!(control.find_gone(Some(7)).is_none());
        control.declare_gone(2, Cause::Died, 7);
        control.declare_gone(1, Cause::Died, 7);
        assert_eq!(control.find_gone(Some(7)).map(|gone| gone.participant), Some(2));
    }

    #[test]
    fn one_gone_from_a_later_episode_does_not_hide_one_who_died() {
        let control = Control::new(Lines::on_heap(Control::lines(4)), 4, Scope::Private);
        (0..4).for_each(|place| control.member(place).set_standing(PlaceStanding::Member));
        control.declare_gone(3, Cause::Left, 9);
        control.declare_gone(1, Cause::Died, 8);
        assert_eq!(control.find_gone(Some(8)).map(|gone| gone.participant), Some(1));
        assert_eq!(control.find_gone(Some(9)).map(|gone| gone.participant), Some(3));
    }
}
