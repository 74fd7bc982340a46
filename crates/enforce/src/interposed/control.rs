//! The requests that `unisono queue` sends to the queue's guard, and the replies: on each connection one
//! request and one reply, each a JSON object on a line of its own. The socket is beside the journal, and only
//! root may connect to it. Between the guard and the worker, requests also have numbers
//! ([`super::control_channel`]).

use super::translations::Translations;
use crate::backend::Counters;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use unisono_fairqueue::{ClassTerms, Live, TermsChange};

/// The longest line in bytes. A policy has at most 16 MiB, and JSON writes a quote or the end of a line as
/// two bytes.
pub(super) const MAX_LINE_BYTES: u64 = 40 << 20;
/// A guard that does not answer within this time is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A worker that does not answer within this time is stopped or stuck. After `End` it may still send waiting
/// frames for 2 s before it answers.
pub(super) const WORKER_TIMEOUT: Duration = Duration::from_secs(4);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(super) enum QueueRequest {
    Live,
    Apply {
        policy: String,
    },
    /// Change one class of the policy in force.
    Change {
        change: TermsChange,
    },
    /// Accept packets of up to this length from now on. Sent to the worker only.
    #[serde(rename = "carry")]
    SetMtu {
        mtu: u32,
    },
    /// Distinguish the hosts behind these translated addresses from now on. Sent to the worker only.
    Translate {
        translations: Translations,
    },
    End,
    /// End because another backend has come into force. Unlike with `End`, the process that asks holds the
    /// lock of the journals.
    #[serde(rename = "give-way")]
    Retire,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum QueueReply {
    Live {
        live: Live,
        counters: Counters,
    },
    Done,
    /// The class has these terms now.
    Changed {
        terms: ClassTerms,
    },
    /// The policy has no such class, or cannot keep these terms.
    Unfit {
        why: String,
    },
    Refused {
        why: String,
    },
}

/// Sends a request to the guard that listens at a path, and waits for the reply.
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

/// Reads one message. A connection carries one message in each direction, so no bytes follow the line.
fn receive<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE_BYTES)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_str(&line).map_err(io::Error::other)
}
