//! Tests waits for messages under `unisono mpi`: results, statuses and errors are the same as on the MPI
//! alone, whether ranks wait awake or asleep, and whether or not each rank has a processor. Also tests the
//! statistics of waits.

use serde_json::Value;
use std::ffi::OsStr;
use std::process::{Command, Output};
use unisono_host_tests::mpi::{MPIS, TestedMpi, source, verdict};
use unisono_host_tests::processes::text;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, is_long};

/// Numbers of ranks: on most machines, with 2 ranks each has a processor, and with 4 not.
const RANKS: [usize; 2] = [2, 4];

fn with_preload(mpi: TestedMpi, ranks: usize, file: &str, options: &[&str]) -> Result<Output, Skipped> {
    let built = mpi.build(file)?;
    let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    arguments.extend([OsStr::new("--"), built.as_os_str()]);
    Ok(mpi.with_preload(ranks, &arguments).output().expect("mpiexec starts because it was found"))
}

/// Runs a program normally, and with ranks that wait asleep from the beginning, as they do beside other
/// programs.
fn awake_and_asleep(file: &str) -> TestOutcome {
    let name = file.trim_end_matches(".c");
    for (mpi, ranks) in MPIS.into_iter().flat_map(|mpi| RANKS.map(|ranks| (mpi, ranks))) {
        verdict(name, &with_preload(mpi, ranks, file, &[])?).expect("the program agrees");
        let built = mpi.build(file)?;
        let mut asleep = mpi.with_preload(ranks, &[OsStr::new("--"), built.as_os_str()]);
        asleep.env("UNISONO_MPI_CROWD", "asleep");
        let output = asleep.output().expect("mpiexec starts because it was found");
        verdict(name, &output).expect("the program agrees asleep");
    }
    Ok(())
}

fn messages_statuses_and_errors_are_those_of_the_mpi() -> TestOutcome {
    awake_and_asleep("waits.c")
}

fn requests_of_every_kind_end_in_every_wait() -> TestOutcome {
    awake_and_asleep("request_kinds.c")
}

/// Returns the lines of a run that say in which state `MPI_Waitall` left its requests.
fn states(output: &Output) -> Vec<String> {
    verdict("waitall_errors", output).expect("the program agrees");
    text(&output.stdout).lines().filter(|line| line.starts_with("state")).map(str::to_owned).collect()
}

fn an_error_in_waitall_leaves_the_other_requests_as_the_mpi_alone_does() -> TestOutcome {
    // only MPICH: Open MPI's own MPI_Waitall is used, whose states depend on timing
    let mpi = TestedMpi::Mpich;
    for ranks in RANKS {
        let built = mpi.build("waitall_errors.c")?;
        let alone = mpi.launcher(ranks).arg(&built).output().expect("mpiexec was found");
        let served = with_preload(mpi, ranks, "waitall_errors.c", &[])?;
        assert_eq!(states(&alone).len(), 7);
        assert_eq!(states(&served), states(&alone), "{} on {ranks} ranks", mpi.name());
    }
    Ok(())
}

fn threads_that_wait_at_once_do_not_take_what_is_anothers() -> TestOutcome {
    awake_and_asleep("waits_threads.c")
}

fn threads_with_communicators_made_from_groups_wait_at_once() -> TestOutcome {
    awake_and_asleep("from_group.c")
}

/// In a session the windows are served, and threads use one at once; the waits are the MPI's own.
fn threads_of_a_session_use_one_window_and_wait_at_once() -> TestOutcome {
    // Debian's MPI with sessions; its Open MPI is an MPI 3.1
    let mpi = TestedMpi::Mpich;
    for (ranks, options) in RANKS.into_iter().flat_map(|ranks| [(ranks, &[][..]), (ranks, &["--messages"])]) {
        let options: Vec<&str> = options.iter().copied().chain(["--stats"]).collect();
        let output = with_preload(mpi, ranks, "sessions_threads.c", &options)?;
        verdict("sessions_threads", &output).expect("the program agrees");
        if text(&output.stdout).contains("no sessions") {
            return Err(Skipped::because(
                "sessions need an MPI 4: apt-get install mpich (Debian 12 or later)",
            ));
        }
        let said = text(&output.stderr);
        assert!(said.contains("allocated"), "no window was served: {said}");
    }
    Ok(())
}

