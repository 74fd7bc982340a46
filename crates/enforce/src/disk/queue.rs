//! The queue for the requests of all connections: Cello chooses the next request, and a few threads execute
//! requests.
//!
//! ```text
//!   connections --submit--> Cello --> [pace] --> threads: pread, pwrite, fdatasync --> replies
//! ```
//! The number of threads is the number of requests at the disk at a time. After each piece, a request that
//! has further pieces is submitted again. The pace is the policy's rate: requests reach the disk no faster,
//! even if the disk could carry more, so that they wait here, where their classes are known, and not at the
//! disk.
//!
//! Cost: a lock and two thread switches for each piece.

use super::DiskError;
use super::backing::{Backing, Transfer, TransferProgress, error_number};
use super::nbd::NbdError;
use crate::delays;
use serde::{Deserialize, Serialize};
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use unisono_fairqueue::{
    Cello, ClassId, DelayFigures, Disk, DiskClass, DiskRequest, LinkPace, NO_DEADLINE, Policy, Purpose,
};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_measure::Histogram;

/// Cello's model of the disk beside the policy's rate: the least time of a request, and how many bytes an
/// interactive or real-time class may be ahead of its share. Chosen for a slow SSD, not measured.
const REQUEST_TIME: Duration = Duration::from_micros(300);
const MAX_AHEAD: u32 = 256 << 10;
/// The greatest lateness of a thread that is made up for. Chosen, not measured.
const MAX_LATENESS: Duration = Duration::from_millis(5);

/// Reports a failed request of a class, once for each class.
pub(super) type FailureNote<'a> = &'a (dyn Fn(&str) + Sync);

/// A request of a client that waits or is executed.
pub(super) struct RequestTask {
    class: ClassRecordNumber,
    pub(super) cookie: u64,
    pub(super) transfer: Transfer,
    submitted: Instant,
    deadline: Instant,
    replies: Sender<DiskReply>,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct DiskReply {
    pub(super) cookie: u64,
    /// The bytes of a read.
    pub(super) result: Result<Vec<u8>, NbdError>,
    /// The request's bytes in its connection's window.
    pub(super) held: u32,
}

/// The counters of a class.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DiskClassFigures {
    pub name: String,
    /// The part of the disk, from 0 to 1, that the class gets while all classes have requests waiting.
    pub share: f64,
    /// Clients that have chosen the class and are connected.
    pub clients: u64,
    /// Requests that wait for their turn.
    pub waiting: u64,
    pub requests: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Bytes of the pieces that were chosen while another class had requests waiting, too: only these are
    /// divided by weight.
    pub contended_bytes: u64,
    pub failed: u64,
    /// Requests that were completed after their deadline.
    pub late: u64,
    /// The times from the arrival of a request to its completion.
    pub delay: Option<DelayFigures>,
}

/// The position of a class's counters. It stays the same when the policy changes, unlike a [`ClassId`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ClassRecordNumber(usize);

struct DiskClassRecord {
    /// The leaf of the policy in force. `None`: the policy no longer has it, and no client uses it.
    leaf: Option<ClassId>,
    figures: DiskClassFigures,
    delays: Histogram,
    deadline: Option<Duration>,
}

struct RequestQueueState {
    cello: Cello<RequestTask>,
    pace: LinkPace,
    /// The counters of all leaves that have been in force, by [`ClassRecordNumber`].
    classes: Vec<DiskClassRecord>,
    in_service: usize,
    ends: bool,
}

pub(super) struct RequestQueue {
    state: Mutex<RequestQueueState>,
    work: Condvar,
}

fn cello(policy: &Policy) -> Cello<RequestTask> {
    let of_class = |id: ClassId| policy.disk.iter().find(|of| of.class == id);
    let purpose = |id| of_class(id).map_or_else(Purpose::default, |of: &DiskClass| of.purpose);
    let bytes_per_second = policy.rate.bits_per_second() / 8;
    let disk = Disk { request: REQUEST_TIME, bytes_per_second, ahead: MAX_AHEAD };
    Cello::new(policy.hierarchy.clone(), purpose, disk)
}

impl RequestQueue {
    pub(super) fn new(policy: &Policy) -> Self {
        let mut state = RequestQueueState {
            cello: cello(policy),
            pace: LinkPace::new(policy.rate, MAX_LATENESS),
            classes: Vec::new(),
            in_service: 0,
            ends: false,
        };
        state.set_classes(policy);
        Self { state: Mutex::new(state), work: Condvar::new() }
    }

