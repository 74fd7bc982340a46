//! The worker's second thread: it reads the guard's requests, does the costly part of the work for them, and
//! sends the replies.
//!
//! ```text
//!   guard --question--> request thread --WorkerOrder--> worker's thread: swaps policies, reads counters
//!         <--answer----  parses, frees   <--WorkerReply--
//! ```
//! No frame passes while the worker's own thread is busy with a request. Parsing and preparing a policy of
//! 1,000 classes takes some 150 ms; the swap, which has to happen between two frames, takes 1 ms, and reading
//! all counters 0.5 ms (medians of nine on a busy machine: `cargo bench -p unisono-enforce --bench interposed
//! -- change`). This thread does not have real-time priority. It is restricted by the same system-call filter
//! as the worker's own thread, and gives that thread one order at a time.
//!
//! Cost: two wake-ups for each request; none while there are no requests.

use super::classify::Named;
use super::control::{QueueReply, QueueRequest};
use super::control_channel::ControlChannel;
use super::engine::{EngineChange, ReplacedParts};
use super::translations::Translations;
use super::{sandbox, urgency};
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use unisono_fairqueue::{Policy, TermsChange};
use unisono_linux::timer::Sleeper;

/// The task of the worker's thread for a request.
pub(super) enum WorkerOrder {
    Live,
    Change(Box<EngineChange>, Named),
    ChangeClass(TermsChange),
    SetMtu(u32),
    Translate(Translations),
    /// The last order; its reply follows when the queue is empty.
    End,
}

pub(super) enum WorkerReply {
    Answer(QueueReply),
    Changed(Box<ReplacedParts>),
    Translated(Translations),
}

/// The worker's end of the channels between the two threads.
pub(super) struct WorkerOrders {
    orders: Receiver<WorkerOrder>,
    replies: Sender<WorkerReply>,
    bell: Sleeper,
}

impl WorkerOrders {
    /// Returns the next order, if there is one. Never waits. Fails if the request thread has ended, as it
    /// does when the guard is gone.
    pub(super) fn next(&self) -> io::Result<Option<WorkerOrder>> {
        match self.orders.try_recv() {
            Ok(order) => Ok(Some(order)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Makes the descriptor unreadable again. Call it when the descriptor has become readable, before
    /// [`next`](Self::next).
    pub(super) fn silence(&self) {
        self.bell.forget_calls();
    }

    pub(super) fn reply(&self, reply: WorkerReply) -> io::Result<()> {
        self.replies.send(reply).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

// The descriptor is readable if there may be an order.
unisono_linux::as_fd!(WorkerOrders.bell);

pub(super) struct RequestThread {
    channel: ControlChannel,
    orders: Sender<WorkerOrder>,
    replies: Receiver<WorkerReply>,
    bell: Sleeper,
}

impl RequestThread {
    pub(super) fn new(channel: ControlChannel) -> io::Result<(Self, WorkerOrders)> {
        let (orders, to_worker) = mpsc::channel();
        let (from_worker, replies) = mpsc::channel();
        let bell = Sleeper::new()?;
        let worker = WorkerOrders { orders: to_worker, replies: from_worker, bell: bell.clone() };
        Ok((Self { channel, orders, replies, bell }, worker))
    }

    /// Starts the thread; call it before the system-call filter forbids new threads. The thread first passes
    /// on the worker's message that the worker has begun. It ends after the last order, or if the guard or
    /// the worker's thread is gone.
    pub(super) fn start(mut self) -> io::Result<JoinHandle<()>> {
        let run = move || {
            urgency::yield_to_frames();
            let served = sandbox::worker().and_then(|()| self.serve());
            // after an error the worker's thread ends, too, and the guard notices the end of the process
            drop(served);
        };
        thread::Builder::new().name("requests".to_owned()).spawn(run)
    }

    fn serve(&mut self) -> io::Result<()> {
        self.pass_on_reply()?;
        loop {
            let question = self.channel.next_request()?;
            let is_last = matches!(question, QueueRequest::End | QueueRequest::Retire);
            match order(question, || self.channel.send_reply(&QueueReply::Working)) {
                Ok(order) => {
                    self.orders.send(order).map_err(|_| io::ErrorKind::BrokenPipe)?;
                    self.bell.call();
                    self.pass_on_reply()?;
                }
                Err(why) => self.channel.send_reply(&QueueReply::Refused { why })?,
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Waits for the worker's reply, and sends it to the guard.
    fn pass_on_reply(&mut self) -> io::Result<()> {
        match self.replies.recv().map_err(|_| io::ErrorKind::BrokenPipe)? {
            WorkerReply::Answer(answer) => self.channel.send_reply(&answer),
            WorkerReply::Changed(replaced) => self.done(replaced),
            WorkerReply::Translated(replaced) => self.done(replaced),
        }
    }
}

impl RequestThread {
    /// Reports success, and frees the parts that the worker no longer needs.
    fn done(&mut self, replaced: impl Sized) -> io::Result<()> {
        let answered = self.channel.send_reply(&QueueReply::Done);
        drop(replaced);
        answered
    }
}

unisono_linux::as_fd!(RequestThread.channel);

/// Prepares the order for a request. Calls `stage_ended` after each stage of the work on a policy. Fails with
/// the reason to refuse the request.
fn order(
    question: QueueRequest,
    mut stage_ended: impl FnMut() -> io::Result<()>,
) -> Result<WorkerOrder, String> {
    let mut stage_ended = || stage_ended().map_err(|error| format!("report progress: {error}"));
    Ok(match question {
        QueueRequest::Live => WorkerOrder::Live,
        QueueRequest::SetMtu { mtu } => WorkerOrder::SetMtu(mtu),
        QueueRequest::Translate { translations } => WorkerOrder::Translate(translations),
        QueueRequest::End | QueueRequest::Retire => WorkerOrder::End,
        QueueRequest::Change { change } => WorkerOrder::ChangeClass(change),
        QueueRequest::Apply { policy } => {
            let policy = Policy::parse(&policy).map_err(|error| error.to_string())?;
            stage_ended()?;
            let named =
                Named::from_policy(&policy).ok_or("it names too many control groups and priorities")?;
            stage_ended()?;
            let change = EngineChange::new(policy).map_err(|error| error.to_string())?;
            stage_ended()?;
            WorkerOrder::Change(Box::new(change), named)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_on_a_policy_reports_its_stages_and_a_short_request_has_none() {
        let apply = || QueueRequest::Apply { policy: "rate = \"1mbit\"\n[class.a]\n".to_owned() };
        let mut stages = 0;
        let prepared = order(apply(), || {
            stages += 1;
            Ok(())
        });
        assert!(matches!(prepared, Ok(WorkerOrder::Change(..))));
        assert_eq!(stages, 3);
        let refused = order(apply(), || Err(io::ErrorKind::BrokenPipe.into())).err();
        assert!(refused.is_some_and(|why| why.starts_with("report progress: ")));
        assert!(matches!(order(QueueRequest::Live, || panic!("no stage")), Ok(WorkerOrder::Live)));
    }
}
