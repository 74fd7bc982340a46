//! How a broker and its programs wait for the next frame.

use serde::{Deserialize, Serialize};
use unisono_linux::clock;
use unisono_sync::{PollBudget, SpinBudget, Wait};

/// A thread that spins at a socket yields its processor after this many polls without success: about a
/// microsecond. Without yielding, three spinning threads on two processors had to wait for the end of a time
/// slice of the kernel, 4 ms per event.
const POLLS_PER_YIELD: u32 = 64;

/// Pauses between two polls of a spinning thread; yields the processor after every 64 polls.
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
    /// Polls and never sleeps; needs a processor of its own.
    Spin,
    /// After each frame, polls for as long as a sleep would cost, and then sleeps. This costs at most twice
    /// as much as the better of the two choices (Karlin, Li, Manasse, Owicki, SOSP 1991). Over shared memory,
    /// a client learns which of the two is better, as `unisono-sync` does. This suits processors that are
    /// otherwise idle.
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

    /// Returns the corresponding policy of `unisono-sync`.
    pub fn policy(self) -> Wait {
        match self {
            Self::Sleep => Wait::Block,
            Self::Spin => Wait::Spin,
            Self::Adaptive => Wait::Adaptive,
        }
    }

    /// Returns how long to poll for the next frame, from now on, before a sleep.
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
