//! A map that passes arriving frames to kernel threads, each bound to one processor (`BPF_MAP_TYPE_CPUMAP`).
//!
//! An XDP program redirects a frame to an entry of the map; the thread of that entry runs the network stack
//! on it. Frames wait in the entry's queue; a frame that finds the queue full is dropped before the stack has
//! spent time on it. The thread is an ordinary one: its nice value decides its share of the processor, and
//! its run time is the time that receiving took. It may run a program of its own on each frame that it takes
//! from its queue.
//!
//! Cost: a wake-up for each batch of up to 64 frames; the kernel computes checksums that a device had
//! checked. Reference: kernel/bpf/cpumap.c.

use super::{Attributes, MAP_UPDATE, Redirector, element, map_information};
use crate::affinity::Tid;
use crate::pinned::PinnedThread;
use crate::process_list;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

const PROCESSOR_MAP: u32 = 16;
/// The size of `struct bpf_cpumap_val`: the length of the queue, and the descriptor of a program.
const VALUE_BYTES: u32 = 8;
/// The process that is the parent of all threads of the kernel.
const THREAD_PARENT: i32 = 2;

/// The map; its keys are the numbers of processors. The threads end with the map.
#[derive(Debug)]
pub struct ProcessorMap(OwnedFd);

impl ProcessorMap {
    /// Makes a map for processors below `processors`, without any thread. Fails with `EPERM` without
    /// `CAP_BPF`, with `E2BIG` for more processors than the kernel was built for, and with `EINVAL` before
    /// Linux 5.9.
    pub fn new(name: &str, processors: u32) -> io::Result<Self> {
        Ok(Self(Attributes::map(PROCESSOR_MAP, name, [4, VALUE_BYTES, processors]).make_map()?))
    }

    /// Returns the kernel's number of the map.
    pub fn id(&self) -> io::Result<u32> {
        Ok(map_information::<2>(&self.0)?[1])
    }

    /// Starts the thread of a processor, with room for `queue` frames. The thread runs `program` on each
    /// frame that it takes; the program was loaded by [`Redirector::for_processor_map`].
    pub fn start(&self, processor: u32, queue: u32, program: Option<&Redirector>) -> io::Result<()> {
        // the kernel takes descriptor 0 for no program
        let program = program.map_or(0, |program| program.as_fd().as_raw_fd().cast_unsigned());
        let value = [queue, program];
        // SAFETY: the key has four bytes and the value eight, the sizes that the map was made with.
        unsafe { element(MAP_UPDATE, &self.0, &raw const processor, value.as_ptr()) }
    }

    /// Finds the thread of a processor by the name that the kernel gives it. Fails with `NotFound` if it was
    /// not started, or if this process does not see the threads of the kernel.
    pub fn thread(&self, processor: u32) -> io::Result<PinnedThread> {
        let wanted = (processor, self.id()?);
        let is_wanted = |number: &i32| place_of(*number) == Some(wanted);
        let number = process_list::numbers().into_iter().find(is_wanted).ok_or(io::ErrorKind::NotFound)?;
        PinnedThread::now(Tid(number))
    }

    /// Returns all threads of the maps with these [`id`](Self::id)s, each with the id of its map. Finds none
    /// if this process does not see the threads of the kernel. Each thread is pinned when the iterator
    /// reaches it, and holds a descriptor until it is dropped.
    pub fn threads(maps: &[u32]) -> impl Iterator<Item = (u32, PinnedThread)> {
        process_list::numbers().into_iter().filter_map(move |number| {
            let (_, map) = place_of(number).filter(|(_, map)| maps.contains(map))?;
            // a thread that has ended meanwhile is none
            Some((map, PinnedThread::now(Tid(number)).ok()?))
        })
    }
}

/// Returns the processor and the map of a thread, by the name that the kernel gives it (whole since Linux
/// 5.17, before cut at 15 bytes). `None`: it is no thread of such a map.
fn place_of(number: i32) -> Option<(u32, u32)> {
    let name = fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
    let (processor, map) = name.trim_end().strip_prefix("cpumap/")?.split_once("/map:")?;
    let place = (processor.parse().ok()?, map.parse().ok()?);
    // any program can give itself such a name
    (process_list::listed(number)?.parent == THREAD_PARENT).then_some(place)
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
        map.start(0, 64, None).expect("processor 0 is always there");
        let thread = map.thread(0).expect("it was started");
        let id = map.id().expect("the map is there");
        let of_map: Vec<_> =
            ProcessorMap::threads(&[id]).map(|(map, thread)| (map, thread.number())).collect();
        assert_eq!(of_map, [(id, thread.number())]);
        assert_eq!(thread.allowed().expect("it lives").to_string(), "0");
        drop(map);
        while thread.lives() {
            std::thread::yield_now();
        }
    }
}
