//! Processes and threads that are pinned: held by a descriptor while their numbers are used.
//!
//! A number names a process until the process has ended and its parent has waited for it; after that the
//! kernel may give the number to another process, perhaps another user's. A pidfd refers to the first process
//! forever. So every system call of this project that signals or changes a process by its number takes the
//! number from a [`PinnedProcess`] or a [`PinnedThread`], and so does a read whose result must not be another
//! process's:
//!
//! ```text
//!   signal                      through the pidfd: it cannot reach another process
//!   read by the number          counts only if the pidfd says afterwards that the process still lives
//!   affinity, class             the pidfd is asked before and after the call; a thread that took the number
//!                               in between gets back what its parent has
//!   control group               the kernel checks whose process it moves (`cgroup::ProcessMover`)
//! ```
//! While a pidfd says that its process lives, the number is that process's: a number is free only once its
//! process has ended and was collected.
//!
//! Cost: pidfd_open(2), a read of `/proc/PID/stat` (2 to 10 us), and a poll(2) of 0.3 us for each check
//! whether it is alive. When not to use: for the calling process or thread, which no other can replace
//! (`Tid::SELF`). Kernels before 6.9 have no pidfd of a thread; there the start time alone tells threads
//! apart.
//!
//! Reference: pidfd_open(2), pidfd_send_signal(2), proc_pid_stat(5) field 22.

use crate::affinity::{self, CpuSet, Tid};
use crate::pidfd::{PidFd, start_time};
use crate::poll::readable_of;
use crate::process_stat::ProcessStat;
use crate::scheduling::{self, Children, SchedulingPolicy};
use crate::signal::Signal;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// `PIDFD_THREAD` of linux/pidfd.h: the pidfd is of one thread (Linux 6.9).
const OF_A_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// A pinned process: its number, its start time and its pidfd.
#[derive(Debug)]
pub struct PinnedProcess {
    held: PidFd,
    number: u32,
    started: u64,
}

impl PinnedProcess {
    /// Pins the process that has this number now. Fails with `ESRCH` if there is none.
    pub fn now(number: impl Into<u32>) -> io::Result<Self> {
        let number = number.into();
        // opened first, then examined: no other process can get the number in between
        let held = PidFd::open(number)?;
        let started = start_time(number).ok_or(Errno::SRCH)?;
        let pinned = Self { held, number, started };
        pinned.read(|_| Ok(()))?;
        Ok(pinned)
    }

    /// Pins the process with this number and this start time (clock ticks since boot). Fails with `ESRCH` if
    /// it has ended. A zombie can be pinned.
    pub fn identified(number: u32, started: u64) -> io::Result<Self> {
        let held = PidFd::open(number)?;
        if start_time(number) != Some(started) {
            return Err(Errno::SRCH.into());
        }
        Ok(Self { held, number, started })
    }

    /// Pins a child of this process. The number remains the child's until this process waits for it. Fails
    /// with `ESRCH` once this process has waited for the child.
    pub fn of_child(child: &Child) -> io::Result<Self> {
        let number = child.id();
        let held = PidFd::open(number)?;
        let stat = ProcessStat::read(number).ok_or(Errno::SRCH)?;
        if stat.parent.cast_unsigned() != std::process::id() {
            return Err(Errno::SRCH.into());
        }
        Ok(Self { held, number, started: stat.started })
    }

    /// Pins this process itself.
    pub fn own() -> io::Result<Self> {
        Self::now(std::process::id())
    }

