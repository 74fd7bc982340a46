//! The MPI preload: the conformance programs, unmodified, on `unisono mpi`, with each MPI.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use unisono_host_tests::mpi::{Mpi, target, verdict};
use unisono_host_tests::{Outcome, Skipped, host_tests, one_in, program, require};

/// All of them run on two ranks of each MPI; elsewhere one in a few, or all in long tests.
const PROGRAMS: &[&str] = &[
    "flavours.c",
    "operations.c",
    "operators.c",
    "requests.c",
    "requests_freed.c",
    "requests_mixed.c",
    "fence.c",
    "pscw.c",
    "locks.c",
    "crosswise.c",
    "datatypes.c",
    "long_double.c",
    "attributes.c",
    "callbacks.c",
    "errors.c",
    "misuse.c",
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
];

fn source(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../abi/mpi/tests/programs")).join(file)
}

/// `mpiexec -n ranks unisono mpi ARGUMENTS`.
fn on_preload(mpi: Mpi, ranks: usize, arguments: &[&OsStr]) -> Command {
    let mut command = mpi.launcher(ranks);
    command.arg(program::unisono()).arg("mpi").args(arguments);
    command
}

fn run(mut command: Command) -> Output {
    command.output().expect("mpiexec starts because it was found")
}

/// Runs every program and fails with the words of those that disagree.
fn all(mpi: Mpi, ranks: usize, options: &[&str], step: usize) -> Outcome {
    let mut failures = Vec::new();
    for file in PROGRAMS.iter().step_by(step) {
        let built = mpi.build(&source(file))?;
        let name = file.split('.').next().expect("split has a first part because it always has");
        let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        arguments.extend([OsStr::new("--"), built.as_os_str()]);
        if let Err(why) = verdict(name, &run(on_preload(mpi, ranks, &arguments))) {
            failures.push(why);
        }
    }
    assert!(failures.is_empty(), "{} on {ranks} ranks:\n{}", mpi.name(), failures.join("\n"));
    Ok(())
}

fn every_program_runs_on_mpich() -> Outcome {
    all(Mpi::Mpich, 2, &[], 1)
}

fn every_program_runs_on_open_mpi() -> Outcome {
    all(Mpi::OpenMpi, 2, &[], 1)
}

fn every_program_runs_over_messages_of_mpich() -> Outcome {
    all(Mpi::Mpich, 2, &["--messages"], one_in(2))
}

fn every_program_runs_over_messages_of_open_mpi() -> Outcome {
    all(Mpi::OpenMpi, 2, &["--messages"], one_in(2))
}

/// Ranks that outnumber processors, in groups that are not powers of two.
fn every_program_runs_on_three_ranks() -> Outcome {
    all(Mpi::Mpich, 3, &[], one_in(3))?;
    all(Mpi::OpenMpi, 3, &[], one_in(3))
}

/// The memory of a shared window is one piece at all ranks, or there is no window.
fn a_file_that_was_put_in_place_of_a_windows_is_not_mapped() -> Outcome {
    for mpi in [Mpi::Mpich, Mpi::OpenMpi] {
        let built = mpi.build(&source("swapped.c"))?;
        let output = run(on_preload(mpi, 3, &[OsStr::new("--"), built.as_os_str()]));
        verdict("swapped", &output).expect("no rank has the other file");
    }
    Ok(())
}

/// Twice as many ranks as processors on most machines that test this, each with locks that others want.
fn locks_in_opposite_orders_make_no_circle_on_four_ranks() -> Outcome {
    for mpi in [Mpi::Mpich, Mpi::OpenMpi] {
        let built = mpi.build(&source("crosswise.c"))?;
        for option in [None, Some("--messages")] {
            let mut arguments: Vec<&OsStr> = option.into_iter().map(OsStr::new).collect();
            arguments.extend([OsStr::new("--"), built.as_os_str()]);
            verdict("crosswise", &run(on_preload(mpi, 4, &arguments))).expect("the program agrees");
        }
    }
    Ok(())
}

fn one_rank_is_enough() -> Outcome {
    for mpi in [Mpi::Mpich, Mpi::OpenMpi] {
        for file in ["flavours.c", "edges.c", "locks.c", "crosswise.c", "fence.c", "requests_mixed.c"] {
            let built = mpi.build(&source(file))?;
            let output = run(on_preload(mpi, 1, &[OsStr::new("--"), built.as_os_str()]));
            let name = file.split('.').next().expect("split has a first part because it always has");
            verdict(name, &output).expect("the program agrees");
        }
    }
    Ok(())
}

/// A virtual environment with mpi4py's wheel, kept between runs.
fn python() -> Result<PathBuf, Skipped> {
    require::program("python3", "apt-get install python3-venv")?;
    let environment = target().join("mpi-programs/python");
    let python = environment.join("bin/python");
    let imports = |python: &Path| {
        let mut check = Command::new(python);
        check.args(["-c", "import mpi4py"]).stderr(Stdio::null());
        check.status().is_ok_and(|status| status.success())
    };
    if imports(&python) {
        return Ok(python);
    }
    let succeeds =
        |command: &mut Command| command.stdin(Stdio::null()).output().is_ok_and(|done| done.status.success());
    if !succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment)) {
        return Err(Skipped::because("python3 makes no virtual environment; apt-get install python3-venv"));
    }
    let install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "mpi4py"];
    if !succeeds(Command::new(&python).args(install)) || !imports(&python) {
        return Err(Skipped::because("pip cannot install mpi4py's wheel; is there a network?"));
    }
    Ok(python)
}

