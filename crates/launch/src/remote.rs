//! A host of a job on several hosts, from the launcher's side: the process of the launch command, and the
//! frames to and from it.

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

/// The pipe to a helper; `None` once it is closed.
type Pipe = Arc<Mutex<Option<ChildStdin>>>;

/// A host that was told to start its ranks.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) host: HostRanks,
    /// The launch command as typed in a shell.
    pub(crate) command: String,
    pub(crate) decoder: Decoder,
    pipe: Pipe,
    /// For rank 0's host: permits the next piece of standard input.
    taken: Option<Sender<()>>,
    pub(crate) done: Option<HelperEnd>,
}

fn send_frame(pipe: &Pipe, kind: u8, bytes: &[u8]) -> bool {
    // No code panics while it holds the lock. A helper that is gone is noticed when its launch command ends.
    let mut pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner);
    pipe.as_mut().is_some_and(|pipe| frame::write(pipe, kind, bytes).is_ok())
}

impl Remote {
    /// Sends the order; to rank 0's host, then also sends the launcher's standard input.
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
        // in a thread: a long order could fill the pipe before the launch command has reached the host
        let run = move || {
            if send_frame(&shared, ORDER, &bytes) && first {
                pass_on_input(&shared, &may_go_on);
            }
        };
        thread::Builder::new().name("order".into()).spawn(run).map_err(Error::system("start a thread"))?;
        let taken = first.then_some(taken);
        Ok(Self { host: host.clone(), command, decoder: Decoder::default(), pipe, taken, done: None })
    }

    /// Has the helper send its ranks a signal.
    pub(crate) fn send_signal(&self, signal: Signal) {
        send_frame(&self.pipe, SIGNAL, &[signal.number().cast_unsigned().to_le_bytes()[0]]);
    }

    /// The helper has passed on a piece of standard input.
    pub(crate) fn input_taken(&self) {
        if let Some(taken) = &self.taken {
            // the thread that sends the input ends with the input
            let _ = taken.send(());
        }
    }

    /// How the host's ranks ended, given how the launch command ended.
    pub(crate) fn outcome(&self, launch: ExitOutcome) -> ExitOutcome {
        match (&self.done, launch) {
            (Some(HelperEnd::Ended(summary)), _) => ExitOutcome::Exited(summary.exit_code.into()),
            (Some(HelperEnd::Refused { code, .. }), _) => ExitOutcome::Exited((*code).into()),
            (None, ExitOutcome::Exited(code)) => ExitOutcome::LostByExit(code),
            (None, ExitOutcome::Signalled(signal)) => ExitOutcome::LostBySignal(signal),
            (None, lost) => lost,
        }
    }

    /// The helper's summary of its ranks.
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