    /// Replaces the number, as if another process had taken it.
    #[cfg(test)]
    pub(crate) fn with_number(self, number: u32) -> Self {
        Self { number, ..self }
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn started(&self) -> u64 {
        self.started
    }

    /// Returns the first thread of the process.
    pub fn thread(&self) -> Tid {
        Tid(self.number.cast_signed())
    }

    /// Returns whether the process has not ended, so that its number is still its own.
    pub fn lives(&self) -> bool {
        !self.held.has_ended(Some(Duration::ZERO)).unwrap_or(true)
    }

    /// Calls `read` with the number and returns its result. Fails with `ESRCH` if the process has ended by
    /// then, because the result may describe another process.
    pub fn read<T>(&self, read: impl FnOnce(u32) -> io::Result<T>) -> io::Result<T> {
        let found = read(self.number);
        if self.lives() { found } else { Err(Errno::SRCH.into()) }
    }

    /// Returns the user whose rights the process has.
    pub fn owner(&self) -> io::Result<u32> {
        self.read(|number| Ok(fs::metadata(format!("/proc/{number}"))?.uid()))
    }

    /// Returns the file that the process executes.
    pub fn executable(&self) -> io::Result<PathBuf> {
        self.read(|number| fs::read_link(format!("/proc/{number}/exe")))
    }

    /// Returns the process's name as the kernel shows it, cut at 15 bytes, possibly within a multi-byte
    /// character.
    pub fn name(&self) -> io::Result<String> {
        let bytes = self.read(|number| fs::read(format!("/proc/{number}/comm")))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Returns the arguments with which the process was started, unless the program has overwritten them.
    pub fn command_line(&self) -> io::Result<Vec<OsString>> {
        let bytes = self.read(|number| fs::read(format!("/proc/{number}/cmdline")))?;
        let words = bytes.strip_suffix(&[0]).unwrap_or(&bytes).split(|byte| *byte == 0);
        Ok(words.map(|word| OsString::from_vec(word.to_vec())).collect())
    }

    /// Reads the process's current /proc/PID/stat.
    pub fn stat(&self) -> io::Result<ProcessStat> {
        self.read(|number| ProcessStat::read(number).ok_or_else(|| Errno::SRCH.into()))
    }

    /// Requests a time slice for all threads of the process that are in a fair class; threads that they start
    /// inherit it. Returns the slice that the first thread has now. A kernel before 6.12 has no slices per
    /// thread: the result is zero there.
    pub fn ask_for_slice(&self, slice: Duration) -> io::Result<Duration> {
        for number in self.read(scheduling::threads_of)? {
            let asked = PinnedThread::now(number).and_then(|thread| {
                // the process still lives, so the thread that was pinned is one of its own
                let nice = self.read(|_| thread.read(scheduling::nice_of))?;
                thread.set_class(SchedulingPolicy::Other { nice, slice: Some(slice) })
            });
            match asked {
                // the thread has ended in the meantime
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                asked => asked?,
            }
        }
        self.read(|_| scheduling::slice_of(self.thread()))
    }

    /// Sends a signal. Fails with `ESRCH` if the process has ended, and with `EPERM` if it belongs to another
    /// user.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        self.held.send(signal)
    }

    /// Returns whether the process has ended. Waits for its end for at most `timeout` (`None`: no limit).
    pub fn has_ended(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.held.has_ended(timeout)
    }

    /// Returns the positions of the processes that have ended, by one system call that does not wait.
    pub fn ended<'a>(all: impl IntoIterator<Item = &'a Self>) -> io::Result<Vec<usize>> {
        PidFd::ended(all.into_iter().map(|pinned| &pinned.held))
    }
}

crate::as_fd!(PinnedProcess.held);

/// A pinned thread.
#[derive(Debug)]
pub struct PinnedThread {
    /// `None` before Linux 6.9, or without a free descriptor: then only the start time identifies the thread.
    held: Option<OwnedFd>,
    number: Tid,
    started: u64,
}

impl PinnedThread {
    /// Pins the thread that has this number now. Fails with `ESRCH` if there is none.
    pub fn now(number: Tid) -> io::Result<Self> {
        let held = Self::open(number)?;
        let started = start_time(number.into()).ok_or(Errno::SRCH)?;
        let pinned = Self { held, number, started };
        if pinned.lives() { Ok(pinned) } else { Err(Errno::SRCH.into()) }
    }

    /// Pins the thread with this number and this start time (clock ticks since boot). Fails with `ESRCH` if
    /// it has ended.
    pub fn identified(number: Tid, started: u64) -> io::Result<Self> {
        let pinned = Self::now(number)?;
        if pinned.started == started { Ok(pinned) } else { Err(Errno::SRCH.into()) }
    }

    fn open(number: Tid) -> io::Result<Option<OwnedFd>> {
        let process = Pid::from_raw(number.0).ok_or(Errno::INVAL)?;
        match pidfd_open(process, OF_A_THREAD) {
            // the kernel has pidfds of processes only, or no descriptor is free
            Err(Errno::INVAL | Errno::MFILE | Errno::NFILE) => Ok(None),
            held => Ok(Some(held?)),
        }
    }

    pub fn number(&self) -> Tid {
        self.number
    }

    pub fn started(&self) -> u64 {
        self.started
    }

    /// Returns whether the thread has not ended, so that its number is still its own.
    pub fn lives(&self) -> bool {
        match &self.held {
            Some(held) => {
                readable_of(&[held.as_fd()], Some(Duration::ZERO)).is_ok_and(|ended| ended == [false])
            }
            None => start_time(self.number.into()) == Some(self.started),
        }
    }

