//! The input of a simulation: a machine, programs, and the sharing of the machine between them.

use super::kernel::KernelModel;
use crate::error::{Error, Result};
use crate::gang::GangWeight;
use crate::policy::Backfill;
use unisono_linux::clock::{Duration, Instant};

/// Maximum number of cores of a simulation; bounds its memory.
pub const MAX_CORES: usize = 1024;
/// Maximum number of threads of a simulation; bounds its memory.
const MAX_THREADS: usize = 200_000;

#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedMachine {
    /// Number of cores, 1 to [`MAX_CORES`].
    pub cores: usize,
    /// Number of cores that share a last-level cache. A waking thread looks for an idle core among them.
    pub cache_cores: usize,
    pub kernel: KernelModel,
    pub costs: WaitCosts,
}

/// The costs of waiting and switching, charged to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitCosts {
    /// A barrier of two running threads on two cores that share a cache: one transfer of a cache line. At
    /// least 1 ns. [`barrier_of`](Self::barrier_of) computes the cost of a barrier of more threads.
    pub barrier: Duration,
    /// Blocking and waking, all parts together: a third each for the thread that blocks, the thread that
    /// wakes it, and the thread that was woken.
    pub block: Duration,
    /// A switch from one thread to another on a core.
    pub switch: Duration,
    /// A switch from one gang to another, on each core of the new gang.
    pub gang_switch: Duration,
}

impl WaitCosts {
    /// The paper's machine: 4 processors of 4 cores (AMD Shanghai, 2.5 GHz) under Linux 2.6.32.
    pub const PAPER: Self = Self {
        // TR 745, section 3: 40 ns per iteration of a busy wait. A cache line that 16 threads write passes
        // through 16 caches, at about one iteration each: 640 ns, as ten near transfers of this length.
        barrier: Duration::from_nanos(64),
        // TR 745, section 3: the cost of blocking
        block: Duration::from_nanos(7400),
        // Li, Ding, Shen, "Quantifying the cost of context switch", 2007: 1.5 us beside caches
        switch: Duration::from_nanos(1500),
        // TR 745, section 3.1: a scheduler in user space; below 1 % of a slice
        gang_switch: Duration::from_micros(50),
    };
    /// The host of the example study: 2 virtual processors under Linux 6.18 (docs/example-report).
    pub const EXAMPLE_HOST: Self = Self {
        // batch, interval 0: 15 to 19 million barriers/s for both programs together, of two threads each
        barrier: Duration::from_nanos(62),
        // plain, interval 0: 16,900 barriers/s are 59 us: 50 us of spinning, one blocking, one switch
        block: Duration::from_nanos(7400),
        switch: Duration::from_nanos(1500),
        // the `switch_us` of the study's gang runs
        gang_switch: Duration::from_micros(50),
    };
}

/// How a thread waits at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimulatedWait {
    Spin,
    Block,
    /// Spins for this long, then blocks.
    SpinBlock(Duration),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedProgram {
    pub name: String,
    pub threads: usize,
    /// Computation between barriers (or pauses). `None`: the threads compute and never wait.
    pub interval: Option<Duration>,
    /// Additional computation: normal in `[0, variance]`, drawn anew for each thread and each time.
    pub variance: Duration,
    /// Number of barriers without computation that follow each barrier with computation.
    pub light_barriers: u32,
    /// Sleep of a thread after each computation, as for a disk or a network.
    pub pause: Duration,
    /// Whether the threads meet at barriers.
    pub meets: Meets,
    pub wait: SimulatedWait,
    /// Computation of each thread, after which the program ends. `None`: to the end of the simulation.
    pub work: Option<Duration>,
    /// Work that arrives in bursts. `None`: the program always has work.
    pub jobs: Option<JobArrivals>,
    /// The weight of the program as a gang.
    pub weight: GangWeight,
    /// The nice value of the threads, -20 to 19.
    pub nice: i8,
    /// Fixed priority (SCHED_FIFO), 1 to 99: it runs before all threads with a lower priority.
    pub priority: Option<u8>,
    pub quota: Option<CpuQuota>,
    pub arrives: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    AtBarriers,
    Never,
}

