//! Joining: how a thread or a process becomes a member of a group.

use crate::control::PlaceStanding;
use crate::error::Error;
use crate::group::Group;
use crate::guard::{Guard, Stopped};
use crate::membership::{self, MemberRank};
use crate::participant::Participant;
use unisono_linux::futex::Scope;
use unisono_linux::pidfd::start_time;
use unisono_sync::{Block, Wakeups};

impl Group {
    /// Takes all initial places of the group, in order. Fails with [`Error::Taken`] if a place is taken
    /// already.
    pub fn participants(&self) -> Result<Vec<Participant>, Error> {
        (0..self.participants).map(|id| self.participant(id)).collect()
    }

    /// Takes the initial place `id`; errors name this member by it. Fails with [`Error::NoSuchPlace`],
    /// [`Error::Taken`].
    pub fn participant(&self, id: usize) -> Result<Participant, Error> {
        if id >= self.participants {
            return Err(Error::NoSuchPlace { id, capacity: self.participants });
        }
        let member = self.control.member(id);
        if !member.change_standing(PlaceStanding::Reserved, PlaceStanding::Member) {
            return Err(Error::Taken { id, process: member.process() });
        }
        self.sign_in(id);
        Ok(Participant::new(self.clone(), id, MemberRank { rank: id, members: self.participants }, 0))
    }

    /// Joins as a new member: waits until the current members have completed their episode, and takes part
    /// from the next episode on. Fails with [`Error::TooMany`] if no place is left (see
    /// [`GroupSpec`](crate::GroupSpec::capacity)), with [`Error::Gone`] if a member is gone, and with
    /// [`Error::Disbanded`] if all members have left.
    ///
    /// ```
    /// use unisono_barrier::GroupSpec;
    ///
    /// let group = GroupSpec::new(1)?.capacity(2)?.for_threads()?;
    /// let mut first = group.participant(0)?;
    /// let second = std::thread::spawn({
    ///     let group = group.clone();
    ///     move || group.join().and_then(|mut joined| joined.wait().map(|_| joined.members()))
    /// });
    /// while first.members() < 2 {
    ///     first.wait()?; // a member joins between two episodes
    /// }
    /// first.wait()?;
    /// assert!(second.join().is_ok_and(|members| members.is_ok_and(|members| members == 2)));
    /// # Ok::<(), unisono_barrier::Error>(())
    /// ```
    pub fn join(&self) -> Result<Participant, Error> {
        let (wanted, max) = (self.control.capacity + 1, self.control.capacity);
        let takes = |id: &usize| {
            self.control.member(*id).change_standing(PlaceStanding::Free, PlaceStanding::Claimed)
        };
        let id = (0..max).find(takes).ok_or(Error::TooMany { wanted, max })?;
        self.sign_in(id);
        self.control.member(id).set_standing(PlaceStanding::Asking);
        // Once a member is gone, from whatever episode on, no later episode can be joined.
        let mut guard = Guard::for_any_episode(&self.control);
        let mut policy = Block::new(Wakeups::Symmetric(self.control.scope));
        let mut asked = || -> Option<Participant> {
            membership::request_join(&self.control, id, &mut guard, &mut policy)?;
            let episode = self.control.member(id).last_episode();
            let mut boundary = membership::boundary(&self.control, id, episode)?;
            membership::cross(&self.control, &mut boundary, &mut policy, &mut guard)?;
            Some(Participant::new(self.clone(), id, boundary.rank?, episode))
        };
        let joined = asked();
        match (joined, guard.stopped) {
            (Some(participant), _) => Ok(participant),
            (None, Some(Stopped::Gone(gone))) => {
                self.control.member(id).set_standing(PlaceStanding::Retired);
                Err(Error::Gone(gone))
            }
            (None, _) => Err(Error::Disbanded),
        }
    }

    fn sign_in(&self, id: usize) {
        let process = std::process::id();
        let shared = self.control.scope == Scope::Shared;
        let start = if shared { start_time(process).unwrap_or(0) } else { 0 };
        self.control.member(id).set_process(process, start);
    }
}
