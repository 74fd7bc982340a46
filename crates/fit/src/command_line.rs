//! Finds the programs in a command line that starts with another program: behind commands that become the
//! rest of their arguments (`nice -n 5 java`), and behind launchers of MPI programs (`mpiexec -n 4 ./a`).
//!
//! A command line alone does not show which options take a value. So the options of the known commands that
//! do are listed here. Behind an option that is missing in the list, the option's value is taken for the
//! program, and its arguments are not read as options.
//!
//! When not to use it: for commands that change which processors the program may use (`taskset`, `numactl`)
//! or its environment (`sudo`), because the limits of this process do not hold behind them.
//!
//! Reference: env(1), nice(1), timeout(1), stdbuf(1), setsid(1), ionice(1), chrt(1), time(1); mpiexec(1) of
//! MPICH and Open MPI; srun(1).

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::Path;

/// A command that becomes the rest of its arguments.
struct PrefixCommand {
    name: &'static str,
    /// Options with their value in the next word.
    with_value: &'static [&'static str],
    /// The number of arguments between the options and the program.
    arguments: usize,
}

const fn prefix(name: &'static str, with_value: &'static [&'static str], arguments: usize) -> PrefixCommand {
    PrefixCommand { name, with_value, arguments }
}

const PREFIX_COMMANDS: [PrefixCommand; 8] = [
    prefix("env", &["-u", "--unset", "-C", "--chdir"], 0), // assignments follow, see below
    prefix("nice", &["-n", "--adjustment"], 0),
    prefix("ionice", &["-c", "--class", "-n", "--classdata"], 0),
    prefix("timeout", &["-s", "--signal", "-k", "--kill-after"], 1),
    prefix("nohup", &[], 0),
    prefix("setsid", &[], 0),
    prefix("stdbuf", &["-i", "--input", "-o", "--output", "-e", "--error"], 0),
    prefix("time", &["-f", "--format", "-o", "--output"], 0),
];

fn text(word: &OsString) -> Cow<'_, str> {
    word.to_string_lossy()
}

fn file_name(word: &OsString) -> Cow<'_, str> {
    Path::new(word).file_name().unwrap_or_default().to_string_lossy()
}

/// Returns the index of the program that a command line starts behind all commands that become the rest of
/// their arguments: 3 for `nice -n 5 java`, 0 for `java`.
pub(crate) fn behind_prefixes(words: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(next) = words.get(at).and_then(|word| {
        let known = PREFIX_COMMANDS.iter().find(|known| known.name == file_name(word))?;
        behind_one(known, words, at + 1)
    }) {
        at = next;
    }
    at
}

fn behind_one(known: &PrefixCommand, words: &[OsString], mut at: usize) -> Option<usize> {
    loop {
        let word = text(words.get(at)?);
        match &*word {
            "--" => {
                at += 1;
                break;
            }
            // a command line in one word, which this module does not split
            split if known.name == "env" && (split.starts_with("-S") || split.starts_with("--split")) => {
                return None;
            }
            option if known.with_value.contains(&option) => at += 2,
            option if option.starts_with('-') => at += 1,
            _ => break,
        }
    }
    if known.name == "env" {
        at += words.get(at..)?.iter().take_while(|word| text(word).contains('=')).count();
    }
    at += known.arguments;
    (at < words.len()).then_some(at)
}

/// Returns a command with `prefix` before each program that its launcher starts as ranks: `mpiexec -n 4
/// PREFIX ./a`. Returns `None` if the command starts no launcher, also not behind `timeout 60` and the like,
/// or if the launcher's arguments name no program.
pub fn with_prefixed_ranks(
    command: &[OsString],
    is_launcher: impl Fn(&str) -> bool,
    prefix: &[OsString],
) -> Option<Vec<OsString>> {
    let at = behind_prefixes(command);
    let (launcher, arguments) = command.get(at..)?.split_first()?;
    if !is_launcher(&text(launcher)) {
        return None;
    }
    let programs = LaunchArguments::read(launcher, arguments).programs;
    let mut words = command.to_vec();
    for program in programs.iter().rev() {
        let program = at + 1 + program;
        words.splice(program..program, prefix.iter().cloned());
    }
    (!programs.is_empty()).then_some(words)
}

/// The options of `mpiexec` and `mpirun` (MPICH's Hydra and Open MPI) without their hyphens that take one
/// value in the next word.
const WITH_VALUE: &str = "\
    n np c N ppn perhost npernode npersocket f host H hosts hostfile machinefile default-hostfile bootstrap \
    bootstrap-exec launcher launcher-exec rmk bind-to map-by rank-by membind topolib order-nodes wdir wd \
    path prefix genvlist envlist x configfile app am tune rf rankfile output-filename outfile-pattern \
    errfile-pattern prepend-pattern timeout stdin iface demux usize gpus-per-proc cpu-set cpu-list \
    slot-list display output runtime-options personality dvm s preload-files report-uri ompi-server \
    nameserver localhost";
/// The options of launchers with two values.
const WITH_TWO_VALUES: &[&str] = &["genv", "env", "mca", "gmca", "pmixmca", "prtemca"];
/// The options of `srun` with one value.
const WITH_VALUE_OF_SRUN: &[&str] =
    &["n", "N", "c", "p", "A", "t", "J", "w", "x", "o", "e", "i", "D", "m", "q", "C", "G", "S", "B", "u"];

