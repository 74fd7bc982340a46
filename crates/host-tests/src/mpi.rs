//! The MPIs of this machine, and programs compiled with them.

use crate::processes::words;
use crate::program::{self, target, workspace};
use crate::{Skipped, TestOutcome, require};
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// An MPI implementation. Debian can install several side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestedMpi {
    Mpich,
    OpenMpi,
}

pub const MPIS: [TestedMpi; 2] = [TestedMpi::Mpich, TestedMpi::OpenMpi];

/// The conformance programs. Each runs on two ranks of each MPI: on one MPI with shared memory, on the other
/// with messages. In long tests it runs in both ways on both MPIs.
pub const PROGRAMS: &[&str] = &[
    "flavours.c",
    "operations.c",
    "operators.c",
    "requests.c",
    "requests_freed.c",
    "requests_mixed.c",
    "fence.c",
    "pscw.c",
    "locks.c",
    "lock_epochs.c",
    "shared_locks.c",
    "crosswise.c",
    "datatypes.c",
    "long_double.c",
    "attributes.c",
    "callbacks.c",
    "errors.c",
    "misuse.c",
    "queries.c",
    "kinds.c",
    "edges.c",
    "counted.c",
    "profiled.c",
    "finalized.c",
    "sessions.c",
    "progress.c",
    "large_count.c",
    "barrier.c",
    "hosts.c",
    "threads.c",
    "cxx.cpp",
    "fortran_module.f90",
    "fortran_77.f",
    "fortran_2008.f90",
    "random_windows.c",
];

/// Returns the path of a test program's source.
#[must_use]
pub fn source(file: &str) -> PathBuf {
    workspace().join("abi/mpi/tests/programs").join(file)
}

impl TestedMpi {
    /// Returns the suffix of Debian's names for this MPI's programs, as in `mpiexec.mpich`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TestedMpi::Mpich => "mpich",
            TestedMpi::OpenMpi => "openmpi",
        }
    }

    /// # Errors
    /// [`Skipped`] without this MPI's launcher, or without its compiler for sources with this file name.
    pub fn present(self, file: &str) -> TestOutcome {
        let packages = match self {
            TestedMpi::Mpich => "apt-get install mpich libmpich-dev gfortran",
            TestedMpi::OpenMpi => "apt-get install openmpi-bin libopenmpi-dev gfortran",
        };
        require::program(&format!("mpiexec.{}", self.name()), packages)?;
        require::program(&self.compiler(file), packages)
    }

    fn compiler(self, file: &str) -> String {
        let driver = match Path::new(file).extension().and_then(|extension| extension.to_str()) {
            Some("c") => "mpicc",
            Some("cpp") => "mpicxx",
            _ => "mpifort",
        };
        format!("{driver}.{}", self.name())
    }

    /// Compiles a test program, unless the same text was compiled before, and returns its path.
    ///
    /// # Errors
    /// [`Skipped`] without this MPI.
    ///
    /// # Panics
    /// If the program does not compile.
    pub fn build(self, file: &str) -> Result<PathBuf, Skipped> {
        self.present(file)?;
        let source = source(file);
        let mut hasher = DefaultHasher::new();
        let headers = source.with_file_name("check.h");
        for file in [&source, &headers] {
            fs::read(file).unwrap_or_default().hash(&mut hasher);
        }
        let stem = source.file_stem().expect("a source has a name because it is listed").to_string_lossy();
        let directory = target().join("mpi-programs").join(self.name());
        let program = directory.join(format!("{stem}-{:016x}", hasher.finish()));
        if program.exists() {
            return Ok(program);
        }
        // the Fortran compiler writes modules into the current directory
        let scratch = directory.join(format!("{stem}-{}.part", std::process::id()));
        fs::create_dir_all(&scratch).expect("a directory for programs");
        let output = Command::new(self.compiler(file))
            .args(["-O1", "-w", "-o", "program"])
            .arg(&source)
            .current_dir(&scratch)
            .output()
            .expect("the compiler starts because it was found");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(scratch.join("program"), &program).expect("the program in its place");
        fs::remove_dir_all(&scratch).expect("the scratch directory goes");
        Ok(program)
    }

    /// Returns the command `mpiexec -n ranks`, to which the caller appends a program. There may be more ranks
    /// than processors.
    #[must_use]
    pub fn launcher(self, ranks: usize) -> Command {
        let mut command = Command::new(format!("mpiexec.{}", self.name()));
        if self == TestedMpi::OpenMpi {
            command
                .arg("--oversubscribe")
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .env("OMPI_MCA_mpi_yield_when_idle", "1")
                // a search for networks by libfabric makes the start slower, and no test has such a network
                .env("OMPI_MCA_pml", "^cm")
                .env("OMPI_MCA_orte_tmpdir_base", session_directory());
        }
        command.args(["-n", &ranks.to_string()]).stdin(Stdio::null());
        command
    }

    /// Returns the command `mpiexec -n RANKS unisono mpi ARGUMENTS`.
    #[must_use]
    pub fn with_preload(self, ranks: usize, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.launcher(ranks);
        command.arg(program::unisono()).arg("mpi").args(arguments);
        command
    }
}

/// Returns a directory for the sessions of Open MPI that this process starts. If jobs of one user begin and
/// end at the same time in one directory, some of them fail, because one job removes the user's directory
/// while another makes it.
fn session_directory() -> PathBuf {
    let directory = target().join("mpi-programs").join(format!("session-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory for sessions");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).expect("our own directory");
    directory
}

/// Checks the output of a conformance program: `Ok` if the program printed its `ok` line and exited with code
/// 0.
///
/// # Errors
/// The whole output.
pub fn verdict(name: &str, output: &Output) -> Result<(), String> {
    let said = words(output);
    if output.status.success() && said.lines().any(|line| line == format!("ok {name}")) {
        return Ok(());
    }
    Err(format!("{name} ({}):\n{said}", output.status))
}

/// Returns the lines below a window's name in the table of `unisono mpi --stats`: a line for each kind of
/// operation and of synchronization.
#[must_use]
pub fn below<'a>(said: &'a str, window: &str) -> Vec<&'a str> {
    let mut lines = said.lines().skip_while(|line| line.split(" (").next() != Some(window)).skip(1);
    std::iter::from_fn(|| lines.next().filter(|line| line.starts_with("  "))).collect()
}

/// Returns the numbers in a line of the table, separated by single spaces.
#[must_use]
pub fn numbers(lines: &[&str], kind: &str) -> String {
    let line = lines.iter().find(|line| line.split_whitespace().next() == Some(kind)).unwrap_or(&"");
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}
