//! The kernel's line about a process or a thread: `/proc/PID/stat`.
//!
//! Cost: about 2 us (open, read, close); 10 us if the kernel has to add up the times of many threads.
//!
//! Reference: proc_pid_stat(5).

use std::fmt::Display;
use std::fs;

/// A process, or a thread by its own number, at the time of the reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// `R`: runs or waits for a processor; `T`: stopped; `Z`, `X`: has ended, and its parent has not waited
    /// for it.
    pub state: char,
    /// Whether this is a thread of the kernel, which runs no program.
    pub is_kernel: bool,
    pub parent: i32,
    /// The number of the process that leads, or led, its group.
    pub group: i32,
    /// Processor time outside the kernel, in clock ticks.
    pub user_ticks: u64,
    /// Processor time, in the kernel and outside, in clock ticks.
    pub own_ticks: u64,
    /// Processor time of the children that have ended and that this process has waited for, in clock ticks.
    pub children_ticks: u64,
    /// The start time, in clock ticks since boot.
    pub started: u64,
    /// The processor that the thread runs on, waits for, or ran on last.
    pub processor: Option<usize>,
}

/// The flag of kernel threads: include/linux/sched.h.
const PF_KTHREAD: u32 = 0x0020_0000;

impl ProcessStat {
    /// Reads the line of a process or a thread; `None` if it does not exist.
    pub fn read(number: impl Display) -> Option<Self> {
        let bytes = fs::read(format!("/proc/{number}/stat")).ok()?;
        // the kernel cuts a command's name at 15 bytes, possibly within a multi-byte character
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses the line. Fields are counted from the end of the command's name, because the name may contain
    /// spaces, parentheses and any other bytes.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // proc_pid_stat(5) counts from 1, and the state is field 3
        let field = |number: usize| fields.get(number - 3);
        let ticks = |number: usize| field(number)?.parse::<u64>().ok();
        Some(Self {
            state: field(3)?.chars().next()?,
            is_kernel: field(9)?.parse::<u32>().ok()? & PF_KTHREAD != 0,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            user_ticks: ticks(14)?,
            own_ticks: ticks(14)? + ticks(15)?,
            children_ticks: ticks(16)? + ticks(17)?,
            started: field(22)?.parse().ok()?,
            processor: field(39).and_then(|field| field.parse().ok()),
        })
    }

    /// Returns whether the process has ended. An ended process stays in the process list until its parent
    /// waits for it, which in a container may never happen.
    pub fn has_ended(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Returns whether the process does not exist, or has ended without being waited for.
pub fn is_gone(number: impl Display) -> bool {
    ProcessStat::read(number).is_none_or(ProcessStat::has_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_fields() {
        let stat = "7 (a) R 5 (x) S 1 42 42 0 -1 4194304 6 7 8 9 140 15 16 17 20 0 1 0 22 23";
        let read = ProcessStat {
            state: 'S',
            is_kernel: false,
            parent: 1,
            group: 42,
            user_ticks: 140,
            own_ticks: 155,
            children_ticks: 33,
            started: 22,
            processor: None,
        };
        assert_eq!(ProcessStat::parse(stat), Some(read));
        let longer = format!("{stat}{} 3 0", " 0".repeat(15));
        assert_eq!(ProcessStat::parse(&longer), Some(ProcessStat { processor: Some(3), ..read }));
        assert_eq!(ProcessStat::parse("7 (a"), None);
        assert_eq!(ProcessStat::parse("7 (a) S 1 42"), None);
    }

    #[test]
    fn a_name_that_is_cut_in_the_middle_of_a_letter_hides_nothing() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            fs::write("/proc/thread-self/comm", "aaaaaaaaaaaaaa\u{fc}").expect("it is ours");
            let raw = fs::read("/proc/thread-self/comm").expect("it is ours");
            sender.send((crate::affinity::Tid::current(), raw)).expect("it is heard");
            let _ = ended.recv(); // until the other end is gone
        });
        let (thread_number, raw) = receiver.recv().expect("it speaks");
        assert!(String::from_utf8(raw).is_err(), "the kernel has cut it");
        assert!(ProcessStat::read(thread_number).is_some());
        drop(end);
        thread.join().expect("it ends");
    }

    #[test]
    fn this_process_runs_and_one_that_is_not_there_is_gone() {
        assert_eq!(
            ProcessStat::read("thread-self").map(|stat| (stat.state, stat.is_kernel)),
            Some(('R', false))
        );
        assert!(!is_gone(std::process::id()) && is_gone(i32::MAX));
    }
}
