//! Makes gangs of the processes and the control groups that the rules name, as these appear.
//!
//! ```text
//!   file --(changed, or SIGHUP)--> rules --(periodic scan of the host)--> gangs of root
//! ```
//! An invalid or unreadable file changes nothing: the earlier rules stay in force. When other rules are read,
//! gangs that no rule names any more are released, unless the named process has ended. A gang that a client
//! has removed stays removed until the rules are read again.
//!
//! An editor may empty the file before it writes it: a change counts once the file has not been written for a
//! moment (`SETTLED`), or at a SIGHUP. Otherwise each edit would release all gangs, and make them again.
//!
//! Cost: a check of the file in each round of the daemon; and scans, at about 30 us for each process of the
//! machine, at intervals at which they take at most a two-thousandth of a core.

use super::daemon::{GangDaemon, RuledGangs};
use super::request::{GangRefusalKind, GangTarget};
use super::rules::{GangRules, NamePattern, RuleFits};
use super::scan_times;
use super::state::{AddRequest, RequestSource};
use crate::error::{Error, Result};
use crate::gang::{GangId, GangWeight};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, SystemTime, UNIX_EPOCH};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process_stat::ProcessStat;
use unisono_linux::read::{self, HAND_WRITTEN};
use unisono_linux::usage;

/// Maximum number of groups that become gangs: the daemon has places for fewer.
const MAX_GROUPS: usize = 1000;
/// Maximum number of ancestors of a process: a longer chain is an error of `/proc`.
const MAX_ANCESTORS: usize = 1000;
/// The time without a change after which a file counts as complete: an editor takes milliseconds between
/// emptying and writing it.
const SETTLED: Duration = Duration::from_millis(500);

/// The path of the rules file, and the function that finds users.
#[derive(Clone, Debug)]
pub struct RulesFile {
    pub path: PathBuf,
    /// Returns the number of a user of this host, by name.
    pub user: fn(&str) -> Option<u32>,
}

/// Identifies a version of a file: device, inode number, length, time of the last change.
type RulesStamp = (u64, u64, u64, (i64, i64));

/// Whether to read the file even if it has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadAgain {
    IfChanged,
    Now,
}

pub(super) struct RuleKeeper {
    file: RulesFile,
    stamp: Option<RulesStamp>,
    rules: GangRules,
    /// The gangs made by rules, with the weight that the rule states.
    own: BTreeMap<GangId, (GangTarget, GangWeight)>,
    /// Targets that could not be made gangs and have been reported to the user.
    refused: BTreeSet<GangTarget>,
    /// Targets without a place; they are tried again after a gang has ended.
    without_place: BTreeSet<GangTarget>,
    next: Instant,
    /// When to check a recently written file again.
    settles: Option<Instant>,
}

impl RuleKeeper {
    /// Reads the rules. A missing file has no rules; the second value reports it. Fails if the file is
    /// invalid.
    pub(super) fn open(file: RulesFile) -> Result<(RuleKeeper, Option<String>)> {
        let stamp = stamp_of(&file.path);
        let (rules, missing) = match (&stamp, read(&file)) {
            (_, Ok(rules)) => (rules, None),
            (None, Err(_)) => {
                let text = format!("{} is not there, so there are no rules until it is", file.path.display());
                (GangRules::default(), Some(text))
            }
            (Some(_), Err(why)) => return Err(Error::Input(why)),
        };
        let (own, refused, without_place) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let (next, settles) = (clock::now(), None);
        let keeper = RuleKeeper { file, stamp, rules, own, refused, without_place, next, settles };
        Ok((keeper, missing))
    }

    /// Returns the initial slice from the rules, if any.
    pub(super) fn slice(&self) -> Option<Duration> {
        self.rules.slice
    }

