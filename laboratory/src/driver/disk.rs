//! A disk shared by classes of requests: under Cello, under one queue, or in the kernel's order.
//!
//! ```text
//!   two downloads, a user, a player -- the disk service -- a file, bypassing the page cache
//! ```
//! The service has two threads, so two requests are at the disk at a time, and the discipline (Cello or one
//! queue) orders the waiting requests. For the kernel's order there are as many threads as requests, so that
//! no request waits in the service.

use crate::workload::disk::{CLASS_NAMES, ClassResult, MAX_WAITING_REQUESTS, SharedFile, hierarchy, serve};
use crate::workload::disk_service::DiskRule;
use serde::{Deserialize, Serialize};
use std::time::Duration as StdDuration;
use unisono_fairqueue::{Disk, Purpose};
use unisono_linux::clock::Duration;
use unisono_measure::record::Figure;
use unisono_study::driver::{Context, Driver, DriverKind, NoResult, RunResult};

/// The number of requests at the disk at a time, if this program decides the order. With one, the disk would
/// be idle while the next request is chosen. The discipline can no longer reorder the additional requests.
/// Chosen by this argument, not measured.
const QUEUE_DEPTH: usize = 2;

/// Cello's model of the disk: a slow SSD, 0.3 ms a request and 200 MB/s. It underestimates the disk, because
/// the guarantees that are computed from it must hold. A class may be ahead of its share by one read of a
/// download. Chosen for any disk that a study may meet, not measured.
const DISK: Disk =
    Disk { request: Duration::from_micros(300), bytes_per_second: 200_000_000, ahead: 256 << 10 };

pub const DISK_SHARES: DriverKind = DriverKind::new::<DiskDriver>("disk");

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskDriver {
    backend: DiskBackend,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DiskBackend {
    #[default]
    Cello,
    Fifo,
    /// The kernel gets every request immediately, and decides the order.
    Kernel,
}

impl Driver for DiskDriver {
    fn estimated_overhead(&self, _: f64) -> StdDuration {
        StdDuration::from_millis(700)
    }

    fn run(&self, context: Context, seconds: f64, _: u64) -> Result<RunResult, NoResult> {
        let tree = hierarchy();
        let (rule, threads) = match self.backend {
            DiskBackend::Kernel => (DiskRule::Fifo { hierarchy: tree }, MAX_WAITING_REQUESTS),
            DiskBackend::Fifo => (DiskRule::Fifo { hierarchy: tree }, QUEUE_DEPTH),
            DiskBackend::Cello => {
                let purposes = [("interactive", Purpose::Interactive), ("real-time", Purpose::RealTime)];
                let named = |(name, purpose)| tree.find(name).map(|class| (class, purpose));
                let purposes = purposes.into_iter().filter_map(named).collect();
                (DiskRule::Cello { hierarchy: tree.clone(), purposes, disk: DISK }, QUEUE_DEPTH)
            }
        };
        let file = SharedFile::open(context.directory).map_err(|error| {
            NoResult::Skipped(format!(
                "{} cannot be read past the page cache: {error}; set TMPDIR to a directory on a disk",
                context.directory.display()
            ))
        })?;
        let results = serve(rule, threads, &file, StdDuration::from_secs_f64(seconds), &|| {
            (context.interrupted)().is_some()
        });
        if let Some(signal) = (context.interrupted)() {
            return Err(NoResult::Interrupted(format!("stopped by {signal}")));
        }
        let results = results.map_err(|error| NoResult::Failed(format!("a request failed: {error}")))?;
        Ok(class_figures(&results))
    }
}

fn class_figures(results: &[ClassResult; 3]) -> RunResult {
    let mut figures =
        vec![Figure::new("all_mb_per_s", results.iter().map(|result| result.mb_per_s).sum::<f64>(), "MB/s")];
    for (name, result) in CLASS_NAMES.iter().zip(results) {
        let name = name.replace('-', "_");
        figures.push(Figure::new(format!("{name}_mb_per_s"), result.mb_per_s, "MB/s"));
        if result.due > 0 {
            let late = result.late as f64 * 100.0 / result.due as f64;
            figures.push(Figure::new(format!("{name}_late_percent"), late, "%"));
        }
        let Some(took) = result.latency_ms else { continue };
        figures.push(Figure::from_distribution(format!("{name}_ms"), "ms", took));
        figures.push(Figure::new(format!("{name}_p99_ms"), took.p99, "ms"));
    }
    RunResult { figures, ..RunResult::default() }
}
