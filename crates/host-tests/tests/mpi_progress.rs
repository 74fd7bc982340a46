//! Tests that the messages of the program's own MPI make progress while a rank waits in Unisono. Each case
//! also runs with that progress switched off, and must hang then; otherwise the case would prove nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use unisono_host_tests::mpi::{MPIS, TestedMpi, verdict};
use unisono_host_tests::processes::text;
use unisono_host_tests::{TestOutcome, host_tests, one_in, program, require};

/// The calls in which rank 0 waits while rank 1 is in MPI_Recv for a message from rank 0, which arrives only
/// if rank 0 makes progress.
const PLACES: [&str; 6] = ["fence", "wait", "complete", "lock", "barrier", "free"];

/// The time after which a run counts as hanging, in seconds: longer than a run that does not hang takes, even
/// beside other load.
const HANGS_S: &str = "15";

/// Runs `mpiexec -n 2 unisono mpi -- rendezvous PLACE`, and ends it after `limit` seconds, or 300.
fn rendezvous(mpi: TestedMpi, built: &Path, place: &str, limit: Option<&str>, progress: bool) -> Output {
    let launcher = mpi.launcher(2);
    let mut command = Command::new("timeout");
    command.args(["-k", "2", limit.unwrap_or("300")]).arg(launcher.get_program()).args(launcher.get_args());
    command.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.arg(program::unisono()).args(["mpi", "--"]).arg(built).arg(place);
    if !progress {
        command.env("UNISONO_MPI_PROGRESS", "never");
    }
    if mpi == TestedMpi::OpenMpi {
        // otherwise, if the kernel permits it, the receiver copies the message out of the sender's memory by
        // itself
        command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    }
    command.stdin(std::process::Stdio::null()).output().expect("timeout starts because it was found")
}

fn messages_move_while_a_rank_waits_in(place: &str) -> TestOutcome {
    require::program("timeout", "apt-get install coreutils")?;
    for mpi in MPIS {
        let built = mpi.build("rendezvous.c")?;
        verdict("rendezvous", &rendezvous(mpi, &built, place, None, true)).expect("the program agrees");
    }
    Ok(())
}

fn messages_move_while_a_rank_waits_in_any_call() -> TestOutcome {
    PLACES.into_iter().try_for_each(messages_move_while_a_rank_waits_in)
}

fn without_progress_of_the_host_the_same_hangs() -> TestOutcome {
    require::nightly("mpi")?;
    require::program("timeout", "apt-get install coreutils")?;
    let built = MPIS.map(|mpi| mpi.build("rendezvous.c").map(|built| (mpi, built)));
    for place in PLACES.into_iter().step_by(one_in(6)) {
        // both MPIs at the same time, because each run hangs until its time limit
        let hanging = built.clone().map(|built| {
            let run = move |(mpi, built): (TestedMpi, PathBuf)| {
                (mpi, rendezvous(mpi, &built, place, Some(HANGS_S), false))
            };
            thread::spawn(move || built.map(run))
        });
        for hanging in hanging {
            let (mpi, output) = hanging.join().expect("it does not panic")?;
            let said = text(&output.stdout);
            assert!(
                !output.status.success() && !said.contains("ok rendezvous"),
                "{} in {place} needs no progress, so that it shows nothing: {said}",
                mpi.name()
            );
            // the program got as far as the wait
            assert!(said.contains("rank 0 waits"), "{} in {place}: {said}", mpi.name());
        }
    }
    Ok(())
}

host_tests![needs Nothing;
    messages_move_while_a_rank_waits_in_any_call within 300,
    without_progress_of_the_host_the_same_hangs within 400,
];
