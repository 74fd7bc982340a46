//! The first polls of a wait, before any wait policy runs.
//!
//! The idea: where each thread has its own core, the awaited signal is one line transfer away. A waiter that
//! first sets up a watch or reads a clock loses more time than that. So the waiter polls a few dozen times
//! and gives up; only then does the wait policy run. Cost: at most a few microseconds of a core. When not to
//! use: where the awaited thread needs this core.
//!
//! Two waiters that exchange signals through one line can poll that line in two ways, and neither always
//! wins. Measured on two virtual processors (AMD EPYC, Linux 6.18), a bare exchange, 31 runs of 15 ms of
//! each, interleaved, ns an episode:
//! ```text
//!                                  pause, then read   read first   take
//!   near (first quartile)                51               28         42
//!   far  (median)                       243              216        129
//! ```
//! The host decides how far apart the two processors are, exposes it to no guest, and may change it while the
//! program runs. So one of the two waiters measures: it times batches of episodes ([`EpisodeBatch`]), and now
//! and then tries the other way. Both waiters poll in the way that it decides. If each decided for itself,
//! the partner's choice would change the measurement, and the pair could settle on a mixture that is slower
//! than either way.

use crate::atomics::{AtomicU32, Ordering, pause, ticks};
use crate::flag::Flag;
use crate::wait::WaitPolicy;
use crate::watch::{Watch, WatchVerdict};
use unisono_linux::clock::Ticks;

/// The number of polls in a row. They last several times as long as a line transfer between distant cores. In
/// a model, where each poll is a branch, it is one.
const POLLS: u32 = if cfg!(loom) { 1 } else { 64 };

/// How the first polls of a wait are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InitialPoll {
    /// A pause before each poll. Polling without a pause takes the line away from the thread that is about to
    /// store into it.
    #[default]
    Pausing,
    /// Each poll takes the line for writing, because the participant that goes on first is the next to store
    /// into the line. A poll that only reads makes every episode move the line twice: once to be read, once
    /// to be written.
    Taking,
    /// Each poll reads, the first one at once.
    Reading,
}

impl WaitPolicy for InitialPoll {
    #[inline]
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, _watch: &mut W) -> WatchVerdict {
        let some = match self {
            Self::Pausing => (0..POLLS).any(|_| {
                pause();
                flag.reached(target)
            }),
            Self::Taking => (0..POLLS).any(|_| flag.reached_taking(target) || pauses()),
            Self::Reading => (0..POLLS).any(|_| flag.reached(target) || pauses()),
        };
        if some { WatchVerdict::Continue } else { WatchVerdict::Stop }
    }
}

/// Pauses and returns false, as the result of a poll that did not find its value.
#[inline]
fn pauses() -> bool {
    pause();
    false
}

/// The episodes that may take the fast path: each starts with an initial poll, and nothing has to be recorded
/// or learned in it.
#[derive(Debug, Default)]
pub struct EpisodeBatch {
    size: u32,
    remaining: u32,
    pub initial_poll: InitialPoll,
    /// The measured costs of the two ways; only for an exchange through one line.
    exchange: Option<Trials>,
    began: Ticks,
}

/// The shortest batch (episodes) whose cost is measured: reading the clock twice costs as much as one
/// episode.
const MIN_EPISODES: u32 = 32;

impl EpisodeBatch {
    /// Creates a batch for one of two participants that exchange signals through one line.
    pub fn for_exchange() -> Self {
        Self { initial_poll: InitialPoll::Taking, exchange: Some(Trials::default()), ..Self::default() }
    }

    /// Starts a batch of `episodes` episodes. In an exchange the participant that `decides` chooses the way
    /// in which both poll, and stores it in `decision`.
    #[inline]
    pub fn start(&mut self, episodes: u32, decides: bool, decision: &AtomicU32) {
        (self.size, self.remaining) = (episodes, episodes);
        let Some(trials) = &mut self.exchange else { return };
        if cfg!(loom) || episodes < MIN_EPISODES {
            return;
        }
        if decides {
            let initial_poll = trials.choose();
            if initial_poll != self.initial_poll {
                self.initial_poll = initial_poll;
                decision.store(u32::from(initial_poll == InitialPoll::Reading), Ordering::Relaxed);
            }
            self.began = ticks();
        } else {
            let reading = decision.load(Ordering::Relaxed) != 0;
            self.initial_poll = if reading { InitialPoll::Reading } else { InitialPoll::Taking };
        }
    }

    /// Takes an episode of the batch. Returns false if none is left.
    #[inline]
    #[must_use]
    pub fn take_episode(&mut self) -> bool {
        let remaining = self.remaining.checked_sub(1);
        self.remaining = remaining.unwrap_or(0);
        remaining.is_some()
    }

