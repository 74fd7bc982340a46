//! The launcher's loop: one poll(2), and what follows from it.

use crate::ending::{Action, Ending};
use crate::error::Error;
use crate::lines::Prefix;
use crate::placement::Bind;
use crate::rank::{Place, RankProcess};
use crate::sink::Sink;
use crate::summary::{RankSummary, Summary};
use std::ffi::OsString;
use std::io::{stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::process::{PidFd, Signal, SignalFd, is_ignored, readable};
use unisono_linux::topology::Topology;
use unisono_rma::{Key, MOST_RANKS};

/// How long the launcher leaves full pipes alone.
const FULL: Duration = Duration::from_millis(5);

/// Whether the job prints at its end what its windows did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowTable {
    /// No.
    #[default]
    Omitted,
    /// Rank 0 does, on its standard error, when the program ends its membership.
    Printed,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Ranks.
    pub ranks: usize,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Where ranks run.
    pub bind: Bind,
    /// Whether lines say whose they are.
    pub prefix: Prefix,
    /// Whether rank 0 prints what the windows of the job did.
    pub windows: WindowTable,
    /// What the others get after a failure before SIGTERM, and after SIGTERM before SIGKILL.
    pub grace: Duration,
    /// The longest that the job may take.
    pub limit: Option<Duration>,
}

/// Starts the ranks, passes signals and output on, and waits until all have ended. `say` is told what the
/// launcher does on its own account, one line each.
///
/// The calling thread must not end before this returns, and the process should have started no other threads
/// before: signals are blocked in the threads started from here on only.
///
/// # Errors
/// [`Error::Input`] and [`Error::Program`]: nothing was started. [`Error::System`]: everything was ended.
pub fn run(options: &Options, say: impl Fn(&str)) -> Result<Summary, Error> {
    if options.ranks == 0 || options.ranks > MOST_RANKS as usize {
        let ranks = options.ranks;
        return Err(Error::Input(format!("a job of {ranks} ranks is not possible; give 1 to {MOST_RANKS}")));
    }
    let watched = [
        Signal::Interrupt,
        Signal::Terminate,
        Signal::Hangup,
        Signal::Quit,
        Signal::User1,
        Signal::User2,
        Signal::Suspend,
    ];
    // what nohup(1) or a shell has ignored stays ignored
    let watched: Vec<Signal> = watched.into_iter().filter(|signal| !is_ignored(*signal)).collect();
    let signals = SignalFd::new(&watched).map_err(Error::system("receive signals"))?;
    // from here on: threads inherit which signals are blocked
    let mut job = Running { ranks: Vec::new(), sinks: sinks()?, start: Instant::now() };
    let bind = job.start(options)?;
    let mut ending = Ending::new(options.ranks, options.grace, options.limit);
    while !ending.is_over() {
        let actions = job.turn(&mut ending, &signals).map_err(Error::system("watch the ranks"))?;
        for action in actions {
            match action {
                Action::Say(text) => say(&text),
                Action::Tell(signal) => job.tell(signal),
            }
        }
    }
    // what ranks started and left behind ends with them
    job.ranks.iter().for_each(|rank| rank.tell(Signal::Kill));
    let seconds = job.start.elapsed().as_secs_f64();
    job.finish_output(&signals);
    Ok(job.summary(options, &ending, bind, seconds))
}

fn sinks() -> Result<[Sink; 2], Error> {
    let thread = || Error::system("start a thread");
    Ok([Sink::new(stdout()).map_err(thread())?, Sink::new(stderr()).map_err(thread())?])
}

/// A started job. Dropped, it kills what is left.
struct Running {
    ranks: Vec<RankProcess>,
    /// Standard output, standard error.
    sinks: [Sink; 2],
    start: Instant,
}

