//! A disk scheduler: shares decide which class is served next; the purpose of the class decides which of its
//! requests is sent to the disk.
//!
//! ```text
//!   class-independent    start-time fair queuing over all classes, in bytes
//!   class-specific       interactive   first in, first out; out of turn if no deadline is at stake
//!                        throughput    by position, in sweeps
//!                        real-time     by deadline, then by position; out of turn to meet a deadline
//! ```
//! A class that is served out of turn gets its share earlier, not a greater share: the request is charged,
//! and the class is served out of turn only while it is ahead of its share by at most [`Disk::ahead`] bytes.
//! Before the scheduler serves any other request, it computes the slack of the real-time requests of all
//! classes together: how long the disk can do other work and still serve each of them by its deadline, given
//! the speed of the disk ([`Disk`]). A sweep takes only the requests that were waiting when it began, so
//! every request is served in the end.
//!
//! The scheduler is pure logic: time is an argument, and the caller sends the requests to the disk. Several
//! requests may be at the disk at the same time. The virtual time is then the start tag of the request that
//! was sent last (as in SFQ(D), Jin et al. 2004), which increases the fairness bound by the bytes of the
//! requests at the disk.
//!
//! Cost: one decision of the fair queue, and steps in the logarithm of the number of requests that wait in
//! the class. Each decision also computes the slack, which visits all real-time requests that wait. When not
//! to use it: on a solid-state disk whose users need neither shares nor deadlines, because position matters
//! little there.
//!
//! Reference: Shenoy, Vin, "Cello: a disk scheduling framework for next generation operating systems"
//! (SIGMETRICS 1998), and QLinux, which uses it for its disks.

use crate::discipline::{Backlog, Discipline, EnqueueError};
use crate::hierarchy::{ClassId, Hierarchy};
use crate::packet::Packet;
use crate::scheduler::Scheduler;
use std::collections::{BTreeMap, VecDeque};
use unisono_time::{Duration, Instant};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskRequest<T> {
    pub position: u64,
    /// Bytes; at most [`Packet::MAX_LENGTH`].
    pub length: u32,
    /// The deadline, on the caller's clock; used in real-time classes only.
    pub deadline: Instant,
    pub item: T,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Purpose {
    Interactive,
    #[default]
    Throughput,
    /// Requests with deadlines.
    RealTime,
}

/// The speed of the disk, and how far a class may be ahead of its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// The fixed part of a request's time; the time for its bytes is added to it.
    pub request: Duration,
    pub bytes_per_second: u64,
    /// The bytes by which an interactive or real-time class may be ahead of its share, before a request that
    /// is served out of turn.
    pub ahead: u32,
}

impl Disk {
    /// Returns the time for a request of `length` bytes.
    pub fn takes(&self, length: u32) -> Duration {
        let transfer = u64::from(length) * Duration::SECOND.as_nanos() / self.bytes_per_second.max(1);
        self.request + Duration::from_nanos(transfer)
    }
}

/// The waiting requests of one class, in the class's order.
#[derive(Clone, Debug)]
enum CelloQueue<T> {
    Interactive(VecDeque<DiskRequest<T>>),
    /// The requests of this sweep and of the next sweep, by position, then by arrival.
    Throughput {
        sweep: BTreeMap<(u64, u64), DiskRequest<T>>,
        next: BTreeMap<(u64, u64), DiskRequest<T>>,
    },
    /// By deadline, then by position, then by arrival.
    RealTime(BTreeMap<(Instant, u64, u64), DiskRequest<T>>),
}

