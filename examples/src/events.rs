//! Common parts of the examples about events: the connection to the broker, checks of events.

use anyhow::Context;
use clap::ValueEnum;
use std::path::Path;
use std::time::Duration;
use unisono_events_client::{
    BrokerAddress, Client, EventDraft, FieldSet, FieldValue, PublishOutcome, ReceivedEvent, TopicHandle,
};

/// Time that a consumer waits for the next event.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The role of a process in an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    Supply,
    Consume,
}

/// Connects to the broker at a path, or at `tcp:HOST:PORT`.
///
/// # Errors
/// The broker does not answer.
pub fn broker(at: &Path) -> anyhow::Result<Client> {
    let address: BrokerAddress = at.to_str().context("the address is no text")?.parse()?;
    Ok(Client::at(&address)?)
}

/// Publishes an event again and again until a subscriber gets it.
///
/// # Errors
/// The broker refuses it, or is gone.
pub fn publish_once_heard<'a>(
    client: &mut Client,
    topic: TopicHandle,
    event: impl Fn() -> EventDraft<'a>,
) -> anyhow::Result<()> {
    while matches!(client.try_publish(topic, &event())?.outcome, PublishOutcome::Taken(0)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns the value of a field that is a whole number.
///
/// # Errors
/// The event has no whole number of this name.
pub fn whole(fields: &FieldSet, name: &str) -> anyhow::Result<i64> {
    match fields.field(name) {
        Some(FieldValue::Number(number)) => number.to_whole(),
        _ => None,
    }
    .with_context(|| format!("an event has no whole number {name}"))
}

/// Whether this is the last event of an example.
#[must_use]
pub fn is_last(event: &ReceivedEvent) -> bool {
    event.fields.field("last") == Some(&FieldValue::Bool(true))
}

/// Computes the checksum of RFC 1950, which detects a damaged piece.
#[must_use]
pub fn adler32(bytes: &[u8]) -> i64 {
    let step = |(low, high): (u32, u32), byte: &u8| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    };
    let (low, high) = bytes.iter().fold((1, 0), step);
    i64::from(high << 16 | low)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        assert_eq!(super::adler32(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(super::adler32(b""), 1);
    }
}
