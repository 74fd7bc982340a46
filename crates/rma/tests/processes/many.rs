//! Far more ranks than processors: they meet, make a window, fence, and take little memory for it.

use crate::children::{TIMEOUT, WELL, command, place, start, went_well};
use crate::watchdog::watched;
use std::process::Stdio;
use unisono_rma::{Assert, Job, JobMembership, Key, Rank, STATS, Spec};

const RANKS: usize = 64;

/// Runs one rank, which puts its number to the next rank, and checks the number of the rank before. Returns
/// the shared memory that this process has touched, in kilobytes.
pub(crate) fn passes_its_number_on(place: &JobMembership) -> Option<u64> {
    let (rank, size) = (place.rank.index(), place.size);
    let mut job = Job::shared(place, TIMEOUT).expect("all come");
    let mut window = job.allocate(8, Spec::new()).expect("a small window");
    for round in 0..3_u64 {
        window.fence(Assert::NO_PRECEDE).expect("all live");
        window.put(&[1000 * round + rank as u64], Rank::at((rank + 1) % size), 0).expect("inside the window");
        window.fence(Assert::NO_SUCCEED).expect("all live");
        let mut came = [0_u64];
        window.load(0, &mut came).expect("inside the window");
        assert_eq!(came[0], 1000 * round + ((rank + size - 1) % size) as u64);
        // The next round's put must not come before all ranks have read.
        job.barrier().expect("all live");
    }
    let touched = resident_shared();
    window.free().expect("all live");
    job.finalize().expect("all end");
    touched
}

/// Returns the shared memory that this process has touched, in kilobytes.
fn resident_shared() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("RssShmem:")?.trim().strip_suffix(" kB")?.parse().ok())
}

#[test]
#[expect(clippy::print_stdout, reason = "the runner of tests counts what was skipped, with the reason")]
fn sixty_four_ranks_make_a_window_and_touch_little_memory() {
    watched("many", || {
        let key = Key::random().expect("the kernel has random bytes");
        let before = resident_shared();
        let started: Vec<_> =
            (1..RANKS as u32).map(|rank| start("passes", &place(rank, RANKS, key))).collect();
        let touched = passes_its_number_on(&place(0, RANKS, key));
        started.into_iter().for_each(went_well);
        match (before, touched) {
            (Some(before), Some(touched)) => {
                assert!(touched <= before + 8192, "{touched} kB of shared memory");
            }
            _ => println!("skipped: /proc/self/status has no RssShmem here"),
        }
    });
}

#[test]
fn a_job_that_is_asked_to_prints_one_table_of_all_its_ranks() {
    watched("table", || {
        let key = Key::random().expect("the kernel has random bytes");
        let begin = |rank| {
            let mut part = command("passes", &place(rank, 3, key));
            part.env(STATS, "1").stderr(Stdio::piped()).spawn().expect("this test can be started again")
        };
        let tables: Vec<String> = [0, 1, 2]
            .map(begin)
            .into_iter()
            .map(|rank| {
                let output = rank.wait_with_output().expect("our child can be collected");
                assert_eq!(output.status.code(), Some(WELL));
                String::from_utf8_lossy(&output.stderr).into_owned()
            })
            .collect();
        // Three rounds, one put of eight bytes a rank.
        let puts = tables[0].lines().find(|line| line.trim_start().starts_with("put")).unwrap_or_default();
        assert_eq!(
            puts.split_whitespace().collect::<Vec<_>>(),
            ["put", "9", "72", "B", "-", "-"],
            "{tables:?}"
        );
        assert!(tables[0].starts_with("unisono: windows of 3 ranks together\n"), "{tables:?}");
        assert!(tables[0].contains("\nallocated\n"), "{tables:?}");
        assert!(tables[1].is_empty() && tables[2].is_empty(), "{tables:?}");
    });
}