/// Jobs of a program: `together` of them arrive at once; `every` is the mean interval between jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobArrivals {
    /// Number of barriers of a job.
    pub barriers: u64,
    pub every: Duration,
    pub together: u32,
}

/// Processor time per period, as in `cpu.max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    pub quota: Duration,
    pub period: Duration,
}

/// The scheduler that decides which program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The kernel, which also places the threads.
    Linux,
    /// The kernel, but thread i stays on core i.
    Spread,
    /// The policy of this crate; threads of the running gang stay on cores of their own.
    Gang { slice: Duration, backfill: Backfill },
    /// As `Gang`, but a program that leaves cores idle shares its turn with a program that fills them.
    PairedGang { slice: Duration },
    /// Each program on its share of the cores.
    Partition,
    /// One program after the other: each to its end, or for its share of the time.
    Batch,
}

impl SimulatedProgram {
    /// Makes a program BARRIER of the paper's figure 1: it spins for 50 us, then blocks.
    pub fn barriers(name: &str, threads: usize, interval: Duration, variance: Duration) -> Self {
        Self {
            name: name.into(),
            threads,
            interval: Some(interval),
            variance,
            light_barriers: 0,
            pause: Duration::ZERO,
            meets: Meets::AtBarriers,
            wait: SimulatedWait::SpinBlock(Duration::from_micros(50)),
            work: None,
            jobs: None,
            weight: GangWeight::ONE,
            nice: 0,
            priority: None,
            quota: None,
            arrives: Instant::ZERO,
        }
    }

    /// Makes a program whose threads compute and never wait.
    pub fn computing(name: &str, threads: usize) -> Self {
        Self {
            interval: None,
            meets: Meets::Never,
            ..Self::barriers(name, threads, Duration::ZERO, Duration::ZERO)
        }
    }
}

/// Checks the input of a simulation; the error names the program.
pub(super) fn check(machine: &SimulatedMachine, programs: &[SimulatedProgram], how: Sharing) -> Result<()> {
    let bad = |text: String| Err(Error::Input(text));
    if !(1..=MAX_CORES).contains(&machine.cores) {
        return bad(format!("{} cores; a simulation has 1 to {MAX_CORES}", machine.cores));
    }
    if machine.costs.barrier == Duration::ZERO {
        return bad("a barrier costs at least 1ns".into());
    }
    let slice = match how {
        Sharing::Gang { slice, .. } | Sharing::PairedGang { slice } => Some(slice),
        _ => None,
    };
    if slice.is_some_and(|slice| slice <= machine.costs.gang_switch) {
        return bad("a slice is longer than a switch of gangs".into());
    }
    if how == Sharing::Partition && programs.len() > machine.cores {
        return bad(format!("a partition gives each of {} programs a core; add cores", programs.len()));
    }
    if programs.is_empty() {
        return bad("a simulation needs a program".into());
    }
    let threads: usize = programs.iter().map(|program| program.threads).sum();
    if threads > MAX_THREADS {
        return bad(format!("{threads} threads; a simulation has at most {MAX_THREADS}"));
    }
    for program in programs {
        let wrong = |what: &str| bad(format!("{}: {what}", program.name));
        if program.threads == 0 || program.work == Some(Duration::ZERO) {
            return wrong("it needs threads and work");
        }
        if !(-20..=19).contains(&program.nice) {
            return wrong("nice is -20 to 19");
        }
        if program.priority.is_some_and(|priority| !(1..=99).contains(&priority)) {
            return wrong("a priority is 1 to 99");
        }
        if program.quota.is_some_and(|quota| quota.quota.is_zero() || quota.period < Duration::from_millis(1))
        {
            return wrong("a quota gives time in each period, and a period is 1ms or more");
        }
        if program.jobs.is_some_and(|jobs| {
            jobs.barriers == 0 || jobs.together == 0 || jobs.every < Duration::from_micros(1)
        }) {
            return wrong("jobs have barriers and arrive at least 1us apart");
        }
        if program.jobs.is_some() && program.meets == Meets::Never {
            return wrong("jobs are counted in barriers; give it an interval");
        }
        if program.meets == Meets::Never
            && program.interval.is_some_and(|i| i + program.variance < Duration::from_micros(1))
        {
            return wrong("threads that meet nobody compute at least 1us between pauses");
        }
    }
    Ok(())
}
