//! What a window has done so far: counted where it costs an addition, timed only where one waits anyway.

use unisono_linux::clock::Nanos;

/// Counts of one kind of synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Epochs completed.
    pub epochs: u64,
    /// Operations issued.
    pub operations: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Time waited awake.
    pub spun: Nanos,
    /// Time waited asleep.
    pub blocked: Nanos,
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
