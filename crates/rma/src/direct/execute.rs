//! An operation on memory that is in reach: mapped, or another process's through the kernel.

use super::gate::Gate;
use super::region::Region;
use super::staging::Head;
use super::{Direct, Held, Peer, atomic};
use crate::combine::{combine, compare_and_swap};
use crate::cursor::walk;
use crate::element::Element;
use crate::error::Error;
use crate::op::Op;
use crate::operation::Operation;
use crate::packet::Kind;
use crate::rank::Rank;
use crate::window::Lock;
use unisono_linux::clock::{Nanos, now};
use unisono_linux::futex::{self, Count, Scope};
use unisono_linux::process_vm;
use unisono_sync::Wakeups;
use unisono_sync::atomics::Ordering;

/// Longer accumulates go through the gate alone, with vector instructions.
const BULK: usize = 8 << 10;

impl Direct {
    /// Does an operation whose target is in its epoch.
    pub(super) fn execute(&self, target: usize, op: &Op) -> Result<(), Error> {
        let peer = &self.peers[target];
        let place = Place { region: &self.region, me: self.me, target, peer, wakeups: self.wakeups };
        let copied;
        let brought: &[u8] = match (op.kind, op.data.slice(op.total)) {
            (Kind::Get, _) => &[],
            (_, Some(slice)) => slice,
            (_, None) => {
                let mut bytes = vec![0; op.total as usize];
                op.data.copy(0, &mut bytes);
                copied = bytes;
                &copied
            }
        };
        let Some(back) = &op.back else { return place.perform(op, brought, None) };
        if back.layout.is_contiguous() {
            // SAFETY: whoever issued the operation promised that its sink is writable; amounts agree.
            let result = unsafe { std::slice::from_raw_parts_mut(back.address, op.total as usize) };
            return place.perform(op, brought, Some(result));
        }
        let mut result = vec![0; op.total as usize];
        place.perform(op, brought, Some(&mut result))?;
        back.write(0, &result);
        Ok(())
    }

    /// Does what another staged for this member; an entry that cannot be right is left out.
    #[inline]
    pub(super) fn apply(&self, head: Head, data: *const u8, bytes: u64) {
        let end = u64::try_from(head.place).ok().and_then(|place| place.checked_add(head.length as u64));
        if end.is_none_or(|end| end > bytes) {
            return;
        }
        if head.how.is_none() {
            let into = self.peers[self.me].base.wrapping_offset(head.place as isize);
            // SAFETY: the range was checked against this member's own part, the entry lies in the ring.
            unsafe { crate::window::copy(data, into, head.length) };
            return;
        }
        // SAFETY: the entry lies in the ring, its length limited to it.
        let data = unsafe { std::slice::from_raw_parts(data, head.length) };
        // This member's own part is always mapped: no error is possible.
        let _ = self.enter(self.me, head, data);
    }

    /// Does a staged operation.
    pub(super) fn enter(&self, target: usize, head: Head, data: &[u8]) -> Result<(), Error> {
        let peer = &self.peers[target];
        let place = Place { region: &self.region, me: self.me, target, peer, wakeups: self.wakeups };
        match head.how {
            None => place.write(head.place, data),
            Some((element, operation)) => place.accumulate(head.place, element, operation, data, None),
        }
    }
}

/// A target's part, as one member reaches it.
struct Place<'a> {
    region: &'a Region,
    me: usize,
    target: usize,
    peer: &'a Peer,
    wakeups: Wakeups,
}

