//! The other ranks: this program, started again.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use unisono_rma::{Job, JobMembership, Key, Rank, environment};

/// The environment variable that names the part that a child plays.
const PART: &str = "UNISONO_TEST_PART";
/// Exit code of a child whose part went well.
pub(crate) const WELL: i32 = 17;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a place in a job.
pub(crate) fn place(rank: u32, size: usize, key: Key) -> JobMembership {
    JobMembership { rank: Rank(rank), size, key }
}

/// Returns the command for a process that plays a part at a place.
pub(crate) fn command(part: &str, place: &JobMembership) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test knows its file"));
    command
        .args(["--exact", "children::plays_a_part", "--include-ignored", "--nocapture"])
        .env(PART, part)
        .env(environment::RANK, place.rank.to_string())
        .env(environment::SIZE, place.size.to_string())
        .env(environment::KEY, place.key.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    command
}

/// Starts a process that plays a part at a place.
pub(crate) fn start(part: &str, place: &JobMembership) -> Child {
    command(part, place).spawn().expect("this test can be started again")
}

/// Starts a process that plays a part at a place, with more environment variables.
pub(crate) fn start_with(part: &str, place: &JobMembership, more: &[(&str, &str)]) -> Child {
    command(part, place).envs(more.iter().copied()).spawn().expect("this test can be started again")
}

/// Waits for a child whose part must go well.
pub(crate) fn went_well(mut child: Child) {
    let code = child.wait().expect("our child can be collected").code();
    assert_eq!(code, Some(WELL), "the child's part");
}

/// Plays the part of a child. It is no test by itself: the tests start it in other processes.
#[test]
#[ignore = "started by the tests that need more processes"]
fn plays_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let place =
        JobMembership::from_environment().expect("values that make sense").expect("the parent set them");
    match part.as_str() {
        "orphan" => {
            // This process only starts a child, which is an orphan once this process has ended.
            let orphan = command("joins", &place).stdin(Stdio::null()).spawn().expect("can be started");
            drop(orphan);
        }
        "joins" => {
            let job = Job::shared(&place, TIMEOUT).expect("all come");
            assert_eq!((job.rank(), job.size()), (place.rank, place.size));
        }
        "stays" => {
            let _job = Job::shared(&place, TIMEOUT).expect("all come");
            // Until it is killed, or until the parent is gone.
            let _ = std::io::stdin().read(&mut [0; 1]);
        }
        "passes" => {
            crate::many::passes_its_number_on(&place);
        }
        "many windows" => crate::limits::has_many_windows(&place),
        "runs out" => crate::limits::runs_out(&place),
        "exposes" => crate::strangers::exposes(&place),
        "stranger" => crate::strangers::is_a_stranger(),
        "dies" => crate::deaths::child(&place),
        other => panic!("no part is called {other}"),
    }
    std::process::exit(WELL);
}
