//! Fits programs that start together on this host: chooses the processors and the settings of each.

use crate::decide::{HostState, PLACEMENT, Plan, decide};
use crate::effective::{Effective, LimitedBy, effective};
use crate::mpi4py::uses_mpi4py;
use crate::partition::{ProcessorPart, partition};
use crate::program_traits::ProgramTraits;
use crate::ranks::{self, LocalRanks, RANK};
use std::ffi::OsString;
use std::io;
use unisono_linux::affinity::CpuSet;
use unisono_linux::load;
use unisono_linux::quota::{self, ProcessorLimits};
use unisono_linux::topology::Topology;
use unisono_text::{counted, shell_quoted};

/// The limits and the load of this host for programs that start now.
#[derive(Clone, Debug)]
pub struct FitHost {
    pub limits: ProcessorLimits,
    pub effective: Effective,
    /// The number of threads of other programs that want a processor now, or `None` if the kernel does not
    /// report it.
    pub others: Option<usize>,
    /// The processors of the launcher that started this process as a rank, if there is one.
    pub launcher_cpus: Option<CpuSet>,
}

/// A program, its processors and its settings.
#[derive(Clone, Debug)]
pub struct FittedProgram {
    /// The command, with the options of `plan`.
    pub command: Vec<OsString>,
    pub part: ProcessorPart,
    pub plan: Plan,
    /// The number of processors to take a lease of, if the program gets fewer than it may use and may be
    /// bound to them.
    pub lease: Option<usize>,
}

impl FitHost {
    pub fn read() -> io::Result<Self> {
        let limits = quota::limits()?;
        let others = load::others_on(&limits.affinity, limits.online);
        let launcher_cpus = ranks::starters_processors();
        Ok(Self { effective: effective(&limits), limits, others, launcher_cpus })
    }

    /// Returns the number of ranks of this host, if a launcher started this process as one of them.
    pub fn sibling_ranks(&self, user: impl Fn(&str) -> Option<String>) -> Option<usize> {
        ranks::of_this_host(user).filter(|_| self.launcher_cpus.is_some())
    }

    /// Fits these programs, given as pairs of a command and the traits of its file. `user` returns the
    /// current value of a variable, if it is set.
    pub fn fit(
        &self,
        programs: Vec<(Vec<OsString>, ProgramTraits)>,
        user: impl Fn(&str) -> Option<String>,
    ) -> Vec<FittedProgram> {
        let Self { limits, effective: there, others, launcher_cpus } = self;
        let siblings = self.sibling_ranks(&user);
        let count = programs.len();
        let parts = match count {
            1 => {
                vec![ProcessorPart { cpus: limits.affinity.clone(), threads: there.processors, others: 0 }]
            }
            several => partition(&Topology::read(), &limits.affinity, there.processors, several),
        };
        let fit_one = |(part, (command, traits)): (ProcessorPart, (Vec<OsString>, ProgramTraits))| {
            let limited_by = if count == 1 { there.limited_by.clone() } else { LimitedBy::Partition };
            let local_ranks = traits.ranks.or(siblings).map(|count| LocalRanks {
                count: count.max(1),
                cpus: launcher_cpus.clone().filter(|_| traits.ranks.is_none()).unwrap_or(part.cpus.clone()),
            });
            let observed = HostState {
                ranks: local_ranks,
                limits: ProcessorLimits { affinity: part.cpus.clone(), ..limits.clone() },
                effective: Effective { processors: part.threads, limited_by },
                // threads of other programs may run on any part, so each part expects an equal share of them
                others: others.map(|others| others.div_ceil(count) + part.others),
            };
            let mut plan = decide(&observed, &traits, &user);
            // under `unisono mpi` the ranks sleep already
            if user("UNISONO_MPI_PROGRAM").is_none() && ranks::is_first(&user) {
                plan.remarks.extend(awake_ranks_remark(&command, &traits, &observed));
            }
            let fewer = count == 1 && part.threads < part.cpus.len();
            let lease = (fewer && may_be_bound(&traits, &user)).then_some(part.threads);
            FittedProgram { command: with_options(command, traits.at, &plan), plan, part, lease }
        };
        parts.into_iter().zip(programs).map(fit_one).collect()
    }
}

