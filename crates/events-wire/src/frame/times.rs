//! Times on the wire: moments on a clock that both ends read, or durations from the moment of sending.

use unisono_eventchannel::NO_DEADLINE;
use unisono_linux::clock::{Duration, Instant};

/// The deadline of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishDeadline {
    /// A moment on the clock that both ends read, or [`NO_DEADLINE`].
    At(Instant),
    /// The remaining time; [`Duration::MAX`]: no deadline.
    In(Duration),
}

impl Default for PublishDeadline {
    fn default() -> Self {
        Self::At(NO_DEADLINE)
    }
}

impl From<Instant> for PublishDeadline {
    fn from(deadline: Instant) -> Self {
        Self::At(deadline)
    }
}

impl PublishDeadline {
    pub(super) fn read(is_remaining: bool, nanos: u64) -> Self {
        match is_remaining {
            false => Self::At(Instant::from_nanos(nanos)),
            true => Self::In(Duration::from_nanos(nanos)),
        }
    }

    pub(super) fn is_remaining(self) -> bool {
        matches!(self, Self::In(_))
    }

    pub(super) fn as_nanos(self) -> u64 {
        match self {
            Self::At(deadline) => deadline.as_nanos(),
            Self::In(remaining) => remaining.as_nanos(),
        }
    }
}

/// The deadline of a delivered event, and the time of its publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeliverTimes {
    /// Moments on the clock that both ends read; the deadline may be [`NO_DEADLINE`].
    At { deadline: Instant, published: Instant },
    /// The time until the deadline ([`Duration::MAX`]: there is none) and the time since the publication.
    Relative { remaining: Duration, age: Duration },
}

impl Default for DeliverTimes {
    fn default() -> Self {
        Self::At { deadline: NO_DEADLINE, published: Instant::ZERO }
    }
}

impl DeliverTimes {
    /// Returns the deadline ([`NO_DEADLINE`] if there is none) and the time of publication on the reader's
    /// clock, which `now` reads.
    pub fn on_clock(self, now: impl FnOnce() -> Instant) -> (Instant, Instant) {
        match self {
            Self::At { deadline, published } => (deadline, published),
            Self::Relative { remaining, age } => {
                let now = now();
                (now + remaining, now - age)
            }
        }
    }

    pub(super) fn read(is_relative: bool, [first, second]: [u64; 2]) -> Self {
        match is_relative {
            false => {
                Self::At { deadline: Instant::from_nanos(first), published: Instant::from_nanos(second) }
            }
            true => {
                Self::Relative { remaining: Duration::from_nanos(first), age: Duration::from_nanos(second) }
            }
        }
    }

    pub(super) fn is_relative(self) -> bool {
        matches!(self, Self::Relative { .. })
    }

    pub(super) fn as_nanos(self) -> [u64; 2] {
        match self {
            Self::At { deadline, published } => [deadline.as_nanos(), published.as_nanos()],
            Self::Relative { remaining, age } => [remaining.as_nanos(), age.as_nanos()],
        }
    }
}
