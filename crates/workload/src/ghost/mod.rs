//! The nearest-neighbor exchange of ghost areas over Unisono's own windows, by processes of one host.
//!
//! It writes the same results as the peer in C (`peers/ghost.c`), but uses `unisono-rma` instead of an MPI.
//! The processes form a periodic grid of two dimensions. In each step, a process puts one message of the
//! given size to each of its four neighbors. A batch of steps is timed between two barriers, and the slowest
//! process's time counts. It also measures one operation with its completion, and a barrier.
//!
//! ```text
//!   launch (one process) --starts--> rank 0, rank 1, ... --rank 0 writes--> one JSON object a measurement
//! ```
//! Cost: only the loop is timed. Every method is first checked at every size to deliver the right data. When
//! not to use it: for messages. They have no counterpart here, because the engine has windows only.
//!
//! Reference: Thakur, Gropp, Toonen, "Minimizing Synchronization Overhead in the Implementation of MPI
//! One-Sided Communication", section 1 (asserts of its figure 1) and section 5.

mod grid;
mod launch;
mod rank;

pub use launch::launch;
pub use rank::run;

use super::Pin;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use unisono_rma::Style;

pub(crate) const MAX_PROCESSES: usize = 256;

/// The limit of the peer in C.
pub(crate) const MAX_REPETITIONS: usize = 101;

#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    pub processes: usize,
    /// Seconds of each measurement, all repetitions together.
    pub seconds: f64,
    pub repetitions: usize,
    /// Bytes to each neighbor.
    pub sizes: Vec<usize>,
    /// The methods to measure; an empty list stands for all.
    pub only: Vec<String>,
    pub windows: Vec<String>,
    pub style: Style,
    pub pin: Pin,
    /// The result file; `None` stands for standard output.
    pub result: Option<PathBuf>,
}

impl Exchange {
    pub fn check(&self) -> Result<(), super::Error> {
        let refuse = |text: String| Err(super::Error::Options(text));
        if !(1..=MAX_PROCESSES).contains(&self.processes) {
            return refuse(format!("{} processes; 1 to {MAX_PROCESSES} are possible", self.processes));
        }
        if !(self.seconds > 0.0 && self.seconds <= 600.0) {
            return refuse(format!("{} seconds: measure more than 0 and at most 600", self.seconds));
        }
        if !(1..=MAX_REPETITIONS).contains(&self.repetitions) {
            return refuse(format!("{} repetitions; 1 to {MAX_REPETITIONS} are possible", self.repetitions));
        }
        if let Some(size) = self.sizes.iter().find(|size| !(1..=1 << 20).contains(*size)) {
            return refuse(format!("{size} bytes to each neighbour; 1 to 1048576 are possible"));
        }
        self.pin.placement().map(|_| ())
    }

    fn is_selected(&self, method: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == method)
    }
}

/// One measurement, as this program and the peer write it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GhostMeasurement {
    pub program: String,
    /// `unisono`, `mpich`, `openmpi`.
    pub mpi: String,
    pub processes: usize,
    /// `messages`, `fence`, `pscw`, `lock`, `put_flush`, ...
    pub method: String,
    /// `allocated`, `created` or `none`.
    pub window: String,
    /// Bytes to each neighbor, or of the operation.
    pub bytes: u64,
    /// Steps of a repetition.
    pub steps: u64,
    pub repetitions: u64,
    /// Nanoseconds of a step in the best repetition.
    pub min_ns: f64,
    /// Nanoseconds of a step in the median repetition.
    pub median_ns: f64,
    /// Nanoseconds of a step in the worst repetition.
    pub max_ns: f64,
    /// Bandwidth of one neighbor's message, in megabytes per second.
    pub median_mb_s: f64,
}

impl GhostMeasurement {
    /// Parses one object from each line. Reading ends at a line that was cut off.
    pub fn read(text: &str) -> Result<Vec<Self>, serde_json::Error> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_writes_is_read_and_a_cut_off_line_is_left_out() {
        let line = r#"{"program":"ghost","mpi":"mpich","processes":2,"method":"fence","window":"allocated","bytes":16,"steps":900,"repetitions":3,"min_ns":2100.0,"median_ns":2190.5,"max_ns":2300.0,"median_mb_s":7.3}"#;
        let read = GhostMeasurement::read(&format!("{line}\n{line}\n{}", &line[..40])).expect("two lines");
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].method.as_str(), read[0].bytes, read[0].median_ns), ("fence", 16, 2190.5));
        assert!(GhostMeasurement::read("{\"program\":1}\n").is_err());
    }

    #[test]
    fn an_exchange_that_cannot_be_measured_is_refused_with_the_value() {
        let good = Exchange {
            processes: 2,
            seconds: 0.1,
            repetitions: 3,
            sizes: vec![16],
            only: Vec::new(),
            windows: vec!["allocated".into()],
            style: Style::Direct,
            pin: Pin::None,
            result: None,
        };
        assert!(good.check().is_ok());
        let message = |bad: Exchange| bad.check().expect_err("refused").to_string();
        assert!(message(Exchange { processes: 0, ..good.clone() }).contains("0 processes"));
        assert!(message(Exchange { sizes: vec![1 << 21], ..good.clone() }).contains("2097152 bytes"));
        assert!(message(Exchange { repetitions: 102, ..good.clone() }).contains("102"));
        assert!(message(Exchange { seconds: f64::NAN, ..good }).contains("NaN"));
    }
}
