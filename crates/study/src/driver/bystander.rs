//! A light program with deadlines beside the measured programs, as a thread of this process.
//!
//! The bystander works for a part of each period, as an audio program does, and records how late it began.
//! This process only waits for its children meanwhile, so the bystander's thread runs as any program of the
//! same session would. Cost: while it works, the bystander reads the clock all the time. When not to use: as
//! a load; it needs only a part of one processor.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::timer;
use unisono_measure::quantile;
use unisono_measure::record::Figure;

/// The bystander of a run. Without a period there is none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BystanderSettings {
    bystander_period_ms: Option<f64>,
    /// The work in each period. `None`: 1 ms.
    bystander_work_ms: Option<f64>,
}

/// A period: the time when it should have begun, and the delay until the thread ran.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BystanderWait {
    due: Instant,
    late: Duration,
}

/// A bystander that runs; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Bystander {
    period: Duration,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<BystanderWait>>>,
}

impl BystanderSettings {
    pub(crate) fn start(&self) -> Option<Bystander> {
        let time = |ms: f64| Duration::from_nanos((ms.clamp(0.01, 60e3) * 1e6) as u64);
        let period = time(self.bystander_period_ms?);
        let work = time(self.bystander_work_ms.unwrap_or(1.0)).min(period);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || live(period, work, &seen));
        Some(Bystander { period, stop, thread: Some(thread) })
    }
}

fn live(period: Duration, work: Duration, stop: &AtomicBool) -> Vec<BystanderWait> {
    let (mut waits, mut due) = (Vec::new(), clock::now() + period);
    while !stop.load(Ordering::Relaxed) {
        timer::sleep_until(due);
        let began = clock::now();
        waits.push(BystanderWait { due, late: began - due });
        while clock::now() < began + work {
            std::hint::spin_loop();
        }
        // a period whose time has passed meanwhile is not skipped: it begins late
        due += period;
    }
    waits
}

impl Bystander {
    /// Ends the bystander; returns its figures for the periods that began between `from` and `to`.
    pub(crate) fn figures(mut self, from: Instant, to: Instant) -> Vec<Figure> {
        self.stop.store(true, Ordering::Relaxed);
        let waits = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        figures(&waits, self.period, from, to)
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn figures(waits: &[BystanderWait], period: Duration, from: Instant, to: Instant) -> Vec<Figure> {
    let there = waits.iter().filter(|wait| (from..to).contains(&wait.due));
    let late: Vec<f64> = there.map(|wait| wait.late.as_secs_f64() * 1e3).collect();
    let Some(p99) = quantile::quantile(&late, 0.99) else { return Vec::new() };
    let missed = late.iter().filter(|late| **late > period.as_secs_f64() * 1e3).count();
    vec![
        Figure::new("bystander_longest_wait_ms", late.iter().copied().fold(0.0, f64::max), "ms"),
        Figure::new("bystander_p99_wait_ms", p99, "ms"),
        Figure::new("bystander_missed", missed as f64 / late.len() as f64, "1"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_of_the_measured_time_count_and_one_that_began_a_period_late_is_missed() {
        let ms = Instant::from_millis;
        let wait = |due, late| BystanderWait { due: ms(due), late: Duration::from_millis(late) };
        let waits = [wait(10, 90), wait(20, 1), wait(30, 4), wait(40, 11), wait(50, 2), wait(60, 99)];
        let found = figures(&waits, Duration::from_millis(10), ms(20), ms(60));
        let values: Vec<(&str, f64)> =
            found.iter().map(|figure| (figure.name.as_str(), figure.value)).collect();
        assert_eq!(values[0], ("bystander_longest_wait_ms", 11.0));
        assert_eq!(values[2], ("bystander_missed", 0.25));
        assert!(figures(&waits, Duration::from_millis(10), ms(70), ms(80)).is_empty());
    }

    #[test]
    fn a_bystander_works_in_each_period_and_ends() {
        let settings = BystanderSettings { bystander_period_ms: Some(2.0), bystander_work_ms: Some(0.1) };
        let begin = clock::now();
        let bystander = settings.start().expect("it has a period");
        timer::sleep_until(begin + Duration::from_millis(30));
        let found = bystander.figures(begin, clock::now());
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(BystanderSettings::default().start().is_none());
    }
}
