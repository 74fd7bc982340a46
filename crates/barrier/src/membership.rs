//! How a group changes its members between two episodes.
//!
//! Everybody must agree on the members of every episode, at no cost while nothing changes. So a change is
//! announced *before* an arrival in some episode e - by the one who leaves before its own, by the first
//! member (rank 0) on behalf of those who ask to join before its own - and therefore seen by everybody
//! after e, because completing e comes after all arrivals in e. Whoever finds a change due at the end of e
//! stops at the *boundary*: a plain counting barrier of the old and the new members. The last one there
//! puts all words of the algorithm to e and lets everybody go with their new ranks.
//!
//! A change announced for e + 1 may already be visible to one who only just leaves e; it carries its
//! episode and is not due. Cost: one load of a cached line an episode; a change costs everybody a sleep.

use crate::control::{ATTENTION_CHANGE, ATTENTION_JOIN, Control, Member, PlaceStanding, at_or_after};
use crate::guard::Guard;
use unisono_sync::atomics::Ordering;
use unisono_sync::{Block, WaitPolicy, Wakeups, Watch, WatchVerdict};

/// A participant's place in the order of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) rank: usize,
    pub(crate) members: usize,
}

/// A boundary that a participant has to cross.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boundary {
    episode: u32,
    /// How many meet there: old members and new ones.
    attendance: u32,
    /// The value of the boundary's flag that lets go.
    target: u32,
    counted: bool,
    /// Where the participant stands afterwards; `None` for one who leaves.
    pub(crate) rank: Option<Rank>,
}

/// What a member is at the end of `episode`.
#[derive(PartialEq)]
enum MemberPart {
    Stays,
    Leaves,
    Comes,
    None,
}

fn part(member: Member<'_>, episode: u32) -> MemberPart {
    // The standing first: it is written last, and a new one with the episode of an old one would take a
    // change of the next episode for one of this.
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

/// The boundary at the end of `episode` as `id` has to cross it, if a change is due there.
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
    let rank = rank.map(|rank| Rank { rank, members });
    due.then_some(Boundary { episode, attendance, target, counted: false, rank })
}

/// Waits at the boundary until all are there; `None` when the watch stopped it, to be resumed.
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
        // SYNC(boundary) release: this member is done with the episode's words;
        // SYNC(boundary) acquire: the last to come may rewrite them
        if counter.fetch_add(1, Ordering::AcqRel) + 1 == boundary.attendance {
            counter.store(0, Ordering::Relaxed);
            turn(control, boundary.episode);
            flag.signal(boundary.target, Wakeups::Symmetric(control.scope));
        }
    }
    (flag.reached(boundary.target) || policy.wait(flag, boundary.target, watch) == WatchVerdict::Continue)
        .then_some(())
}

/// Makes the change, while everybody else waits at the boundary.
fn turn(control: &Control, episode: u32) {
    let mut remaining = 0;
    for member in control.members() {
        match part(member, episode) {
            MemberPart::Leaves => {
                member.set_standing(PlaceStanding::Retired);
                control.notes().forget(member.id);
            }
            MemberPart::Comes => member.set_standing(PlaceStanding::Member),
            MemberPart::Stays | MemberPart::None => {}
        }
        remaining += u32::from(matches!(member.standing(), PlaceStanding::Reserved | PlaceStanding::Member));
    }
    if remaining == 0 {
        control.disband();
    }
    control.attention().fetch_and(!ATTENTION_CHANGE, Ordering::Relaxed);
    for line in control.first..control.lines.count() {
        control.reset_line(line, episode);
    }
}

/// Announces that `id` leaves after `episode`; before its arrival there.
pub(crate) fn announce_leave(control: &Control, id: usize, episode: u32) {
    let member = control.member(id);
    member.set_last_episode(episode);
    member.set_standing(PlaceStanding::Leaving);
    control.attention().fetch_or(ATTENTION_CHANGE, Ordering::Relaxed);
}

/// Admits whoever asks, from the end of `episode` on; for rank 0, before its arrival there.
#[cold]
pub(crate) fn admit_who_asks(control: &Control, episode: u32) {
    // SYNC(asking) acquire: whoever set the bit has its line ready
    if control.attention().fetch_and(!ATTENTION_JOIN, Ordering::AcqRel) & ATTENTION_JOIN == 0 {
        return;
    }
    for member in control.members().filter(|member| member.standing() == PlaceStanding::Asking) {
        member.set_last_episode(episode);
        member.set_standing(PlaceStanding::Admitted);
        control.attention().fetch_or(ATTENTION_CHANGE, Ordering::Relaxed);
    }
}

/// Calls those admitted at the end of `episode` to the boundary; for rank 0, before it goes there.
pub(crate) fn call_who_comes(control: &Control, episode: u32) {
    for member in control.members().filter(|member| part(*member, episode) == MemberPart::Comes) {
        member.call().signal(1, Wakeups::Symmetric(control.scope));
    }
}

/// Takes a free place and waits to be called to the boundary; `None` when the guard stopped it.
pub(crate) fn ask(control: &Control, id: usize, guard: &mut Guard<'_>, policy: &mut Block) -> Option<()> {
    // SYNC(asking) release: the line before the bit
    control.attention().fetch_or(ATTENTION_JOIN, Ordering::AcqRel);
    (policy.wait(control.member(id).call(), 1, guard) == WatchVerdict::Continue).then_some(())
}
