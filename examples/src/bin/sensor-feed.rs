//! A sensor that publishes a temperature each millisecond, due within 20 ms, and a consumer of the hot ones.
//!
//! ```sh
//! unisono events serve &
//! sensor-feed consume & sensor-feed supply 300
//! ```
//! The consumer checks that no hot event is missing, doubled or out of order, and counts late ones. Supplier
//! and consumer may also be the examples in C and in Python.
#![forbid(unsafe_code)]

use anyhow::{bail, ensure};
use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use unisono_events_client::{
    Advertisement, EventDraft, FieldSet, InterestSpec, NoticeText, Reception, SubscriptionSpec, WhenFull,
    default_socket,
};
use unisono_examples::events::{Role, TIMEOUT, broker, is_last, publish_once_heard, whole};

/// Feed temperatures with deadlines, and check that every hot one arrives
#[derive(Parser)]
struct Args {
    role: Role,
    /// Events of the supplier
    #[arg(default_value_t = 300)]
    count: i64,
    /// The broker: a path, or tcp:HOST:PORT
    #[arg(default_value_os_t = default_socket())]
    at: PathBuf,
}

fn celsius(number: i64) -> i64 {
    20 + (number + 40) % 60
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.role {
        Role::Supply => supply(&args),
        Role::Consume => consume(&args),
    }
}

fn supply(args: &Args) -> anyhow::Result<()> {
    let mut client = broker(&args.at)?;
    // each event is due 20 ms after the broker gets it
    let offer = Advertisement { deadline_ns: Some(20_000_000), ..Advertisement::new("sensor/1/heat") };
    let heat = client.advertise(&offer)?;
    let event = |number| {
        let fields = FieldSet::new().with("number", number).with("celsius", celsius(number));
        EventDraft::new(&[]).with_fields(fields)
    };
    publish_once_heard(&mut client, heat, || event(0))?;
    for number in 1..args.count {
        client.publish(heat, &event(number))?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let fields = FieldSet::new().with("number", args.count).with("last", true);
    client.publish(heat, &EventDraft::new(&[]).with_fields(fields))?;
    Ok(())
}

/// Returns the first hot event from `number` on.
fn hot(number: i64) -> i64 {
    (number..).find(|number| celsius(*number) > 40).unwrap_or(i64::MAX)
}

fn consume(args: &Args) -> anyhow::Result<()> {
    let mut client = broker(&args.at)?;
    let interest = InterestSpec {
        topics: "sensor/+/heat".to_owned(),
        filter: Some("celsius > 40 or last".to_owned()),
        ..InterestSpec::default()
    };
    // no event may be lost: if the consumer is too slow, the sensor waits
    client.subscribe(&SubscriptionSpec {
        interests: vec![interest],
        full: WhenFull::BlockSupplier,
        ..SubscriptionSpec::default()
    })?;
    let (mut next, mut events, mut late) = (hot(0), 0, 0);
    loop {
        match client.receive(Some(TIMEOUT))? {
            Some(Reception::Event(event)) => {
                let number = whole(&event.fields, "number")?;
                if is_last(&event) {
                    ensure!(next >= number, "event {next} is missing before the last one");
                    break;
                }
                ensure!(number == next, "event {number} came where {next} had to");
                (next, events, late) = (hot(number + 1), events + 1, late + i64::from(event.late));
            }
            Some(Reception::Notice { notice: NoticeText::Gone { died: false, .. }, .. }) => {}
            Some(other) => bail!("{other:?}"),
            None => bail!("nothing has come for {TIMEOUT:?}"),
        }
    }
    writeln!(std::io::stdout(), "sensor feed: {events} hot events, none is missing, {late} were late")?;
    Ok(())
}
