//! The remedies that are tried, and the command line of each.
//!
//! Each remedy is a command that a user can paste: variables before the programs, or a command of Unisono
//! around them. So the command that was tried is the command that is advised.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use unisono_fit::FittedProgram;
use unisono_linux::affinity::CpuSet;
use unisono_text::{named, shell_word};

named! {
    /// The remedies, simpler ones first. The judge prefers an earlier remedy unless a later one is clearly
    /// faster.
    #[derive(PartialOrd, Ord)]
    pub enum TriedRemedy {
        Plain = "plain",
        /// `unisono fit`: as many threads as processors.
        Fit = "fit",
        /// Waiting threads sleep at once.
        Passive = "passive",
        /// `unisono mpi`: waiting ranks of MPI programs sleep.
        Mpi = "mpi",
        /// Each thread of an OpenMP team has a processor of its own.
        Pin = "pin",
        /// Each program has processors of its own.
        Partition = "partition",
        /// One program after the other.
        InTurn = "in-turn",
        /// The first program gets a higher priority than the others; a single program gets a higher priority
        /// than all other programs of the machine.
        Priority = "priority",
        /// `unisono gang run`.
        Gangs = "gangs",
        /// As `Gangs`, with slices of 5 ms: each program answers sooner, but there are more switches.
        GangsShort = "gangs-5ms",
        /// As `Gangs`, with slices of 100 ms.
        GangsLong = "gangs-100ms",
    }
}

/// Parts of the names of variables and options with a number of threads.
const NUMBERS: [&str; 4] = ["NUM_THREADS", "GOMAXPROCS", "ActiveProcessorCount", "ARG_THREADS"];
/// Prefixes of the names of MPI's libraries.
const MPI: [&str; 3] = ["libmpi.", "libmpi_abi", "libmpich"];

