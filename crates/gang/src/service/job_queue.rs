//! The unfinished work of the daemon, by user; `jobs.rs` carries it out in pieces.

use super::adopt::{GangHome, Moving, TargetScan};
use super::request::{GangName, GangRefusal, GangTarget, ServiceReply, ServiceResult};
use super::state::AddRequest;
use crate::error::Result;
use crate::gang::{GangId, GangWeight};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::Receiver;
use unisono_linux::clock::Instant;
use unisono_linux::pinned::PinnedProcess;

/// Identifies a connection that waits for an answer.
pub(super) type ReplyTicket = u64;

/// The target and the weight of a rule's request, and its outcome.
pub(super) type RuleOutcome = (GangTarget, GangWeight, ServiceResult<GangId>);

/// The requester that waits for the end of a piece of work.
pub(super) enum AnswerTo {
    Client(ReplyTicket),
    Rule(GangTarget, GangWeight),
    /// No requester: failures become warnings that start with this text.
    Nobody(String),
}

pub(super) enum JobStage {
    Scans {
        scan: Box<TargetScan>,
        request: AddRequest,
        called: Option<GangName>,
        user: u32,
    },
    Moves {
        id: GangId,
        moving: Box<Moving>,
    },
    Joins {
        id: GangId,
        home: GangHome,
        leader: Option<PinnedProcess>,
        joined: Receiver<Result<()>>,
        until: Instant,
    },
    Releases {
        id: GangId,
        released: Receiver<()>,
        until: Instant,
    },
    Empties {
        id: GangId,
        home: GangHome,
        threads: BTreeSet<i32>,
        until: Instant,
        then: Option<GangRefusal>,
    },
}

pub(super) struct GangJob {
    pub(super) answer_to: AnswerTo,
    pub(super) stage: JobStage,
}

/// The work of all users.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) of_users: BTreeMap<u32, VecDeque<GangJob>>,
    /// The user whose work was done last.
    pub(super) last: u32,
    pub(super) waits: bool,
    pub(super) replies: Vec<(ReplyTicket, ServiceReply)>,
    pub(super) ruled: Vec<RuleOutcome>,
    /// Gangs that are being released.
    pub(super) leaving: BTreeSet<GangId>,
}

impl Jobs {
    pub(super) fn push(&mut self, user: u32, answer_to: AnswerTo, stage: JobStage) {
        self.of_users.entry(user).or_default().push_back(GangJob { answer_to, stage });
        self.waits = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of_users.is_empty()
    }

    /// Returns all users in the order of their turns, which begins after the user who was served last.
    pub(super) fn users(&self) -> Vec<u32> {
        let after = self.of_users.range(self.last.saturating_add(1)..);
        after.chain(self.of_users.range(..=self.last)).map(|(user, _)| *user).collect()
    }

    pub(super) fn is_leaving(&self, id: GangId) -> bool {
        self.leaving.contains(&id)
    }

    pub(super) fn has_rule(&self, target: &GangTarget) -> bool {
        let is_it = |job: &GangJob| matches!(&job.answer_to, AnswerTo::Rule(other, _) if other == target);
        self.of_users.values().flatten().any(is_it)
    }
}
