//! All that a simulation knows: its cores, its threads and its programs.
//!
//! The other files hold the rules, each the methods of one concern. They change this state and know nothing
//! of one another's types.

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
    /// The number is that of the core's last change; an older one says nothing.
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
    /// The core it runs on, waits for, or ran on last.
    pub(super) core: usize,
    /// First core and number of cores that it may use.
    pub(super) allowed: (usize, usize),
    pub(super) weight: i64,
    /// 0: the fair class.
    pub(super) priority: u8,
    /// A gang that uses cores which another's turn leaves idle: it gives way to all others.
    pub(super) is_filler: bool,
    /// It does not wait for anything.
    pub(super) wants: bool,
    /// Its gang waits for a turn.
    pub(super) held: bool,
    pub(super) queued: bool,
    pub(super) doing: Doing,
    /// Overhead that it has to pay before it goes on.
    pub(super) overhead: u64,
    pub(super) woken_from: Option<usize>,
    pub(super) virtual_time: i64,
    pub(super) lag: i64,
    pub(super) deadline: i64,
    pub(super) protected_until: i64,
    /// Time since it was chosen.
    pub(super) run: u64,
    /// When it last ran, for "is it still in the cache".
    pub(super) ran_until: u64,
}

#[derive(Clone, Debug)]
pub(super) struct CoreState {
    pub(super) current: Option<usize>,
    pub(super) last: Option<usize>,
    pub(super) queue: Vec<usize>,
    /// Sum of the weights, with the running thread's.
    pub(super) load: i64,
    /// The least virtual time of its threads, which never goes back (CFS: min_vruntime).
    pub(super) least: i64,
    /// Up to when its time is charged.
    pub(super) charged: u64,
    pub(super) change: u64,
    pub(super) idle: u64,
    pub(super) idle_since: u64,
    pub(super) average_idle: u64,
    pub(super) next_balance: u64,
}

impl CoreState {
    pub(super) fn running(&self) -> usize {
        self.queue.len() + usize::from(self.current.is_some())
    }
}

/// What a thread does while it runs, or why it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// The time left.
    Compute(u64),
    /// Spins at a barrier up to this moment, then blocks.
    Spin(u64),
    /// Blocked at a barrier, or until the next job.
    Wait,
    /// Sleeps between two computations.
    Pause,
    /// Has not come, or has ended.
    Absent,
}

pub(super) struct ProgramState<'a> {
    pub(super) description: &'a SimulatedProgram,
    /// Its first thread; the others follow.
    pub(super) first: usize,
    pub(super) generator: Pcg64Mcg,
    /// 0 before a barrier with computation, then one for each light barrier.
    pub(super) phase: u32,
    /// Threads that are at the barrier.
    pub(super) arrived: usize,
    /// Barriers passed; of threads that meet nobody: rounds.
    pub(super) barriers: u64,
    /// To the end of the program or of the job. `None`: no end.
    pub(super) barriers_left: Option<u64>,
    /// Computation left for each thread, if they meet nobody.
    pub(super) to_do: Vec<u64>,
    pub(super) threads_ended: usize,
    /// Moments at which jobs arrived that have not begun.
    pub(super) jobs: VecDeque<u64>,
    pub(super) job: Option<u64>,
    pub(super) latencies: Vec<u64>,
    pub(super) quota: Option<QuotaState>,
    pub(super) together: Option<Together>,
    pub(super) together_number: u64,
    /// Processor time in this turn.
    pub(super) used: u64,
    pub(super) filled: u64,
    pub(super) work: u64,
    pub(super) spun: u64,
    pub(super) overhead: u64,
    pub(super) blocks: u64,
    pub(super) slices: u64,
    pub(super) is_here: bool,
    pub(super) ended: Option<u64>,
    /// Looks at how many of the cores it could use its threads are on, and the sum of these parts.
    pub(super) looks: u64,
    pub(super) unstacked: f64,
}

#[derive(Clone, Debug)]
pub(super) struct QuotaState {
    pub(super) rule: CpuQuota,
    pub(super) pool: u64,
    /// What each core has taken and not used.
    pub(super) taken: Vec<u64>,
    pub(super) throttled: Vec<bool>,
    pub(super) periods: u64,
    /// Periods in which some core was stopped.
    pub(super) stopped: u64,
    pub(super) stopped_now: bool,
    pub(super) used: u64,
    /// The most that was used in a period.
    pub(super) most: u64,
}

/// A row of episodes that follow one another.
#[derive(Clone, Debug)]
pub(super) struct EpisodeRow {
    /// The end of the last one.
    pub(super) end: u64,
    pub(super) generator: Pcg64Mcg,
    pub(super) phase: u32,
    pub(super) count: u64,
    /// Computation of all threads.
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
    /// By program: who takes its turns, itself or its partner.
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

/// Why a thread joins a queue.
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
    /// Cores that run nothing, and cores on which somebody waits.
    pub(super) idle: CoreSet,
    pub(super) crowded: CoreSet,
    pub(super) turns: GangTurns,
    pub(super) chance: Pcg64Mcg,
    pub(super) switches: u64,
    pub(super) migrations: u64,
    pub(super) events: u64,
    pub(super) queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub(super) number: u64,
}
