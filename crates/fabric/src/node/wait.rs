//! Runs barriers on a node: it arrives, waits, and repeats the arrival after a timeout.

use super::{ETHERNET, MemberNode, OrderDone, SoftwarePart, UDP_PORT};
use crate::error::Error;
use crate::fabric::address_of;
use crate::orders::{BarrierRun, NodeReport};
use crate::software::{RankMessage, Software, SoftwareAlgorithm};
use std::io;
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_btin::{BarrierFrame, NodeId, SyncMessage};
use unisono_linux::clock::Duration;

/// The maximum number of messages that a member keeps for a run that it has not begun. If there are more,
/// some belong to older runs.
const MAX_EARLY: usize = 8192;

impl MemberNode<'_> {
    /// Runs barriers of several groups at the same time.
    pub(super) fn run_in_switches(&mut self, jobs: &[usize], run: BarrierRun) -> Result<OrderDone, Error> {
        let mine: Vec<usize> =
            jobs.iter().copied().filter(|job| self.members.get(*job).is_some_and(Option::is_some)).collect();
        let mut waiting: Vec<usize> = Vec::with_capacity(mine.len());
        let largest = mine.iter().map(|job| self.known.jobs[*job].group.members().len()).max();
        self.switch_kind(None, largest.unwrap_or(0));
        self.set_frame_timer()?;
        self.repeat(run, |node, repeated| {
            waiting.clone_from(&mine);
            node.barrier_in_switches(&mut waiting, repeated, run)
        })
    }

    fn barrier_in_switches(
        &mut self,
        waiting: &mut Vec<usize>,
        repeated: &mut u64,
        run: BarrierRun,
    ) -> Result<bool, Error> {
        let before = *repeated;
        let start = self.retransmit.time_next().then(StdInstant::now);
        let mut waits_since = None;
        let mut reported = false;
        self.given_up = false;
        let mut out = std::mem::take(&mut self.out); // reuses the buffer, so that a barrier allocates no memory
        let members = &mut self.members;
        // every member contributes the same data, which depend on the episode, so that a release from another
        // episode is detected
        waiting.retain(|job| {
            members[*job]
                .as_mut()
                .is_some_and(|member| member.arrive(data_of(member.episode()), &mut out).is_none())
        });
        let sent = out.drain(..).try_for_each(|frame| self.send(frame));
        self.out = out;
        sent?;
        while !waiting.is_empty() {
            if self.take_frame(waiting)? {
                continue;
            }
            if self.is_stop_ordered()? {
                return Ok(true);
            }
            let since = *waits_since.get_or_insert_with(|| StdInstant::now() - self.retransmit.timeout());
            *repeated += 1;
            let left = StdDuration::from_millis(run.stuck_after).saturating_sub(since.elapsed());
            if self.given_up || left.is_zero() {
                self.retransmit.shorten(); // the order to stop is expected soon
            } else {
                self.retransmit.back_off(left);
            }
            self.set_frame_timer()?;
            let mut out = Vec::new();
            for job in waiting.iter() {
                if let Some(member) = &self.members[*job] {
                    member.retransmit(&mut out);
                }
            }
            if !reported && left.is_zero() {
                reported = true;
                waiting
                    .iter()
                    .filter_map(|job| self.members[*job].as_ref())
                    .for_each(|member| member.abandon_episode(&mut out));
                let episode = self.members[waiting[0]].as_ref().map_or(0, |member| member.episode());
                self.report(&NodeReport::Stuck { job: waiting[0], episode })?;
            }
            out.drain(..).try_for_each(|frame| self.send(frame))?;
        }
        let repeated = *repeated - before;
        if (start.is_some() || repeated > 0)
            && self.retransmit.sample(start.map(|start| start.elapsed()), repeated)
        {
            self.set_frame_timer()?;
        }
        Ok(false)
    }

    /// Receives one frame and acts on it. Returns whether a frame arrived. Removes the released jobs from
    /// `waiting`.
    pub(super) fn take_frame(&mut self, waiting: &mut Vec<usize>) -> Result<bool, Error> {
        let mut bytes = [0; 64];
        let length = match self.barriers.receive(&mut bytes) {
            Ok(Some(length)) => length,
            // a device that has gone down reports that once as an error
            Ok(None) | Err(_) => return Ok(false),
        };
        let Some(payload) = bytes.get(ETHERNET..length).and_then(|bytes| bytes.first_chunk()) else {
            return Ok(true);
        };
        let frame = BarrierFrame::from_bytes(*payload);
        let mut out = Vec::new();
        for (job, member) in self.members.iter_mut().enumerate() {
            let Some(member) = member.as_mut().filter(|member| member.group() == frame.message.group) else {
                continue;
            };
            self.given_up |= member.is_given_up(frame);
            let data = data_of(member.episode());
            if let Some(result) = member.take(frame, &mut out) {
                waiting.retain(|waits| *waits != job);
                if result != data && self.known.jobs[job].is_idempotent() {
                    return Err(Error::Barrier(format!(
                        "node {} was released with {result} where all members arrived with {data}",
                        self.id.0
                    )));
                }
            }
        }
        out.drain(..).try_for_each(|frame| self.send(frame))?;
        // returns false after a failure message, so that the caller checks for the order to stop
        Ok(!self.given_up)
    }

    fn set_frame_timer(&self) -> Result<(), Error> {
        self.barriers.set_timeout(self.retransmit.timeout()).map_err(Error::io("set a timer"))
    }

    /// Runs barriers in software among a group's members.
    pub(super) fn run_in_software(
        &mut self,
        algorithm: SoftwareAlgorithm,
        job: usize,
        tag: u8,
        run: BarrierRun,
    ) -> Result<OrderDone, Error> {
        let members = self.known.jobs[job].group.members();
        let Ok(rank) = members.binary_search(&self.id) else {
            return Ok(OrderDone::With(NodeReport::Done {
                took: Duration::ZERO,
                repeated: 0,
                moments: Vec::new(),
            }));
        };
        let mut part = Software::new(algorithm, rank as u32, members.len() as u32);
        let mut out = Vec::new();
        for (_, message) in self.early.drain(..).filter(|(of, _)| *of == tag) {
            part.take(message, &mut out); // this cannot release the rank, which has not arrived yet
        }
        self.software = Some(SoftwarePart { part, job, tag });
        self.send_all(&mut out)?;
        self.switch_kind(Some(algorithm), members.len());
        self.set_datagram_timer()?;
        self.repeat(run, |node, repeated| node.barrier_in_software(repeated))
    }

    fn barrier_in_software(&mut self, repeated: &mut u64) -> Result<bool, Error> {
        let before = *repeated;
        let start = self.retransmit.time_next().then(StdInstant::now);
        let mut out = Vec::new();
        let mut released = self.software.as_mut().is_none_or(|ranks| ranks.part.arrive(&mut out));
        self.send_all(&mut out)?;
        while !released {
            if let Some(now) = self.take_datagram()? {
                released = now;
                continue;
            }
            if self.is_stop_ordered()? {
                return Ok(true);
            }
            *repeated += 1;
            self.retransmit.back_off(StdDuration::MAX);
            self.set_datagram_timer()?;
            if let Some(ranks) = &self.software {
                ranks.part.retransmit(&mut out);
            }
            self.send_all(&mut out)?;
        }
        let repeated = *repeated - before;
        if (start.is_some() || repeated > 0)
            && self.retransmit.sample(start.map(|start| start.elapsed()), repeated)
        {
            self.set_datagram_timer()?;
        }
        Ok(false)
    }

    /// Receives one message of a software barrier. Returns whether it releases this rank, or `None` if no
    /// message arrived.
    pub(super) fn take_datagram(&mut self) -> Result<Option<bool>, Error> {
        let mut bytes = [0; 64];
        let length = match self.datagrams.recv(&mut bytes) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::io("receive a datagram")(error)),
        };
        let (Some(message), Some(of)) =
            (RankMessage::from_bytes(&bytes[..length]), bytes.get(RankMessage::LENGTH))
        else {
            return Ok(Some(false));
        };
        let mut out = Vec::new();
        let released = match &mut self.software {
            Some(ranks) if ranks.tag == *of => ranks.part.take(message, &mut out),
            _ => {
                if self.early.len() < MAX_EARLY {
                    self.early.push((*of, message));
                }
                false
            }
        };
        self.send_all(&mut out)?;
        Ok(Some(released))
    }

    fn send_all(&self, out: &mut Vec<(u32, RankMessage)>) -> Result<(), Error> {
        let Some(SoftwarePart { job, tag, .. }) = self.software else { return Ok(()) };
        let members = self.known.jobs[job].group.members();
        let mut bytes = [tag; RankMessage::LENGTH + 1];
        for (rank, message) in out.drain(..) {
            bytes[..RankMessage::LENGTH].copy_from_slice(&message.to_bytes());
            let to: NodeId = members[rank as usize];
            let sent = self.datagrams.send_to(&bytes, (address_of(to), UDP_PORT));
            super::tolerate(sent.map(|_| ()), "send a datagram")?;
        }
        Ok(())
    }

    fn set_datagram_timer(&self) -> Result<(), Error> {
        self.datagrams.set_read_timeout(Some(self.retransmit.timeout())).map_err(Error::io("set a timer"))
    }
}

fn data_of(episode: u16) -> u8 {
    (episode & u16::from(SyncMessage::MAX_DATA)) as u8
}
