//! Messages of several ranks at the same time do not mix within a line, and a message common to all ranks
//! appears once per host.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

/// A shell script that starts `unisono`, whose path is `$0`, and exits with the exit code of `unisono`.
const ALONE: &str = "\"$0\" mpi ./nothere; exit $?";
/// The same script as [`ALONE`], but the shell has another child.
const BESIDE: &str = "sleep 60 & \"$0\" mpi ./nothere; code=$?; kill $!; exit $code";

/// Returns the exit code of a program, and the text of each write(2) to its standard error, which is a
/// datagram socket, so that each write is a datagram.
fn writes(command: &mut Command) -> (Option<i32>, Vec<String>) {
    let (ours, theirs) = UnixDatagram::pair().expect("two sockets");
    let code = command.stderr(OwnedFd::from(theirs)).status().expect("the program starts").code();
    ours.set_nonblocking(true).expect("a socket of ours");
    let mut bytes = [0; 4096];
    let read =
        || ours.recv(&mut bytes).ok().map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned());
    (code, std::iter::from_fn(read).take_while(|written| !written.is_empty()).collect())
}

#[test]
fn an_error_is_one_line_by_one_write() {
    for arguments in [&["mpi", "./nothere"][..], &["run", "-n", "2", "./nothere"]] {
        let (code, written) = writes(Command::new(env!("CARGO_BIN_EXE_unisono")).args(arguments));
        let [line] = &written[..] else { panic!("{arguments:?}: {written:?}") };
        assert!(line.ends_with('\n') && line.contains("./nothere"), "{line}");
        assert_eq!(
            (code, line.matches("unisono: ").count(), line.lines().count()),
            (Some(2), 1, 1),
            "{line}"
        );
    }
}

#[test]
fn the_first_rank_of_a_host_prints_the_settings_of_fit() {
    for name in ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PMI_RANK", "PMIX_RANK"] {
        for (rank, prints) in [("0", true), ("1", false)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
            command.args(["fit", "--", "true"]).env("OMP_NUM_THREADS", "8192").env(name, rank);
            let (code, written) = writes(&mut command);
            assert_eq!((code, !written.is_empty()), (Some(0), prints), "{name}={rank}: {written:?}");
        }
    }
}

#[test]
fn what_all_ranks_of_a_host_would_say_is_said_by_the_first() {
    for (rank, launcher, lines) in [("0", ALONE, 1), ("1", ALONE, 0), ("0", BESIDE, 1), ("1", BESIDE, 1)] {
        for name in ["PMI_RANK", "OMPI_COMM_WORLD_RANK"] {
            let mut command = Command::new("sh");
            command.args(["-c", launcher, env!("CARGO_BIN_EXE_unisono")]).env(name, rank);
            let (code, written) = writes(&mut command);
            assert_eq!((code, written.len()), (Some(2), lines), "{name}={rank} {launcher}: {written:?}");
        }
    }
}
