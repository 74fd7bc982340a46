//! Decides which settings a program should get. Pure functions: the inputs are the host's limits, the traits
//! read from the program's file, and the variables that the user set.
//!
//! Three kinds of settings:
//! - *The number of threads.* Set for every known runtime that would count too many processors; each needs
//!   its own variable, because a variable affects only the runtime that reads it. Most runtimes count the
//!   processors of the affinity, so they are wrong only under a quota or beside other ranks of an MPI
//!   program; some count the whole machine.
//! - *The processors of the threads.* Threads are bound, one to each processor, only if the program is a pure
//!   OpenMP program and its team has as many threads as there are allowed processors. Otherwise binding does
//!   harm. With fewer threads than processors, two such programs would both use the first processors.
//!   Processes and threads started by a bound thread (processes that load data, another library's threads)
//!   inherit its one processor. If threads of a team are not bound, the kernel may put two of them on one
//!   processor and never notice the imbalance.
//! - *The way to wait.* Spinning is best while every thread has a processor of its own. Otherwise it slows a
//!   team down badly, because a thread that waits holds the processor that the awaited thread needs. So the
//!   decision depends on the machine's load. While there is a processor for each thread, the runtime's
//!   default stays (spin for a while, then sleep); with more threads, waiting is passive.
//!
//! Beside threads of other programs no setting is best in every situation. `decide` then chooses the setting
//! of least regret: over all measured situations, its worst slowdown against the best setting is the smallest
//! (docs/decisions/0018). For an OpenMP team that setting is to bind its threads. The threads of OpenBLAS
//! cannot be made to sleep at once, and while they spin the program may stop for seconds, so OpenBLAS gets
//! fewer threads.
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
    /// The number of threads of other programs that want the same processors now, or `None` if unknown.
    pub others: Option<usize>,
    /// The ranks of an MPI program on this host, if this program is one of them or starts them.
    pub ranks: Option<LocalRanks>,
}

/// A variable, or an option of the program (`-XX:ActiveProcessorCount`), with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub name: &'static str,
    pub value: String,
    /// The reason, for the user. Several settings may have the same reason.
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The variables to set. No name occurs twice, and none is a variable that the user set.
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

/// The variables by which a user places threads on processors.
pub(crate) const PLACEMENT: [&str; 5] =
    ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET"];

