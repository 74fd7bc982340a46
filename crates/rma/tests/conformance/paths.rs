//! Every path that a window's operations can take, for tests that hold on all of them.

use crate::{shared, watch, wires};
use std::thread;
use unisono_rma::{Error, Flavor, Job, Spec, Style, Window};

/// A path to a window: its transport, its style of synchronization, and the owner of its memory.
pub(crate) struct Path {
    pub(crate) name: &'static str,
    jobs: fn(usize) -> Vec<Job>,
    pub(crate) style: Style,
    flavor: Flavor,
}

const fn path(name: &'static str, jobs: fn(usize) -> Vec<Job>, style: Style, flavor: Flavor) -> Path {
    Path { name, jobs, style, flavor }
}

pub(crate) const ALL: [Path; 7] = [
    path("direct, allocated", shared, Style::Direct, Flavor::Allocated),
    path("direct, created", shared, Style::Direct, Flavor::Created),
    path("messages through shared memory", shared, Style::Deferred, Flavor::Allocated),
    path("messages through shared memory, naive", shared, Style::Naive, Flavor::Created),
    path("messages between threads", Job::threads, Style::Deferred, Flavor::Created),
    path("messages between threads, naive", Job::threads, Style::Naive, Flavor::Allocated),
    path("messages over TCP", wires::tcp, Style::Deferred, Flavor::Allocated),
];

impl Path {
    /// Makes a window on this path with `bytes` bytes for each member. Memory that stands for the user's own
    /// (`Flavor::Created`) is never freed.
    pub(crate) fn window(&self, job: &mut Job, bytes: usize, spec: Spec) -> Result<Window, Error> {
        let spec = spec.style(self.style);
        match self.flavor {
            // aligned for every element
            Flavor::Created => {
                let memory = vec![0_u128; bytes.div_ceil(16)].leak();
                // SAFETY: the memory is never freed, and accessed only through the window.
                unsafe { job.create(memory.as_mut_ptr().cast(), bytes as u64, spec) }
            }
            _ => job.allocate(bytes as u64, spec),
        }
    }
}

/// Runs `member` in each of `size` members, on every path.
pub(crate) fn everywhere(size: usize, member: impl Fn(&Path, Job) -> Result<(), Error> + Sync) {
    watch();
    for path in &ALL {
        together((path.jobs)(size), |job| member(path, job), path.name);
    }
}

/// Runs each member in a thread; a failure names the path by `name`.
pub(crate) fn together(jobs: Vec<Job>, member: impl Fn(Job) -> Result<(), Error> + Sync, name: &str) {
    thread::scope(|threads| {
        let member = &member;
        let members: Vec<_> = jobs.into_iter().map(|job| threads.spawn(move || member(job))).collect();
        for (rank, member) in members.into_iter().enumerate() {
            let ended = member.join().unwrap_or_else(|_| panic!("rank {rank} panicked: {name}"));
            ended.unwrap_or_else(|error| panic!("rank {rank}, {name}: {error}"));
        }
    });
}
