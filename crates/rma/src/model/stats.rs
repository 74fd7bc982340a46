//! What a window has done so far: counted where it costs an addition, timed only where one waits anyway.
//!
//! | type | says |
//! |---|---|
//! | [`WindowStats`] | one window at one rank: epochs and waits by synchronization ([`Stats`]), operations by [`Verb`] and [`Medium`] |
//! | [`Ledger`](crate::Ledger) | the windows of a job by name, of one rank or of all ranks together; `Display` is the table |

use crate::model::Reach;
use std::cell::Cell;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use unisono_linux::clock::Nanos;
use unisono_sync::Waited;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Put,
    Get,
    Accumulate,
    /// Get-accumulate, which fetch-and-op is one of.
    GetAccumulate,
    CompareAndSwap,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Put, Self::Get, Self::Accumulate, Self::GetAccumulate, Self::CompareAndSwap];

    /// Its name, as the standard writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Accumulate => "accumulate",
            Self::GetAccumulate => "get_accumulate",
            Self::CompareAndSwap => "compare_and_swap",
        }
    }
}

/// What carries the data of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// Loads, stores and atomic instructions: memory that both sides map, and this rank's own part.
    Stores,
    /// A copy by the kernel: memory of another process of this host.
    Kernel,
    Messages,
}

impl Medium {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Stores, Self::Kernel, Self::Messages];

    /// Its name, for the head of a column.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stores => "by stores",
            Self::Kernel => "by the kernel",
            Self::Messages => "by messages",
        }
    }
}

/// Operations, and the bytes that they moved.
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

/// Operations by [`Verb`] and [`Medium`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic([[Amount; Medium::ALL.len()]; Verb::ALL.len()]);

impl Traffic {
    /// The operations of this kind that went this way.
    #[must_use]
    pub const fn of(&self, verb: Verb, medium: Medium) -> Amount {
        self.0[verb as usize][medium as usize]
    }

    pub fn add(&mut self, verb: Verb, medium: Medium, amount: Amount) {
        self.0[verb as usize][medium as usize] += amount;
    }

    /// `total` by verb, of which `apart` went by `medium` and the rest by `other`.
    pub(crate) fn divided(total: &Counts, apart: &Counts, medium: Medium, other: Medium) -> Self {
        let mut traffic = Self::default();
        for verb in Verb::ALL {
            let (all, apart) = (total.of(verb), apart.of(verb));
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
                self.add(verb, medium, other.of(verb, medium));
            }
        }
    }
}

/// Amounts by verb, counted also where the window is only read.
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

    /// Takes back one that was counted and not done.
    pub(crate) fn discount(&self, verb: Verb, bytes: u64) {
        let (operations, sum) = (&self.operations[verb as usize], &self.bytes[verb as usize]);
        operations.set(operations.get() - 1);
        sum.set(sum.get() - bytes);
    }

    fn of(&self, verb: Verb) -> Amount {
        let at = verb as usize;
        Amount { operations: self.operations[at].get(), bytes: self.bytes[at].get() }
    }

    #[inline]
    pub(crate) fn sum(&self) -> Amount {
        let sum = |all: &[Cell<u64>]| all.iter().map(Cell::get).sum();
        Amount { operations: sum(&self.operations), bytes: sum(&self.bytes) }
    }
}

/// Counts of one kind of synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Epochs completed: of access, and (post-start-complete-wait) of exposure.
    pub epochs: u64,
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Time waited awake. Waits that end within the first moment of polling (a few microseconds at most) read
    /// no clock and are not in it.
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

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.epochs += other.epochs;
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.spun.0 += other.spun.0;
        self.blocked.0 += other.blocked.0;
    }
}

/// A window's counts at one rank; a sum of them is of several windows or ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowStats {
    pub fence: Stats,
    pub pscw: Stats,
    pub passive: Stats,
    /// Operations by kind and by what carried them. Those of an open epoch are in here, too.
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

/// Time waited that is noted where the window is only read; its kind of synchronization is asked for
/// afterwards.
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
