//! A remote host of a job, from the launcher's side: the process of the launch command, and the frames to and
//! from it.

use crate::error::Error;
use crate::frame::{self, Decoder, INPUT, ORDER, SIGNAL};
use crate::hosts::HostRanks;
use crate::order::{HelperEnd, HelperOrder};
use crate::standard_input;
use crate::summary::JobSummary;
use crate::termination::ExitOutcome;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use unisono_linux::process::Signal;

/// The pipe to a helper, or `None` once it is closed.
type Pipe = Arc<Mutex<Option<ChildStdin>>>;

/// A host that was ordered to start its ranks.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) host: HostRanks,
    /// The launch command as it would be typed in a shell.
    pub(crate) command: String,
    pub(crate) decoder: Decoder,
    pipe: Pipe,
    /// On rank 0's host, permits the thread to send the next piece of standard input.
    taken: Option<Sender<()>>,
    pub(crate) done: Option<HelperEnd>,
}

fn send_frame(pipe: &Pipe, kind: u8, bytes: &[u8]) -> bool {
    // No code panics while it holds the lock. If the helper is gone, the end of its launch command shows
    // that.
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    pipe.as_mut().is_some_and(|pipe| frame::write(pipe, kind, bytes).is_ok())
}

impl Remote {
    /// Sends the order. After that, rank 0's host also gets the launcher's standard input.
    pub(crate) fn new(
        host: &HostRanks,
        command: String,
        to: ChildStdin,
        order: &HelperOrder,
    ) -> Result<Self, Error> {
        let pipe = Arc::new(Mutex::new(Some(to)));
        let bytes = serde_json::to_vec(order).map_err(|error| Error::Input(error.to_string()))?;
        let (taken, may_go_on) = channel();
        let (first, shared) = (order.part.first == 0, Arc::clone(&pipe));
        // a thread sends the order, because a long one could fill the pipe before the launch command has
        // reached the host
        let run = move || {
            if send_frame(&shared, ORDER, &bytes) && first {
                pass_on_input(&shared, &may_go_on);
            }
        };
        thread::Builder::new().name("order".into()).spawn(run).map_err(Error::system("start a thread"))?;
        let taken = first.then_some(taken);
        Ok(Self { host: host.clone(), command, decoder: Decoder::default(), pipe, taken, done: None })
    }

    /// Makes the helper send a signal to its ranks.
    pub(crate) fn send_signal(&self, signal: Signal) {
        send_frame(&self.pipe, SIGNAL, &[signal.number().cast_unsigned().to_le_bytes()[0]]);
    }

    /// Handles the helper's report that it has passed on a piece of standard input.
    pub(crate) fn input_taken(&self) {
        if let Some(taken) = &self.taken {
            // this fails if the thread that sends the input has ended with the input
            let _ = taken.send(());
        }
    }

    /// Returns how the host's ranks ended, given how the launch command ended.
    pub(crate) fn outcome(&self, launch: ExitOutcome) -> ExitOutcome {
        match (&self.done, launch) {
            (Some(HelperEnd::Ended(summary)), _) => ExitOutcome::Exited(summary.exit_code.into()),
            (Some(HelperEnd::Refused { code, .. }), _) => ExitOutcome::Exited((*code).into()),
            (None, ExitOutcome::Exited(code)) => ExitOutcome::LostByExit(code),
            (None, ExitOutcome::Signalled(signal)) => ExitOutcome::LostBySignal(signal),
            (None, lost) => lost,
        }
    }

    /// Returns the helper's summary of its ranks, if it has sent one.
    pub(crate) fn summary(&self) -> Option<&JobSummary> {
        match &self.done {
            Some(HelperEnd::Ended(summary)) => Some(summary),
            _ => None,
        }
    }
}

fn pass_on_input(pipe: &Pipe, may_go_on: &Receiver<()>) {
    standard_input::read_all(|piece| {
        let sent = send_frame(pipe, INPUT, piece) && may_go_on.recv().is_ok();
        if sent { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    });
    send_frame(pipe, INPUT, &[]);
}
