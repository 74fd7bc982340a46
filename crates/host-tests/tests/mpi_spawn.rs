//! Tests processes that a served program spawns: communicators with them are served, or left to the MPI.
//! Debian's MPICH cannot spawn processes (because of its UCX), so the tests run on Open MPI.

use std::ffi::OsStr;
use std::process::Command;
use unisono_host_tests::mpi::{TestedMpi, below, numbers, source, verdict};
use unisono_host_tests::processes::text;
use unisono_host_tests::{TestOutcome, host_tests, require};

const MPI: TestedMpi = TestedMpi::OpenMpi;

fn spawned_processes_share_windows_and_barriers_with_their_parents() -> TestOutcome {
    for how in ["one", "several"] {
        let built = MPI.build("spawn.c")?;
        let arguments = [OsStr::new("--stats"), OsStr::new("--"), built.as_os_str(), OsStr::new(how)];
        let output = MPI.with_preload(2, &arguments).output().expect("mpiexec was found");
        verdict("spawn", &output).expect("the parents agree");
        let said = text(&output.stdout);
        assert!(said.lines().any(|line| line == "ok children"), "{said}");
        let said = text(&output.stderr);
        let allocated = below(&said, "allocated");
        // each of two worlds of two ranks prints a table, for windows of 4, 4 and 2 ranks
        assert_eq!(said.matches("windows of 2 ranks together").count(), 2, "{said}");
        assert_eq!(numbers(&allocated, "put"), "6 24 B - -", "{said}");
        assert!(!said.contains("left to the program's MPI"), "{said}");
    }
    Ok(())
}

/// If the environment lacks the path of `unisono`, the children are started without the preload.
fn communicators_with_unserved_processes_stay_the_mpis() -> TestOutcome {
    let built = MPI.build("spawn.c")?;
    let arguments = ["--", "env", "-u", "UNISONO_MPI_PROGRAM"].map(OsStr::new);
    let arguments: Vec<&OsStr> =
        arguments.into_iter().chain([built.as_os_str(), OsStr::new("one")]).collect();
    let output = MPI.with_preload(2, &arguments).output().expect("mpiexec was found");
    verdict("spawn", &output).expect("the parents agree");
    let said = text(&output.stderr);
    assert_eq!(said.matches("the processes that this program spawns are not served").count(), 1, "{said}");
    Ok(())
}

fn a_pool_of_mpi4py_ends_its_work() -> TestOutcome {
    require::nightly("mpi")?;
    MPI.present("any.c")?;
    let python = crate::mpi::python()?;
    let script = source("python_pool.py");
    let arguments = [OsStr::new("--"), python.as_os_str(), script.as_os_str()];
    let mut command: Command = MPI.with_preload(1, &arguments);
    command.env("MPI4PY_MPIABI", MPI.name());
    let output = command.output().expect("mpiexec was found");
    verdict("python_pool", &output).expect("the pool agrees");
    Ok(())
}

host_tests![needs Nothing;
    spawned_processes_share_windows_and_barriers_with_their_parents within 120,
    communicators_with_unserved_processes_stay_the_mpis within 120,
    a_pool_of_mpi4py_ends_its_work within 300,
];
