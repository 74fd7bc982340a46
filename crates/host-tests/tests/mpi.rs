//! Tests the MPI preload: the conformance programs run unmodified under `unisono mpi`, with each MPI.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use unisono_host_tests::mpi::{MPIS, PROGRAMS, TestedMpi, source, verdict};
use unisono_host_tests::processes::text;
use unisono_host_tests::program::{self, target};
use unisono_host_tests::{Skipped, TestOutcome, host_tests, is_long, require};

fn run(mut command: Command) -> Output {
    command.output().expect("mpiexec starts because it was found")
}

/// Which programs to run: the index of the first one, and the step to the next. In long tests all run.
type Cases = (usize, usize);

/// Runs programs, and fails with the output of those whose results are wrong.
fn all(mpi: TestedMpi, ranks: usize, options: &[&str], programs: Cases) -> TestOutcome {
    let mut failures = Vec::new();
    let (first, step) = if is_long() { (0, 1) } else { programs };
    for file in PROGRAMS.iter().skip(first).step_by(step) {
        let built = mpi.build(file)?;
        let name = file.split('.').next().expect("split has a first part because it always has");
        let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
        arguments.extend([OsStr::new("--"), built.as_os_str()]);
        if let Err(why) = verdict(name, &run(mpi.with_preload(ranks, &arguments))) {
            failures.push(why);
        }
    }
    assert!(failures.is_empty(), "{} on {ranks} ranks:\n{}", mpi.name(), failures.join("\n"));
    Ok(())
}

fn programs_run_on_mpich() -> TestOutcome {
    all(TestedMpi::Mpich, 2, &[], (0, 2))
}

fn programs_run_on_open_mpi() -> TestOutcome {
    all(TestedMpi::OpenMpi, 2, &[], (1, 2))
}

fn programs_run_over_messages_of_mpich() -> TestOutcome {
    all(TestedMpi::Mpich, 2, &["--messages"], (1, 2))
}

fn programs_run_over_messages_of_open_mpi() -> TestOutcome {
    all(TestedMpi::OpenMpi, 2, &["--messages"], (0, 2))
}

/// Three ranks: no power of two, and on a machine with two processors more ranks than processors.
fn programs_run_on_three_ranks() -> TestOutcome {
    all(TestedMpi::Mpich, 3, &[], (0, 6))?;
    all(TestedMpi::OpenMpi, 3, &[], (3, 6))
}

/// On most test machines these are twice as many ranks as processors; each holds locks that others wait for.
fn locks_in_opposite_orders_make_no_circle_on_four_ranks() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("crosswise.c")?;
        for option in [None, Some("--messages")] {
            let mut arguments: Vec<&OsStr> = option.into_iter().map(OsStr::new).collect();
            arguments.extend([OsStr::new("--"), built.as_os_str()]);
            verdict("crosswise", &run(mpi.with_preload(4, &arguments))).expect("the program agrees");
        }
    }
    Ok(())
}

/// Where the kernel refuses copies between processes, created and shared windows work by messages.
fn locks_keep_their_meaning_where_the_kernel_copies_nothing() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("shared_locks.c")?;
        let arguments = [OsStr::new("--"), built.as_os_str(), OsStr::new("no-copy")];
        verdict("shared_locks", &run(mpi.with_preload(2, &arguments))).expect("the program agrees");
    }
    Ok(())
}

/// The target of each operation is stopped until the operation's call has returned at the origin. The program
/// does not end if a call waits for the target.
fn operations_with_a_request_return_while_their_target_is_stopped() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("requests_overlap.c")?;
        for option in [None, Some("--messages")] {
            let mut arguments: Vec<&OsStr> = option.into_iter().map(OsStr::new).collect();
            arguments.extend([OsStr::new("--"), built.as_os_str()]);
            verdict("requests_overlap", &run(mpi.with_preload(2, &arguments))).expect("the program agrees");
        }
    }
    Ok(())
}

fn one_rank_is_enough() -> TestOutcome {
    for mpi in MPIS {
        for file in ["flavours.c", "edges.c", "locks.c", "crosswise.c", "fence.c", "requests_mixed.c"] {
            let built = mpi.build(file)?;
            let output = run(mpi.with_preload(1, &[OsStr::new("--"), built.as_os_str()]));
            let name = file.split('.').next().expect("split has a first part because it always has");
            verdict(name, &output).expect("the program agrees");
        }
    }
    Ok(())
}

fn empty_parts_are_as_on_the_mpi_alone() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("empty_parts.c")?;
        let parts = |mut command: Command| {
            let output = command.output().expect("mpiexec starts because it was found");
            verdict("empty_parts", &output).expect("the program agrees");
            let said = text(&output.stdout);
            said.lines().filter(|line| line.starts_with("part ")).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut alone = mpi.launcher(3);
        alone.arg(&built);
        let alone = parts(alone);
        assert!(alone.len() > 24, "{alone:?}");
        assert_eq!(
            parts(mpi.with_preload(3, &[OsStr::new("--"), built.as_os_str()])),
            alone,
            "{}",
            mpi.name()
        );
    }
    Ok(())
}

