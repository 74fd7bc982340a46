//! How a job under the MPI preload ends if one rank aborts, is killed or exits while the others wait for it.
//! No process hangs, the exit code reports the failure, and nothing is left in /dev/shm.

use std::ffi::OsStr;
use std::process::{Command, Output};
use unisono_host_tests::mpi::{MPIS, TestedMpi, verdict};
use unisono_host_tests::processes::{text, words};
use unisono_host_tests::{TestOutcome, host_tests, one_in, program, require};

/// Where the others wait, each in a call of its own.
const PLACES: [&str; 8] = ["fence", "wait", "complete", "lock", "copy", "barrier", "allocate", "free"];

/// Whether the launcher sees that a rank is dead, and ends the others, or does not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Launcher {
    Ends,
    LooksOn,
}

/// What a job said, and what it left in a /dev/shm that was its own.
struct Ended {
    output: Output,
    words: String,
    left: String,
}

/// `mpiexec -n 3 unisono mpi -- endings HOW WHERE`, with an empty /dev/shm that nobody else uses.
fn endings(
    mpi: TestedMpi,
    launcher: Launcher,
    options: &[&str],
    arguments: &[&str],
) -> Result<Ended, TestOutcome> {
    require::root().map_err(Err)?;
    require::unshare(&["--mount"]).map_err(Err)?;
    let built = mpi.build("endings.c").map_err(Err)?;
    let directory = tempfile::tempdir().expect("a directory");
    let left = directory.path().join("left");
    let mpiexec = mpi.launcher(3);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount -t tmpfs tmpfs /dev/shm && left=$1 && shift && \"$@\"; code=$?; ls -A /dev/shm >$left; exit $code");
    command.arg("sh").arg(&left).arg(mpiexec.get_program());
    command.envs(mpiexec.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(mpiexec.get_args()).arg(program::unisono()).arg("mpi").args(options).arg("--");
    if launcher == Launcher::LooksOn {
        // what it started is a shell, which lives on until the ranks that are left have said what there is to
        // say
        let linger = "\"$@\"; code=$?; : >$SAID.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; \
                      until [ -e $SAID.0 ] && [ -e $SAID.2 ]; do sleep 0.05; done; exit $code";
        command.args(["sh", "-c", linger, "sh"]).env("SAID", directory.path().join("said"));
        if arguments.len() > 2 {
            // Open MPI's daemon sees a rank's connection end, and would end the others; told not to, it waits
            // for all
            command.env("OMPI_MCA_orte_enable_recovery", "1");
        }
    }
    command.arg(built);
    let output = command.args(arguments).stdin(std::process::Stdio::null()).output().expect("it was found");
    let words = words(&output);
    let left = std::fs::read_to_string(left).unwrap_or_else(|error| {
        panic!("the shell in its own mount namespace wrote no list ({error}): {words}")
    });
    Ok(Ended { output, words, left })
}

/// Unwraps, or skips.
macro_rules! endings {
    ($($argument:expr),* $(,)?) => {
        match endings($($argument),*) {
            Ok(ended) => ended,
            Err(skipped) => return skipped,
        }
    };
}

/// An orderly world: what a stock job leaves behind is not asked here, but it should not be ours.
fn nothing_is_left(mpi: TestedMpi, place: &str, ended: &Ended) {
    let Ended { words, left, .. } = ended;
    let ours: Vec<&str> = left.lines().filter(|name| !is_of_host(name)).collect();
    assert!(ours.is_empty(), "{} in {place} left {ours:?}: {words}", mpi.name());
}

/// Segments by which the MPIs themselves pass messages; those of ranks that were killed stay.
fn is_of_host(name: &str) -> bool {
    ["vader_segment.", "mpich_shar_tmp", "ucx_shm_"].iter().any(|stem| name.starts_with(stem))
}

fn a_rank_aborts(options: &[&str]) -> TestOutcome {
    for mpi in MPIS {
        for place in PLACES.into_iter().step_by(one_in(3)) {
            let ended = endings!(mpi, Launcher::Ends, options, &["abort", place]);
            assert_eq!(ended.output.status.code(), Some(42), "{} in {place}: {}", mpi.name(), ended.words);
            nothing_is_left(mpi, place, &ended);
        }
    }
    Ok(())
}

