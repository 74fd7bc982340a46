//! Per-core barrier: the last participant to arrive on a core waits for the other cores; the core's other
//! participants wait for it.
//!
//! When threads outnumber cores, most waiters share their core with a thread that has not arrived yet. They
//! must give the core away at once, and waking them one by one from another core is slow. The last thread to
//! arrive on a core, the core's *representative*, is different: no other thread of the program wants that
//! core, so it may spin for the release. Then it wakes the other threads of its core, on the core where they
//! will run.
//! ```text
//!            core 0                          core 1
//!   t0 sleeps  t1 sleeps  t2 spins   t3 sleeps  t4 sleeps  t5: last of all
//!        ^          ^        |  ^         ^          ^        |
//!        +- wakes --+--------+  |         +-- wakes -+--------+
//!                               +---------- releases ---------+
//! ```
//! Cost per episode: each participant makes one read-modify-write of a contended line and one of its core's
//! line. For each core, an episode takes one line transfer and at most one system call. No wake-up crosses
//! cores while representatives spin. The very last participant reads one line for each core. When not to use:
//! with a core for each thread, where this is the central barrier with more work; or on hundreds of cores,
//! because the last participant reads a line of each.
//!
//! A participant counts for the core on which it runs when it arrives. The algorithm guesses from the episode
//! before how many participants will arrive on a core. A wrong guess (a thread was migrated) costs time only,
//! because the very last participant wakes every core that has no representative. `PROTOCOL.md`, "Cores", has
//! the argument.
//!
//! Reference: this project. The representative is the scheduler-conscious tree of Kontothanassis, Wisniewski
//! and Scott, cut to one level (ACM TOCS 15(1), 1997, section 4); here a thread reads the number of its core
//! instead of being assigned a core.

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol, count};
use unisono_sync::atomics::{AtomicU32, Ordering, fence};
use unisono_sync::{Flag, WaitPolicy, Wakeups, Watch, WatchVerdict};

const COUNTER: usize = 0;
const RELEASE: usize = 1;
/// The first core's line: flag 0 releases the core's participants; the algorithm's own words follow.
const CORES: usize = 2;
/// The number of participants that run on this core; each participant updates it when it notices that it has
/// migrated.
const EXPECTED: usize = 0;
/// The number of successive episodes in which the expected number was wrong.
const WRONG: usize = 1;
/// The numbers of arrivals on this core, for even and for odd episodes: the next episode may start before
/// this episode's count is read.
const ARRIVED: usize = 2;
/// The last episode in which this core had a representative.
const REPRESENTED: usize = 4;
/// The last even and the last odd episode in which a member waited for this core's flag. There are two words,
/// because a slow member may write its episode when others already wait in the next.
const BEHIND: usize = 5;
/// Every core is signalled once in this many episodes even if no participant waits there, because a flag must
/// not fall 2^31 episodes behind: it would then seem to be ahead. Any number far below 2^31 will do. At 2^20
/// the extra signals, one line for each core, are less than a thousandth of a line an episode, on up to a
/// thousand cores.
const REFRESH: u32 = 1 << 20;

/// A core's expected count is corrected only after it was wrong for this many episodes in a row, because it
/// takes some episodes until a migration is noticed: if the count were corrected at once, each migration
/// would be counted twice. While a count is wrong, the core's members are released one episode's length
/// later, so the number must not be large either. 8 is a compromise; it was not measured.
const MIN_WRONG_EPISODES: u32 = 8;

#[derive(Debug)]
pub(crate) struct PerCore {
    rank: usize,
    members: u32,
    cores: usize,
    /// The core on which this participant ran at its last arrival.
    core: Option<usize>,
    last: bool,
}

impl Protocol for PerCore {
    fn lines(_members: usize) -> usize {
        CORES + cores()
    }

    fn new(rank: usize, members: usize) -> Self {
        Self { rank, members: count(members), cores: cores(), core: None, last: false }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        let core = here(self.rank) % self.cores;
        if self.core != Some(core) {
            self.moved(words, core);
        }
        self.line(words, core).arrived(episode).fetch_add(1, Ordering::Relaxed);
        let counter = words.counter(COUNTER);
        // SYNC(per-core-count) release: publishes this participant's writes and its core's count;
        // SYNC(per-core-count) acquire: the last to arrive sees the writes of all others
        self.last = counter.fetch_add(1, Ordering::AcqRel) + 1 == self.members;
        if self.last {
            // No participant counts again before the release.
            counter.store(0, Ordering::Relaxed);
            words.flag(RELEASE, 0).signal(episode, words.wakeups);
            self.release_cores(words, episode, core);
        }
    }

