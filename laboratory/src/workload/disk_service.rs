//! A disk shared by classes of requests: a service that executes the reads and writes of programs.
//!
//! ```text
//!   submit --> Cello (or one queue) --> threads: pread, pwrite past the page cache --> the caller's channel
//! ```
//! The scheduler picks the next request whenever a thread is free. The number of threads is the number of
//! requests that are at the disk at a time. With few threads the scheduler decides the order; many threads
//! keep a disk busy that serves several requests at once. The service controls only its own requests: a
//! program that reads the same disk directly is not limited.
//!
//! Cost: a lock and two thread switches for each request: some microseconds, compared with hundreds for the
//! disk.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use unisono_fairqueue::{Cello, ClassId, Disk, DiskRequest, EnqueueError, Hierarchy, Purpose};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::direct::Aligned;

#[derive(Debug)]
pub enum DiskOperation {
    /// A read of this number of bytes.
    Read(u32),
    Write(Aligned),
}

#[derive(Debug)]
pub struct Reply {
    pub class: ClassId,
    pub data: io::Result<Aligned>,
    /// The time from submission to completion.
    pub took: Duration,
    /// Whether the request completed after its deadline.
    pub late: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Figures {
    pub requests: u64,
    pub bytes: u64,
    pub failed: u64,
    pub late: u64,
    /// The time from submission to completion, summed over all requests.
    pub took: Duration,
    /// The longest time from submission to completion.
    pub longest: Duration,
}

struct DiskJob {
    file: Arc<File>,
    position: u64,
    deadline: Instant,
    operation: DiskOperation,
    submitted: Instant,
    reply: Sender<Reply>,
}

enum DiskQueue {
    Cello(Box<Cello<DiskJob>>),
    Fifo(VecDeque<(ClassId, DiskJob)>),
}

impl DiskQueue {
    fn submit(&mut self, now: Instant, class: ClassId, job: DiskJob) -> Result<(), EnqueueError> {
        match self {
            Self::Cello(cello) => {
                let (position, length, deadline) = (job.position, job.length(), job.deadline);
                cello.submit(now, class, DiskRequest { position, length, deadline, item: job })
            }
            Self::Fifo(line) => {
                line.push_back((class, job));
                Ok(())
            }
        }
    }

    fn dispatch(&mut self, now: Instant) -> Option<(ClassId, DiskJob)> {
        match self {
            Self::Cello(cello) => cello.dispatch(now).map(|(class, request)| (class, request.item)),
            Self::Fifo(line) => line.pop_front(),
        }
    }

    fn complete(&mut self, now: Instant) {
        if let Self::Cello(cello) = self {
            cello.complete(now);
        }
    }
}

impl DiskJob {
    fn length(&self) -> u32 {
        match &self.operation {
            DiskOperation::Read(length) => *length,
            DiskOperation::Write(data) => u32::try_from(data.len()).unwrap_or(u32::MAX),
        }
    }

    fn run(&mut self) -> io::Result<Aligned> {
        match std::mem::replace(&mut self.operation, DiskOperation::Read(0)) {
            DiskOperation::Read(length) => {
                let mut data = Aligned::new(length as usize);
                self.file.read_exact_at(&mut data, self.position)?;
                Ok(data)
            }
            DiskOperation::Write(data) => self.file.write_all_at(&data, self.position).map(|()| data),
        }
    }
}

struct DiskState {
    queue: DiskQueue,
    figures: Vec<Figures>,
    ends: bool,
}

struct SharedDisk {
    state: Mutex<DiskState>,
    work: Condvar,
}

impl SharedDisk {
    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.state();
        loop {
            let Some((class, mut job)) = state.queue.dispatch(clock::now()) else {
                if state.ends {
                    return;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let length = u64::from(job.length());
            let data = job.run();
            let now = clock::now();
            let took = now - job.submitted;
            let late = now > job.deadline;
            state = self.state();
            state.queue.complete(now);
            let figures = &mut state.figures[class.index()];
            figures.requests += 1;
            figures.failed += u64::from(data.is_err());
            figures.bytes += if data.is_ok() { length } else { 0 };
            figures.late += u64::from(late);
            figures.took += took;
            figures.longest = figures.longest.max(took);
            // an error means that the receiver is gone
            let _ = job.reply.send(Reply { class, data, took, late });
        }
    }
}

#[derive(Clone, Debug)]
pub enum DiskRule {
    Cello {
        hierarchy: Hierarchy,
        /// The purposes of the classes. Classes that are not in this list have the purpose throughput.
        purposes: Vec<(ClassId, Purpose)>,
        disk: Disk,
    },
    /// One queue, first in, first out, for comparison.
    Fifo { hierarchy: Hierarchy },
}

/// The service. Its drop serves the waiting requests and ends the threads.
pub struct Service {
    shared: Arc<SharedDisk>,
    threads: Vec<JoinHandle<()>>,
}

impl Service {
    /// Starts the service with this number of threads, but with at least one.
    pub fn start(rule: DiskRule, threads: usize) -> io::Result<Self> {
        let (queue, hierarchy) = match rule {
            DiskRule::Fifo { hierarchy } => (DiskQueue::Fifo(VecDeque::new()), hierarchy),
            DiskRule::Cello { hierarchy, purposes, disk } => {
                let named = |id| purposes.iter().find(|(class, _)| *class == id);
                let purpose = |id| named(id).map_or(Purpose::default(), |(_, purpose)| *purpose);
                (DiskQueue::Cello(Box::new(Cello::new(hierarchy.clone(), purpose, disk))), hierarchy)
            }
        };
        let figures = vec![Figures::default(); hierarchy.classes().count()];
        let state = Mutex::new(DiskState { queue, figures, ends: false });
        let shared = Arc::new(SharedDisk { state, work: Condvar::new() });
        let mut service = Self { shared, threads: vec![] };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&service.shared);
            let thread = std::thread::Builder::new().name(format!("disk-{number}"));
            service.threads.push(thread.spawn(move || shared.serve())?);
        }
        Ok(service)
    }