impl<T> CelloQueue<T> {
    fn new(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Interactive => Self::Interactive(VecDeque::new()),
            Purpose::Throughput => Self::Throughput { sweep: BTreeMap::new(), next: BTreeMap::new() },
            Purpose::RealTime => Self::RealTime(BTreeMap::new()),
        }
    }

    fn push(&mut self, request: DiskRequest<T>, arrival: u64) {
        match self {
            Self::Interactive(line) => line.push_back(request),
            Self::Throughput { next, .. } => drop(next.insert((request.position, arrival), request)),
            Self::RealTime(waiting) => {
                waiting.insert((request.deadline, request.position, arrival), request);
            }
        }
    }

    fn first(&self) -> Option<&DiskRequest<T>> {
        match self {
            Self::Interactive(line) => line.front(),
            Self::Throughput { sweep, next } => {
                sweep.first_key_value().or_else(|| next.first_key_value()).map(|entry| entry.1)
            }
            Self::RealTime(waiting) => waiting.first_key_value().map(|entry| entry.1),
        }
    }

    fn pop(&mut self) -> Option<DiskRequest<T>> {
        match self {
            Self::Interactive(line) => line.pop_front(),
            Self::Throughput { sweep, next } => {
                if sweep.is_empty() {
                    std::mem::swap(sweep, next);
                }
                sweep.pop_first().map(|entry| entry.1)
            }
            Self::RealTime(waiting) => waiting.pop_first().map(|entry| entry.1),
        }
    }

    /// Returns the real-time requests, by deadline.
    fn real_time(&self) -> impl Iterator<Item = &DiskRequest<T>> {
        let waiting = if let Self::RealTime(waiting) = self { Some(waiting.values()) } else { None };
        waiting.into_iter().flatten()
    }
}

/// The disk scheduler: shares by weight, real-time classes by deadline.
///
/// ```
/// use unisono_fairqueue::{Cello, ClassSpec, Disk, DiskRequest, Hierarchy, NO_DEADLINE, Purpose};
/// use unisono_fairqueue::{Duration, Instant};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let classes = Hierarchy::new(
///     ClassSpec::new("disk").with([ClassSpec::new("video"), ClassSpec::new("backup")]),
/// )?;
/// let (video, backup) = (classes.find("video").ok_or("?")?, classes.find("backup").ok_or("?")?);
/// let purpose = |class| if class == video { Purpose::RealTime } else { Purpose::Throughput };
/// let disk = Disk { request: Duration::from_millis(1), bytes_per_second: 100_000_000, ahead: 1 << 20 };
/// let mut cello = Cello::new(classes.clone(), purpose, disk);
///
/// let request = |position, deadline| DiskRequest { position, length: 65_536, deadline, item: () };
/// cello.submit(Instant::ZERO, backup, request(0, NO_DEADLINE))?;
/// cello.submit(Instant::ZERO, video, request(9_000, Instant::from_millis(2)))?;
/// let (first, _) = cello.dispatch(Instant::ZERO).ok_or("two wait")?;
/// assert_eq!(first, video, "its deadline leaves no time for another request");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cello<T> {
    shares: Scheduler<()>,
    /// One queue per class; the queues of inner classes stay empty.
    classes: Vec<CelloQueue<T>>,
    /// Leaves that may be served out of turn.
    real_time: Vec<ClassId>,
    interactive: Vec<ClassId>,
    disk: Disk,
    arrivals: u64,
    out: u32,
}

impl<T> Cello<T> {
    /// Returns a scheduler without requests. `purpose` returns the purpose of a class; it matters only at
    /// leaves.
    pub fn new(hierarchy: Hierarchy, purpose: impl Fn(ClassId) -> Purpose, disk: Disk) -> Self {
        let leaves = |wanted: Purpose| {
            let leaves = hierarchy.classes().map(|(id, _)| id).filter(|id| hierarchy.is_leaf(*id));
            leaves.filter(|id| purpose(*id) == wanted).collect()
        };
        Self {
            classes: hierarchy.classes().map(|(id, _)| CelloQueue::new(purpose(id))).collect(),
            real_time: leaves(Purpose::RealTime),
            interactive: leaves(Purpose::Interactive),
            shares: Scheduler::new(hierarchy),
            disk,
            arrivals: 0,
            out: 0,
        }
    }

