//! Tests jobs whose ranks were not all started in the same way: they end with one line, and with `--partly`
//! the communicators of served ranks are served.

use std::path::Path;
use std::process::{Command, Output};
use unisono_host_tests::mpi::{MPIS, TestedMpi, below, numbers, verdict};
use unisono_host_tests::processes::{text, words};
use unisono_host_tests::program::unisono;
use unisono_host_tests::{TestOutcome, host_tests};

/// The words before the program in one part of a job.
type Start<'a> = &'a [&'a str];
const ALONE: Start = &[];
const SERVED: Start = &["mpi", "--"];

/// Runs `mpiexec -n 1 FIRST PROGRAM : -n 2 OTHERS PROGRAM`.
fn job(mpi: TestedMpi, program: &Path, first: Start, others: Start) -> Output {
    fn append(command: &mut Command, start: Start, program: &Path) {
        if !start.is_empty() {
            command.arg(unisono()).args(start);
        }
        command.arg(program);
    }
    let mut command = mpi.launcher(1);
    append(&mut command, first, program);
    command.args([":", "-n", "2"]);
    append(&mut command, others, program);
    command.output().expect("mpiexec was found")
}

fn a_rank_that_was_started_otherwise_ends_the_job_and_is_named() -> TestOutcome {
    let windows: Start = &["mpi", "--only", "windows", "--"];
    for mpi in MPIS {
        let program = mpi.build("partly.c")?;
        for (first, others, expected) in [
            (ALONE, SERVED, "do not run under 'unisono mpi', as rank 2 does: 0;"),
            (SERVED, ALONE, "do not run under 'unisono mpi', as rank 0 does: 1-2;"),
            (windows, SERVED, "with other options of 'unisono mpi' than rank 0 "),
        ] {
            let output = job(mpi, &program, first, others);
            let said = words(&output);
            assert!(!output.status.success(), "{said}");
            assert_eq!(said.matches(expected).count(), 1, "{}, {expected}: {said}", mpi.name());
            assert_eq!(said.matches("these ranks").count(), 1, "{said}");
        }
    }
    Ok(())
}

fn a_job_that_is_partly_served_serves_the_communicators_of_its_served_ranks() -> TestOutcome {
    for mpi in MPIS {
        let program = mpi.build("partly.c")?;
        let output = job(mpi, &program, ALONE, &["mpi", "--partly", "--stats", "--"]);
        verdict("partly", &output).expect("the program agrees");
        let said = text(&output.stderr);
        assert_eq!(numbers(&below(&said, "allocated"), "put"), "2 8 B - -", "{said}");
    }
    Ok(())
}

host_tests![needs Nothing;
    a_rank_that_was_started_otherwise_ends_the_job_and_is_named within 200,
    a_job_that_is_partly_served_serves_the_communicators_of_its_served_ranks within 120,
];
