//! Adding and removing gangs in pieces, between which the daemon answers other clients.
//!
//! ```text
//!   add      Scans --> Moves --> Joins --> a gang          remove   Releases --> Empties --> an answer
//!              |         |         |
//!           refused   Empties   Empties --> refused
//! ```
//! A program may have thousands of processes, and each takes 10 to 30 us. So a turn of the daemon's loop
//! works for at most [`BUDGET`], for one user after the other, and then serves clients and signals. A user's
//! requests are carried out one after the other. If a gang's processes cannot be moved back within
//! [`EMPTY_TIMEOUT`], the daemon warns, and the gang's entries stay in the journal.

use super::adopt::{self, GangHome, HomeComing, TargetScan, groups_below, threads_in};
use super::daemon::GangDaemon;
use super::job_queue::{AnswerTo, GangJob, JobStage, ReplyTicket, RuleOutcome};
use super::request::{GangName, GangRefusal, GangRefusalKind, ServiceReply, refused};
use super::state::{AddRequest, RequestSource};
use crate::cgroups::GangGroups;
use crate::error::Error;
use crate::gang::{GangId, GangOwner, GangWeight};
use crate::host::scheduler::{JoiningGang, Notice};
use crate::journal::{UndoEntry, move_out};
use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{TryRecvError, channel};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::pinned::PinnedProcess;

/// Maximum work in a turn of the loop. A request for the list of gangs waits for at most this time, and one
/// piece of work more.
const BUDGET: Duration = Duration::from_millis(2);
/// Time to wait before the next check of work that waits for other work.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Time limit for an answer of the scheduler's thread, which answers between two switches, within
/// milliseconds.
const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for emptying a home: processes that end or fork meanwhile delay it.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(2);

/// The outcome of a piece of work.
enum JobStep {
    /// There is more to do at once.
    More(JobStage),
    /// Other processes or threads have to act first.
    Waits(JobStage),
    Added(GangId),
    Done,
    Refused(GangRefusal),
}

impl GangDaemon {
    /// Starts to add the target of a client's request.
    pub(super) fn begin_add(&mut self, user: u32, request: AddRequest, client: ReplyTicket) {
        self.add_for(user, request, None, AnswerTo::Client(client));
    }

    /// Starts to add the target of a rule, for root.
    pub(super) fn begin_rule(&mut self, request: AddRequest, called: Option<GangName>) {
        let answer_to = AnswerTo::Rule(request.target.clone(), request.weight);
        self.add_for(super::state::ROOT, request, called, answer_to);
    }

    /// Starts to take over a gang of a killed daemon.
    pub(super) fn begin_again(&mut self, user: u32, request: AddRequest, name: &GangName) {
        let says = format!("the gang {name} was not taken over");
        self.add_for(user, request, None, AnswerTo::Nobody(says));
    }

    fn add_for(&mut self, user: u32, request: AddRequest, called: Option<GangName>, answer_to: AnswerTo) {
        match TargetScan::begin(&request.target, &self.hierarchy, self.freezer.as_ref()) {
            Ok(scan) => {
                self.jobs.push(
                    queue_of(request.by, user),
                    answer_to,
                    JobStage::Scans { scan: Box::new(scan), request, called, user },
                );
            }
            Err(refusal) => self.conclude(answer_to, JobStep::Refused(refusal)),
        }
    }

    /// Starts to release a gang, for a client or because it has ended.
    pub(super) fn begin_release(&mut self, user: u32, id: GangId, client: Option<ReplyTicket>) {
        let (reply, released) = channel();
        self.notify(Notice::Released(id, reply));
        self.jobs.leaving.insert(id);
        let until = clock::now() + SCHEDULER_TIMEOUT;
        let name =
            self.state.get(id).map_or_else(|| id.to_string(), |gang| format!("the gang {}", gang.name));
        let answer_to = client.map_or(AnswerTo::Nobody(name), AnswerTo::Client);
        self.jobs.push(user, answer_to, JobStage::Releases { id, released, until });
    }

    /// Returns the time of the next work; `None`: there is no work.
    pub(super) fn next_work(&self) -> Option<Instant> {
        let next = if self.jobs.waits { clock::now() + CHECK_INTERVAL } else { Instant::ZERO };
        (!self.jobs.is_empty()).then_some(next)
    }

    /// Returns the replies for clients that wait for them.
    pub(super) fn replies(&mut self) -> Vec<(ReplyTicket, ServiceReply)> {
        std::mem::take(&mut self.jobs.replies)
    }