fn a_rank_that_aborts_ends_those_who_wait_for_it() -> TestOutcome {
    a_rank_aborts(&[])
}

fn a_rank_that_aborts_ends_those_who_wait_for_its_messages() -> TestOutcome {
    a_rank_aborts(&["--messages"])
}

fn a_rank_that_is_killed_ends_the_job() -> TestOutcome {
    for mpi in MPIS {
        for place in PLACES.into_iter().step_by(one_in(3)) {
            let ended = endings!(mpi, Launcher::Ends, &[], &["kill", place]);
            assert!(!ended.output.status.success(), "{} in {place}: {}", mpi.name(), ended.words);
            nothing_is_left(mpi, place, &ended);
        }
    }
    Ok(())
}

/// Where the launcher does not see it those who wait find out by themselves, and name the rank.
fn a_rank_that_is_killed_is_named_by_those_who_wait_for_it() -> TestOutcome {
    for mpi in MPIS {
        for place in PLACES.into_iter().step_by(one_in(3)) {
            let ended = endings!(mpi, Launcher::LooksOn, &[], &["kill", place]);
            assert!(!ended.output.status.success(), "{} in {place}: {}", mpi.name(), ended.words);
            assert!(ended.words.contains("rank 1 is gone"), "{} in {place}: {}", mpi.name(), ended.words);
            nothing_is_left(mpi, place, &ended);
        }
    }
    Ok(())
}

/// An error code in place of the program's end, whose words name the rank, and none of the calls that follow
/// waits for the dead.
fn a_program_that_handles_errors_learns_who_was_killed_and_goes_on() -> TestOutcome {
    for mpi in MPIS {
        for place in PLACES.into_iter().step_by(one_in(3)) {
            let ended = endings!(mpi, Launcher::LooksOn, &[], &["kill", place, "returned"]);
            for rank in [0, 2] {
                let answered = format!("rank {rank}: answered {place} ");
                let code = ended.words.lines().find_map(|line| line.strip_prefix(&*answered));
                assert!(code.is_some_and(|code| code != "0"), "{} in {place}: {}", mpi.name(), ended.words);
                let means = format!("rank {rank}: that means: rank 1 is gone (process ");
                assert!(ended.words.contains(&means), "{} in {place}: {}", mpi.name(), ended.words);
                assert!(ended.words.contains(&format!("rank {rank}: went on to its end")), "{}", ended.words);
            }
            nothing_is_left(mpi, place, &ended);
        }
    }
    Ok(())
}

/// The same for the program's own handlers, of the window or of the communicator where there is no window.
fn an_error_handler_learns_who_was_killed() -> TestOutcome {
    for mpi in MPIS {
        for (place, whose) in [("fence", "window"), ("lock", "window"), ("barrier", "communicator")] {
            let ended = endings!(mpi, Launcher::LooksOn, &[], &["kill", place, "handled"]);
            for rank in [0, 2] {
                let words = format!("rank {rank}: {whose}'s handler: rank 1 is gone (process ");
                assert!(ended.words.contains(&words), "{} in {place}: {}", mpi.name(), ended.words);
            }
        }
    }
    Ok(())
}

/// Launchers end the job for a rank that ends without MPI_Finalize, each in its way: MPICH's says nothing if
/// the rank's exit code is zero.
fn a_rank_that_leaves_without_finalize_ends_the_job() -> TestOutcome {
    for mpi in MPIS {
        for how in ["exit", "leave"] {
            for place in ["fence", "wait", "lock", "barrier"].into_iter().step_by(one_in(2)) {
                let ended = endings!(mpi, Launcher::Ends, &[], &[how, place]);
                let silent = mpi == TestedMpi::Mpich && how == "exit";
                assert!(
                    silent || !ended.output.status.success(),
                    "{} {how} in {place}: {}",
                    mpi.name(),
                    ended.words
                );
                nothing_is_left(mpi, place, &ended);
            }
        }
    }
    Ok(())
}