/// The wheel wants MPICH under the name that its own builds have; Debian has another.
fn libraries(mpi: Mpi) -> Result<Option<PathBuf>, Skipped> {
    if mpi == Mpi::OpenMpi {
        return Ok(None);
    }
    let output = Command::new("mpicc.mpich").arg("-show").output();
    let shown =
        output.map_err(|_| Skipped::because("mpicc.mpich does not run; apt-get install libmpich-dev"))?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let library = shown
        .split_whitespace()
        .filter_map(|flag| flag.strip_prefix("-L"))
        .map(|directory| Path::new(directory).join("libmpich.so.12"))
        .find(|library| library.exists())
        .ok_or_else(|| Skipped::because("no libmpich.so.12 where mpicc.mpich links"))?;
    let directory = target().join("mpi-programs/libraries");
    fs::create_dir_all(&directory).expect("a directory");
    let link = directory.join("libmpi.so.12");
    if !link.exists() {
        std::os::unix::fs::symlink(library, &link).expect("a link");
    }
    Ok(Some(directory))
}

fn the_wheel_of_mpi4py_runs() -> Outcome {
    let script = source("python_windows.py");
    for mpi in [Mpi::Mpich, Mpi::OpenMpi] {
        mpi.present(Path::new("any.c"))?;
        let python = python()?;
        let mut command = on_preload(mpi, 2, &[OsStr::new("--"), python.as_os_str(), script.as_os_str()]);
        command.env("MPI4PY_MPIABI", mpi.name());
        if let Some(directory) = libraries(mpi)? {
            command.env("LD_LIBRARY_PATH", directory);
        }
        verdict("python_windows", &run(command)).expect("the script agrees");
    }
    Ok(())
}

fn statistics_are_printed_at_the_end() -> Outcome {
    let built = Mpi::Mpich.build(&source("fence.c"))?;
    let arguments = [OsStr::new("--stats"), OsStr::new("--"), built.as_os_str()];
    let output = run(on_preload(Mpi::Mpich, 2, &arguments));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("windows of 2 ranks together").count(), 1, "one table for the job: {said}");
    // two ranks wait for each other for some microseconds at least, and say so
    let waited = |line: &str| {
        line.contains(" epochs, waited ") && !line.contains("waited 0.0 us awake and 0.0 us asleep")
    };
    assert!(said.lines().any(waited), "{said}");
    let built = Mpi::Mpich.build(&source("barrier.c"))?;
    let arguments = [OsStr::new("--stats"), OsStr::new("--"), built.as_os_str()];
    let output = run(on_preload(Mpi::Mpich, 2, &arguments));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().any(|line| line.starts_with("barriers (")), "{said}");
    Ok(())
}

/// The handler that windows have at first ends the program; the words say who did what.
fn an_error_that_nobody_handles_is_named() -> Outcome {
    let built = Mpi::OpenMpi.build(&source("unhandled.c"))?;
    let output = run(on_preload(Mpi::OpenMpi, 2, &[OsStr::new("--"), built.as_os_str()]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("unisono: rank 1: MPI_Put: "), "{said}");
    assert!(said.contains("outside the window"), "{said}");
    Ok(())
}

fn what_is_missing_is_said_with_its_exit_code() -> Outcome {
    let unisono = program::unisono();
    let said = |prepare: &dyn Fn(&mut Command)| {
        let mut command = Command::new(&unisono);
        command.arg("mpi").env_remove("PMI_RANK").env_remove("OMPI_COMM_WORLD_SIZE");
        prepare(&mut command);
        let output = command.output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, words) = said(&|command| {
        command.args(["--", "unisono-no-such-program"]);
    });
    assert!(code == Some(2) && words.contains("unisono-no-such-program"), "{code:?} {words}");
    let (code, words) = said(&|command| {
        command.args(["--", "/bin/true"]);
    });
    assert!(code == Some(2) && words.contains("mpiexec"), "{code:?} {words}");
    let (code, words) = said(&|command| {
        command.args(["--mpi", "mpich", "--", "/bin/true"]).env("PATH", "/nonexistent");
    });
    assert!(code == Some(3) && words.contains("libmpich-dev"), "{code:?} {words}");
    Ok(())
}

host_tests![
    every_program_runs_on_mpich within 300,
    every_program_runs_on_open_mpi within 300,
    every_program_runs_over_messages_of_mpich within 300,
    every_program_runs_over_messages_of_open_mpi within 300,
    every_program_runs_on_three_ranks within 300,
    locks_in_opposite_orders_make_no_circle_on_four_ranks within 200,
    a_file_that_was_put_in_place_of_a_windows_is_not_mapped within 120,
    one_rank_is_enough within 300,
    the_wheel_of_mpi4py_runs within 300,
    statistics_are_printed_at_the_end within 120,
    an_error_that_nobody_handles_is_named within 120,
    what_is_missing_is_said_with_its_exit_code within 120,
];
