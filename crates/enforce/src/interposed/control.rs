//! What is said between `unisono queue`, the process that looks after the queue, and the queue's own process:
//! one JSON object a line, a question and an answer. The socket lies beside the journal; root alone may open
//! it. Between both processes of the queue questions are numbered besides ([`super::dialogue`]).

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use unisono_fairqueue::Live;

/// Longer lines are nonsense; a policy has at most 1 MiB.
pub(super) const MOST: u64 = 4 << 20;
/// A guard that does not answer in this time is stuck.
const PATIENCE: Duration = Duration::from_secs(10);
/// A worker that does not answer in this time is stopped or stuck. At the end it sends for at most 2 s what
/// waits.
pub(super) const PATIENCE_WITH_WORKER: Duration = Duration::from_secs(4);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(super) enum QueueQuestion {
    /// What have the classes got?
    Live,
    /// Enforce another policy.
    Apply {
        /// As it was written.
        policy: String,
    },
    /// Of the guard alone: take packets of this length from now on.
    Carry { mtu: u32 },
    /// Send what waits, and end.
    End,
    /// The same, because another place has come into force: whoever asks has the lock of the journals.
    GiveWay,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum QueueAnswer {
    /// What they have got.
    Live {
        live: Live,
        /// What else was counted.
        counters: Counters,
    },
    /// It is done.
    Done,
    /// It cannot be done.
    Refused { why: String },
}

/// What is counted beside the classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Frames that came.
    pub received: u64,
    /// Dropped because they contradict themselves.
    pub malformed: u64,
    /// Dropped because they did not come from the device.
    pub strangers: u64,
    /// Dropped because more came than there was room for.
    pub overrun: u64,
    /// Lost because the device did not take them.
    pub unsent: u64,
    /// Handed to the device as parts of larger ones, which it cuts again.
    #[serde(default)]
    pub merged: u64,
    /// Longer than the queue takes: they passed by, unscheduled.
    #[serde(default)]
    pub too_long: u64,
}

/// Asks the guard that listens at a path.
///
/// # Errors
/// Nobody listens, or the guard does not answer.
pub(super) fn ask_at(path: &Path, question: &QueueQuestion) -> io::Result<QueueAnswer> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    say(&stream, question)?;
    hear(&stream)
}

/// Says one thing.
pub(super) fn say(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(what).map_err(io::Error::other)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

/// Hears one thing. One is said at a time, so that nothing is read beyond the line.
fn hear<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(MOST)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_str(&line).map_err(io::Error::other)
}