    /// Returns the time of the next scan.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.has_rules().then_some(self.next), self.settles].into_iter().flatten().min()
    }

    fn has_rules(&self) -> bool {
        !self.rules.rules.is_empty()
    }

    /// Reads the file if it has changed, and makes gangs of new targets, if a scan is due. Returns messages
    /// for the user.
    pub(super) fn tend(&mut self, daemon: &mut GangDaemon, again: ReadAgain) -> Vec<String> {
        let mut messages = Vec::new();
        let mut gangs = daemon.obey();
        self.record_outcomes(&mut gangs, &mut messages);
        let stamp = stamp_of(&self.file.path);
        let mut other_rules = false;
        let has_settled = stamp.is_none_or(|(.., changed)| has_settled(changed));
        let is_new = stamp != self.stamp;
        self.settles = (is_new && !has_settled).then(|| clock::now() + SETTLED);
        if again == ReadAgain::Now || (is_new && has_settled) {
            self.stamp = stamp;
            match read(&self.file) {
                Ok(rules) => {
                    if let Some(slice) = rules.slice {
                        gangs.set_slice(slice);
                    }
                    self.rules = rules;
                    other_rules = true;
                    self.refused.clear();
                    gangs.forget_dismissed(|_| false);
                }
                Err(why) => messages.push(format!("{why}; the rules that were read before hold on")),
            }
        }
        if other_rules || (self.has_rules() && clock::now() >= self.next) {
            let used = usage::of_this_thread();
            self.apply_rules(&mut gangs, other_rules, &mut messages);
            let took = Duration::from(usage::of_this_thread().since(used).cpu);
            self.next = clock::now() + scan_times::scan_interval(took);
        }
        messages
    }

    fn apply_rules(&mut self, gangs: &mut RuledGangs<'_>, other_rules: bool, messages: &mut Vec<String>) {
        let found = self.found(gangs);
        self.refused.retain(|target| found.contains_key(target));
        gangs.forget_dismissed(|target| found.contains_key(target));
        self.record_outcomes(gangs, messages);
        let before = self.own.len();
        self.own.retain(|id, (target, _)| gangs.of_target(target).is_some_and(|(now, _)| now == *id));
        if self.own.len() < before || other_rules {
            self.without_place.clear();
        }
        self.without_place.retain(|target| found.contains_key(target));
        if other_rules {
            let gone =
                self.own.iter().filter(|(_, (target, _))| !found.contains_key(target) && is_there(target));
            let gone: Vec<GangId> = gone.map(|(id, _)| *id).collect();
            for id in gone {
                self.own.remove(&id);
                gangs.release(id);
            }
        }
        for (target, rule) in found {
            let rule = &self.rules.rules[rule];
            match gangs.of_target(&target) {
                Some((id, user)) => {
                    let before = self.own.get(&id).map(|(_, weight)| *weight);
                    // a gang that root has added, or that a killed daemon had, belongs to the rule from now
                    // on
                    if user == 0 && before != Some(rule.weight) {
                        if let Err(refusal) = gangs.weigh(id, rule.weight) {
                            messages.push(refusal.to_string());
                        }
                        self.own.insert(id, (target, rule.weight));
                    }
                }
                None if gangs.is_dismissed(&target) || self.refused.contains(&target) => {}
                None if gangs.is_begun(&target) || self.without_place.contains(&target) => {}
                None => {
                    let request =
                        AddRequest { target, name: None, weight: rule.weight, by: RequestSource::Rule };
                    gangs.add(request, rule.name.as_ref());
                }
            }
        }
    }

    /// Records the outcomes of earlier requests.
    fn record_outcomes(&mut self, gangs: &mut RuledGangs<'_>, messages: &mut Vec<String>) {
        for (target, weight, outcome) in gangs.outcomes() {
            match outcome {
                Ok(id) => {
                    self.own.insert(id, (target, weight));
                }
                Err(refusal) if refusal.kind == GangRefusalKind::TooMany => {
                    if self.without_place.is_empty() {
                        messages.push(format!("by a rule, but not made a gang: {refusal}"));
                    }
                    self.without_place.insert(target);
                }
                Err(refusal) => {
                    // no message about a part of another gang, which is intended, or about a target that has
                    // ended
                    if refusal.kind != GangRefusalKind::InUse && is_there(&target) {
                        messages.push(format!("by a rule, but not made a gang: {refusal}"));
                    }
                    self.refused.insert(target);
                }
            }
        }
    }

    /// Returns the targets on this host that rules name, each with the index of its rule.
    fn found(&self, gangs: &RuledGangs<'_>) -> BTreeMap<GangTarget, usize> {
        let mut found = BTreeMap::new();
        for (place, rule) in self.rules.rules.iter().enumerate() {
            if let RuleFits::Groups(path) = &rule.fits {
                for path in gangs.hierarchies().flat_map(|hierarchy| groups_like(&hierarchy.root, path)) {
                    found.entry(GangTarget::Group { path }).or_insert(place);
                }
            }
        }
        if self.rules.name_programs() {
            found.extend(processes(&self.rules));
        }
        found
    }
}

