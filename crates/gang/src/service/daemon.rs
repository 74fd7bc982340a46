//! The gangs of the daemon: taking them in, looking at them in rounds, letting them go.

use super::adopt::{self, GangHome, LookedAt, groups_below, threads_in};
use super::limits::{self, GangQuota};
use super::looks::{GangLook, LookTimes};
use super::pace::{self, GangSleeps};
use super::request::{
    GangName, GangRefusal, GangRefusalKind, GangState, GangTarget, GangView, ServiceReply, ServiceRequest,
    ServiceView, slice_of, weight_of,
};
use super::state::{AddWish, ROOT, ServedGang, ServiceState};
use crate::arena::GangGroups;
use crate::error::{Error, Result, system};
use crate::gang::{GangId, GangWeight};
use crate::host::board::Board;
use crate::host::resting::{Resting, pressed};
use crate::host::scheduler::{GangScheduler, JoiningGang, Notice, SchedulerOutcome, TurnsBy};
use crate::host::threads::GangThreads;
use crate::host::trace::TraceWriter;
use crate::host::worth::{GangTimes, TurnsVerdict, TurnsWorth};
use crate::journal::{GangJournal, UndoEntry};
use crate::mechanism::Freeze;
use crate::policy::{Backfill, Rotation};
use crate::turn_quota::TurnQuota;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::cgroup::{CgroupHierarchy, ControlGroup, GroupMeter, hierarchies};
use unisono_linux::clock::{Nanos, now};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::timer::Sleeper;
use unisono_linux::usage;

/// The scheduler's thread answers between two switches, within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rounds after which it is looked for groups that were made below a gang's.
const ROUNDS_A_WALK: u64 = 8;

/// The file beside the journals that says what the daemon at this socket takes over again after a kill.
pub(super) fn saved_name(socket: &Path) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let socket: String = socket.to_string_lossy().chars().map(letter).collect();
    format!("daemon{socket}.state")
}

/// Who decides how long a slice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlicePace {
    /// It follows the intervals of the gangs.
    Follows,
    /// The user has said it.
    Fixed,
}

/// What the daemon needs to know of the host and of its user's wishes.
pub(super) struct Terms {
    pub(super) slice: Duration,
    pub(super) pace: SlicePace,
    pub(super) turns_by: TurnsBy,
    pub(super) spread: bool,
    /// The file that says what to take over again after a kill.
    pub(super) saved: String,
}

/// A gang, as this thread looks after it.
struct Tended {
    home: GangHome,
    groups: Vec<ControlGroup>,
    /// The process that was named; `None`: a group was, or it has ended.
    leader: Option<PinnedProcess>,
    threads: GangThreads,
    /// Whether its processes may use all of the daemon's cores. If not, their cores are their own affair.
    everywhere: bool,
    count: usize,
    width: usize,
    worth: TurnsWorth,
    meter: Option<GroupMeter>,
    used_before: u64,
    slept: GangSleeps,
    interval: Option<Duration>,
    quota: Option<GangQuota>,
    /// What its turns keep to.
    keeps_to: Option<TurnQuota>,
}

pub(super) struct GangDaemon {
    terms: Terms,
    hierarchy: CgroupHierarchy,
    whole: CpuSet,
    state: ServiceState,
    journal: GangJournal,
    board: Arc<Board>,
    notices: Sender<Notice>,
    alarm: Sleeper,
    thread: Option<JoinHandle<SchedulerOutcome>>,
    trace: Option<TraceWriter>,
    tended: BTreeMap<GangId, Tended>,
    looks: LookTimes,
    rounds: u64,
    /// What clients have removed, which no rule makes a gang again; `None`: there are no rules.
    dismissed: Option<BTreeSet<GangTarget>>,
}

