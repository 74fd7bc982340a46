//! Tests the MPI preload between hosts: the MPI's own `mpiexec` starts ranks in two network namespaces.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::mpi::{TestedMpi, verdict};
use unisono_host_tests::processes::words;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, one_in, program, require};

/// Programs that take little time; together they use all three kinds of synchronization.
const PROGRAMS: &[&str] = &[
    "hosts.c",
    "flavours.c",
    "operations.c",
    "requests.c",
    "fence.c",
    "pscw.c",
    "locks.c",
    "datatypes.c",
    "errors.c",
    "edges.c",
    "progress.c",
    "barrier.c",
    "fortran_2008.f90",
];

/// The transport that the MPI is told to use between ranks of different hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wire {
    Tcp,
    AsTheMpiLikes,
}

/// Returns the command `mpiexec` on the first host, with `each` ranks on each host.
fn mpiexec(hosts: &Hosts, mpi: TestedMpi, each: usize, wire: Wire) -> Command {
    let [a, b] = [Hosts::address(0), Hosts::address(1)];
    let launcher = format!("mpiexec.{}", mpi.name());
    let mut command = hosts.command(0, Path::new(&launcher));
    let shell = hosts.remote_shell();
    match mpi {
        TestedMpi::Mpich => {
            command.args(["-launcher", "ssh", "-launcher-exec"]).arg(shell);
            command.args(["-localhost", &a, "-hosts", &format!("{a}:{each},{b}:{each}")]);
            if wire == Wire::Tcp {
                command.env("UCX_TLS", "tcp,self").env("UCX_NET_DEVICES", "cable");
            }
        }
        TestedMpi::OpenMpi => {
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command.env("OMPI_MCA_mpi_yield_when_idle", "1");
            command.arg("--oversubscribe").args(["--mca", "plm_rsh_agent"]).arg(shell);
            let network = "10.77.0.0/24";
            for (setting, value) in [("oob_tcp_if_include", network), ("btl_tcp_if_include", network)] {
                command.args(["--mca", setting, value]);
            }
            if wire == Wire::Tcp {
                command.args(["--mca", "btl", "self,tcp"]);
            }
            command.args(["-host", &format!("{a}:{each},{b}:{each}")]);
        }
    }
    command.args(["-n", &(2 * each).to_string()]).stdin(std::process::Stdio::null());
    command
}

fn hosts() -> Result<Hosts, Skipped> {
    require::unshare(&["--uts"])?;
    Hosts::new()
}

fn all(mpi: TestedMpi, each: usize, wire: Wire) -> TestOutcome {
    let hosts = hosts()?;
    let mut failures = Vec::new();
    for file in PROGRAMS.iter().step_by(one_in(3)) {
        let built = mpi.build(file)?;
        let name = file.split('.').next().expect("split has a first part because it always has");
        let mut command = mpiexec(&hosts, mpi, each, wire);
        command.arg(program::unisono()).args([OsStr::new("mpi"), OsStr::new("--")]).arg(built);
        if name == "hosts" {
            // checks that there are two hosts; otherwise this test would prove nothing
            command.arg("2");
        }
        let output = command.output().expect("ip starts because it was found");
        if let Err(why) = verdict(name, &output) {
            failures.push(why);
        }
    }
    assert!(failures.is_empty(), "{} on two hosts:\n{}", mpi.name(), failures.join("\n"));
    Ok(())
}

/// Over UCX's TCP this MPICH often hangs in MPI_Finalize, also without the preload. So only the program's
/// output before that counts.
fn ranks_of_mpich_on_two_hosts_share_windows_over_tcp() -> TestOutcome {
    let hosts = hosts()?;
    let built = TestedMpi::Mpich.build("hosts.c")?;
    let mut command = mpiexec(&hosts, TestedMpi::Mpich, 2, Wire::Tcp);
    command
        .env("MPIEXEC_TIMEOUT", "15")
        .arg(program::unisono())
        .args([OsStr::new("mpi"), OsStr::new("--")])
        .arg(built)
        .arg("2");
    let output = command.output().expect("ip starts because it was found");
    let said = words(&output);
    assert!(said.lines().any(|line| line == "ok hosts"), "{said}");
    Ok(())
}

fn a_window_of_mpich_has_ranks_here_and_there() -> TestOutcome {
    all(TestedMpi::Mpich, 2, Wire::AsTheMpiLikes)
}

fn a_window_of_open_mpi_has_ranks_here_and_there() -> TestOutcome {
    all(TestedMpi::OpenMpi, 2, Wire::Tcp)
}

host_tests![needs Nothing;
    ranks_of_mpich_on_two_hosts_share_windows_over_tcp within 300,
    a_window_of_mpich_has_ranks_here_and_there within 300,
    a_window_of_open_mpi_has_ranks_here_and_there within 300,
];
