//! The gangs of the daemon: adding, scanning in rounds, and removing them.

use super::adopt::{self, GangHome, groups_below, threads_in};
use super::job_queue::{Jobs, ReplyTicket, RuleOutcome};
use super::limits::GangQuota;
use super::own_time::OwnTime;
use super::pace::GangSleeps;
use super::request::{
    GangName, GangState, GangTarget, GangView, ServiceReply, ServiceRequest, ServiceResult, ServiceView,
    refused, slice_of, weight_of,
};
use super::scan_times::ScanTimes;
use super::state::{AddRequest, ROOT, RequestSource, ServedGang, ServiceState};
use crate::cgroups;
use crate::error::{Result, system};
use crate::gang::{GangId, GangWeight};
use crate::host::resting::Resting;
use crate::host::scheduler::{GangScheduler, Notice, SchedulerOutcome, TurnsBy};
use crate::host::threads::GangThreads;
use crate::host::trace::TraceWriter;
use crate::host::turn_status::TurnStatus;
use crate::host::worth::TurnsWorth;
use crate::journal::GangJournal;
use crate::mechanism::Freeze;
use crate::policy::{Backfill, Rotation};
use crate::turn_quota::TurnQuota;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::cgroup::{CgroupHierarchy, ControlGroup, GroupMeter, hierarchies};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::timer::Sleeper;
use unisono_linux::usage;

/// Maximum number of different warnings remembered as reported; then all are forgotten, and each may be
/// reported again.
const MAX_WARNINGS: usize = 100;

/// Returns the name of the state file beside the journals, from which a daemon at the same socket takes the
/// gangs over after a kill.
pub(super) fn saved_name(socket: &Path) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let socket: String = socket.to_string_lossy().chars().map(letter).collect();
    format!("daemon{socket}.state")
}

/// How the length of a slice is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlicePace {
    /// The slice follows the intervals of the gangs.
    Follows,
    /// The user has set the slice.
    Fixed,
}

/// Properties of the host and options of the user.
pub(super) struct Terms {
    pub(super) slice: Duration,
    pub(super) pace: SlicePace,
    pub(super) turns_by: TurnsBy,
    pub(super) spread: bool,
    /// The name of the file with the gangs to take over after a kill.
    pub(super) saved: String,
}

/// A gang, as the main loop keeps track of it.
pub(super) struct ManagedGang {
    pub(super) home: GangHome,
    pub(super) groups: Vec<ControlGroup>,
    /// The target process; `None`: the target is a group, or the process has ended.
    pub(super) leader: Option<PinnedProcess>,
    pub(super) threads: GangThreads,
    /// Whether the gang's processes may use all of the daemon's cores. If not, the daemon leaves their
    /// affinities alone.
    pub(super) everywhere: bool,
    pub(super) count: usize,
    pub(super) width: usize,
    pub(super) worth: TurnsWorth,
    pub(super) meter: Option<GroupMeter>,
    pub(super) used_before: u64,
    pub(super) slept: GangSleeps,
    pub(super) interval: Option<Duration>,
    pub(super) quota: Option<GangQuota>,
    /// The quota that the gang's turns enforce.
    pub(super) keeps_to: Option<TurnQuota>,
}

pub(super) struct GangDaemon {
    pub(super) terms: Terms,
    pub(super) hierarchy: CgroupHierarchy,
    /// The version 1 freezer, if `hierarchy` is version 2: the groups of container engines may be there.
    pub(super) freezer: Option<CgroupHierarchy>,
    pub(super) all_cpus: CpuSet,
    pub(super) state: ServiceState,
    pub(super) journal: GangJournal,
    pub(super) turn_status: Arc<TurnStatus>,
    pub(super) notices: Sender<Notice>,
    pub(super) alarm: Sleeper,
    pub(super) thread: Option<JoinHandle<SchedulerOutcome>>,
    pub(super) trace: Option<TraceWriter>,
    pub(super) managed: BTreeMap<GangId, ManagedGang>,
    pub(super) scan_times: ScanTimes,
    pub(super) rounds: u64,
    pub(super) own_time: OwnTime,
    pub(super) jobs: Jobs,
    /// Warnings that the user has not got yet.
    pub(super) warnings: Vec<String>,
    pub(super) said: BTreeSet<String>,
    /// Targets whose gangs clients have removed, so that no rule makes them gangs again; `None`: there are no
    /// rules.
    pub(super) dismissed: Option<BTreeSet<GangTarget>>,
}