    #[inline]
    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let (words, episode) = (wait.words, wait.episode);
        if self.last {
            return Some(Leadership::Leader);
        }
        let release = words.flag(RELEASE, 0);
        if release.reached(episode) {
            return Some(Leadership::Follower);
        }
        let core = self.line(words, self.core.unwrap_or(0));
        let expected = core.expected().load(Ordering::Relaxed);
        if expected <= 1 {
            // No other participant is expected on this core. If a thread is migrated here and waits for this
            // core's flag, the very last participant signals the flag.
            wait.until(release)?;
            return Some(Leadership::Follower);
        }
        if core.arrived(episode).load(Ordering::Relaxed) >= expected {
            core.represented().store(episode, Ordering::Relaxed);
            if wait.policy.wait_briefly(release, episode, wait.watch) == Some(WatchVerdict::Continue) {
                core.local_release.signal(episode, words.wakeups);
                return Some(Leadership::Follower);
            }
            // Either the very last participant sees no representative here, or the check below sees the
            // release.
            core.represented().store(episode.wrapping_sub(1), Ordering::Relaxed);
        }
        core.behind(episode).store(episode, Ordering::Relaxed);
        // SYNC(behind) fence: `behind` and `represented` are written before the release is read; the other
        // side is in `release_cores`
        fence(Ordering::SeqCst);
        if release.reached(episode) {
            core.local_release.signal(episode, words.wakeups);
        } else {
            let verdict = wait.policy.wait_behind(core.local_release, episode, wait.watch);
            (verdict == WatchVerdict::Continue).then_some(())?;
        }
        Some(Leadership::Follower)
    }
}

impl PerCore {
    #[inline]
    fn line<'a>(&self, words: &GroupWords<'a>, core: usize) -> CoreLine<'a> {
        CoreLine { words: *words, line: CORES + core, local_release: words.flag(CORES + core, 0) }
    }

    #[cold]
    fn moved(&mut self, words: &GroupWords<'_>, core: usize) {
        if let Some(before) = self.core.replace(core) {
            self.line(words, before).expected().fetch_sub(1, Ordering::Relaxed);
        }
        self.line(words, core).expected().fetch_add(1, Ordering::Relaxed);
    }

    /// Releases the members of the caller's core, and those on cores without a representative. Called by the
    /// last member to arrive.
    fn release_cores(&self, words: &GroupWords<'_>, episode: u32, here: usize) {
        if !matches!(words.wakeups, Wakeups::Symmetric(_)) {
            // SYNC(behind) fence: the release is written before `behind` and `represented` are read; the
            // other side is in `complete`. A symmetric signal contains this fence.
            fence(Ordering::SeqCst);
        }
        let refresh = episode.is_multiple_of(REFRESH);
        for number in 0..self.cores {
            let core = self.line(words, number);
            let came = core.arrived(episode).load(Ordering::Relaxed);
            if came != 0 {
                // No participant counts in this word before the episode after the next, and that episode
                // waits for this participant.
                core.arrived(episode).store(0, Ordering::Relaxed);
                let expected = core.expected().load(Ordering::Relaxed);
                core.review(expected, came);
            }
            let waiting = core.behind(episode).load(Ordering::Relaxed) == episode;
            let served = number != here && core.represented().load(Ordering::Relaxed) == episode;
            if (waiting && !served) || refresh {
                core.local_release.signal(episode, words.wakeups);
            }
        }
    }
}

struct CoreLine<'a> {
    words: GroupWords<'a>,
    line: usize,
    /// Releases the core's waiters. Several participants may signal it, but all with the same episode, and
    /// none after it has arrived in the next.
    local_release: Flag<'a>,
}

impl<'a> CoreLine<'a> {
    /// Corrects the expected count after it was wrong for several episodes in a row, for example because a
    /// member that left did not subtract itself.
    fn review(&self, expected: u32, came: u32) {
        let wrong = self.words.own_word(self.line, WRONG);
        let times = wrong.load(Ordering::Relaxed);
        if expected == came {
            if times != 0 {
                wrong.store(0, Ordering::Relaxed);
            }
        } else if times < MIN_WRONG_EPISODES {
            wrong.store(times + 1, Ordering::Relaxed);
        } else {
            wrong.store(0, Ordering::Relaxed);
            self.expected().store(came, Ordering::Relaxed);
        }
    }

    fn arrived(&self, episode: u32) -> &'a AtomicU32 {
        self.words.own_word(self.line, ARRIVED + (episode as usize & 1))
    }

    fn expected(&self) -> &'a AtomicU32 {
        self.words.own_word(self.line, EXPECTED)
    }

    fn behind(&self, episode: u32) -> &'a AtomicU32 {
        self.words.own_word(self.line, BEHIND + (episode as usize & 1))
    }

    fn represented(&self) -> &'a AtomicU32 {
        self.words.own_word(self.line, REPRESENTED)
    }
}

#[cfg(not(loom))]
fn here(_rank: usize) -> usize {
    unisono_linux::current_cpu::current_cpu() as usize
}

#[cfg(not(loom))]
fn cores() -> usize {
    unisono_linux::current_cpu::configured()
}

/// Returns the core of a participant in a model, which has two cores; the first two participants share one.
#[cfg(loom)]
fn here(rank: usize) -> usize {
    rank / 2
}

#[cfg(loom)]
fn cores() -> usize {
    2
}
