//! The main thread's work while the gangs run: signals, ends, the weight against others, and new threads.
//!
//! The main thread runs on the gangs' cores and in their time, so it does little, and seldom. To count the
//! threads of a gang it reads one open file. It scans the threads themselves when their number changes, then
//! more and more rarely, and at least once a second, because a program may change the affinity of its
//! threads, and sleeping threads may become active.
//!
//! Cost, with the files cold: 100 us for each wake-up, four wake-ups a second (more after a change), and 300
//! to 600 us for each scan of a gang's threads.

use super::program::GangProgram;
use super::reserve::Reserve;
use super::resting::BlockedGang;
use super::scheduler::Notice;
use super::turn_status::TurnStatus;
use crate::cgroups::GangCgroups;
use crate::error::{Result, system};
use crate::gang::GangId;
use crate::journal::GangJournal;
use crate::mechanism::MechanismKind;
use std::os::fd::AsFd;
use std::sync::mpsc::Sender as Channel;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::process::{self, Sender, Signal, SignalFd};
use unisono_linux::timer::Sleeper;
use unisono_linux::usage;
use unisono_text::counted;

/// Minimum and maximum time between two scans of the threads; the minimum applies after their number changed.
/// A scan of all threads takes about 0.3 ms: with 50 scans a second, they took 33 ms of 6 s on both cores;
/// with these intervals they take 10 ms, most of it while the programs start (kernel trace, 2 processors).
const SCAN_INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The context of the main thread.
pub(crate) struct MainLoop<'a> {
    pub(crate) cgroups: Option<&'a GangCgroups>,
    pub(crate) notices: &'a Channel<Notice>,
    pub(crate) alarm: &'a Sleeper,
    pub(crate) turn_status: &'a TurnStatus,
    pub(crate) spread: bool,
    pub(crate) kind: MechanismKind,
}

/// Returns the time to wait for an event before the next scan of threads. Most threads are created early in a
/// program or shortly after other threads, so the wait is short then.
fn wait_timeout(age: Duration, unchanged: Duration) -> Duration {
    Duration::from_millis(match (age.as_millis(), unchanged.as_millis()) {
        (_, 0..500) => 20,
        (0..2000, _) => 100,
        _ => 250,
    })
}

