//! A video stream: frames of the sizes of MPEG-1 at 1.5 Mbit/s, each due before the next one is shown.
//!
//! ```sh
//! unisono events serve &
//! video-stream consume & video-stream supply 300
//! ```
//! A late frame is useless: the broker drops it and notifies the consumer, which checks that frames and gaps
//! together are the whole stream. If the consumer's queue is full, frames on which other frames depend stay,
//! because they are more critical. Supplier and consumer may also be the examples in C and in Python.
#![forbid(unsafe_code)]

use anyhow::{bail, ensure};
use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unisono_events_client::{
    Advertisement, EventDraft, FieldSet, NoticeText, Reception, SubscriptionSpec, WhenFull, WhenLate,
    default_socket,
};
use unisono_examples::events::{Role, TIMEOUT, broker, is_last, publish_once_heard, whole};

/// Stream frames with deadlines, and check that frames and gaps are the whole stream
#[derive(Parser)]
struct Args {
    role: Role,
    /// Frames of the supplier
    #[arg(default_value_t = 300)]
    count: i64,
    /// The broker: a path, or tcp:HOST:PORT
    #[arg(default_value_os_t = default_socket())]
    at: PathBuf,
}

/// Frames are shown at 30 Hz.
const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / 30);

/// Returns the size of a frame, and its criticality: every twelfth frame depends on no other frame, every
/// third frame depends on the last of these, and all other frames depend on both.
fn frame(number: i64) -> (usize, u8) {
    match number {
        number if number % 12 == 0 => (20_000, 2),
        number if number % 3 == 0 => (9_000, 1),
        _ => (3_500, 0),
    }
}

/// Returns the value of all bytes of a frame.
fn content(number: i64) -> u8 {
    u8::try_from(number & 0xff).unwrap_or(0)
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
    let deadline_ns = Some(u64::try_from(PERIOD.as_nanos())?);
    let video = client.advertise(&Advertisement { deadline_ns, ..Advertisement::new("video") })?;
    let start = Instant::now();
    for number in 0..args.count {
        let (bytes, criticality) = frame(number);
        let payload = vec![content(number); bytes];
        let event = || {
            let fields = FieldSet::new().with("number", number);
            EventDraft::new(&payload).with_fields(fields).critical(criticality)
        };
        if number == 0 {
            publish_once_heard(&mut client, video, event)?;
        } else {
            client.publish(video, &event())?;
        }
        let next = PERIOD * u32::try_from(number + 1)?;
        std::thread::sleep(next.saturating_sub(start.elapsed()));
    }
    let fields = FieldSet::new().with("number", args.count).with("last", true);
    // without its own deadline this event could be dropped like the frames
    let last = EventDraft::new(&[]).with_fields(fields).critical(255).due_in(Duration::from_secs(3600));
    client.publish(video, &last)?;
    Ok(())
}

fn consume(args: &Args) -> anyhow::Result<()> {
    let mut client = broker(&args.at)?;
    client.subscribe(&SubscriptionSpec {
        queue_events: 64,
        full: WhenFull::DropByDeadline,
        late: WhenLate::Report,
        ..SubscriptionSpec::new("video")
    })?;
    let (mut shown, mut missing, mut before) = (0, 0, -1);
    loop {
        match client.receive(Some(TIMEOUT))? {
            Some(Reception::Event(event)) => {
                let number = whole(&event.fields, "number")?;
                if is_last(&event) {
                    let all = shown + missing;
                    ensure!(all == number, "{shown} frames and {missing} missing ones, of {number}");
                    break;
                }
                ensure!(number > before, "frame {number} came after {before}");
                let payload = event.payload.bytes();
                let is_right = payload.iter().all(|byte| *byte == content(number));
                ensure!(is_right && payload.len() == frame(number).0, "frame {number} is another one");
                (shown, before) = (shown + 1, number);
            }
            Some(Reception::Notice { notice: NoticeText::Gap { lost, .. }, .. }) => {
                missing += i64::try_from(lost)?;
            }
            Some(Reception::Notice { notice: NoticeText::Gone { died: false, .. }, .. }) => {}
            Some(other) => bail!("{other:?}"),
            None => bail!("nothing has come for {TIMEOUT:?}"),
        }
    }
    writeln!(
        std::io::stdout(),
        "video stream: {shown} frames came in time, {missing} were reported as missing"
    )?;
    Ok(())
}