/// Decides the settings of a program. `user` returns the current value of a variable, if it is set.
pub fn decide(observed: &HostState, program: &ProgramTraits, user: impl Fn(&str) -> Option<String>) -> Plan {
    let HostState { limits, effective, ranks, .. } = observed;
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

    /// Returns whether other programs or ranks share the processors, so that the host's limits are not this
    /// program's alone.
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

    /// Returns whether a runtime that counts processors in this way would start too many threads.
    fn miscounts(&self, counts: CountedProcessors) -> bool {
        counts.count(&self.observed.limits) > self.processors()
    }

    /// Returns the threads of an OpenMP team: the number that the user asked for, or one for each processor.
    fn team_size(&self) -> usize {
        let asked = (self.user)("OMP_NUM_THREADS");
        let first = asked.as_deref().and_then(|list| list.split(',').next()?.trim().parse().ok());
        first.filter(|threads| *threads > 0).unwrap_or(self.processors())
    }

    /// Returns the number of processors that threads of other programs leave free (at least one), and the
    /// number of those threads; or `None` if there are processors for all threads.
    fn free_processors(&self) -> Option<(usize, usize)> {
        let others = self.observed.others.filter(|others| *others > 0)?;
        let left = self.allowed().saturating_sub(others).max(1);
        (left < self.processors()).then_some((left, others))
    }

    /// Limits OpenBLAS's threads to the free processors, unless the user set one of the two variables for
    /// them.
    fn limit_blas_threads(&mut self) {
        let names = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"];
        let Some((left, others)) = self.free_processors().filter(|_| !self.any_set(&names)) else { return };
        let beside = counted(others, "thread");
        let why = format!(
            "beside {beside} of others on {}: OpenBLAS's threads stay awake while they wait; of the measured \
             settings, the one of least regret",
            counted(self.allowed(), "processor")
        );
        self.set("OPENBLAS_NUM_THREADS", left, &why);
    }

    fn set_thread_counts(&mut self) {
        self.limit_blas_threads();
        let why = format!("as many threads as there are processors: {}", self.there);
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
        if self.program.links(&["libtbb"]) && self.miscounts(CountedProcessors::Affinity) {
            let remark = "oneTBB takes its number of threads from no variable; restrict it in the program \
                          (global_control) or with taskset(1)";
            self.plan.remarks.push(remark.to_owned());
        }
    }

    /// Returns the reason why waiting threads should sleep at once, or `None` if there is a processor for
    /// each thread.
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
        let why = format!("{oversubscription}: a thread that waits awake holds a processor that others need");
        self.set("OMP_WAIT_POLICY", "passive", &why);
        self.set("KMP_BLOCKTIME", 0, &why);
    }

    /// Returns whether each thread of the team is to be bound to a processor of its own.
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

    /// Sets Go's number of threads, unless the program is a Go program that counts right, because that one
    /// follows changes of its quota. Other programs get the variable for Go programs that they may start.
    fn set_go_threads(&mut self) {
        if self.go_counts_right() || !self.miscounts(CountedProcessors::Affinity) {
            return;
        }
        let built = match self.program.go {
            None => "as many threads as there are processors".to_owned(),
            Some(go) if go.minor == 0 => "a Go before 1.18 built it and counts no quota".to_owned(),
            Some(go) if go.minor < 25 => format!("Go 1.{} built it and counts no quota", go.minor),
            Some(_) if self.is_partition() => "Go counts the quota as if no other program used it".to_owned(),
            Some(go) if !go.reads_quota => "its module turned off that Go counts a quota".to_owned(),
            Some(_) if !self.has_own_quota() => "Go counts no quota of a group around its own".to_owned(),
            Some(_) => "Go rounds a quota up, to at least two".to_owned(),
        };
        let why = format!("{built}: {}", self.there);
        self.set("GOMAXPROCS", self.processors(), &why);
    }

    fn has_own_quota(&self) -> bool {
        self.observed.limits.quota.as_ref().is_some_and(|quota| quota.of == GroupRelation::Own)
    }

    /// Returns whether the program is a Go program that starts the right number of threads by itself.
    fn go_counts_right(&self) -> bool {
        let Some(go) = self.program.go.filter(|go| go.reads_quota && !self.is_partition()) else {
            return false;
        };
        let quota = self.observed.limits.quota.as_ref().filter(|_| self.has_own_quota());
        // Go reads only the quota of its own control group
        let counted = quota.map_or(self.allowed(), |quota| go.threads_in(quota).min(self.allowed()));
        counted == self.processors()
    }

    /// Sets Java's number of processors, by an option and so only if the program is Java itself, because Java
    /// reports variables that it reads on standard error.
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
        let why = format!("{why}: {}", self.there);
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
mod tests {
    use super::*;
    use crate::effective::effective;
    use crate::program_traits::{Go, Java};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use unisono_linux::affinity::CpuSet;
    use unisono_linux::cgroup::CgroupVersion;
    use unisono_linux::quota::{GroupRelation, Quota};

    fn quota(processors: u64, of: GroupRelation) -> Quota {
        Quota {
            time_us: processors * 100_000,
            period_us: 100_000,
            group: "/job".into(),
            of,
            version: CgroupVersion::V2,
        }
    }

    /// Returns a host with eight processors, of which this program may use `allowed`.
    fn host(allowed: usize, quota: Option<Quota>, others: Option<usize>) -> HostState {
        let affinity: CpuSet = (0..allowed).collect();
        let limits = ProcessorLimits { affinity, quota, online: 8, ..ProcessorLimits::default() };
        HostState { effective: effective(&limits), limits, others, ranks: None }
    }

    fn openmp() -> ProgramTraits {
        ProgramTraits {
            name: "solver".into(),
            libraries: vec!["libgomp.so.1".into(), "libc.so.6".into()],
            ..ProgramTraits::default()
        }
    }

    fn set(observed: &HostState, program: &ProgramTraits, user: &[(&str, &str)]) -> Vec<String> {
        let user: BTreeMap<_, _> = user.iter().copied().collect();
        let plan = decide(observed, program, |name| user.get(name).map(|value| (*value).to_owned()));
        let all = plan.set.iter().chain(&plan.options);
        all.map(|setting| format!("{}={}", setting.name, setting.value)).collect()
    }

    /// Returns the settings without those of [`RUNTIME_VARIABLES`].
    fn set_beside_the_table(
        observed: &HostState,
        program: &ProgramTraits,
        user: &[(&str, &str)],
    ) -> Vec<String> {
        let in_table = |one: &String| {
            RUNTIME_VARIABLES.iter().any(|variable| one.split('=').next() == Some(variable.name))
        };
        set(observed, program, user).into_iter().filter(|one| !in_table(one)).collect()
    }

