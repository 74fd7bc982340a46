//! The launcher's loop: a single poll(2), and the handling of its events.

use crate::error::Error;
use crate::frame::{self, Framed};
use crate::hosts::{self, HostRanks, LaunchCommand};
use crate::order::{HelperEnd, HelperOrder, JobPart, Options, RemotePart};
use crate::rank::{Assignment, RankProcess};
use crate::remote::Remote;
use crate::sink::OutputSink;
use crate::summary::{JobSummary, RankSummary};
use crate::termination::{Action, ExitOutcome, Termination, lets_run};
use std::ffi::OsString;
use std::io::{stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ChildStdin;
use std::time::{Duration, Instant};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{Signal, SignalFd, is_ignored, readable};
use unisono_linux::topology::Topology;
use unisono_rma::{Key, MAX_RANKS};

/// The time for which the launcher ignores the ranks' pipes while its output queue is full.
const FULL: Duration = Duration::from_millis(5);

/// Starts the ranks, passes signals and output on, and waits until all have ended. `report` receives the
/// launcher's own messages, one line each.
///
/// Call it from a thread that lives until this function returns: the kernel kills the ranks when the thread
/// that started them ends (`PR_SET_PDEATHSIG`). The process should not have started other threads before,
/// because signals are blocked only in the calling thread and in threads that it starts from here on. After
/// [`Error::Input`] or [`Error::Program`], no process was started; after [`Error::System`], all processes
/// have been ended.
pub fn run(options: &Options, report: impl Fn(&str)) -> Result<JobSummary, Error> {
    let part = JobPart { first: 0, size: checked(options.ranks)?, key: new_key()?.to_string(), remote: None };
    let names = (0..options.ranks).map(|rank| rank.to_string()).collect();
    supervise(options, ("rank", names), Console::Own, report, |job| Ok((job.start(options, &part)?, 0)))
}

/// The hosts of a job, and how to reach them.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub hosts: Vec<HostRanks>,
    /// The command that starts a helper on a host.
    pub launch: LaunchCommand,
    /// The words of the helper's command: this program's name on the hosts, and the arguments that make it
    /// call [`help`](crate::help).
    pub helper: Vec<OsString>,
    /// The port of rank 0. `None`: a random port.
    pub port: Option<u16>,
}

/// Runs a job as [`run`] does, but with the ranks on several hosts. Ignores `options.ranks`. Fails as [`run`]
/// does.
pub fn run_across(options: &Options, cluster: &Cluster, report: impl Fn(&str)) -> Result<JobSummary, Error> {
    let size = checked(cluster.hosts.iter().fold(0, |sum: usize, host| sum.saturating_add(host.ranks)))?;
    let [first, second, ..] = *new_key()?.bytes();
    let port = cluster.port.unwrap_or(LOWEST_PORT + u16::from_ne_bytes([first, second]) % PORTS);
    let root = match cluster.hosts.len() {
        1 => String::new(),
        _ => hosts::root(&cluster.hosts, port).map_err(Error::Input)?.to_string(),
    };
    let options = Options { ranks: size, ..options.clone() };
    let names = cluster.hosts.iter().map(|host| host.name.clone()).collect();
    supervise(&options, ("host", names), Console::Own, report, |job| {
        job.launch(&options, cluster, &root)?;
        Ok(("", 0))
    })
}

/// The lowest random port. Linux does not assign the [`PORTS`] ports from here on by itself
/// (`ip_local_port_range` begins at 32768).
const LOWEST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;

fn new_key() -> Result<Key, Error> {
    Key::random().map_err(|error| Error::Input(error.to_string()))
}

fn checked(ranks: usize) -> Result<usize, Error> {
    if ranks == 0 || ranks > MAX_RANKS as usize {
        return Err(Error::Input(format!("a job of {ranks} ranks is not possible; give 1 to {MAX_RANKS}")));
    }
    Ok(ranks)
}

/// The reader of the ranks' output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Console {
    /// The reader of this process's standard output and standard error.
    Own,
    /// A launcher, which gets both streams as frames over standard output.
    Framed,
}

