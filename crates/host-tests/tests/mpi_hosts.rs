//! Tests the MPI preload between hosts: two to four network namespaces, and the MPI's own `mpiexec` across
//! them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};
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
    "lock_epochs.c",
    "datatypes.c",
    "errors.c",
    "edges.c",
    "progress.c",
    "barrier.c",
    "fortran_2008.f90",
];

/// The transport that the MPI is told to use between ranks of different hosts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Tcp,
    AsTheMpiLikes,
}

/// Returns the command `mpiexec` on the first host, with `each` ranks on each host.
pub(crate) fn mpiexec(hosts: &Hosts, mpi: TestedMpi, each: usize, wire: Wire) -> Command {
    let list: Vec<String> =
        (0..hosts.count()).map(|host| format!("{}:{each}", Hosts::address(host))).collect();
    let launcher = format!("mpiexec.{}", mpi.name());
    let mut command = hosts.command(0, Path::new(&launcher));
    let shell = hosts.remote_shell();
    match mpi {
        TestedMpi::Mpich => {
            command.args(["-launcher", "ssh", "-launcher-exec"]).arg(shell);
            command.args(["-localhost", &Hosts::address(0), "-hosts", &list.join(",")]);
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
            command.args(["-host", &list.join(",")]);
        }
    }
    command.args(["-n", &(hosts.count() * each).to_string()]).stdin(std::process::Stdio::null());
    command
}

