//! What a group knows about where its members run, and what it has learnt about waiting.
//!
//! The adaptive wait policy asks three questions, answered here from words that all members share:
//! - *Is there a core for everybody?* Each member adds the CPUs it may use to a common set when it first
//!   waits; more members than CPUs in the set means that cores are shared.
//! - *Does an awaited member run?* Each notes the CPU it arrives on; one that has not arrived and was last
//!   seen on the asker's own CPU does not run now.
//! - *Awake or asleep?* The first member (rank 0) measures what episodes cost and decides for all; anybody may
//!   send all to sleep, see [`Regime`].
//!
//! Answers are hints: any mixture of modes is correct, because how one waits never changes what is awaited.
//! Cost an episode: on cores of one's own a countdown and a comparison; where cores are shared one store.

use crate::control::Control;
use unisono_linux::affinity::{self, Tid};
use unisono_linux::clock;
use unisono_linux::current_cpu::current_cpu;
use unisono_sync::atomics::Ordering;
use unisono_sync::{Advice, Learner, Regime};

/// Groups larger than this do not ask who runs where: looking would cost more than a wrong guess.
const SMALL_GROUP: usize = 64;

/// A note of presence: the episode's low bits above the CPU's number plus one.
const CPU_BITS: u32 = 12;

/// One member's part.
#[derive(Debug)]
pub(crate) struct Adaptivity {
    /// What has been learnt, if this is the first member.
    learner: Learner,
    announced: bool,
    crowded: bool,
    note: u32,
}

impl Adaptivity {
    pub(crate) fn new() -> Self {
        Self { learner: Learner::default(), announced: false, crowded: false, note: 0 }
    }

    /// Before an arrival: leaves a note of where this member runs, if that is news to others.
    #[inline]
    pub(crate) fn note_presence(&mut self, control: &Control, id: usize, members: usize, episode: u32) {
        // The set of CPUs is complete once everybody has arrived once; members and masks change rarely.
        if episode & 1023 < 4 {
            self.refresh(control, members);
        } else if !self.crowded && episode & 63 != 0 {
            return;
        }
        let cpu = current_cpu().wrapping_add(1) & ((1 << CPU_BITS) - 1);
        let note = if self.crowded { episode << CPU_BITS | cpu } else { cpu };
        if note != self.note {
            self.note = note;
            control.presence(id).store(note, Ordering::Relaxed);
        }
    }

    /// Whether the first moment of a wait is spent polling.
    #[inline]
    pub(crate) fn starts_brief(&self, control: &Control) -> bool {
        !self.crowded && !regime(control).is_asleep()
    }

    /// How many episodes may pass before this member has to note its presence or to decide.
    #[inline]
    pub(crate) fn episodes_to_spare(&self, rank: usize, episode: u32) -> u32 {
        if self.crowded || episode & 1023 < 4 {
            return 0;
        }
        let before_note = 63 - (episode & 63);
        if rank == 0 { before_note.min(self.learner.to_spare()) } else { before_note }
    }

    /// So many episodes have passed without a word to this member.
    #[inline]
    pub(crate) fn catch_up(&mut self, episodes: u32) {
        self.learner.catch_up(episodes);
    }

    /// After an episode: the first member counts, and now and then decides.
    #[inline]
    pub(crate) fn learn(&mut self, control: &Control, rank: usize, sleeps: u64) {
        if rank == 0 {
            self.learner.learn(regime(control), sleeps, clock::now);
        }
    }

    #[cold]
    fn refresh(&mut self, control: &Control, members: usize) {
        if !self.announced {
            self.announced = true;
            let allowed = affinity::allowed(Tid::current()).map_or(u64::MAX, |set| {
                // CPUs beyond the 64th share bits: counting too few cores only means to yield too early.
                set.iter().fold(0, |bits, cpu| bits | 1_u64 << (cpu % 64))
            });
            control.allowed(0).fetch_or((allowed & 0xffff_ffff) as u32, Ordering::Relaxed);
            control.allowed(1).fetch_or((allowed >> 32) as u32, Ordering::Relaxed);
        }
        self.crowded = is_crowded(control, members);
    }
}

/// The words in which members say how to wait.
#[inline]
fn regime(control: &Control) -> Regime<'_> {
    Regime::new(control.mode(), control.last_long_yield())
}

/// Whether members outnumber the CPUs they may use, as far as these are known.
fn is_crowded(control: &Control, members: usize) -> bool {
    let cpus = (0..2).map(|half| control.allowed(half).load(Ordering::Relaxed).count_ones()).sum::<u32>();
    cpus > 0 && members > cpus as usize
}

/// How to wait now.
pub(crate) fn advice(control: &Control, members: usize) -> Advice {
    regime(control).advice(|| is_crowded(control, members))
}

/// Whether no member that is still awaited was last seen on this CPU.
pub(crate) fn awaited_may_run(control: &Control, id: usize, members: usize, episode: u32) -> bool {
    if members > SMALL_GROUP {
        return !is_crowded(control, members);
    }
    let crowded = is_crowded(control, members);
    let here = current_cpu().wrapping_add(1) & ((1 << CPU_BITS) - 1);
    (0..control.capacity.min(SMALL_GROUP)).filter(|other| *other != id).all(|other| {
        let note = control.presence(other).load(Ordering::Relaxed);
        note & ((1 << CPU_BITS) - 1) != here
            || (crowded && note >> CPU_BITS == episode << CPU_BITS >> CPU_BITS)
    })
}

/// A yield took so long that a foreign thread had the core; twice is no accident.
pub(crate) fn yield_took_long(control: &Control) {
    regime(control).yield_took_long(clock::now());
}
