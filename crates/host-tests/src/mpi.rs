//! The MPIs of this machine, and programs compiled with them.

use crate::{Outcome, Skipped, require};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fs};

/// An MPI implementation, as Debian installs several side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    Mpich,
    OpenMpi,
}

impl Mpi {
    /// The suffix of its programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mpi::Mpich => "mpich",
            Mpi::OpenMpi => "openmpi",
        }
    }

    /// Whether it is here, with the compiler for this kind of source.
    ///
    /// # Errors
    /// [`Skipped`] when it is not.
    pub fn present(self, source: &Path) -> Outcome {
        let packages = match self {
            Mpi::Mpich => "apt-get install mpich libmpich-dev gfortran",
            Mpi::OpenMpi => "apt-get install openmpi-bin libopenmpi-dev gfortran",
        };
        require::program(&format!("mpiexec.{}", self.name()), packages)?;
        require::program(&self.compiler(source), packages)
    }

    fn compiler(self, source: &Path) -> String {
        let driver = match source.extension().and_then(|extension| extension.to_str()) {
            Some("c") => "mpicc",
            Some("cpp") => "mpicxx",
            _ => "mpifort",
        };
        format!("{driver}.{}", self.name())
    }

    /// Compiles a source file (or finds it compiled, from the same text) and answers the program.
    ///
    /// # Errors
    /// [`Skipped`] without this MPI.
    ///
    /// # Panics
    /// When the compiler refuses the program.
    pub fn build(self, source: &Path) -> Result<PathBuf, Skipped> {
        self.present(source)?;
        let mut hasher = DefaultHasher::new();
        let headers = source.with_file_name("check.h");
        for file in [source, &headers] {
            fs::read(file).unwrap_or_default().hash(&mut hasher);
        }
        let stem = source.file_stem().expect("a source has a name because it is listed").to_string_lossy();
        let directory = target().join("mpi-programs").join(self.name());
        let program = directory.join(format!("{stem}-{:016x}", hasher.finish()));
        if program.exists() {
            return Ok(program);
        }
        // modules of Fortran are written into the current directory
        let scratch = directory.join(format!("{stem}-{}.part", std::process::id()));
        fs::create_dir_all(&scratch).expect("a directory for programs");
        let output = Command::new(self.compiler(source))
            .args(["-O1", "-w", "-o", "program"])
            .arg(source)
            .current_dir(&scratch)
            .output()
            .expect("the compiler starts because it was found");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(scratch.join("program"), &program).expect("the program in its place");
        fs::remove_dir_all(&scratch).expect("the scratch directory goes");
        Ok(program)
    }

    /// `mpiexec -n ranks`, ready to be told what to start. Ranks may outnumber processors.
    #[must_use]
    pub fn launcher(self, ranks: usize) -> Command {
        let mut command = Command::new(format!("mpiexec.{}", self.name()));
        if self == Mpi::OpenMpi {
            command
                .arg("--oversubscribe")
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
                .env("OMPI_MCA_mpi_yield_when_idle", "1");
        }
        command.args(["-n", &ranks.to_string()]).stdin(Stdio::null());
        command
    }
}

/// Where programs and virtual environments are kept between runs.
#[must_use]
pub fn target() -> PathBuf {
    let workspace = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}

/// What a conformance program said: `Ok` when it printed its `ok` line and ended with 0.
///
/// # Errors
/// Everything it printed.
pub fn verdict(name: &str, output: &Output) -> Result<(), String> {
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && printed.lines().any(|line| line == format!("ok {name}")) {
        return Ok(());
    }
    Err(format!(
        "{name} ({}):\n{printed}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// The lines below a window's name in the table of `unisono mpi --stats`: one for each kind of operation and
/// of synchronization.
#[must_use]
pub fn below<'a>(said: &'a str, window: &str) -> Vec<&'a str> {
    let mut lines = said.lines().skip_while(|line| line.split(" (").next() != Some(window)).skip(1);
    std::iter::from_fn(|| lines.next().filter(|line| line.starts_with("  "))).collect()
}

/// What a line of the table says, with single spaces.
#[must_use]
pub fn numbers(lines: &[&str], kind: &str) -> String {
    let line = lines.iter().find(|line| line.split_whitespace().next() == Some(kind)).unwrap_or(&"");
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}
