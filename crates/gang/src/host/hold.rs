//! Holding every core while a switch is made, so that all cores switch at once and nobody runs out of turn.
//!
//! Freezing and thawing walk the threads of a gang, one after the other; without help the outgoing gang runs
//! on during the walk, and the cores follow one by one as interrupts reach them. So the scheduler's thread
//! keeps one core and a *holder* each of the others: real-time threads that wake by timers of their own cores
//! just before the planned moment, keep their core until the scheduler has done all writes, and let go
//! together. In between nothing of the outgoing gang runs, and since it runs nowhere no processor has to be
//! interrupted to stop it.
//!
//! Waking takes time (17 to 30 us here), so everybody wakes early by as much as it has lately taken
//! ([`Lead`]) and spins for what is left. Nobody depends on a holder: one that is late only lets its core
//! switch later. A holder that is not let go within [`LONGEST`] lets go by itself.
//!
//! Cost: the writes of one switch (10 to 70 us) on every core instead of on one, and a wake-up a core.
//! When not: without the right to real-time priorities; on one core.
//!
//! Reference: Ousterhout 1982 has every processor switch by its own clock; this is that, with one that leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};
use unisono_linux::timer::{self, Sleeper, Woken};

/// Above gangs in real-time classes and below interrupt threads (50).
const URGENCY: u8 = 49;
/// The longest time that a core is held.
const LONGEST: u64 = 1_000_000;
/// Nothing is planned.
const NEVER: u64 = u64::MAX - 1;
const FINISH: u64 = u64::MAX;

/// How much earlier than needed to set a timer, learned from how late wake-ups were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lead(u64);

impl Lead {
    const STEP: u64 = 500;
    const RANGE: (u64, u64) = (5_000, 80_000);

    /// Before anything is known.
    pub(crate) fn new() -> Lead {
        Lead(25_000)
    }

    /// When to wake so as to be there at `moment`.
    pub(crate) fn before(self, moment: u64) -> u64 {
        moment.saturating_sub(self.0)
    }

    /// A wake-up was so late. One step up weighs as much as four down: four of five wake-ups come in time.
    pub(crate) fn learn(&mut self, late: u64) {
        let next = if late > self.0 { self.0 + 4 * Self::STEP } else { self.0.saturating_sub(Self::STEP) };
        self.0 = next.clamp(Self::RANGE.0, Self::RANGE.1);
    }
}

/// Keeps the processor until the monotonic clock shows `moment`.
pub(crate) fn spin_until(moment: u64) {
    while timer::now() < moment {
        std::hint::spin_loop();
    }
}

/// Pins this thread to a core and puts it above what it schedules there.
pub(crate) fn take(cpu: usize) -> bool {
    affinity::restrict(Tid::SELF, &CpuSet::single(cpu)).is_ok()
        && scheduling::set(Tid::SELF, SchedulingPolicy::Fifo(Urgency::new(URGENCY)), Children::Reset).is_ok()
}

#[derive(Debug)]
struct HoldState {
    /// When the next switch is.
    planned: AtomicU64,
    /// The moment of the last switch that was made.
    made: AtomicU64,
}

/// The holders of all cores but the scheduler's own.
#[derive(Debug)]
pub(crate) struct Holders {
    shared: Arc<HoldState>,
    threads: Vec<(Sleeper, JoinHandle<()>)>,
}

impl Holders {
    /// One for each of these processors.
    ///
    /// # Errors
    /// Why there are none, in words: no real-time priorities, no threads.
    pub(crate) fn post(cpus: &[usize]) -> Result<Holders, String> {
        let shared = Arc::new(HoldState { planned: AtomicU64::new(NEVER), made: AtomicU64::new(0) });
        let mut holders = Holders { shared, threads: Vec::new() };
        let (answers, ready) = channel();
        for cpu in cpus {
            let alarm = Sleeper::new().map_err(|error| error.to_string())?;
            let (shared, bell, answers, cpu) =
                (Arc::clone(&holders.shared), alarm.clone(), answers.clone(), *cpu);
            let thread = std::thread::Builder::new()
                .name(format!("gang-holder-{cpu}"))
                .spawn(move || hold(cpu, &shared, &bell, &answers))
                .map_err(|error| error.to_string())?;
            holders.threads.push((alarm, thread));
        }
        drop(answers);
        if ready.iter().take(cpus.len()).all(|took| took) {
            Ok(holders)
        } else {
            Err("real-time priorities are refused (CAP_SYS_NICE)".to_owned())
        }
    }

