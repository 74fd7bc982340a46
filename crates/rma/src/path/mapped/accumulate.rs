//! Accumulates, fetch-and-op and compare-and-swap on memory that is in reach.
//!
//! The idea: a rank combines a few aligned elements by atomic instructions, at the same time as other ranks.
//! It combines all other data by vector instructions, one rank at a time. The target's gate decides between
//! the two (`gate.rs`). While a rank holds an exclusive lock no other rank can access the part, so that rank
//! needs no gate. A part that is not mapped is read, combined and written back behind the gate. Cost: see
//! `gate.rs`. When not to use: for puts, because they are not atomic.

use super::atomic;
use super::execute::TargetPart;
use super::gate::{AccumulateLength, TargetGate};
use super::lock_word::POLLS;
use crate::memory::combine::{combine, compare_and_swap};
use crate::model::{Element, Error, Operation};
use unisono_linux::clock::{Duration, now, ticks};
use unisono_linux::futex::{self, Scope, WakeCount};
use unisono_sync::atomics::{AtomicU32, Ordering};
use unisono_sync::{MAX_SLEEP, poll_briefly};

/// The number of elements up to which atomic instructions are faster than the gate's lock. 128 elements took
/// 980 ns by atomic instructions, 8 ns each, and 39 ns by vector instructions with the lock; a single element
/// takes 30 ns through the gate without the lock (unisono study one-sided, quick, n = 3, medians, AMD EPYC).
/// So the two are equal at four or five elements; that point itself was not measured.
const MAX_ATOMIC_ELEMENTS: usize = 4;