    #[test]
    fn a_quota_of_one_processor_means_one_thread_for_every_runtime_whatever_the_first_program_is() {
        let one = host(8, Some(quota(1, GroupRelation::Own)), Some(0));
        let mut expected: Vec<String> = RUNTIME_VARIABLES
            .iter()
            .map(|variable| format!("{}={}", variable.name, variable.value(1)))
            .collect();
        expected.push("GOMAXPROCS=1".into());
        let go = ProgramTraits { go: Some(Go { minor: 24, reads_quota: false }), ..ProgramTraits::default() };
        let java = ProgramTraits { java: Some(Java { feature: 17, update: 15 }), ..ProgramTraits::default() };
        for program in [ProgramTraits::default(), openmp(), go, java] {
            assert_eq!(set(&one, &program, &[]), expected, "{program:?}");
        }
    }

    #[test]
    fn runtimes_that_count_right_are_told_nothing() {
        assert_eq!(set(&host(8, None, Some(0)), &ProgramTraits::default(), &[]), Vec::<String>::new());
        let expected = [
            "NUMEXPR_NUM_THREADS=2",
            "PYTHON_CPU_COUNT=2",
            "JULIA_CPU_THREADS=2",
            "LLAMA_ARG_THREADS=2",
            "PYTEST_XDIST_AUTO_NUM_WORKERS=2",
        ];
        assert_eq!(set(&host(2, None, Some(0)), &ProgramTraits::default(), &[]), expected);
        let half = host(8, Some(quota(5, GroupRelation::Own)), Some(0));
        let all = set(&half, &ProgramTraits::default(), &[]);
        assert!(!all.iter().any(|one| one.starts_with("R_DATATABLE")), "it takes four of eight by itself");
    }

    #[test]
    fn ranks_share_the_processors_of_their_host() {
        let ranks = |count, cpus: &str, observed: HostState| HostState {
            ranks: Some(LocalRanks { count, cpus: cpus.parse().expect("a list") }),
            ..observed
        };
        let threads = |observed: &HostState| {
            let all = set(observed, &openmp(), &[("PMI_RANK", "0")]);
            all.into_iter().find(|one| one.starts_with("OMP_NUM_THREADS"))
        };
        let idle = || host(8, None, Some(0));
        assert_eq!(threads(&ranks(2, "0-7", idle())).as_deref(), Some("OMP_NUM_THREADS=4"));
        assert_eq!(threads(&ranks(16, "0-7", idle())).as_deref(), Some("OMP_NUM_THREADS=1"));
        assert_eq!(threads(&ranks(1, "0-7", idle())), None);
        // the launcher bound two ranks to four processors each, or four ranks in pairs to four processors
        assert_eq!(threads(&ranks(2, "0-7", host(4, None, Some(0)))), None);
        assert_eq!(threads(&ranks(4, "0-7", host(4, None, Some(0)))).as_deref(), Some("OMP_NUM_THREADS=2"));
        let quota = host(8, Some(quota(4, GroupRelation::Own)), Some(0));
        assert_eq!(threads(&ranks(2, "0-7", quota)).as_deref(), Some("OMP_NUM_THREADS=2"));
    }

    #[test]
    fn an_openmp_team_that_fills_free_processors_is_bound() {
        assert_eq!(
            set(&host(8, None, Some(0)), &openmp(), &[]),
            ["OMP_PROC_BIND=spread", "OMP_PLACES=threads"]
        );
        assert!(set(&host(8, None, None), &openmp(), &[]).is_empty(), "nobody knows whether they are free");
        assert!(
            set(&host(8, None, Some(0)), &openmp(), &[("OMP_NUM_THREADS", "4")]).is_empty(),
            "half of them"
        );
        assert!(set(&host(8, None, Some(0)), &openmp(), &[("OMP_PLACES", "cores")]).is_empty());
        assert!(
            set(&host(8, None, Some(0)), &openmp(), &[("PMI_RANK", "0")]).is_empty(),
            "mpiexec places ranks"
        );
        let mixed =
            ProgramTraits { libraries: vec!["libgomp.so.1".into(), "libopenblas.so.0".into()], ..openmp() };
        assert!(
            set(&host(8, None, Some(0)), &mixed, &[]).is_empty(),
            "OpenBLAS's threads would inherit a processor"
        );
    }

