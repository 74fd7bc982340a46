//! Windows take no descriptors, and an exhausted limit gives the same error class at all members.

use crate::children::{TIMEOUT, WELL, command, place};
use crate::watchdog::watched;
use std::fs::File;
use std::process::Command;
use unisono_rma::{Assert, Error, ErrorClass, Job, JobMembership, Key, Rank, Spec, Window};

/// The number of windows that exist at the same time.
const WINDOWS: usize = 10_000;
/// Open files that each process may have: far fewer than windows, and the default of a shell.
const FILES: usize = 1024;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn passes_on(window: &mut Window, word: u64) -> Result<(), Error> {
    let rank = window.rank();
    window.fence(Assert::NO_PRECEDE)?;
    window.put(&[word + u64::from(rank.0)], Rank(1 - rank.0), 0)?;
    window.fence(Assert::NO_SUCCEED)?;
    let mut came = [0];
    window.load(0, &mut came)?;
    assert_eq!(came, [word + u64::from(1 - rank.0)], "window {word}");
    Ok(())
}

/// Makes many windows that exist at the same time, with both kinds of memory; uses and frees them.
pub(crate) fn has_many_windows(place: &JobMembership) {
    let mut job = Job::shared(place, TIMEOUT).expect("all come");
    let make = |job: &mut Job, number: usize| {
        if number.is_multiple_of(16) {
            job.create_static(vec![0; 8].leak(), Spec::new())
        } else {
            job.allocate(8, Spec::new())
        }
    };
    // A job opens some descriptors whatever the number of its windows: those of other processes, and of the
    // job's barrier.
    let mut windows = vec![make(&mut job, 0).expect("a small window")];
    job.barrier().expect("all live");
    let before = descriptors();
    windows.extend((1..WINDOWS).map(|number| {
        make(&mut job, number).unwrap_or_else(|error| panic!("window {number} of {WINDOWS}: {error}"))
    }));
    assert!(descriptors() <= before, "{} descriptors, {before} with one window", descriptors());
    for (number, window) in windows.iter_mut().enumerate().step_by(97) {
        assert!(window.is_direct());
        passes_on(window, number as u64).expect("all live");
    }
    windows.iter_mut().try_for_each(Window::free).expect("all live");
    job.finalize().expect("all end");
}

/// Makes windows while first rank 1 and then rank 0 has no descriptor left.
pub(crate) fn runs_out(place: &JobMembership) {
    let mut job = Job::shared(place, TIMEOUT).expect("all come");
    job.allocate(8, Spec::new()).and_then(|mut window| window.free()).expect("a small window");
    for without in [Rank(1), Rank(0)] {
        let mut taken = Vec::new();
        if place.rank == without {
            taken.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        }
        let refused = job.allocate(8, Spec::new()).expect_err("no descriptor is left");
        drop(taken);
        assert!(matches!(refused, Error::Exhausted { .. }), "{refused}");
        assert_eq!(refused.class(), ErrorClass::NoMem);
        let text = refused.to_string();
        assert!(text.contains("ulimit -n"), "{text}");
        assert!(place.rank == without || text.contains(&format!("rank {without}")), "{text}");
    }
    let mut window = job.allocate(8, Spec::new()).expect("there are descriptors again");
    passes_on(&mut window, 7).expect("all live");
    window.free().expect("all live");
    job.finalize().expect("all end");
}

/// Runs two ranks that may have `files` open files.
fn with_few_files(part: &str, files: usize) {
    watched(part, || {
        let key = Key::random().expect("the kernel has random bytes");
        let begin = |rank| {
            let told = command(part, &place(rank, 2, key));
            let mut command = Command::new("sh");
            command.args(["-c", &format!("ulimit -n {files} && exec \"$@\""), "sh"]);
            command.arg(told.get_program()).args(told.get_args());
            command.envs(told.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.stdout(std::process::Stdio::null()).spawn().expect("sh(1) exists")
        };
        for mut child in [0, 1].map(begin) {
            assert_eq!(child.wait().expect("our child can be collected").code(), Some(WELL), "{part}");
        }
    });
}

#[test]
fn ten_thousand_windows_live_at_a_time_where_a_thousand_files_may_be_open() {
    with_few_files("many windows", FILES);
}

#[test]
fn a_limit_that_one_rank_meets_is_the_same_error_at_all_and_the_job_goes_on() {
    with_few_files("runs out", 64);
}