    /// Queues a request that arrives. Fails if the class has children, or if the request is too long.
    pub fn submit(
        &mut self,
        now: Instant,
        class: ClassId,
        request: DiskRequest<T>,
    ) -> Result<(), EnqueueError> {
        // the scheduler counts requests per class; `dispatch` picks the request itself
        self.shares.enqueue(now, class, Packet::new(request.length, ()))?;
        self.classes[class.index()].push(request, self.arrivals);
        self.arrivals += 1;
        Ok(())
    }

    /// Chooses the request to send to the disk now, and takes it out of the queue.
    pub fn dispatch(&mut self, now: Instant) -> Option<(ClassId, DiskRequest<T>)> {
        let class = self.out_of_turn(now).or_else(|| self.shares.dequeue(now).map(|(class, _)| class))?;
        let request = self.classes[class.index()].pop().expect("one waits because the scheduler counts them");
        self.shares.charge(request.length);
        self.out += 1;
        Some((class, request))
    }

    pub fn complete(&mut self, now: Instant) {
        self.out = self.out.saturating_sub(1);
        if self.out == 0 {
            self.shares.finish(now);
        }
    }

    /// Chooses a class to serve although it may not be its turn, if there is one.
    fn out_of_turn(&mut self, now: Instant) -> Option<ClassId> {
        let longest =
            self.classes.iter().filter_map(CelloQueue::first).map(|request| request.length).max()?;
        let slack = self.slack(now);
        if slack < self.disk.takes(longest) {
            let due = |id: &ClassId| Some((self.classes[id.index()].first()?.deadline, *id));
            let mut urgent: Vec<(Instant, ClassId)> = self.real_time.iter().filter_map(due).collect();
            urgent.sort_unstable();
            let mut classes = urgent.into_iter().map(|(_, id)| id);
            let served = classes.find(|id| self.shares.dequeue_ahead(now, *id, self.disk.ahead).is_some());
            if served.is_some() {
                return served;
            }
        }
        self.interactive.iter().copied().find(|id| {
            let first = self.classes[id.index()].first();
            first.is_some_and(|request| self.disk.takes(request.length) <= slack)
                && self.shares.dequeue_ahead(now, *id, self.disk.ahead).is_some()
        })
    }

    /// Returns the time that the disk can spend on other work so that each real-time request still ends by
    /// its deadline; negative differences count as zero.
    fn slack(&self, now: Instant) -> Duration {
        let requests = self.real_time.iter().flat_map(|id| self.classes[id.index()].real_time());
        let mut waiting: Vec<(Instant, u32)> =
            requests.map(|request| (request.deadline, request.length)).collect();
        // stable, because this sort merges the sorted requests of each class
        waiting.sort_by_key(|(deadline, _)| *deadline);
        let (mut ends, mut slack) = (now, Duration::MAX);
        for (deadline, length) in waiting {
            ends += self.disk.takes(length);
            slack = slack.min(deadline - ends);
        }
        slack
    }

    /// Takes the requests of another scheduler, those at the disk included, for instance after a change of
    /// the classes. `class_of` returns the class of a request here. Within a class, they keep their order.
    ///
    /// # Errors
    /// If `class_of` returns a class with children; the requests that were not taken then are lost.
    pub fn take_over(
        &mut self,
        now: Instant,
        other: Self,
        class_of: impl Fn(&T) -> ClassId,
    ) -> Result<(), EnqueueError> {
        for mut waiting in other.classes {
            while let Some(request) = waiting.pop() {
                self.submit(now, class_of(&request.item), request)?;
            }
        }
        self.out += other.out;
        Ok(())
    }

    /// Returns the number and the bytes of the requests that wait, without those at the disk.
    pub fn backlog(&self) -> Backlog {
        self.shares.backlog()
    }

    /// Returns the scheduler of the shares, which has the service that each class has received.
    pub fn shares(&self) -> &Scheduler<()> {
        &self.shares
    }
}