/// Returns the lines of a run that have the bits of all results, sorted by rank.
fn bits(program: &str, output: &Output) -> Vec<String> {
    verdict(program, output).expect("the program agrees");
    let said = text(&output.stdout);
    let mut lines: Vec<String> =
        said.lines().filter(|line| line.starts_with("bits")).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The bits of a sum of floating-point numbers show in which order they were added.
fn small_collectives_give_the_very_bits_of_the_mpi_alone() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("collectives.c")?;
        let all: &[usize] = if is_long() { &[2, 3, 4, 5, 8] } else { &[3] };
        for &ranks in all {
            let mut alone = mpi.launcher(ranks);
            let alone = alone.arg(&built).arg("bits").output().expect("mpiexec was found");
            let arguments = [OsStr::new("--"), built.as_os_str(), OsStr::new("bits")];
            let served = mpi.with_preload(ranks, &arguments).output().expect("mpiexec was found");
            assert_eq!(bits("collectives", &alone).len(), ranks);
            assert_eq!(
                bits("collectives", &alone),
                bits("collectives", &served),
                "{} on {ranks} ranks",
                mpi.name()
            );
        }
    }
    Ok(())
}

fn collectives_of_random_shapes_give_the_very_bits_and_errors_of_the_mpi_alone() -> TestOutcome {
    let seeds = if is_long() { 1..=20 } else { 1..=1 };
    for (mpi, seed) in MPIS.into_iter().flat_map(|mpi| seeds.clone().map(move |seed| (mpi, seed))) {
        let built = mpi.build("exchanges.c")?;
        let seed = format!("{seed}");
        let all: &[usize] = if is_long() { &[2, 3, 4, 5, 8] } else { &[3] };
        for &ranks in all {
            let mut alone = mpi.launcher(ranks);
            let alone = alone.arg(&built).arg(&seed).output().expect("mpiexec was found");
            let arguments = [OsStr::new("--"), built.as_os_str(), OsStr::new(&seed)];
            let served = mpi.with_preload(ranks, &arguments).output().expect("mpiexec was found");
            assert_eq!(bits("exchanges", &alone).len(), ranks);
            assert_eq!(
                bits("exchanges", &alone),
                bits("exchanges", &served),
                "{} on {ranks} ranks, seed {seed}",
                mpi.name()
            );
        }
    }
    Ok(())
}

/// The bits of a sum of NaNs, and the minimum of a NaN and a number, depend on the order of the two operands.
fn reductions_of_nans_give_the_very_bits_of_the_mpi_alone() -> TestOutcome {
    let mpi = TestedMpi::Mpich;
    let built = mpi.build("nans.c")?;
    for ranks in [3, 4] {
        let alone = mpi.launcher(ranks).arg(&built).output().expect("mpiexec was found");
        let served = with_preload(mpi, ranks, "nans.c", &[])?;
        assert_eq!(bits("nans", &alone).len(), 16);
        assert_eq!(bits("nans", &alone), bits("nans", &served), "on {ranks} ranks");
    }
    Ok(())
}

/// The preload finds out by a few trials in which order Debian's MPICH adds. An MPI whose waiting ranks yield
/// by themselves keeps its own calls.
fn sums_of_crowded_ranks_are_served_once_their_order_is_known() -> TestOutcome {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let crowded = (processors + 1).max(3);
    if crowded > 16 {
        return Err(Skipped::because(format!("{processors} processors; sums of up to 16 ranks are served")));
    }
    for (mpi, served) in [(TestedMpi::Mpich, &["served"][..]), (TestedMpi::OpenMpi, &[])] {
        mpi.present("orders.c")?;
        let directory = tempfile::tempdir().expect("a scratch directory");
        let [tool, built] = ["libcount.so", "orders"].map(|name| directory.path().join(name));
        let compile = |arguments: &[&OsStr]| {
            let mut compiler = Command::new(format!("mpicc.{}", mpi.name()));
            let output = compiler.args(["-O1", "-w"]).args(arguments).output().expect("it was found");
            assert!(output.status.success(), "{}", text(&output.stderr));
        };
        let (source, out) = (source("orders.c"), OsStr::new("-o"));
        compile(&[
            "-DTOOL".as_ref(),
            "-shared".as_ref(),
            "-fPIC".as_ref(),
            out,
            tool.as_ref(),
            source.as_ref(),
        ]);
        compile(&[out, built.as_ref(), source.as_ref(), tool.as_ref()]);
        let arguments =
            [OsStr::new("--"), built.as_os_str()].into_iter().chain(served.iter().map(OsStr::new));
        let arguments: Vec<&OsStr> = arguments.collect();
        let output = mpi.with_preload(crowded, &arguments).output().expect("mpiexec was found");
        verdict("orders", &output).expect("each sum is made as often as it should be");
    }
    Ok(())
}

