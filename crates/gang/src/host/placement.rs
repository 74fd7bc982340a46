//! A core for every thread: unstacking the threads of a gang.
//!
//! Linux may put all spinning threads of a program on one core. It sees no imbalance, because each thread
//! seems to work. Inside a gang the remedy is simple: while there are at most as many threads that want to
//! run as cores, each gets a core of its own; with one thread more, which may only manage the others, two
//! threads share a core. Sleeping threads do not count and stay where they are, so a shell and a `timeout`
//! that wait for a program do not keep its threads stacked. A thread whose affinity is neither the gang's
//! whole set nor a core that this module chose was placed by its program; it is left alone for good. A gang
//! with a single thread is not pinned, because runtimes count their processors when they start.
//!
//! Pure: the state of the threads is an argument, the list of changes is the result. Cost: the caller lists
//! threads, 20 to 200 us, when their number changed and then at growing intervals of at most a second.

use std::collections::BTreeMap;
use unisono_linux::affinity::{CpuSet, Tid};

/// The present state of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    pub thread: Tid,
    pub process: Tid,
    pub allowed: CpuSet,
    /// Whether the thread wants to run, as `Width` finds out; a sleeping thread needs no core.
    pub wants: bool,
}

/// A change to make: the new affinity of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementChange {
    pub thread: Tid,
    pub to: CpuSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownThread {
    /// This module pinned the thread to this core.
    Pinned(usize),
    /// The program sets the affinity itself.
    HandsOff,
}

#[derive(Clone, Debug)]
pub struct Spread {
    all_cpus: CpuSet,
    home: CpuSet,
    known: BTreeMap<Tid, KnownThread>,
    scans: BTreeMap<Tid, u32>,
}

/// A process with one thread is left alone for this many scans, because it may be about to start its threads:
/// after an early move, all of them would begin on the core of the first thread. Chosen, not measured.
const SCANS_BEFORE_PLACEMENT: u32 = 5;

impl Spread {
    /// Makes the placement of a gang whose threads start with the affinity `all_cpus`.
    pub fn new(all_cpus: CpuSet) -> Spread {
        Spread { home: all_cpus.clone(), all_cpus, known: BTreeMap::new(), scans: BTreeMap::new() }
    }

    /// Sets the cores of the gang's place in the matrix; its threads move there at the next scan.
    pub fn set_home(&mut self, home: CpuSet) {
        if !home.is_empty() {
            self.home = home;
        }
    }

