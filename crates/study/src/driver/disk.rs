//! A disk that classes of requests share: under Cello, under one queue, or handed to the kernel at once.
//!
//! ```text
//!   two downloads, a user, a player -- the service of unisono-enforce -- a file, past the page cache
//! ```
//! The service's two threads are the requests that are out at a time; what waits behind them is ordered by
//! the rule. For the kernel's order there are as many threads as there can be requests, so that nothing waits
//! in the service.

use super::figures::figure;
use super::{Context, Driver, NoOutcome, Outcome};
use crate::settings::Settings;
use crate::workload::disk::{Got, NAMES, SLOTS, SharedFile, hierarchy, serve};
use std::time::Duration;
use unisono_enforce::disk::Rule;
use unisono_fairqueue::{Disk, Purpose};
use unisono_measure::record::Figure;

/// Requests out at a time, where the order is ours.
const OUT: usize = 2;

/// A guess from below: what is promised has to hold.
const DISK: Disk = Disk { request: 300_000, rate: 200_000_000, ahead: 256 << 10 };

#[derive(Debug)]
pub struct DiskDriver;

impl Driver for DiskDriver {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["backend"]
    }

    fn around(&self, _: &Settings, _: f64) -> Duration {
        Duration::from_millis(700)
    }

    fn run(&self, context: Context, settings: &Settings, seconds: f64, _: u64) -> Result<Outcome, NoOutcome> {
        let tree = hierarchy();
        let (rule, threads) = match settings.backend.as_deref() {
            Some("kernel") => (Rule::Fifo { hierarchy: tree }, SLOTS),
            Some("fifo") => (Rule::Fifo { hierarchy: tree }, OUT),
            None | Some("cello") => {
                let purposes = [("interactive", Purpose::Interactive), ("real-time", Purpose::RealTime)];
                let named = |(name, purpose)| tree.find(name).map(|class| (class, purpose));
                let purposes = purposes.into_iter().filter_map(named).collect();
                (Rule::Cello { hierarchy: tree.clone(), purposes, disk: DISK }, OUT)
            }
            Some(other) => {
                return Err(NoOutcome::Failed(format!("backend {other:?}; write cello, fifo or kernel")));
            }
        };
        let file = SharedFile::at(context.directory).map_err(|error| {
            NoOutcome::Skipped(format!(
                "{} cannot be read past the page cache: {error}; set TMPDIR to a directory on a disk",
                context.directory.display()
            ))
        })?;
        let got = serve(rule, threads, &file, Duration::from_secs_f64(seconds), &|| {
            (context.interrupted)().is_some()
        });
        if let Some(signal) = (context.interrupted)() {
            return Err(NoOutcome::Interrupted(format!("stopped by {signal}")));
        }
        let got = got.map_err(|error| NoOutcome::Failed(format!("a request failed: {error}")))?;
        Ok(outcome(&got))
    }
}

fn outcome(got: &[Got; 3]) -> Outcome {
    let mut figures = vec![figure("all_mb_per_s", got.iter().map(|got| got.mb_per_s).sum::<f64>(), "MB/s")];
    for (name, got) in NAMES.iter().zip(got) {
        let name = name.replace('-', "_");
        figures.push(figure(format!("{name}_mb_per_s"), got.mb_per_s, "MB/s"));
        if got.due > 0 {
            let late = got.late as f64 * 100.0 / got.due as f64;
            figures.push(figure(format!("{name}_late_percent"), late, "%"));
        }
        let Some(took) = got.took_ms else { continue };
        let (value, unit, distribution) = (took.median, "ms".to_owned(), Some(took));
        figures.push(Figure { name: format!("{name}_ms"), value, unit, distribution });
        figures.push(figure(format!("{name}_p99_ms"), took.p99, "ms"));
    }
    Outcome { figures, ..Outcome::default() }
}
