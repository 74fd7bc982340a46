//! An industrial control console, and a sensor in addition to it (section 3.6, Tables 3 and 4).
//!
//! The console sends a command of 1 byte at intervals drawn uniformly from 100 to 300 ms, and the actuator
//! acknowledges it with 1 byte. The sensor sends an update every 30 ms to the monitor.

use super::{ServiceScene, distributed};
use crate::workload::stamp::{STAMP, stamp, stamped};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::timer;
use unisono_measure::Histogram;
use unisono_measure::record::Figure;
use unisono_workload::conversation::{Conversation, Conversations, NextMessage};

/// The time between two commands, in nanoseconds.
const COMMAND_INTERVAL_NS: std::ops::Range<u64> = 100_000_000..300_000_000;
/// The time between two updates of the sensor.
const UPDATE_INTERVAL: Duration = Duration::from_millis(30);

/// Runs the actuator and the monitor: the server's ends of conversations 0 and 1.
pub(super) fn serve(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let mut conversations = conversations.into_iter();
    let (console, sensor) = (conversations.next(), conversations.next());
    std::thread::scope(|scope| {
        let monitor = scope.spawn(|| sensor.map_or(Ok(Vec::new()), |sensor| monitor(scene, sensor)));
        let mut command = Vec::new();
        if let Some(mut console) = console {
            while console.receive(&mut command, scene.ends.until)? == NextMessage::Message {
                console.send(&command)?;
            }
        }
        monitor.join().unwrap_or_else(|_| Err(io::Error::other("the monitor panicked")))
    })
}

fn monitor(scene: &ServiceScene, mut sensor: Box<dyn Conversation>) -> io::Result<Vec<Figure>> {
    let mut update = Vec::new();
    let (mut sent, mut arrived) = (Spacing::default(), Spacing::default());
    while sensor.receive(&mut update, scene.ends.until)? == NextMessage::Message {
        let Some((_, at)) = stamped(&update) else { continue };
        sent.add(at);
        arrived.add(clock::now());
    }
    let mut figures = sent.figures("sensor_sent");
    figures.extend(arrived.figures("sensor_received"));
    Ok(figures)
}

/// Runs the console and the sensor.
pub(super) fn command(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let mut conversations = conversations.into_iter();
    let (actuator, monitor) = (conversations.next(), conversations.next());
    std::thread::scope(|scope| {
        let sensor = scope.spawn(|| monitor.map_or(Ok(()), |monitor| report(scene, monitor)));
        let figures = actuator.map_or(Ok(Vec::new()), |actuator| console(scene, actuator))?;
        sensor.join().unwrap_or_else(|_| Err(io::Error::other("the sensor panicked")))?;
        Ok(figures)
    })
}

fn report(scene: &ServiceScene, mut monitor: Box<dyn Conversation>) -> io::Result<()> {
    for number in 0.. {
        let due = scene.ends.from + UPDATE_INTERVAL * number;
        if due >= scene.ends.until {
            break;
        }
        timer::sleep_until(due);
        let mut update = [0; STAMP];
        stamp(&mut update, number, clock::now());
        monitor.send(&update)?;
    }
    Ok(())
}

fn console(scene: &ServiceScene, mut actuator: Box<dyn Conversation>) -> io::Result<Vec<Figure>> {
    let mut random = Pcg64Mcg::seed_from_u64(scene.seed);
    let mut times = Histogram::new();
    let (mut jitter, mut last) = (Histogram::new(), None::<Duration>);
    let mut acknowledged = Vec::new();
    let mut due = scene.ends.from;
    loop {
        due += Duration::from_nanos(random.random_range(COMMAND_INTERVAL_NS));
        if due >= scene.ends.until {
            break;
        }
        timer::sleep_until(due);
        let sent = clock::now();
        actuator.send(&[1])?;
        let heard = actuator.receive(&mut acknowledged, scene.ends.until)?;
        let took = clock::now() - sent;
        // a command that is not acknowledged at the end counts with the time that the console has waited
        times.record(took.into());
        if heard != NextMessage::Message {
            break;
        }
        if let Some(last) = last.replace(took) {
            jitter.record(took.abs_diff(last).into());
        }
    }
    let figures = [("response_us", times), ("jitter_us", jitter)];
    Ok(figures.iter().filter_map(|(name, times)| distributed(name, times.distribution(1e3), "us")).collect())
}

/// The times between events that should arrive at equal intervals.
#[derive(Debug, Default)]
struct Spacing {
    last: Option<Instant>,
    between: Histogram,
    /// The deviation of each interval from the intended one.
    off: Histogram,
}

impl Spacing {
    fn add(&mut self, at: Instant) {
        if let Some(last) = self.last.replace(at) {
            let between = at - last;
            self.between.record(between.into());
            self.off.record(between.abs_diff(UPDATE_INTERVAL).into());
        }
    }

    fn figures(&self, who: &str) -> Vec<Figure> {
        let between = distributed(&format!("{who}_us"), self.between.distribution(1e3), "us");
        let off = distributed(&format!("{who}_jitter_us"), self.off.distribution(1e3), "us");
        let updates = Figure::new(format!("{who}_updates"), self.between.len() as f64, "1");
        between.into_iter().chain(off).chain([updates]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spacing_counts_the_times_between_and_how_far_they_are_off() {
        let mut spacing = Spacing::default();
        for at in [Duration::ZERO, UPDATE_INTERVAL, UPDATE_INTERVAL * 2 + Duration::from_millis(1)] {
            spacing.add(Instant::ZERO + at);
        }
        let figures = spacing.figures("sensor");
        assert_eq!(figures[2].value, 2.0);
        let between = figures[0].distribution.expect("counted");
        assert!(
            (between.max - 31_000.0).abs() < 31.0 && (between.min - 30_000.0).abs() < 30.0,
            "{between:?}"
        );
        let off = figures[1].distribution.expect("counted");
        assert!((off.max - 1_000.0).abs() < 1.0, "{off:?}");
    }
}
