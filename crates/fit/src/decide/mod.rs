//! Decides which settings a program should get. Pure: the inputs are the host's limits, the traits read from
//! the program's file, and the variables that the user set.
//!
//! Three kinds of settings:
//! - *The number of threads.* It is set for every known runtime that would count wrongly, because a variable
//!   binds only the runtime that reads it. Most runtimes count the processors of the affinity, so only a
//!   quota or the other ranks of an MPI program deceive them; some count the whole machine.
//! - *The processors of the threads.* Threads are bound, one to each processor, only if the program is a pure
//!   OpenMP program and its team has as many threads as allowed processors. Otherwise binding does harm. With
//!   fewer threads than processors, two such programs would both use the first processors. Processes and
//!   threads started by a bound thread (processes that load data, another library's threads) inherit its one
//!   processor. Unbound, the kernel may put two threads of a team on one processor and never see an
//!   imbalance.
//! - *The way to wait.* Spinning is best while every thread has a processor of its own. Otherwise it ruins a
//!   team, because a waiter holds the processor that the awaited thread needs. So the decision depends on the
//!   machine's load. While there is a processor for each thread, the runtime's default stays (spin for a
//!   while, then sleep); with more threads, waiting is passive.
//!
//! Beside threads of other programs no setting is best in every situation. `decide` then chooses the setting
//! of least regret: over all measured situations, its worst slowdown against the best setting is the smallest
//! (docs/decisions/0018). For an OpenMP team, this setting is to bind each thread to a processor. OpenBLAS
//! cannot be told to let its threads sleep at once, and spinning threads stop the program for seconds, so
//! OpenBLAS gets fewer threads.
//!
//! A variable that the user set is never changed. A variable that would override the user's is not set.

use crate::effective::{Effective, LimitedBy};
use crate::program_traits::ProgramTraits;
use crate::ranks::{LocalRanks, RANK};
use crate::runtimes::{CountedProcessors, RUNTIME_VARIABLES};
use unisono_linux::quota::{GroupRelation, ProcessorLimits};
use unisono_text::counted;

/// The state of the host when the program starts.
#[derive(Clone, Debug)]
pub struct HostState {
    pub limits: ProcessorLimits,
    /// The number of processors that the limits allow.
    pub effective: Effective,
    /// Threads of other programs that want the same processors now. `None` if unknown.
    pub others: Option<usize>,
    /// The ranks of an MPI program that share the processors with this program, if it is a rank or starts
    /// ranks.
    pub ranks: Option<LocalRanks>,
}

/// A variable, or an option of the program (`-XX:ActiveProcessorCount`), with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    /// The reason, for readers. Several settings may share one reason.
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// No name occurs twice, and no variable that the user set.
    pub set: Vec<Setting>,
    /// Options that go before the program's own arguments.
    pub options: Vec<Setting>,
    /// Settings that were left alone, with the reason, one sentence each.
    pub remarks: Vec<String>,
}

const OPENMP_LIBRARIES: [&str; 3] = ["libgomp", "libomp", "libiomp"];
/// Runtimes with threads of their own, which would inherit the processor of the OpenMP thread that starts
/// them.
const THREADED_LIBRARIES: [&str; 7] =
    ["libopenblas", "libblas", "libmkl", "libblis", "libtbb", "libtorch", "libpython"];

/// The variable for `os.cpu_count()`, and the first minor version of Python 3 that reads it.
const PYTHON: &str = "PYTHON_CPU_COUNT";
const PYTHON_READS_IT: u32 = 13;

/// Variables by which a user places threads.
pub(crate) const PLACEMENT: [&str; 5] =
    ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET"];

/// Decides the settings of a program. `user` returns the current value of a variable, if it is set.
pub fn decide(observed: &HostState, program: &ProgramTraits, user: impl Fn(&str) -> Option<String>) -> Plan {
    let HostState { limits, effective, ranks, .. } = observed;
    let user = |name: &str| program.assigned(name).or_else(|| user(name));
    let there =
        ranks.as_ref().map_or_else(|| effective.clone(), |ranks| ranks.part_of_each(limits, effective));
    let mut decision = Decision { observed, there, program, user: &user, plan: Plan::default() };
    decision.set_thread_counts();
    decision.set_go_threads();
    decision.set_java_threads();
    decision.set_wait_policy();
    decision.set_binding();
    decision.set_mpi_yield();
    decision.plan
}

struct Decision<'a> {
    observed: &'a HostState,
    /// The processors of this program, or of each rank.
    there: Effective,
    program: &'a ProgramTraits,
    user: &'a dyn Fn(&str) -> Option<String>,
    plan: Plan,
}