fn is_among(found: &BTreeSet<String>, prefixes: &[&str]) -> bool {
    found.iter().any(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

/// The variables that `unisono fit` would set, as far as a verdict needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitPlan {
    /// Names of variables and options.
    pub set: Vec<String>,
}

impl FitPlan {
    pub fn from_programs(programs: &[FittedProgram]) -> Self {
        let settings = programs.iter().flat_map(|one| one.plan.set.iter().chain(&one.plan.options));
        Self { set: settings.map(|set| set.name.to_owned()).collect() }
    }

    /// Removes variables that `fit` sets in case a program loads a runtime which is not among those found:
    /// OpenBLAS's number of threads without OpenBLAS, and all numbers of threads of an MPI program whose
    /// ranks have no runtime with threads. (Its ranks are too many, and `fit` does not change their number.)
    #[must_use]
    pub fn for_runtimes(mut self, found: &BTreeSet<String>) -> Self {
        if !is_among(found, &["libopenblas"]) {
            self.set.retain(|name| name != "OPENBLAS_NUM_THREADS");
        }
        if is_among(found, &MPI) && found.iter().all(|name| MPI.iter().any(|mpi| name.starts_with(mpi))) {
            self.set.retain(|name| !NUMBERS.iter().any(|part| name.contains(part)));
        }
        self
    }

    fn sets(&self, names: &[&str]) -> bool {
        self.set.iter().any(|name| names.iter().any(|part| name.contains(part)))
    }

    pub fn fewer_threads(&self) -> bool {
        self.sets(&NUMBERS)
    }

    pub fn waits(&self) -> bool {
        self.sets(&["WAIT_POLICY", "BLOCKTIME", "YIELD", "yield"])
    }
}

/// Variables that make waiting threads of the known runtimes sleep or yield at once: OpenMP (GNU, LLVM and
/// Intel), Open MPI, MPICH.
const PASSIVE: [(&str, &str); 4] = [
    ("OMP_WAIT_POLICY", "passive"),
    ("KMP_BLOCKTIME", "0"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
];
const PIN: [(&str, &str); 2] = [("OMP_PROC_BIND", "spread"), ("OMP_PLACES", "threads")];

/// Processes that start together: for each, the words of its command line and its variables.
pub type StartedTogether = Vec<(Vec<OsString>, Vec<(&'static str, &'static str)>)>;

impl TriedRemedy {
    /// Returns whether this remedy is gangs with another slice than the default. Such a remedy is tried only
    /// if gangs do well.
    pub fn is_other_slice(self) -> bool {
        matches!(self, TriedRemedy::GangsShort | TriedRemedy::GangsLong)
    }

    /// Returns, for a remedy that only sets variables, prefixes of the names of the runtimes that read them.
    fn read_by(self) -> Option<&'static [&'static str]> {
        match self {
            TriedRemedy::Passive => Some(&["libgomp", "libomp", "libiomp5", "libmpi"]),
            TriedRemedy::Pin => Some(&["libgomp", "libomp", "libiomp5"]),
            _ => None,
        }
    }

    /// Returns whether this remedy acts on programs that loaded these runtimes. A runtime that is linked into
    /// the program's own file is not among them.
    pub fn is_known_to_act(self, runtimes: &BTreeSet<String>) -> bool {
        self.read_by().is_none_or(|all| is_among(runtimes, all))
    }

    /// Returns the slice of gangs, in milliseconds; `None` for other remedies.
    pub fn slice_ms(self) -> Option<u64> {
        match self {
            TriedRemedy::Gangs => Some(20),
            TriedRemedy::GangsShort => Some(5),
            TriedRemedy::GangsLong => Some(100),
            _ => None,
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            TriedRemedy::Plain => "as it is now",
            TriedRemedy::Fit => "as many threads as processors",
            TriedRemedy::Passive => "waiting threads sleep",
            TriedRemedy::Mpi => "waiting ranks sleep",
            TriedRemedy::Pin => "a processor for each thread",
            TriedRemedy::Partition => "processors for each program",
            TriedRemedy::InTurn => "one program after the other",
            TriedRemedy::Priority => "the first program first",
            TriedRemedy::Gangs => "programs take turns as gangs",
            TriedRemedy::GangsShort => "gangs with slices of 5 ms",
            TriedRemedy::GangsLong => "gangs with slices of 100 ms",
        }
    }
}

/// The programs, and what their command lines depend on.
#[derive(Clone, Debug)]
pub struct Programs {
    pub commands: Vec<Vec<OsString>>,
    /// Path of the program `unisono`.
    pub unisono: PathBuf,
    /// Whether this process runs as root. Only root may stop gangs by control groups; other users stop them
    /// by signals.
    pub root: bool,
    /// A set of processors for each program; empty if there are too few of them.
    pub parts: Vec<CpuSet>,
    /// For each command, the indices in it of the programs that it starts as ranks; empty if it is no
    /// launcher of MPI programs.
    pub rank_programs: Vec<Vec<usize>>,
}

impl Programs {
    /// Returns the remedies that can be tried with these programs on this host.
    pub fn remedies(&self) -> Vec<TriedRemedy> {
        let several = self.commands.len() > 1;
        let makes_sense = |remedy: &TriedRemedy| match remedy {
            // one program cannot take turns with itself
            TriedRemedy::InTurn => several,
            TriedRemedy::Mpi => self.rank_programs.iter().any(|programs| !programs.is_empty()),
            TriedRemedy::Partition => several && self.parts.len() == self.commands.len(),
            // only root may raise a priority
            TriedRemedy::Priority => several || self.root,
            _ => true,
        };
        TriedRemedy::ALL.into_iter().filter(makes_sense).collect()
    }

    /// Returns the words before each program's command that restrict the program to its processors, or set
    /// its priority.
    fn command_prefix(&self, remedy: TriedRemedy) -> Vec<Vec<String>> {
        let several = self.commands.len() > 1;
        let one = |number: usize| match remedy {
            TriedRemedy::Partition => {
                self.parts.get(number).map(|cpus| vec!["taskset".into(), "-c".into(), cpus.to_string()])
            }
            TriedRemedy::Priority if several && number > 0 => {
                Some(["nice", "-n", "19"].map(str::to_owned).into())
            }
            TriedRemedy::Priority if !several => Some(["nice", "-n", "-20"].map(str::to_owned).into()),
            _ => None,
        };
        (0..self.commands.len()).map(|number| one(number).unwrap_or_default()).collect()
    }

    /// Returns the processes of a remedy, stage by stage: the processes of a stage run together, and a stage
    /// begins when the previous one has ended.
    pub fn stages(&self, remedy: TriedRemedy) -> Vec<StartedTogether> {
        let with = |variables: &[(&'static str, &'static str)]| -> StartedTogether {
            self.commands.iter().map(|program| (program.clone(), variables.to_vec())).collect()
        };
        match remedy {
            TriedRemedy::Plain => vec![with(&[])],
            TriedRemedy::Passive => vec![with(&PASSIVE)],
            TriedRemedy::Mpi => {
                let commands = self.with_sleeping_ranks(self.unisono.as_os_str());
                vec![commands.into_iter().map(|words| (words, Vec::new())).collect()]
            }
            TriedRemedy::Pin => vec![with(&PIN)],
            TriedRemedy::InTurn => with(&[]).into_iter().map(|one| vec![one]).collect(),
            TriedRemedy::Fit => vec![vec![(self.unisono_command(&["fit", "--quiet", "--"]), Vec::new())]],
            TriedRemedy::Partition | TriedRemedy::Priority => {
                let after = |(words, program): (Vec<String>, &Vec<OsString>)| {
                    let words = words.into_iter().map(OsString::from).chain(program.iter().cloned());
                    (words.collect(), Vec::new())
                };
                vec![self.command_prefix(remedy).into_iter().zip(&self.commands).map(after).collect()]
            }
            TriedRemedy::Gangs | TriedRemedy::GangsShort | TriedRemedy::GangsLong => {
                let words =
                    [&["gang", "run", "--quiet"], slice_options(remedy), self.unprivileged(), &["--"]]
                        .concat();
                vec![vec![(self.unisono_command(&words), Vec::new())]]
            }
        }
    }

    /// Returns the programs as a user would type them after a command of Unisono: `./a 1 ::: ./b`.
    pub fn in_words(&self) -> String {
        self.commands.iter().map(|program| shell_quoted(program)).collect::<Vec<_>>().join(" ::: ")
    }

    /// Returns the command line of a remedy, as a user would type it in a shell.
    pub fn command(&self, remedy: TriedRemedy) -> String {
        let texts: Vec<String> = self.commands.iter().map(|program| shell_quoted(program)).collect();
        let each = |variables: &[(&str, &str)]| {
            let prefix: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
            let all: Vec<String> = texts.iter().map(|text| format!("{prefix}{text}")).collect();
            all.join(" & ")
        };
        match remedy {
            TriedRemedy::Plain => each(&[]),
            TriedRemedy::Passive => each(&PASSIVE),
            TriedRemedy::Mpi => {
                let commands = self.with_sleeping_ranks(OsStr::new("unisono"));
                commands.iter().map(|words| shell_quoted(words)).collect::<Vec<_>>().join(" & ")
            }
            TriedRemedy::Pin => each(&PIN),
            TriedRemedy::InTurn => texts.join("; "),
            TriedRemedy::Fit => format!("unisono fit -- {}", self.in_words()),
            TriedRemedy::Partition | TriedRemedy::Priority => {
                let command_prefix = self.command_prefix(remedy).into_iter().map(|words| words.join(" "));
                let all: Vec<String> = command_prefix
                    .zip(&texts)
                    .map(|(words, text)| format!("{words} {text}").trim_start().to_owned())
                    .collect();
                all.join(" & ")
            }
            TriedRemedy::Gangs | TriedRemedy::GangsShort | TriedRemedy::GangsLong => {
                let words =
                    [&["unisono", "gang", "run"], slice_options(remedy), self.unprivileged(), &["--"]]
                        .concat();
                format!("{} {}", words.join(" "), self.in_words())
            }
        }
    }

    /// Returns the commands with `unisono mpi` before each program that is started as ranks.
    fn with_sleeping_ranks(&self, unisono: &OsStr) -> Vec<Vec<OsString>> {
        let mut commands = self.commands.clone();
        for (words, programs) in commands.iter_mut().zip(&self.rank_programs) {
            for at in programs.iter().rev() {
                words.splice(at..at, [unisono.to_owned(), "mpi".into(), "--".into()]);
            }
        }
        commands
    }

    fn unprivileged(&self) -> &'static [&'static str] {
        if self.root { &[] } else { &["--unprivileged"] }
    }

    fn unisono_command(&self, words: &[&str]) -> Vec<OsString> {
        let mut all = vec![self.unisono.as_os_str().to_owned()];
        all.extend(words.iter().map(OsString::from));
        for (number, program) in self.commands.iter().enumerate() {
            if number > 0 {
                all.push(":::".into());
            }
            all.extend(program.iter().cloned());
        }
        all
    }
}

