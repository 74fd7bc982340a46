//! The thread that waits for the disk, so that the broker does not block.
//!
//! One sync is in progress at a time; all data written meanwhile waits for the next sync (group commit).

use crate::log::SyncJob;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// A finished sync, and its result.
pub(super) type EndedSync = (SyncJob, Result<(), String>);

#[derive(Debug)]
pub(super) struct DiskThread {
    /// `None`: the thread is to end.
    jobs: Option<mpsc::Sender<SyncJob>>,
    ended: mpsc::Receiver<EndedSync>,
    /// An eventfd, readable when a sync has ended.
    signal: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl DiskThread {
    pub(super) fn start() -> Result<Self, Errno> {
        let signal = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (jobs, to_do) = mpsc::channel::<SyncJob>();
        let (done, ended) = mpsc::channel();
        let call = Arc::clone(&signal);
        let thread = std::thread::Builder::new().name("log sync".to_owned()).spawn(move || {
            for job in to_do {
                let result = job.run().map_err(|error| error.to_string());
                if done.send((job, result)).is_err() {
                    break;
                }
                // full only after 2^64 calls
                let _ = rustix::io::write(&*call, &1_u64.to_ne_bytes());
            }
        });
        let thread = thread.map_err(|_| Errno::AGAIN)?;
        Ok(Self { jobs: Some(jobs), ended, signal, thread: Some(thread) })
    }

    pub(super) fn sync(&self, job: SyncJob) {
        if let Some(jobs) = &self.jobs {
            // the thread ends only with this object
            let _ = jobs.send(job);
        }
    }

    /// Waits until all syncs have ended. Returns the syncs that were not reported yet.
    pub(super) fn finish(mut self) -> Vec<EndedSync> {
        self.end();
        self.ended.try_iter().collect()
    }

    fn end(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // its results are in the channel
            let _ = thread.join();
        }
    }

    /// Returns a finished sync, if there is a new one.
    pub(super) fn ended(&self) -> Option<EndedSync> {
        let _ = rustix::io::read(&*self.signal, &mut [0_u8; 8]);
        self.ended.try_recv().ok()
    }
}

unisono_linux::as_fd!(DiskThread.signal);

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.end();
    }
}