impl Decision<'_> {
    fn processors(&self) -> usize {
        self.there.processors
    }

    fn allowed(&self) -> usize {
        self.observed.limits.affinity.len()
    }

    /// Returns whether other programs or ranks were started with this one. The host's limits then do not hold
    /// for this program alone.
    fn is_partition(&self) -> bool {
        matches!(self.there.limited_by, LimitedBy::Partition | LimitedBy::Ranks(_))
    }

    /// Sets a variable unless the user did.
    fn set(&mut self, name: &'static str, value: impl ToString, why: &str) {
        if (self.user)(name).is_none() {
            self.plan.set.push(Setting { name, value: value.to_string(), why: why.to_owned() });
        }
    }

    fn any_set(&self, names: &[&str]) -> bool {
        names.iter().any(|name| (self.user)(name).is_some())
    }

    /// Returns whether a runtime that counts in this way would start too many threads.
    fn miscounts(&self, counts: CountedProcessors) -> bool {
        counts.count(&self.observed.limits) > self.processors()
    }

    /// Returns the number of threads of an OpenMP team: the number that the user asked for, or one for each
    /// processor.
    fn team_size(&self) -> usize {
        let asked = (self.user)("OMP_NUM_THREADS");
        let first = asked.as_deref().and_then(|list| list.split(',').next()?.trim().parse().ok());
        first.filter(|threads| *threads > 0).unwrap_or(self.processors())
    }

    /// Returns the number of processors that threads of other programs leave free (at least one), and the
    /// number of those threads. `None` if there are processors for all.
    fn free_processors(&self) -> Option<(usize, usize)> {
        let others = self.observed.others.filter(|others| *others > 0)?;
        let left = self.allowed().saturating_sub(others).max(1);
        (left < self.processors()).then_some((left, others))
    }

    /// Returns the beginning of the reason for a variable: the library that reads it, with `if loaded` unless
    /// the program links the library. A program may load a library later, itself or in a program that it
    /// starts.
    fn reader(&self, library: &str, stems: &[&str]) -> String {
        if self.program.links(stems) { format!("{library} ") } else { format!("{library}, if loaded, ") }
    }

    /// Limits the threads of OpenBLAS to the free processors, unless the user set either of the two variables
    /// from which OpenBLAS reads their number.
    fn limit_blas_threads(&mut self) {
        let names = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"];
        let Some((left, others)) = self.free_processors().filter(|_| !self.any_set(&names)) else { return };
        let beside = counted(others, "thread");
        let why = format!(
            "{}beside {beside} of others on {}: its threads stay awake while they wait; of the measured \
             settings, the one of least regret",
            self.reader("OpenBLAS", &["libopenblas"]),
            counted(self.allowed(), "processor")
        );
        self.set("OPENBLAS_NUM_THREADS", left, &why);
    }

    fn set_thread_counts(&mut self) {
        self.limit_blas_threads();
        let why = self.there.to_string();
        for variable in RUNTIME_VARIABLES {
            let name = variable.name;
            if let Some(value) = (self.user)(name) {
                let more = value.trim().parse().is_ok_and(|threads: usize| threads > self.processors());
                if more {
                    let there = &self.there;
                    self.plan.remarks.push(format!("{name}={value} is yours and stays, on {there}"));
                }
            } else if self.miscounts(variable.counts) && self.plan.set.iter().all(|set| set.name != name) {
                self.set(name, variable.value(self.processors()), &why);
            }
        }
        let is_told = self.plan.set.iter().any(|set| set.name == PYTHON);
        if let Some(minor) = self.program.python.filter(|minor| is_told && *minor < PYTHON_READS_IT) {
            self.plan.remarks.push(format!(
                "os.cpu_count() of Python 3.{minor} stays {}, because {PYTHON} is read by Python \
                 3.{PYTHON_READS_IT} and newer; pass processes=len(os.sched_getaffinity(0)) and use --bind",
                self.observed.limits.online
            ));
        }
        if self.program.links(&["libtbb"]) && self.miscounts(CountedProcessors::Affinity) {
            let remark = "oneTBB takes its number of threads from no variable; restrict it in the program \
                          (global_control) or with taskset(1)";
            self.plan.remarks.push(remark.to_owned());
        }
    }

    /// Returns the reason why waiting threads should sleep at once. `None` if there is a processor for each
    /// thread.
    fn oversubscription(&self, threads: usize) -> Option<String> {
        let others = self.observed.others.unwrap_or(0);
        let processors = self.observed.effective.processors;
        if threads > processors {
            let there = counted(processors, "processor");
            Some(format!("{} on {there}", counted(threads, "thread")))
        } else if others > 0 && threads + others > self.allowed() {
            let beside = format!("{} beside {} of others", counted(threads, "thread"), others);
            Some(format!("{beside} on {}", counted(self.allowed(), "processor")))
        } else {
            None
        }
    }

    fn set_wait_policy(&mut self) {
        let names = ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"];
        let team_size = self.team_size();
        if team_size < 2 || self.any_set(&names) || self.is_bound() {
            return;
        }
        let teams = self.observed.ranks.as_ref().map_or(1, |ranks| ranks.count);
        let Some(oversubscription) = self.oversubscription(team_size.saturating_mul(teams)) else { return };
        let why = format!(
            "{}with {oversubscription}: a thread that waits awake holds a processor that others need",
            self.reader("OpenMP", &OPENMP_LIBRARIES)
        );
        self.set("OMP_WAIT_POLICY", "passive", &why);
        self.set("KMP_BLOCKTIME", 0, &why);
    }

    /// Returns whether each thread gets a processor of its own.
    fn is_bound(&self) -> bool {
        let team_size = self.team_size();
        let whole = team_size == self.allowed() && team_size == self.processors() && team_size > 1;
        let pure = self.program.links(&OPENMP_LIBRARIES)
            && !self.program.links(&THREADED_LIBRARIES)
            && !self.program.mpi;
        let placed = self.any_set(&PLACEMENT) || self.any_set(&RANK);
        self.observed.others.is_some() && whole && pure && !placed
    }

    fn set_binding(&mut self) {
        if !self.is_bound() {
            return;
        }
        let mut why = format!(
            "a processor of its own for each of {} threads: the kernel might stack two on one",
            self.team_size()
        );
        if let Some(others) = self.observed.others.filter(|others| *others > 0) {
            let beside = counted(others, "thread");
            why =
                format!("{why}; of the measured settings, the one of least regret beside {beside} of others");
        }
        self.set("OMP_PROC_BIND", "spread", &why);
        self.set("OMP_PLACES", "threads", &why);
    }

    /// Sets the number of threads of Go programs. A Go program that counts right gets no number, because it
    /// follows changes of its quota. Any other program gets one, for the Go programs that it may start.
    fn set_go_threads(&mut self) {
        if self.go_counts_right() || !self.miscounts(CountedProcessors::Affinity) {
            return;
        }
        let built = match self.program.go {
            None => String::new(),
            Some(go) if go.minor == 0 => "; a Go before 1.18 built it and counts no quota".to_owned(),
            Some(go) if go.minor < 25 => format!("; Go 1.{} built it and counts no quota", go.minor),
            Some(_) if self.is_partition() => {
                "; Go counts the quota as if no other program used it".to_owned()
            }
            Some(go) if !go.reads_quota => "; its module turned off that Go counts a quota".to_owned(),
            Some(_) if !self.has_own_quota() => "; Go counts no quota of a group around its own".to_owned(),
            Some(_) => "; Go rounds a quota up, to at least two".to_owned(),
        };
        let why = format!("{}{built}", self.there);
        self.set("GOMAXPROCS", self.processors(), &why);
    }

    fn has_own_quota(&self) -> bool {
        self.observed.limits.quota.as_ref().is_some_and(|quota| quota.of == GroupRelation::Own)
    }

    /// Returns whether the program is a Go program that starts as many threads as there are processors.
    fn go_counts_right(&self) -> bool {
        let Some(go) = self.program.go.filter(|go| go.reads_quota && !self.is_partition()) else {
            return false;
        };
        let quota = self.observed.limits.quota.as_ref().filter(|_| self.has_own_quota());
        // Go reads only the quota of its own control group
        let counted = quota.map_or(self.allowed(), |quota| go.threads_in(quota).min(self.allowed()));
        counted == self.processors()
    }

    /// Sets the number of processors for Java, by an option and only if the program is Java itself: Java
    /// would print a variable that it reads on standard error.
    fn set_java_threads(&mut self) {
        let Some(java) = self.program.java else { return };
        let quota = self.observed.limits.quota.as_ref();
        let sees = quota.is_none_or(|quota| java.counts_quota(quota)) && !self.is_partition();
        if sees || !self.miscounts(CountedProcessors::Affinity) {
            return;
        }
        const OPTION: &str = "-XX:ActiveProcessorCount";
        let yours = |name: &&&str| (self.user)(name).is_some_and(|value| value.contains(OPTION));
        if let Some(name) = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"].iter().find(yours) {
            let value = (self.user)(name).unwrap_or_default();
            self.plan.remarks.push(format!("{name}={value} is yours and stays, on {}", self.there));
            return;
        }
        let why = match quota {
            Some(_) if !self.is_partition() => format!("Java {} does not count this quota", java.feature),
            _ => "Java counts the processors as if no other program used them".to_owned(),
        };
        let why = format!("{}; {why}", self.there);
        self.plan.options.push(Setting { name: OPTION, value: self.processors().to_string(), why });
    }

    fn set_mpi_yield(&mut self) {
        if !self.program.mpi {
            return;
        }
        let ranks = self.observed.ranks.as_ref().map_or(1, |ranks| ranks.count);
        let Some(oversubscription) = self.oversubscription(ranks) else { return };
        let oversubscription = oversubscription.replace("thread", "rank");
        let why = format!("{oversubscription}: a rank that waits lets others run");
        self.set("OMPI_MCA_mpi_yield_when_idle", 1, &why);
        self.set("MPIR_CVAR_POLLS_BEFORE_YIELD", 1, &why);
    }
}

#[cfg(test)]
mod tests;
