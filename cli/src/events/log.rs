//! The options that describe the broker's log.

use crate::exit::Failure;
use crate::flags::one_of;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use unisono_broker::log::{EventLog, LogBounds, LogError};
use unisono_broker::{Broker, Durability};
use unisono_linux::clock::{Nanos, now};
use unisono_measure::units;

const MESSAGE_DURABILITY: [(Durability, &str, &str); 2] = [
    (Durability::Written, "written", "write(2) has returned"),
    (Durability::Synced, "synced", "fdatasync(2) has returned"),
];

/// Where events are kept, and how many.
#[derive(clap::Args)]
pub(crate) struct LogFlags {
    /// Keep events in this directory: suppliers may ask for durability, and consumers may resume
    #[arg(long, value_name = "DIRECTORY")]
    log: Option<PathBuf>,
    /// Bytes of the log; the oldest events go
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = units::bytes,
        default_value = "256MiB",
        requires = "log"
    )]
    log_bytes: u64,
    /// How old an event of the log may be
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "168h", requires = "log")]
    log_age: Duration,
    /// Topics that are kept although no supplier asks; several are separated by commas
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', requires = "log")]
    log_topics: Vec<String>,
    /// When MQTT messages of QoS 1 and 2 to these topics are confirmed: once they are written, or synced
    #[arg(long, value_name = "HOW", value_parser = one_of(&MESSAGE_DURABILITY), default_value = "written", requires = "log")]
    log_mqtt: Durability,
}

impl LogFlags {
    /// The directory of the log.
    pub(super) fn path(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// The broker with its log; damage of the log is reported on standard error.
    pub(super) fn add_to(&self, broker: Broker) -> anyhow::Result<Broker> {
        let Some(path) = &self.log else { return Ok(broker) };
        let mut kept = Vec::new();
        for pattern in &self.log_topics {
            kept.push(pattern.parse().map_err(|error| Failure::Usage(format!("--log-topics: {error}")))?);
        }
        let bounds = LogBounds { bytes: self.log_bytes, age: self.log_age.into() };
        let log = open(path, bounds)?;
        let broker = broker.with_log(log, epoch()?, kept).confirming_messages(self.log_mqtt);
        let broker = broker.keeping_again(now())?;
        for damage in broker.log_damage() {
            eprintln!("warning: {damage}");
        }
        Ok(broker)
    }
}

/// Opens a log; another process that has it is an error of usage.
pub(super) fn open(directory: &Path, bounds: LogBounds) -> anyhow::Result<EventLog> {
    EventLog::open(directory, bounds).map_err(|error| match error {
        LogError::Taken { .. } => Failure::Usage(error.to_string()).into(),
        other => other.into(),
    })
}

/// The wall-clock time when the monotonic clock was 0, in nanoseconds since 1970.
pub(super) fn epoch() -> anyhow::Result<Nanos> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(Nanos::from(since_1970).since(now()))
}
