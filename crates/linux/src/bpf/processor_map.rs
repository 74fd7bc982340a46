//! A map that passes arriving frames to kernel threads, each bound to one processor (`BPF_MAP_TYPE_CPUMAP`).
//!
//! An XDP program redirects a frame to an entry of the map; the thread of that entry runs the network stack
//! on it. Frames wait in the entry's queue; a frame that finds the queue full is dropped before the stack has
//! spent time on it. The thread is an ordinary one: its nice value decides its share of the processor, and
//! its run time is the time that receiving took.
//!
//! Cost: a wake-up for each batch of up to 64 frames; the kernel computes checksums that a device had
//! checked. Reference: kernel/bpf/cpumap.c.

use super::{Attributes, MAP_UPDATE, element, map_information};
use crate::affinity::Tid;
use crate::pinned::PinnedThread;
use crate::process_list;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

const PROCESSOR_MAP: u32 = 16;

/// The map; its keys are the numbers of processors. The threads end with the map.
#[derive(Debug)]
pub struct ProcessorMap(OwnedFd);

impl ProcessorMap {
    /// Makes a map for processors below `processors`, without any thread. Fails with `EPERM` without
    /// `CAP_BPF`, and with `E2BIG` for more processors than the kernel was built for.
    pub fn new(name: &str, processors: u32) -> io::Result<Self> {
        Ok(Self(Attributes::map(PROCESSOR_MAP, name, [4, 4, processors]).make_map()?))
    }

    /// Starts the thread of a processor, with room for `queue` frames.
    pub fn start(&self, processor: u32, queue: u32) -> io::Result<()> {
        // SAFETY: key and value have four bytes each, the sizes that the map was made with.
        unsafe { element(MAP_UPDATE, &self.0, &raw const processor, &raw const queue) }
    }

    /// Finds the thread of a processor by the name that the kernel gives it. Fails with `NotFound` if it was
    /// not started, or if this process does not see the threads of the kernel.
    pub fn thread(&self, processor: u32) -> io::Result<PinnedThread> {
        let [_, map] = map_information::<2>(&self.0)?;
        let name = format!("cpumap/{processor}/map:{map}");
        let has_name = |number: &i32| {
            fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let number = process_list::numbers().into_iter().find(has_name).ok_or(io::ErrorKind::NotFound)?;
        PinnedThread::now(Tid(number))
    }
}

crate::as_fd!(ProcessorMap.0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_root;

    #[test]
    fn a_processor_has_a_thread_once_it_is_started_and_the_thread_ends_with_the_map() {
        if !is_root() {
            eprintln!("skipped: it needs root");
            return;
        }
        let map = match ProcessorMap::new("unisono_test", 1) {
            Ok(map) => map,
            Err(error) => {
                eprintln!("skipped: no maps of processors here: {error}");
                return;
            }
        };
        assert_eq!(map.thread(0).expect_err("it was not started").kind(), io::ErrorKind::NotFound);
        map.start(0, 64).expect("processor 0 is always there");
        let thread = map.thread(0).expect("it was started");
        assert_eq!(thread.allowed().expect("it lives").to_string(), "0");
        drop(map);
        while thread.lives() {
            std::thread::yield_now();
        }
    }
}