/// Returns the command with the options of `plan` after the program, which is the word `at`.
fn with_options(mut command: Vec<OsString>, at: usize, plan: &Plan) -> Vec<OsString> {
    let options = plan.options.iter().map(|option| format!("{}={}", option.name, option.value).into());
    let first = command.len().min(at + 1);
    command.splice(first..first, options);
    command
}

/// Returns a remark about ranks that outnumber their processors and stay awake while they wait: no variable
/// lets them sleep, and each is a session of its own. The command in the remark shows on which side of the
/// launcher `unisono mpi` belongs.
fn awake_ranks_remark(command: &[OsString], program: &ProgramTraits, host: &HostState) -> Option<String> {
    let LocalRanks { count, cpus } = host.ranks.as_ref().filter(|_| program.ranks_wait_awake)?;
    let is_rank = program.rank_programs.is_empty();
    let processors = if is_rank {
        // the launcher may have bound this rank to some of the processors that all ranks have
        effective(&ProcessorLimits { affinity: cpus.clone(), ..host.limits.clone() }).processors
    } else {
        host.effective.processors
    };
    if *count <= processors {
        return None;
    }
    let own = [program.at];
    let programs = if is_rank { &own[..] } else { &program.rank_programs[..] };
    let mut words = command.to_vec();
    for at in programs.iter().rev() {
        words.splice(at..at, ["unisono", "mpi", "--"].map(OsString::from));
    }
    let launcher = if is_rank { "mpiexec ... " } else { "" };
    let chosen_later = programs.iter().any(|at| command.get(*at..).is_some_and(uses_mpi4py));
    let condition = if chosen_later { " if mpi4py loads MPICH" } else { "" };
    Some(format!(
        "{} on {}: ranks of MPICH cannot yield to each other where the kernel schedules each session as a \
         group (autogroup); ranks that sleep while they wait{condition}: {launcher}{}",
        counted(count, "rank"),
        counted(processors, "processor"),
        shell_quoted(&words)
    ))
}