    #[test]
    fn beside_threads_of_others_a_team_is_spread_and_another_programs_threads_sleep_while_they_wait() {
        let bound = ["OPENBLAS_NUM_THREADS=7", "OMP_PROC_BIND=spread", "OMP_PLACES=threads"];
        assert_eq!(set(&host(8, None, Some(1)), &openmp(), &[]), bound);
        assert_eq!(set(&host(8, None, Some(1)), &openmp(), &[("GOMP_SPINCOUNT", "5")]), bound);
        let passive = ["OPENBLAS_NUM_THREADS=7", "OMP_WAIT_POLICY=passive", "KMP_BLOCKTIME=0"];
        let python = ProgramTraits { name: "python3".into(), ..ProgramTraits::default() };
        assert_eq!(set(&host(8, None, Some(1)), &python, &[]), passive);
        assert_eq!(set(&host(8, None, Some(1)), &openmp(), &[("OMP_PLACES", "cores")]), passive);
        let half = |others| set(&host(8, None, Some(others)), &openmp(), &[("OMP_NUM_THREADS", "4")]);
        assert_eq!(half(4), Vec::<String>::new(), "there is room");
        assert_eq!(half(5), &passive[1..], "a number that is the user's holds for OpenBLAS, too");
    }

    #[test]
    fn openblas_gets_the_processors_that_others_leave_and_at_least_one() {
        let blas = |allowed, others| {
            let all = set(&host(allowed, None, others), &ProgramTraits::default(), &[]);
            all.into_iter().find(|one| one.starts_with("OPENBLAS"))
        };
        assert_eq!(blas(8, Some(3)).as_deref(), Some("OPENBLAS_NUM_THREADS=5"));
        assert_eq!(blas(2, Some(9)).as_deref(), Some("OPENBLAS_NUM_THREADS=1"));
        assert_eq!([blas(8, Some(0)), blas(8, None), blas(1, Some(1))], [None, None, None]);
        let half = host(8, Some(quota(4, GroupRelation::Own)), Some(4));
        assert!(set(&half, &ProgramTraits::default(), &[]).contains(&"OPENBLAS_NUM_THREADS=4".into()));
    }

    #[test]
    fn more_threads_than_there_is_quota_for_stay_the_users_but_wait_passively() {
        let one = host(8, Some(quota(1, GroupRelation::Own)), Some(0));
        let user = [("OMP_NUM_THREADS", "8")];
        let found = set(&one, &openmp(), &user);
        assert!(
            found.contains(&"OMP_WAIT_POLICY=passive".into())
                && !found.iter().any(|s| s.starts_with("OMP_NUM"))
        );
        let plan = decide(&one, &openmp(), |name| (name == user[0].0).then(|| user[0].1.to_owned()));
        assert_eq!(
            plan.remarks,
            ["OMP_NUM_THREADS=8 is yours and stays, on 1 processor, because /job has a quota of 1"]
        );
    }

    #[test]
    fn go_is_told_where_it_does_not_count_right_itself() {
        let built = |minor, reads_quota| ProgramTraits {
            go: Some(Go { minor, reads_quota }),
            ..ProgramTraits::default()
        };
        let set = set_beside_the_table;
        let (own, around) = (
            host(8, Some(quota(2, GroupRelation::Own)), None),
            host(8, Some(quota(2, GroupRelation::Ancestor)), None),
        );
        assert_eq!(set(&own, &built(24, false), &[]), ["GOMAXPROCS=2"]);
        assert!(set(&own, &built(25, true), &[]).is_empty());
        assert_eq!(set(&own, &built(25, false), &[]), ["GOMAXPROCS=2"], "turned off by its module");
        assert_eq!(set(&around, &built(26, true), &[]), ["GOMAXPROCS=2"], "another group's quota");
        let one = host(8, Some(quota(1, GroupRelation::Own)), None);
        assert_eq!(set(&one, &built(25, true), &[]), ["GOMAXPROCS=1"], "Go never counts less than two");
        assert_eq!(set(&own, &ProgramTraits::default(), &[]), ["GOMAXPROCS=2"], "a shell may start Go");
        assert!(
            set(&host(4, None, Some(0)), &built(10, false), &[]).is_empty(),
            "no quota, nothing to tell"
        );
    }

    #[test]
    fn go_that_reads_the_whole_quota_is_told_its_part_of_it() {
        let program =
            ProgramTraits { go: Some(Go { minor: 26, reads_quota: true }), ..ProgramTraits::default() };
        let mut part = host(4, Some(quota(2, GroupRelation::Own)), None);
        part.effective = Effective { processors: 1, limited_by: LimitedBy::Partition };
        assert_eq!(set_beside_the_table(&part, &program, &[]), ["GOMAXPROCS=1"]);
    }