    /// The next switch will be then; `None`: there is nothing to switch.
    pub(crate) fn plan(&self, moment: Option<u64>) {
        let moment = moment.unwrap_or(NEVER);
        // those who wait for a later moment have to hear of it; the others look when they wake
        if moment < self.shared.planned.swap(moment, Ordering::Relaxed) {
            self.call();
        }
    }

    /// The switch planned for `moment` is made, and the next one will be at `next`: all cores go on.
    pub(crate) fn let_go(&self, moment: u64, next: Option<u64>) {
        let next = next.unwrap_or(NEVER);
        let before = self.shared.planned.swap(next, Ordering::Relaxed);
        // SYNC(hold) release: publishes the next plan to those who are let go
        self.shared.made.store(moment, Ordering::Release);
        if before == NEVER && next != NEVER {
            self.call();
        }
    }

    fn call(&self) {
        for (alarm, _) in &self.threads {
            alarm.call();
        }
    }
}

impl Drop for Holders {
    fn drop(&mut self) {
        self.shared.planned.store(FINISH, Ordering::Relaxed);
        self.call();
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join(); // one that panicked holds nothing
        }
    }
}

fn hold(cpu: usize, shared: &HoldState, alarm: &Sleeper, ready: &Sender<bool>) {
    let took = take(cpu);
    let told = ready.send(took);
    if !took || told.is_err() {
        return;
    }
    let mut lead = Lead::new();
    loop {
        let moment = shared.planned.load(Ordering::Relaxed);
        if moment == FINISH {
            return;
        }
        let now = timer::now();
        if now >= moment.saturating_add(LONGEST) {
            // nobody switches, or late: nothing to hold, and nothing to hurry for
            let _ = alarm.wait_until(now + LONGEST);
            continue;
        }
        let wake = lead.before(moment);
        let woken = alarm.wait_until(wake.min(now + 60 * 1_000_000_000));
        let woke = timer::now();
        if woken == Woken::Called || woke < wake || shared.planned.load(Ordering::Relaxed) != moment {
            continue;
        }
        if now < wake {
            lead.learn(woke - wake);
        }
        // SYNC(hold) acquire: sees the plan that was made before this core was let go
        while shared.made.load(Ordering::Acquire) < moment && timer::now() < moment + LONGEST {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_wake_ups_come_in_time_and_hardly_earlier() {
        let mut lead = Lead::new();
        // 10 to 30 us, evenly: four in five are below 26
        let late = |i: u64| 10_000 + i * 7919 % 20_000;
        (0..2000).for_each(|i| lead.learn(late(i)));
        assert!((22_000..31_000).contains(&lead.0), "{lead:?}");
        let in_time = (0..2000).filter(|i| late(*i) <= lead.0).count();
        assert!(in_time > 1200, "{in_time} of 2000 with {lead:?}");
    }

    #[test]
    fn one_pause_of_the_machine_does_not_make_everybody_wake_early() {
        let mut lead = Lead::new();
        lead.learn(1_000_000_000);
        assert!(lead.0 <= 30_000, "{lead:?}");
    }

    #[test]
    fn holders_end_when_they_are_dropped_whatever_was_planned() {
        let cpus: Vec<usize> = affinity::allowed(Tid::SELF).expect("own").iter().collect();
        let Ok(holders) = Holders::post(&cpus[1..]) else {
            eprintln!("skipped: no right to real-time priorities");
            return;
        };
        holders.plan(Some(timer::now() + 3_600_000_000_000));
        drop(holders);
    }

    #[test]
    fn a_core_that_nobody_lets_go_is_free_again_soon() {
        let cpus: Vec<usize> = affinity::allowed(Tid::SELF).expect("own").iter().collect();
        let Some(cpu) = cpus.get(1) else {
            eprintln!("skipped: it needs a second processor");
            return;
        };
        let Ok(holders) = Holders::post(&[*cpu]) else {
            eprintln!("skipped: no right to real-time priorities");
            return;
        };
        affinity::restrict(Tid::SELF, &CpuSet::single(*cpu)).expect("own affinity");
        // we share the holder's core: that this goes on shows that it let go
        holders.plan(Some(timer::now() + 1_000_000));
        timer::sleep_until(timer::now() + 5_000_000);
        holders.let_go(timer::now(), None);
    }
}
