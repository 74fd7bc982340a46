//! What a window has done so far: counted where it costs an addition, timed only where one waits anyway.

use crate::epochs::Reach;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use unisono_linux::clock::Nanos;
use unisono_sync::Waited;

/// Counts of one kind of synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Epochs completed: of access, and (post-start-complete-wait) of exposure.
    pub epochs: u64,
    /// Operations issued.
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Time waited awake. Waits that end within the first moment of polling (a few microseconds at most) read no
    /// clock and are not in it.
    pub spun: Nanos,
    /// Time waited asleep.
    pub blocked: Nanos,
}

impl Stats {
    /// Adds what was waited.
    pub(crate) fn add(&mut self, waited: Waited) {
        self.spun.0 += waited.awake.0;
        self.blocked.0 += waited.asleep.0;
    }
}

/// A window's counts, by synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowStats {
    /// Fence.
    pub fence: Stats,
    /// Post-start-complete-wait.
    pub pscw: Stats,
    /// Lock-unlock.
    pub passive: Stats,
}

/// Time waited at a window, by synchronization, where it is kept apart from the counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) fence: Waited,
    pub(crate) pscw: Waited,
    pub(crate) passive: Waited,
}

impl Waits {
    pub(crate) fn of(&mut self, reach: Reach) -> &mut Waited {
        match reach {
            Reach::Fence => &mut self.fence,
            Reach::Started => &mut self.pscw,
            Reach::Locked => &mut self.passive,
        }
    }
}

/// Time waited that is noted where the window is only read; its kind of synchronization is asked for afterwards.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    awake: AtomicU64,
    asleep: AtomicU64,
}

impl Noted {
    /// Adds a wait of this length, so much of it asleep.
    pub(crate) fn note(&self, total: Nanos, asleep: Nanos) {
        self.awake.fetch_add(total.since(asleep).0, Ordering::Relaxed);
        self.asleep.fetch_add(asleep.0, Ordering::Relaxed);
    }

    /// What was noted since the last time.
    #[inline]
    pub(crate) fn take(&mut self) -> Waited {
        let awake = Nanos(std::mem::take(self.awake.get_mut()));
        Waited { awake, asleep: Nanos(std::mem::take(self.asleep.get_mut())) }
    }
}

thread_local! {
    /// What this thread has waited for messages so far.
    static FOR_MESSAGES: Cell<Waited> = const { Cell::new(Waited { awake: Nanos::ZERO, asleep: Nanos::ZERO }) };
}

/// Notes that this thread has waited for messages.
pub(crate) fn waited_for_messages(total: Nanos, asleep: Nanos) {
    let mut waited = FOR_MESSAGES.get();
    waited.add(total, asleep);
    FOR_MESSAGES.set(waited);
}

/// Makes a call that may wait for messages, and adds what it waited to `stats`.
pub(crate) fn counted<T>(stats: &mut Stats, call: impl FnOnce() -> T) -> T {
    let before = FOR_MESSAGES.get();
    let answer = call();
    stats.add(FOR_MESSAGES.get().since(before));
    answer
}
