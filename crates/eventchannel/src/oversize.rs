//! Counts events that are larger than their queue. A queue accepts such an event, which then waits alone, so
//! the queue's capacity does not bound the memory. Instead, all such events of a tenant have a common bound.
//!
//! An event that waits in several queues counts once.
//!
//! Cost: nothing for other events; for an oversize event, a look-up under an uncontended lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct OversizeEvents {
    most: usize,
    bytes: usize,
    /// The number of queues that hold each event, by the event's address.
    queues: HashMap<usize, usize>,
}

/// The oversize events of one tenant. Clones share the account.
#[derive(Clone, Debug)]
pub(crate) struct OversizeAccount(Arc<Mutex<OversizeEvents>>);

impl OversizeAccount {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(OversizeEvents { most, bytes: 0, queues: HashMap::new() })))
    }

    /// Returns whether another clone of the account exists.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn lock(&self) -> MutexGuard<'_, OversizeEvents> {
        // no code that holds the lock can panic in the middle of a change
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address of an event and its weight.
pub(crate) type WeighedEvent = (usize, usize);

/// The oversize event that a queue holds, or that a consumer has not acknowledged.
#[derive(Debug)]
pub(crate) struct OversizeShare {
    account: OversizeAccount,
    held: Option<WeighedEvent>,
}

impl OversizeShare {
    pub(crate) fn new(account: OversizeAccount) -> Self {
        Self { account, held: None }
    }

    /// Holds an event in place of the former one. Returns false, and holds none, if all oversize events of
    /// the tenant together would exceed their bound.
    pub(crate) fn hold(&mut self, (event, weight): WeighedEvent) -> bool {
        self.release();
        let mut events = self.account.lock();
        let is_new = !events.queues.contains_key(&event);
        if is_new && events.bytes.saturating_add(weight) > events.most {
            return false;
        }
        events.bytes += if is_new { weight } else { 0 };
        *events.queues.entry(event).or_default() += 1;
        drop(events);
        self.held = Some((event, weight));
        true
    }

    /// Returns whether the share holds this event or, for `None`, any event.
    pub(crate) fn holds(&self, event: Option<usize>) -> bool {
        self.held.is_some_and(|(held, _)| event.is_none_or(|event| event == held))
    }

    pub(crate) fn release(&mut self) {
        let Some((event, weight)) = self.held.take() else { return };
        let mut events = self.account.lock();
        if let Some(queues) = events.queues.get_mut(&event) {
            *queues -= 1;
            if *queues == 0 {
                events.queues.remove(&event);
                events.bytes -= weight;
            }
        }
    }
}

impl Drop for OversizeShare {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_in_several_queues_counts_once_and_all_comes_back() {
        let account = OversizeAccount::new(100);
        let mut queues: Vec<_> = (0..3).map(|_| OversizeShare::new(account.clone())).collect();
        assert!(queues[0].hold((1, 60)) && queues[1].hold((1, 60)));
        assert!(!queues[2].hold((2, 60)) && queues[2].hold((3, 40)));
        queues.remove(0);
        assert!(!queues[1].hold((2, 60)), "one of them holds it still");
        queues[0].release();
        assert!(queues[1].hold((2, 60)));
        drop(queues);
        assert_eq!(account.lock().bytes, 0);
    }
}