    /// Calls `read` with the number and returns its result. Fails with `ESRCH` if the thread has ended by
    /// then.
    pub fn read<T>(&self, read: impl FnOnce(Tid) -> io::Result<T>) -> io::Result<T> {
        let found = read(self.number);
        if self.lives() { found } else { Err(Errno::SRCH.into()) }
    }

    /// Returns the processors that the thread may use.
    pub fn allowed(&self) -> io::Result<CpuSet> {
        self.read(affinity::allowed)
    }

    /// Restricts the thread to these processors. Fails as sched_setaffinity(2) does, and with `ESRCH` if the
    /// thread has ended.
    pub fn restrict(&self, cpus: &CpuSet) -> io::Result<()> {
        self.write(
            |number| affinity::restrict(number, cpus),
            |number, source| affinity::restrict(number, &affinity::allowed(source)?),
        )
    }

    /// Returns the class that the thread is in.
    pub fn class(&self) -> io::Result<SchedulingPolicy> {
        self.read(scheduling::get)
    }

    /// Puts the thread into a class. Fails as sched_setattr(2) does, and with `ESRCH` if the thread has
    /// ended.
    pub fn set_class(&self, policy: SchedulingPolicy) -> io::Result<()> {
        self.write(|number| scheduling::set(number, policy, Children::Inherit), restore_class)
    }

    /// Puts many threads into a class, with one poll(2) for all of them, where each microsecond counts.
    /// Returns the positions of the threads that have ended. Fails as [`PinnedThread::set_class`] does.
    /// Before Linux 6.9, only those threads are known to have ended for which the kernel reports `ESRCH`.
    pub fn set_class_of_all(all: &[&Self], policy: SchedulingPolicy) -> io::Result<Vec<usize>> {
        let mut missing = Vec::new();
        for (at, thread) in all.iter().enumerate() {
            match scheduling::set(thread.number, policy, Children::Inherit) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => missing.push(at),
                set => set?,
            }
        }
        let held: Vec<(usize, BorrowedFd<'_>)> = all
            .iter()
            .enumerate()
            .filter_map(|(at, thread)| Some((at, thread.held.as_ref()?.as_fd())))
            .collect();
        let fds: Vec<BorrowedFd<'_>> = held.iter().map(|(_, fd)| *fd).collect();
        let ended = readable_of(&fds, Some(Duration::ZERO))?;
        for ((at, _), _) in held.iter().zip(ended).filter(|(_, ended)| *ended) {
            if !missing.contains(at) {
                all[*at].restore(restore_class);
                missing.push(*at);
            }
        }
        Ok(missing)
    }

    /// Puts the thread back into the default class, with the nice value that it had before. Fails as
    /// [`PinnedThread::set_class`] does.
    pub fn set_fair(&self) -> io::Result<()> {
        self.write(scheduling::set_fair, restore_class)
    }

    /// Puts the thread into the class of the scheduler that is loaded into the kernel (sched_ext). Fails as
    /// [`PinnedThread::set_class`] does, and with `EINVAL` if the kernel has no sched_ext.
    pub fn set_extensible(&self) -> io::Result<()> {
        self.write(scheduling::set_extensible, restore_class)
    }

    /// Calls `write` with the number. If this thread has ended by then, another thread may have taken the
    /// number: `restore` then gives that thread the settings of the thread or process that started it.
    fn write(
        &self,
        write: impl FnOnce(Tid) -> io::Result<()>,
        restore: impl FnOnce(Tid, Tid) -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.lives() {
            return Err(Errno::SRCH.into());
        }
        let written = write(self.number);
        if self.lives() {
            return written;
        }
        self.restore(restore);
        Err(Errno::SRCH.into())
    }

    fn restore(&self, restore: impl FnOnce(Tid, Tid) -> io::Result<()>) {
        if let Some(source) = source_of(self.number) {
            let _ = restore(self.number, source); // an error means that the other thread has ended, too
        }
    }
}

fn restore_class(number: Tid, source: Tid) -> io::Result<()> {
    scheduling::set(number, scheduling::get(source)?, Children::Inherit)
}