    #[test]
    fn java_gets_an_option_where_it_does_not_read_the_quota_itself() {
        let java = |feature, update| ProgramTraits {
            java: Some(Java { feature, update }),
            ..ProgramTraits::default()
        };
        let (own, around) = (
            host(8, Some(quota(2, GroupRelation::Own)), None),
            host(8, Some(quota(2, GroupRelation::Ancestor)), None),
        );
        let options = |observed: &HostState, program: &ProgramTraits, user: &[(&str, &str)]| {
            let all = set_beside_the_table(observed, program, user);
            assert!(!all.iter().any(|one| one.contains("JAVA")), "Java prints its variables");
            all.into_iter().filter(|one| one.starts_with('-')).collect::<Vec<_>>()
        };
        let expected = ["-XX:ActiveProcessorCount=2"];
        assert!(options(&own, &java(17, 15), &[]).is_empty());
        assert_eq!(options(&own, &java(11, 15), &[]), expected);
        assert_eq!(options(&around, &java(17, 15), &[]), expected);
        assert!(options(&around, &java(24, 0), &[]).is_empty());
        assert_eq!(options(&around, &java(17, 15), &[("JAVA_TOOL_OPTIONS", "-Xmx1g")]), expected);
        let yours = ("JAVA_TOOL_OPTIONS", "-XX:ActiveProcessorCount=8");
        assert!(options(&around, &java(17, 15), &[yours]).is_empty());
    }

    #[test]
    fn ranks_yield_where_there_are_more_of_them_than_processors() {
        let mpiexec = ProgramTraits { mpi: true, ..ProgramTraits::default() };
        let yielding = |count| {
            let cpus = (0..8).collect();
            let observed = HostState { ranks: Some(LocalRanks { count, cpus }), ..host(8, None, Some(0)) };
            let all = set_beside_the_table(&observed, &mpiexec, &[]);
            all.into_iter().filter(|one| !one.starts_with("GOMAXPROCS")).collect::<Vec<_>>()
        };
        assert_eq!(yielding(16), ["OMPI_MCA_mpi_yield_when_idle=1", "MPIR_CVAR_POLLS_BEFORE_YIELD=1"]);
        assert!(yielding(8).is_empty());
    }

    #[test]
    fn llama_counts_the_cores_of_the_machine_and_is_told_the_allowed_ones() {
        let llama = ProgramTraits { name: "llama-server".into(), ..ProgramTraits::default() };
        assert!(set(&host(2, None, Some(0)), &llama, &[]).contains(&"LLAMA_ARG_THREADS=2".into()));
    }

    proptest! {
        #[test]
        fn what_the_user_set_is_never_overridden_and_no_number_exceeds_the_processors(
            allowed in 1_usize..9, share in proptest::option::of(1_u64..9), own in any::<bool>(),
            others in proptest::option::of(0_usize..9), mpi in any::<bool>(), kind in 0..5,
            user in proptest::collection::btree_map(
                proptest::sample::select(vec![
                    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "OMP_PROC_BIND", "OMP_PLACES",
                    "GOMAXPROCS", "NUMEXPR_NUM_THREADS", "ERL_AFLAGS", "KMP_BLOCKTIME", "RAYON_NUM_THREADS", "LLAMA_ARG_THREADS",
                    "OMPI_MCA_mpi_yield_when_idle",
                ]),
                proptest::sample::select(vec!["", "1", "8,2", "16", "nonsense", "-1"]), 0..6,
            ),
        ) {
            let whose = if own { GroupRelation::Own } else { GroupRelation::Ancestor };
            let observed = host(allowed, share.map(|share| quota(share, whose)), others);
            let program = match kind {
                0 => ProgramTraits::default(),
                1 => openmp(),
                2 => ProgramTraits { go: Some(Go { minor: 24, reads_quota: false }), ..ProgramTraits::default() },
                3 => ProgramTraits { java: Some(Java { feature: 8, update: 0 }), ..ProgramTraits::default() },
                _ => ProgramTraits { name: "llama-cli".into(), libraries: vec!["libtbb.so.12".into()], ..ProgramTraits::default() },
            };
            let program = ProgramTraits { mpi, ..program };
            let ranks = mpi.then(|| LocalRanks { count: 4, cpus: observed.limits.affinity.clone() });
            let observed = HostState { ranks, ..observed };
            let plan = decide(&observed, &program, |name| user.get(name).map(|value| (*value).to_owned()));
            let names: BTreeSet<_> = plan.set.iter().map(|setting| setting.name).collect();
            prop_assert_eq!(names.len(), plan.set.len(), "no name twice");
            for setting in &plan.set {
                prop_assert!(!user.contains_key(setting.name), "{} is the user's", setting.name);
                prop_assert!(!setting.why.is_empty());
                if setting.name.contains("THREADS") || setting.name == "GOMAXPROCS" {
                    let threads: usize = setting.value.parse().expect("a number");
                    prop_assert!((1..=observed.effective.processors).contains(&threads));
                }
            }
        }
    }
}
