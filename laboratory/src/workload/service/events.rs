//! Small events at a steady rate (section 3.4, Table 2): the delay of an event from end to end.

use super::{ServiceScene, distributed};
use crate::workload::stamp::{STAMP, stamp, stamped};
use std::io;
use unisono_linux::clock::{self, Duration};
use unisono_linux::timer;
use unisono_measure::Histogram;
use unisono_measure::record::Figure;
use unisono_workload::conversation::{Conversations, NextMessage};

/// Returns the time between two events.
fn period(scene: &ServiceScene) -> Duration {
    Duration::from_nanos(((1e9 / scene.events_per_s) as u64).max(1))
}

/// Returns the number of events of the run.
fn events(scene: &ServiceScene) -> u64 {
    (scene.ends.until - scene.ends.from).as_nanos().div_ceil(period(scene).as_nanos())
}

pub(super) fn supply(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let mut event = vec![0; scene.ends.message_bytes.max(STAMP)];
    for mut consumer in conversations {
        for number in 0..events(scene) {
            timer::sleep_until(scene.ends.from + period(scene) * number);
            stamp(&mut event, number, clock::now());
            consumer.send(&event)?;
        }
    }
    Ok(Vec::new())
}

pub(super) fn consume(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    /// If the last event was lost, the consumer gives up this long after that event was due.
    const LAST_EVENT_TIMEOUT: Duration = Duration::from_secs(2);
    let mut delays = Histogram::new();
    let mut event = Vec::new();
    for mut supplier in conversations {
        while supplier.receive(&mut event, scene.ends.until + LAST_EVENT_TIMEOUT)? == NextMessage::Message {
            let Some((number, sent)) = stamped(&event) else { continue };
            delays.record((clock::now() - sent).into());
            if number + 1 == events(scene) {
                break;
            }
        }
    }
    let arrived = Figure::new("events", delays.len() as f64, "1");
    Ok(distributed("one_way_us", delays.distribution(1e3), "us").into_iter().chain([arrived]).collect())
}