    /// Schedules by another policy from now on. Requests that wait are kept. Fails, and changes nothing, if
    /// the policy lacks a class that a client uses.
    pub(super) fn change(&self, policy: &Policy) -> Result<(), DiskError> {
        let mut state = self.state();
        let tree = &policy.hierarchy;
        let leaf = |name: &str| tree.find(name).filter(|id| tree.is_leaf(*id));
        let lacks =
            |class: &&DiskClassRecord| class.figures.clients > 0 && leaf(&class.figures.name).is_none();
        if let Some(DiskClassRecord { figures, .. }) = state.classes.iter().find(lacks) {
            return Err(DiskError::ClassInUse { class: figures.name.clone(), clients: figures.clients });
        }
        state.set_classes(policy);
        state.pace = LinkPace::new(policy.rate, MAX_LATENESS);
        let RequestQueueState { cello: scheduler, classes, .. } = &mut *state;
        let before = std::mem::replace(scheduler, cello(policy));
        let class_of = |task: &RequestTask| classes[task.class.0].leaf();
        scheduler.take_over(clock::now(), before, class_of).expect("accepted because these are leaves");
        drop(state);
        self.work.notify_all();
        Ok(())
    }

    /// Chooses a class for a client. `None`: the policy in force has no leaf of this name.
    pub(super) fn open(&self, name: &str) -> Option<OpenClass<'_>> {
        let mut state = self.state();
        let at = state.classes.iter().position(|class| class.leaf.is_some() && class.figures.name == name)?;
        state.classes[at].figures.clients += 1;
        Some(OpenClass { queue: self, class: ClassRecordNumber(at) })
    }

    fn state(&self) -> MutexGuard<'_, RequestQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes requests until [`end`](Self::end) was called and none waits.
    pub(super) fn work(&self, backing: &Backing, note: FailureNote<'_>) {
        while let Some(mut job) = self.next() {
            let bytes = u64::from(job.transfer.bytes());
            let outcome = job.transfer.step(backing);
            let now = clock::now();
            let mut state = self.state();
            state.in_service -= 1;
            let class = &mut state.classes[job.class.0];
            let result = match outcome {
                Ok(step) => {
                    let figures = &mut class.figures;
                    let counter = match job.transfer.reads() {
                        true => &mut figures.read_bytes,
                        false => &mut figures.written_bytes,
                    };
                    *counter += bytes;
                    if step == TransferProgress::More {
                        // queues the next piece before the service of this one ends, so that the class stays
                        // backlogged
                        state.add(now, job);
                        state.cello.complete(now);
                        continue;
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            };
            let figures = &mut class.figures;
            figures.requests += 1;
            figures.failed += u64::from(result.is_err());
            figures.late += u64::from(now > job.deadline);
            let remark = result.as_ref().err().filter(|_| figures.failed == 1).map(|error| {
                format!(
                    "class {}: a request at byte {} failed: {error}",
                    figures.name,
                    job.transfer.position()
                )
            });
            class.delays.record_nanos((now - job.submitted).as_nanos());
            state.cello.complete(now);
            drop(state);
            if let Some(remark) = remark {
                note(&remark);
            }
            job.reply(result.map_err(|error| error_number(&error)));
        }
    }

    /// Waits until a request is queued and the pace lets it begin. Returns `None` at the end.
    fn next(&self) -> Option<RequestTask> {
        let mut state = self.state();
        loop {
            let now = clock::now();
            if state.cello.backlog().packets == 0 {
                if state.ends {
                    return None;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let free_at = state.pace.free_at();
            if free_at > now {
                let waited = self.work.wait_timeout(state, (free_at - now).into());
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let backlogged = state.classes.iter().filter(|class| class.figures.waiting > 0).count();
            let (_, request) = state.cello.dispatch(now).expect("present because the backlog has one");
            state.pace.carry(now, request.length);
            state.in_service += 1;
            let figures = &mut state.classes[request.item.class.0].figures;
            figures.waiting -= 1;
            if backlogged > 1 {
                figures.contended_bytes += u64::from(request.item.transfer.bytes());
            }
            if state.cello.backlog().packets > 0 {
                // the wake-up for the next request may have gone to this thread, which is busy now
                self.work.notify_one();
            }
            return Some(request.item);
        }
    }

    /// Returns whether no request waits or is executed.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.in_service == 0 && state.cello.backlog().packets == 0
    }

    /// Lets the threads end after they have executed the requests that wait.
    pub(super) fn end(&self) {
        self.state().ends = true;
        self.work.notify_all();
    }

    /// Returns the counters of the leaves of the policy in force, in its order.
    pub(super) fn figures(&self) -> Vec<DiskClassFigures> {
        let state = self.state();
        let mut in_force: Vec<&DiskClassRecord> =
            state.classes.iter().filter(|class| class.leaf.is_some()).collect();
        in_force.sort_by_key(|class| class.leaf);
        let figures = |class: &DiskClassRecord| DiskClassFigures {
            delay: delays::figures(&class.delays),
            ..class.figures.clone()
        };
        in_force.into_iter().map(figures).collect()
    }
}

impl RequestQueueState {
    /// Gives each leaf of a policy its counters; a leaf that was there before keeps them.
    fn set_classes(&mut self, policy: &Policy) {
        self.classes.iter_mut().for_each(|class| class.leaf = None);
        let tree = &policy.hierarchy;
        for (id, class) in tree.classes().filter(|(id, _)| tree.is_leaf(*id)) {
            let known = self.classes.iter().position(|record| record.figures.name == class.name);
            let at = known.unwrap_or_else(|| {
                self.classes.push(DiskClassRecord::new(&class.name));
                self.classes.len() - 1
            });
            let record = &mut self.classes[at];
            record.leaf = Some(id);
            record.figures.share = tree.share(id);
            record.deadline = policy.disk.iter().find(|of| of.class == id).and_then(|of| of.deadline);
        }
    }

    fn add(&mut self, now: Instant, job: RequestTask) {
        let (position, length, deadline) = (job.transfer.position(), job.transfer.cost(), job.deadline);
        let record = &mut self.classes[job.class.0];
        record.figures.waiting += 1;
        let class = record.leaf();
        self.cello
            .submit(now, class, DiskRequest { position, length, deadline, item: job })
            .expect("accepted because exports are leaves, and a piece is shorter than the longest packet");
    }
}

impl DiskClassRecord {
    fn new(name: &str) -> Self {
        let figures = DiskClassFigures {
            name: name.to_owned(),
            share: 0.0,
            clients: 0,
            waiting: 0,
            requests: 0,
            read_bytes: 0,
            written_bytes: 0,
            contended_bytes: 0,
            failed: 0,
            late: 0,
            delay: None,
        };
        Self { leaf: None, figures, delays: Histogram::coarse(), deadline: None }
    }

    /// Returns the leaf of a class that a client uses.
    fn leaf(&self) -> ClassId {
        self.leaf.expect("in force because no change of the policy takes a class away that a client uses")
    }
}

/// A class that a client has chosen. Until it is dropped, no change of the policy takes the class away.
pub(super) struct OpenClass<'a> {
    queue: &'a RequestQueue,
    class: ClassRecordNumber,
}

impl OpenClass<'_> {
    /// Queues a request. Its reply is sent to `replies`.
    pub(super) fn submit(&self, cookie: u64, transfer: Transfer, replies: &Sender<DiskReply>) {
        let (submitted, class, replies) = (clock::now(), self.class, replies.clone());
        let mut state = self.queue.state();
        let deadline = state.classes[class.0].deadline.map_or(NO_DEADLINE, |after| submitted + after);
        state.add(submitted, RequestTask { class, cookie, transfer, submitted, deadline, replies });
        drop(state);
        self.queue.work.notify_one();
    }
}

impl Drop for OpenClass<'_> {
    fn drop(&mut self) {
        self.queue.state().classes[self.class.0].figures.clients -= 1;
    }
}

