//! `unisono events subscribe --reply`: a command answers each request.
//!
//! For each request a shell is started, and a separate thread waits for the end of that shell. A bounded
//! number of them runs at a time, and further requests wait in the broker. Only the main thread uses the
//! connection to the broker. A thread whose command has finished wakes the main thread through a pair of
//! sockets.

use super::show::{self, PastEvent};
use crate::output;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use unisono_events_client::{Client, EventDraft, FieldValue, ReceivedEvent, Reception};
use unisono_linux::process_group::ProcessGroup;
use unisono_linux::signal::Signal;
use unisono_linux::{parent_death, poll, read};
use unisono_measure::units;

/// How requests are answered.
#[derive(clap::Args)]
pub(super) struct ReplyFlags {
    /// Answer each request by what this shell command prints. Its standard input is the payload;
    /// UNISONO_TOPIC, UNISONO_KEY and UNISONO_FIELD_name hold the rest. If it fails, the reply is an error
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["together", "resume"])]
    pub(super) reply: Option<String>,
    /// Commands that run at once; further requests wait in the queue
    #[arg(long, value_name = "N", default_value_t = 4, requires = "reply",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    reply_jobs: u16,
    /// Kill a command that takes longer, and send an error as the reply
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "10s", requires = "reply")]
    reply_limit: Duration,
}

/// When to stop answering requests, and how often the lease has to be renewed.
pub(super) struct ReplyCourse {
    pub(super) count: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) lease: Option<Duration>,
    pub(super) json: bool,
}

/// A request, and the output of its command or the error message.
type AnsweredRequest = (ReceivedEvent, Result<Vec<u8>, String>);

/// Answers requests until `count` requests have arrived or the timeout has expired; returns the number of
/// answered requests.
pub(super) fn serve(
    flags: &ReplyFlags,
    command: &str,
    client: &mut Client,
    course: &ReplyCourse,
) -> anyhow::Result<u64> {
    let command: Arc<str> = command.into();
    let (wake, mut woken) = UnixStream::pair()?;
    woken.set_nonblocking(true)?;
    let (sender, answers): (Sender<AnsweredRequest>, Receiver<AnsweredRequest>) = channel();
    let until = course.timeout.map(|timeout| Instant::now() + timeout);
    let (mut running, mut came, mut answered) = (0_u16, 0_u64, 0_u64);
    loop {
        while let Ok((request, answer)) = answers.try_recv() {
            running -= 1;
            answered += 1;
            match answer {
                Ok(bytes) => client.reply(&request, EventDraft::new(&bytes))?,
                Err(why) => {
                    eprintln!("unisono: {why}");
                    client.reply_failure(&request, &why)?
                }
            };
            client.acknowledge(&request)?;
        }
        let all_came = course.count.is_some_and(|count| came >= count);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if running == 0 && (all_came || left == Some(Duration::ZERO)) {
            return Ok(answered);
        }
        let takes = running < flags.reply_jobs && !all_came && left != Some(Duration::ZERO);
        if takes && let Some(reception) = client.receive(Some(Duration::ZERO))? {
            if !output::is_read(&show::line(&reception, course.json, PastEvent::Retained)?)? {
                return Ok(answered);
            }
            match reception {
                Reception::Event(event) if event.is_request() => {
                    came += 1;
                    running += 1;
                    let (command, sender, limit) = (Arc::clone(&command), sender.clone(), flags.reply_limit);
                    let (mut wake, largest) = (wake.try_clone()?, client.largest());
                    std::thread::spawn(move || {
                        let answer = answer(&command, &event, limit, largest);
                        // the send fails only if the receiver is gone because this program is ending
                        let _ = sender.send((event, answer));
                        let _ = wake.write_all(b"!");
                    });
                }
                Reception::Event(event) => {
                    came += 1;
                    client.acknowledge(&event)?;
                }
                _ => {}
            }
            continue;
        }
        // after the timeout, the loop still waits for commands that are running
        let left = left.filter(|left| !left.is_zero());
        let timeout = [left, course.lease.map(|lease| lease / 3)].into_iter().flatten().min();
        match takes {
            true => drop(poll::readable([woken.as_fd(), client.as_fd()], timeout)?),
            false => drop(poll::readable([woken.as_fd()], timeout)?),
        }
        let mut bytes = [0; 64];
        while woken.read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
        if course.lease.is_some() {
            client.alive()?;
        }
    }
}

/// Runs the command for a request and returns its output.
fn answer(
    command: &str,
    request: &ReceivedEvent,
    limit: Duration,
    largest: usize,
) -> Result<Vec<u8>, String> {
    let until = Instant::now() + limit;
    let mut child = start(command, request).map_err(|error| format!("cannot start `{command}`: {error}"))?;
    let group = ProcessGroup::of_child(&child);
    let (sender, printed) = channel();
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let payload = request.payload.bytes().into_owned();
    // input and output have a thread each, because the command may print before it reads its input
    std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&payload)));
    std::thread::spawn(move || sender.send(stdout.map(|stdout| read::all(stdout, largest as u64))));
    let printed = printed.recv_timeout(limit);
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if printed.is_ok() && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => break None,
        }
    };
    if ended.is_none()
        && let Ok(group) = group
    {
        // the group contains all processes of the command; a signal to a group that has just ended does no
        // harm
        let _ = group.send_signal(Signal::Kill);
        let _ = child.wait();
    }
    match (printed, ended) {
        (Ok(Some(Ok(bytes))), Some(status)) if status.success() => Ok(bytes),
        (Ok(Some(Err(error))), _) => Err(format!("what `{command}` prints cannot be sent: {error}")),
        (_, Some(status)) => Err(format!("`{command}` failed: {status}")),
        (_, None) => Err(format!("`{command}` took longer than {limit:?} and was ended")),
    }
}

fn start(command: &str, request: &ReceivedEvent) -> std::io::Result<Child> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    shell
        .env("UNISONO_TOPIC", &*request.topic)
        .env("UNISONO_KEY", request.key.as_deref().unwrap_or_default());
    for (name, value) in request.fields.iter() {
        // a shell accepts variables with no other names
        if name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
            let value = match value {
                FieldValue::Text(text) => text.to_string(),
                other => show::value_as_json(other).to_string(),
            };
            shell.env(format!("UNISONO_FIELD_{name}"), value);
        }
    }
    parent_death::end_with_starter(&mut shell);
    shell.spawn()
}