fn read(file: &RulesFile) -> std::result::Result<GangRules, String> {
    let place = file.path.display();
    let text = read::text(&file.path, HAND_WRITTEN).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{place} is not there any more"),
        _ => format!("cannot read {place}: {error}"),
    })?;
    GangRules::parse(&text, &file.user).map_err(|error| format!("{place}:{error}"))
}

fn stamp_of(path: &Path) -> Option<RulesStamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.len(), (file.mtime(), file.mtime_nsec())))
}

/// Returns whether the last change is at least `SETTLED` ago. A time in the future is invalid, and counts as
/// settled.
fn has_settled((seconds, nanos): (i64, i64)) -> bool {
    let changed =
        UNIX_EPOCH + StdDuration::new(seconds.try_into().unwrap_or(0), nanos.try_into().unwrap_or(0));
    SystemTime::now().duration_since(changed).map_or(true, |ago| Duration::from(ago) >= SETTLED)
}

fn is_there(target: &GangTarget) -> bool {
    match target {
        GangTarget::Process { number, started } => {
            ProcessStat::read(number).is_some_and(|stat| stat.started == *started && !stat.has_ended())
        }
        GangTarget::Group { path } => path.exists(),
    }
}

/// Returns the directories below `root` whose names match the patterns, level by level.
fn groups_like(root: &Path, path: &[NamePattern]) -> Vec<PathBuf> {
    let mut level = vec![root.to_owned()];
    for pattern in path {
        let entries = level.iter().flat_map(fs::read_dir).flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let fits =
            directories.filter(|entry| entry.file_name().to_str().is_some_and(|name| pattern.fits(name)));
        level = fits.map(|entry| entry.path()).take(MAX_GROUPS).collect();
    }
    level
}

/// Returns the processes that a rule names, without their descendants.
fn processes(rules: &GangRules) -> Vec<(GangTarget, usize)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let listed = numbers.filter_map(|number| {
        let process = PinnedProcess::now(number).ok()?;
        let stat = process.stat().ok().filter(|stat| stat.started == process.started())?;
        // a thread of the kernel has no executable
        let file = process.executable().ok()?;
        let name = file.file_name()?.to_string_lossy().into_owned();
        let owner = process.owner().ok()?;
        let rule = rules.of_process(name.strip_suffix(" (deleted)").unwrap_or(&name), owner);
        Some((number, (stat, rule)))
    });
    let all: BTreeMap<u32, (ProcessStat, Option<usize>)> = listed.collect();
    let is_inside = |stat: &ProcessStat| {
        let mut parent = stat.parent;
        for _ in 0..MAX_ANCESTORS {
            match u32::try_from(parent).ok().and_then(|parent| all.get(&parent)) {
                Some((_, Some(_))) => return true,
                Some((stat, None)) => parent = stat.parent,
                None => return false,
            }
        }
        true
    };
    let first = all.iter().filter_map(|(number, (stat, rule))| {
        let rule = rule.filter(|_| !is_inside(stat))?;
        Some((GangTarget::Process { number: *number, started: stat.started }, rule))
    });
    first.collect()
}
