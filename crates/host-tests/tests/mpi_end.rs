//! Tests how a job under the MPI preload ends if one rank aborts, is killed or exits while the others wait
//! for it: no process hangs, the exit code reports the failure, and nothing is left in /dev/shm.

use std::ffi::OsStr;
use std::process::{Command, Output};
use unisono_host_tests::mpi::{MPIS, TestedMpi, verdict};
use unisono_host_tests::processes::{text, words};
use unisono_host_tests::{TestOutcome, host_tests, one_in, program, require};

/// The calls in which the other ranks wait.
const PLACES: [&str; 8] = ["fence", "wait", "complete", "lock", "copy", "barrier", "allocate", "free"];

/// Whether the launcher notices that a rank is dead and ends the others, or does not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Launcher {
    Ends,
    LooksOn,
}

/// The output of a job, and what it left in its own /dev/shm.
struct Ended {
    output: Output,
    words: String,
    left: String,
}

/// Runs `mpiexec -n 3 unisono mpi -- endings HOW WHERE` with an empty /dev/shm that no other process uses.
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
        // the launcher starts shells: that of the dead rank runs on until the remaining ranks have ended
        let linger = "\"$@\"; code=$?; : >$SAID.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; \
                      until [ -e $SAID.0 ] && [ -e $SAID.2 ]; do sleep 0.05; done; exit $code";
        command.args(["sh", "-c", linger, "sh"]).env("SAID", directory.path().join("said"));
        if arguments.len() > 2 {
            // otherwise Open MPI's daemon would notice the end of a rank's connection and end the others
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

/// Unwraps the result of [`endings()`], or returns it from the test.
macro_rules! endings {
    ($($argument:expr),* $(,)?) => {
        match endings($($argument),*) {
            Ok(ended) => ended,
            Err(skipped) => return skipped,
        }
    };
}

/// Asserts that no file of Unisono is left. Files that the MPIs themselves leave do not count.
fn nothing_is_left(mpi: TestedMpi, place: &str, ended: &Ended) {
    let Ended { words, left, .. } = ended;
    let ours: Vec<&str> = left.lines().filter(|name| !is_of_host(name)).collect();
    assert!(ours.is_empty(), "{} in {place} left {ours:?}: {words}", mpi.name());
}

/// Returns whether a file is a segment through which an MPI itself passes messages; those of killed ranks
/// stay.
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

/// If the launcher does not notice it, the ranks that wait find out by themselves, and name the rank.
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

/// Calls return an error code instead of ending the program. Its text names the rank, and no later call waits
/// for the dead rank.
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

/// The same with the program's own error handler, of the window, or of the communicator if there is no
/// window.
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

/// Each launcher ends the job if a rank ends without MPI_Finalize. MPICH's does so without a message if the
/// rank's exit code is zero.
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

/// `unisono mpi` starts a shell, which starts the program as its child.
fn a_shell_may_start_the_program() -> TestOutcome {
    for mpi in MPIS {
        let built = mpi.build("counted.c")?;
        let line = format!("{}; code=$?; exit $code", built.display());
        let mut command = mpi.launcher(2);
        command.arg(program::unisono()).args(["mpi", "--stats", "--", "sh", "-c", &line]);
        let output = command.output().expect("it was found");
        verdict("counted", &output).expect("the program agrees");
        let said = text(&output.stderr);
        let counted = said.contains("\nallocated counted\n") && said.contains(" 22 epochs, waited ");
        assert!(counted, "{}: {said}", mpi.name());
    }
    Ok(())
}

/// `unisono mpi` before `unisono mpi` has the effect of one.
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
        assert_eq!(said.matches("\nallocated counted\n").count(), 1, "{said}");
    }
    Ok(())
}

/// The launcher has to be before `unisono mpi`, not after it.
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

/// Each rank starts a job without MPI. The ranks of these jobs are their own, and the windows of the outer
/// job still work.
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