    /// Compares the gang's threads with their placement; returns the changes to make.
    pub fn update(&mut self, threads: &[Thread]) -> Vec<PlacementChange> {
        self.known.retain(|known, _| threads.iter().any(|t| t.thread == *known));
        self.scans.retain(|known, _| threads.iter().any(|t| t.process == *known));
        for process in threads.iter().filter(|t| t.thread == t.process) {
            *self.scans.entry(process.process).or_default() += 1;
        }
        let given: Vec<usize> = self
            .known
            .values()
            .filter_map(|k| if let KnownThread::Pinned(cpu) = k { Some(*cpu) } else { None })
            .collect();
        let mut free: Vec<&Thread> = Vec::new();
        for thread in threads {
            match self.known.get(&thread.thread) {
                Some(KnownThread::HandsOff) => {}
                Some(KnownThread::Pinned(cpu)) if thread.allowed == CpuSet::single(*cpu) => free.push(thread),
                Some(KnownThread::Pinned(_)) => {
                    self.known.insert(thread.thread, KnownThread::HandsOff);
                }
                None => {
                    let ours = |cpu: &usize| thread.allowed == CpuSet::single(*cpu);
                    // a thread inherits the core that was given to its parent
                    if thread.allowed == self.all_cpus || given.iter().any(ours) {
                        free.push(thread);
                    } else {
                        self.known.insert(thread.thread, KnownThread::HandsOff);
                    }
                }
            }
        }
        free.retain(|thread| thread.wants);
        let fits = threads.len() > 1 && free.len() <= self.home.len() + 1;
        // the maximum number of threads per core; a core has more if the gang's home was narrower before, and
        // the surplus threads move
        let max_per_core = free.len().div_ceil(self.home.len().max(1));
        let mut load: BTreeMap<usize, usize> = self.home.iter().map(|cpu| (cpu, 0)).collect();
        let mut changes = Vec::new();
        // threads with a core in the home keep it; the others get the least loaded core
        let has_core = |thread: &&Thread| matches!(self.known.get(&thread.thread), Some(KnownThread::Pinned(cpu)) if self.home.contains(*cpu));
        let (stay, mut place): (Vec<&Thread>, Vec<&Thread>) = free.into_iter().partition(has_core);
        for thread in stay {
            if let Some(KnownThread::Pinned(cpu)) = self.known.get(&thread.thread) {
                let count = load.entry(*cpu).or_default();
                if fits && *count < max_per_core {
                    *count += 1;
                    continue;
                }
            }
            place.push(thread);
        }
        for thread in place {
            let siblings = threads.iter().filter(|t| t.process == thread.process).count();
            let settled =
                siblings > 1 || self.scans.get(&thread.process).is_some_and(|n| *n >= SCANS_BEFORE_PLACEMENT);
            let core = load.iter().min_by_key(|(cpu, count)| (**count, **cpu)).map(|(cpu, _)| *cpu);
            let to = match core {
                Some(cpu) if fits && settled => {
                    *load.entry(cpu).or_default() += 1;
                    self.known.insert(thread.thread, KnownThread::Pinned(cpu));
                    CpuSet::single(cpu)
                }
                _ => {
                    self.known.remove(&thread.thread);
                    self.all_cpus.clone()
                }
            };
            if thread.allowed != to {
                changes.push(PlacementChange { thread: thread.thread, to });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().expect("a list")
    }

    fn thread(thread: i32, process: i32, allowed: &str) -> Thread {
        Thread { thread: Tid(thread), process: Tid(process), allowed: cpus(allowed), wants: true }
    }

    fn apply(threads: &mut [Thread], changes: &[PlacementChange]) {
        for change in changes {
            for thread in threads.iter_mut().filter(|t| t.thread == change.thread) {
                thread.allowed = change.to.clone();
            }
        }
    }

    #[test]
    fn each_thread_of_a_program_gets_a_core() {
        let mut spread = Spread::new(cpus("0-1"));
        let mut threads = vec![thread(1, 1, "0-1"), thread(2, 1, "0-1")];
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        assert_eq!((&threads[0].allowed, &threads[1].allowed), (&cpus("0"), &cpus("1")));
        assert_eq!(spread.update(&threads), [], "nothing to do the second time");
    }

    #[test]
    fn a_thread_born_on_its_parents_core_gets_its_own() {
        let mut spread = Spread::new(cpus("0-3"));
        let mut threads = vec![thread(1, 1, "0-3"), thread(2, 1, "0-3")];
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        threads.push(thread(3, 1, "0"));
        let changes = spread.update(&threads);
        assert_eq!(changes, [PlacementChange { thread: Tid(3), to: cpus("2") }]);
    }

    #[test]
    fn programs_that_pin_themselves_are_left_alone() {
        let mut spread = Spread::new(cpus("0-3"));
        let own = vec![thread(1, 1, "3"), thread(2, 1, "2-3")];
        assert_eq!(spread.update(&own), []);
        let mut threads = vec![thread(5, 5, "0-3"), thread(6, 5, "0-3")];
        let mut spread = Spread::new(cpus("0-3"));
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        threads[1].allowed = cpus("2-3");
        assert_eq!(spread.update(&threads), []);
        threads[1].allowed = cpus("0-3");
        assert_eq!(spread.update(&threads), [], "its program decides from then on");
    }

    #[test]
    fn a_program_with_one_thread_is_not_pinned_alone() {
        let mut spread = Spread::new(cpus("0-1"));
        for _ in 0..20 {
            assert_eq!(spread.update(&[thread(1, 1, "0-1")]), []);
        }
    }

    #[test]
    fn processes_with_one_thread_each_are_spread_once_they_have_settled() {
        let mut spread = Spread::new(cpus("0-1"));
        let mut threads = vec![thread(1, 1, "0-1"), thread(2, 2, "0-1"), thread(3, 3, "0-1")];
        for look in 1..SCANS_BEFORE_PLACEMENT {
            assert_eq!(spread.update(&threads), [], "look {look}");
        }
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        let cores: Vec<String> = threads.iter().map(|t| t.allowed.to_string()).collect();
        assert_eq!(cores, ["0", "1", "0"]);
    }

    #[test]
    fn more_threads_than_cores_are_left_to_the_kernel() {
        let mut spread = Spread::new(cpus("0-1"));
        let mut threads = vec![thread(1, 1, "0-1"), thread(2, 1, "0-1")];
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        threads.extend([thread(3, 1, "0"), thread(4, 1, "1")]);
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        assert!(threads.iter().all(|t| t.allowed == cpus("0-1")), "{threads:?}");
    }

    #[test]
    fn threads_that_shared_the_only_core_of_a_narrow_place_part_when_it_becomes_wider() {
        let mut spread = Spread::new(cpus("0-1"));
        spread.set_home(cpus("1"));
        let mut threads = vec![thread(1, 1, "0-1"), thread(2, 1, "0-1")];
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        assert!(threads.iter().all(|t| t.allowed == cpus("1")), "{threads:?}");
        spread.set_home(cpus("0-1"));
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        assert_eq!((&threads[0].allowed, &threads[1].allowed), (&cpus("1"), &cpus("0")));
    }

    #[test]
    fn a_shell_and_a_timeout_that_wait_do_not_keep_two_busy_threads_from_a_core_each() {
        let mut spread = Spread::new(cpus("0-1"));
        let mut threads =
            vec![thread(1, 1, "0-1"), thread(2, 2, "0-1"), thread(3, 3, "0-1"), thread(4, 3, "0-1")];
        assert_eq!(spread.update(&threads), [], "four that all want to run are left to the kernel");
        (threads[0].wants, threads[1].wants) = (false, false);
        let changes = spread.update(&threads);
        let core = |number, to| PlacementChange { thread: Tid(number), to: cpus(to) };
        assert_eq!(changes, [core(3, "0"), core(4, "1")]);
        apply(&mut threads, &changes);
        assert_eq!(spread.update(&threads), [], "nothing to do the second time");
        threads[0].wants = true;
        threads[1].wants = true;
        let changes = spread.update(&threads);
        assert_eq!(changes, [core(3, "0-1"), core(4, "0-1")], "now there are too many");
    }

    #[test]
    fn a_gang_moves_with_its_place_in_the_matrix() {
        let mut spread = Spread::new(cpus("0-3"));
        let mut threads = vec![thread(1, 1, "0-3"), thread(2, 1, "0-3")];
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        spread.set_home(cpus("2-3"));
        let changes = spread.update(&threads);
        apply(&mut threads, &changes);
        assert_eq!((&threads[0].allowed, &threads[1].allowed), (&cpus("2"), &cpus("3")));
    }
}
