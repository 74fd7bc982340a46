//! The daemon: its socket, its signals, and its end.
//!
//! One thread waits for clients, signals and the next round over the gangs; a second one, of `host`, makes
//! the switches. A guardian restores if the daemon is killed. The next daemon takes the gangs over again. A
//! daemon that ends in order releases all gangs and forgets them.

use super::daemon::{GangDaemon, SlicePace, Terms, saved_name};
use super::job_queue::ReplyTicket;
use super::keeper::{ReadAgain, RuleKeeper, RulesFile};
use super::last_resort::{self, LoopTurns};
use super::pace;
use super::peers::{Floodgate, LineBuffer, MAX_OF_USER, MAX_PEERS};
use super::request::{GangRefusal, GangRefusalKind, ServiceReply, parse};
use crate::error::{Error, GangHint, Result, system};
pub use crate::host::scheduler::TurnsBy;
use crate::host::{guardian, leftover, trace};
use crate::journal::{self, GangJournal};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::local_socket::{self, SocketName};
use unisono_linux::private_directory::make_enterable;
use unisono_linux::process::{self, Signal, SignalFd};
use unisono_linux::scheduling::{self, Children, SchedulingPolicy};

/// The path at which root's daemon listens.
pub const SOCKET: &str = "/run/unisono/gang.sock";
/// Maximum wait: systemd's watchdog expects a sign of life from time to time.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Time to wait before the next read from a flooding client, and before the next write to a client that does
/// not read.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// A client that sends nothing, or does not read its answers, for this long is disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of unread answers of a client: a list of some hundred gangs takes a tenth of it.
const MAX_UNREAD: usize = 1 << 20;
/// The nice value of the thread that answers.
const URGENT: i32 = -20;
/// Connections that are reserved for root.
const KEPT_FOR_ROOT: usize = 8;

#[derive(Debug)]
pub struct DaemonOptions {
    /// `None`: the slice follows the intervals of the gangs.
    pub slice: Option<Duration>,
    pub socket: PathBuf,
    /// The mode of the socket file, which limits the users who may connect.
    pub mode: u32,
    pub turns_by: TurnsBy,
    /// Whether every thread gets a core of its own.
    pub spread: bool,
    /// The program that becomes the guardian; the journal's path and our process number are added.
    pub guardian: Option<Command>,
    /// The trace file, emptied if it exists; see `host/trace.rs`.
    pub trace: Option<PathBuf>,
    /// The rules that make gangs. On SIGHUP, which does not end the daemon, they are read again.
    pub rules: Option<RulesFile>,
}

/// A message of the daemon for the program that started it.
#[derive(Debug)]
pub enum DaemonNotice {
    /// Clients are answered from now on.
    Ready,
    /// The daemon has completed a turn of its loop.
    Alive,
    Warning(String),
    /// A change to the host was not undone; the daemon has ended.
    NotRestored(String),
}

/// Serves until a signal ends it, and puts everything back at the end. After [`Error::Input`] and
/// [`Error::Host`], no change is left.
pub fn serve(mut options: DaemonOptions, report: &mut dyn FnMut(DaemonNotice)) -> Result<()> {
    let signals = Arc::new(SignalFd::new(&Signal::FROM_OUTSIDE).map_err(system("receive signals"))?);
    let rules = options.rules.take().map(RuleKeeper::open).transpose()?;
    let (rules, missing) = rules.map_or((None, None), |(keeper, missing)| (Some(keeper), missing));
    missing.into_iter().for_each(|missing| report(DaemonNotice::Warning(missing)));
    let trace = options.trace.as_deref().map(trace::create).transpose()?;
    let said = rules.as_ref().and_then(RuleKeeper::slice).or(options.slice);
    let pace = if said.is_some() { SlicePace::Fixed } else { SlicePace::Follows };
    let slice = said.unwrap_or(pace::MIN_SLICE);
    let listener = SocketFile::listen(&options.socket, options.mode)?;
    let leftover = leftover::restore();
    for left in leftover.unrestored {
        report(DaemonNotice::Warning(format!("left by a killed scheduler and not restored: {left}")));
    }
    let journal = GangJournal::create()?;
    let path = journal.path().to_owned();
    let name = saved_name(&options.socket);
    let saved = journal.read_beside(&name)?;
    let mut guardian = options.guardian.take().map(|command| guardian::post(command, &path)).transpose()?;
    let terms =
        Terms { slice, pace, turns_by: options.turns_by, spread: options.spread, saved: name.clone() };
    let turns = LoopTurns::default();
    last_resort::watch(Arc::clone(&signals), turns.clone())?;
    // hundreds of threads of gangs may want the processors, and clients wait for answers
    let urgent = SchedulingPolicy::Other { nice: URGENT, slice: None };
    if let Err(error) = scheduling::set_own(urgent, Children::Reset) {
        let text = format!("answers may be slow while gangs are busy: cannot get nice {URGENT}: {error}");
        report(DaemonNotice::Warning(text));
    }
    let result = GangDaemon::start(terms, journal, trace).and_then(|mut daemon| {
        saved.iter().for_each(|saved| daemon.take_over(saved));
        report(DaemonNotice::Ready);
        let mut peers = Peers { rules, turns, ..Peers::default() };
        let served = peers.serve(&listener.listener, &signals, &mut daemon, report);
        daemon.finish().into_iter().for_each(|lacks| report(DaemonNotice::Warning(lacks)));
        served
    });
    // whatever happened: put everything back, then let the guardian see that nothing is left to do
    let restored = journal::restore(&path);
    if let Some(guardian) = &mut guardian {
        let _ = guardian.kill(); // it waits for our end; without a journal there is nothing it could do
        let _ = guardian.wait();
    }
    // a daemon that failed is started again, and takes its gangs over
    if result.is_ok() {
        journal::forget_beside(&name)?;
    }
    match restored {
        Ok(restored) => {
            restored.unrestored.into_iter().for_each(|left| report(DaemonNotice::NotRestored(left)));
        }
        Err(error) => report(DaemonNotice::NotRestored(error.to_string())),
    }
    result
}

