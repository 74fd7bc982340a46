//! A barrier of members on several hosts along a tree that the caller has chosen.
//!
//! The idea: arrivals go up, decisions come down, over any [`Transport`]. A member needs a connection to its
//! parent and to its children and to no other member. The transport repeats lost bytes and reports a peer
//! that is gone. A member that learns of such a peer tells its other neighbors, so that all members name the
//! same one.
//!
//! ```text
//!   child:  report of the barrier in which it waits --> parent     after the reports of its own children
//!   parent: decision: which barrier is complete     --> children   after the decision by its own parent
//! ```
//! Where the members have a faster barrier, which may stop working ([`FastBarrier`], such as switches that
//! combine arrivals), the tree stands beside it ([`TreeBarrierMember::wait_beside`]): a member reports only
//! after it has waited for a long time, and withdraws the report if the faster barrier releases it after all.
//! So a decision is made only if all members wait in vain. From then on all barriers follow the tree.
//! [`round`] says why no member leaves a barrier too early at the change.
//!
//! ```text
//!   member that waits for a long time: question: released from this barrier? --> all neighbors
//!   neighbor, once it is released:     answer: left                          --> the member that asked
//! ```
//! The faster barrier may also stop between two releases. A released member then does other things, perhaps
//! waits elsewhere for those that were not released, and reports nothing; without an answer both sides would
//! wait for ever. So a member that reports asks its neighbors as well. The barrier is complete if one of them
//! has left it, and the member leaves it, too, and answers in turn. As all members of a barrier that one has
//! left are in it, the answers reach every member from neighbor to neighbor. A member is asked at any time:
//! [`AnsweringMember`] has a thread that answers while the member is in no barrier. A member that learns of
//! the change inside a barrier asks again: the faster barrier may still have released members there that did
//! not know of the change.
//!
//! [`TreeBarrierMember::combine`] combines data of all members along the same tree.
//!
//! Cost: 2 (n - 1) packets; the longest chain has two packets a level. When not to use: within a host, where
//! `unisono-barrier` needs no packets. Reference: Mellor-Crummey and Scott, "Algorithms for scalable
//! synchronization on shared-memory multiprocessors" (1991), the combining tree.

mod answering;
mod round;

pub use answering::AnsweringMember;

use crate::model::{Error, Rank};
use crate::path::hook::{Hook, HookOutcome};
use crate::wire::packet::{HEADER, Header, PacketKind, WirePacket};
use crate::wire::{Gone, Transport};
use round::{Round, RoundStep, Span};
use std::fmt;
use std::io::IoSlice;
use std::time::Duration;
use unisono_linux::clock::{Instant, now};

/// The meaning of a packet, in [`Header::extra`]. The first three belong to the round in [`Header::tag`].
///
/// The subtree waits in barriers from number [`Header::offset`] to number [`Header::count`].
const REPORT: u64 = 0;
const WITHDRAWAL: u64 = 1;
/// The barriers up to number [`Header::count`] are complete, and the round with this tag begins.
const DECISION: u64 = 2;
/// The member of rank [`Header::count`] is gone; the payload is the reason.
const LOST: u64 = 3;
/// The sender has left [`Header::count`] barriers: an answer, or the last packet of a member that takes part
/// no longer.
const LEFT: u64 = 4;
/// The payload is the subtree's part of the combination with the number in the tag.
const PART: u64 = 5;
/// The payload is the result of the combination with the number in the tag.
const RESULT: u64 = 6;
/// As [`LEFT`], from a member that waits in the next barrier and wants to know when the receiver has left it.
const QUESTION: u64 = 7;

/// The interval at which a member in a faster barrier looks at the tree, if it has no hook to call.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A faster barrier among the same members, which may stop working but never releases a member too early.
pub trait FastBarrier: Send {
    /// Arrives at the next barrier.
    fn arrive(&mut self);

    /// Waits for the release, at most until this moment. Returns whether it has come.
    fn wait(&mut self, until: Instant) -> bool;

    /// The current barrier is complete, as the member has learned in another way.
    fn skip(&mut self);
}

/// The barrier that has released a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleasedBy {
    Fast,
    /// The tree. The fast barrier is not used any more, at any member.
    Tree,
}

/// One member's part in the barrier.
pub struct TreeBarrierMember {
    transport: Box<dyn Transport>,
    parent: Option<Rank>,
    children: Vec<Rank>,
    /// The number of barriers that this member has left.
    episode: u64,
    /// Whether this member has reported that it waits in the barrier `episode`.
    is_waiting: bool,
    /// The neighbors that wait in the barrier `episode` and have no answer yet.
    askers: Vec<Rank>,
    round: Round,
    /// The number of combinations that this member has finished.
    combined: u32,
    /// The children's parts of the combination `combined`.
    parts: Vec<Option<Vec<u8>>>,
    result: Option<Vec<u8>>,
    hook: Hook,
    lost: Option<Gone>,
    packet: Vec<u8>,
}

