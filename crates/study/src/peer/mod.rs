//! The programs that are measured beside one another: Unisono's barriers, barriers of other projects, and
//! compute kernels.
//!
//! Peers in C and C++ are part of this crate as source, and are built on the user's machine with the
//! compilers found there (`compiler`). A peer that cannot be built is reported with the reason and the
//! remedy. All programs except exchanges, streams and servers have the same flags ([`Options`]) and write the
//! same [`Measurement`], so a study treats them alike:
//!
//! ```text
//!   PeerBench::prepare(cache, ...) -> PeerBench { programs: [PeerFile], unavailable: [Unavailable] }
//!   program.command(&options)      -> std::process::Command, to be run alone, in pairs or as gangs
//!   program.measure(&options)      -> Measurement, run alone and waited for
//! ```
//! Cost: the first preparation compiles for some seconds; later ones read `--version` of each compiler.

pub mod catalogue;
pub(crate) mod compiler;

pub use compiler::PeerBuilds;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::parent_death::end_with_starter;
use unisono_linux::private_directory::PrivateDirectory;
use unisono_text::nearest;
use unisono_workload::{Measurement, Options};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// BARRIER over some implementation of a barrier.
    Barrier,
    /// A parallel computation with a result.
    Kernel,
    /// A stream of requests, each a parallel computation.
    Requests,
    /// The exchange of ghost areas, started by an MPI's `mpiexec`; it has flags of its own.
    Exchange,
    /// A stream of events over some middleware; it has flags of its own.
    Stream,
    /// A web server; it has arguments of its own.
    Server,
}

/// A program that this host can run.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerFile {
    /// For example `libgomp-passive`.
    pub name: String,
    pub kind: PeerKind,
    /// For example `gcc (Debian 12.2.0) 12.2.0`.
    pub version: String,
    executable: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// A program that this host cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    pub name: String,
    pub kind: PeerKind,
    /// For example `clang not found`.
    pub reason: String,
    /// The command to type, for example `apt install clang libomp-dev`.
    pub remedy: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("there is no program {name:?}; {hint}known are: {known}")]
    Unknown {
        name: String,
        /// The known name that was probably meant, as a question; may be empty.
        hint: String,
        known: String,
    },
    #[error("{name} cannot be run here: {reason}; {remedy}")]
    Unavailable { name: String, reason: String, remedy: String },
    #[error("cannot {what}: {source}")]
    Io {
        /// The failed action, with the path.
        what: String,
        source: io::Error,
    },
    #[error("{name} failed ({status}): {last_line}")]
    Failed {
        name: String,
        /// Exit code or signal.
        status: String,
        /// The end of its standard error.
        last_line: String,
    },
    #[error("{name} was killed: it ran for {waited:?} instead of {expected:?}")]
    Hung { name: String, waited: Duration, expected: Duration },
    #[error("{name} wrote a result that cannot be read: {source}")]
    Result { name: String, source: serde_json::Error },
}

#[derive(Clone, Debug, Default)]
pub struct PeerBench {
    pub programs: Vec<PeerFile>,
    /// Programs that this host cannot run, with the reason and the remedy.
    pub unavailable: Vec<Unavailable>,
}

impl PeerBench {
    /// Builds the programs that `wanted` selects and this host can build, in `cache` (see [`default_cache`]).
    /// `unisono` is usually `std::env::current_exe()`; `progress` gets a line for each program that is
    /// compiled.
    pub fn prepare(
        cache: &Path,
        builds: PeerBuilds,
        unisono: &Path,
        progress: &mut dyn FnMut(&str),
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, Error> {
        let mut bench = Self::default();
        bench.programs.extend(catalogue::own(unisono).into_iter().filter(|program| wanted(&program.name)));
        let mut toolbox = compiler::Toolbox::new(cache, builds);
        for peer in catalogue::peers().filter(|peer| wanted(peer.name)) {
            match toolbox.build(peer, progress)? {
                Ok(built) => bench.programs.push(PeerFile {
                    name: peer.name.to_owned(),
                    kind: peer.kind,
                    version: built.version,
                    executable: built.executable,
                    arguments: Vec::new(),
                    environment: peer
                        .environment
                        .iter()
                        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                        .collect(),
                }),
                Err(why) => bench.unavailable.push(Unavailable {
                    name: peer.name.to_owned(),
                    kind: peer.kind,
                    reason: why.reason,
                    remedy: why.remedy,
                }),
            }
        }
        Ok(bench)
    }

    pub fn program(&self, name: &str) -> Result<&PeerFile, Error> {
        let canonical = catalogue::canonical(name);
        if let Some(program) = self.programs.iter().find(|program| program.name == canonical) {
            return Ok(program);
        }
        if let Some(why) = self.unavailable.iter().find(|missing| missing.name == canonical) {
            let Unavailable { name, reason, remedy, .. } = why.clone();
            return Err(Error::Unavailable { name, reason, remedy });
        }
        let known: Vec<&str> = catalogue::names().collect();
        let hint = nearest(name, known.iter().copied());
        let hint = hint.map_or(String::new(), |meant| format!("did you mean {meant}? "));
        Err(Error::Unknown { name: name.to_owned(), hint, known: known.join(", ") })
    }
}

impl PeerFile {
    /// Makes the program BARRIER over Unisono's own barriers: `algorithm` and `wait` as on the command line.
    pub fn unisono(executable: &Path, algorithm: &str, wait: &str, spin_budget: Option<Duration>) -> Self {
        let mut arguments: Vec<String> =
            ["barrier", "--json", "--algorithm", algorithm, "--wait", wait].map(str::to_owned).into();
        if let Some(budget) = spin_budget {
            arguments.extend(["--spin-budget".to_owned(), format!("{}ns", budget.as_nanos())]);
        }
        let name = format!("unisono:{algorithm}:{wait}");
        Self::own(executable, &name, PeerKind::Barrier, arguments)
    }

