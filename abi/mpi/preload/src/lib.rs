//! Starts an MPI program with Unisono's one-sided calls.
//!
//! The logic of `unisono mpi`: the preloaded libraries and their place in the cache ([`libraries`]), and what
//! can be found out about a program before it starts ([`elf`], the launcher's environment).
//!
//! The idea: handles differ between MPIs, but there are only three ABIs. So three bridges suffice, which are
//! compiled with this crate. One preload exports the names of the MPI calls. At the first call it finds out
//! which MPI the process has loaded, and opens that MPI's bridge and the core (`libunisono.so`, in the
//! directory of `unisono` or in the libraries of its prefix). The user need not say which MPI a program uses.
//!
//! Cost: one jump for each call; the first process writes 700 kB into a cache. When not to use it: with a
//! program that is linked to its MPI statically, whose calls cannot be overridden.
#![forbid(unsafe_code)]

pub mod libraries;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_linux::elf::{self, Linking};
use unisono_linux::programs::on_path;
use unisono_text::named;

named! {
    /// A family of MPIs that share an ABI.
    pub enum HostMpi {
        /// MPICH and the MPIs with its ABI.
        Mpich = "mpich",
        OpenMpi = "openmpi",
        /// The standard ABI of MPI 5.0, which several MPIs support.
        Standard = "standard",
    }
}

impl HostMpi {
    /// Returns the MPI to which a shared library of this file name belongs.
    pub fn of_library(name: &str) -> Option<Self> {
        let is = |stem: &str| name == stem || name.starts_with(&format!("{stem}."));
        if is("libmpi_abi.so") || is("libmpifort_abi.so") {
            return Some(Self::Standard);
        }
        if ["libmpich.so", "libmpichfort.so", "libmpichcxx.so", "libmpifort.so", "libmpicxx.so"]
            .into_iter()
            .any(is)
            || is("libmpi.so.12")
        {
            return Some(Self::Mpich);
        }
        let open = ["libmpi.so", "libmpi_mpifh.so", "libmpi_usempif08.so", "libmpi_cxx.so", "libopen-rte.so"];
        open.into_iter().any(is).then_some(Self::OpenMpi)
    }

    /// Returns the MPI whose launcher started this process, according to the launcher's environment
    /// variables.
    pub fn of_launcher(variable: impl Fn(&str) -> bool) -> Option<Self> {
        if variable("OMPI_COMM_WORLD_SIZE") {
            return Some(Self::OpenMpi);
        }
        (variable("PMI_RANK") || variable("PMI_SIZE") || variable("MPI_LOCALNRANKS")).then_some(Self::Mpich)
    }

    /// Returns the MPI that alone can connect this process with its other ranks: its own `mpiexec` started
    /// the process as one of several ranks. Slurm's `srun` and the like start ranks of either MPI. Of a
    /// launcher inside another one's job, the variables of both are set. The rule is that of
    /// `launchers_mpi()` in `abi/mpi/shim/launcher.c`.
    fn of_launcher_alone(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let several =
            |name| variable(name).and_then(|ranks| ranks.parse::<u32>().ok()).is_some_and(|ranks| ranks > 1);
        let any = |names: &[&str]| names.iter().any(|name| variable(name).is_some());
        if several("OMPI_COMM_WORLD_SIZE") && !any(&["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"]) {
            return Some(Self::OpenMpi);
        }
        // only Hydra, the mpiexec of MPICH and its relatives, sets MPI_LOCALNRANKS
        let by_hydra = several("PMI_SIZE") && any(&["MPI_LOCALNRANKS"]);
        (by_hydra && !any(&["OMPI_COMM_WORLD_SIZE", "PMIX_RANK"])).then_some(Self::Mpich)
    }
}