impl GangDaemon {
    /// Starts the scheduler's thread; there are no gangs so far. Their turns are written into `trace`.
    pub(super) fn start(terms: Terms, journal: GangJournal, trace: Option<File>) -> Result<GangDaemon> {
        let all = hierarchies()?;
        let hierarchy = adopt::freezing(&all)?.clone();
        let whole = affinity::allowed(Tid::SELF).map_err(system("read which processors may be used"))?;
        let alarm = Sleeper::new().map_err(system("make an alarm"))?;
        let board = Arc::new(Board::default());
        let (notices, inbox) = channel();
        let slice = Nanos::from(terms.slice);
        let start = |file| TraceWriter::start(file, BTreeMap::new(), whole.iter().collect());
        let (trace, tracer) = trace.map(start).transpose()?.unzip();
        let scheduler = GangScheduler {
            rotation: Rotation::new(whole.len(), slice, Backfill::Never),
            turns_by: terms.turns_by,
            mechanism: Box::new(Freeze::empty()),
            controls: BTreeMap::new(),
            cpus: whole.iter().collect(),
            watcher: None,
            notices: inbox,
            alarm: alarm.clone(),
            board: Arc::clone(&board),
            gangs: Vec::new(),
            tracer,
            // the daemon judges by processor time alone
            resting: Resting::default(),
            quota: None, // each gang has its own (`limits.rs`)
            own: Vec::new(),
        };
        let thread =
            std::thread::Builder::new().name("gang-scheduler".into()).spawn(move || scheduler.run(slice));
        let thread = Some(thread.map_err(system("start the scheduler's thread"))?);
        Ok(GangDaemon {
            terms,
            hierarchy,
            whole,
            state: ServiceState::default(),
            journal,
            board,
            notices,
            alarm,
            thread,
            trace,
            tended: BTreeMap::new(),
            looks: LookTimes::new(now()),
            rounds: 0,
            dismissed: None,
        })
    }

    /// Takes over the gangs that a killed daemon had; answers which could not be.
    pub(super) fn take_over(&mut self, saved: &str) -> Vec<String> {
        let gangs: Vec<ServedGang> = serde_json::from_str(saved).unwrap_or_default();
        let mut lost = Vec::new();
        for gang in gangs {
            let Ok(weight) = weight_of(gang.weight) else { continue };
            let name = gang.name.clone();
            let wish = AddWish { target: gang.target, name: Some(gang.name), weight };
            if let Err(refusal) = self.add(gang.user, wish, None) {
                lost.push(format!("the gang {name} was not taken over: {refusal}"));
            }
        }
        self.save().err().into_iter().for_each(|error| lost.push(error.to_string()));
        lost
    }

    /// Carries a request out.
    pub(super) fn answer(&mut self, user: u32, request: ServiceRequest) -> ServiceReply {
        match self.carry_out(user, request) {
            Ok(reply) => reply,
            Err(refusal) => ServiceReply::Refused(refusal),
        }
    }

    fn carry_out(
        &mut self,
        user: u32,
        request: ServiceRequest,
    ) -> std::result::Result<ServiceReply, GangRefusal> {
        let reply = match request {
            ServiceRequest::List {} => return Ok(ServiceReply::Gangs(self.view())),
            ServiceRequest::Add { target, name, weight } => {
                let wish = AddWish { target, name, weight: weight_of(weight)? };
                let id = self.add(user, wish, None)?;
                let gang = self.state.get(id).map(|gang| gang.name.clone());
                gang.map_or(ServiceReply::Done {}, |gang| ServiceReply::Added { gang })
            }
            ServiceRequest::Remove { gang } => {
                let id = self.state.removable(user, &gang)?;
                let target = self.state.get(id).map(|gang| gang.target.clone());
                self.release(id).map_err(refused)?;
                if let Some(dismissed) = &mut self.dismissed {
                    dismissed.extend(target);
                }
                ServiceReply::Done {}
            }
            ServiceRequest::Weight { gang, weight } => {
                let weight = weight_of(weight)?;
                self.set_weight(user, &gang, weight)?;
                ServiceReply::Done {}
            }
            ServiceRequest::Slice { milliseconds } => {
                ServiceState::may_set_slice(user)?;
                self.set_slice(slice_of(milliseconds)?, SlicePace::Fixed);
                return Ok(ServiceReply::Done {});
            }
        };
        self.save().map_err(refused)?;
        Ok(reply)
    }

    fn set_slice(&mut self, slice: Duration, pace: SlicePace) {
        (self.terms.slice, self.terms.pace) = (slice, pace);
        self.tell(Notice::Slice(slice.into()));
    }

    fn set_weight(
        &mut self,
        user: u32,
        gang: &GangName,
        weight: GangWeight,
    ) -> std::result::Result<(), GangRefusal> {
        let id = self.state.set_weight(user, gang, weight)?;
        self.tell(Notice::Weight(id, weight));
        Ok(())
    }

    fn tell(&self, notice: Notice) {
        // the receiver lives until the daemon ends it, or notices that it has failed
        let _ = self.notices.send(notice);
        self.alarm.call();
    }

    fn save(&self) -> Result<()> {
        let gangs: Vec<&ServedGang> = self.state.gangs().map(|(_, gang)| gang).collect();
        let text = serde_json::to_vec(&gangs).map_err(|error| system("save the gangs")(error.into()))?;
        self.journal.keep_beside(&self.terms.saved, &text)
    }

