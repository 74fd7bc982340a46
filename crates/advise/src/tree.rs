//! Reads the times and sleeps of all threads of a few programs, and of all processes that these started.
//!
//! A process belongs to a program if the program or one of its children started it. A process whose parent
//! has ended is found by its process group. Cost: reads a file for each process of the machine, and two for
//! each thread of the programs (about 10 us each).
//!
//! Reference: proc_pid_stat(5), proc_pid_status(5), Documentation/scheduler/sched-stats.rst.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use unisono_linux::affinity::Tid;
use unisono_linux::clock::{Duration, Instant};
use unisono_linux::process_list::with_descendants;
use unisono_linux::processor_ticks::ProcessorTicks;
use unisono_linux::schedstat;

/// The times and sleeps of one thread since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadReading {
    pub ran: Duration,
    /// Time in which the thread was runnable but had no processor.
    pub waited: Duration,
    /// The number of times that the thread went to sleep.
    pub sleeps: u64,
}

/// One reading of the programs' threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeReading {
    pub at: Instant,
    /// The threads, by process ID and thread ID.
    pub threads: BTreeMap<(i32, i32), ThreadReading>,
    /// Processor time that all programs on this machine used since it booted.
    pub machine_time: Duration,
}

/// Returns the processes of the groups that `leaders` lead, and all descendants of `leaders`.
pub fn program_processes(leaders: &[i32]) -> BTreeSet<i32> {
    with_descendants(|one| leaders.contains(&one.number) || leaders.contains(&one.group))
}

/// Reads all threads of the programs. A thread that ends meanwhile is left out.
pub fn read(leaders: &[i32], at: Instant) -> TreeReading {
    let mut reading =
        TreeReading { at, threads: BTreeMap::new(), machine_time: machine_time().unwrap_or_default() };
    for process in program_processes(leaders) {
        // Without this, the figures of a running thread are as old as its last tick. It fails for a process
        // that has ended, which needs no refresh.
        let _ = schedstat::refresh(Tid(process));
        let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for thread in tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse::<i32>().ok()) {
            let Ok(times) = schedstat::read(Tid(thread)) else { continue };
            let sleeps = schedstat::sleeps(Tid(thread)).unwrap_or(0);
            let (ran, waited) = (Duration::from_nanos(times.ran_ns), Duration::from_nanos(times.waited_ns));
            let one = ThreadReading { ran, waited, sleeps };
            reading.threads.insert((process, thread), one);
        }
    }
    reading
}

/// Returns the processor time of all programs since this machine booted, from the first line of `/proc/stat`.
pub fn machine_time() -> Option<Duration> {
    // a tick is a hundredth of a second
    Some(Duration::from_millis(ProcessorTicks::now()?.busy * 10))
}

/// Returns the loaded runtimes that decide how a process's threads wait, by file name with version:
/// `libgomp.so.1.0.0`.
pub fn loaded_runtimes(leaders: &[i32]) -> BTreeSet<String> {
    const KNOWN: [&str; 11] = [
        "libgomp",
        "libomp",
        "libiomp5",
        "libopenblas",
        "libmkl_",
        "libtbb",
        "libmpi.",
        "libmpi_abi",
        "libmpich",
        "libjvm",
        "libtorch_cpu",
    ];
    let mut found = BTreeSet::new();
    for process in program_processes(leaders) {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        for line in maps.lines() {
            let Some((_, name)) = line.rsplit_once('/') else { continue };
            if KNOWN.iter().any(|known| name.starts_with(known)) {
                found.insert(name.trim_end_matches(" (deleted)").to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use unisono_linux::clock;

    #[test]
    fn what_a_child_of_a_child_computes_is_read() {
        let script = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; read x' & wait";
        let mut child =
            Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("a shell");
        let leader = i32::try_from(child.id()).expect("a number");
        let end = clock::now() + Duration::from_secs(60);
        let busy = loop {
            let reading = read(&[leader], Instant::ZERO);
            let ran = |((process, _), one): (&(i32, i32), &ThreadReading)| {
                *process != leader && one.ran > Duration::from_millis(1)
            };
            if reading.threads.iter().any(ran) {
                break true;
            }
            if clock::now() > end {
                break false;
            }
            std::thread::sleep(Duration::from_millis(5).into());
        };
        for process in program_processes(&[leader]) {
            let process =
                unisono_linux::pinned::PinnedProcess::now(process.cast_unsigned()).expect("it runs");
            process.send(unisono_linux::process::Signal::Kill).expect("ours");
        }
        child.wait().expect("it was killed");
        assert!(busy);
    }
}
