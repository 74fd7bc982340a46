//! Per-core barrier: the last participant to arrive on a core waits for the other cores; its fellows there
//! wait for it.
//!
//! When threads outnumber cores, most waiters share their core with a thread that has not arrived yet. They
//! must give the core away at once, and waking them one by one from another core is slow. The last thread to
//! arrive on a core is different: no other thread of the program wants that core, so it may spin for the
//! release. Then it wakes the other threads of its core, on the core where they will run.
//! ```text
//!            core 0                          core 1
//!   t0 sleeps  t1 sleeps  t2 spins   t3 sleeps  t4 sleeps  t5: last of all
//!        ^          ^        |  ^         ^          ^        |
//!        +- wakes --+--------+  |         +-- wakes -+--------+
//!                               +---------- releases ---------+
//! ```
//! Cost per episode: each participant makes one read-modify-write of a contended line and one of its core's
//! line. Each core takes one line transfer and at most one system call. No wake-up crosses cores while
//! representatives spin. The last participant of all looks at one line for each core. When not to use: with a
//! core for each thread, where it is the central barrier with more work; or on hundreds of cores, whose lines
//! the last participant walks.
//!
//! A participant counts for the core on which it runs when it arrives. The algorithm guesses from the episode
//! before how many participants will arrive on a core. A wrong guess (a thread was moved) costs time only,
//! because the last of all wakes every core that has no representative. `PROTOCOL.md`, "Cores", has the
//! argument.
//!
//! Reference: this project. The representative is the scheduler-conscious tree of Kontothanassis, Wisniewski
//! and Scott, cut to one level (ACM TOCS 15(1), 1997, section 4); here a thread asks for its core instead of
//! being assigned one.

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol, count};
use unisono_sync::atomics::{AtomicU32, Ordering, fence};
use unisono_sync::{Flag, WaitPolicy, Wakeups, Watch, WatchVerdict};

const COUNTER: usize = 0;
const RELEASE: usize = 1;
/// The first core's line: flag 0 lets the core's fellows go; then words of our own.
const CORES: usize = 2;
/// How many participants run here, as far as they noticed their moves.
const EXPECTED: usize = 0;
/// For how many episodes in a row that was wrong.
const WRONG: usize = 1;
/// How many have come here, for even and for odd episodes: the next episode starts before this one's counts
/// are read.
const ARRIVED: usize = 2;
/// The last episode that had a representative here.
const REPRESENTED: usize = 4;
/// The last even and the last odd episode in which a member waited behind others here. Two words, because a
/// slow member may write its episode when others already wait in the next.
const BEHIND: usize = 5;
/// Every core is signalled once in this many episodes even if nobody waits there, because a flag must not
/// fall 2^31 episodes behind: it would then seem to be ahead. Any number far below 2^31 will do. At 2^20 the
/// extra signals, one line for each core, are less than a thousandth of a line an episode, whatever the
/// number of cores.
const REFRESH: u32 = 1 << 20;

/// A core's expected count is corrected only after it was wrong for this many episodes in a row, because a
/// move takes some episodes to be noticed: corrected at once, each move would be counted twice. While a count
/// is wrong the core's members are let go one episode's length later, so it must not stay wrong for long
/// either. Chosen between the two, not measured.
const PATIENCE: u32 = 8;

#[derive(Debug)]
pub(crate) struct PerCore {
    rank: usize,
    members: u32,
    cores: usize,
    /// Where this participant was when it arrived last.
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
        // SYNC(per-core-count) acquire: the last to come sees everybody's
        self.last = counter.fetch_add(1, Ordering::AcqRel) + 1 == self.members;
        if self.last {
            // Nobody counts again before the release.
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
            // This core has nobody to wake. If a thread is moved here and waits behind, the last of all sees
            // it.
            wait.until(release)?;
            return Some(Leadership::Follower);
        }
        if core.arrived(episode).load(Ordering::Relaxed) >= expected {
            core.represented().store(episode, Ordering::Relaxed);
            if wait.policy.wait_briefly(release, episode, wait.watch) == Some(WatchVerdict::Continue) {
                core.fellows.signal(episode, words.wakeups);
                return Some(Leadership::Follower);
            }
            // Either the last of all sees that nobody represents this core, or the release is seen below.
            core.represented().store(episode.wrapping_sub(1), Ordering::Relaxed);
        }
        core.behind(episode).store(episode, Ordering::Relaxed);
        // SYNC(behind) fence: behind and represented before release; the other side is in `release_cores`
        fence(Ordering::SeqCst);
        if release.reached(episode) {
            core.fellows.signal(episode, words.wakeups);
        } else {
            let verdict = wait.policy.wait_behind(core.fellows, episode, wait.watch);
            (verdict == WatchVerdict::Continue).then_some(())?;
        }
        Some(Leadership::Follower)
    }
}

impl PerCore {
    #[inline]
    fn line<'a>(&self, words: &GroupWords<'a>, core: usize) -> CoreLine<'a> {
        CoreLine { words: *words, line: CORES + core, fellows: words.flag(CORES + core, 0) }
    }

    #[cold]
    fn moved(&mut self, words: &GroupWords<'_>, core: usize) {
        if let Some(before) = self.core.replace(core) {
            self.line(words, before).expected().fetch_sub(1, Ordering::Relaxed);
        }
        self.line(words, core).expected().fetch_add(1, Ordering::Relaxed);
    }

    /// The last of all lets its own core's fellows go, and those of every core without a representative.
    fn release_cores(&self, words: &GroupWords<'_>, episode: u32, here: usize) {
        if !matches!(words.wakeups, Wakeups::Symmetric(_)) {
            // SYNC(behind) fence: release before behind and represented; the other side is in `complete`.
            // A symmetric signal contains this fence.
            fence(Ordering::SeqCst);
        }
        let refresh = episode.is_multiple_of(REFRESH);
        for number in 0..self.cores {
            let core = self.line(words, number);
            let came = core.arrived(episode).load(Ordering::Relaxed);
            if came != 0 {
                // Nobody counts here before the episode after the next, which waits for this participant.
                core.arrived(episode).store(0, Ordering::Relaxed);
                let expected = core.expected().load(Ordering::Relaxed);
                core.review(expected, came);
            }
            let waiting = core.behind(episode).load(Ordering::Relaxed) == episode;
            let served = number != here && core.represented().load(Ordering::Relaxed) == episode;
            if (waiting && !served) || refresh {
                core.fellows.signal(episode, words.wakeups);
            }
        }
    }
}

struct CoreLine<'a> {
    words: GroupWords<'a>,
    line: usize,
    /// Lets the core's waiters go. Several may signal it, but all with the same episode, and none after it
    /// has arrived in the next.
    fellows: Flag<'a>,
}

impl<'a> CoreLine<'a> {
    /// Corrects the expected count once it has been wrong for a while: a member that left did not subtract
    /// itself.
    fn review(&self, expected: u32, came: u32) {
        let wrong = self.words.own_word(self.line, WRONG);
        let times = wrong.load(Ordering::Relaxed);
        if expected == came {
            if times != 0 {
                wrong.store(0, Ordering::Relaxed);
            }
        } else if times < PATIENCE {
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

/// In a model there are two cores, and the first two participants share one.
#[cfg(loom)]
fn here(rank: usize) -> usize {
    rank / 2
}

#[cfg(loom)]
fn cores() -> usize {
    2
}
