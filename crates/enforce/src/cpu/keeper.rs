//! The process that keeps shares of processor time, its journal, and the guard that lets all groups run when
//! that process is gone.

use super::groups::{HeldGroup, Shares, journal_entry, thaw_all};
use super::turns::{TurnState, TurnTaking, is_busy};
use crate::background::{self, StartOutcome};
use crate::error::Error;
use crate::journal::{Journal, Phase, Record};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration as StdDuration;
use unisono_fairqueue::{Policy, Wants};
use unisono_linux::cgroup::Frozen;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::parent_death::outlive_starter;
use unisono_linux::poll;
use unisono_linux::process::{Family, Signal, SignalFd, asks_to_end, start};
use unisono_linux::undo::Author;

const CPU_BACKEND: &str = "cpu";
/// The interval between searches for groups that were removed. A group that was made anew under its old name
/// gets its share only after the next search.
const CHECK_INTERVAL: Duration = Duration::SECOND;
/// The time limit for a process that was told to let all groups run and to end. It writes only one file for
/// each group; a process that takes longer is stopped or stuck, and the command fails.
const STOP_TIMEOUT: StdDuration = StdDuration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Options {
    pub quantum: StdDuration,
    /// The device whose policy the shares belong to. With a device the process runs in the background, and
    /// ends with its starter until the shares are kept.
    pub device: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { quantum: StdDuration::from_millis(10), device: None }
    }
}

/// The groups that may be frozen now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct FrozenGroups {
    groups: Vec<(PathBuf, u8)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Running {
    pub keeper: Author,
    /// The device whose policy the shares belong to.
    pub device: Option<String>,
    pub policy: String,
}

/// Checks whether the core can keep the shares of a policy on this host. Changes nothing.
pub fn check(policy: &Policy) -> Result<(), Error> {
    let shares = Shares::from_policy(policy)?;
    match conflicting_keeper(&FrozenGroups::from_shares(&shares))? {
        Some(_) => Ok(()), // frozen by a process that this policy may replace
        None => shares.all_run(policy),
    }
}

impl FrozenGroups {
    fn from_shares(shares: &Shares) -> Self {
        Self { groups: shares.leaves.iter().map(|(_, found)| journal_entry(found)).collect() }
    }
}

