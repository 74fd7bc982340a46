//! Records on which processors the members of a group last ran.
//!
//! Each member notes the processor on which it arrives, in a word that all members read. Suppose a waiter
//! awaits a member that was last seen on the waiter's own processor. That member cannot run while the waiter
//! does, so the waiter must not spin. A note may be out of date; a wrong guess costs time only. Cost: one
//! store an episode where members share processors, at most one in 64 episodes elsewhere; a question reads
//! one word a member.

use crate::atomics::{AtomicU32, Ordering};
use crate::line::{CacheLine, Lines};
use unisono_linux::current_cpu::current_cpu;

/// The number of low bits in a note that hold the processor's number plus one, or 0 for no note. The bits
/// above them hold low bits of the episode.
const CPU_BITS: u32 = 12;

/// The largest group that reads notes. The notes of 64 members are 4 lines that others write, each a transfer
/// of 30 to 100 ns; the notes of 4,096 members would take 25 us, half of the 50 us that a wrong guess costs
/// at most.
const SMALL_GROUP: usize = 64;

/// The words of the notes: sixteen places in a line.
#[derive(Clone, Copy, Debug)]
pub struct LastCpus<'a> {
    lines: &'a Lines,
    first: usize,
    places: usize,
}

impl<'a> LastCpus<'a> {
    /// Creates a view of the notes of `places` places, which lie in `lines` from line `first` on.
    #[inline]
    pub const fn new(lines: &'a Lines, first: usize, places: usize) -> Self {
        Self { lines, first, places }
    }

    /// Returns the number of lines that the notes of `places` places take.
    pub const fn lines(places: usize) -> usize {
        places.div_ceil(CacheLine::WORDS)
    }

    #[inline]
    fn note(&self, place: usize) -> &'a AtomicU32 {
        self.lines.line(self.first + place / CacheLine::WORDS).word(place % CacheLine::WORDS)
    }

    /// Writes the processor of the member at `place` if the note differs from `last`, its previous note.
    #[inline]
    pub(crate) fn write(&self, place: usize, crowded: bool, episode: u32, last: &mut u32) {
        let note = if crowded { episode << CPU_BITS | here() } else { here() };
        if note != *last {
            *last = note;
            self.note(place).store(note, Ordering::Relaxed);
        }
    }

    /// Erases the note of the member at `place`.
    pub fn forget(&self, place: usize) {
        self.note(place).store(0, Ordering::Relaxed);
    }
}

/// A question of one waiter to the notes: may the awaited members be running?
#[derive(Clone, Copy, Debug)]
pub struct LastCpuQuery<'a> {
    pub last_cpus: LastCpus<'a>,
    pub place: usize,
    pub members: usize,
    /// The episode that this waiter waits for.
    pub episode: u32,
}

impl LastCpuQuery<'_> {
    /// Returns whether no awaited member was last seen on this processor. In a crowded group, a member whose
    /// note has this episode has arrived and is not awaited any more. A group of more than `SMALL_GROUP`
    /// members reads no notes; the answer is then yes unless the group is crowded.
    pub(crate) fn awaited_may_run(&self, crowded: bool) -> bool {
        if cfg!(loom) || self.members > SMALL_GROUP {
            return cfg!(loom) || !crowded;
        }
        let here = here();
        (0..self.last_cpus.places.min(SMALL_GROUP)).filter(|place| *place != self.place).all(|place| {
            let note = self.last_cpus.note(place).load(Ordering::Relaxed);
            note & ((1 << CPU_BITS) - 1) != here
                || (crowded && note >> CPU_BITS == self.episode << CPU_BITS >> CPU_BITS)
        })
    }
}

#[inline]
fn here() -> u32 {
    current_cpu().wrapping_add(1) & ((1 << CPU_BITS) - 1)
}
