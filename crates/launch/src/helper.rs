//! The remote end of a job on several hosts: starts the ranks of one host, and carries out the launcher's
//! orders.
//!
//! A helper receives all its information over standard input, including the job's key, because every user of
//! its host could read its command line. If the launcher, or the connection to it, ends before the ranks do,
//! the helper kills the ranks.

use crate::error::Error;
use crate::frame::{self, INPUT, ORDER, SIGNAL, TAKEN};
use crate::order::{HelperEnd, HelperOrder};
use crate::summary::JobSummary;
use crate::supervise::{Console, supervise};
use std::io::{self, Read, Write};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::Signal;

/// Starts the ranks that the launcher orders over standard input, and reports over standard output. Returns
/// the exit code. Fails with [`Error::Input`] if no launcher is at the other end.
pub fn help(report: impl Fn(&str)) -> Result<u8, Error> {
    let order = match frame::read(&mut io::stdin().lock()) {
        Ok(Some((ORDER, bytes))) => {
            serde_json::from_slice::<HelperOrder>(&bytes).map_err(|error| error.to_string())
        }
        _ => return Err(Error::Input("--helper is for the launcher; write: unisono run --hosts".to_owned())),
    };
    let answer = |done: &HelperEnd| {
        let bytes = serde_json::to_vec(done).map_err(io::Error::from)?;
        frame::write(&mut io::stdout().lock(), frame::DONE, &bytes)
    };
    let greeted = io::stdout().lock().write_all(frame::GREETING);
    greeted.map_err(Error::system("answer the launcher"))?;
    let done = match order.map_err(|why| {
        Error::Input(format!(
            "the launcher is of another version ({why}); install the same unisono on all hosts"
        ))
    }) {
        Ok(order) => run_order(&order, report),
        Err(error) => Err(error),
    };
    let done = match done {
        Ok(summary) => HelperEnd::Ended(summary),
        Err(error) => {
            let code = if matches!(error, Error::System { .. }) { 1 } else { 2 };
            HelperEnd::Refused { code, problem: error.to_string() }
        }
    };
    // an error means that the launcher is gone and needs no report
    let _ = answer(&done);
    Ok(match done {
        HelperEnd::Ended(summary) => summary.exit_code,
        HelperEnd::Refused { code, .. } => code,
    })
}

fn run_order(order: &HelperOrder, report: impl Fn(&str)) -> Result<JobSummary, Error> {
    let directory = &order.directory;
    std::env::set_current_dir(directory).map_err(|error| {
        let directory = directory.to_string_lossy();
        Error::Input(format!(
            "there is no directory {directory} to start in ({error}); start where every host has it"
        ))
    })?;
    let (options, part) = (&order.options, &order.part);
    let names = (part.first..part.first + options.ranks).map(|rank| rank.to_string()).collect();
    supervise(options, ("rank", names), Console::Framed, report, |job| {
        let bind = job.start(options, part)?;
        let input = job.take_standard_input();
        spawn_input_threads(input).map_err(Error::system("start a thread"))?;
        Ok((bind, part.first))
    })
}

/// Starts the threads that carry out the launcher's orders from now on. They end with the process.
fn spawn_input_threads(input: Option<ChildStdin>) -> io::Result<()> {
    let (pieces, waiting) = channel();
    thread::Builder::new().name("input".into()).spawn(move || write_input(input, &waiting))?;
    thread::Builder::new().name("launcher".into()).spawn(move || {
        read_orders(&mut io::stdin(), &pieces);
        kill_ranks();
    })?;
    Ok(())
}

fn read_orders(launcher: &mut impl Read, pieces: &Sender<Vec<u8>>) {
    while let Ok(Some((kind, bytes))) = frame::read(launcher) {
        match (kind, bytes.first()) {
            // a rank that has closed its standard input loses further input
            (INPUT, _) => drop(pieces.send(bytes)),
            (SIGNAL, Some(number)) => {
                let is = |signal: &Signal| signal.number() == i32::from(*number);
                Signal::FROM_OUTSIDE.into_iter().find(is).map_or_else(kill_ranks, signal_self);
            }
            _ => {}
        }
    }
}

/// Sends a signal to this process. Its loop handles the signal as if it came from outside.
fn signal_self(signal: Signal) {
    if let Ok(myself) = PinnedProcess::own() {
        // a process may always send signals to itself
        let _ = myself.send(signal);
    }
}

/// Kills the ranks by two signals to this process: the first one is passed on to the ranks, and the second
/// one kills them. The two signals differ, because pending signals of the same kind merge.
fn kill_ranks() {
    signal_self(Signal::Terminate);
    signal_self(Signal::Interrupt);
}

fn write_input(mut input: Option<ChildStdin>, pieces: &Receiver<Vec<u8>>) {
    for piece in pieces {
        if piece.is_empty() || input.as_mut().is_some_and(|input| input.write_all(&piece).is_err()) {
            input = None;
        }
        // an error means that the launcher is gone and sends no more input
        let _ = frame::write(&mut io::stdout().lock(), TAKEN, &[]);
    }
}