    /// `called`: the beginning of its name, if the wish has none.
    fn add(
        &mut self,
        user: u32,
        wish: AddWish,
        called: Option<&GangName>,
    ) -> std::result::Result<GangId, GangRefusal> {
        let mut looked = adopt::look_at(&wish.target, &self.hierarchy)?;
        looked.found.name = called.cloned().unwrap_or(looked.found.name);
        let weight = wish.weight;
        let id = self.state.add(user, wish, &looked.found)?;
        let written = self.journal.entries();
        if let Err(error) = self.begin(id, looked, weight) {
            self.state.end(id);
            self.tended.remove(&id);
            let undone = self.journal.undo_since(written);
            let left = undone.map_or_else(|why| vec![why.to_string()], |done| done.left);
            let left: String = left.iter().map(|what| format!("; not undone: {what}")).collect();
            return Err(GangRefusal::new(GangRefusalKind::Host, format!("{error}{left}")));
        }
        self.looks.gang_came(now());
        Ok(id)
    }

    fn begin(&mut self, id: GangId, looked: LookedAt, weight: GangWeight) -> Result<()> {
        let leader = looked.process().map(|process| (process.number(), process.started()));
        let home = looked.take(&self.hierarchy, &mut self.journal)?;
        let (told, heard) = channel();
        let groups = GangGroups { control: home.group().clone(), cpu: None, pids: None };
        let name = self.state.get(id).map(|gang| String::from(gang.name.clone())).unwrap_or_default();
        self.tell(Notice::Joins(JoiningGang { id, name, weight, groups: Box::new(groups) }, told));
        heard.recv_timeout(PATIENCE).map_err(|_| silent())??;
        let meter = home.group().meter().ok().filter(|meter| meter.used_ns().is_ok());
        let groups = groups_below(home.group());
        let one = groups.iter().find_map(|group| group.processes().ok()?.first().copied());
        let may = one.and_then(|process| affinity::allowed(process).ok());
        let may = may.unwrap_or_else(|| self.whole.clone());
        let tended = Tended {
            quota: one.and_then(GangQuota::of),
            groups,
            leader: leader.and_then(|(number, started)| PinnedProcess::identified(number, started).ok()),
            threads: GangThreads::new(self.whole.clone()),
            everywhere: may == self.whole,
            count: 0,
            width: may.len(),
            worth: TurnsWorth::default(),
            used_before: meter.as_ref().and_then(|meter| meter.used_ns().ok()).unwrap_or(0),
            meter,
            home,
            slept: GangSleeps::default(),
            interval: None,
            keeps_to: None,
        };
        self.tended.insert(id, tended);
        self.divide_quotas();
        Ok(())
    }

    /// The gang is no gang any more; its processes are where they were before.
    fn release(&mut self, id: GangId) -> Result<()> {
        let (told, heard) = channel();
        self.tell(Notice::Released(id, told));
        heard.recv_timeout(PATIENCE).map_err(|_| silent())?;
        let Some(gang) = self.tended.get(&id) else { return Ok(()) };
        let threads = threads_in(&groups_below(gang.home.group()));
        let home = &gang.home;
        let done = self.journal.undo(|entry| match entry {
            UndoEntry::Affinity { thread, .. } => threads.contains(thread),
            entry => adopt::is_about(entry, home),
        })?;
        if let Some(left) = done.left.first() {
            return Err(Error::Host(format!("not all of it was put back: {left}; try again")));
        }
        self.tended.remove(&id);
        self.state.end(id);
        self.divide_quotas();
        Ok(())
    }

    /// Tells the scheduler what each gang may use, where that has changed.
    fn divide_quotas(&mut self) {
        let quotas = self.tended.iter().filter_map(|(id, gang)| Some((*id, gang.quota.clone()?))).collect();
        let mut parts = limits::parts(&quotas);
        let mut changed = Vec::new();
        for (id, gang) in &mut self.tended {
            let part = parts.remove(id);
            if std::mem::replace(&mut gang.keeps_to, part) != part {
                changed.push(Notice::Quota(*id, part));
            }
        }
        changed.into_iter().for_each(|notice| self.tell(notice));
    }

    /// Lets the slice follow the intervals of the gangs that take turns.
    fn keep_pace(&mut self) {
        if self.terms.pace == SlicePace::Fixed {
            return;
        }
        let turns = self.tended.values().filter(|gang| !gang.worth.rests());
        if let Some(slice) = pace::slice(self.terms.slice, turns.filter_map(|gang| gang.interval)) {
            self.set_slice(slice, SlicePace::Follows);
        }
    }

