//! Changes the members of a group between two episodes.
//!
//! All members must agree on the members of each episode, and this must cost nothing while nothing changes.
//! So a change at the end of episode e is announced before an arrival in e: a leaver announces it before its
//! own arrival, and the member of rank 0 announces the joiners. An episode completes after all arrivals, so
//! all members see the announcement when they complete e. They then meet at the *boundary*, a plain counting
//! barrier of the old and the new members. The last member to arrive there sets all words of the algorithm to
//! e and releases the others, which go on with their new ranks.
//!
//! A member that completes e may already see an announcement for e + 1. Each announcement carries its
//! episode, so the member knows that this change is not yet due. Cost: one load of a cached line an episode;
//! a change costs each member a sleep.

use crate::control::{ATTENTION_CHANGE, ATTENTION_JOIN, Control, MemberLine, PlaceStanding, at_or_after};
use crate::guard::Guard;
use unisono_sync::atomics::Ordering;
use unisono_sync::{Block, WaitPolicy, Wakeups, Watch, WatchVerdict};

/// A participant's position among the members, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberRank {
    pub(crate) rank: usize,
    pub(crate) members: usize,
}

/// A boundary that a participant has to cross.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boundary {
    episode: u32,
    /// The number of members that meet there, old and new.
    attendance: u32,
    /// The value of the boundary's flag that releases the members.
    target: u32,
    counted: bool,
    /// The participant's rank afterwards; `None` for a leaver.
    pub(crate) rank: Option<MemberRank>,
}

/// A member's part in the change at the end of an episode.
#[derive(PartialEq)]
enum MemberPart {
    Stays,
    Leaves,
    Comes,
    None,
}

fn part(member: MemberLine<'_>, episode: u32) -> MemberPart {
    // Read the standing first, because it is written last. A new standing with the old episode would make a
    // change of the next episode look like a change of this episode.
    let standing = member.standing();
    let due = at_or_after(episode, member.last_episode());
    match standing {
        PlaceStanding::Reserved | PlaceStanding::Member => MemberPart::Stays,
        PlaceStanding::Leaving if due => MemberPart::Leaves,
        PlaceStanding::Leaving => MemberPart::Stays,
        PlaceStanding::Admitted if due => MemberPart::Comes,
        _ => MemberPart::None,
    }
}

/// Computes the boundary that member `id` has to cross at the end of `episode`, or `None` if no change is due
/// there.
#[cold]
pub(crate) fn boundary(control: &Control, id: usize, episode: u32) -> Option<Boundary> {
    let (mut attendance, mut members, mut rank, mut due) = (0, 0, None, false);
    for member in control.members() {
        let part = part(member, episode);
        due |= matches!(part, MemberPart::Leaves | MemberPart::Comes);
        attendance += u32::from(part != MemberPart::None);
        if matches!(part, MemberPart::Stays | MemberPart::Comes) {
            if member.id == id {
                rank = Some(members);
            }
            members += 1;
        }
    }
    let target = control.boundary().value().wrapping_add(1);
    let rank = rank.map(|rank| MemberRank { rank, members });
    due.then_some(Boundary { episode, attendance, target, counted: false, rank })
}

/// Waits at the boundary until all have arrived; `None` if the watch stopped the wait, which a later call
/// resumes.
#[cold]
pub(crate) fn cross<W: Watch>(
    control: &Control,
    boundary: &mut Boundary,
    policy: &mut Block,
    watch: &mut W,
) -> Option<()> {
    let flag = control.boundary();
    if !boundary.counted {
        boundary.counted = true;
        let counter = control.boundary_counter();
        // SYNC(boundary) release: this member no longer uses the algorithm's words for this episode;
        // SYNC(boundary) acquire: the last member to arrive may rewrite them
        if counter.fetch_add(1, Ordering::AcqRel) + 1 == boundary.attendance {
            counter.store(0, Ordering::Relaxed);
            let remaining = turn(control, boundary.episode);
            flag.signal(boundary.target, Wakeups::Symmetric(control.scope));
            // After the signal, because a leaver that still waits here would otherwise report its last
            // episode as lost.
            if remaining == 0 {
                control.disband();
            }
        }
    }
    (flag.reached(boundary.target) || policy.wait(flag, boundary.target, watch) == WatchVerdict::Continue)
        .then_some(())
}

/// Makes the change while all other members wait at the boundary; returns the new number of members.
fn turn(control: &Control, episode: u32) -> usize {
    let mut remaining = 0;
    for member in control.members() {
        match part(member, episode) {
            MemberPart::Leaves => {
                member.set_standing(PlaceStanding::Retired);
                control.last_cpus().forget(member.id);
            }
            MemberPart::Comes => member.set_standing(PlaceStanding::Member),
            MemberPart::Stays | MemberPart::None => {}
        }
        remaining +=
            usize::from(matches!(member.standing(), PlaceStanding::Reserved | PlaceStanding::Member));
    }
    control.attention().fetch_and(!ATTENTION_CHANGE, Ordering::Relaxed);
    for line in control.first..control.lines.count() {
        control.reset_line(line, episode);
    }
    remaining
}

/// Announces that member `id` leaves after `episode`. The member calls this before its arrival in that
/// episode.
pub(crate) fn announce_leave(control: &Control, id: usize, episode: u32) {
    let member = control.member(id);
    member.set_last_episode(episode);
    member.set_standing(PlaceStanding::Leaving);
    control.attention().fetch_or(ATTENTION_CHANGE, Ordering::Relaxed);
}

/// Admits all joiners that ask, from the end of `episode` on. Only rank 0 calls this, before its arrival in
/// that episode.
#[cold]
pub(crate) fn admit_joiners(control: &Control, episode: u32) {
    // SYNC(asking) acquire: the joiner that set the bit has written its line
    if control.attention().fetch_and(!ATTENTION_JOIN, Ordering::AcqRel) & ATTENTION_JOIN == 0 {
        return;
    }
    for member in control.members().filter(|member| member.standing() == PlaceStanding::Asking) {
        member.set_last_episode(episode);
        member.set_standing(PlaceStanding::Admitted);
        control.attention().fetch_or(ATTENTION_CHANGE, Ordering::Relaxed);
    }
}

/// Calls the joiners admitted at the end of `episode` to the boundary. Only rank 0 calls this, before it
/// waits there itself.
pub(crate) fn call_joiners(control: &Control, episode: u32) {
    for member in control.members().filter(|member| part(*member, episode) == MemberPart::Comes) {
        member.call().signal(1, Wakeups::Symmetric(control.scope));
    }
}

/// Asks to join at the claimed place `id`, and waits for the call to the boundary; `None` if the guard
/// stopped the wait.
pub(crate) fn request_join(
    control: &Control,
    id: usize,
    guard: &mut Guard<'_>,
    policy: &mut Block,
) -> Option<()> {
    // SYNC(asking) release: the joiner's line is written before the bit
    control.attention().fetch_or(ATTENTION_JOIN, Ordering::AcqRel);
    (policy.wait(control.member(id).call(), 1, guard) == WatchVerdict::Continue).then_some(())
}