/// A listening socket at a path; the file is removed when the value is dropped.
struct SocketFile {
    listener: UnixListener,
    name: SocketName,
}

impl SocketFile {
    fn listen(path: &Path, mode: u32) -> Result<SocketFile> {
        if let Some(above) = path.parent() {
            make_enterable(above).map_err(system("make the directory of the socket"))?;
        }
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                let text = format!("{} is there and is no socket; choose another --socket", path.display());
                return Err(Error::Input(text));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                let text = format!("a gang daemon answers at {} already", path.display());
                return Err(Error::Input(text).hinting(GangHint::ListGangs));
            }
            // the socket of a killed daemon
            Ok(_) => fs::remove_file(path).map_err(system("remove the socket of a killed daemon"))?,
            Err(_) => {}
        }
        let listener = local_socket::listen(path, mode).map_err(|error| {
            Error::Host(format!("cannot listen at {}: {error}; choose another --socket", path.display()))
        })?;
        // the mode may be wider than the umask permits; until now it was narrower
        local_socket::set_mode(path, mode).map_err(system("open the socket to others"))?;
        listener.set_nonblocking(true).map_err(system("prepare the socket"))?;
        Ok(SocketFile { listener, name: SocketName::from_path(path) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = self.name.remove(); // what cannot be removed stays
    }
}

struct ServiceClient {
    id: ReplyTicket,
    /// Whether a request of the client is being carried out.
    waits: bool,
    stream: UnixStream,
    user: u32,
    lines: LineBuffer,
    unread: Vec<u8>,
    /// The time of the client's last activity.
    last_active: Instant,
    /// No more requests of the client are read before this time, because its user sends too many.
    later: Instant,
}

#[derive(Default)]
struct Peers {
    all: Vec<ServiceClient>,
    /// Number of clients so far.
    ever: ReplyTicket,
    gate: Floodgate,
    rules: Option<RuleKeeper>,
    turns: LoopTurns,
}

/// Whether a connection stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepConnection {
    Yes,
    No,
}

impl Peers {
    fn serve(
        &mut self,
        listener: &UnixListener,
        signals: &SignalFd,
        daemon: &mut GangDaemon,
        report: &mut dyn FnMut(DaemonNotice),
    ) -> Result<()> {
        let mut again = ReadAgain::IfChanged;
        loop {
            daemon.tend()?;
            daemon.work();
            for (client, reply) in daemon.replies() {
                // a client that has disconnected gets no answer
                if let Some(peer) = self.all.iter_mut().find(|peer| peer.id == client) {
                    peer.waits = false;
                    peer.last_active = clock::now();
                    peer.send(&reply);
                }
            }
            let messages = self.rules.as_mut().map(|rules| rules.tend(daemon, again)).unwrap_or_default();
            messages.into_iter().for_each(|messages| report(DaemonNotice::Warning(messages)));
            again = ReadAgain::IfChanged;
            daemon.warnings().into_iter().for_each(|text| report(DaemonNotice::Warning(text)));
            self.wait(listener, signals, daemon)?;
            self.turns.count();
            report(DaemonNotice::Alive);
            while let Some((signal, _)) = signals.next() {
                if signal == Signal::Hangup {
                    again = ReadAgain::Now;
                } else if matches!(signal, Signal::Interrupt | Signal::Terminate | Signal::Quit) {
                    return Ok(());
                }
                // all other signals are ignored: a daemon suspended by one would leave gangs frozen
            }
            self.accept(listener);
            let gate = &mut self.gate;
            self.all.retain_mut(|peer| peer.attend(daemon, gate) == KeepConnection::Yes);
            self.gate.forget(clock::now());
        }
    }