/// Supervises the members (ranks or hosts) that `begin` starts, until all have ended. `begin` returns what
/// ranks were bound to, as a word for the summary (`core` or `none`; empty if other hosts decide), and the
/// lowest rank.
pub(crate) fn supervise(
    options: &Options,
    (word, names): (&'static str, Vec<String>),
    console: Console,
    report: impl Fn(&str),
    begin: impl FnOnce(&mut StartedJob) -> Result<(&'static str, usize), Error>,
) -> Result<JobSummary, Error> {
    // signals that nohup(1) or a shell has set to be ignored stay ignored
    let watched: Vec<Signal> =
        Signal::FROM_OUTSIDE.into_iter().filter(|signal| !is_ignored(*signal)).collect();
    let signals = SignalFd::new(&watched).map_err(Error::system("receive signals"))?;
    // threads may be started only from here on, so that they inherit the blocked signals
    let sinks = sinks(console)?;
    let mut job = StartedJob { ranks: Vec::new(), sinks, start: Instant::now(), input: None, kill_at: None };
    let (bind, first) = begin(&mut job)?;
    let mut termination = Termination::new(word, names, options.grace, options.limit);
    let mut notified = false;
    while !termination.is_over() {
        let actions =
            job.wait_and_handle(&mut termination, &signals).map_err(Error::system("watch the ranks"))?;
        for action in actions {
            match action {
                Action::Print(text) => report(&text),
                Action::Signal(signal) => job.signal_all(signal, options.grace),
            }
        }
        if console == Console::Framed && !notified && termination.first_failure().is_some() {
            notified = true;
            // if the launcher is gone, the thread that reads from it detects that
            let _ = frame::write(&mut stdout().lock(), frame::FAILED, &[termination.code()]);
        }
    }
    // also kills processes that the ranks have left behind
    job.ranks.iter().for_each(|rank| rank.relay_signal(Signal::Kill));
    let seconds = job.start.elapsed().as_secs_f64();
    job.finish_output(&signals);
    Ok(job.summary(options, &termination, (bind, first), seconds))
}

fn sinks(console: Console) -> Result<[OutputSink; 2], Error> {
    let sinks = match console {
        Console::Own => [OutputSink::new(stdout()), OutputSink::new(stderr())],
        Console::Framed => [OutputSink::new(Framed(frame::OUTPUT)), OutputSink::new(Framed(frame::ERRORS))],
    };
    let [out, err] = sinks.map(|sink| sink.map_err(Error::system("start a thread")));
    Ok([out?, err?])
}

/// A started job. Its drop kills the remaining ranks.
pub(crate) struct StartedJob {
    ranks: Vec<RankProcess>,
    /// The sinks of standard output and standard error.
    sinks: [OutputSink; 2],
    start: Instant,
    /// Rank 0's standard input, if it comes from a launcher on another host.
    input: Option<ChildStdin>,
    /// When to kill the launch commands of hosts that have not ended although they were ordered to.
    kill_at: Option<Instant>,
}

impl StartedJob {
    /// Starts the ranks of a part of a job on this host. Returns the unit that each rank was bound to, as a
    /// word for the summary (`core` or `none`).
    pub(crate) fn start(&mut self, options: &Options, part: &JobPart) -> Result<&'static str, Error> {
        let allowed =
            affinity::allowed(Tid::SELF).map_err(Error::system("read which processors may be used"))?;
        let places = options.bind.places(options.ranks, &Topology::read(), &allowed);
        for number in 0..options.ranks {
            let cpu = places.as_ref().map(|places| places[number]);
            let order = Assignment {
                rank: part.first + number,
                part,
                count: options.ranks,
                cpu,
                prefix: options.prefix,
                windows: options.windows,
                allowed: &allowed,
            };
            self.ranks.push(RankProcess::start(&options.command, &order)?);
            if part.remote.is_some() && order.rank == 0 {
                self.input = self.ranks.last_mut().and_then(|rank| rank.child.stdin.take());
            }
        }
        Ok(if places.is_some() { "core" } else { "none" })
    }

    /// Takes rank 0's standard input, if rank 0 was started for a launcher on another host.
    pub(crate) fn take_standard_input(&mut self) -> Option<ChildStdin> {
        self.input.take()
    }

    /// Starts the launch commands of the hosts.
    fn launch(&mut self, options: &Options, cluster: &Cluster, root: &str) -> Result<(), Error> {
        let directory = std::env::current_dir().map_err(Error::system("find out the working directory"))?;
        let (key, mut first) = (new_key()?.to_string(), 0);
        for host in &cluster.hosts {
            let remote = Some(RemotePart { host: host.name.clone(), root: root.to_owned() });
            let part = JobPart { first, size: options.ranks, key: key.clone(), remote };
            let options = Options { ranks: host.ranks, limit: None, ..options.clone() };
            let order = HelperOrder { directory: directory.clone().into_os_string(), options, part };
            let words = cluster.launch.expand(host, &cluster.helper);
            self.ranks.push(RankProcess::launch(&words, host, &order)?);
            first += host.ranks;
        }
        Ok(())
    }

    fn signal_all(&mut self, signal: Signal, grace: Duration) {
        if signal == Signal::Kill {
            self.kill_at.get_or_insert(Instant::now() + grace);
        }
        self.ranks.iter().filter(|rank| rank.ended.is_none()).for_each(|rank| rank.relay_signal(signal));
    }

    /// Waits until an event comes, passes output on, and returns the actions for the other events.
    fn wait_and_handle(
        &mut self,
        termination: &mut Termination,
        signals: &SignalFd,
    ) -> std::io::Result<Vec<Action>> {
        let room = self.sinks.each_mut().map(OutputSink::has_room);
        let timeout = termination.next_deadline().map(|moment| moment.saturating_sub(self.start.elapsed()));
        // poll(2) counts whole milliseconds, so the timeout is rounded up, in order not to wake too early
        let timeout = timeout.map(|timeout| timeout + Duration::from_millis(1));
        let kill = self.kill_at.map(|moment| moment.saturating_duration_since(Instant::now()));
        let timeout = timeout.into_iter().chain(kill.map(|kill| kill + Duration::from_millis(1))).min();
        let timeout = if room == [true, true] { timeout } else { Some(timeout.unwrap_or(FULL).min(FULL)) };
        let mut watched = vec![Watched::Signals];
        for (rank, process) in self.ranks.iter().enumerate() {
            if process.ended.is_none() {
                watched.push(Watched::End(rank));
            }
            let open = |stream: &usize| room[*stream] && process.streams[*stream].pipe.is_some();
            watched.extend((0..2).filter(open).map(|stream| Watched::Output(rank, stream)));
        }
        let ready = readable(&self.descriptors(&watched, signals), timeout)?;
        let mut actions = Vec::new();
        for (what, _) in watched.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            match what {
                Watched::Signals => actions.extend(self.signal(termination, signals)),
                Watched::End(rank) => actions.extend(self.ended(termination, rank)?),
                Watched::Output(rank, stream) => actions.extend(self.output(termination, rank, stream)),
            }
        }
        if self.kill_at.is_some_and(|moment| Instant::now() >= moment) {
            self.kill_at = None;
            let launched = self.ranks.iter().filter(|rank| rank.ended.is_none() && rank.remote.is_some());
            launched.for_each(|rank| rank.signal(Signal::Kill));
        }
        if !termination.is_over() {
            actions.extend(termination.on_timeout(self.start.elapsed()));
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

    fn signal(&self, termination: &mut Termination, signals: &SignalFd) -> Vec<Action> {
        match signals.next() {
            None => Vec::new(),
            Some((Signal::Suspend, _)) => {
                self.suspend();
                Vec::new()
            }
            Some((signal, _)) => termination.on_signal(signal),
        }
    }

    /// Handles Ctrl-Z: stops the ranks and then the launcher itself, and continues the ranks when the
    /// launcher continues. Ranks on other hosts keep running.
    fn suspend(&self) {
        let here = || self.ranks.iter().filter(|rank| rank.ended.is_none() && rank.remote.is_none());
        here().for_each(|rank| rank.relay_signal(Signal::Stop));
        if let Ok(myself) = PinnedProcess::own() {
            // a process may always send signals to itself
            let _ = myself.send(Signal::Stop);
        }
        here().for_each(|rank| rank.relay_signal(Signal::Continue));
    }

    fn ended(&mut self, termination: &mut Termination, rank: usize) -> std::io::Result<Vec<Action>> {
        let mut buffer = vec![0; READ];
        // the rank's last output comes before the launcher's message about its end
        let mut actions = Vec::new();
        for stream in 0..2 {
            let out = self.ranks[rank].streams[stream].take_what_is_there(&mut buffer);
            actions.extend(self.forward_output(termination, rank, stream, out));
        }
        let process = &mut self.ranks[rank];
        let Some(how) = process.collect()? else { return Ok(actions) };
        let number = process.child.id();
        if let Some(remote) = &mut process.remote {
            match &remote.done {
                None => self.sinks[1].push(remote.decoder.finish()),
                Some(HelperEnd::Refused { problem, .. }) => {
                    actions.push(Action::Print(format!("host {}: {problem}", remote.host.name)));
                }
                Some(HelperEnd::Ended(_)) => {}
            }
        }
        actions.extend(termination.on_exit(self.start.elapsed(), rank, number, how));
        if let (ExitOutcome::LostByExit(_) | ExitOutcome::LostBySignal(_), Some(remote)) =
            (how, &self.ranks[rank].remote)
        {
            actions.push(Action::Print(format!("the launch command was: {}", remote.command)));
        }
        Ok(actions)
    }

    fn output(&mut self, termination: &mut Termination, rank: usize, stream: usize) -> Vec<Action> {
        let mut buffer = vec![0; READ];
        let source = &mut self.ranks[rank].streams[stream];
        let out = source.read(&mut buffer);
        if self.sinks[stream].is_closed() {
            source.pipe = None;
        }
        self.forward_output(termination, rank, stream, out)
    }

    /// Passes on a rank's output, or handles a helper's frames.
    fn forward_output(
        &mut self,
        termination: &mut Termination,
        rank: usize,
        stream: usize,
        out: Vec<u8>,
    ) -> Vec<Action> {
        let Some(remote) = self.ranks[rank].remote.as_mut().filter(|_| stream == 0) else {
            self.sinks[stream].push(out);
            return Vec::new();
        };
        let mut actions = Vec::new();
        for (kind, bytes) in remote.decoder.feed(&out) {
            match kind {
                frame::OUTPUT => self.sinks[0].push(bytes),
                frame::ERRORS => self.sinks[1].push(bytes),
                frame::TAKEN => remote.input_taken(),
                frame::FAILED => {
                    let code = i32::from(bytes.first().copied().unwrap_or(1));
                    termination.on_failure(self.start.elapsed(), rank, ExitOutcome::Exited(code));
                }
                frame::DONE => match serde_json::from_slice(&bytes) {
                    Ok(done) => remote.done = Some(done),
                    Err(error) => {
                        let host = &remote.host.name;
                        actions.push(Action::Print(format!(
                            "host {host} has another version of unisono: {error}"
                        )));
                    }
                },
                _ => {}
            }
        }
        actions
    }

    /// Passes on the remaining output. Returns early if a signal asks the launcher to end; other signals,
    /// such as a change of the window's size, lose no output.
    fn finish_output(&mut self, signals: &SignalFd) {
        let mut buffer = vec![0; READ];
        for rank in &mut self.ranks {
            for (stream, sink) in rank.streams.iter_mut().zip(&mut self.sinks) {
                sink.push(stream.drain(&mut buffer));
            }
        }
        loop {
            let [out, err] = &mut self.sinks;
            if out.is_finished() & err.is_finished() {
                return;
            }
            let pending = readable(&[signals.as_fd()], Some(Duration::from_millis(1)));
            match pending.is_ok_and(|pending| pending == [true]).then(|| signals.next()).flatten() {
                Some((Signal::Suspend, _)) => self.suspend(),
                Some((signal, _)) if !lets_run(signal) => return,
                _ => {}
            }
        }
    }

    fn summary(
        &self,
        options: &Options,
        termination: &Termination,
        (bind, first): (&'static str, usize),
        seconds: f64,
    ) -> JobSummary {
        let rank = |(number, rank): (usize, &RankProcess)| {
            let (how, time) = rank.ended.unwrap_or((ExitOutcome::Signalled(0), Duration::ZERO));
            RankSummary {
                rank: first + number,
                host: None,
                process: rank.child.id(),
                cpu: rank.cpu,
                exit_code: if let ExitOutcome::Exited(code) = how { Some(code) } else { None },
                signal: if let ExitOutcome::Signalled(signal) = how { Some(signal) } else { None },
                seconds: time.as_secs_f64(),
            }
        };
        let summary = JobSummary {
            command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            size: options.ranks,
            exit_code: termination.code(),
            first_failure: termination.first_failure().map(|number| first + number),
            timed_out: termination.timed_out(),
            bind: bind.to_owned(),
            seconds,
            ranks: self.ranks.iter().enumerate().map(rank).collect(),
        };
        let across_hosts = self.ranks.iter().any(|rank| rank.remote.is_some());
        if across_hosts { self.summary_across(termination, summary) } else { summary }
    }

    /// Merges the summaries of the hosts into that of their helpers. How the ranks of a lost host ended is
    /// unknown.
    fn summary_across(&self, termination: &Termination, helpers: JobSummary) -> JobSummary {
        let hosts = || self.ranks.iter().filter_map(|process| process.remote.as_ref());
        let summaries = || hosts().filter_map(|remote| Some((remote, remote.summary()?)));
        let of = |(remote, summary): (&Remote, &JobSummary)| -> Vec<RankSummary> {
            let host = Some(remote.host.name.clone());
            summary.ranks.iter().map(|rank| RankSummary { host: host.clone(), ..rank.clone() }).collect()
        };
        let first =
            termination.first_failure().and_then(|number| hosts().nth(number)?.summary()?.first_failure);
        JobSummary {
            first_failure: first,
            bind: summaries().next().map_or_else(|| "none".to_owned(), |(_, summary)| summary.bind.clone()),
            ranks: summaries().flat_map(of).collect(),
            ..helpers
        }
    }
}

const READ: usize = 64 * 1024;

/// An event source in the poll.
#[derive(Clone, Copy, Debug)]
enum Watched {
    Signals,
    End(usize),
    Output(usize, usize),
}

impl Drop for StartedJob {
    fn drop(&mut self) {
        for rank in self.ranks.iter_mut().filter(|rank| rank.ended.is_none()) {
            rank.relay_signal(Signal::Kill);
            rank.signal(Signal::Kill);
            let _ = rank.child.wait();
        }
    }
}
