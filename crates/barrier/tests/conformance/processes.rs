//! Real processes, and kill -9.

use crate::Subject;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_barrier::{Cause, Error, Group};

const PATH: &str = "UNISONO_TEST_BARRIER";
const PLACE: &str = "UNISONO_TEST_PLACE";

pub(crate) fn a_killed_process_is_named_within_a_second(subject: Subject) {
    let group = subject.group(3, 3);
    let mut me = group.participant(0).expect("the place is free");
    let mut children: Vec<Child> = [1, 2].map(|place| child(&group, place)).into();
    for _ in 0..20 {
        me.wait().expect("the children take part");
    }
    children[1].kill().expect("our child can be killed");
    let killed = Instant::now();
    let gone = loop {
        match me.wait() {
            Ok(_) => {}
            Err(Error::Gone(gone)) => break gone,
            Err(other) => panic!("a member was killed, yet {other}"),
        }
    };
    let noticed = killed.elapsed();
    assert_eq!((gone.participant, gone.process, gone.cause), (2, children[1].id(), Cause::Died));
    // The other child is told as well, and says so by its exit code.
    let told = children[0].wait().expect("our child can be collected");
    assert_eq!(told.code(), Some(32), "the surviving child ends with the place it was told");
    children[1].wait().expect("our child can be collected");
    // No upper bounds on a machine of unknown load, but for the one that is promised; tenfold.
    assert!(noticed < Duration::from_secs(10), "noticed after {noticed:?}");
}

fn child(group: &Group, place: usize) -> Child {
    Command::new(std::env::current_exe().expect("a test knows its file"))
        .args(["--exact", "processes::child_takes_part_until_somebody_is_gone", "--include-ignored"])
        .env(PATH, group.path().expect("a group in shared memory has a path"))
        .env(PLACE, place.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("this test can be started again")
}

/// Not a test of its own: the other side of the one above, which starts it.
#[test]
#[ignore = "started by the tests that need a second process"]
fn child_takes_part_until_somebody_is_gone() {
    let Some(path) = std::env::var_os(PATH) else { return };
    let place = std::env::var(PLACE).expect("the parent names the place").parse().expect("a number");
    let mut me =
        Group::open(Path::new(&path)).expect("the parent lives").participant(place).expect("it is free");
    loop {
        match me.wait() {
            Ok(_) => {}
            Err(Error::Gone(gone)) => {
                std::process::exit(30 + i32::try_from(gone.participant).expect("small"))
            }
            Err(_) => std::process::exit(1),
        }
    }
}
