//! Waits in slices: for a binding whose threads take turns at a window.
//!
//! A call that waits for what another member's program does next (its post, its completion, its unlock) waits
//! with the window in its hands. If the other waits in turn for what a second thread here would do at the
//! same window, nobody goes on. With a patience such a call gives up as
//! [`Error::NotYet`](crate::Error::NotYet) instead, having changed nothing, so that its caller lets the
//! others have their turn and repeats it.
//!
//! Cost: a load a wait in earnest. When not to use: with one thread a window, which is every Rust program.

use super::Window;
use crate::path::Path;
use std::time::Duration;

impl Window {
    /// For every window of this one's job: `wait`, `complete`, `lock`, `lock_all`, `unlock`, flushes and the
    /// first operation at a target within `lock_all` give up as [`Error::NotYet`](crate::Error::NotYet) after
    /// about `patience` (`None`: never, which is how a job begins) while they wait for what another member's
    /// program does. Collective calls wait as long as it takes: no other call may be made at the window
    /// meanwhile.
    pub fn set_patience(&self, patience: Option<Duration>) {
        self.path.set_patience(patience);
    }
}