impl MainLoop<'_> {
    /// Handles signals, ends and new threads until all programs have ended; returns warnings.
    pub(crate) fn run(
        &self,
        programs: &mut [GangProgram],
        signals: &SignalFd,
        journal: &mut GangJournal,
        mut reserve: Option<&mut Reserve>,
    ) -> Result<Vec<String>> {
        let start = clock::now();
        let mut changed = start;
        while programs.iter().any(|program| program.status.is_none()) {
            let mut fds = vec![signals.as_fd()];
            fds.extend(programs.iter().filter(|p| p.status.is_none()).map(|p| p.process.as_fd()));
            let now = clock::now();
            process::readable(&fds, Some(wait_timeout(now - start, now - changed).into()))
                .map_err(system("wait for the programs"))?;
            while let Some((signal, sender)) = signals.next() {
                self.forward(programs, signal, sender);
            }
            if let Some(reserve) = &mut reserve {
                reserve.update();
            }
            for (gang, program) in programs.iter_mut().enumerate() {
                self.reap(GangId(gang), program)?;
                if !program.is_gone && self.is_due(GangId(gang), program, &mut changed) {
                    self.scan_threads(GangId(gang), program, journal)?;
                }
                if !program.is_gone {
                    self.wake(GangId(gang), program);
                }
            }
        }
        Ok(self.leftover_warnings(programs))
    }

    fn leftover_warnings(&self, programs: &[GangProgram]) -> Vec<String> {
        let mut warnings = Vec::new();
        for (gang, program) in programs.iter().enumerate().filter(|(_, program)| !program.is_gone) {
            let left = self.cgroups.and_then(|cgroups| cgroups.get(GangId(gang)).control.processes().ok());
            let left = left.map_or(0, |processes| processes.len());
            if left > 0 {
                let pid = program.child.id();
                let (left, go) = (counted(left, "process"), if left == 1 { "it goes" } else { "they go" });
                warnings.push(format!(
                    "{} left {left} behind (its program was process {pid}); {go} on",
                    GangId(gang)
                ));
            }
        }
        warnings
    }

    /// Passes a signal on to the programs, and carries out its effect on this process itself.
    fn forward(&self, programs: &[GangProgram], signal: Signal, sender: Sender) {
        for program in programs.iter().filter(|program| program.status.is_none()) {
            // a program that cannot be reached has ended
            let _ = match (sender, self.kind) {
                (Sender::Process, _) => program.process.send(signal),
                // a terminal key reaches only the foreground group, and a program without control groups is
                // in a group of its own
                (Sender::Kernel, MechanismKind::Stop) => {
                    program.group.as_ref().map_or(Ok(()), |group| group.send_signal(signal))
                }
                (Sender::Kernel, _) => Ok(()),
            };
        }
        match signal {
            Signal::Suspend => process::obey(signal),
            Signal::Continue => {
                // the receiver lives until [`Notice::Finish`]
                let _ = self.notices.send(Notice::Continued);
                self.alarm.call();
            }
            _ => {}
        }
    }

    fn reap(&self, gang: GangId, program: &mut GangProgram) -> Result<()> {
        if program.status.is_none() && program.process.has_ended(Some(Duration::ZERO.into())).unwrap_or(false)
        {
            let before = usage::of_collected_children();
            program.status = program.child.try_wait().map_err(system("wait for a program"))?;
            // replaced below if control groups count the processor time
            program.cpu = usage::of_collected_children().since(before).cpu.into();
            program.ended = Some(clock::now());
        }
        if program.status.is_some() && !program.is_gone {
            let control = self.cgroups.map(|cgroups| &cgroups.get(gang).control);
            let empty = control.is_none_or(|group| group.processes().map_or(true, |p| p.is_empty()));
            if let Some(used) = control.and_then(|group| group.used_ns().ok()) {
                program.cpu = Duration::from_nanos(used);
            }
            if empty {
                program.is_gone = true;
                // the receiver lives until [`Notice::Finish`]
                let _ = self.notices.send(Notice::Left(gang));
                self.alarm.call();
            }
        }
        Ok(())
    }

    /// Returns whether to scan the threads of a gang now.
    fn is_due(&self, gang: GangId, program: &mut GangProgram, changed: &mut Instant) -> bool {
        let Some(cgroups) = self.cgroups else { return false };
        let scan = &mut program.scan;
        let counted = scan.number_file.as_ref().and_then(|number_file| number_file.read().ok());
        let count =
            counted.unwrap_or_else(|| cgroups.get(gang).control.threads().map_or(0, |t| t.len() as u64));
        // until its first turn a gang is held, has only its initial thread, and would count as narrow
        let now = clock::now();
        let Some(home) = self.turn_status.of_gang(gang, now).map(|line| line.cores) else {
            return false;
        };
        if scan.count != count || scan.home.as_ref() != Some(&home) {
            *changed = now;
            (scan.count, scan.home) = (count, Some(home));
            scan.pause = Duration::ZERO;
        }
        // a timer may be early by up to 1 ms
        let due = now - scan.at + Duration::from_millis(1) >= scan.pause;
        if due {
            scan.pause = (scan.pause * 3 / 2).clamp(SCAN_INTERVALS.0, SCAN_INTERVALS.1);
            scan.at = now;
        }
        due
    }

    /// Lets a resting gang take turns again once it wants its cores.
    fn wake(&self, gang: GangId, program: &mut GangProgram) {
        let line = self.turn_status.of_gang(gang, clock::now()).filter(|line| line.rests);
        let (Some(cgroups), Some(line)) = (self.cgroups, line) else {
            program.blocked = None;
            return;
        };
        let group = &cgroups.get(gang).control;
        if program.blocked.is_none() {
            program.blocked = BlockedGang::new(group, program.rests);
            program.rests += 1;
        }
        if let Some(blocked) = &mut program.blocked
            && blocked.wakes(group, line.cores.len(), clock::now())
        {
            // the receiver lives until [`Notice::Finish`]
            let _ = self.notices.send(Notice::Wakes(gang));
            self.alarm.call();
        }
    }

    /// Sends the scheduler's thread the gang's width if it has changed. With `spread`, also gives the gang's
    /// threads cores.
    fn scan_threads(&self, gang: GangId, program: &mut GangProgram, journal: &mut GangJournal) -> Result<()> {
        let Some(cgroups) = self.cgroups else { return Ok(()) };
        let groups = [cgroups.get(gang).control.clone()];
        if let Some(width) = program.threads.measure(&groups) {
            let _ = self.notices.send(Notice::Width(gang, width));
            self.alarm.call();
        }
        match &program.scan.home {
            Some(home) if self.spread => program.threads.place(&groups, home, journal),
            _ => Ok(()),
        }
    }
}