pub(crate) fn hosts() -> Result<Hosts, Skipped> {
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

/// With one rank on each host and with two, which wait in different ways.
fn ranks_that_wait_for_a_message_serve_their_windows_without_the_agent() -> TestOutcome {
    let hosts = hosts()?;
    let built = TestedMpi::Mpich.build("waits_serve.c")?;
    for each in [1, 2] {
        let mut command = mpiexec(&hosts, TestedMpi::Mpich, each, Wire::AsTheMpiLikes);
        command.env("UNISONO_MPI_AGENT", "never").env("MPIEXEC_TIMEOUT", "120");
        command.arg(program::unisono()).args([OsStr::new("mpi"), OsStr::new("--")]).arg(&built);
        let output = command.output().expect("ip starts because it was found");
        verdict("waits_serve", &output).unwrap_or_else(|why| panic!("{each} on each host: {why}"));
    }
    Ok(())
}

fn a_window_of_mpich_has_ranks_here_and_there() -> TestOutcome {
    all(TestedMpi::Mpich, 2, Wire::AsTheMpiLikes)
}

fn a_window_of_open_mpi_has_ranks_here_and_there() -> TestOutcome {
    all(TestedMpi::OpenMpi, 2, Wire::Tcp)
}

/// Writes the file of a network with one switch for each pair of hosts; the switches are in a row. Hosts
/// without a name are not in the network.
fn network(names: &[Option<String>]) -> tempfile::NamedTempFile {
    let switches = names.len().div_ceil(2);
    let links: Vec<String> = (1..switches).map(|switch| format!("[{},7,{switch},6]", switch - 1)).collect();
    let known: Vec<(usize, &String)> =
        names.iter().enumerate().filter_map(|(host, name)| Some((host, name.as_ref()?))).collect();
    let nodes: Vec<String> = known.iter().map(|(host, _)| format!("[{},{}]", host / 2, host % 2)).collect();
    let named: Vec<String> = known.iter().map(|(_, name)| format!("{name:?}")).collect();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!(
        r#"{{"format":"btin-topo-1","ports":8,"switches":{switches},"links":[{}],"nodes":[{}],"node_names":[{}]}}"#,
        links.join(","),
        nodes.join(","),
        named.join(",")
    );
    std::fs::write(&file, text).expect("it is written");
    file
}

/// Returns the output of the program of barriers, with ranks on all hosts. `options` are `mpiexec`'s,
/// `arguments` the program's: making a communicator takes a dozen of the MPI's collectives, which are slow
/// where ranks are crowded.
fn barriers(
    hosts: &Hosts,
    (mpi, each): (TestedMpi, usize),
    options: &[&str],
    network: &Path,
    arguments: &[&str],
) -> Result<Output, Skipped> {
    let built = mpi.build("host_barriers.c")?;
    let wire = if mpi == TestedMpi::OpenMpi { Wire::Tcp } else { Wire::AsTheMpiLikes };
    let mut command = mpiexec(hosts, mpi, each, wire);
    command.args(options).arg(program::unisono()).args(["mpi", "--tree"]).arg(network).arg("--").arg(built);
    Ok(command.args(arguments).output().expect("ip starts because it was found"))
}

/// Returns a name for each host: the address of an even host, the name of an odd host. The first host has its
/// address, because the launcher starts its ranks under this machine's name.
fn all_names(hosts: &Hosts) -> Vec<Option<String>> {
    let name =
        |host: usize| if host.is_multiple_of(2) { Hosts::address(host) } else { hosts.name(host).to_owned() };
    (0..hosts.count()).map(name).map(Some).collect()
}

fn tree_of_hosts(mpi: TestedMpi, count: usize, each: usize, communicators: [&str; 2]) -> TestOutcome {
    require::unshare(&["--uts"])?;
    let hosts = Hosts::at_a_switch(count)?;
    let network = network(&all_names(&hosts));
    let output =
        barriers(&hosts, (mpi, each), &[], network.path(), &["tree", communicators[0], communicators[1]])?;
    verdict("host_barriers", &output).expect("barriers are right, and leave nothing");
    let line = "unisono: barriers between hosts go from host to host and not by the switches: no host has a helper \
                of them, which 'unisono tree deploy --serve' starts";
    let said = words(&output);
    // at most a line from the first rank of the world, and of each part of it
    assert!((1..=count * each).contains(&said.lines().filter(|said| *said == line).count()), "{said}");
    Ok(())
}

fn barriers_of_mpich_on_two_hosts_follow_the_links_of_a_network_and_leave_nothing() -> TestOutcome {
    tree_of_hosts(TestedMpi::Mpich, 2, 2, ["4", "100"])
}

fn barriers_of_mpich_on_four_hosts_follow_the_links_of_a_network_and_leave_nothing() -> TestOutcome {
    tree_of_hosts(TestedMpi::Mpich, 4, 1, ["2", "10"])
}

fn barriers_of_open_mpi_on_two_hosts_follow_the_links_of_a_network_and_leave_nothing() -> TestOutcome {
    tree_of_hosts(TestedMpi::OpenMpi, 2, 2, ["4", "100"])
}

fn a_host_that_a_network_lacks_is_named_and_the_barriers_stay_the_mpis() -> TestOutcome {
    let hosts = hosts()?;
    let network = network(&[Some(Hosts::address(0)), None]);
    let output = barriers(&hosts, (TestedMpi::Mpich, 2), &[], network.path(), &["host", "2", "5"])?;
    verdict("host_barriers", &output).expect("barriers are right");
    let said = words(&output);
    let reason = format!(
        "unisono: barriers between hosts are left to the program's MPI: {}: host {} is none of its 1 node: {}; \
         name the host, or one of its addresses, in node_names",
        network.path().display(),
        hosts.name(1),
        Hosts::address(0)
    );
    assert_eq!(said.lines().filter(|line| *line == reason).count(), 1, "{said}");
    Ok(())
}

fn a_rank_that_dies_in_a_barrier_of_hosts_is_named() -> TestOutcome {
    let hosts = hosts()?;
    let network = network(&all_names(&hosts));
    // otherwise MPICH's launcher ends the job before a rank can print anything
    let output =
        barriers(&hosts, (TestedMpi::Mpich, 2), &["-disable-auto-cleanup"], network.path(), &["die"])?;
    let said = words(&output);
    let gone = format!("rank 2 is gone (the first rank of host {}: it closed the connection)", hosts.name(1));
    assert!(said.contains(&gone) && !output.status.success(), "{said}");
    Ok(())
}

/// The calls in which ranks of both hosts wait for rank 1: of windows, because the MPI's own calls do not
/// notice it.
const PLACES: [&str; 4] = ["fence", "wait", "complete", "lock"];

/// Only MPICH: Open MPI's daemons do not end after a rank that was killed, if they are told to look on.
fn a_rank_that_is_killed_is_named_by_the_ranks_of_the_other_host() -> TestOutcome {
    let hosts = hosts()?;
    let scratch = tempfile::tempdir().expect("a directory");
    let built = TestedMpi::Mpich.build("endings.c")?;
    for place in PLACES.into_iter().step_by(one_in(3)) {
        // the launcher starts shells: that of the dead rank runs on until the others have said what they got
        let (script, said) = (scratch.path().join("linger"), scratch.path().join(place));
        let said = said.display();
        let linger = format!(
            "\"$@\"; : >{said}.$PMI_RANK; \
             until [ -e {said}.0 ] && [ -e {said}.2 ] && [ -e {said}.3 ]; do sleep 0.05; done"
        );
        std::fs::write(&script, linger).expect("a script in the scratch directory");
        let mut command = mpiexec(&hosts, TestedMpi::Mpich, 2, Wire::AsTheMpiLikes);
        command.arg(program::unisono()).args(["mpi", "--", "sh"]).arg(&script).arg(&built);
        let output = command.args(["kill", place, "last"]).output();
        let words = words(&output.expect("ip starts because it was found"));
        for rank in [0, 2, 3] {
            let means = format!("rank {rank}: that means: rank 1 is gone (it closed the connection)");
            assert!(words.contains(&means), "in {place}: {words}");
        }
    }
    Ok(())
}

host_tests![needs Nothing;
    a_rank_that_is_killed_is_named_by_the_ranks_of_the_other_host within 300,
    barriers_of_mpich_on_two_hosts_follow_the_links_of_a_network_and_leave_nothing within 300,
    barriers_of_mpich_on_four_hosts_follow_the_links_of_a_network_and_leave_nothing within 300,
    barriers_of_open_mpi_on_two_hosts_follow_the_links_of_a_network_and_leave_nothing within 300,
    a_host_that_a_network_lacks_is_named_and_the_barriers_stay_the_mpis within 300,
    a_rank_that_dies_in_a_barrier_of_hosts_is_named within 300,
    ranks_of_mpich_on_two_hosts_share_windows_over_tcp within 300,
    ranks_that_wait_for_a_message_serve_their_windows_without_the_agent within 300,
    a_window_of_mpich_has_ranks_here_and_there within 300,
    a_window_of_open_mpi_has_ranks_here_and_there within 300,
];
