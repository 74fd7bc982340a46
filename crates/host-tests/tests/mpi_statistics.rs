//! Tests `unisono mpi --stats`: the table of a job's windows, with programs whose operations are known.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use unisono_host_tests::mpi::{MPIS, TestedMpi, below, numbers, verdict};
use unisono_host_tests::processes::text;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, program};

fn statistics_agree_with_a_program_whose_operations_are_known() -> TestOutcome {
    for mpi in MPIS {
        for options in [&["--stats"][..], &["--stats", "--messages"]] {
            let built = mpi.build("counted.c")?;
            let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
            arguments.extend([OsStr::new("--"), built.as_os_str()]);
            let output = mpi.with_preload(2, &arguments).output().expect("it was found");
            verdict("counted", &output).expect("the program agrees");
            let said = text(&output.stderr);
            assert_eq!(said.matches("windows of 2 ranks together").count(), 1, "{options:?}: {said}");
            let lines = below(&said, "allocated counted");
            for (kind, amount) in [
                ("put", "46 712 B"),
                ("get", "20 80 B"),
                ("accumulate", "20 80 B"),
                ("get_accumulate", "14 56 B"),
            ] {
                let by_stores = options.len() == 1;
                let expected = if by_stores { format!("{amount} - -") } else { format!("- - {amount}") };
                assert_eq!(numbers(&lines, kind), expected, "{kind} {options:?}: {said}");
            }
            for (kind, epochs) in [("fence", "22 epochs,"), ("pscw", "10 epochs,"), ("passive", "16 epochs,")]
            {
                assert!(numbers(&lines, kind).starts_with(epochs), "{kind} {options:?}: {said}");
            }
        }
    }
    Ok(())
}

/// Returns the microseconds that, according to the table, ranks waited, spinning or asleep.
fn waited(said: &str, window: &str, kind: &str) -> f64 {
    let said = numbers(&below(said, window), kind);
    let Some((_, waited)) = said.split_once("waited ") else { return 0.0 };
    let micros = |time: &str| {
        let (value, unit) = time.split_once(' ')?;
        let scale =
            [("us", 1.0), ("ms", 1e3), ("s", 1e6)].into_iter().find(|(name, _)| unit.starts_with(name))?;
        Some(value.parse::<f64>().ok()? * scale.1)
    };
    waited.split(", ").filter_map(micros).sum()
}

/// Rank 1 is 50 ms late at each synchronization. At least a fifth of that has to be in the table, because
/// rank 0 may have been late itself.
fn statistics_say_how_long_each_synchronization_waited() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("late.c")?;
        for options in [&["--stats"][..], &["--stats", "--messages"]] {
            let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
            arguments.extend([OsStr::new("--"), built.as_os_str()]);
            let output = mpi.with_preload(3, &arguments).output().expect("it was found");
            verdict("late", &output).expect("the program agrees");
            let said = text(&output.stderr);
            for (window, kind) in [("fence", "fence"), ("pscw", "pscw"), ("lock", "passive")] {
                let waited = waited(&said, &format!("allocated {window}"), kind);
                assert!(waited > 10_000.0, "{waited} in {window} {options:?}: {said}");
            }
            if options.len() == 1 {
                // long rows are added one at a time, so of two ranks that do nothing else one waits for the
                // other, at least now and then, even with few processors
                assert!(waited(&said, "allocated gate", "passive") > 10.0, "{said}");
            }
        }
    }
    Ok(())
}

/// A window that the program does not free is in the statistics, too; and callbacks of MPI_Finalize can still
/// use windows.
fn a_window_that_is_never_freed_is_counted() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("finalized.c")?;
        let arguments = [OsStr::new("--stats"), OsStr::new("--"), built.as_os_str(), OsStr::new("left open")];
        let output = mpi.with_preload(2, &arguments).output().expect("it was found");
        verdict("finalized", &output).expect("the program agrees");
        let said = text(&output.stderr);
        let left = below(&said, "allocated left open, never freed");
        assert!(numbers(&left, "fence").starts_with("2 epochs,"), "{said}");
        // the callback's window and barriers are in the table, because it is printed after the callback
        let late = below(&said, "allocated");
        assert_eq!(numbers(&late, "put"), "2 8 B - -", "{said}");
        assert!(numbers(&below(&said, "barriers"), "fence").contains("epochs"), "{said}");
    }
    Ok(())
}

/// A rank that ends the job prints the table of its windows so far. In a session there is no communicator of
/// all ranks, so each process prints its own table.
fn where_ranks_cannot_gather_each_prints_its_own_table() -> TestOutcome {
    let ended = |mpi: TestedMpi, file: &str| -> Result<String, Skipped> {
        let built = mpi.build(file)?;
        let arguments = [OsStr::new("--stats"), OsStr::new("--"), built.as_os_str()];
        Ok(text(&mpi.with_preload(2, &arguments).output().expect("it was found").stderr))
    };
    for mpi in MPIS {
        let said = ended(mpi, "unhandled.c")?;
        assert!(said.contains("unisono: rank 1, which ended the job: windows of 1 rank\n"), "{said}");
        assert!(said.contains("\nallocated, never freed\n"), "{said}");
    }
    let said = ended(TestedMpi::Mpich, "sessions.c")?;
    for rank in [0, 1] {
        let head = format!("unisono: rank {rank}, whose session has ended: windows of 1 rank\n");
        assert_eq!(said.matches(&head).count(), 1, "{said}");
    }
    assert!(numbers(&below(&said, "allocated"), "put").starts_with("10 40 B"), "{said}");
    Ok(())
}

/// A launcher that is told to end the job drops what it has not read. Here nobody reads, until the rank has
/// waited for as long as it waits at most.
fn a_rank_that_ends_the_job_waits_until_its_table_is_read() -> TestOutcome {
    let built = TestedMpi::Mpich.build("aborted.c")?;
    let mut alone = Command::new(program::unisono());
    alone.args(["mpi", "--stats", "--"]).arg(built).stdin(Stdio::null()).stdout(Stdio::null());
    let begun = Instant::now();
    let mut rank = alone.stderr(Stdio::piped()).spawn().expect("unisono starts");
    rank.wait().expect("it is a child");
    assert!(begun.elapsed() >= Duration::from_secs(1), "it did not wait: {:?}", begun.elapsed());
    let said = text(&rank.wait_with_output().expect("it is a child").stderr);
    assert!(said.contains("unisono: rank 0, which ended the job: windows of 1 rank\n"), "{said}");
    Ok(())
}

/// The heading counts the ranks also where none of them had a window.
fn a_job_without_windows_counts_its_ranks() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("nans.c")?;
        let arguments = [OsStr::new("--stats"), OsStr::new("--"), built.as_os_str()];
        let said = text(&mpi.with_preload(3, &arguments).output().expect("it was found").stderr);
        assert_eq!(said.matches("unisono: windows of 3 ranks together: none\n").count(), 1, "{said}");
    }
    Ok(())
}

host_tests![needs Nothing;
    a_job_without_windows_counts_its_ranks within 120,
    statistics_agree_with_a_program_whose_operations_are_known within 120,
    statistics_say_how_long_each_synchronization_waited within 120,
    a_window_that_is_never_freed_is_counted within 120,
    where_ranks_cannot_gather_each_prints_its_own_table within 120,
    a_rank_that_ends_the_job_waits_until_its_table_is_read,
];