/// Why a program cannot start with the preload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{program}: no such program, here or on PATH")]
    NoProgram { program: String },
    /// The program is an MPI's launcher.
    #[error(
        "{launcher} starts programs and belongs first: write \
         '{launcher} -n N unisono mpi -- PROGRAM'"
    )]
    Launcher { launcher: String },
    /// The ranks were started by `unisono run`, so no MPI connects them.
    #[error(
        "'unisono run' starts programs without MPI: every rank of {program} would be alone; \
         write 'mpiexec -n {ranks} unisono mpi -- {program}'"
    )]
    Alone { program: String, ranks: usize },
    #[error("{mpicc}: no such compiler; give the mpicc of the program's MPI")]
    NoCompiler { mpicc: String },
    #[error("this build for {arch} has no preload: it is made for x86-64 and aarch64 with glibc only")]
    NoBridges { arch: &'static str },
    /// The core (`libunisono.so`) is missing.
    #[error(
        "{path} is missing. Install a package that has it ('pip install unisono-*.whl' or 'apt install \
         ./unisono_*.deb'; docs/install.md), or copy it there from target/release ('cargo build --release')"
    )]
    NoCore { path: PathBuf },
    #[error("{compiler} cannot compile a bridge: {message}")]
    NotBuilt { compiler: PathBuf, message: String },
    /// Reading or writing a file failed.
    #[error("cannot {what}: {source}")]
    Io {
        what: String,
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Whether the cause is something that this host lacks, as opposed to a wrong argument or a failure.
    pub fn is_of_host(&self) -> bool {
        matches!(
            self,
            Self::NoCompiler { .. } | Self::NoBridges { .. } | Self::NoCore { .. } | Self::NotBuilt { .. }
        )
    }
}

/// Refuses ranks that `unisono run` started: without an MPI's launcher the ranks cannot find each other.
/// Fails with [`Error::Alone`].
pub fn require_launcher(program: &str, variable: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
    let ranks = variable("UNISONO_SIZE").and_then(|size| size.parse().ok()).unwrap_or(1);
    if ranks > 1 && HostMpi::of_launcher(|name| variable(name).is_some()).is_none() {
        return Err(Error::Alone { program: program.to_owned(), ranks });
    }
    Ok(())
}

/// Returns the MPI that a program is linked to; `None` if the file cannot be read or is linked to no MPI.
pub fn linked_to(program: &str) -> Option<HostMpi> {
    let bytes = fs::read(find(program).ok()?).ok()?;
    elf::needed(&bytes).iter().find_map(|library| HostMpi::of_library(library))
}

/// Finds a program: by its path, or along `PATH`. Fails with [`Error::NoProgram`] or [`Error::Launcher`].
pub fn find(program: &str) -> Result<PathBuf, Error> {
    let path = Path::new(program);
    let missing = || Error::NoProgram { program: program.to_owned() };
    if is_launcher(program) {
        return Err(Error::Launcher { launcher: program.to_owned() });
    }
    if program.contains('/') {
        return if path.is_file() { Ok(path.to_owned()) } else { Err(missing()) };
    }
    on_path(program).ok_or_else(missing)
}

/// Whether a program has the name of an MPI launcher: `mpiexec` and others, also with a suffix such as
/// `.mpich`.
pub fn is_launcher(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.split('.').next().unwrap_or_default();
    ["mpiexec", "mpirun", "orterun", "prterun", "prun", "srun"].contains(&stem)
}

/// Returns the MPI whose shared library a program's file is linked to, if any, and how the program is linked.
/// [`Linking::Inside`] means that the MPI is linked statically into the program and cannot be replaced.
/// [`Linking::Static`] means a static program without MPI: a library cannot be preloaded into it, but
/// programs that it starts may be served. The preload decides in the running process which MPI it serves.
/// Fails with [`Error::Io`] if the program cannot be read.
pub fn linking_of(program: &Path) -> Result<(Option<HostMpi>, Linking), Error> {
    let bytes = fs::read(program).map_err(Error::io(format!("read {}", program.display())))?;
    let linked = elf::needed(&bytes).iter().find_map(|library| HostMpi::of_library(library));
    let linking = if linked.is_some() { Linking::Dynamic } else { elf::linking(&bytes, "MPI_Init") };
    Ok((linked, linking))
}

/// Returns the MPI whose launcher started this process, if that is another MPI than the program's, `mpi`. In
/// such a job each rank would take itself for the only rank. Returns `None` for the standard ABI, because the
/// library of any MPI may serve the program, and if it is not certain that the ranks cannot meet. The preload
/// checks programs that load their MPI later (`entry/entry.c`).
pub fn other_launcher(mpi: HostMpi) -> Option<HostMpi> {
    HostMpi::of_launcher_alone(|name| env::var(name).ok())
        .filter(|launcher| *launcher != mpi && mpi != HostMpi::Standard)
}