/// A launcher's arguments: `-n 1 ./a : -n 3 ./b`.
#[derive(Debug, Default)]
pub(crate) struct LaunchArguments {
    /// The name without hyphens and the first value of each option of the launcher itself, in their order.
    pub(crate) options: Vec<(String, String)>,
    /// The indices of the programs in the arguments; a lone colon separates the programs.
    pub(crate) programs: Vec<usize>,
}

impl LaunchArguments {
    pub(crate) fn read(launcher: &OsString, arguments: &[OsString]) -> Self {
        let srun = file_name(launcher).split('.').next() == Some("srun");
        let mut read = Self::default();
        let mut at = 0;
        while let Some(word) = arguments.get(at) {
            let word = text(word);
            let Some(name) = word.strip_prefix('-') else {
                read.programs.push(at);
                // the program's own arguments end at the colon before the next program
                let next = (!srun).then(|| arguments[at..].iter().position(|word| word == ":")).flatten();
                match next {
                    Some(colon) => at += colon + 1,
                    None => break,
                }
                continue;
            };
            let long = name.starts_with('-');
            let name = name.trim_start_matches('-');
            let (name, joined) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let values = match () {
                () if joined.is_some() => 0,
                // srun takes long options as `--name=value`, but also `--name value`
                () if srun && long => usize::from(["ntasks", "nodes", "ntasks-per-node"].contains(&name)),
                () if srun => usize::from(WITH_VALUE_OF_SRUN.contains(&name)),
                () if WITH_TWO_VALUES.contains(&name) => 2,
                () => usize::from(WITH_VALUE.split(' ').any(|known| known == name)),
            };
            let (name, joined) = match name.split_at_checked(1) {
                // `-n4`
                Some((short, rest)) if srun && !long && values == 0 => (short, Some(rest)),
                _ => (name, joined),
            };
            let next = || arguments.get(at + 1).filter(|_| values > 0).map(text).unwrap_or_default();
            read.options.push((name.to_owned(), joined.map_or_else(|| next().into_owned(), str::to_owned)));
            at += 1 + values;
        }
        read
    }

    /// Returns the first value of one of these options.
    pub(crate) fn value(&self, names: &[&str]) -> Option<&str> {
        self.values(names).next()
    }

    pub(crate) fn values(&self, names: &[&str]) -> impl Iterator<Item = &str> {
        let options = self.options.iter().filter(|(name, _)| names.contains(&name.as_str()));
        options.map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_program_behind_commands_that_become_it_is_found() {
        for (line, program) in [
            ("java -jar a.jar", "java"),
            ("nice java", "java"),
            ("nice -n 5 java", "java"),
            ("nice -5 nohup java", "java"),
            ("env -u A B=1 C= /usr/bin/java -Dx=1", "/usr/bin/java"),
            ("timeout -k 5 --signal INT 60 mpiexec -n 2 ./a", "mpiexec"),
            ("/usr/bin/env time -f %e stdbuf -oL -e 0 setsid -w ./a", "./a"),
            ("ionice -c 3 -- ./a", "./a"),
            // the processors are others behind these
            ("taskset -c 0 java", "taskset"),
            ("nice", "nice"),
            ("timeout 60", "timeout"),
            ("env A=1", "env"),
            ("env -S java", "env"),
        ] {
            let words = words(line);
            assert_eq!(words[behind_prefixes(&words)], *program, "{line}");
        }
    }

    #[test]
    fn a_prefix_of_ranks_comes_between_the_launchers_options_and_each_program() {
        for (line, expected) in [
            ("mpiexec -n 4 python3 -m mpi4py a.py", Some("mpiexec -n 4 P -- python3 -m mpi4py a.py")),
            ("nice mpiexec -n 1 ./a : -n 3 ./b", Some("nice mpiexec -n 1 P -- ./a : -n 3 P -- ./b")),
            ("mpiexec -n 4", None),
            ("python3 -m mpi4py a.py", None),
        ] {
            let found = with_prefixed_ranks(&words(line), |name| name == "mpiexec", &words("P --"));
            assert_eq!(found, expected.map(words), "{line}");
        }
        assert_eq!(with_prefixed_ranks(&[], |_| true, &[]), None);
    }

    #[test]
    fn the_programs_of_a_launcher_come_after_its_options_and_their_values() {
        for (line, programs) in [
            ("mpiexec -n 4 ./a -n 7", &["./a"][..]),
            ("mpirun --mca btl self,sm --bind-to core -x A=1 -np 4 ./a", &["./a"]),
            ("mpiexec.mpich -genv A 2 -bootstrap ssh -l -n 1 ./a x : -n 3 ./b", &["./a", "./b"]),
            ("srun -N1 -n 4 --mpi=pmi2 -c 2 ./a : ./b", &["./a"]),
            ("srun --ntasks 4 ./a", &["./a"]),
            ("mpiexec -n", &[]),
        ] {
            let words = words(line);
            let found = LaunchArguments::read(&words[0], &words[1..]).programs;
            let found: Vec<_> = found.into_iter().map(|at| text(&words[1..][at]).into_owned()).collect();
            assert_eq!(found, programs, "{line}");
        }
    }
}
