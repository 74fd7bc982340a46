//! The host MPI's messages make progress while a rank waits in Unisono. Each case also runs with that
//! switched off and has to hang then, because otherwise it would show nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use unisono_host_tests::mpi::{MPIS, TestedMpi, verdict};
use unisono_host_tests::processes::text;
use unisono_host_tests::{TestOutcome, host_tests, one_in, program, require};

/// Where rank 0 waits while rank 1 is in MPI_Recv for a message of its, which needs rank 0 to arrive.
const PLACES: [&str; 6] = ["fence", "wait", "complete", "lock", "barrier", "free"];

/// Longer than a run takes that does not hang, even beside other load; what is waited for is that nothing
/// happens.
const HANGS_S: &str = "15";

/// `mpiexec -n 2 unisono mpi -- rendezvous PLACE`, ended after a while if that is wanted.
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
        // otherwise the receiver fetches the message from the sender's memory, where the kernel lets it
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
        // one hangs whatever the other does: both at a time
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
            // it came as far as the wait
            assert!(said.contains("rank 0 waits"), "{} in {place}: {said}", mpi.name());
        }
    }
    Ok(())
}

host_tests![needs Nothing;
    messages_move_while_a_rank_waits_in_any_call within 300,
    without_progress_of_the_host_the_same_hangs within 400,
];