    /// What ends a wait early: processes that were named and end.
    pub(super) fn leaders(&self) -> impl Iterator<Item = &PinnedProcess> {
        self.tended.values().filter_map(|gang| gang.leader.as_ref())
    }

    /// When to look after the gangs, or to judge them; `None`: there are none.
    pub(super) fn next_look(&self) -> Option<Nanos> {
        (!self.tended.is_empty()).then_some(self.looks.next())
    }

    /// Looks after the gangs, or only judges them, if it is time. Fails if the scheduler's thread has failed.
    pub(super) fn tend(&mut self) -> Result<()> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            let outcome = self.thread.take().and_then(|thread| thread.join().ok());
            let why = outcome.and_then(|outcome| outcome.failure).unwrap_or_else(|| "it panicked".into());
            return Err(Error::Host(format!("scheduling ended: {why}")));
        }
        let used = usage::of_this_thread();
        let took = || Nanos::from(usage::of_this_thread().since(used).cpu);
        let ended = |gang: &mut Tended| {
            let ended = |leader: &PinnedProcess| leader.has_ended(Some(Duration::ZERO)).unwrap_or(true);
            gang.leader.take_if(|leader| ended(leader)).is_some()
        };
        let any_ended = self.tended.values_mut().map(ended).fold(false, |any, one| any | one);
        match self.looks.due(now()) {
            None if !any_ended => {}
            Some(GangLook::Judgement) if !any_ended => {
                let ids: Vec<GangId> = self.tended.keys().copied().collect();
                ids.into_iter().try_for_each(|id| self.judge(id))?;
                self.looks.judged(took(), now());
            }
            _ => {
                let changed = self.go_round()?;
                self.looks.went_round(took(), changed, now());
            }
        }
        Ok(())
    }

    /// Looks at all gangs. Answers whether threads of one have changed.
    fn go_round(&mut self) -> Result<bool> {
        self.rounds += 1;
        let ids: Vec<GangId> = self.tended.keys().copied().collect();
        let mut changed = false;
        for id in ids {
            changed |= self.look_after(id)?;
        }
        self.divide_quotas();
        self.keep_pace();
        self.journal.compact()?;
        Ok(changed)
    }

    /// Looks at one gang. Answers whether its threads have changed.
    fn look_after(&mut self, id: GangId) -> Result<bool> {
        let walk = self.rounds.is_multiple_of(ROUNDS_A_WALK);
        let Some(gang) = self.tended.get_mut(&id) else { return Ok(false) };
        if walk {
            gang.groups = groups_below(gang.home.group());
            let one = gang.groups.iter().find_map(|group| group.processes().ok()?.first().copied());
            gang.quota = one.and_then(GangQuota::of);
        }
        let count = threads_in(&gang.groups).len();
        let changed = std::mem::replace(&mut gang.count, count) != count;
        if count == 0 && adopt::is_over(&gang.home) {
            self.release(id)?;
            self.save()?;
            return Ok(false);
        }
        if !gang.everywhere {
            return self.judge(id).map(|()| changed);
        }
        if let Some(width) = gang.threads.measure(&gang.groups) {
            gang.width = width;
            let _ = self.notices.send(Notice::Width(id, width));
            self.alarm.call();
        }
        if !gang.worth.rests()
            && let Some(line) = self.board.line(id, now())
        {
            if self.terms.spread {
                gang.threads.place(&gang.groups, &line.cores, &mut self.journal)?;
            }
            if self.terms.pace == SlicePace::Follows {
                let slept = GangSleeps { threads: gang.threads.slept(&gang.groups), turns: line.turns };
                gang.interval = slept.interval(std::mem::replace(&mut gang.slept, slept));
            }
        }
        self.judge(id).map(|()| changed)
    }

    /// Lets a gang rest that blocks, and wakes one that does not any more.
    fn judge(&mut self, id: GangId) -> Result<()> {
        let at = now();
        let Some(gang) = self.tended.get_mut(&id) else { return Ok(()) };
        let Some(used) = gang.meter.as_ref().and_then(|meter| meter.used_ns().ok()) else { return Ok(()) };
        let had = self.board.line(id, at).map_or(Nanos::ZERO, |line| line.had);
        let might = if gang.worth.rests() { at } else { had };
        let times = GangTimes { might, used: Nanos(used), pressed: pressed(gang.home.group()) };
        match gang.worth.look(times, gang.width.min(self.whole.len())) {
            Some(TurnsVerdict::Wake) => self.tell(Notice::Wakes(id)),
            Some(TurnsVerdict::Rest) => {
                // it runs beside others now, and Linux finds its threads cores that are free
                let threads = threads_in(&gang.groups);
                gang.threads = GangThreads::new(self.whole.clone());
                self.journal.undo(
                    |entry| matches!(entry, UndoEntry::Affinity { thread, .. } if threads.contains(thread)),
                )?;
                self.tell(Notice::Rests(id));
            }
            None => {}
        }
        Ok(())
    }

    /// The rules' part in the gangs.
    pub(super) fn obey(&mut self) -> RuledGangs<'_> {
        self.dismissed.get_or_insert_default();
        RuledGangs(self)
    }

    fn view(&self) -> ServiceView {
        let at = now();
        let gangs = self.state.gangs().filter_map(|(id, gang)| {
            let tended = self.tended.get(&id)?;
            let line = self.board.line(id, at).unwrap_or_default();
            let used = tended.meter.as_ref().and_then(|meter| meter.used_ns().ok());
            let state = match (tended.worth.rests(), line.runs) {
                (true, _) => GangState::Resting,
                (_, true) => GangState::Running,
                _ => GangState::Waiting,
            };
            Some(GangView {
                name: gang.name.clone(),
                target: gang.target.clone(),
                user: gang.user,
                weight: gang.weight,
                state,
                width: tended.width.min(self.whole.len()),
                threads: threads_in(&tended.groups).len(),
                turns: line.turns,
                had_s: line.had.0 as f64 / 1e9,
                cpu_s: used.map(|used| used.saturating_sub(tended.used_before) as f64 / 1e9),
            })
        });
        ServiceView {
            process: std::process::id(),
            slice_ms: self.terms.slice.as_secs_f64() * 1e3,
            cores: self.whole.len(),
            switches: self.board.switches(),
            gangs: gangs.collect(),
        }
    }

    /// Ends the scheduler's thread, which lets everybody run. Answers what the trace lacks.
    pub(super) fn finish(mut self) -> Vec<String> {
        self.tell(Notice::Finish);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // what it left is in the journal
        }
        self.trace.map(TraceWriter::finish).unwrap_or_default()
    }
}

