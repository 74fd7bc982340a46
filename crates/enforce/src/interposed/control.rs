//! The requests that `unisono queue` sends to the queue's guard, and the replies: on each connection one
//! request and one reply, each a JSON object on a line of its own. The socket is beside the journal, and only
//! root may connect to it. Between the guard and the worker, requests also have numbers
//! ([`super::control_channel`]).
//!
//! A policy of 50,000 classes takes seconds, and many seconds on a busy host. So [`QueueReply::Working`]
//! precedes its reply for each stage of the work that has ended, and time limits are those of a stage.

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
/// A guard that ends no stage of a request within this time is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A worker that ends no stage of a request within this time is stopped or stuck. After `End` it may still
/// send waiting frames for 2 s before it answers.
pub(super) const WORKER_TIMEOUT: Duration = Duration::from_secs(4);
/// The time that each stage of applying a policy may take beyond those limits, for each KiB of the policy's
/// text. A release build parses 5 MiB in 0.4 s, 0.08 ms for each KiB; the rest is for the longest stage, for
/// builds without optimization, and for a busy host. Chosen, not measured.
const STAGE_TIMEOUT_PER_KIB: Duration = Duration::from_millis(20);

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

impl QueueRequest {
    /// Returns the time limit for each stage of this request, of a process that answers short requests within
    /// `short`.
    pub(super) fn stage_timeout(&self, short: Duration) -> Duration {
        match self {
            Self::Apply { policy } => short + STAGE_TIMEOUT_PER_KIB * (policy.len() >> 10) as u32,
            _ => short,
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum QueueReply {
    /// A stage of the request has ended. Another message follows.
    Working,
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
    stream.set_read_timeout(Some(question.stage_timeout(ANSWER_TIMEOUT)))?;
    send(&stream, question)?;
    let mut replies = BufReader::new(&stream);
    loop {
        match receive(&mut replies)? {
            QueueReply::Working => {}
            reply => return Ok(reply),
        }
    }
}

pub(super) fn send(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(what).map_err(io::Error::other)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

fn receive(replies: &mut BufReader<&UnixStream>) -> io::Result<QueueReply> {
    let mut line = String::new();
    replies.by_ref().take(MAX_LINE_BYTES).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_str(&line).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use unisono_linux::local_socket;

    #[test]
    fn the_reply_is_the_message_after_the_stages() {
        let directory = tempfile::tempdir().expect("room");
        let path = directory.path().join("questions");
        let listener = local_socket::listen(&path, 0o600).expect("the path is free");
        let guard = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a client comes");
            for message in [QueueReply::Working, QueueReply::Working, QueueReply::Done] {
                send(&stream, &message).expect("the client reads");
            }
            // the request is read last, because closing a socket with unread bytes resets the connection
            BufReader::new(&stream).read_line(&mut String::new()).expect("the client has written");
        });
        let question = QueueRequest::Apply { policy: "rate = \"1mbit\"".to_owned() };
        assert_eq!(request(&path, &question).expect("the guard answers"), QueueReply::Done);
        guard.join().expect("no panic");
    }

    #[test]
    fn a_long_policy_has_more_time_for_each_stage_than_a_short_request() {
        let policy = |kib: usize| QueueRequest::Apply { policy: "x".repeat(kib << 10) };
        let seconds = |question: QueueRequest| question.stage_timeout(WORKER_TIMEOUT).as_secs();
        assert_eq!([QueueRequest::Live, policy(1), policy(5 << 10)].map(seconds), [4, 4, 106]);
    }
}