impl GangDaemon {
    /// Starts the scheduler's thread, still without gangs. The turns of later gangs are written into `trace`.
    pub(super) fn start(terms: Terms, journal: GangJournal, trace: Option<File>) -> Result<GangDaemon> {
        let all = hierarchies()?;
        let hierarchy = cgroups::freezing(&all)?.clone();
        let freezer = adopt::freezer_beside(&all, &hierarchy);
        let all_cpus = affinity::allowed(Tid::SELF).map_err(system("read which processors may be used"))?;
        let alarm = Sleeper::new().map_err(system("make an alarm"))?;
        let turn_status = Arc::new(TurnStatus::default());
        let (notices, inbox) = channel();
        let slice = terms.slice;
        let start = |file| TraceWriter::start(file, BTreeMap::new(), all_cpus.iter().collect());
        let (trace, tracer) = trace.map(start).transpose()?.unzip();
        let scheduler = GangScheduler {
            rotation: Rotation::new(all_cpus.len(), slice, Backfill::Never),
            turns_by: terms.turns_by,
            mechanism: Box::new(Freeze::empty()),
            controls: BTreeMap::new(),
            cpus: all_cpus.iter().collect(),
            watcher: None,
            notices: inbox,
            alarm: alarm.clone(),
            turn_status: Arc::clone(&turn_status),
            gangs: Vec::new(),
            tracer,
            // the daemon decides by processor time alone
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
            freezer,
            all_cpus,
            state: ServiceState::default(),
            journal,
            turn_status,
            notices,
            alarm,
            thread,
            trace,
            managed: BTreeMap::new(),
            scan_times: ScanTimes::new(clock::now()),
            rounds: 0,
            own_time: OwnTime::new(clock::now(), switching_time()),
            jobs: Jobs::default(),
            warnings: Vec::new(),
            said: BTreeSet::new(),
            dismissed: None,
        })
    }

    /// Takes over the gangs of a killed daemon. A gang that cannot be taken over causes a warning.
    pub(super) fn take_over(&mut self, saved: &str) {
        let gangs: Vec<ServedGang> = serde_json::from_str(saved).unwrap_or_default();
        for gang in gangs {
            let Ok(weight) = weight_of(gang.weight) else { continue };
            let name = gang.name.clone();
            let request =
                AddRequest { target: gang.target, name: Some(gang.name), weight, by: RequestSource::Client };
            self.begin_again(gang.user, request, &name);
        }
        self.work_to_the_end();
    }

    /// Carries a request out. `None`: the request takes longer, and [`GangDaemon::replies`] answers it.
    pub(super) fn answer(
        &mut self,
        user: u32,
        request: ServiceRequest,
        client: ReplyTicket,
    ) -> Option<ServiceReply> {
        self.carry_out(user, request, client).unwrap_or_else(|refusal| Some(ServiceReply::Refused(refusal)))
    }

    fn carry_out(
        &mut self,
        user: u32,
        request: ServiceRequest,
        client: ReplyTicket,
    ) -> ServiceResult<Option<ServiceReply>> {
        match request {
            ServiceRequest::List {} => return Ok(Some(ServiceReply::Gangs(self.view()))),
            ServiceRequest::Add { target, name, weight } => {
                let request =
                    AddRequest { target, name, weight: weight_of(weight)?, by: RequestSource::Client };
                self.begin_add(user, request, client);
                return Ok(None);
            }
            ServiceRequest::Remove { gang } => {
                let id = self.state.removable(user, &gang)?;
                let target = self.state.get(id).map(|gang| gang.target.clone());
                if let Some(dismissed) = &mut self.dismissed {
                    dismissed.extend(target);
                }
                self.begin_release(user, id, Some(client));
                return Ok(None);
            }
            ServiceRequest::Weight { gang, weight } => {
                let weight = weight_of(weight)?;
                self.set_weight(user, &gang, weight)?;
                self.save().map_err(refused)?;
            }
            ServiceRequest::Slice { milliseconds } => {
                ServiceState::may_set_slice(user)?;
                self.set_slice(slice_of(milliseconds)?, SlicePace::Fixed);
            }
        }
        Ok(Some(ServiceReply::Done {}))
    }

    pub(super) fn set_slice(&mut self, slice: Duration, pace: SlicePace) {
        (self.terms.slice, self.terms.pace) = (slice, pace);
        self.notify(Notice::Slice(slice));
    }

    fn set_weight(&mut self, user: u32, gang: &GangName, weight: GangWeight) -> ServiceResult<()> {
        let id = self.state.set_weight(user, gang, weight)?;
        self.notify(Notice::Weight(id, weight));
        Ok(())
    }

    /// Adds a warning for the user; an equal warning is reported only once.
    pub(super) fn warn(&mut self, text: String) {
        if self.said.len() >= MAX_WARNINGS {
            self.said.clear();
        }
        if self.said.insert(text.clone()) {
            self.warnings.push(text);
        }
    }

    /// Removes and returns the warnings that the user has not got yet.
    pub(super) fn warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    pub(super) fn notify(&self, notice: Notice) {
        // the receiver lives until the daemon ends its thread, or notices that the thread has failed
        let _ = self.notices.send(notice);
        self.alarm.call();
    }

    pub(super) fn save(&self) -> Result<()> {
        let gangs: Vec<&ServedGang> = self.state.gangs().map(|(_, gang)| gang).collect();
        let text = serde_json::to_vec(&gangs).map_err(|error| system("save the gangs")(error.into()))?;
        self.journal.keep_beside(&self.terms.saved, &text)
    }

    /// Adds a gang that takes turns to the gangs that the main loop scans and judges.
    pub(super) fn tend_to(&mut self, id: GangId, home: GangHome, leader: Option<PinnedProcess>) {
        let meter = home.group().meter().ok().filter(|meter| meter.used_ns().is_ok());
        let groups = groups_below(home.group());
        let one = groups.iter().find_map(|group| group.processes().ok()?.first().copied());
        let may = one.and_then(|process| affinity::allowed(process).ok());
        let may = may.unwrap_or_else(|| self.all_cpus.clone());
        let managed = ManagedGang {
            quota: one.and_then(GangQuota::for_process),
            groups,
            leader,
            threads: GangThreads::new(self.all_cpus.clone()),
            everywhere: may == self.all_cpus,
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
        self.managed.insert(id, managed);
        self.divide_quotas();
        self.scan_times.gang_came(clock::now());
    }

    /// Returns the target processes; the end of any of them ends a wait of the main loop early.
    pub(super) fn leaders(&self) -> impl Iterator<Item = &PinnedProcess> {
        self.managed.values().filter_map(|gang| gang.leader.as_ref())
    }

    /// Returns the time of the next scan or judgement of the gangs; `None`: there are no gangs.
    pub(super) fn next_scan(&self) -> Option<Instant> {
        (!self.managed.is_empty()).then_some(self.scan_times.next())
    }

    /// Gives the rules access to the gangs.
    pub(super) fn obey(&mut self) -> RuledGangs<'_> {
        self.dismissed.get_or_insert_default();
        RuledGangs(self)
    }

    fn view(&self) -> ServiceView {
        let at = clock::now();
        let gangs = self.state.gangs().filter_map(|(id, gang)| {
            let managed = self.managed.get(&id)?;
            let line = self.turn_status.of_gang(id, at).unwrap_or_default();
            let used = managed.meter.as_ref().and_then(|meter| meter.used_ns().ok());
            let state = match (managed.worth.rests(), line.runs) {
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
                width: managed.width.min(self.all_cpus.len()),
                threads: threads_in(&managed.groups).len(),
                turns: line.turns,
                had_s: line.had.as_secs_f64(),
                cpu_s: used.map(|used| used.saturating_sub(managed.used_before) as f64 / 1e9),
            })
        });
        ServiceView {
            process: std::process::id(),
            slice_ms: self.terms.slice.as_secs_f64() * 1e3,
            cores: self.all_cpus.len(),
            switches: self.turn_status.switches(),
            switching_percent: self.own_time.share() * 100.0,
            lengthened: self.own_time.factor(),
            gangs: gangs.collect(),
        }
    }

    /// Ends the scheduler's thread, which releases all gangs. Returns messages about missing parts of the
    /// trace.
    pub(super) fn finish(mut self) -> Vec<String> {
        self.notify(Notice::Finish);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // what it left is in the journal
        }
        self.trace.map(TraceWriter::finish).unwrap_or_default()
    }
}