fn a_rank_that_leaves_without_finalize_is_named_by_those_who_wait_for_it() -> TestOutcome {
    for how in ["exit", "leave"] {
        for place in ["fence", "wait", "lock", "barrier"].into_iter().step_by(one_in(2)) {
            let ended = endings!(TestedMpi::Mpich, Launcher::LooksOn, &[], &[how, place]);
            assert!(!ended.output.status.success(), "{how} in {place}: {}", ended.words);
            assert!(ended.words.contains("rank 1 is gone"), "{how} in {place}: {}", ended.words);
            nothing_is_left(TestedMpi::Mpich, place, &ended);
        }
    }
    Ok(())
}

/// A shell that is started in place of the program, and starts it as its child.
fn a_shell_may_start_the_program() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("counted.c")?;
        let line = format!("{}; code=$?; exit $code", built.display());
        let mut command = mpi.launcher(2);
        command.arg(program::unisono()).args(["mpi", "--stats", "--", "sh", "-c", &line]);
        let output = command.output().expect("it was found");
        verdict("counted", &output).expect("the program agrees");
        let said = text(&output.stderr);
        let counted =
            said.contains("\nallocated counted (2 times)\n") && said.contains(" 22 epochs, waited ");
        assert!(counted, "{}: {said}", mpi.name());
    }
    Ok(())
}

/// `unisono mpi` twice is once.
fn a_start_inside_a_start_changes_nothing() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("counted.c")?;
        let unisono = program::unisono();
        let mut command = mpi.launcher(2);
        command.arg(&unisono).args([OsStr::new("mpi"), OsStr::new("--stats"), OsStr::new("--")]);
        command.arg(&unisono).args([OsStr::new("mpi"), OsStr::new("--"), built.as_os_str()]);
        let output = command.output().expect("it was found");
        verdict("counted", &output).expect("the program agrees");
        let said = text(&output.stderr);
        assert_eq!(said.matches("\nallocated counted (2 times)\n").count(), 1, "{said}");
    }
    Ok(())
}

/// The launcher belongs before `unisono mpi`, not after it.
fn a_launcher_in_place_of_the_program_is_refused() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("counted.c")?;
        for launcher in [format!("mpiexec.{}", mpi.name()), format!("mpirun.{}", mpi.name())] {
            let mut command = Command::new(program::unisono());
            command.args(["mpi", "--", &launcher, "-n", "2"]).arg(&built);
            let output = command.stdin(std::process::Stdio::null()).output().expect("it starts");
            let words = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words}");
            assert!(words.contains(&launcher) && words.contains("unisono mpi -- "), "{words}");
        }
    }
    Ok(())
}

/// Jobs without MPI inside of each rank: their ranks are theirs, and the outer windows go on.
fn a_program_may_start_jobs_without_mpi() -> TestOutcome {
    let table = program::directory().join("hash-table");
    for mpi in MPIS {
        let built = mpi.build("starts.c")?;
        let unisono = program::unisono();
        let line = format!("{} run -n 2 {} --keys 500", unisono.display(), table.display());
        let mut command = mpi.launcher(2);
        command.arg(&unisono).args([OsStr::new("mpi"), OsStr::new("--"), built.as_os_str()]).arg(line);
        let output = command.output().expect("it was found");
        verdict("starts", &output).expect("the program agrees");
        let said = text(&output.stdout);
        assert_eq!(said.matches("each found exactly once").count(), 2, "{}: {said}", mpi.name());
    }
    Ok(())
}

host_tests![needs Nothing;
    a_rank_that_aborts_ends_those_who_wait_for_it within 120,
    a_rank_that_aborts_ends_those_who_wait_for_its_messages within 120,
    a_rank_that_is_killed_ends_the_job within 120,
    a_rank_that_is_killed_is_named_by_those_who_wait_for_it within 120,
    a_program_that_handles_errors_learns_who_was_killed_and_goes_on within 180,
    an_error_handler_learns_who_was_killed within 120,
    a_rank_that_leaves_without_finalize_ends_the_job within 120,
    a_rank_that_leaves_without_finalize_is_named_by_those_who_wait_for_it within 120,
    a_shell_may_start_the_program within 120,
    a_start_inside_a_start_changes_nothing within 120,
    a_launcher_in_place_of_the_program_is_refused within 120,
    a_program_may_start_jobs_without_mpi within 120,
];
