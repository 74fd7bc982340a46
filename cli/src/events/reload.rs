//! `unisono events reload`: has a broker read its files again.

use super::flags::{BrokerFlag, in_words};
use crate::exit::Failure;
use crate::machine_output;
use crate::output;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Have the broker read its policy, permissions, tokens and certificates again
///
/// The files are those that `serve` was started with. They come into force all together, or not at all: if
/// one is wrong, the answer says where, and what was read before holds. A connection whose client may still
/// do what it does goes on; every other one is ended at once, with the reason. New weights hold for the
/// events that wait. Only root and the broker's own user may ask for this, at the path of the broker's
/// socket. With permissions, a rule has to name that user. SIGHUP to the broker does the same, and the
/// outcome is a line on the broker's standard error.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events reload
  unisono events reload --at /run/unisono/events --json
  kill -HUP PID
      the same; the broker prints the outcome")]
pub(crate) struct Args {
    /// The outcome as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    broker: BrokerFlag,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.broker.client().map_err(|error| match error.downcast::<Failure>() {
        Ok(Failure::Host(text)) => Failure::Host(format!(
            "{text}; a broker that listens at no path (serve --listen PATH) reads its files again after kill -HUP PID"
        ))
        .into(),
        Ok(other) => other.into(),
        Err(other) => other,
    });
    let report = client?.reload().map_err(in_words)?;
    if args.json {
        output::answer(&machine_output::json("unisono-events-reload-1", &report)?)?;
        return Ok(if report.refused.is_some() { ExitCode::from(2) } else { ExitCode::SUCCESS });
    }
    if report.refused.is_some() {
        return Err(Failure::Usage(report.to_string()).into());
    }
    let mut text = report.to_string();
    for end in &report.ends {
        let _ = write!(text, "\nended {} ({}): {}", end.who, end.name, end.why);
    }
    output::answer(&text)?;
    Ok(ExitCode::SUCCESS)
}
