//! Statistics of a window. A count costs one addition; only a call that waits reads the clock.
//!
//! | type | holds |
//! |---|---|
//! | [`WindowStats`] | one window at one rank: epochs and waits by synchronization ([`Stats`]), operations by [`Verb`] and [`Medium`] |
//! | [`StatsTable`](crate::StatsTable) | the windows of a job by name, of one rank or of all ranks together; `Display` prints the table |

use crate::model::EpochKind;
use std::cell::Cell;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use unisono_linux::clock::Duration;
use unisono_sync::Waited;
use unisono_text::named;

named! {
    pub enum Verb {
        Put = "put",
        Get = "get",
        Accumulate = "accumulate",
        /// Get-accumulate and fetch-and-op.
        GetAccumulate = "get_accumulate",
        CompareAndSwap = "compare_and_swap",
    }
}

named! {
    /// What carried an operation's data.
    pub enum Medium {
        /// Loads, stores and atomic instructions on memory that both sides map, or on this rank's own part.
        Stores = "by stores",
        /// A copy by the kernel, of memory of another process of this host.
        Kernel = "by the kernel",
        Messages = "by messages",
    }
}

/// A number of operations, and the bytes that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub operations: u64,
    /// Bytes at the target.
    pub bytes: u64,
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic([[Amount; Medium::ALL.len()]; Verb::ALL.len()]);

impl Traffic {
    pub const fn get(&self, verb: Verb, medium: Medium) -> Amount {
        self.0[verb as usize][medium as usize]
    }

    pub fn add(&mut self, verb: Verb, medium: Medium, amount: Amount) {
        self.0[verb as usize][medium as usize] += amount;
    }

    /// Splits `total` by medium: the operations in `apart` went by `medium`, the rest by `other`.
    pub(crate) fn divided(total: &Counts, apart: &Counts, medium: Medium, other: Medium) -> Self {
        let mut traffic = Self::default();
        for verb in Verb::ALL {
            let (all, apart) = (total.get(verb), apart.get(verb));
            let rest = Amount {
                operations: all.operations.saturating_sub(apart.operations),
                bytes: all.bytes.saturating_sub(apart.bytes),
            };
            traffic.add(verb, medium, apart);
            traffic.add(verb, other, rest);
        }
        traffic
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        for verb in Verb::ALL {
            for medium in Medium::ALL {
                self.add(verb, medium, other.get(verb, medium));
            }
        }
    }
}

/// Amounts by verb. They are in cells, because calls with `&self` count operations, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    operations: [Cell<u64>; Verb::ALL.len()],
    bytes: [Cell<u64>; Verb::ALL.len()],
}

impl Counts {
    #[inline]
    pub(crate) fn count(&self, verb: Verb, bytes: u64) {
        let (operations, sum) = (&self.operations[verb as usize], &self.bytes[verb as usize]);
        operations.set(operations.get() + 1);
        sum.set(sum.get() + bytes);
    }

    /// Removes an operation from the counts, because it was not done.
    pub(crate) fn discount(&self, verb: Verb, bytes: u64) {
        let (operations, sum) = (&self.operations[verb as usize], &self.bytes[verb as usize]);
        operations.set(operations.get() - 1);
        sum.set(sum.get() - bytes);
    }

    fn get(&self, verb: Verb) -> Amount {
        let at = verb as usize;
        Amount { operations: self.operations[at].get(), bytes: self.bytes[at].get() }
    }

    #[inline]
    pub(crate) fn sum(&self) -> Amount {
        let sum = |all: &[Cell<u64>]| all.iter().map(Cell::get).sum();
        Amount { operations: sum(&self.operations), bytes: sum(&self.bytes) }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of access epochs that have ended; for post-start-complete-wait, exposure epochs are counted
    /// as well.
    pub epochs: u64,
    pub operations: u64,
    /// Bytes that the operations moved.
    pub bytes: u64,
    /// Time waited awake, without the waits that end within the first moment of polling (at most a few
    /// microseconds): they read no clock.
    pub spun: Duration,
    pub blocked: Duration,
}

impl Stats {
    pub(crate) fn add(&mut self, waited: Waited) {
        self.spun += waited.awake;
        self.blocked += waited.asleep;
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.epochs += other.epochs;
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.spun += other.spun;
        self.blocked += other.blocked;
    }
}

/// A window's counts at one rank, or the sum over several windows or ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WindowStats {
    pub fence: Stats,
    pub pscw: Stats,
    pub passive: Stats,
    /// Operations by verb and by medium, including operations of an open epoch.
    pub traffic: Traffic,
}

impl AddAssign for WindowStats {
    fn add_assign(&mut self, other: Self) {
        self.fence += other.fence;
        self.pscw += other.pscw;
        self.passive += other.passive;
        self.traffic += other.traffic;
    }
}

/// Time waited at a window, by synchronization.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    pub(crate) fence: Waited,
    pub(crate) pscw: Waited,
    pub(crate) passive: Waited,
}

impl Waits {
    pub(crate) fn get_mut(&mut self, reach: EpochKind) -> &mut Waited {
        match reach {
            EpochKind::Fence => &mut self.fence,
            EpochKind::Started => &mut self.pscw,
            EpochKind::Locked => &mut self.passive,
        }
    }
}

/// Time waited in calls with `&self`. The kind of synchronization is known when the epoch ends.
#[derive(Debug, Default)]
pub(crate) struct WaitCell {
    awake: AtomicU64,
    asleep: AtomicU64,
}

impl WaitCell {
    /// Adds a wait of `total`; the thread slept for `asleep` of it.
    pub(crate) fn note(&self, total: Duration, asleep: Duration) {
        self.awake.fetch_add((total - asleep).as_nanos(), Ordering::Relaxed);
        self.asleep.fetch_add(asleep.as_nanos(), Ordering::Relaxed);
    }

    /// Returns the time added since the last call of this method, and starts again at zero.
    #[inline]
    pub(crate) fn take(&mut self) -> Waited {
        let take = |nanos: &mut AtomicU64| Duration::from_nanos(std::mem::take(nanos.get_mut()));
        Waited { awake: take(&mut self.awake), asleep: take(&mut self.asleep) }
    }
}

thread_local! {
    /// The time that this thread has waited for messages so far.
    static FOR_MESSAGES: Cell<Waited> = const { Cell::new(Waited { awake: Duration::ZERO, asleep: Duration::ZERO }) };
}

/// Records that this thread has waited for messages.
pub(crate) fn record_message_wait(total: Duration, asleep: Duration) {
    let mut waited = FOR_MESSAGES.get();
    waited.add(total, asleep);
    FOR_MESSAGES.set(waited);
}

/// Calls `call`, which may wait for messages, and adds the time of these waits to `stats`.
pub(crate) fn counted<T>(stats: &mut Stats, call: impl FnOnce() -> T) -> T {
    let before = FOR_MESSAGES.get();
    let answer = call();
    stats.add(FOR_MESSAGES.get().since(before));
    answer
}
