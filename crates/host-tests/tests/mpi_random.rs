//! Random programs under the MPI preload, on one host and on two: windows against what their parts must
//! contain, and collectives against the bits that the MPI alone gives.

use crate::mpi_hosts::{Wire, hosts, mpiexec};
use std::ffi::OsStr;
use std::path::Path;
use unisono_host_tests::hosts::Hosts;
use unisono_host_tests::mpi::{MPIS, TestedMpi, verdict};
use unisono_host_tests::processes::text;
use unisono_host_tests::{TestOutcome, host_tests, is_long, program};

/// The seeds of a test with this many of them in long tests.
fn seeds(many: u32) -> std::ops::RangeInclusive<u32> {
    1..=if is_long() { many } else { 1 }
}

fn windows_of_random_programs_hold_what_they_must() -> TestOutcome {
    let ranks: &[usize] = if is_long() { &[2, 3, 5] } else { &[3] };
    for (mpi, seed) in MPIS.into_iter().flat_map(|mpi| seeds(25).map(move |seed| (mpi, seed))) {
        let (built, seed) = (mpi.build("random_windows.c")?, seed.to_string());
        for (ranks, option) in ranks.iter().flat_map(|ranks| [None, Some("--messages")].map(|o| (*ranks, o)))
        {
            let mut arguments: Vec<&OsStr> = option.into_iter().map(OsStr::new).collect();
            arguments.extend([OsStr::new("--"), built.as_os_str(), OsStr::new(&seed)]);
            let output = mpi.with_preload(ranks, &arguments).output().expect("mpiexec was found");
            verdict("random_windows", &output).unwrap_or_else(|why| {
                panic!("{} on {ranks} ranks {option:?}, seed {seed}: {why}", mpi.name())
            });
        }
    }
    Ok(())
}

/// The output of a program that ran on two hosts with this many ranks each.
fn output(
    (hosts, mpi, each): (&Hosts, TestedMpi, usize),
    served: bool,
    (built, seed): (&Path, u32),
) -> std::process::Output {
    let wire = if mpi == TestedMpi::OpenMpi { Wire::Tcp } else { Wire::AsTheMpiLikes };
    let mut command = mpiexec(hosts, mpi, each, wire);
    if served {
        command.arg(program::unisono()).args(["mpi", "--"]);
    }
    command.arg(built).arg(seed.to_string()).output().expect("ip starts because it was found")
}

fn windows_across_hosts(mpi: TestedMpi) -> TestOutcome {
    let hosts = hosts()?;
    let built = mpi.build("random_windows.c")?;
    for (seed, each) in seeds(40).flat_map(|seed| [(seed, 1 + seed as usize % 2), (seed + 1000, 1)]) {
        let output = output((&hosts, mpi, each), true, (&built, seed));
        verdict("random_windows", &output)
            .unwrap_or_else(|why| panic!("{}, {each} ranks a host, seed {seed}: {why}", mpi.name()));
    }
    Ok(())
}

fn windows_of_random_programs_of_mpich_on_two_hosts_hold_what_they_must() -> TestOutcome {
    windows_across_hosts(TestedMpi::Mpich)
}

fn windows_of_random_programs_of_open_mpi_on_two_hosts_hold_what_they_must() -> TestOutcome {
    windows_across_hosts(TestedMpi::OpenMpi)
}

fn collectives_across_hosts(mpi: TestedMpi) -> TestOutcome {
    let hosts = hosts()?;
    let built = mpi.build("exchanges.c")?;
    for (seed, each) in seeds(25).map(|seed| (seed, 1 + seed as usize % 2)) {
        let bits = |served: bool| {
            let output = output((&hosts, mpi, each), served, (&built, seed));
            verdict("exchanges", &output).unwrap_or_else(|why| panic!("{}, seed {seed}: {why}", mpi.name()));
            let said = text(&output.stdout);
            let mut lines: Vec<String> =
                said.lines().filter(|line| line.starts_with("bits")).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let alone = bits(false);
        assert_eq!(alone.len(), 2 * each);
        assert_eq!(alone, bits(true), "{}, {each} ranks a host, seed {seed}", mpi.name());
    }
    Ok(())
}

fn collectives_of_random_shapes_of_mpich_on_two_hosts_give_the_bits_of_the_mpi_alone() -> TestOutcome {
    collectives_across_hosts(TestedMpi::Mpich)
}

fn collectives_of_random_shapes_of_open_mpi_on_two_hosts_give_the_bits_of_the_mpi_alone() -> TestOutcome {
    collectives_across_hosts(TestedMpi::OpenMpi)
}

host_tests![needs Nothing;
    windows_of_random_programs_hold_what_they_must within 900,
    windows_of_random_programs_of_mpich_on_two_hosts_hold_what_they_must within 600,
    windows_of_random_programs_of_open_mpi_on_two_hosts_hold_what_they_must within 600,
    collectives_of_random_shapes_of_mpich_on_two_hosts_give_the_bits_of_the_mpi_alone within 600,
    collectives_of_random_shapes_of_open_mpi_on_two_hosts_give_the_bits_of_the_mpi_alone within 600,
];
