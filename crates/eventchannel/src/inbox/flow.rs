//! The waiting events of one supplier on one topic (a *flow*): their number, and the turns of events that
//! must stay in order.

use super::ascending::AscendingQueue;
use super::{DueTurn, InboxQueue};
use crate::event::EventPayload;
use crate::ids::SupplierId;
use unisono_time::Instant;

/// Turns that ascend in order of arrival.
pub(super) type AscendingTurns = AscendingQueue<DueTurn, ()>;

/// The waiting events of a supplier on a topic.
#[derive(Debug, Default)]
pub(super) struct WaitingFlow {
    pub(super) events: usize,
    /// The turns of kept events, and of events that leave in the order of publication.
    pub(super) ordered: AscendingTurns,
}

/// Makes the kept events of a supplier on a topic due no later than a new event, because they precede it.
pub(super) fn advance_kept<P: EventPayload>(
    queue: &mut InboxQueue<P>,
    supplier: SupplierId,
    kept: &mut AscendingTurns,
    due: Instant,
) {
    let mut later = Vec::new();
    while let Some((turn, ())) = kept.last().filter(|((latest, _), ())| *latest > due) {
        let turn = *turn;
        kept.remove(&turn);
        later.push(turn);
    }
    for turn in later.into_iter().rev() {
        queue.advance(supplier, turn, due);
        kept.push((due, turn.1), ());
    }
}
