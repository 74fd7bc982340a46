//! The memory of inboxes in which no event waits: most inboxes of a channel.
//!
//! An inbox gets memory for waiting events with the first of them. The inboxes that became empty last keep
//! it, so that a consumer that takes each event at once costs no allocation per event; others give it back.
//! Equal parameters are stored once.
//!
//! Cost: a few instructions when an inbox becomes empty; a few comparisons for a new inbox.

use super::{Inbox, InboxSpec, WaitingEvents};
use crate::event::EventPayload;
use crate::ids::InboxId;
use std::collections::VecDeque;
use std::sync::Arc;

/// The number of empty inboxes that keep memory for waiting events: about 40 KiB for all together. Chosen,
/// not measured.
const MAX_IDLE: usize = 64;
/// The number of different parameters that a new inbox is compared with. Chosen, not measured.
const MAX_SPECS: usize = 8;

/// The inboxes that became empty last and still have memory for waiting events, the latest one last.
#[derive(Debug, Default)]
pub(crate) struct IdleInboxes(VecDeque<InboxId>);

impl IdleInboxes {
    /// Adds an inbox. Beyond [`MAX_IDLE`], the inbox that was added first leaves the list and is returned.
    pub(crate) fn add(&mut self, inbox: InboxId) -> Option<InboxId> {
        self.0.push_back(inbox);
        if self.0.len() > MAX_IDLE { self.0.pop_front() } else { None }
    }
}

impl<P: EventPayload> WaitingEvents<P> {
    fn is_empty(&self) -> bool {
        self.queue.len() == 0 && self.gaps.is_empty() && self.departed.is_empty()
    }
}

impl<P: EventPayload> Inbox<P> {
    /// Returns whether the inbox has memory for waiting events that it does not need now, and is not listed.
    pub(crate) fn becomes_idle(&mut self) -> bool {
        let idle = self.waiting.as_mut().filter(|waiting| waiting.is_empty());
        idle.is_some_and(|waiting| !std::mem::replace(&mut waiting.is_listed, true))
    }

    /// Takes the inbox from the list. If it is still empty, it gives its memory back.
    pub(crate) fn leave_idle(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.is_listed = false;
            if waiting.is_empty() {
                self.waiting = None;
            }
        }
    }
}

/// The parameters of the inboxes that were made last.
#[derive(Debug, Default)]
pub(crate) struct SharedSpecs(VecDeque<Arc<InboxSpec>>);

impl SharedSpecs {
    /// Returns the same parameters, in the memory of another inbox if there is one with equal parameters.
    pub(crate) fn share(&mut self, spec: &InboxSpec) -> Arc<InboxSpec> {
        if let Some(known) = self.0.iter().find(|known| ***known == *spec) {
            return Arc::clone(known);
        }
        let new = Arc::new(spec.clone());
        self.0.push_back(Arc::clone(&new));
        if self.0.len() > MAX_SPECS {
            self.0.pop_front();
        }
        new
    }
}
