//! The flags of all workloads and peers, and parsers that several commands share.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use std::time::Duration;
use unisono_linux::parent_death::die_with_parent;
use unisono_measure::units;
use unisono_workload::{Options, Pin};

#[derive(clap::Args)]
pub struct WorkloadFlags {
    /// Participants
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = one_number)]
    pub(crate) threads: usize,
    /// Computation before each barrier
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "0us")]
    pub(crate) interval: Duration,
    /// Additional computation, drawn from a normal distribution in [0, VARIANCE] (mean half of it, sigma a
    /// sixth)
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "0us")]
    pub(crate) variance: Duration,
    /// Measured seconds of each run
    #[arg(long, value_name = "S", default_value_t = 1.0, allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// Where the threads run: none (the kernel decides), spread (each on a core of its own, in turn), or
    /// processors like 0-3,8
    #[arg(long, value_name = "PIN", default_value = "none")]
    pub(crate) pin: Pin,
    /// Seed of the random part
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write the JSON to this file too
    #[arg(long, value_name = "FILE")]
    pub(crate) result: Option<PathBuf>,
    /// Time before the measurement
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "100ms", hide = true)]
    pub(crate) warm_up: Duration,
    /// Begin measuring at this moment of CLOCK_MONOTONIC, in nanoseconds
    #[arg(long, value_name = "NS", hide = true)]
    pub(crate) start_at: Option<u64>,
    /// Stop after this many iterations
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) iterations: Option<u64>,
    /// Problem size of a kernel
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(4..=16384))]
    pub(crate) size: Option<u32>,
    /// End with the thread that started this program
    #[arg(long, hide = true)]
    pub(crate) die_with_parent: bool,
}

/// Parses one whole number; the error says how to compare several numbers.
pub(crate) fn one_number(text: &str) -> Result<usize, String> {
    let refuse = |_| "write one whole number; to compare several, run the command once for each".to_owned();
    text.parse().map_err(refuse)
}

/// Returns a parser that accepts the names of the given values.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [(T, &'static str, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(|(_, name, what)| PossibleValue::new(*name).help(*what));
    PossibleValuesParser::new(names).map(move |name| {
        let value = all.iter().find(|(_, known, _)| *known == name).map(|(value, _, _)| *value);
        value.expect("one of them because the parser takes no other")
    })
}

impl WorkloadFlags {
    /// Returns the options for a run in this process. With `--die-with-parent`, this process first asks the
    /// kernel to kill it when its parent ends.
    pub(crate) fn options(&self) -> anyhow::Result<Options> {
        if self.die_with_parent {
            die_with_parent(None)?;
        }
        Ok(Options {
            threads: self.threads,
            interval: self.interval,
            variance: self.variance,
            seconds: self.seconds,
            warm_up: self.warm_up,
            seed: self.seed,
            pin: self.pin.clone(),
            start_at: self.start_at,
            iterations: self.iterations,
            size: self.size.map(|size| size as usize),
            ..Options::default()
        })
    }
}
