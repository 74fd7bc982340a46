//! Runs the conformance programs of the MPI preload on the MPIs alone. A conformance program is right if an
//! MPI without Unisono passes it. The exceptions are listed with their reasons.

use std::process::Command;
use unisono_host_tests::mpi::{TestedMpi, verdict};
use unisono_host_tests::{TestOutcome, host_tests, one_in, require};

const ROUNDING: &str = "4.0.2 looks for the parts of an allocated window in the wrong places unless their size is a multiple of 16";

/// Each program, with the reasons why MPICH 4.0 and Open MPI 4.1 are known to fail it, if they do.
const PROGRAMS: &[(&str, Option<&str>, Option<&str>)] = &[
    ("flavours.c", None, None),
    (
        "operations.c",
        None,
        Some("4.1.4 crashes in compare-and-swap where vader has no single copy"),
    ),
    ("operators.c", None, Some("4.1.4 looks at types of which no element is combined")),
    ("long_double.c", None, None),
    ("requests.c", None, None),
    ("requests_freed.c", Some("4.0.2 knows no MPI_Request_free of such requests"), None),
    (
        "requests_mixed.c",
        Some("4.0.2 completes requests of strided data that has not come yet"),
        None,
    ),
    (
        "requests_overlap.c",
        None,
        Some("4.1.4 asks the target in MPI_Rget and waits for its answer"),
    ),
    ("fence.c", None, None),
    ("pscw.c", None, None),
    ("locks.c", Some(ROUNDING), None),
    ("lock_epochs.c", None, None),
    ("shared_locks.c", None, None),
    ("crosswise.c", None, Some("4.1.4 does not end")),
    ("datatypes.c", None, Some("4.1.4 refuses absolute addresses in target types")),
    ("attributes.c", None, Some("4.1.4 keeps no hint that is set later")),
    (
        "callbacks.c",
        Some("4.0.2 calls a callback that deletes its own attribute again, without end"),
        Some("4.1.4 crashes where a callback deletes its own attribute"),
    ),
    (
        "errors.c",
        Some("4.0.2 checks neither ranges nor lock types nor freed windows"),
        Some("4.1.4 completes, locks twice and frees locked windows without an error"),
    ),
    ("edges.c", Some(ROUNDING), Some("4.1.4 has no windows on one rank")),
    (
        "misuse.c",
        Some("4.0.2 checks neither ranges nor groups"),
        Some("4.1.4 checks neither ranges nor most of the epochs"),
    ),
    (
        "queries.c",
        Some("4.0.2 is an MPI-4.0: only shared windows can be asked"),
        Some("4.1.4 is an MPI-3.1: only shared windows can be asked"),
    ),
    ("kinds.c", None, None),
    ("counted.c", None, None),
    ("profiled.c", None, None),
    ("finalized.c", None, None),
    ("sessions.c", None, None),
    ("sessions_threads.c", None, None),
    ("progress.c", None, None),
    ("large_count.c", None, None),
    ("barrier.c", Some(ROUNDING), None),
    ("waits.c", None, None),
    ("waits_threads.c", None, None),
    ("waits_counted.c", None, None),
    ("collectives.c", None, None),
    ("order_change.c", None, None),
    ("threads.c", None, Some("4.1.4 does not end where several threads use windows at once")),
    ("cxx.cpp", Some(ROUNDING), None),
    ("fortran_module.f90", None, None),
    ("fortran_77.f", None, None),
    ("fortran_2008.f90", Some(ROUNDING), None),
];

#[allow(clippy::print_stdout, reason = "what is not tried is said")]
fn agrees(mpi: TestedMpi) -> TestOutcome {
    require::program("timeout", "apt-get install coreutils")?;
    let mut failures = Vec::new();
    for (file, mpich, openmpi) in PROGRAMS.iter().step_by(one_in(3)) {
        let known = if mpi == TestedMpi::Mpich { mpich } else { openmpi };
        if let Some(reason) = known {
            println!("{} and {file}: not tried, {reason}", mpi.name());
            continue;
        }
        let program = mpi.build(file)?;
        let name = file.split('.').next().expect("split has a first part because it always has");
        // a minute, because two spinning ranks on a busy machine are slow; a hang here is not a fault of
        // Unisono
        let mut command = Command::new("timeout");
        let launcher = mpi.launcher(2);
        command.args(["-k", "2", "60"]).arg(launcher.get_program()).args(launcher.get_args()).arg(&program);
        command.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = command.output().expect("timeout starts because it was found");
        if let Err(why) = verdict(name, &output) {
            failures.push(why);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn mpich_agrees_with_the_programs() -> TestOutcome {
    agrees(TestedMpi::Mpich)
}

fn open_mpi_agrees_with_the_programs() -> TestOutcome {
    agrees(TestedMpi::OpenMpi)
}

host_tests![needs Nothing;
    mpich_agrees_with_the_programs within 600,
    open_mpi_agrees_with_the_programs within 600,
];