/// Finds another process that keeps shares of these groups, or of a group above or below them. Returns its
/// number and the group.
fn conflicting_keeper(groups: &FrozenGroups) -> Result<Option<(u32, PathBuf)>, Error> {
    for journal in Journal::all_shares()? {
        let Some(other) = journal.read::<FrozenGroups>()?.filter(|record| record.author.lives()) else {
            continue;
        };
        let is_theirs = |path: &Path| {
            other.before.groups.iter().any(|(other, _)| other.starts_with(path) || path.starts_with(other))
        };
        if let Some((group, _)) = groups.groups.iter().find(|(group, _)| is_theirs(group)) {
            return Ok(Some((other.author.process, group.clone())));
        }
    }
    Ok(None)
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct GroupTime {
    /// The control group's path in the policy.
    pub cgroup: String,
    pub weight: String,
    pub used_us: u64,
}

/// Keeps the shares of control groups by turns: the caller calls [`Keeper::turn`] at the end of each turn.
/// Dropping this value lets all groups run.
#[derive(Debug)]
pub struct Keeper {
    turns: TurnTaking,
    groups: Vec<HeldGroup>,
    quantum: Duration,
    last: Instant,
    next_check: Instant,
    pub taken: u64,
    times: Vec<GroupTime>,
    journal: Journal,
    guard: Child,
}

impl Keeper {
    /// Writes the journal, starts the guard, and takes over the groups of a policy. `guard` is the command of
    /// a program that calls [`guard`] with two arguments, which are added here: the journal's path and this
    /// process's number.
    pub fn start(policy: &Policy, options: &Options, mut guard: Command) -> Result<Self, Error> {
        let shares = Shares::from_policy(policy)?;
        let _lock = Journal::lock_shares()?;
        for journal in Journal::all_shares()? {
            restore(&journal)?;
        }
        let before = FrozenGroups::from_shares(&shares);
        if let Some((process, group)) = conflicting_keeper(&before)? {
            let what = format!(
                "process {process} shares out the time of {} already; end it first: unisono queue clear",
                group.display()
            );
            return Err(Error::BackendUnsupported { what });
        }
        shares.all_run(policy)?;
        let (classes, found): (Vec<_>, Vec<_>) = shares.leaves.into_iter().unzip();
        let times = classes.iter().map(|id| {
            let class = shares.hierarchy.class(*id);
            GroupTime { cgroup: class.name.clone(), weight: class.weight.to_string(), used_us: 0 }
        });
        let times = times.collect();
        let groups = found.into_iter().map(HeldGroup::open).collect::<Result<Vec<_>, _>>()?;
        let quantum = u32::try_from(options.quantum.as_micros()).unwrap_or(u32::MAX).clamp(100, 1_000_000);
        let turns = TurnTaking::new(shares.hierarchy, &classes, quantum);
        let device = options.device.as_deref().unwrap_or_default();
        let mut record = Record::new(CPU_BACKEND, device, 0, &policy.text, before);
        record.phase = Phase::Holds;
        let journal = Journal::for_shares(record.author.process);
        journal.write(&record)?;
        guard
            .arg(journal.path())
            .arg(record.author.process.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let guard = start(&mut guard, Vec::new(), Family::OwnSession).map_err(|source| {
            let _ = journal.remove(); // no group has been frozen yet
            Error::System { what: "start the guard", source }
        })?;
        let now = clock::now();
        let quantum = Duration::from_micros(quantum.into());
        Ok(Self {
            turns,
            groups,
            quantum,
            last: now,
            next_check: now + CHECK_INTERVAL,
            taken: 0,
            times,
            journal,
            guard,
        })
    }

    /// Ends a turn and begins the next one. Returns the end of the new turn, on the monotonic clock.
    pub fn turn(&mut self) -> Instant {
        let mut used = vec![0; self.groups.len()];
        let mut wants = Wants::Sleep;
        if let Some(running) = self.turns.running() {
            let group = &mut self.groups[running];
            used[running] = group.used();
            let elapsed = (clock::now() - self.last).as_micros();
            if !is_busy(used[running], elapsed) && group.wants() {
                wants = Wants::More;
            }
            if self.turns.has_waiting() {
                // the kernel counts a running group at ticks, and a frozen one exactly
                group.set(Frozen::Yes);
            }
        }
        let now = clock::now();
        for (used, group) in used.iter_mut().zip(&mut self.groups) {
            *used += group.used();
        }
        for (time, used) in self.times.iter_mut().zip(&used) {
            time.used_us += used;
        }
        self.turns.next(&used, (now - self.last).as_micros(), wants);
        self.last = now;
        self.taken += 1;
        let stopped = |at| if self.turns.state(at) == TurnState::Waits { Frozen::Yes } else { Frozen::No };
        let wanted: Vec<Frozen> = (0..self.groups.len()).map(stopped).collect();
        // first freeze, then thaw: otherwise two groups would run at the same time
        for state in [Frozen::Yes, Frozen::No] {
            for (group, _) in self.groups.iter_mut().zip(&wanted).filter(|(_, wanted)| **wanted == state) {
                group.set(state);
            }
        }
        if now >= self.next_check {
            self.groups.iter_mut().for_each(HeldGroup::reopen);
            self.next_check = now + CHECK_INTERVAL;
        }
        clock::now() + self.quantum
    }
}

impl Keeper {
    pub fn times(&self) -> &[GroupTime] {
        &self.times
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.groups.iter_mut().for_each(HeldGroup::release);
        let _ = self.journal.remove(); // without a journal, the guard and the next command have nothing to do
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// Keeps the shares of a policy until a signal arrives, then returns the time that each group has used. Calls
/// `ready` when the shares hold.
pub fn serve(
    policy: &Policy,
    options: &Options,
    guard: Command,
    ready: impl FnOnce(),
) -> Result<Vec<GroupTime>, Error> {
    let system = |what| move |source| Error::System { what, source };
    let signals = SignalFd::new(&[Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit])
        .map_err(system("wait for signals"))?;
    poll::punctual().map_err(system("ask for punctual timers"))?;
    let mut keeper = Keeper::start(policy, options, guard)?;
    let mut until = keeper.turn();
    if options.device.is_some() {
        outlive_starter().map_err(system("stay in the background"))?;
    }
    ready();
    loop {
        let pause = (until - clock::now()).into();
        let [signalled] = poll::readable([signals.as_fd()], Some(pause)).map_err(system("wait"))?;
        if signalled && signals.next().is_some_and(|(signal, _)| asks_to_end(signal)) {
            return Ok(keeper.times().to_vec());
        }
        if clock::now() >= until {
            until = keeper.turn();
        }
    }
}

/// Starts a program that calls [`serve`] with the policy from its standard input, writes the line
/// [`crate::READY`] when the shares hold, and outlives this process.
pub fn start_background(server: Command, policy: &str) -> Result<(), Error> {
    let system = |source| Error::System { what: "start what keeps the shares of processor time", source };
    match background::start(server, None, policy.as_bytes()).map_err(system)? {
        StartOutcome::Ready => Ok(()),
        StartOutcome::Ended { code: Some(2), why } => Err(Error::BackendUnsupported { what: why }),
        StartOutcome::Ended { code: Some(3), why } => {
            Err(Error::Lacks { what: why, remedy: "the shares of processor time are not kept".to_owned() })
        }
        StartOutcome::Ended { why, .. } => Err(system(std::io::Error::other(why))),
    }
}

/// Waits for the end of the process, and lets all groups run if that process left its journal behind.
pub fn guard(journal: &Path, process: u32) -> Result<(), Error> {
    let journal = Journal::at(journal);
    let is_its = |record: &Record<FrozenGroups>| record.author.process == process;
    if let Some(record) = journal.read::<FrozenGroups>()?.filter(is_its)
        && let Some(held) = record.author.hold()
    {
        held.has_ended(None).map_err(|source| Error::System { what: "wait for a process", source })?;
    }
    let _lock = Journal::lock_shares()?;
    restore(&journal).map(drop)
}

/// Thaws all groups that a killed process has left frozen, and removes its journal. Returns whether there was
/// such a process.
fn restore(journal: &Journal) -> Result<bool, Error> {
    match journal.read::<FrozenGroups>()? {
        Some(record) if record.author.lives() => Ok(false),
        Some(record) => {
            thaw_all(&record.before.groups);
            journal.remove()?;
            Ok(true)
        }
        // the journal is from an earlier boot, or is gone
        None => Ok(journal.remove().map(|()| false)?),
    }
}

/// Thaws all groups that killed processes have left frozen. Returns a message for each such process.
pub fn recover_all() -> Result<Vec<String>, Error> {
    let journals = Journal::all_shares()?;
    if journals.is_empty() {
        return Ok(Vec::new());
    }
    let _lock = Journal::lock_shares()?;
    let mut messages = Vec::new();
    for journal in journals {
        let process = journal.read::<FrozenGroups>()?.map(|record| record.author.process);
        if restore(&journal)? {
            messages.extend(process.map(|process| {
                format!("let run on what process {process} had stopped, which shared out processor time and was killed")
            }));
        }
    }
    Ok(messages)
}

pub fn running() -> Result<Vec<Running>, Error> {
    let mut all = Vec::new();
    for journal in Journal::all_shares()? {
        if let Some(record) = journal.read::<FrozenGroups>()?.filter(|record| record.author.lives()) {
            all.push(Running {
                keeper: record.author,
                device: Some(record.device.clone()).filter(|device| !device.is_empty()),
                policy: record.policy,
            });
        }
    }
    Ok(all)
}

/// Orders a process that keeps shares to let all groups run and to end; waits until it has ended.
pub fn stop(running: &Running) -> Result<(), Error> {
    let system = |what| move |source| Error::System { what, source };
    if let Some(held) = running.keeper.hold() {
        if let Err(source) = held.send(Signal::Terminate)
            && !running.keeper.has_ended(StdDuration::ZERO)
        {
            return Err(Error::System { what: "end the process that shares out processor time", source });
        }
        if !held.has_ended(Some(STOP_TIMEOUT)).map_err(system("wait for a process"))? {
            let source = std::io::ErrorKind::TimedOut.into();
            return Err(Error::System { what: "end the process that shares out processor time", source });
        }
    }
    // if the process was killed, its guard thaws the groups, but may not have done so yet
    let _lock = Journal::lock_shares()?;
    restore(&Journal::for_shares(running.keeper.process)).map(drop)
}