/// The changes to gangs that the keeper of the rules may make, on behalf of root.
pub(super) struct RuledGangs<'a>(&'a mut GangDaemon);

impl RuledGangs<'_> {
    /// Returns the hierarchies whose groups can be gangs.
    pub(super) fn hierarchies(&self) -> impl Iterator<Item = &CgroupHierarchy> {
        std::iter::once(&self.0.hierarchy).chain(&self.0.freezer)
    }

    pub(super) fn of_target(&self, target: &GangTarget) -> Option<(GangId, u32)> {
        self.0.state.gangs().find(|(_, gang)| gang.target == *target).map(|(id, gang)| (id, gang.user))
    }

    pub(super) fn is_dismissed(&self, target: &GangTarget) -> bool {
        self.0.dismissed.as_ref().is_some_and(|dismissed| dismissed.contains(target))
    }

    /// Forgets the gangs that clients have removed, except the targets that `keep` selects.
    pub(super) fn forget_dismissed(&mut self, keep: impl Fn(&GangTarget) -> bool) {
        if let Some(dismissed) = &mut self.0.dismissed {
            dismissed.retain(keep);
        }
    }

    /// Starts to add a gang; the outcome is in [`RuledGangs::outcomes`].
    pub(super) fn add(&mut self, request: AddRequest, called: Option<&GangName>) {
        self.0.begin_rule(request, called.cloned());
    }

    pub(super) fn outcomes(&mut self) -> Vec<RuleOutcome> {
        self.0.rule_outcomes()
    }

    /// Returns whether the target is being made a gang.
    pub(super) fn is_begun(&self, target: &GangTarget) -> bool {
        self.0.jobs.has_rule(target)
    }

    pub(super) fn weigh(&mut self, id: GangId, weight: GangWeight) -> ServiceResult<()> {
        let Some(name) = self.0.state.get(id).map(|gang| gang.name.clone()) else { return Ok(()) };
        self.0.set_weight(ROOT, &name, weight)?;
        self.0.save().map_err(refused)
    }

    pub(super) fn release(&mut self, id: GangId) {
        if !self.0.jobs.is_leaving(id) {
            self.0.begin_release(ROOT, id, None);
        }
    }

    pub(super) fn set_slice(&mut self, slice: Duration) {
        self.0.set_slice(slice, SlicePace::Fixed);
    }
}

/// Returns the processor time of all threads of this process except the calling one.
pub(super) fn switching_time() -> Duration {
    usage::of_this_process().cpu.saturating_sub(usage::of_this_thread().cpu).into()
}
