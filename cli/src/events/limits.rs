//! The limits of a broker: options that set them, and the table that explains them.

use crate::columns::fold;
use crate::live_view::table_width;
use crate::{machine_output, output};
use serde_json::json;
use std::fmt::Write as _;
use std::process::ExitCode;
use unisono_broker::Limits;
use unisono_measure::units;

/// Limits of the broker.
#[derive(clap::Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitFlags {
    /// Maximum number of connected programs; a single user may have half of them [default: 256]
    ///
    /// The events that wait may then take 4 MiB of memory for each program. Suppliers, consumers,
    /// subscriptions and MQTT sessions grow with it beyond 256 programs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: Option<u32>,
    /// Maximum payload of an event, from 1KiB to 63MiB; an uncompressed image of 1080p has 6.2 MB [default:
    /// 4MiB]
    #[arg(long, value_name = "BYTES", value_parser = payload)]
    max_payload: Option<u32>,
    /// Maximum number of suppliers: one for each topic of a program, one for an MQTT client [default: 4096,
    /// or 16 for each of --clients]
    #[arg(long, value_name = "N", value_parser = count)]
    max_suppliers: Option<usize>,
    /// Maximum number of subscriptions [default: 65536, or 256 for each of --clients]
    #[arg(long, value_name = "N", value_parser = count)]
    max_subscriptions: Option<usize>,
    /// Maximum number of MQTT sessions, connected or away [default: 4096, or 16 for each of --clients]
    #[arg(long, value_name = "N", value_parser = count)]
    max_sessions: Option<usize>,
    /// Maximum bytes of events that wait for one MQTT session, from 1KiB to 1GiB [default: 1MiB]
    #[arg(long, value_name = "BYTES", value_parser = mqtt_queue)]
    max_mqtt_queue: Option<usize>,
    /// Print all limits, with the option and the reason of each, and serve nothing
    #[arg(long)]
    pub(super) print_limits: bool,
}

impl LimitFlags {
    pub(super) fn limits(&self) -> Limits {
        let usual = self.clients.map_or_else(Limits::default, Limits::for_clients);
        Limits {
            largest: self.max_payload.unwrap_or(usual.largest),
            suppliers: self.max_suppliers.unwrap_or(usual.suppliers),
            subscriptions: self.max_subscriptions.unwrap_or(usual.subscriptions),
            sessions: self.max_sessions.unwrap_or(usual.sessions),
            mqtt_queue: self.max_mqtt_queue.unwrap_or(usual.mqtt_queue),
            ..usual
        }
    }
}

fn payload(text: &str) -> Result<u32, String> {
    let bytes = units::bytes(text).map_err(|error| error.to_string())?;
    let most = Limits::MAX_PAYLOAD;
    match u32::try_from(bytes).ok().filter(|bytes| (1024..=most).contains(bytes)) {
        Some(bytes) => Ok(bytes),
        None => Err(format!("a payload has from 1KiB to {}MiB", most >> 20)),
    }
}

fn mqtt_queue(text: &str) -> Result<usize, String> {
    let bytes = units::bytes(text).map_err(|error| error.to_string())?;
    let bytes = usize::try_from(bytes).ok().filter(|bytes| (1 << 10..=1 << 30).contains(bytes));
    bytes.ok_or_else(|| "the queue of a session has from 1KiB to 1GiB".to_owned())
}

/// Parses a maximum number of objects, each of which takes at least some hundred bytes.
fn count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=10_000_000).contains(count));
    count.ok_or_else(|| "write a number from 1 to 10000000".to_owned())
}

/// The indentation of a reason that does not fit beside its limit.
const REASON: usize = 4;

/// Prints the limits as a table, or as JSON.
pub(super) fn print(limits: &Limits, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        let lines = limits.lines();
        output::answer(&machine_output::json("unisono-events-limits-1", &json!({ "limits": lines }))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::answer(&table(limits, table_width()))?;
    Ok(ExitCode::SUCCESS)
}

/// A reason that does not fit beside its limit is in lines below it.
fn table(limits: &Limits, width: usize) -> String {
    let mut text = format!("{:<22} {:>16}  {:<19} {}", "limit", "value", "option", "reason");
    for line in limits.lines() {
        let value = format!("{} {}", line.value, line.unit);
        let (value, option) = (value.trim_end(), line.option.unwrap_or("-"));
        let facts = format!("{:<22} {value:>16}  {option:<19}", line.name);
        if facts.len() + 1 + line.why.len() <= width {
            let _ = write!(text, "\n{facts} {}", line.why);
            continue;
        }
        let _ = write!(text, "\n{}", facts.trim_end());
        for part in fold(line.why, width.saturating_sub(REASON)).lines() {
            let _ = write!(text, "\n{:REASON$}{part}", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_limits_fits_a_terminal_and_loses_no_word() {
        let limits = Limits::default();
        let (narrow, wide) = (table(&limits, 80), table(&limits, usize::MAX));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        assert!(narrow.split_whitespace().eq(wide.split_whitespace()), "{narrow}");
        assert_eq!(wide.lines().count(), 1 + limits.lines().len());
    }
}