/// Returns the options that choose a slice other than the default of `gang run`.
fn slice_options(remedy: TriedRemedy) -> &'static [&'static str] {
    match remedy {
        TriedRemedy::GangsShort => &["--slice", "5ms"],
        TriedRemedy::GangsLong => &["--slice", "100ms"],
        _ => &[],
    }
}

/// Quotes a command for a shell.
pub fn shell_quoted(program: &[OsString]) -> String {
    let words: Vec<String> = program.iter().map(|word| shell_word(&word.to_string_lossy())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn programs(lines: &[&[&str]]) -> Vec<Vec<OsString>> {
        lines.iter().map(|line| line.iter().map(OsString::from).collect()).collect()
    }

    #[test]
    fn a_number_of_threads_for_openblas_counts_only_where_openblas_is() {
        let set = vec!["OPENBLAS_NUM_THREADS".to_owned(), "OMP_WAIT_POLICY".to_owned()];
        let plan = FitPlan { set };
        let found = |name: &str| plan.clone().for_runtimes(&BTreeSet::from([name.to_owned()]));
        assert!(found("libopenblas.so.0").fewer_threads());
        let other = found("libgomp.so.1.0.0");
        assert!(!other.fewer_threads() && other.waits());
    }

    #[test]
    fn a_number_of_threads_does_not_count_where_only_ranks_are_too_many() {
        let set = vec!["OMP_NUM_THREADS".to_owned(), "MPIR_CVAR_POLLS_BEFORE_YIELD".to_owned()];
        let plan = FitPlan { set };
        let found = |names: &[&str]| {
            plan.clone().for_runtimes(&names.iter().map(|name| (*name).to_owned()).collect())
        };
        let ranks = found(&["libmpich.so.12.2.2"]);
        assert!(!ranks.fewer_threads() && ranks.waits());
        assert!(found(&["libmpich.so.12.2.2", "libgomp.so.1.0.0"]).fewer_threads(), "ranks times threads");
        assert!(found(&[]).fewer_threads(), "a runtime may be linked into the program");
    }

    #[test]
    fn each_program_of_a_launcher_runs_under_unisono_mpi() {
        let commands = programs(&[&["mpiexec", "-n", "1", "./a b", ":", "-n", "3", "./c"], &["./d"]]);
        let one = Programs {
            commands,
            unisono: "/bin/unisono".into(),
            root: false,
            parts: Vec::new(),
            rank_programs: vec![vec![3, 7], Vec::new()],
        };
        assert!(one.remedies().contains(&TriedRemedy::Mpi));
        assert_eq!(
            one.command(TriedRemedy::Mpi),
            "mpiexec -n 1 unisono mpi -- './a b' : -n 3 unisono mpi -- ./c & ./d"
        );
        let stages = one.stages(TriedRemedy::Mpi);
        assert_eq!(stages[0][0].0[3..7], ["/bin/unisono", "mpi", "--", "./a b"].map(OsString::from));
        assert_eq!(stages[0].len(), 2);
        let none = Programs { rank_programs: vec![Vec::new(), Vec::new()], ..one };
        assert!(!none.remedies().contains(&TriedRemedy::Mpi));
    }

    #[test]
    fn a_shell_reads_back_every_word() {
        let words = ["it's", "", "a b", "$HOME", "--n=3", "x;y", "\"q\"", "`id`"];
        let line = format!("printf '%s\\n' {}", shell_quoted(&programs(&[&words])[0]));
        let output = Command::new("sh").args(["-c", &line]).output().expect("a shell");
        let printed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(printed.lines().collect::<Vec<_>>(), words);
    }

    #[test]
    fn programs_run_together_except_in_turn() {
        let commands = programs(&[&["./a", "1"], &["./b"]]);
        let parts = vec![CpuSet::single(0), CpuSet::single(1)];
        let two = Programs {
            commands,
            unisono: "/bin/unisono".into(),
            root: true,
            parts,
            rank_programs: Vec::new(),
        };
        let shape = |remedy: TriedRemedy| -> Vec<usize> { two.stages(remedy).iter().map(Vec::len).collect() };
        assert_eq!(shape(TriedRemedy::Plain), [2]);
        assert_eq!(shape(TriedRemedy::InTurn), [1, 1]);
        assert_eq!(shape(TriedRemedy::Gangs), [1]);
        assert_eq!(two.command(TriedRemedy::Gangs), "unisono gang run -- ./a 1 ::: ./b");
        let ordinary = Programs { root: false, ..two.clone() };
        assert_eq!(ordinary.command(TriedRemedy::Gangs), "unisono gang run --unprivileged -- ./a 1 ::: ./b");
        assert_eq!(two.command(TriedRemedy::GangsShort), "unisono gang run --slice 5ms -- ./a 1 ::: ./b");
        assert_eq!(two.command(TriedRemedy::InTurn), "./a 1; ./b");
        assert_eq!(two.command(TriedRemedy::Partition), "taskset -c 0 ./a 1 & taskset -c 1 ./b");
        assert_eq!(two.command(TriedRemedy::Priority), "./a 1 & nice -n 19 ./b");
        let words: Vec<Vec<OsString>> =
            two.stages(TriedRemedy::Priority).remove(0).into_iter().map(|(words, _)| words).collect();
        assert_eq!(words, programs(&[&["./a", "1"], &["nice", "-n", "19", "./b"]]));
        assert!(
            two.command(TriedRemedy::Pin).starts_with("OMP_PROC_BIND=spread OMP_PLACES=threads ./a 1 & OMP_")
        );
    }

    #[test]
    fn a_way_that_needs_several_programs_or_root_is_not_tried_without() {
        let one = Programs {
            commands: programs(&[&["./a"]]),
            unisono: "/bin/unisono".into(),
            root: false,
            parts: Vec::new(),
            rank_programs: Vec::new(),
        };
        let lacks = |programs: &Programs| -> Vec<&str> {
            let remedies = programs.remedies();
            TriedRemedy::ALL
                .into_iter()
                .filter(|remedy| !remedies.contains(remedy))
                .map(TriedRemedy::name)
                .collect()
        };
        assert_eq!(lacks(&one), ["mpi", "partition", "in-turn", "priority"]);
        let root = Programs { root: true, ..one };
        assert_eq!(lacks(&root), ["mpi", "partition", "in-turn"]);
        assert_eq!(root.command(TriedRemedy::Priority), "nice -n -20 ./a");
        let crowd = Programs { commands: programs(&[&["./a"], &["./b"], &["./c"]]), ..root };
        assert_eq!(lacks(&crowd), ["mpi", "partition"], "there are not enough processors");
    }
}