/// Returns the thread from which the thread that has this number now inherited its settings: the first thread
/// of its process or, for a first thread, the first thread of the parent process.
fn source_of(number: Tid) -> Option<Tid> {
    let status = fs::read(format!("/proc/{number}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok()).map(Tid)?;
    if process != number {
        return Some(process);
    }
    ProcessStat::read(number).map(|stat| Tid(stat.parent)).filter(|parent| parent.0 > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn sleeper() -> Child {
        Command::new("sleep").arg("100").spawn().expect("sleep is on every Linux")
    }

    #[test]
    fn what_is_read_of_a_process_counts_only_while_it_lives() {
        let mut child = sleeper();
        let pinned = PinnedProcess::of_child(&child).expect("our child");
        let own = PinnedProcess::own().expect("this process").owner().expect("its owner");
        assert!(pinned.lives() && pinned.owner().expect("our child") == own);
        assert!(
            PinnedProcess::identified(pinned.number(), pinned.started() + 1).is_err(),
            "another one's time"
        );
        // as if another process had taken the number during the reading
        let read = pinned.read(|_| {
            child.kill()?;
            child.wait()
        });
        assert_eq!(read.map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
        assert!(pinned.send(Signal::Kill).is_err() && pinned.stat().is_err());
        assert!(PinnedProcess::of_child(&child).is_err(), "it was waited for");
    }

    #[test]
    fn a_process_that_is_no_child_of_this_one_cannot_pass_for_one() {
        let mut child = sleeper();
        let parent = ProcessStat::read(std::process::id()).expect("this process").parent;
        child.kill().expect("our child");
        child.wait().expect("our child");
        // no process has the number of a child that was waited for; and our parent is no child of ours
        assert!(PinnedProcess::of_child(&child).is_err());
        assert!(parent == 0 || PinnedProcess::now(parent.cast_unsigned()).is_ok());
    }

    #[test]
    fn a_thread_that_takes_the_number_gets_back_what_its_process_has() {
        let all = affinity::allowed(Tid::SELF).expect("own affinity");
        if all.len() < 2 {
            return;
        }
        let one = CpuSet::single(all.iter().next().expect("a processor"));
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            sender.send(Tid::current()).expect("it is heard");
            let _ = ended.recv(); // until the other end is gone
        });
        let number = receiver.recv().expect("it speaks");
        // pinned with the start time of another thread, on a kernel without pidfds of threads
        let stale = |started| PinnedThread { held: None, number, started };
        let started = start_time(number.into()).expect("it lives");
        assert!(stale(started + 1).restrict(&one).is_err(), "it is not asked for");
        assert_eq!(affinity::allowed(number).expect("it lives"), all);
        // another thread takes the number during the call
        let pinned = std::cell::RefCell::new(stale(started));
        let late = PinnedThread { held: None, number, started };
        let written = late.write(
            |number| {
                pinned.borrow_mut().started += 1;
                affinity::restrict(number, &one)
            },
            |number, source| affinity::restrict(number, &affinity::allowed(source)?),
        );
        assert!(written.is_ok(), "it is still the same thread");
        affinity::restrict(
            number,
            &affinity::allowed(source_of(number).expect("its process")).expect("ours"),
        )
        .expect("ours");
        assert_eq!(affinity::allowed(number).expect("it lives"), all);
        drop(end);
        other.join().expect("it ends");
    }

    #[test]
    fn a_slice_that_was_asked_for_is_that_of_the_process_where_the_kernel_has_slices() {
        let mut child = sleeper();
        let process = PinnedProcess::of_child(&child).expect("ours");
        let own = scheduling::slice_of(process.thread()).expect("it runs");
        let asked = Duration::from_millis(17);
        let given = process.ask_for_slice(asked).expect("always permitted");
        child.kill().expect("ours");
        child.wait().expect("it was killed");
        // a kernel without slices reports none
        assert_eq!(given, if own.is_zero() { Duration::ZERO } else { asked });
    }

    #[test]
    fn a_thread_that_is_pinned_is_told_from_its_successors() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            sender.send(Tid::current()).expect("it is heard");
            let _ = ended.recv();
        });
        let pinned = PinnedThread::now(receiver.recv().expect("it speaks")).expect("it lives");
        let all = pinned.allowed().expect("it lives");
        pinned.restrict(&all).expect("ours");
        drop(end);
        other.join().expect("it ends");
        // a joined thread may still exist: the kernel wakes the joiner before the thread has left
        while pinned.lives() {
            std::thread::yield_now();
        }
        for refused in [pinned.restrict(&all), pinned.set_fair(), pinned.allowed().map(drop)] {
            assert_eq!(refused.map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
        }
    }
}
