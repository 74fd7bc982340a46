//! Reads how long a thread ran and how long it waited to run: `/proc/PID/task/TID/schedstat`.
//!
//! Cost: about 2 us per thread (open, read, close). The numbers of a thread that is running at this moment
//! are as old as the last tick (up to 4 ms), unless [`refresh`] was called for its process first.
//!
//! Reference: Documentation/scheduler/sched-stats.rst; clock_getcpuclockid(3).

use crate::affinity::Tid;
use crate::process_stat::ProcessStat;
use std::fs;
use std::io;

/// The times of a thread so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Nanoseconds on a processor.
    pub ran_ns: u64,
    /// Nanoseconds runnable but waiting for a processor.
    pub waited_ns: u64,
    /// The number of times that the thread was put on a processor.
    pub times: u64,
}

/// Reads a thread's times. Fails if the kernel was built without these numbers.
pub fn read(thread: Tid) -> io::Result<RunTime> {
    parse(&fs::read_to_string(format!("/proc/{thread}/schedstat"))?)
}

fn parse(text: &str) -> io::Result<RunTime> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(ran_ns)), Some(Ok(waited_ns)), Some(Ok(times))) => Ok(RunTime { ran_ns, waited_ns, times }),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("schedstat reads {text:?}"))),
    }
}

/// Returns the number of times that a thread went to sleep, including times when it was stopped. Cost: a read
/// of about 20 us.
pub fn sleeps(thread: Tid) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "status without voluntary_ctxt_switches"))
}

/// Returns whether a thread runs or waits for a processor; false if it has ended. Cost: a read of about 2 us.
pub fn is_runnable(thread: Tid) -> bool {
    ProcessStat::read(thread).is_some_and(|stat| stat.state == 'R')
}

/// Updates the numbers of a process's running threads and returns their sum in nanoseconds.
pub fn refresh(process: Tid) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // the kernel's encoding of "the scheduler's clock of process N", as clock_getcpuclockid makes it
    let clock = (!process.0 << 3) | 2;
    // SAFETY: `time` is valid for writes; an unknown clock is an error, not undefined behavior.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{self, Duration};

    #[test]
    fn a_thread_that_works_has_run() {
        let before = read(Tid::current()).expect("schedstat");
        let until = clock::now() + Duration::from_millis(5);
        while clock::now() < until {}
        let process = refresh(Tid(std::process::id() as i32)).expect("process clock");
        let after = read(Tid::current()).expect("schedstat");
        assert!(after.ran_ns > before.ran_ns, "{before:?} {after:?}");
        assert!(process >= after.ran_ns);
    }

    #[test]
    fn who_reads_is_runnable_and_who_sleeps_is_not() {
        assert!(is_runnable(Tid::current()));
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || {
            sender.send(Tid::current()).expect("it is heard");
            let _ = ended.recv(); // until the other end is gone
        });
        let thread = receiver.recv().expect("it speaks");
        while is_runnable(thread) {
            std::thread::yield_now();
        }
        drop(end);
        sleeper.join().expect("it ends");
    }

    #[test]
    fn what_is_no_schedstat_is_an_error() {
        assert!(parse("1 2").is_err());
        assert!(parse("x y z").is_err());
    }
}