impl Running {
    fn start(&mut self, options: &Options) -> Result<&'static str, Error> {
        let allowed =
            affinity::allowed(Tid::SELF).map_err(Error::system("read which processors may be used"))?;
        let places = options.bind.places(options.ranks, &Topology::read(), &allowed);
        let key = Key::random().map_err(|error| Error::Input(error.to_string()))?;
        for rank in 0..options.ranks {
            let cpu = places.as_ref().map(|places| places[rank]);
            let place = Place {
                rank,
                size: options.ranks,
                key,
                cpu,
                prefix: options.prefix,
                windows: options.windows,
                allowed: &allowed,
            };
            self.ranks.push(RankProcess::start(&options.command, &place)?);
        }
        Ok(if places.is_some() { "core" } else { "none" })
    }

    fn tell(&self, signal: Signal) {
        self.ranks.iter().filter(|rank| rank.ended.is_none()).for_each(|rank| rank.tell(signal));
    }

    /// Waits until something happens, passes output on, and answers what to do about the rest.
    fn turn(&mut self, ending: &mut Ending, signals: &SignalFd) -> std::io::Result<Vec<Action>> {
        let room = self.sinks.each_mut().map(Sink::has_room);
        let patience = ending.next_moment().map(|moment| moment.saturating_sub(self.start.elapsed()));
        // poll counts whole milliseconds, and a moment is not to be met early
        let patience = patience.map(|patience| patience + Duration::from_millis(1));
        let patience = if room == [true, true] { patience } else { Some(patience.unwrap_or(FULL).min(FULL)) };
        let mut watched = vec![Watched::Signals];
        for (rank, process) in self.ranks.iter().enumerate() {
            if process.ended.is_none() {
                watched.push(Watched::End(rank));
            }
            let open = |stream: &usize| room[*stream] && process.streams[*stream].pipe.is_some();
            watched.extend((0..2).filter(open).map(|stream| Watched::Output(rank, stream)));
        }
        let ready = readable(&self.descriptors(&watched, signals), patience)?;
        let mut actions = Vec::new();
        for (what, _) in watched.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            match what {
                Watched::Signals => actions.extend(self.signal(ending, signals)),
                Watched::End(rank) => actions.extend(self.ended(ending, rank)?),
                Watched::Output(rank, stream) => self.output(rank, stream),
            }
        }
        if !ending.is_over() {
            actions.extend(ending.passed(self.start.elapsed()));
        }
        Ok(actions)
    }

    fn descriptors<'a>(&'a self, watched: &[Watched], signals: &'a SignalFd) -> Vec<BorrowedFd<'a>> {
        let descriptor = |what: &Watched| match *what {
            Watched::Signals => signals.as_fd(),
            Watched::End(rank) => self.ranks[rank].descriptor.as_fd(),
            Watched::Output(rank, stream) => {
                self.ranks[rank].streams[stream].pipe.as_ref().map_or_else(|| signals.as_fd(), AsFd::as_fd)
            }
        };
        watched.iter().map(descriptor).collect()
    }

    fn signal(&self, ending: &mut Ending, signals: &SignalFd) -> Vec<Action> {
        match signals.next() {
            None => Vec::new(),
            Some((Signal::Suspend, _)) => {
                self.suspend();
                Vec::new()
            }
            Some((signal, _)) => ending.signalled(signal),
        }
    }

    /// Ctrl-Z: the ranks stop, the launcher stops, and both go on together.
    fn suspend(&self) {
        self.tell(Signal::Stop);
        if let Ok(myself) = PidFd::open(Tid(std::process::id().cast_signed())) {
            // ourselves: nobody may forbid it
            let _ = myself.send(Signal::Stop);
        }
        self.tell(Signal::Continue);
    }

    fn ended(&mut self, ending: &mut Ending, rank: usize) -> std::io::Result<Vec<Action>> {
        let process = &mut self.ranks[rank];
        let Some(how) = process.collect()? else { return Ok(Vec::new()) };
        let number = process.child.id();
        let mut buffer = vec![0; READ];
        // what it said last comes before what the launcher says about its end
        for (stream, sink) in process.streams.iter_mut().zip(&mut self.sinks) {
            sink.pass(stream.take_what_is_there(&mut buffer));
        }
        Ok(ending.ended(self.start.elapsed(), rank, number, how))
    }

    fn output(&mut self, rank: usize, stream: usize) {
        let mut buffer = vec![0; READ];
        let source = &mut self.ranks[rank].streams[stream];
        let out = source.read(&mut buffer);
        if self.sinks[stream].is_closed() {
            source.pipe = None;
        }
        self.sinks[stream].pass(out);
    }

    /// Passes on what is left, unless another signal says that nobody wants it.
    fn finish_output(&mut self, signals: &SignalFd) {
        let mut buffer = vec![0; READ];
        for rank in &mut self.ranks {
            for (stream, sink) in rank.streams.iter_mut().zip(&mut self.sinks) {
                sink.pass(stream.drain(&mut buffer));
            }
        }
        let [out, err] = &mut self.sinks;
        while !(out.is_finished() & err.is_finished()) {
            let told = readable(&[signals.as_fd()], Some(Duration::from_millis(1)));
            if told.is_ok_and(|told| told == [true]) && signals.next().is_some() {
                return;
            }
        }
    }

    fn summary(&self, options: &Options, ending: &Ending, bind: &'static str, seconds: f64) -> Summary {
        use crate::ending::How;
        let rank = |(number, rank): (usize, &RankProcess)| {
            let (how, time) = rank.ended.unwrap_or((How::Signalled(0), Duration::ZERO));
            RankSummary {
                rank: number,
                process: rank.child.id(),
                cpu: rank.cpu,
                exit_code: if let How::Exited(code) = how { Some(code) } else { None },
                signal: if let How::Signalled(signal) = how { Some(signal) } else { None },
                seconds: time.as_secs_f64(),
            }
        };
        Summary {
            command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            size: options.ranks,
            exit_code: ending.code(),
            first_failure: ending.first_failure(),
            timed_out: ending.timed_out(),
            bind,
            seconds,
            ranks: self.ranks.iter().enumerate().map(rank).collect(),
        }
    }
}

/// Bytes read at once.
const READ: usize = 64 * 1024;

/// What a descriptor in the poll is.
#[derive(Clone, Copy, Debug)]
enum Watched {
    Signals,
    End(usize),
    Output(usize, usize),
}

impl Drop for Running {
    fn drop(&mut self) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
            rank.tell(Signal::Kill);
            let _ = rank.child.wait();
        }
    }
}
