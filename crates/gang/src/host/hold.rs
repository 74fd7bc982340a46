//! Keeps every core busy while a switch is made, so that all cores switch at once and no gang runs out of
//! turn.
//!
//! Freezing and thawing walk the threads of a gang, one after the other. During that walk the outgoing gang
//! would run on, and the cores would follow one by one as interrupts reach them. So the scheduler's thread
//! keeps one core, and a *holder* keeps each of the others. A holder is a real-time thread that wakes by a
//! timer of its own core just before the planned moment. All holders keep their cores until the scheduler has
//! done all writes, and are then released together. Meanwhile the outgoing gang runs nowhere, so no processor
//! has to be interrupted to stop it.
//!
//! A wake-up takes 17 to 30 us on the measured host, so each holder wakes early by as much as wake-ups have
//! lately taken ([`Lead`]), and spins for the rest. A holder that is late only makes its own core switch
//! later. A holder that is not released within [`MAX_HOLD`] releases its core by itself.
//!
//! Cost: the writes of one switch (10 to 70 us) on every core instead of on one, and a wake-up a core.
//! When not: without the right to real-time priorities; on one core.
//!
//! Reference: Ousterhout 1982 has every processor switch by its own clock; here one processor leads the
//! others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use unisono_linux::affinity::{self, CpuSet};
use unisono_linux::clock::{Nanos, now};
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};
use unisono_linux::timer::{Sleeper, Woken};

/// Above gangs in real-time classes and below interrupt threads (50).
const URGENCY: u8 = 49;
/// The longest time that a core is held: many times the 10 to 70 us of a switch, and too short to be noticed.
const MAX_HOLD: Nanos = Nanos(1_000_000);
/// No switch is planned.
const NEVER: Nanos = Nanos(u64::MAX - 1);
const FINISH: Nanos = Nanos(u64::MAX);

/// Time by which a timer is set early, learned from the lateness of earlier wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lead(Nanos);

impl Lead {
    const DECREMENT: Nanos = Nanos(500);
    const RANGE: (Nanos, Nanos) = (Nanos(5_000), Nanos(80_000));

    /// The initial value, without measurements.
    pub(crate) fn new() -> Lead {
        Lead(Nanos(25_000))
    }

    /// The wake-up time for being on time at `moment`.
    pub(crate) fn before(self, moment: Nanos) -> Nanos {
        moment.since(self.0)
    }

    /// Learns from the lateness of a wake-up. A late wake-up adds four steps, a timely one subtracts one, so
    /// in balance four of five wake-ups are in time.
    pub(crate) fn learn(&mut self, late: Nanos) {
        let next = if late > self.0 {
            Self::DECREMENT.times(4).after(self.0)
        } else {
            self.0.since(Self::DECREMENT)
        };
        self.0 = next.clamp(Self::RANGE.0, Self::RANGE.1);
    }
}

/// Keeps the processor until the monotonic clock shows `moment`.
pub(crate) fn spin_until(moment: Nanos) {
    while now() < moment {
        std::hint::spin_loop();
    }
}

/// Pins this thread to a core and gives it a higher priority than the threads that it schedules there.
pub(crate) fn take(cpu: usize) -> bool {
    affinity::restrict_own(&CpuSet::single(cpu)).is_ok()
        && scheduling::set_own(SchedulingPolicy::Fifo(Urgency::new(URGENCY)), Children::Reset).is_ok()
}

#[derive(Debug)]
struct HoldState {
    /// The time of the next switch, in nanoseconds of the monotonic clock.
    planned: AtomicU64,
    /// The planned time of the last switch made, by the same clock.
    made: AtomicU64,
}

/// The holders of all cores but the scheduler's own.
#[derive(Debug)]
pub(crate) struct Holders {
    shared: Arc<HoldState>,
    threads: Vec<(Sleeper, JoinHandle<()>)>,
}

impl Holders {
    /// Starts a holder for each of these processors.
    pub(crate) fn post(cpus: &[usize]) -> Result<Holders, String> {
        let shared = Arc::new(HoldState { planned: AtomicU64::new(NEVER.0), made: AtomicU64::new(0) });
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

    /// Plans the next switch; `None`: there is nothing to switch.
    pub(crate) fn plan(&self, moment: Option<Nanos>) {
        let moment = moment.unwrap_or(NEVER).0;
        // holders that wait for a later moment have to learn of it; the others read it when they wake
        if moment < self.shared.planned.swap(moment, Ordering::Relaxed) {
            self.call();
        }
    }

    /// Releases all cores after the switch planned for `moment`, and plans the next one for `next`.
    pub(crate) fn release(&self, moment: Nanos, next: Option<Nanos>) {
        let next = next.unwrap_or(NEVER);
        let before = Nanos(self.shared.planned.swap(next.0, Ordering::Relaxed));
        // SYNC(hold) release: publishes the next plan to the holders that are released
        self.shared.made.store(moment.0, Ordering::Release);
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
        self.shared.planned.store(FINISH.0, Ordering::Relaxed);
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
        let moment = Nanos(shared.planned.load(Ordering::Relaxed));
        if moment == FINISH {
            return;
        }
        let checked = now();
        if checked >= MAX_HOLD.after(moment) {
            // no switch is made, or it is late: a hold would have no use, and there is no hurry
            let _ = alarm.wait_until(MAX_HOLD.after(checked));
            continue;
        }
        let wake = lead.before(moment);
        let woken = alarm.wait_until(wake.min(Nanos(60 * 1_000_000_000).after(checked)));
        let woke = now();
        if woken == Woken::Called || woke < wake || shared.planned.load(Ordering::Relaxed) != moment.0 {
            continue;
        }
        if checked < wake {
            lead.learn(woke.since(wake));
        }
        // SYNC(hold) acquire: sees the plan that was made before this core was released
        while shared.made.load(Ordering::Acquire) < moment.0 && now() < MAX_HOLD.after(moment) {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::affinity::Tid;

    #[test]
    fn most_wake_ups_come_in_time_and_hardly_earlier() {
        let mut lead = Lead::new();
        // 10 to 30 us, evenly: four in five are below 26
        let late = |i: u64| Nanos(10_000 + i * 7919 % 20_000);
        (0..2000).for_each(|i| lead.learn(late(i)));
        assert!((22_000..31_000).contains(&lead.0.0), "{lead:?}");
        let in_time = (0..2000).filter(|i| late(*i) <= lead.0).count();
        assert!(in_time > 1200, "{in_time} of 2000 with {lead:?}");
    }

    #[test]
    fn one_pause_of_the_machine_does_not_make_everybody_wake_early() {
        let mut lead = Lead::new();
        lead.learn(Nanos(1_000_000_000));
        assert!(lead.0 <= Nanos(30_000), "{lead:?}");
    }

    #[test]
    fn holders_end_when_they_are_dropped_whatever_was_planned() {
        let cpus: Vec<usize> = affinity::allowed(Tid::SELF).expect("own").iter().collect();
        let Ok(holders) = Holders::post(&cpus[1..]) else {
            eprintln!("skipped: no right to real-time priorities");
            return;
        };
        holders.plan(Some(Nanos(3_600_000_000_000).after(now())));
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
        affinity::restrict_own(&CpuSet::single(*cpu)).expect("own affinity");
        // this thread shares the holder's core: if it runs, the holder has released the core
        holders.plan(Some(Nanos(1_000_000).after(now())));
        std::thread::sleep(std::time::Duration::from_millis(5));
        holders.release(now(), None);
    }
}