/// Returns whether the program may be bound to some of its processors: it does not use MPI, and neither a
/// launcher nor a variable places its threads. (A launcher of MPI programs counts its processors, and refuses
/// to start more ranks than that.)
fn may_be_bound(program: &ProgramTraits, user: impl Fn(&str) -> Option<String>) -> bool {
    !program.mpi && PLACEMENT.iter().chain(&RANK).all(|name| user(name).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program_traits::Java;
    use unisono_linux::cgroup::CgroupVersion;
    use unisono_linux::quota::{GroupRelation, Quota};

    #[test]
    fn one_program_gets_all_processors_and_of_two_each_its_part_and_half_of_the_strangers() {
        let affinity: CpuSet = (0..4).collect();
        let limits = ProcessorLimits { affinity: affinity.clone(), ..ProcessorLimits::default() };
        let host = FitHost { effective: effective(&limits), limits, others: Some(3), launcher_cpus: None };
        let program = || (vec!["a".into()], ProgramTraits { name: "a".into(), ..ProgramTraits::default() });
        let alone = host.fit(vec![program()], |_| None);
        assert_eq!((alone.len(), &alone[0].part.cpus), (1, &affinity));
        let two = host.fit(vec![program(), program()], |_| None);
        assert_eq!(two.len(), 2);
        for fitted in &two {
            assert_eq!((fitted.part.cpus.len(), fitted.part.threads), (2, 2), "{fitted:?}");
            // the program's two threads and its share of the two other threads, one, want its two processors
            assert!(fitted.plan.set.iter().any(|set| set.name == "OMP_WAIT_POLICY"), "{fitted:?}");
        }
    }

    #[test]
    fn java_gets_its_option_before_its_own_arguments() {
        let quota = Quota {
            time_us: 100_000,
            period_us: 100_000,
            group: "/job".into(),
            of: GroupRelation::Ancestor,
            version: CgroupVersion::V2,
        };
        let affinity: CpuSet = (0..4).collect();
        let limits = ProcessorLimits { affinity, quota: Some(quota), ..ProcessorLimits::default() };
        let host = FitHost { effective: effective(&limits), limits, others: Some(0), launcher_cpus: None };
        let java = ProgramTraits { java: Some(Java { feature: 17, update: 1 }), ..ProgramTraits::default() };
        let command = vec!["java".into(), "-jar".into(), "a.jar".into()];
        let fitted = host.fit(vec![(command, java.clone())], |_| None);
        assert_eq!(fitted[0].command, ["java", "-XX:ActiveProcessorCount=1", "-jar", "a.jar"]);
        let behind = ProgramTraits { at: 1, ..java };
        let fitted = host.fit(vec![(vec!["nohup".into(), "java".into(), "-jar".into()], behind)], |_| None);
        assert_eq!(fitted[0].command, ["nohup", "java", "-XX:ActiveProcessorCount=1", "-jar"]);
    }

    #[test]
    fn ranks_that_stay_awake_are_said_to_sleep_only_under_unisono_mpi() {
        let affinity: CpuSet = (0..2).collect();
        let limits = ProcessorLimits { affinity, ..ProcessorLimits::default() };
        let host = FitHost { effective: effective(&limits), limits, others: Some(0), launcher_cpus: None };
        let remarks = |ranks: usize, awake: bool| {
            let words = ["nice", "mpiexec", "-n", "N", "./a", "x y"].map(OsString::from).to_vec();
            let program = ProgramTraits {
                at: 1,
                ranks: Some(ranks),
                rank_programs: vec![4],
                ranks_wait_awake: awake,
                mpi: true,
                ..ProgramTraits::default()
            };
            host.fit(vec![(words, program)], |_| None).remove(0).plan.remarks
        };
        let said = remarks(4, true);
        let command = "nice mpiexec -n N unisono mpi -- ./a 'x y'";
        assert!(said.len() == 1 && said[0].ends_with(command), "{said:?}");
        assert_eq!((remarks(2, true), remarks(4, false)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_first_rank_names_the_prefix_between_its_launcher_and_itself_also_for_mpi4py() {
        let cpus: CpuSet = (0..2).collect();
        // the launcher bound this rank to one of two processors
        let limits = ProcessorLimits { affinity: CpuSet::single(0), ..ProcessorLimits::default() };
        let launcher_cpus = Some(cpus);
        let host = FitHost { effective: effective(&limits), limits, others: Some(0), launcher_cpus };
        let remarks = |ranks: &'static str, rank: &'static str, preloaded: bool| {
            let words = ["python3", "-m", "mpi4py", "a.py"].map(OsString::from).to_vec();
            let program = ProgramTraits { ranks_wait_awake: true, mpi: true, ..ProgramTraits::default() };
            let user = move |name: &str| match name {
                "MPI_LOCALNRANKS" => Some(ranks.to_owned()),
                "MPI_LOCALRANKID" => Some(rank.to_owned()),
                "UNISONO_MPI_PROGRAM" if preloaded => Some("/usr/bin/unisono".to_owned()),
                _ => None,
            };
            host.fit(vec![(words, program)], user).remove(0).plan.remarks
        };
        let said = remarks("4", "0", false);
        let command = "mpiexec ... unisono mpi -- python3 -m mpi4py a.py";
        assert!(said.len() == 1 && said[0].ends_with(command), "{said:?}");
        assert!(said[0].starts_with("4 ranks on 2 processors") && said[0].contains("if mpi4py loads"));
        for none in [remarks("2", "0", false), remarks("4", "1", false), remarks("4", "0", true)] {
            assert_eq!(none, Vec::<String>::new());
        }
    }

    #[test]
    fn a_launcher_divides_its_processors_and_a_rank_those_of_its_launcher() {
        let affinity: CpuSet = (0..4).collect();
        let limits = ProcessorLimits { affinity: affinity.clone(), ..ProcessorLimits::default() };
        let mut host =
            FitHost { effective: effective(&limits), limits, others: Some(0), launcher_cpus: None };
        let threads = |host: &FitHost, ranks, local: Option<&str>| {
            let program = ProgramTraits { ranks, ..ProgramTraits::default() };
            let user = |name: &str| local.filter(|_| name == "MPI_LOCALNRANKS").map(str::to_owned);
            let plan = host.fit(vec![(vec!["a".into()], program)], user).remove(0).plan;
            plan.set.into_iter().find(|set| set.name == "OMP_NUM_THREADS").map(|set| set.value)
        };
        assert_eq!(threads(&host, Some(2), None).as_deref(), Some("2"));
        assert_eq!(threads(&host, None, Some("2")), None, "no launcher is above it: the variable is old");
        host.launcher_cpus = Some(affinity);
        assert_eq!(threads(&host, None, Some("2")).as_deref(), Some("2"));
    }
}
