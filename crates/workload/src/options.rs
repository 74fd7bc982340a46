//! The options of every workload and every peer, and their form on a command line.

use super::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use unisono_linux::affinity::{self, CpuSet, Tid};

/// The maximum number of participants that one program starts. With more, the start-up of threads would
/// dominate.
pub const MAX_THREADS: usize = 1024;

/// The options of a workload. The peers in C and C++ have the same flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub threads: usize,
    /// Computation before each barrier.
    pub interval: Duration,
    /// Maximum of the additional computation, drawn from a normal distribution in `[0, variance]`; see
    /// [`arrival`](super::arrival).
    pub variance: Duration,
    /// Measured seconds, after the warm-up.
    pub seconds: f64,
    pub warm_up: Duration,
    /// The seed of all generators; participant `i` draws from stream `i`.
    pub seed: u64,
    pub pin: Pin,
    /// The moment of `CLOCK_MONOTONIC` (nanoseconds) at which measuring begins, instead of after the warm-up,
    /// so that programs started one after the other are measured over the same time.
    pub start_at: Option<u64>,
    /// Number of iterations after which to stop, instead of by time (kernels, tests).
    pub iterations: Option<u64>,
    /// Problem size of a kernel; `None` stands for its default.
    pub size: Option<usize>,
    /// The result file; `None` stands for standard output.
    pub result: Option<PathBuf>,
    /// Whether the kernel kills the program when the thread that started it ends.
    pub die_with_parent: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 2,
            interval: Duration::ZERO,
            variance: Duration::ZERO,
            seconds: 1.0,
            warm_up: Duration::from_millis(100),
            seed: 1,
            pin: Pin::None,
            start_at: None,
            iterations: None,
            size: None,
            result: None,
            die_with_parent: false,
        }
    }
}

/// Returns the flags that have a value, each followed by its value.
pub fn flags<const N: usize>(flags: [(&str, Option<String>); N]) -> impl Iterator<Item = String> {
    let words = |(name, value): (&str, Option<String>)| Some([name.to_owned(), value?]);
    flags.into_iter().filter_map(words).flatten()
}

impl Options {
    /// Returns the options as flags. Defaults of options that only some programs know are left out.
    pub fn to_arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.die_with_parent {
            arguments.push("--die-with-parent".to_owned());
        }
        arguments.extend(flags([
            ("--threads", Some(self.threads.to_string())),
            ("--interval", Some(nanoseconds(self.interval))),
            ("--variance", Some(nanoseconds(self.variance))),
            ("--seconds", Some(self.seconds.to_string())),
            ("--warm-up", Some(nanoseconds(self.warm_up))),
            ("--seed", Some(self.seed.to_string())),
            ("--pin", Some(self.pin.to_string())),
            ("--start-at", self.start_at.map(|moment| moment.to_string())),
            ("--iterations", self.iterations.map(|iterations| iterations.to_string())),
            ("--size", self.size.map(|size| size.to_string())),
            ("--result", self.result.as_ref().map(|path| path.display().to_string())),
        ]));
        arguments
    }

    /// Refuses options that cannot be measured.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Options(text));
        if self.threads == 0 {
            return refuse("a barrier needs at least one thread, not 0".into());
        }
        if self.threads > MAX_THREADS {
            return refuse(format!("{} threads: at most {MAX_THREADS}", self.threads));
        }
        if !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return refuse(format!("{} seconds: measure more than 0 and at most 3600", self.seconds));
        }
        let computation = self.interval + self.variance;
        if computation > Duration::from_secs(10) {
            return refuse(format!(
                "interval and variance of {} s together are more than 10 s",
                computation.as_secs_f64()
            ));
        }
        self.pin.placement().map(|_| ())
    }
}

/// Writes a duration in a form that every peer parses exactly.
fn nanoseconds(duration: Duration) -> String {
    format!("{}ns", duration.as_nanos())
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// The kernel places the participants.
    #[default]
    None,
    /// Participant `i` on the `i`-th processor that this process may use, cyclically.
    Spread,
    /// Participant `i` on the `i`-th processor of the list, cyclically.
    List(Vec<usize>),
}

