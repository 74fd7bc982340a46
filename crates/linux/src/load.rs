//! The number of threads that want a processor now.
//!
//! The fourth field of `/proc/loadavg` counts the runnable threads of the whole machine at this moment, even
//! in containers. The averages in the same file cover a minute or more and do not show programs that have
//! just begun. The field does not tell which processors the threads want. A process that may use only some of
//! the processors reads the state and the processor of each thread; in a container, which does not show the
//! threads of others, it reads which of its processors were idle.
//!
//! Cost: one small file, read three times, with pauses of 0.6 ms in total. If only some processors may be
//! used and the machine is not idle, also one more file for each thread of the machine, at about 10 us each;
//! in a container, a pause of 30 ms instead. Reference: proc_loadavg(5), proc_pid_stat(5), proc_stat(5).

use crate::affinity::{CpuSet, Tid};
use crate::process_list;
use crate::process_stat::ProcessStat;
use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::Duration;

/// The number of readings, and the pause between two: a thread that runs only briefly rarely appears in all
/// of them.
const SAMPLES: usize = 3;
const SAMPLE_INTERVAL: Duration = Duration::from_micros(300);
/// The observation time of processors: three ticks of `/proc/stat`.
const IDLE_INTERVAL: Duration = Duration::from_millis(30);
/// A processor with at least this many idle ticks, of three, counts as unused.
const IDLE_TICKS: u64 = 2;

/// Returns the minimum number of other runnable threads in a few readings within a millisecond; `None` if the
/// kernel does not report it.
pub fn others() -> Option<usize> {
    let sample = |number| {
        if number > 0 {
            thread::sleep(SAMPLE_INTERVAL);
        }
        let running = running(&fs::read_to_string("/proc/loadavg").ok()?)?;
        // the reading thread itself is counted too
        Some(running.saturating_sub(1))
    };
    (0..SAMPLES).map(sample).collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Does the same as [`others`], but counts only threads that want one of the processors `allowed`, on a
/// machine with `online` processors.
pub fn others_on(allowed: &CpuSet, online: usize) -> Option<usize> {
    let all = others()?;
    if all == 0 || allowed.len() >= online {
        return Some(all);
    }
    Some(others_by_processor(allowed)?.values().sum::<usize>().min(all))
}

/// Returns, for each processor of `allowed`, the number of other threads that want it; processors that no
/// thread wants are left out. In a container, the number is 1 for each processor that is not idle. `None` if
/// the kernel does not report it.
pub fn others_by_processor(allowed: &CpuSet) -> Option<BTreeMap<usize, usize>> {
    if sees_every_process() { Some(runnable(allowed)) } else { busy(allowed) }
}

/// Returns whether `/proc` shows the processes of the whole machine: then process 2 is the kernel's
/// `kthreadd`.
fn sees_every_process() -> bool {
    fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd")
}

/// Counts by processor the threads, other than this one, that run or wait on these processors at both of two
/// readings.
fn runnable(allowed: &CpuSet) -> BTreeMap<usize, usize> {
    let own = Tid::current().0;
    let is_there = |thread: i32| {
        let stat = ProcessStat::read(thread).filter(|stat| stat.state == 'R' && thread != own)?;
        stat.processor.filter(|processor| allowed.contains(*processor))
    };
    let threads = |process: i32| {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
    };
    let first: Vec<i32> = process_list::numbers()
        .into_iter()
        .flat_map(threads)
        .filter(|one| is_there(*one).is_some())
        .collect();
    thread::sleep(SAMPLE_INTERVAL);
    let mut counts = BTreeMap::new();
    for processor in first.into_iter().filter_map(is_there) {
        *counts.entry(processor).or_default() += 1;
    }
    counts
}

/// Returns 1 for each processor of `allowed` that was not idle while this thread slept.
fn busy(allowed: &CpuSet) -> Option<BTreeMap<usize, usize>> {
    let before = idle_ticks(&fs::read_to_string("/proc/stat").ok()?);
    thread::sleep(IDLE_INTERVAL);
    let after = idle_ticks(&fs::read_to_string("/proc/stat").ok()?);
    let was_idle = |cpu: &usize| {
        let ticks = after.get(cpu).zip(before.get(cpu));
        ticks.is_some_and(|(after, before)| after.saturating_sub(*before) >= IDLE_TICKS)
    };
    Some(allowed.iter().filter(|cpu| !was_idle(cpu)).map(|cpu| (cpu, 1)).collect())
}

/// Returns the idle ticks of each processor, including ticks in which it waited for a disk.
fn idle_ticks(stat: &str) -> BTreeMap<usize, u64> {
    let processor = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let number = fields.next()?.parse().ok()?;
        let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        Some((number, ticks.get(3)? + ticks.get(4)?))
    };
    // the line of all processors together has no number
    stat.lines().filter(|line| !line.starts_with("cpu ")).filter_map(processor).collect()
}

fn running(text: &str) -> Option<usize> {
    text.split_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_that_want_to_run_are_the_first_number_of_the_fourth_field() {
        assert_eq!(running("4.08 2.92 3.14 5/312 12345\n"), Some(5));
        for text in ["", "4.08 2.92 3.14", "4.08 2.92 3.14 x/3 1", "4.08 2.92 3.14 5 1"] {
            assert_eq!(running(text), None, "{text}");
        }
    }

    #[test]
    fn the_idle_ticks_of_each_processor_are_the_fourth_and_fifth_number_of_its_line() {
        let text = "cpu  9 9 9 9 9 9\ncpu0 1 2 3 40 5 6 7 8\ncpu11 1 2 3 50 6\nintr 4\ncpu2 1 2\n";
        assert_eq!(idle_ticks(text), BTreeMap::from([(0, 45), (11, 56)]));
    }

    #[test]
    fn a_loop_wants_the_processor_that_it_is_bound_to() {
        let all = crate::affinity::allowed(Tid::SELF).expect("own affinity");
        let bound = CpuSet::single(all.iter().next_back().expect("some processor"));
        let (started, starts) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let cpus = bound.clone();
        let thread = thread::spawn(move || {
            crate::affinity::restrict_own(&cpus).expect("one of ours");
            started.send(()).expect("it is heard");
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {}
        });
        starts.recv().expect("it starts");
        assert!(runnable(&bound).values().sum::<usize>() >= 1);
        assert!(runnable(&CpuSet::empty()).is_empty());
        drop(end);
        thread.join().expect("it ends");
    }

    #[test]
    fn this_machine_says_how_many_there_are() {
        assert!(others().is_some());
    }
}
