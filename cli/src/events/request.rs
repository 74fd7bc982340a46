//! `unisono events request`: publishes a request and waits for its reply.

use super::flags::{BrokerFlag, EventFlags, StayFlags, in_words};
use super::show::{self, PastEvent};
use crate::completions;
use crate::output;
use clap_complete::engine::ArgValueCandidates;
use std::process::ExitCode;
use std::time::Duration;
use unisono_events_client::{Advertisement, Reception};
use unisono_measure::units;

/// Publish a request and print its reply
///
/// Standard output gets the payload of the reply, with a line end if it has none, and nothing else. --json
/// has the topic and the fields of the reply, too.
///
/// A request carries the fields `reply_to` (a topic) and `request` (a number). A server publishes on that
/// topic an event with the same number: `unisono events subscribe TOPIC --reply COMMAND` does, and so do
/// `Client::reply` in Rust, `unisono_reply` in C and `unisono.serve` in Python. While nobody subscribes to
/// the request's own topic, the request waits.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono events subscribe clock --reply date &         answers requests
  unisono events request clock
  unisono events request pump/1/start now --timeout 100ms
  unisono events request pump/1/start now --json")]
pub(crate) struct Args {
    /// The topic of the request
    #[arg(value_name = "TOPIC", add = ArgValueCandidates::new(completions::topics))]
    topic: String,
    /// Its payload
    #[arg(value_name = "PAYLOAD", default_value = "")]
    payload: String,
    /// Limit of the wait for the reply
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1s")]
    timeout: Duration,
    #[command(flatten)]
    event: EventFlags,
    /// The reply as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stay: StayFlags,
    #[command(flatten)]
    broker: BrokerFlag,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut client = args.broker.staying(&args.stay)?;
    let topic = client.advertise(&Advertisement::new(&args.topic)).map_err(in_words)?;
    let draft = args.event.draft(args.payload.as_bytes());
    let reply = client.request(topic, draft, args.timeout).map_err(in_words)?;
    match args.json {
        true => output::answer(&show::line(&Reception::Event(reply), true, PastEvent::Retained)?)?,
        false => output::payload(&reply.payload.bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
