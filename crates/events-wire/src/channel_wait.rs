//! How a broker and its programs wait for the next frame.

use serde::{Deserialize, Serialize};
use unisono_linux::clock;
use unisono_sync::{PollBudget, SpinBudget, Wait};

/// A thread that spins at a socket yields after this many polls without success: about a microsecond. Without
/// yielding, three threads that spin on two processors waited for the kernel's slice, 4 ms per event.
const POLLS_PER_YIELD: u32 = 64;

/// One poll of a spinning thread.
pub fn spin_once(polls: &mut u32) {
    *polls += 1;
    match *polls % POLLS_PER_YIELD {
        0 => std::thread::yield_now(),
        _ => std::hint::spin_loop(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelWait {
    /// Sleeps until a frame comes.
    #[default]
    Sleep,
    /// Polls without a sleep; needs a processor of its own.
    Spin,
    /// After each frame, polls for as long as a sleep would cost, then sleeps: never more than twice the cost
    /// of the better choice (Karlin, Li, Manasse, Owicki, SOSP 1991). Over shared memory, a client learns
    /// which of the two is better, as `unisono-sync` does. For processors that are idle otherwise.
    Adaptive,
}

impl ChannelWait {
    /// Each variant with its name and its description on the command line.
    pub const ALL: [(Self, &str, &str); 3] = [
        (Self::Sleep, "sleep", "Sleep until something comes"),
        (Self::Spin, "spin", "Spin; this takes a processor"),
        (Self::Adaptive, "adaptive", "Spin for 50 us, as long as a sleep costs, then sleep"),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin",
            Self::Adaptive => "adaptive",
        }
    }

    /// The corresponding policy of `unisono-sync`.
    pub fn policy(self) -> Wait {
        match self {
            Self::Sleep => Wait::Block,
            Self::Spin => Wait::Spin,
            Self::Adaptive => Wait::Adaptive,
        }
    }

    /// How long to poll for the next frame before a sleep, from now on.
    pub fn budget(self) -> PollBudget {
        let mut budget = match self {
            Self::Sleep => PollBudget::Nothing,
            Self::Spin => PollBudget::Endless,
            Self::Adaptive => PollBudget::lasting(SpinBudget::DEFAULT.duration()),
        };
        budget.renew(clock::now);
        budget
    }
}