impl Place<'_> {
    fn perform(&self, op: &Op, brought: &[u8], mut result: Option<&mut [u8]>) -> Result<(), Error> {
        let mut done = Ok(());
        // Blocks are visited as places relative to a null base.
        walk(&op.layout, op.count, std::ptr::null_mut(), 0, op.total, |offset, from, to| {
            if done.is_err() {
                return;
            }
            let place = op.place.wrapping_add(offset as isize as i64);
            let back = result.as_deref_mut().map(|result| &mut result[from..to]);
            done = match (op.kind, op.element, op.operation) {
                (Kind::Put, ..) => self.write(place, &brought[from..to]),
                (Kind::Get, ..) => back.map_or(Ok(()), |back| self.read(place, back)),
                (Kind::CompareAndSwap, Some(element), _) => {
                    let (compare, new) = brought.split_at(op.total as usize);
                    back.map_or(Ok(()), |back| self.swap(place, element, compare, new, back))
                }
                (_, Some(element), Some(operation)) => {
                    self.accumulate(place, element, operation, &brought[from..to], back)
                }
                _ => Ok(()),
            };
        });
        done
    }

    fn address(&self, place: i64) -> *mut u8 {
        self.peer.base.wrapping_offset(place as isize)
    }

    fn remote(&self, place: i64) -> usize {
        self.peer.address.wrapping_add_signed(place) as usize
    }

    fn failed(&self) -> impl FnOnce(std::io::Error) -> Error {
        let (rank, process) = (Rank::at(self.target), self.peer.process);
        Error::system(format!("cannot access the memory of rank {rank} (process {process})"))
    }

    fn write(&self, place: i64, bytes: &[u8]) -> Result<(), Error> {
        if self.peer.base.is_null() {
            // SAFETY: the range was checked against the part that its owner announced and vouched for.
            let written = unsafe { process_vm::write(self.peer.process, self.remote(place), bytes) };
            return written.map_err(self.failed());
        }
        // SAFETY: the range was checked against the mapped part; a caller may put a window onto itself, so
        // the two may overlap.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.address(place), bytes.len()) };
        Ok(())
    }

    fn read(&self, place: i64, into: &mut [u8]) -> Result<(), Error> {
        if self.peer.base.is_null() {
            return process_vm::read(self.peer.process, self.remote(place), into).map_err(self.failed());
        }
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy(self.address(place), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Whether nobody else can be accumulating here.
    fn is_alone(&self) -> bool {
        self.peer.held == Held::Lock(Lock::Exclusive)
    }

    fn accumulate(
        &self,
        place: i64,
        element: Element,
        operation: Operation,
        brought: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        if !brought.len().is_multiple_of(element.size()) {
            return Err(Error::Type("a block of the layout splits an element".to_owned()));
        }
        if self.peer.base.is_null() {
            return self.alone(|| self.remotely(place, element, operation, brought, result));
        }
        let address = self.address(place);
        let back = result.map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr);
        let short = brought.len() <= BULK && atomic::is_possible(element, address);
        if short && !self.is_alone() {
            let gate = self.gate();
            while !gate.try_enter() {
                self.pause_at_gate()?;
            }
            // SAFETY: possible as just asked, range and operation were checked.
            unsafe {
                atomic::accumulate(element, operation, address, brought.as_ptr(), back, brought.len());
            }
            gate.leave();
            return Ok(());
        }
        self.alone(|| {
            if !back.is_null() {
                // SAFETY: the result is a slice of this length; the range was checked.
                unsafe { std::ptr::copy(address, back, brought.len()) };
            }
            // SAFETY: range and operation were checked; nobody else combines here.
            unsafe { combine(element, operation, address, brought.as_ptr(), brought.len()) };
            Ok(())
        })
    }

    /// Reads, combines and writes back the memory of another process.
    fn remotely(
        &self,
        place: i64,
        element: Element,
        operation: Operation,
        brought: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let mut there = vec![0; brought.len()];
        self.read(place, &mut there)?;
        if let Some(result) = result {
            result.copy_from_slice(&there);
        }
        // SAFETY: two slices of equal length; the operation was checked.
        unsafe { combine(element, operation, there.as_mut_ptr(), brought.as_ptr(), there.len()) };
        if operation == Operation::NoOp { Ok(()) } else { self.write(place, &there) }
    }

    fn swap(
        &self,
        place: i64,
        element: Element,
        compare: &[u8],
        new: &[u8],
        result: &mut [u8],
    ) -> Result<(), Error> {
        if self.peer.base.is_null() {
            return self.alone(|| {
                self.read(place, result)?;
                if result == compare { self.write(place, new) } else { Ok(()) }
            });
        }
        let address = self.address(place);
        if !atomic::is_possible(element, address) {
            // SAFETY: the range was checked; nobody else combines here.
            return self.alone(|| unsafe {
                compare_and_swap(address, compare, new, result);
                Ok(())
            });
        }
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let gate = self.gate();
        while !gate.try_enter() {
            self.pause_at_gate()?;
        }
        // SAFETY: possible as just asked; the range was checked.
        let before = unsafe { atomic::compare_and_swap(element, address, word(compare), word(new)) };
        gate.leave();
        result.copy_from_slice(&before.to_le_bytes()[..result.len()]);
        Ok(())
    }

    fn gate(&self) -> Gate<'_> {
        Gate {
            closed: self.region.gate(self.target).word(0),
            presence: self.region.presence(self.me).word(10),
            target: self.target as u32,
            wakeups: self.wakeups,
        }
    }

    /// Does something while nobody else accumulates at the target.
    fn alone<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.is_alone() {
            return work();
        }
        let gate = self.gate();
        while !gate.try_close(self.me as u32) {
            self.pause_at_gate()?;
        }
        let others = (0..self.region.plan.offsets.len()).filter(|rank| *rank != self.me);
        for rank in others {
            let presence = self.region.presence(rank).word(10);
            while gate.holds(presence) {
                // Inside it executes a few hundred instructions, unless it lost its core.
                nap(presence, presence.load(Ordering::Relaxed));
            }
        }
        let done = work();
        gate.open();
        let line = self.region.gate(self.target);
        // SYNC(gate-sleepers) fence: open before sleepers; who sleeps looks again by itself soon
        unisono_sync::atomics::fence(Ordering::SeqCst);
        if line.word(1).load(Ordering::Relaxed) != 0 {
            futex::wake(line.word(0), Count::All, Scope::Shared);
        }
        done
    }

    /// Waits a moment for a closed gate.
    #[cold]
    fn pause_at_gate(&self) -> Result<(), Error> {
        let line = self.region.gate(self.target);
        line.word(1).fetch_add(1, Ordering::Relaxed);
        // SYNC(gate-sleepers) fence: sleepers before closed
        unisono_sync::atomics::fence(Ordering::SeqCst);
        let closed = line.word(0).load(Ordering::Relaxed);
        if closed != 0 {
            nap(line.word(0), closed);
        }
        line.word(1).fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Sleeps while `word` stays as it is, a millisecond at most.
fn nap(word: &unisono_sync::atomics::AtomicU32, seen: u32) {
    for _ in 0..64 {
        if word.load(Ordering::Relaxed) != seen {
            return;
        }
        std::hint::spin_loop();
    }
    futex::wait(word, seen, Some(Nanos(1_000_000).after(now())), Scope::Shared);
}