impl fmt::Debug for TreeBarrierMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeBarrierMember")
            .field("transport", &self.transport)
            .field("parent", &self.parent)
            .field("children", &self.children)
            .field("episode", &self.episode)
            .field("round", &self.round)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl TreeBarrierMember {
    /// A member's part. `transport` reaches its parent and its children; `None`: it is the root.
    pub fn over(transport: impl Transport + 'static, parent: Option<Rank>, children: Vec<Rank>) -> Self {
        Self {
            transport: Box::new(transport),
            parent,
            episode: 0,
            is_waiting: false,
            askers: Vec::new(),
            round: Round::first(parent.is_none(), children.len()),
            combined: 0,
            parts: vec![None; children.len()],
            result: None,
            children,
            hook: Hook::default(),
            lost: None,
            packet: Vec::new(),
        }
    }

    /// Calls `hook` about once in `every` (1 us to 5 ms) while this member waits, as
    /// [`Job::while_waiting`](crate::Job::while_waiting) does.
    pub fn while_waiting(&mut self, every: Duration, hook: Box<dyn FnMut() -> HookOutcome + Send>) {
        self.hook.set(every.into(), false, hook);
    }

    /// Waits until every member has called this or [`wait_beside`](Self::wait_beside). Fails with
    /// [`Error::Gone`] if a member cannot be reached any more, now and in every later call; fails with
    /// [`Error::System`].
    pub fn wait(&mut self) -> Result<(), Error> {
        self.check_lost()?;
        let episode = self.episode;
        self.arrive()?;
        self.wait_until(|barrier| barrier.episode != episode)?;
        self.flush()
    }

    /// As [`wait`](Self::wait), by a faster barrier, and by the tree if no member is released for
    /// `stall_after` after the last has arrived. The first barrier of this member, and until the first
    /// [`ReleasedBy::Tree`] all others, are waited for in this way. Members that also wait for each other
    /// elsewhere have to be [`AnsweringMember`]s: otherwise a released member may wait for a member that the
    /// faster barrier has not released, and that waits for an answer.
    pub fn wait_beside(
        &mut self,
        fast: &mut dyn FastBarrier,
        stall_after: Duration,
    ) -> Result<ReleasedBy, Error> {
        self.check_lost()?;
        if self.round.number != 0 {
            return self.wait().map(|()| ReleasedBy::Tree);
        }
        let (episode, begun) = (self.episode, now());
        fast.arrive();
        let mut due = begun + self.hook.first_delay().unwrap_or(POLL_INTERVAL.into());
        while !fast.wait(due) {
            due = now() + self.hook.call_due().unwrap_or(POLL_INTERVAL.into());
            // read first: the last packets of a peer that is gone by now are received below
            let gone = self.lost_neighbour();
            self.receive_all()?;
            if self.episode != episode {
                fast.skip();
                self.flush()?;
                return Ok(if self.round.number == 0 { ReleasedBy::Fast } else { ReleasedBy::Tree });
            }
            if let Some(gone) = gone {
                return Err(self.give_up(gone));
            }
            if self.round.number != 0 {
                // the faster barrier may yet release a member to which the decision comes later
                self.ask()?;
                return self.wait().map(|()| ReleasedBy::Tree);
            }
            if !self.is_waiting && now() - begun > stall_after.into() {
                self.ask()?;
                self.arrive()?;
            }
        }
        let has_to_send = self.is_waiting || !self.askers.is_empty();
        self.pass(episode + 1)?;
        if has_to_send {
            self.flush()?;
        }
        Ok(ReleasedBy::Fast)
    }

    /// Combines `data` of all members, which have the same length, by `combine`, an associative and
    /// commutative operation. Every member gets the result; none gets it before all have called this. Fails
    /// as [`wait`](Self::wait) does.
    pub fn combine(
        &mut self,
        data: &mut [u8],
        combine: &mut dyn FnMut(&mut [u8], &[u8]),
    ) -> Result<(), Error> {
        self.check_lost()?;
        self.wait_until(|barrier| barrier.parts.iter().all(Option::is_some))?;
        for at in 0..self.children.len() {
            let part = self.parts[at].take().unwrap_or_default();
            if part.len() != data.len() {
                return Err(self.wrong_length(self.children[at]));
            }
            combine(data, &part);
        }
        let tag = self.combined;
        let header = |meaning| Header { tag, extra: meaning, ..Header::new(PacketKind::Collect, 0) };
        if let Some(parent) = self.parent {
            self.transport.send(parent, &header(PART).encode(data.len()), &[IoSlice::new(data)])?;
            self.wait_until(|barrier| barrier.result.is_some())?;
            let result = self.result.take().unwrap_or_default();
            if result.len() != data.len() {
                return Err(self.wrong_length(parent));
            }
            data.copy_from_slice(&result);
        }
        self.combined = tag.wrapping_add(1);
        for child in &self.children {
            self.transport.send(*child, &header(RESULT).encode(data.len()), &[IoSlice::new(data)])?;
        }
        self.flush()
    }

    /// Ends this member's part in an orderly way: a neighbor that still waits in a barrier that this member
    /// has left is released.
    pub fn leave(mut self) {
        self.announce_leave();
    }

    fn announce_leave(&mut self) {
        let header = self.position(LEFT);
        for neighbour in self.parent.iter().chain(&self.children) {
            // a neighbor that cannot be reached does not wait
            let _ = self.transport.send(*neighbour, &header, &[]);
        }
        let _ = self.transport.flush();
    }

    /// Serves the neighbors while this member is in no barrier. Returns whether that may be needed again: not
    /// after an error, which the next barrier returns, and not after the second decision. Before it, all
    /// members reported in the knowledge of the first one, so the faster barrier releases no member any more.
    /// From then on every member passes a decision on before it leaves the barrier.
    fn serve(&mut self) -> bool {
        let served = self.receive_all().and_then(|()| self.flush());
        served.is_ok() && self.lost.is_none() && self.round.number < 2
    }

    /// Returns a packet that says how many barriers this member has left.
    fn position(&self, meaning: u64) -> [u8; HEADER] {
        Header { extra: meaning, count: self.episode, ..Header::new(PacketKind::Collect, 0) }.encode(0)
    }

    /// Asks the neighbors for their release from the current barrier.
    fn ask(&mut self) -> Result<(), Error> {
        let header = self.position(QUESTION);
        for neighbour in self.parent.iter().chain(&self.children) {
            self.transport.send(*neighbour, &header, &[])?;
        }
        Ok(())
    }

    /// Answers a neighbor that waits in the barrier with this number: now, or when this member has left it.
    fn answer(&mut self, asker: Rank, episode: u64) -> Result<(), Error> {
        if episode < self.episode {
            let header = self.position(LEFT);
            return self.transport.send(asker, &header, &[]);
        }
        if !self.askers.contains(&asker) {
            self.askers.push(asker);
        }
        Ok(())
    }

    fn wrong_length(&mut self, of: Rank) -> Error {
        let why = "it combines data of another length".to_owned();
        self.transport.refuse(of, &why);
        self.give_up(Gone { rank: of, why })
    }

    fn check_lost(&self) -> Result<(), Error> {
        match self.lost.clone() {
            Some(Gone { rank, why }) => Err(Error::Gone { rank, why }),
            None => Ok(()),
        }
    }

    fn arrive(&mut self) -> Result<(), Error> {
        self.is_waiting = true;
        let step = self.round.arrive(self.episode);
        self.follow(step)
    }

    /// All barriers before this number are complete.
    fn pass(&mut self, episode: u64) -> Result<(), Error> {
        self.episode = episode;
        let header = self.position(LEFT);
        for asker in std::mem::take(&mut self.askers) {
            self.transport.send(asker, &header, &[])?;
        }
        if !std::mem::take(&mut self.is_waiting) {
            return Ok(());
        }
        let step = self.round.withdraw();
        self.follow(step)
    }

    fn follow(&mut self, step: RoundStep) -> Result<(), Error> {
        let header = Header { tag: self.round.number, ..Header::new(PacketKind::Collect, 0) };
        let header = match step {
            RoundStep::Nothing => return Ok(()),
            RoundStep::Decide(complete) => {
                return self.conclude(self.round.number.wrapping_add(1).max(1), complete);
            }
            RoundStep::Report(Span { lowest, highest }) => {
                Header { extra: REPORT, offset: lowest.cast_signed(), count: highest, ..header }
            }
            RoundStep::Withdraw => Header { extra: WITHDRAWAL, ..header },
        };
        match self.parent {
            Some(parent) => self.transport.send(parent, &header.encode(0), &[]),
            None => Ok(()),
        }
    }

    /// Passes a decision on, and follows it.
    fn conclude(&mut self, number: u32, complete: u64) -> Result<(), Error> {
        self.round.begin(number);
        // the decision reaches these members as well; a member that still waits then asks again
        self.askers.clear();
        let header =
            Header { tag: number, extra: DECISION, count: complete, ..Header::new(PacketKind::Collect, 0) };
        for child in &self.children {
            self.transport.send(*child, &header.encode(0), &[])?;
        }
        if self.is_waiting && self.episode <= complete {
            self.is_waiting = false;
            self.episode = complete + 1;
        }
        if self.is_waiting { self.arrive() } else { Ok(()) }
    }

    /// Waits until the kernel has taken all packets: the next call may come late.
    fn flush(&mut self) -> Result<(), Error> {
        while !self.transport.flush()? {
            self.transport.wait(None)?;
        }
        Ok(())
    }

    fn wait_until(&mut self, is_over: impl Fn(&Self) -> bool) -> Result<(), Error> {
        let mut call_at = None;
        loop {
            // read first: the last packets of a peer that is gone by now are received below
            let gone = self.lost_neighbour();
            self.receive_all()?;
            if is_over(self) {
                return Ok(());
            }
            if let Some(gone) = gone {
                return Err(self.give_up(gone));
            }
            if self.lost_neighbour().is_some() {
                continue;
            }
            let due = *call_at.get_or_insert_with(|| self.hook.first_delay().map(|delay| now() + delay));
            self.transport.wait(due)?;
            if due.is_some_and(|due| now() >= due) {
                call_at = Some(self.hook.call_due().map(|delay| now() + delay));
            }
        }
    }

    fn receive_all(&mut self) -> Result<(), Error> {
        while let Some(from) = self.transport.receive(&mut self.packet)? {
            self.take(from)?;
        }
        Ok(())
    }

    /// A neighbor that is gone. Another member may have left in an orderly way, after its last barrier.
    fn lost_neighbour(&self) -> Option<Gone> {
        let is_near = |rank: Rank| self.parent == Some(rank) || self.children.contains(&rank);
        self.transport.gone().iter().find(|gone| is_near(gone.rank)).cloned()
    }

    fn take(&mut self, from: Rank) -> Result<(), Error> {
        let packet = std::mem::take(&mut self.packet);
        let parsed = WirePacket::parse(&packet);
        let Some(WirePacket { header, payload, .. }) =
            parsed.ok().filter(|packet| packet.header.kind == PacketKind::Collect)
        else {
            self.refuse(from);
            return Ok(());
        };
        let child = self.children.iter().position(|child| *child == from);
        let is_parent = self.parent == Some(from);
        let is_now = header.tag == self.round.number;
        let step = match (header.extra, child) {
            // a report of an earlier round has crossed the decision about it
            (REPORT | WITHDRAWAL, Some(_)) if !is_now => RoundStep::Nothing,
            (REPORT, Some(child)) if (0..=header.count.cast_signed()).contains(&header.offset) => {
                let span = Span { lowest: header.offset.cast_unsigned(), highest: header.count };
                self.round.take_report(child, span)
            }
            (WITHDRAWAL, Some(child)) => self.round.take_withdrawal(child),
            (DECISION, _) if is_parent && self.is_plausible(header.count) => {
                self.conclude(header.tag.max(1), header.count)?;
                RoundStep::Nothing
            }
            (LEFT | QUESTION, _) if header.count <= self.episode + 1 => {
                if header.count > self.episode {
                    self.pass(header.count)?;
                }
                if header.extra == QUESTION {
                    self.answer(from, header.count)?;
                }
                RoundStep::Nothing
            }
            (PART, Some(child)) if header.tag == self.combined && self.parts[child].is_none() => {
                self.parts[child] = Some(payload.to_vec());
                RoundStep::Nothing
            }
            (RESULT, _) if is_parent && header.tag == self.combined && self.result.is_none() => {
                self.result = Some(payload.to_vec());
                RoundStep::Nothing
            }
            (LOST, _) => {
                let rank = Rank(u32::try_from(header.count).unwrap_or(u32::MAX));
                let why = String::from_utf8_lossy(payload).into_owned();
                return Err(self.give_up(Gone { rank, why }));
            }
            _ => {
                self.refuse(from);
                RoundStep::Nothing
            }
        };
        self.packet = packet;
        self.follow(step)
    }

    /// Whether a decision about this barrier can be true.
    fn is_plausible(&self, complete: u64) -> bool {
        complete < self.episode || self.is_waiting && complete == self.episode
    }

    fn refuse(&mut self, from: Rank) {
        self.transport.refuse(from, "it sent what belongs to no barrier");
    }

    /// Tells the neighbors that a member is gone.
    fn give_up(&mut self, gone: Gone) -> Error {
        let Gone { rank, why } = gone.clone();
        let header = Header { extra: LOST, count: rank.0.into(), ..Header::new(PacketKind::Collect, 0) }
            .encode(why.len());
        for neighbour in self.parent.iter().chain(&self.children).filter(|neighbour| **neighbour != rank) {
            // this rank's own error follows anyway
            let _ = self.transport.send(*neighbour, &header, &[IoSlice::new(why.as_bytes())]);
        }
        let _ = self.transport.flush();
        self.lost = Some(gone);
        Error::Gone { rank, why }
    }
}

#[cfg(test)]
mod tests;