    /// Returns the outcomes of rules' requests.
    pub(super) fn rule_outcomes(&mut self) -> Vec<RuleOutcome> {
        std::mem::take(&mut self.jobs.ruled)
    }

    /// Works until no work is left; called before the first client is answered.
    pub(super) fn work_to_the_end(&mut self) {
        while !self.jobs.is_empty() {
            if self.jobs.waits {
                std::thread::sleep(CHECK_INTERVAL.into());
            }
            self.work();
        }
    }

    /// Works for at most [`BUDGET`], for one user after the other.
    pub(super) fn work(&mut self) {
        let until = clock::now() + BUDGET;
        self.jobs.waits = !self.jobs.is_empty();
        for user in self.jobs.users() {
            let Some(GangJob { answer_to, stage }) =
                self.jobs.of_users.get_mut(&user).and_then(VecDeque::pop_front)
            else {
                continue;
            };
            self.jobs.last = user;
            let step = self.step(stage, until);
            self.jobs.waits &= matches!(step, JobStep::Waits(_));
            match step {
                JobStep::More(stage) | JobStep::Waits(stage) => {
                    self.jobs.of_users.entry(user).or_default().push_front(GangJob { answer_to, stage });
                }
                done => self.conclude(answer_to, done),
            }
            if self.jobs.of_users.get(&user).is_some_and(VecDeque::is_empty) {
                self.jobs.of_users.remove(&user);
            }
            if clock::now() >= until {
                return;
            }
        }
    }

    fn conclude(&mut self, answer_to: AnswerTo, done: JobStep) {
        let saved = self.save();
        let done = match (done, saved) {
            (JobStep::Refused(refusal), _) => Err(refusal),
            (_, Err(error)) => Err(refused(error)),
            (JobStep::Added(id), Ok(())) => Ok(Some(id)),
            _ => Ok(None),
        };
        match (answer_to, done) {
            (AnswerTo::Client(client), done) => {
                let reply = match done {
                    Ok(id) => match id.and_then(|id| self.state.get(id)) {
                        Some(gang) => ServiceReply::Added { gang: gang.name.clone() },
                        None => ServiceReply::Done {},
                    },
                    Err(refusal) => ServiceReply::Refused(refusal),
                };
                self.jobs.replies.push((client, reply));
            }
            (AnswerTo::Rule(target, weight), Ok(Some(id))) => self.jobs.ruled.push((target, weight, Ok(id))),
            (AnswerTo::Rule(target, weight), Err(refusal)) => {
                self.jobs.ruled.push((target, weight, Err(refusal)));
            }
            (AnswerTo::Nobody(says), Err(refusal)) => self.warn(format!("{says}: {refusal}")),
            (AnswerTo::Nobody(_) | AnswerTo::Rule(..), Ok(_)) => {}
        }
    }

    fn step(&mut self, stage: JobStage, until: Instant) -> JobStep {
        match stage {
            JobStage::Scans { mut scan, request, called, user } => match scan.go_on(&self.hierarchy, until) {
                Ok(None) => JobStep::More(JobStage::Scans { scan, request, called, user }),
                Ok(Some(mut found)) => {
                    found.name = called.unwrap_or(found.name);
                    match self.state.add(user, request, &found) {
                        Ok(id) => self.begin_to_move(id, *scan),
                        Err(refusal) => JobStep::Refused(refusal),
                    }
                }
                Err(refusal) => JobStep::Refused(refusal),
            },
            JobStage::Moves { id, mut moving } => match moving.go_on(&self.hierarchy, until) {
                Ok(false) => JobStep::More(JobStage::Moves { id, moving }),
                Ok(true) => {
                    let (home, leader) = moving.arrive();
                    self.join(id, home, Some(leader))
                }
                Err(error) => self.give_up(id, GangHome::Made(moving.home().clone()), error),
            },
            JobStage::Joins { id, home, leader, joined, until } => match joined.try_recv() {
                Ok(Ok(())) => {
                    self.tend_to(id, home, leader);
                    JobStep::Added(id)
                }
                Ok(Err(error)) => self.give_up(id, home, error),
                Err(TryRecvError::Empty) if clock::now() < until => {
                    JobStep::Waits(JobStage::Joins { id, home, leader, joined, until })
                }
                Err(_) => self.give_up(id, home, silent()),
            },
            JobStage::Releases { id, released, until } => match released.try_recv() {
                Ok(()) => match self.managed.remove(&id) {
                    Some(gang) => JobStep::More(empties(id, gang.home, None)),
                    None => self.end(id, None),
                },
                Err(TryRecvError::Empty) if clock::now() < until => {
                    JobStep::Waits(JobStage::Releases { id, released, until })
                }
                Err(_) => self.end(id, Some(refused(silent()))),
            },
            JobStage::Empties { id, home, threads, until: give_up, then } => {
                self.empty(id, home, threads, give_up, then)
            }
        }
    }

