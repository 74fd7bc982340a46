//! A file, fetched piece by piece through requests and replies.
//!
//! ```sh
//! unisono events serve &
//! file-download supply README.md & file-download consume copy.md
//! ```
//! The client's request names the offset of the next piece; the reply has the file's size and the piece's
//! checksum. Supplier and consumer may also be the examples in C and in Python.
#![forbid(unsafe_code)]

use anyhow::{Context, ensure};
use clap::Parser;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Duration;
use unisono_events_client::{
    Advertisement, Client, Error, EventDraft, FieldSet, ReceivedEvent, Reception, SubscriptionSpec,
    TopicHandle, default_socket,
};
use unisono_examples::events::{Role, TIMEOUT, adler32, broker, whole};

/// Serve a file, or download it and check each piece
#[derive(Parser)]
struct Args {
    role: Role,
    /// The file to serve, or to write
    file: PathBuf,
    /// The broker: a path, or tcp:HOST:PORT
    #[arg(default_value_os_t = default_socket())]
    at: PathBuf,
}

/// Bytes of a piece.
const PIECE: u64 = 64 << 10;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.role {
        Role::Supply => supply(&args),
        Role::Consume => consume(&args),
    }
}

/// Serves until it is stopped, or the broker ends.
fn supply(args: &Args) -> anyhow::Result<()> {
    let mut file = File::open(&args.file).with_context(|| args.file.display().to_string())?;
    let size = file.metadata()?.len();
    let mut client = broker(&args.at)?;
    client.subscribe(&SubscriptionSpec::new("file"))?;
    loop {
        let Some(Reception::Event(request)) = client.receive(None)? else { continue };
        let mut piece = Vec::new();
        file.seek(SeekFrom::Start(whole(&request.fields, "offset")?.try_into()?))?;
        Read::by_ref(&mut file).take(PIECE).read_to_end(&mut piece)?;
        let fields = FieldSet::new().with("size", i64::try_from(size)?).with("adler32", adler32(&piece));
        client.reply(&request, EventDraft::new(&piece).with_fields(fields))?;
    }
}

/// Returns the piece that begins at `offset`. Retries if there is no reply, because the supplier may not have
/// started yet.
fn piece(client: &mut Client, topic: TopicHandle, offset: i64) -> anyhow::Result<ReceivedEvent> {
    let tries = TIMEOUT.as_millis() / 100;
    for _ in 0..tries {
        let request = EventDraft::new(&[]).with_fields(FieldSet::new().with("offset", offset));
        match client.request(topic, request, Duration::from_millis(100)) {
            Err(Error::NoReply(_) | Error::NobodyReplies { .. }) => {}
            other => return Ok(other?),
        }
    }
    anyhow::bail!("nobody serves a file: no reply within {TIMEOUT:?}")
}

fn consume(args: &Args) -> anyhow::Result<()> {
    let mut file = File::create(&args.file).with_context(|| args.file.display().to_string())?;
    let mut client = broker(&args.at)?;
    let topic = client.advertise(&Advertisement::new("file"))?;
    let (mut offset, mut requests) = (0, 0);
    loop {
        let reply = piece(&mut client, topic, offset)?;
        let bytes = reply.payload.bytes();
        ensure!(whole(&reply.fields, "adler32")? == adler32(&bytes), "the piece at {offset} is damaged");
        file.write_all(&bytes)?;
        (offset, requests) = (offset + i64::try_from(bytes.len())?, requests + 1);
        let size = whole(&reply.fields, "size")?;
        if offset == size {
            writeln!(
                std::io::stdout(),
                "file download: {size} bytes by {requests} requests, each with the right checksum"
            )?;
            return Ok(());
        }
        ensure!(!bytes.is_empty(), "the file ends at {offset} of {size} bytes");
    }
}