impl RequestTask {
    fn reply(self, result: Result<(), NbdError>) {
        let held = self.transfer.held();
        let result = result.map(|()| self.transfer.into_data());
        // the connection may be gone
        let _ = self.replies.send(DiskReply { cookie: self.cookie, result, held });
    }
}

#[cfg(test)]
mod tests {
    use super::super::nbd::{DiskCommand, WriteDurability};
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;

    /// Makes a file of 4 MiB.
    fn backing() -> Backing {
        let file = tempfile::tempfile().expect("a scratch file");
        file.set_len(4 << 20).expect("room");
        Backing::new(file)
    }

    fn read(offset: u64, length: u32) -> Transfer {
        Transfer::new(DiskCommand::Read, offset, length, Vec::new()).expect("a transfer")
    }

    #[test]
    fn backlogged_classes_are_served_by_weight_and_the_contended_bytes_say_so() {
        let text = "rate = \"1000gbit\"\n[class.a]\nweight = 3\n[class.b]\nweight = 1\n";
        let policy = Policy::parse(text).expect("a sound policy");
        let (queue, backing, (replies, received)) = (RequestQueue::new(&policy), backing(), channel());
        let [a, b] = ["a", "b"].map(|name| queue.open(name).expect("it is there"));
        for request in 0..800 {
            let class = if request % 2 == 0 { &a } else { &b };
            // some of several pieces
            class.submit(request, read(0, if request % 8 < 2 { 1 << 20 } else { 65_536 }), &replies);
        }
        queue.end();
        drop(replies);
        let succeeded = thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| queue.work(&backing, &|_| ()))));
            received.iter().filter(|reply| reply.result.as_ref().is_ok_and(|data| !data.is_empty())).count()
        });
        assert_eq!(succeeded, 800);
        let figures = queue.figures();
        let of = |name: &str| figures.iter().find(|class| class.name == name).expect("a leaf");
        assert_eq!((of("a").read_bytes, of("a").requests), (of("b").read_bytes, 400));
        let ratio = of("a").contended_bytes as f64 / of("b").contended_bytes as f64;
        assert!((ratio / 3.0 - 1.0).abs() < 0.02, "{ratio}");
        assert!(queue.is_idle());
    }

    #[test]
    fn the_rate_is_kept_and_late_requests_are_counted() {
        let text = "rate = \"80mbit\"\n[class.a]\n[disk.a]\ndeadline = \"1us\"\n";
        let policy = Policy::parse(text).expect("a sound policy");
        let (queue, backing, (replies, received)) = (RequestQueue::new(&policy), backing(), channel());
        let a = queue.open("a").expect("it is there");
        let begun = clock::now();
        a.submit(0, read(0, 1 << 20), &replies);
        queue.end();
        queue.work(&backing, &|_| ());
        // the first piece begins at once, and the last one when the time of the other three has passed
        assert!(clock::now() - begun >= Duration::from_millis(78) - MAX_LATENESS);
        assert!(received.recv().expect("it is served").result.is_ok());
        let figures = &queue.figures()[0];
        assert_eq!((figures.late, figures.requests, figures.read_bytes), (1, 1, 1 << 20));
    }

    #[test]
    fn a_request_that_fails_is_counted_and_noted_once() {
        let policy = Policy::parse("rate = \"1gbit\"\n[class.a]\n").expect("a sound policy");
        let (queue, backing, (replies, received)) = (RequestQueue::new(&policy), backing(), channel());
        let a = queue.open("a").expect("it is there");
        for cookie in 0..2 {
            // the offset is behind the end of the file, as if the file had become shorter
            a.submit(cookie, read(4 << 20, 512), &replies);
        }
        let write = DiskCommand::Write(WriteDurability::UntilFlush);
        a.submit(2, Transfer::new(write, 0, 3, vec![1; 3]).expect("a transfer"), &replies);
        queue.end();
        let notes = Mutex::new(Vec::new());
        queue.work(&backing, &|text| notes.lock().expect("one thread").push(text.to_owned()));
        let results: Vec<bool> = received.try_iter().map(|reply| reply.result.is_ok()).collect();
        assert_eq!(results.iter().filter(|succeeded| **succeeded).count(), 1);
        let notes = notes.into_inner().expect("one thread");
        assert!(
            notes.len() == 1 && notes[0].contains("class a") && notes[0].contains("4194304"),
            "{notes:?}"
        );
        assert_eq!(queue.figures()[0].failed, 2);
    }
    #[test]
    fn a_change_keeps_requests_and_counters_and_no_class_that_a_client_uses_goes() {
        let policy =
            |text: &str| Policy::parse(&format!("rate = \"1000gbit\"\n{text}")).expect("a sound policy");
        let queue = RequestQueue::new(&policy("[class.a]\n[class.b]\n"));
        let (backing, (replies, received)) = (backing(), channel());
        let [a, b] = ["a", "b"].map(|name| queue.open(name).expect("it is there"));
        for request in 0..400 {
            let class = if request % 2 == 0 { &a } else { &b };
            class.submit(request, read(0, 65_536), &replies);
        }
        let before = queue.figures();
        let refused = queue.change(&policy("[class.b]\n[class.c]\n")).expect_err("a client uses a");
        assert!(refused.to_string().contains("class a"), "{refused}");
        assert_eq!(queue.figures(), before, "nothing has changed");
        queue
            .change(&policy("[class.new]\nweight = 4\n[class.b]\nweight = 1\n[class.a]\nweight = 3\n"))
            .expect("both are there");
        assert_eq!(queue.figures().iter().map(|class| class.waiting).sum::<u64>(), 400);
        queue.end();
        queue.work(&backing, &|_| ());
        assert_eq!(received.try_iter().filter(|reply| reply.result.is_ok()).count(), 400);
        let figures = queue.figures();
        let of = |name: &str| figures.iter().find(|class| class.name == name).expect("a leaf");
        let ratio = of("a").contended_bytes as f64 / of("b").contended_bytes as f64;
        assert!((ratio / 3.0 - 1.0).abs() < 0.05, "{ratio}");
        assert_eq!((of("a").requests, of("b").clients, of("new").requests), (200, 1, 0));
        drop(a);
        queue.change(&policy("[class.b]\n")).expect("no client uses a");
        assert!(queue.figures().iter().all(|class| class.name != "a") && queue.open("a").is_none());
    }
}
