//! The state of a simulation: its cores, its threads and its programs.
//!
//! The other files hold the rules: each adds the methods of one concern. They change this state and use no
//! types of one another.

use super::cores::CoreSet;
use super::kernel::Tunables;
use super::model::{CpuQuota, Sharing, SimulatedMachine, SimulatedProgram};
use crate::policy::Rotation;
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A moment that never comes.
pub(super) const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Arrive(usize),
    /// A core, and the number of its last change; an event with an older number is stale.
    Core(usize, u64),
    Wake(usize),
    Job(usize),
    Together(usize, u64),
    Turn(u64),
    Period(usize),
    Tick,
}

#[derive(Clone, Debug)]
pub(super) struct ThreadState {
    pub(super) program: usize,
    /// The core where the thread runs, waits, or ran last.
    pub(super) core: usize,
    /// First core, and number, of the cores that the thread may use.
    pub(super) allowed: (usize, usize),
    pub(super) weight: i64,
    /// The fixed priority (SCHED_FIFO), or 0 for the fair class.
    pub(super) priority: u8,
    /// The thread's gang uses cores that another gang's turn leaves idle; the thread gives way to all others.
    pub(super) is_filler: bool,
    /// The thread is runnable: it waits for no event.
    pub(super) wants: bool,
    /// The thread's gang waits for a turn.
    pub(super) held: bool,
    pub(super) queued: bool,
    pub(super) activity: ThreadActivity,
    /// Overhead to be paid before the thread continues.
    pub(super) overhead: u64,
    pub(super) woken_from: Option<usize>,
    pub(super) virtual_time: i64,
    pub(super) lag: i64,
    pub(super) deadline: i64,
    pub(super) protected_until: i64,
    /// Run time since the thread was chosen.
    pub(super) run: u64,
    /// When the thread last ran; tells whether its data is still in the cache.
    pub(super) ran_until: u64,
}

#[derive(Clone, Debug)]
pub(super) struct CoreState {
    pub(super) current: Option<usize>,
    pub(super) last: Option<usize>,
    pub(super) queue: Vec<usize>,
    /// Sum of the weights, the running thread's included.
    pub(super) load: i64,
    /// The minimum virtual time of the core's threads; it never decreases (CFS: min_vruntime).
    pub(super) min_virtual_time: i64,
    /// Moment until which the core's time is charged.
    pub(super) charged: u64,
    pub(super) change: u64,
    pub(super) idle: u64,
    pub(super) idle_since: u64,
    pub(super) average_idle: u64,
    pub(super) next_balance: u64,
    /// Number of periodic balances since the last balance that moved a thread or found the cores balanced
    /// (nr_balance_failed).
    pub(super) failed_balances: u32,
}

impl CoreState {
    pub(super) fn running(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some())
    }
}

/// The action of a running thread, or the reason why a thread does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadActivity {
    /// Computes for this remaining time.
    Compute(u64),
    /// Spins at a barrier up to this moment, then blocks.
    Spin(u64),
    /// Blocked at a barrier, or until the next job.
    Wait,
    /// Sleeps between two computations.
    Pause,
    /// Has not arrived yet, or has ended.
    Absent,
}

pub(super) struct ProgramState<'a> {
    pub(super) description: &'a SimulatedProgram,
    /// Index of the program's first thread; its other threads follow.
    pub(super) first: usize,
    pub(super) generator: Pcg64Mcg,
    /// The cost of a barrier that all threads pass while they run (ns).
    pub(super) barrier: u64,
    /// 0 before a barrier with computation, then one for each light barrier.
    pub(super) phase: u32,
    /// Number of threads at the barrier.
    pub(super) arrived: usize,
    /// Number of barriers passed; for threads that never meet, rounds.
    pub(super) barriers: u64,
    /// Barriers left to the end of the program or of the job. `None`: no end.
    pub(super) barriers_left: Option<u64>,
    /// Remaining computation of each thread, if the threads never meet.
    pub(super) to_do: Vec<u64>,
    pub(super) threads_ended: usize,
    /// Arrival times of jobs that have not begun.
    pub(super) jobs: VecDeque<u64>,
    pub(super) job: Option<u64>,
    pub(super) latencies: Vec<u64>,
    pub(super) quota: Option<QuotaState>,
    pub(super) together: Option<Together>,
    pub(super) together_number: u64,
    /// Processor time used in this turn.
    pub(super) used: u64,
    pub(super) filled: u64,
    pub(super) work: u64,
    pub(super) spun: u64,
    pub(super) overhead: u64,
    pub(super) blocks: u64,
    pub(super) slices: u64,
    pub(super) is_here: bool,
    pub(super) ended: Option<u64>,
    /// Number of samples of the spread of its threads over the cores.
    pub(super) spread_samples: u64,
    /// Sum of the samples: the number of cores with its threads, as a part of the cores that it could use.
    pub(super) unstacked: f64,
}

#[derive(Clone, Debug)]
pub(super) struct QuotaState {
    pub(super) rule: CpuQuota,
    pub(super) pool: u64,
    /// For each core, the time that it took from the pool and has not used.
    pub(super) taken: Vec<u64>,
    pub(super) throttled: Vec<bool>,
    pub(super) periods: u64,
    /// Number of periods in which some core was stopped.
    pub(super) stopped: u64,
    pub(super) stopped_now: bool,
    pub(super) used: u64,
    /// Maximum time used in a period.
    pub(super) max_used: u64,
}

/// A sequence of consecutive episodes.
#[derive(Clone, Debug)]
pub(super) struct EpisodeRow {
    /// The end of the last episode.
    pub(super) end: u64,
    pub(super) generator: Pcg64Mcg,
    pub(super) phase: u32,
    pub(super) count: u64,
    /// Total computation of all threads.
    pub(super) work: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Together {
    pub(super) since: u64,
    pub(super) before: EpisodeRow,
    pub(super) ahead: EpisodeRow,
}

/// A program's part in the present turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Held,
    /// First core and number of cores.
    Runs(usize, usize),
    Fills,
}

pub(super) struct GangTurns {
    pub(super) rotation: Option<Rotation>,
    pub(super) is_batch: bool,
    /// For each program: the program whose turns it shares, itself or its partner.
    pub(super) leader: Vec<usize>,
    pub(super) parts: Vec<Part>,
    /// Batch: programs that had their share of the time.
    pub(super) served: Vec<bool>,
    /// Part of the machine that each program used in its turns.
    pub(super) busy: Vec<f64>,
    pub(super) since: u64,
    pub(super) number: u64,
    pub(super) taken: u64,
}

/// The reason why a thread joins a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    New,
    Woken,
    /// From another core's queue.
    Moved,
}

pub(super) struct CoreSimulation<'a> {
    pub(super) machine: &'a SimulatedMachine,
    pub(super) sharing: Sharing,
    pub(super) tunables: Tunables,
    pub(super) now: u64,
    pub(super) end: u64,
    pub(super) programs: Vec<ProgramState<'a>>,
    pub(super) threads: Vec<ThreadState>,
    pub(super) cores: Vec<CoreState>,
    /// Cores that run no thread.
    pub(super) idle: CoreSet,
    /// Cores with a waiting thread.
    pub(super) crowded: CoreSet,
    pub(super) turns: GangTurns,
    pub(super) chance: Pcg64Mcg,
    pub(super) switches: u64,
    pub(super) migrations: u64,
    pub(super) events: u64,
    pub(super) queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub(super) number: u64,
}