    fn begin_to_move(&mut self, id: GangId, scan: TargetScan) -> JobStep {
        let written = self.journal.entries();
        match scan.begin_to_move(&mut self.journal) {
            Ok(HomeComing::Moves(moving)) => JobStep::More(JobStage::Moves { id, moving }),
            Ok(HomeComing::Done(home)) => self.join(id, home, None),
            Err(error) => {
                let _ = self.journal.undo_since(written); // what is left is in the journal
                self.end(id, Some(refused(error)))
            }
        }
    }

    fn join(&mut self, id: GangId, home: GangHome, leader: Option<PinnedProcess>) -> JobStep {
        let Some(gang) = self.state.get(id) else { return JobStep::Done };
        let (name, owner) = (String::from(gang.name.clone()), GangOwner(gang.owner));
        let weight = GangWeight::new(gang.weight).unwrap_or(GangWeight::ONE);
        let groups = Box::new(GangGroups { control: home.group().clone(), cpu: None, pids: None });
        let (reply, joined) = channel();
        self.notify(Notice::Joins(JoiningGang { id, name, weight, owner, groups }, reply));
        let until = clock::now() + SCHEDULER_TIMEOUT;
        JobStep::Waits(JobStage::Joins { id, home, leader, joined, until })
    }

    fn give_up(&mut self, id: GangId, home: GangHome, why: Error) -> JobStep {
        JobStep::More(empties(id, home, Some(refused(why))))
    }

    /// Moves some of the processes back to their former group.
    fn empty(
        &mut self,
        id: GangId,
        home: GangHome,
        threads: BTreeSet<i32>,
        until: Instant,
        then: Option<GangRefusal>,
    ) -> JobStep {
        let moved = match &home {
            GangHome::Made(group) if group.path().exists() => move_out(group),
            _ => Ok(true),
        };
        let left = match moved {
            Ok(false) if clock::now() < until => {
                return JobStep::More(JobStage::Empties { id, home, threads, until, then });
            }
            Ok(false) => "processes start faster than they are moved".to_owned(),
            Err(error) if clock::now() >= until => error.to_string(),
            Err(_) => return JobStep::Waits(JobStage::Empties { id, home, threads, until, then }),
            Ok(true) => {
                let is_its = |entry: &UndoEntry| match entry {
                    UndoEntry::Affinity { thread, .. } => threads.contains(thread),
                    entry => adopt::is_about(entry, &home),
                };
                match self.journal.undo(is_its).map(|done| done.unrestored) {
                    Ok(left) if left.is_empty() => return self.end(id, then),
                    // a process that has just ended stays in its group for a moment
                    _ if clock::now() < until => {
                        return JobStep::Waits(JobStage::Empties { id, home, threads, until, then });
                    }
                    Ok(left) => left.join("; "),
                    Err(error) => error.to_string(),
                }
            }
        };
        let text = format!("not all of it was put back: {left}; it is tried again when the daemon ends");
        let text = then.map_or(text.clone(), |then| format!("{then}; {text}"));
        self.end(id, Some(GangRefusal::new(GangRefusalKind::Host, text)))
    }

    /// Removes a gang from the state.
    fn end(&mut self, id: GangId, refusal: Option<GangRefusal>) -> JobStep {
        self.managed.remove(&id);
        self.state.end(id);
        self.jobs.leaving.remove(&id);
        self.divide_quotas();
        refusal.map_or(JobStep::Done, JobStep::Refused)
    }
}

/// Chooses the queue of a piece of work: rules have a queue of their own, so that root's requests do not wait
/// for the work of rules.
fn queue_of(by: RequestSource, user: u32) -> u32 {
    if by == RequestSource::Rule { u32::MAX } else { user }
}

fn empties(id: GangId, home: GangHome, then: Option<GangRefusal>) -> JobStage {
    let threads = threads_in(&groups_below(home.group()));
    JobStage::Empties { id, home, threads, until: clock::now() + EMPTY_TIMEOUT, then }
}

fn silent() -> Error {
    Error::Host("the scheduler's thread does not answer; look at the daemon's messages".into())
}
