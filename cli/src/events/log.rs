//! The options that describe the broker's log.

use crate::exit::Failure;
use crate::flags::one_of;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_broker::Broker;
use unisono_broker::log::{EventLog, LogBounds, LogError};
use unisono_events_client::Durability;
use unisono_linux::clock::{now, wall_ahead};
use unisono_measure::units;

const MESSAGE_DURABILITY: [(Durability, &str, &str); 2] = [
    (Durability::Written, "written", "write(2) has returned"),
    (Durability::Synced, "synced", "fdatasync(2) has returned"),
];

/// The file with the identifier of the current boot of this host.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Where events are kept, and how many.
#[derive(clap::Args)]
pub(crate) struct LogFlags {
    /// Keep events in this directory: suppliers may ask for durability, consumers may resume, and MQTT
    /// sessions outlive the broker
    #[arg(long, value_name = "DIRECTORY")]
    log: Option<PathBuf>,
    /// Maximum size of the log; beyond it the oldest events are removed
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = units::bytes,
        default_value = "256MiB",
        requires = "log"
    )]
    log_bytes: u64,
    /// Remove events from the log that are older than this. Without it, events that were acknowledged as
    /// written or synced stay as long as --log-bytes allows, and others for a week
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "log")]
    log_age: Option<Duration>,
    /// Topics that are kept although no supplier asks; several are separated by commas
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', requires = "log")]
    log_topics: Vec<String>,
    /// When MQTT messages of QoS 1 and 2 are confirmed that are logged, because of their topic or because a
    /// session waits for them: once they are written, or synced
    #[arg(long, value_name = "HOW", value_parser = one_of(&MESSAGE_DURABILITY), default_value = "written", requires = "log")]
    log_mqtt: Durability,
}

impl LogFlags {
    /// Returns the directory of the log.
    pub(super) fn path(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Opens the log and gives it to the broker. Damage of the log is reported on standard error.
    pub(super) fn add_to(&self, broker: &mut Broker) -> anyhow::Result<()> {
        let Some(path) = &self.log else { return Ok(()) };
        let mut kept = Vec::new();
        for pattern in &self.log_topics {
            kept.push(pattern.parse().map_err(|error| Failure::Usage(format!("--log-topics: {error}")))?);
        }
        let age = self.log_age.map_or(LogBounds::default().age, Into::into);
        let log = open(path, LogBounds { bytes: self.log_bytes, age })?;
        let boot = std::fs::read_to_string(BOOT).with_context(|| format!("cannot read {BOOT}"))?;
        let time_ahead = log.time_ahead(boot.trim_end(), now(), wall_ahead())?;
        broker.add_log(log, time_ahead, kept);
        broker.confirm_messages(self.log_mqtt);
        broker.keep_again(now())?;
        for damage in broker.log_damage() {
            eprintln!("warning: {damage}");
        }
        Ok(())
    }
}

/// Opens a log. If another process has it open, or its directory cannot be made, the error counts as bad
/// usage.
pub(super) fn open(directory: &Path, bounds: LogBounds) -> anyhow::Result<EventLog> {
    EventLog::open(directory, bounds).map_err(|error| match error {
        LogError::Taken { .. } | LogError::NoDirectory { .. } => Failure::Usage(error.to_string()).into(),
        other => other.into(),
    })
}