/// Returns the command that runs `program` with `library` preloaded. Libraries that are already in
/// `LD_PRELOAD` come first, so profiling tools that define `MPI_X` and call `PMPI_X` stand between the
/// program and the preload.
#[must_use]
pub fn command(program: &Path, library: &Path) -> Command {
    let mut preload = env::var_os("LD_PRELOAD").unwrap_or_default();
    if !preload.is_empty() {
        preload.push(":");
    }
    preload.push(library);
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", preload);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_tell_their_mpi() {
        assert_eq!(HostMpi::of_library("libmpich.so.12"), Some(HostMpi::Mpich));
        assert_eq!(HostMpi::of_library("libmpi.so.12"), Some(HostMpi::Mpich));
        assert_eq!(HostMpi::of_library("libmpichfort.so.12"), Some(HostMpi::Mpich));
        assert_eq!(HostMpi::of_library("libmpi.so.40"), Some(HostMpi::OpenMpi));
        assert_eq!(HostMpi::of_library("libmpi_usempif08.so.40"), Some(HostMpi::OpenMpi));
        assert_eq!(HostMpi::of_library("libmpi_abi.so.1"), Some(HostMpi::Standard));
        assert_eq!(HostMpi::of_library("libmpi_abi.so.0"), Some(HostMpi::Standard));
        assert_eq!(HostMpi::of_library("libm.so.6"), None);
        assert_eq!(HostMpi::of_library("libmpir.so.3"), None);
    }

    #[test]
    fn launchers_tell_their_mpi() {
        assert_eq!(HostMpi::of_launcher(|name| name == "OMPI_COMM_WORLD_SIZE"), Some(HostMpi::OpenMpi));
        assert_eq!(HostMpi::of_launcher(|name| name == "PMI_RANK"), Some(HostMpi::Mpich));
        assert_eq!(HostMpi::of_launcher(|_| false), None);
    }

    #[test]
    fn a_launcher_belongs_to_one_mpi_if_no_other_can_have_started_the_ranks() {
        let open_mpi = ("OMPI_COMM_WORLD_SIZE", "2");
        let hydra = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "1")];
        let nested: Vec<_> = hydra.into_iter().chain([open_mpi]).collect();
        for (variables, expected) in [
            (&[open_mpi, ("PMIX_RANK", "0")][..], Some(HostMpi::OpenMpi)),
            (&hydra, Some(HostMpi::Mpich)),
            (&nested[..], None),
            (&[("OMPI_COMM_WORLD_SIZE", "1")], None),
            (&[("PMI_SIZE", "1"), ("MPI_LOCALNRANKS", "1")], None),
            // srun by PMI-2 and by PMIx
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("SLURM_PROCID", "0")], None),
            (&[("PMIX_RANK", "0"), ("SLURM_PROCID", "0")], None),
            (&[], None),
        ] {
            let found = HostMpi::of_launcher_alone(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            });
            assert_eq!(found, expected, "{variables:?}");
        }
    }

    #[test]
    fn a_launcher_is_no_program_to_preload_into() {
        for name in ["mpiexec", "mpirun.openmpi", "/usr/bin/mpiexec.hydra", "srun"] {
            let error = find(name).expect_err("a launcher");
            assert!(error.to_string().starts_with(name), "{error}");
        }
        assert!(!is_launcher("mpirunner") && !is_launcher("/opt/mpiexec/solver"));
    }

    #[test]
    fn ranks_without_a_launcher_of_an_mpi_are_refused_unless_there_is_only_one() {
        let started = |variables: &'static [(&str, &str)]| {
            require_launcher("./solver", move |name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let error = started(&[("UNISONO_SIZE", "3"), ("UNISONO_RANK", "0")]).expect_err("each is alone");
        assert!(error.to_string().contains("'mpiexec -n 3 unisono mpi -- ./solver'"), "{error}");
        assert!(started(&[("UNISONO_SIZE", "1")]).is_ok());
        assert!(started(&[("UNISONO_SIZE", "3"), ("PMI_RANK", "0")]).is_ok());
        assert!(started(&[("UNISONO_SIZE", "3"), ("OMPI_COMM_WORLD_SIZE", "2")]).is_ok());
        assert!(started(&[]).is_ok());
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = find("unisono-no-such-program").expect_err("none");
        assert!(error.to_string().contains("unisono-no-such-program"));
        assert!(find("/nonexistent/program").is_err());
        assert!(find("sh").expect("on every system").is_absolute());
    }
}