/// Returns the Python of a virtual environment with mpi4py's wheel, which is kept between runs.
pub(crate) fn python() -> Result<PathBuf, Skipped> {
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

/// Returns a directory to find MPICH in: the wheel looks for MPICH's library under the name that MPICH's own
/// builds have, and Debian's has another name.
fn libraries(mpi: TestedMpi) -> Result<Option<PathBuf>, Skipped> {
    if mpi == TestedMpi::OpenMpi {
        return Ok(None);
    }
    let output = Command::new("mpicc.mpich").arg("-show").output();
    let shown =
        output.map_err(|_| Skipped::because("mpicc.mpich does not run; apt-get install libmpich-dev"))?;
    let shown = text(&shown.stdout);
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

fn the_wheel_of_mpi4py_runs() -> TestOutcome {
    require::nightly("mpi")?;
    let script = source("python_windows.py");
    for mpi in MPIS {
        mpi.present("any.c")?;
        let python = python()?;
        let mut command = mpi.with_preload(2, &[OsStr::new("--"), python.as_os_str(), script.as_os_str()]);
        command.env("MPI4PY_MPIABI", mpi.name());
        if let Some(directory) = libraries(mpi)? {
            command.env("LD_LIBRARY_PATH", directory);
        }
        verdict("python_windows", &run(command)).expect("the script agrees");
    }
    Ok(())
}

fn statistics_are_printed_at_the_end() -> TestOutcome {
    let built = TestedMpi::Mpich.build("fence.c")?;
    let arguments = [OsStr::new("--stats"), OsStr::new("--"), built.as_os_str()];
    let output = run(TestedMpi::Mpich.with_preload(2, &arguments));
    let said = text(&output.stderr);
    assert_eq!(said.matches("windows of 2 ranks together").count(), 1, "one table for the job: {said}");
    // the table must say that ranks waited for each other, for some microseconds at least
    let waited = |line: &str| {
        line.contains(" epochs, waited ") && !line.contains("waited 0.0 us spinning, 0.0 us asleep")
    };
    assert!(said.lines().any(waited), "{said}");
    let built = TestedMpi::Mpich.build("barrier.c")?;
    let arguments = [OsStr::new("--stats"), OsStr::new("--"), built.as_os_str()];
    let output = run(TestedMpi::Mpich.with_preload(2, &arguments));
    let said = text(&output.stderr);
    assert!(said.lines().any(|line| line.starts_with("barriers (")), "{said}");
    Ok(())
}

/// The default error handler of windows ends the program. The message says which rank did what.
fn an_error_that_nobody_handles_is_named() -> TestOutcome {
    let built = TestedMpi::OpenMpi.build("unhandled.c")?;
    let output = run(TestedMpi::OpenMpi.with_preload(2, &[OsStr::new("--"), built.as_os_str()]));
    let said = text(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("unisono: rank 1: MPI_Put: "), "{said}");
    assert!(said.contains("outside the window"), "{said}");
    Ok(())
}

fn what_is_missing_is_said_with_its_exit_code() -> TestOutcome {
    let unisono = program::unisono();
    let said = |prepare: &dyn Fn(&mut Command)| {
        let mut command = Command::new(&unisono);
        command.arg("mpi").env_remove("PMI_RANK").env_remove("OMPI_COMM_WORLD_SIZE");
        prepare(&mut command);
        let output = command.output().expect("it starts");
        (output.status.code(), text(&output.stderr))
    };
    let (code, words) = said(&|command| {
        command.args(["--", "unisono-no-such-program"]);
    });
    assert!(code == Some(2) && words.contains("unisono-no-such-program"), "{code:?} {words}");
    // a program without MPI runs, because it may start a program that has an MPI
    let (code, words) = said(&|command| {
        command.args(["--", "/bin/true"]);
    });
    assert!(code == Some(0) && words.contains("true ended without MPI_Init"), "{code:?} {words}");
    let (code, words) = said(&|command| {
        command.args(["--mpicc", "unisono-no-such-mpicc", "--", "/bin/true"]);
    });
    assert!(code == Some(3) && words.contains("no such compiler"), "{code:?} {words}");
    Ok(())
}

host_tests![needs Nothing;
    programs_run_on_mpich within 300,
    programs_run_on_open_mpi within 300,
    programs_run_over_messages_of_mpich within 300,
    programs_run_over_messages_of_open_mpi within 300,
    programs_run_on_three_ranks within 300,
    locks_in_opposite_orders_make_no_circle_on_four_ranks within 200,
    locks_keep_their_meaning_where_the_kernel_copies_nothing within 120,
    operations_with_a_request_return_while_their_target_is_stopped within 200,
    one_rank_is_enough within 300,
    empty_parts_are_as_on_the_mpi_alone within 120,
    the_wheel_of_mpi4py_runs within 300,
    statistics_are_printed_at_the_end within 120,
    an_error_that_nobody_handles_is_named within 120,
    what_is_missing_is_said_with_its_exit_code within 120,
];