    pub fn executable(&self) -> &Path {
        &self.executable
    }

    /// Returns a program that is part of `executable`.
    pub fn own(executable: &Path, name: &str, kind: PeerKind, arguments: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            version: format!("unisono {}", env!("CARGO_PKG_VERSION")),
            executable: executable.to_owned(),
            arguments,
            environment: Vec::new(),
        }
    }

    /// Returns the same program with additional arguments of its own: `--wait spin`, `--burst 8`.
    pub fn with<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut program = self.clone();
        program.arguments.extend(arguments.into_iter().map(str::to_owned));
        program
    }

    /// Returns the command to run the program without common options, for programs with flags of their own.
    pub fn plain_command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(&self.arguments);
        command
    }

    /// Returns the command to run the program with these options, without the user's settings of OpenMP
    /// runtimes.
    pub fn command(&self, options: &Options) -> Command {
        let mut command = self.plain_command();
        command.args(options.to_arguments());
        for variable in catalogue::OPENMP_VARIABLES {
            command.env_remove(variable);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Adds environment variables; they override the program's own variables.
    #[must_use]
    pub(crate) fn with_variables(mut self, variables: &BTreeMap<String, String>) -> Self {
        self.environment.extend(variables.iter().map(|(name, value)| (name.clone(), value.clone())));
        self
    }

    /// Runs the program alone and waits for its result. The program is killed when the calling thread ends.
    pub fn measure(&self, options: &Options) -> Result<Measurement, Error> {
        let options = Options { result: None, die_with_parent: true, ..options.clone() };
        let expected = options.warm_up + Duration::from_secs_f64(options.seconds);
        let output = run_and_wait(&self.name, self.command(&options), expected)?;
        self.read(&output)
    }

    /// Parses the program's result, from standard output or the file `--result`.
    pub fn read(&self, text: &str) -> Result<Measurement, Error> {
        serde_json::from_str(text).map_err(|source| Error::Result { name: self.name.clone(), source })
    }
}

/// Returns the directory of built peers. Peers are executed from there, so only this user may write to it.
pub fn default_cache() -> Result<PathBuf, Error> {
    PrivateDirectory::cache("peers", |_| Ok(()))
        .map(|directory| directory.path().to_owned())
        .map_err(|source| Error::Io { what: "keep compiled programs".to_owned(), source })
}

fn run_and_wait(name: &str, mut command: Command, expected: Duration) -> Result<String, Error> {
    let timeout = expected * 4 + Duration::from_secs(30);
    let failed = |what: String| move |source| Error::Io { what, source };
    // requested before the program runs: if the program requested it itself, its parent might have been
    // killed already
    end_with_starter(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed(format!("start {}", command.get_program().display())))?;
    // a result is a few kilobytes and fits the pipes, so the child can end before this process reads
    let start = Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed(format!("wait for {name}")))? {
            Some(status) => break status,
            None if start.elapsed() > timeout => {
                child.kill().map_err(failed(format!("kill {name}")))?;
                child.wait().map_err(failed(format!("wait for {name}")))?;
                return Err(Error::Hung { name: name.to_owned(), waited: start.elapsed(), expected });
            }
            None if start.elapsed() < expected => {
                std::thread::sleep((expected - start.elapsed()).min(Duration::from_secs(1)));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let read = |pipe: Option<&mut dyn Read>| {
        let mut text = String::new();
        let result = pipe.map_or(Ok(0), |pipe| pipe.read_to_string(&mut text));
        result.map(|_| text)
    };
    let stderr = read(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
    let output = read(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read))
        .map_err(failed(format!("read the output of {name}")))?;
    if !status.success() {
        let stderr = stderr.unwrap_or_default();
        let last_line = stderr.trim().lines().last().unwrap_or("it said nothing").to_owned();
        return Err(Error::Failed { name: name.to_owned(), status: status.to_string(), last_line });
    }
    Ok(output)
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::Io { what: format!("write {}", path.display()), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_program_is_answered_with_the_nearest_and_all() {
        let message = PeerBench::default().program("libgmp").expect_err("unknown").to_string();
        assert!(message.contains("did you mean libgomp?") && message.contains("pthread"), "{message}");
    }
}
