//! The questions that `unisono queue` sends to the queue's guard: one JSON object a line, a question and an
//! answer. The socket is beside the journal, and only root may open it. Between the guard and the worker,
//! questions also have numbers ([`super::control_channel`]).

use crate::backend::Counters;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use unisono_fairqueue::Live;

/// The longest line in bytes. A policy has at most 1 MiB, and JSON writes a quote or the end of a line as two
/// bytes.
pub(super) const MAX_LINE_BYTES: u64 = 4 << 20;
/// A guard that does not answer within this time is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A worker that does not answer within this time is stopped or stuck. At its end it may still send waiting
/// frames for 2 s.
pub(super) const WORKER_TIMEOUT: Duration = Duration::from_secs(4);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(super) enum QueueRequest {
    Live,
    Apply {
        policy: String,
    },
    /// To the worker only: take packets of this length from now on.
    #[serde(rename = "carry")]
    SetMtu {
        mtu: u32,
    },
    End,
    /// As `End`, but another backend has come into force: the asking process holds the lock of the journals.
    #[serde(rename = "give-way")]
    Retire,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum QueueReply {
    Live { live: Live, counters: Counters },
    Done,
    Refused { why: String },
}

/// Asks the guard that listens at a path.
pub(super) fn request(path: &Path, question: &QueueRequest) -> io::Result<QueueReply> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    send(&stream, question)?;
    receive(&stream)
}

pub(super) fn send(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(what).map_err(io::Error::other)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Reads one message. Messages never overlap, so there are no bytes beyond the line.
fn receive<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE_BYTES)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_str(&line).map_err(io::Error::other)
}