    /// Submits a request, whose reply comes through the channel. If the file was opened with `O_DIRECT`,
    /// position and length must be multiples of the block size.
    pub fn submit(
        &self,
        class: ClassId,
        file: &Arc<File>,
        position: u64,
        operation: DiskOperation,
        due: Option<Duration>,
        reply: &Sender<Reply>,
    ) -> Result<(), EnqueueError> {
        let submitted = clock::now();
        let deadline = due.map_or(Instant::NEVER, |due| submitted + due);
        let job = DiskJob {
            file: Arc::clone(file),
            position,
            deadline,
            operation,
            submitted,
            reply: reply.clone(),
        };
        self.shared.state().queue.submit(submitted, class, job)?;
        self.shared.work.notify_one();
        Ok(())
    }

    pub fn figures(&self, class: ClassId) -> Figures {
        self.shared.state().figures[class.index()]
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.state().ends = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a thread that panicked has reported that already
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use unisono_fairqueue::ClassSpec;

    #[test]
    fn what_is_written_through_the_service_is_read_through_it_and_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        std::fs::write(&path, vec![0; 1 << 20]).expect("it can be written");
        let file = Arc::new(File::options().read(true).write(true).open(&path).expect("it is there"));
        let tree = ClassSpec::new("disk").with([ClassSpec::new("a"), ClassSpec::new("b")]);
        let hierarchy = Hierarchy::new(tree).expect("names are unique");
        let [a, b] = ["a", "b"].map(|name| hierarchy.find(name).expect("it is there"));
        let disk =
            Disk { request: Duration::from_micros(100), bytes_per_second: 100_000_000, ahead: 1 << 16 };
        let cello =
            DiskRule::Cello { hierarchy: hierarchy.clone(), purposes: vec![(b, Purpose::Interactive)], disk };
        for rule in [cello, DiskRule::Fifo { hierarchy }] {
            let service = Service::start(rule, 2).expect("threads");
            let (reply, replies) = channel();
            for block in 0..16_u8 {
                let mut data = Aligned::new(4096);
                data.fill(block);
                let position = u64::from(block) * 4096;
                service.submit(a, &file, position, DiskOperation::Write(data), None, &reply).expect("a leaf");
            }
            for _ in 0..16 {
                assert!(replies.recv().expect("it is served").data.is_ok());
            }
            service.submit(b, &file, 5 * 4096, DiskOperation::Read(4096), None, &reply).expect("a leaf");
            let data = replies.recv().expect("it is served").data.expect("it can be read");
            assert!(data.iter().all(|byte| *byte == 5));
            // a read beyond the end of the file must give an error and not a panic
            service
                .submit(b, &file, 1 << 30, DiskOperation::Read(4096), Some(Duration::ZERO), &reply)
                .expect("a leaf");
            let reply = replies.recv().expect("it is served");
            assert!(reply.data.is_err() && reply.late);
            let Figures { requests, bytes, failed, late, .. } = service.figures(b);
            assert_eq!((requests, bytes, failed, late), (2, 4096, 1, 1));
            assert_eq!(service.figures(a).bytes, 16 * 4096);
        }
    }
}