    /// Ends the batch; returns how many of its episodes were taken.
    #[inline]
    pub fn end(&mut self) -> u32 {
        let used = self.size - self.remaining;
        if used >= MIN_EPISODES
            && self.began != Ticks(0)
            && let Some(trials) = &mut self.exchange
        {
            trials.learn(ticks().since(self.began).0 / u64::from(used));
            self.began = Ticks(0);
        }
        (self.size, self.remaining) = (0, 0);
        used
    }
}

/// The measured costs of the two ways to poll, and the choice of the cheaper one.
#[derive(Debug, Default)]
struct Trials {
    /// The smoothed cost of an episode with each way to poll, in 1/[`FRACTION`] ticks; 0 if unknown.
    taking: u64,
    reading: u64,
    reads: bool,
    /// The other participant adopts a new way up to one batch later, so the first batch after a change
    /// measures a mixture.
    changed: bool,
    batches: u32,
}

/// The dearer way is tried in two successive batches out of this many: 3 % of the time. A way that costs five
/// times as much (the largest measured ratio: 216 against 42 ns) then adds 12 % at worst.
const TRIAL_INTERVAL: u32 = 64;
/// Costs are kept in fractions of a tick, so that integer rounding does not stop the smoothing.
const FRACTION: u64 = 64;

impl Trials {
    /// Chooses the way to poll during the next batch.
    fn choose(&mut self) -> InitialPoll {
        self.batches = self.batches.wrapping_add(1);
        let other = self.batches % TRIAL_INTERVAL < 2 && self.batches >= TRIAL_INTERVAL;
        let reads = (self.reading < self.taking) != other;
        self.changed = reads != self.reads;
        self.reads = reads;
        if reads { InitialPoll::Reading } else { InitialPoll::Taking }
    }

    /// Records that an episode of the batch took `ticks` on average.
    fn learn(&mut self, ticks: u64) {
        if self.changed {
            return;
        }
        let known = if self.reads { &mut self.reading } else { &mut self.taking };
        let cost = ticks.saturating_mul(FRACTION).max(1);
        *known = match *known {
            0 => cost,
            more if cost < more => more.midpoint(cost),
            // A batch that was interrupted, or spent computing, must not raise the cost at once.
            less => less + (cost.min(less.saturating_mul(2)) - less) / 4,
        };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Returns the way chosen in most of 1,000 batches, if the two ways have these costs.
    fn mostly(trials: &mut Trials, taking: u64, reading: u64) -> InitialPoll {
        let mut reads = 0;
        for _ in 0..1000 {
            let initial_poll = trials.choose();
            reads += u32::from(initial_poll == InitialPoll::Reading);
            trials.learn(if initial_poll == InitialPoll::Reading { reading } else { taking });
        }
        assert!(reads > 0 && reads < 1000, "the other way is tried now and then");
        if reads > 500 { InitialPoll::Reading } else { InitialPoll::Taking }
    }

    #[test]
    fn the_way_that_costs_less_is_found_and_found_again_when_that_changes() {
        let mut trials = Trials::default();
        assert_eq!(mostly(&mut trials, 420, 280), InitialPoll::Reading);
        assert_eq!(mostly(&mut trials, 1290, 2160), InitialPoll::Taking);
        assert_eq!(mostly(&mut trials, 420, 280), InitialPoll::Reading);
    }

    #[test]
    fn one_interrupted_batch_changes_little() {
        let mut trials = Trials::default();
        mostly(&mut trials, 420, 280);
        let before = trials.reading;
        (trials.reads, trials.changed) = (true, false);
        trials.learn(1_000_000);
        assert!(trials.reading <= before * 5 / 4);
    }

    #[test]
    fn the_first_batch_after_a_change_is_not_believed() {
        let mut trials = Trials::default();
        assert_eq!(trials.choose(), InitialPoll::Taking);
        trials.learn(420);
        assert_eq!(trials.choose(), InitialPoll::Reading);
        trials.learn(1); // the other participant still takes the line
        assert_eq!(trials.reading, 0);
        assert_eq!(trials.choose(), InitialPoll::Reading);
        trials.learn(280);
        assert_eq!(trials.reading, 280 * FRACTION);
    }

    #[test]
    fn both_of_an_exchange_poll_the_way_that_one_of_them_decides() {
        let decision = AtomicU32::new(0);
        let (mut one, mut other) = (EpisodeBatch::for_exchange(), EpisodeBatch::for_exchange());
        for _ in 0..1000 {
            one.start(MIN_EPISODES, true, &decision);
            other.start(MIN_EPISODES, false, &decision);
            assert_eq!(one.initial_poll, other.initial_poll);
            while one.take_episode() && other.take_episode() {}
            assert_eq!((one.end(), other.end()), (MIN_EPISODES, MIN_EPISODES));
        }
    }
}