/// The gangs as the keeper of the rules changes them, on behalf of root.
pub(super) struct RuledGangs<'a>(&'a mut GangDaemon);

impl RuledGangs<'_> {
    pub(super) fn hierarchy(&self) -> &CgroupHierarchy {
        &self.0.hierarchy
    }

    pub(super) fn of_target(&self, target: &GangTarget) -> Option<(GangId, u32)> {
        self.0.state.gangs().find(|(_, gang)| gang.target == *target).map(|(id, gang)| (id, gang.user))
    }

    pub(super) fn is_dismissed(&self, target: &GangTarget) -> bool {
        self.0.dismissed.as_ref().is_some_and(|dismissed| dismissed.contains(target))
    }

    /// Forgets what clients have removed, but for these.
    pub(super) fn forget_dismissed(&mut self, keep: impl Fn(&GangTarget) -> bool) {
        if let Some(dismissed) = &mut self.0.dismissed {
            dismissed.retain(keep);
        }
    }

    pub(super) fn add(
        &mut self,
        wish: AddWish,
        called: Option<&GangName>,
    ) -> std::result::Result<GangId, GangRefusal> {
        let id = self.0.add(ROOT, wish, called)?;
        self.0.save().map_err(refused)?;
        Ok(id)
    }

    pub(super) fn weigh(&mut self, id: GangId, weight: GangWeight) -> std::result::Result<(), GangRefusal> {
        let Some(name) = self.0.state.get(id).map(|gang| gang.name.clone()) else { return Ok(()) };
        self.0.set_weight(ROOT, &name, weight)?;
        self.0.save().map_err(refused)
    }

    pub(super) fn release(&mut self, id: GangId) -> Result<()> {
        self.0.release(id)?;
        self.0.save()
    }

    pub(super) fn set_slice(&mut self, slice: Duration) {
        self.0.set_slice(slice, SlicePace::Fixed);
    }
}

fn refused(error: Error) -> GangRefusal {
    GangRefusal::new(GangRefusalKind::Host, error.to_string())
}

fn silent() -> Error {
    Error::Host("the scheduler's thread does not answer; look at the daemon's messages".into())
}
