//! MPIs from PyPI, each in a directory of its own.

use crate::processes::text;
use crate::program::target;
use crate::{Skipped, require};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An MPI in a virtual environment, together with mpi4py's wheel.
pub struct MpiEnvironment {
    directory: PathBuf,
}

impl MpiEnvironment {
    /// Installs the packages, unless that was done before.
    ///
    /// # Errors
    /// [`Skipped`] without Python, or if the registry cannot be reached.
    pub fn install(packages: &[&str]) -> Result<Self, Skipped> {
        require::program("python3", "apt-get install python3-venv")?;
        let name = packages.join("+").replace("==", "-");
        let directory = target().join("mpi-programs/pypi").join(name);
        let ready = directory.join("ready");
        if ready.exists() {
            return Ok(Self { directory });
        }
        let succeeds = |command: &mut Command| {
            command.stdin(Stdio::null()).output().map_err(|error| error.to_string()).and_then(|done| {
                if done.status.success() { Ok(()) } else { Err(text(&done.stderr).trim().to_owned()) }
            })
        };
        succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&directory)).map_err(|_| {
            Skipped::because("python3 makes no virtual environment; apt-get install python3-venv")
        })?;
        let install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "mpi4py"];
        succeeds(Command::new(directory.join("bin/python")).args(install).args(packages)).map_err(
            |error| {
                let last = error.lines().last().unwrap_or("no reason given").to_owned();
                Skipped::because(format!("pip cannot install {}: {last}", packages.join(" ")))
            },
        )?;
        std::fs::write(&ready, b"").expect("the directory is ours");
        Ok(Self { directory })
    }

    #[must_use]
    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.directory.join(below)
    }

    /// `mpiexec -n ranks` of this MPI; the caller appends a program.
    #[must_use]
    pub fn launcher(&self, ranks: usize) -> Command {
        let mut command = Command::new(self.path("bin/mpiexec"));
        if self.path("bin/ompi_info").exists() {
            command.arg("--oversubscribe").env("OMPI_MCA_mpi_yield_when_idle", "1");
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
                command.env(name, "1").env(format!("{name}_CONFIRM"), "1");
            }
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(self.path("bin")).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(path).expect("paths of PATH hold no colon"));
        command.args(["-n", &ranks.to_string()]).stdin(Stdio::null());
        command
    }
}