impl Pin {
    /// Returns the processors in order, or none if participants are not pinned. Fails for a processor that
    /// this process may not use.
    pub(crate) fn placement(&self) -> Result<Vec<usize>, Error> {
        if *self == Pin::None {
            return Ok(Vec::new());
        }
        let allowed = affinity::allowed(Tid::SELF)
            .map_err(|error| Error::Options(format!("cannot read the allowed processors: {error}")))?;
        match self {
            Pin::List(list) => match list.iter().find(|cpu| !allowed.contains(**cpu)) {
                Some(cpu) => Err(Error::Options(format!(
                    "processor {cpu} is not among those this process may use ({allowed})"
                ))),
                None => Ok(list.clone()),
            },
            _ => Ok(allowed.iter().collect()),
        }
    }
}

/// Pins the calling thread to participant `index`'s processor, if there is one.
pub(crate) fn pin_participant(placement: &[usize], index: usize) -> Result<(), Error> {
    if placement.is_empty() {
        return Ok(());
    }
    let cpu = placement[index % placement.len()];
    affinity::restrict_own(&CpuSet::single(cpu)).map_err(|source| Error::Pin {
        participant: index,
        cpu,
        source,
    })
}

/// Restores the calling thread's affinity when dropped: participant 0 runs on the caller's own thread.
pub(crate) struct RestoredAffinity(Option<CpuSet>);

impl RestoredAffinity {
    pub(crate) fn save(placement: &[usize]) -> Self {
        Self(if placement.is_empty() { None } else { affinity::allowed(Tid::SELF).ok() })
    }
}

impl Drop for RestoredAffinity {
    fn drop(&mut self) {
        if let Some(cpus) = &self.0 {
            // The kernel refuses the former processors only if the cpuset has changed meanwhile; that change
            // prevails.
            affinity::restrict_own(cpus).ok();
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pin::None => f.write_str("none"),
            Pin::Spread => f.write_str("spread"),
            Pin::List(list) => {
                let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no placement; write none, spread, or processors like 0-3,8")]
pub struct BadPin(String);

impl FromStr for Pin {
    type Err = BadPin;

    fn from_str(text: &str) -> Result<Self, BadPin> {
        match text {
            "none" => return Ok(Pin::None),
            "spread" => return Ok(Pin::Spread),
            _ => {}
        }
        let mut list = Vec::new();
        for part in text.split(',') {
            list.extend(CpuSet::range(part).ok_or_else(|| BadPin(text.to_owned()))?);
        }
        Ok(Pin::List(list))
    }
}

/// Writes a result to a temporary file in the same directory and renames it, so that a reader never sees half
/// of it.
pub fn write_result(path: &Path, json: &str) -> Result<(), Error> {
    let failed = |source| Error::Result { path: path.to_owned(), source };
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    std::fs::write(&beside, format!("{json}\n")).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_read_in_the_order_it_is_written() {
        assert_eq!("none".parse(), Ok(Pin::None));
        assert_eq!("spread".parse(), Ok(Pin::Spread));
        assert_eq!("3,0-2".parse(), Ok(Pin::List(vec![3, 0, 1, 2])));
        for text in ["", "near", "2-1", "-1", "0,,1", "99999999"] {
            assert!(text.parse::<Pin>().is_err(), "{text}");
        }
    }

    #[test]
    fn options_that_cannot_be_measured_are_refused_with_the_value() {
        let message = |options: Options| options.check().expect_err("refused").to_string();
        let base = Options::default;
        assert!(message(Options { threads: 0, ..base() }).contains("not 0"));
        assert!(message(Options { threads: 5000, ..base() }).contains("5000"));
        assert!(message(Options { seconds: 0.0, ..base() }).contains("0 seconds"));
        assert!(message(Options { seconds: f64::NAN, ..base() }).contains("NaN"));
        assert!(message(Options { interval: Duration::from_secs(11), ..base() }).contains("11 s"));
        assert!(message(Options { pin: Pin::List(vec![8000]), ..base() }).contains("8000"));
        assert!(base().check().is_ok());
    }
}