impl TargetPart<'_> {
    /// Combines `brought` into the part from byte `offset` on, and stores the old values in `result`.
    #[inline]
    pub(super) fn accumulate(
        &self,
        offset: i64,
        (element, operation): (Element, Operation),
        brought: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        if !brought.len().is_multiple_of(element.size()) {
            return Err(Error::Type("a block of the layout splits an element".to_owned()));
        }
        if self.peer.base.is_null() {
            return self.exclusively(AccumulateLength::Long, || {
                self.accumulate_remote(offset, element, operation, brought, result)
            });
        }
        let address = self.address(offset);
        let back = result.map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr);
        let few = brought.len() <= MAX_ATOMIC_ELEMENTS * element.size();
        let work = || {
            if !back.is_null() {
                // SAFETY: the result is a slice of this length; the range was checked.
                unsafe { std::ptr::copy(address, back, brought.len()) };
            }
            // SAFETY: range and operation were checked; no other rank combines here meanwhile.
            unsafe { combine(element, operation, address, brought.as_ptr(), brought.len()) };
            Ok(())
        };
        if !few || !atomic::is_possible(element, address) {
            return self.exclusively(AccumulateLength::Long, work);
        }
        self.through_gate(work, || {
            // SAFETY: the check above says that it is possible; range and operation were checked.
            unsafe {
                atomic::accumulate(element, operation, address, brought.as_ptr(), back, brought.len());
            }
        })
    }

    /// Writes `new` if the part holds `compare`, and stores the old value in `result`.
    pub(super) fn swap(
        &self,
        offset: i64,
        element: Element,
        compare: &[u8],
        new: &[u8],
        result: &mut [u8],
    ) -> Result<(), Error> {
        if self.peer.base.is_null() {
            return self.exclusively(AccumulateLength::Long, || {
                self.read(offset, result)?;
                if result == compare { self.write(offset, new) } else { Ok(()) }
            });
        }
        let address = self.address(offset);
        let back = result.as_mut_ptr();
        let plainly = || {
            // SAFETY: `back` is the start of `result`; of this closure and the other user of `back` only one
            // runs.
            let result = unsafe { std::slice::from_raw_parts_mut(back, compare.len()) };
            // SAFETY: the range was checked; no other rank combines here meanwhile.
            unsafe { compare_and_swap(address, compare, new, result) };
            Ok(())
        };
        if !atomic::is_possible(element, address) {
            return self.exclusively(AccumulateLength::Long, plainly);
        }
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        self.through_gate(plainly, || {
            // SAFETY: the check above says that it is possible; the range was checked.
            let before = unsafe { atomic::compare_and_swap(element, address, word(compare), word(new)) };
            // SAFETY: as in `plainly`.
            unsafe { std::ptr::copy(before.to_le_bytes().as_ptr(), back, compare.len()) };
        })
    }

    /// Reads, combines and writes back the memory of another process.
    fn accumulate_remote(
        &self,
        offset: i64,
        element: Element,
        operation: Operation,
        brought: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let mut there = vec![0; brought.len()];
        self.read(offset, &mut there)?;
        if let Some(result) = result {
            result.copy_from_slice(&there);
        }
        // SAFETY: two slices of equal length; the operation was checked.
        unsafe { combine(element, operation, there.as_mut_ptr(), brought.as_ptr(), there.len()) };
        if operation == Operation::NoOp { Ok(()) } else { self.write(offset, &there) }
    }

    #[inline]
    fn gate(&self) -> TargetGate<'_> {
        let line = self.region.gate(self.target);
        TargetGate {
            one_by_one: line.word(0),
            sleepers: line.word(1),
            holder: line.word(2),
            shorts: line.word(3),
            presence: self.region.presence(self.me).word(10),
            target: self.target as u32,
            wakeups: self.wakeups,
        }
    }

    /// Runs `beside` side by side with other ranks, or `work` while no other rank accumulates, as the gate's
    /// state requires.
    #[inline]
    fn through_gate(
        &self,
        work: impl FnOnce() -> Result<(), Error>,
        beside: impl FnOnce(),
    ) -> Result<(), Error> {
        if self.alone {
            return work();
        }
        let gate = self.gate();
        loop {
            if !gate.is_one_by_one() && gate.try_enter() {
                beside();
                gate.leave();
                return Ok(());
            }
            self.take(&gate)?;
            if gate.is_one_by_one() {
                let done = work();
                self.unlock(&gate, AccumulateLength::Short);
                return done;
            }
            // Another rank has turned the gate back while this rank waited for the lock.
            self.unlock(&gate, AccumulateLength::Long);
        }
    }

    /// Runs `work` while no other rank accumulates at the target.
    #[inline]
    pub(super) fn exclusively(
        &self,
        length: AccumulateLength,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.alone {
            return work();
        }
        let gate = self.gate();
        self.take(&gate)?;
        if !gate.is_one_by_one() {
            gate.turn();
            let inside = self.await_leavers(&gate);
            if inside.is_err() {
                self.unlock(&gate, length);
                return inside;
            }
        }
        let done = work();
        self.unlock(&gate, length);
        done
    }

    #[inline]
    fn take(&self, gate: &TargetGate<'_>) -> Result<(), Error> {
        if gate.try_lock(self.me as u32) { Ok(()) } else { self.await_lock(gate) }
    }

    #[inline]
    fn unlock(&self, gate: &TargetGate<'_>, passed: AccumulateLength) {
        if gate.unlock(passed) {
            futex::wake(gate.holder, WakeCount::All, Scope::Shared);
        }
    }

    #[cold]
    fn await_lock(&self, gate: &TargetGate<'_>) -> Result<(), Error> {
        let (start, mut asleep) = (ticks(), Duration::ZERO);
        let taken = self.lock_slow(gate, &mut asleep);
        self.waits.note(ticks().since(start).to_duration(), asleep);
        taken
    }

    fn lock_slow(&self, gate: &TargetGate<'_>, asleep: &mut Duration) -> Result<(), Error> {
        let me = self.me as u32;
        if !self.host.crowded && poll_briefly(POLLS, || gate.try_lock(me)) {
            return Ok(());
        }
        gate.announce_sleeper();
        let taken = loop {
            if gate.try_lock(me) {
                break Ok(());
            }
            let holder = gate.holder.load(Ordering::Relaxed);
            if holder != 0 {
                let before = now();
                futex::wait(gate.holder, holder, Some(before + MAX_SLEEP), Scope::Shared);
                *asleep += now() - before;
                if let Some(gone) = self.host.gone_member() {
                    break Err(gone.into());
                }
            }
        };
        gate.sleepers.fetch_sub(1, Ordering::Relaxed);
        taken
    }

    /// Waits until every rank has left the gate. A rank inside leaves after a few instructions, unless it has
    /// lost its core.
    #[cold]
    fn await_leavers(&self, gate: &TargetGate<'_>) -> Result<(), Error> {
        let (start, mut asleep) = (ticks(), Duration::ZERO);
        let left = self.see_off(gate, &mut asleep);
        self.waits.note(ticks().since(start).to_duration(), asleep);
        left
    }

    fn see_off(&self, gate: &TargetGate<'_>, asleep: &mut Duration) -> Result<(), Error> {
        for rank in (0..self.region.plan.offsets.len()).filter(|rank| *rank != self.me) {
            let presence = self.region.presence(rank).word(10);
            while gate.holds(presence) {
                *asleep += sleep_at(presence);
                if gate.holds(presence)
                    && let Some(gone) = self.host.gone_member()
                {
                    return Err(gone.into());
                }
            }
        }
        Ok(())
    }
}

/// The number of polls before a waiter sleeps until ranks have left the gate: a rank inside executes a few
/// instructions, so it has left after one transfer of the line, or it has lost its core. An
/// [`InitialPoll`](unisono_sync::InitialPoll) makes as many polls, for the same reason.
const GATE_POLLS: u32 = 64;
/// The longest sleep until a rank has left the gate: leaving wakes no waiter, so the sleep ends by itself. A
/// rank that has lost its core gets it back after a slice of 2 to 4 ms. A longer sleep delays the waiter by
/// as much; a shorter one wakes it in vain.
const MAX_GATE_SLEEP: Duration = Duration::from_millis(1);

/// Sleeps while `word` stays as it is, for at most [`MAX_GATE_SLEEP`]. Returns the time that it slept.
fn sleep_at(word: &AtomicU32) -> Duration {
    let seen = word.load(Ordering::Relaxed);
    if poll_briefly(GATE_POLLS, || word.load(Ordering::Relaxed) != seen) {
        return Duration::ZERO;
    }
    let before = now();
    futex::wait(word, seen, Some(before + MAX_GATE_SLEEP), Scope::Shared);
    now() - before
}