    fn wait(&self, listener: &UnixListener, signals: &SignalFd, daemon: &GangDaemon) -> Result<()> {
        let at = clock::now();
        let mut until = at + MAX_WAIT;
        until = daemon.next_scan().map_or(until, |scan| scan.min(until));
        until = daemon.next_work().map_or(until, |work| work.min(until));
        until = self.rules.as_ref().and_then(RuleKeeper::next).map_or(until, |next| next.min(until));
        let mut fds = vec![listener.as_fd(), signals.as_fd()];
        fds.extend(daemon.leaders().map(AsFd::as_fd));
        for peer in &self.all {
            if peer.waits && peer.unread.is_empty() {
                continue;
            }
            if peer.unread.is_empty() && peer.later <= at {
                fds.push(peer.stream.as_fd());
            } else {
                until = until.min(at + RETRY_DELAY);
            }
        }
        process::readable(&fds, Some((until - at).into())).map_err(system("wait for clients"))?;
        Ok(())
    }

    fn accept(&mut self, listener: &UnixListener) {
        // accepts as many clients as can wait at once; the next turn accepts the others
        for _ in 0..MAX_PEERS {
            let Ok((stream, _)) = listener.accept() else { return };
            let (Ok(peer), Ok(())) = (local_socket::peer(&stream), stream.set_nonblocking(true)) else {
                continue;
            };
            let of_user = self.all.iter().filter(|other| other.user == peer.user).count();
            let of_users = self.all.iter().filter(|other| other.user != 0).count();
            let is_root = peer.user == 0;
            let is_full = self.all.len() >= MAX_PEERS
                || (!is_root && (of_user >= MAX_OF_USER || of_users >= MAX_PEERS - KEPT_FOR_ROOT));
            self.ever += 1;
            let mut peer = ServiceClient {
                id: self.ever,
                waits: false,
                stream,
                user: peer.user,
                lines: LineBuffer::default(),
                unread: Vec::new(),
                last_active: clock::now(),
                later: Instant::ZERO,
            };
            if is_full {
                let text = "too many connections; try again".to_owned();
                peer.send(&ServiceReply::Refused(GangRefusal::new(GangRefusalKind::TooMany, text)));
                peer.write();
            } else {
                self.all.push(peer);
            }
        }
    }
}

impl ServiceClient {
    fn attend(&mut self, daemon: &mut GangDaemon, gate: &mut Floodgate) -> KeepConnection {
        let at = clock::now();
        if (at - self.last_active > IDLE_TIMEOUT && !self.waits) || self.write() == KeepConnection::No {
            return KeepConnection::No;
        }
        if self.waits {
            return KeepConnection::Yes;
        }
        if !self.unread.is_empty() || self.later > at {
            return KeepConnection::Yes;
        }
        if !self.lines.has_line() && self.read(at) == KeepConnection::No {
            return KeepConnection::No;
        }
        while self.unread.is_empty() && self.lines.has_line() {
            if !gate.admits(self.user, clock::now()) {
                self.later = at + RETRY_DELAY;
                break;
            }
            let Some(line) = self.lines.next_line() else { break };
            let reply = match parse(&line) {
                Ok(request) => daemon.answer(self.user, request, self.id),
                Err(refusal) => Some(ServiceReply::Refused(refusal)),
            };
            let Some(reply) = reply else {
                self.waits = true;
                break;
            };
            self.send(&reply);
            if self.write() == KeepConnection::No {
                return KeepConnection::No;
            }
        }
        KeepConnection::Yes
    }

    fn read(&mut self, at: Instant) -> KeepConnection {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => KeepConnection::No,
            Ok(count) => {
                self.last_active = at;
                if self.lines.push(&bytes[..count]).is_ok() {
                    return KeepConnection::Yes;
                }
                let text = "a line is longer than a request can be".to_owned();
                self.send(&ServiceReply::Refused(GangRefusal::new(GangRefusalKind::BadRequest, text)));
                self.write();
                KeepConnection::No
            }
            Err(error) if is_for_later(&error) => KeepConnection::Yes,
            Err(_) => KeepConnection::No,
        }
    }

    fn send(&mut self, reply: &ServiceReply) {
        // a reply has no maps with non-text keys, so it can be written as JSON
        self.unread.extend(serde_json::to_vec(reply).unwrap_or_default());
        self.unread.push(b'\n');
    }

    fn write(&mut self) -> KeepConnection {
        while !self.unread.is_empty() {
            match self.stream.write(&self.unread) {
                Ok(count) => {
                    self.unread.drain(..count);
                    self.last_active = clock::now();
                }
                Err(error) if is_for_later(&error) => break,
                Err(_) => return KeepConnection::No,
            }
        }
        if self.unread.len() > MAX_UNREAD { KeepConnection::No } else { KeepConnection::Yes }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