/// Only MPICH is tested, because Open MPI keeps its own waits.
fn a_rank_sets_up_its_waits_at_the_first_of_them_and_not_in_mpi_init() -> TestOutcome {
    let mpi = TestedMpi::Mpich;
    let built = mpi.build("begins.c")?;
    for (ranks, arguments) in RANKS.into_iter().flat_map(|ranks| [(ranks, &[][..]), (ranks, &["closes"])]) {
        let mut command = mpi.with_preload(ranks, &[OsStr::new("--"), built.as_os_str()]);
        let output = command.args(arguments).output().expect("mpiexec was found");
        verdict("begins", &output).expect("the program agrees");
    }
    Ok(())
}

fn calls(of: &Value, call: &str) -> u64 {
    let waits = of["waits"].as_array().expect("a list of waits");
    let row = waits.iter().find(|row| row["call"] == call);
    row.map_or(0, |row| row["calls"].as_u64().expect("a number of calls"))
}

/// The first rank prints one table, and writes a file with each rank's waits. The program's own calls are
/// known; the collectives that the preload makes itself are not in the table.
fn statistics_count_the_waits_of_each_rank() -> TestOutcome {
    count_the_waits_of("waits_counted.c")
}

/// mpi4py passes every buffer by the calls with large counts.
fn calls_with_large_counts_are_served_as_the_others() -> TestOutcome {
    count_the_waits_of("waits_counted_large.c")
}

fn count_the_waits_of(program: &str) -> TestOutcome {
    let directory = tempfile::tempdir().expect("a directory");
    for (mpi, ranks) in MPIS.into_iter().flat_map(|mpi| RANKS.map(|ranks| (mpi, ranks))) {
        let file = directory.path().join(format!("{}-{ranks}.json", mpi.name()));
        let path = file.to_str().expect("a temporary directory has a name in UTF-8");
        let output = with_preload(mpi, ranks, program, &["--stats", "--json", path])?;
        verdict("waits_counted", &output).expect("the program agrees");
        let said = text(&output.stderr);
        assert_eq!(said.matches(&format!("waits of {ranks} ranks together")).count(), 1, "{said}");
        let json = std::fs::read_to_string(&file).expect("the file was written");
        assert_eq!(crate::schema::formats_of(&json), ["unisono-mpi-1"]);
        let json: Value = serde_json::from_str(&json).expect("it is JSON");
        let by_rank = json["ranks"].as_array().expect("a list of ranks");
        assert_eq!(by_rank.len(), ranks);
        for (rank, of) in by_rank.iter().enumerate() {
            assert_eq!(of["rank"], rank);
            for (call, expected) in [
                ("MPI_Waitall", 200),
                ("MPI_Recv", 30),
                ("MPI_Wait", 30),
                ("MPI_Barrier", 20),
                ("MPI_Bcast", 20),
                ("MPI_Allreduce", 11),
            ] {
                assert_eq!(calls(of, call), expected, "{call} of rank {rank}, {}: {json}", mpi.name());
            }
        }
        assert_eq!(calls(&json, "MPI_Waitall"), 200 * ranks as u64);
    }
    Ok(())
}

/// With `--only windows` waits are not served, and `--json` without `--stats` prints nothing.
fn windows_alone_have_no_waits() -> TestOutcome {
    let directory = tempfile::tempdir().expect("a directory");
    for mpi in MPIS {
        let file = directory.path().join(mpi.name());
        let path = file.to_str().expect("a temporary directory has a name in UTF-8");
        let options = ["--only", "windows", "--json", path];
        let output = with_preload(mpi, 3, "waits_counted.c", &options)?;
        verdict("waits_counted", &output).expect("the program agrees");
        assert!(!text(&output.stderr).contains("waits of"), "{}", text(&output.stderr));
        let json = std::fs::read_to_string(&file).expect("the file was written");
        let json: Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!(json["waits"].as_array().map(Vec::len), Some(0), "{json}");
    }
    Ok(())
}

host_tests![needs Nothing;
    messages_statuses_and_errors_are_those_of_the_mpi within 200,
    requests_of_every_kind_end_in_every_wait within 200,
    an_error_in_waitall_leaves_the_other_requests_as_the_mpi_alone_does within 120,
    threads_that_wait_at_once_do_not_take_what_is_anothers within 200,
    threads_with_communicators_made_from_groups_wait_at_once within 200,
    threads_of_a_session_use_one_window_and_wait_at_once within 120,
    small_collectives_give_the_very_bits_of_the_mpi_alone within 200,
    collectives_of_random_shapes_give_the_very_bits_and_errors_of_the_mpi_alone within 200,
    reductions_of_nans_give_the_very_bits_of_the_mpi_alone within 200,
    sums_of_crowded_ranks_are_served_once_their_order_is_known within 120,
    a_rank_sets_up_its_waits_at_the_first_of_them_and_not_in_mpi_init within 120,
    statistics_count_the_waits_of_each_rank within 120,
    calls_with_large_counts_are_served_as_the_others within 120,
    windows_alone_have_no_waits within 120,
];
