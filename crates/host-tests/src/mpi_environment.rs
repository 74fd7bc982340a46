//! MPIs from PyPI, each in a virtual environment of its own.

use crate::{Skipped, pypi};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An MPI in a virtual environment, together with mpi4py's wheel.
pub struct MpiEnvironment {
    directory: PathBuf,
}

impl MpiEnvironment {
    /// Installs the packages, unless an earlier run has done so.
    ///
    /// # Errors
    /// [`Skipped`] without Python, or if the registry cannot be reached.
    pub fn install(packages: &[&str]) -> Result<Self, Skipped> {
        let place = Path::new("mpi-programs/pypi").join(packages.join("+").replace("==", "-"));
        let all: Vec<&str> = ["mpi4py"].into_iter().chain(packages.iter().copied()).collect();
        Ok(Self { directory: pypi::environment(&place.to_string_lossy(), "python3", &all)? })
    }

    #[must_use]
    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.directory.join(below)
    }

    /// Returns the command `mpiexec -n ranks` of this MPI, to which the caller appends a program.
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
