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
//! Cost: the writes of one switch (10 to 70 us) on every core instead of on one, and one wake-up per core.
//! When not to use: without the right to real-time priorities; on one core.
//!
//! Reference: Ousterhout 1982 has every processor switch by its own clock; here one processor leads the
//! others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use unisono_linux::affinity::{self, CpuSet};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::real_time_budget;
use unisono_linux::scheduling::{self, Children, SchedulingPolicy, Urgency};
use unisono_linux::timer::{Sleeper, Woken};

/// The real-time priority of holders: above gangs in real-time classes, and below interrupt threads (50).
const URGENCY: u8 = 49;
/// The longest time that a core is held: many times the 10 to 70 us of a switch, and too short to be noticed.
const MAX_HOLD: Duration = Duration::from_millis(1);
/// The value of `planned` that makes the holders end.
const FINISH: Instant = Instant::ZERO;

/// Time by which a timer is set early, learned from the lateness of earlier wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lead(Duration);

impl Lead {
    const DECREMENT: Duration = Duration::from_nanos(500);
    const RANGE: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(80));

    /// Makes the initial value, without measurements.
    pub(crate) fn new() -> Lead {
        Lead(Duration::from_micros(25))
    }

    /// Returns the time at which to wake up in order to be on time at `moment`.
    pub(crate) fn before(self, moment: Instant) -> Instant {
        moment - self.0
    }

    /// Learns from the lateness of a wake-up. A late wake-up adds four steps, a timely one subtracts one, so
    /// in balance four of five wake-ups are in time.
    pub(crate) fn learn(&mut self, late: Duration) {
        let next = if late > self.0 { self.0 + Self::DECREMENT * 4 } else { self.0 - Self::DECREMENT };
        self.0 = next.clamp(Self::RANGE.0, Self::RANGE.1);
    }
}

/// Keeps the processor until the monotonic clock shows `moment`.
pub(crate) fn spin_until(moment: Instant) {
    while clock::now() < moment {
        std::hint::spin_loop();
    }
}

/// Pins this thread to a core and gives it a higher priority than the gangs' threads on that core. Returns
/// whether the kernel permitted both.
pub(crate) fn take(cpu: usize) -> bool {
    affinity::restrict_own(&CpuSet::single(cpu)).is_ok()
        && scheduling::set_own(SchedulingPolicy::Fifo(Urgency::new(URGENCY)), Children::Reset).is_ok()
}

#[derive(Debug)]
struct HoldState {
    /// The moment of the next switch, [`Instant::NEVER`] without one, or [`FINISH`].
    planned: AtomicU64,
    /// The planned moment of the last switch made.
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
        let shared = Arc::new(HoldState {
            planned: AtomicU64::new(Instant::NEVER.as_nanos()),
            made: AtomicU64::new(0),
        });
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
            Err(real_time_budget::why_refused())
        }
    }

    /// Plans the next switch; `None`: no switch is planned.
    pub(crate) fn plan(&self, moment: Option<Instant>) {
        let moment = moment.unwrap_or(Instant::NEVER).as_nanos();
        // holders that wait for a later moment have to learn of it; the others read it when they wake
        if moment < self.shared.planned.swap(moment, Ordering::Relaxed) {
            self.call();
        }
    }

    /// Releases all cores after the switch planned for `moment`, and plans the next one for `next`.
    pub(crate) fn release(&self, moment: Instant, next: Option<Instant>) {
        let next = next.unwrap_or(Instant::NEVER);
        let before = Instant::from_nanos(self.shared.planned.swap(next.as_nanos(), Ordering::Relaxed));
        // SYNC(hold) release: publishes the next plan to the holders that are released
        self.shared.made.store(moment.as_nanos(), Ordering::Release);
        if before == Instant::NEVER && next != Instant::NEVER {
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
        self.shared.planned.store(FINISH.as_nanos(), Ordering::Relaxed);
        self.call();
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join(); // a holder that panicked holds no core
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
        let moment = Instant::from_nanos(shared.planned.load(Ordering::Relaxed));
        if moment == FINISH {
            return;
        }
        let checked = clock::now();
        if checked >= moment + MAX_HOLD {
            // The planned moment passed more than `MAX_HOLD` ago: the scheduler is late and no core is held
            // for its switch, so the next check may be late, too.
            let _ = alarm.wait_until(checked + MAX_HOLD);
            continue;
        }
        let wake = lead.before(moment);
        let woken = alarm.wait_until(wake.min(checked + Duration::from_secs(60)));
        let woke = clock::now();
        if woken == Woken::Called
            || woke < wake
            || shared.planned.load(Ordering::Relaxed) != moment.as_nanos()
        {
            continue;
        }
        if checked < wake {
            lead.learn(woke - wake);
        }
        // SYNC(hold) acquire: sees the plan that was made before this core was released
        while shared.made.load(Ordering::Acquire) < moment.as_nanos() && clock::now() < moment + MAX_HOLD {
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
        // lateness of 10 to 30 us, evenly distributed: four values in five are below 26
        let late = |i: u64| Duration::from_nanos(10_000 + i * 7919 % 20_000);
        (0..2000).for_each(|i| lead.learn(late(i)));
        assert!((22_000..31_000).contains(&lead.0.as_nanos()), "{lead:?}");
        let in_time = (0..2000).filter(|i| late(*i) <= lead.0).count();
        assert!(in_time > 1200, "{in_time} of 2000 with {lead:?}");
    }

    #[test]
    fn one_pause_of_the_machine_does_not_make_everybody_wake_early() {
        let mut lead = Lead::new();
        lead.learn(Duration::SECOND);
        assert!(lead.0 <= Duration::from_micros(30), "{lead:?}");
    }

    #[test]
    fn holders_end_when_they_are_dropped_whatever_was_planned() {
        let cpus: Vec<usize> = affinity::allowed(Tid::SELF).expect("own").iter().collect();
        let Ok(holders) = Holders::post(&cpus[1..]) else {
            eprintln!("skipped: no right to real-time priorities");
            return;
        };
        holders.plan(Some(clock::now() + Duration::from_secs(3600)));
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
        holders.plan(Some(clock::now() + Duration::from_millis(1)));
        std::thread::sleep(std::time::Duration::from_millis(5));
        holders.release(clock::now(), None);
    }
}
