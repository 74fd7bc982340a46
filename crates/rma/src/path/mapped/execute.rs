//! An operation on memory that is in reach: mapped, or another process's through the kernel.

use super::region::Region;
use super::staging::Head;
use super::{Held, MappedPath, MappedPeer};
use crate::host::Host;
use crate::memory::copy::copy;
use crate::memory::cursor::walk;
use crate::memory::op::Op;
use crate::model::{Element, Error, Lock, Noted, Operation, Rank, Verb};
use rustix::io::Errno;
use std::io::ErrorKind;
use unisono_linux::process_vm;
use unisono_sync::Wakeups;

/// Up to this length (bytes) a copy through the held memory is faster than a call that has to look the
/// process up.
const HELD: usize = 4096;

impl MappedPath {
    /// Does an operation whose target is in its epoch.
    pub(super) fn execute(&self, target: usize, op: &Op) -> Result<(), Error> {
        let place = self.place(target);
        if place.peer.base.is_null() {
            self.by_kernel.count(op.verb, op.total);
        }
        let copied;
        let brought: &[u8] = match (op.verb, op.data.slice(op.total)) {
            (Verb::Get, _) => &[],
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
            unsafe { copy(data, into, head.length) };
            return;
        }
        // SAFETY: the entry lies in the ring, its length limited to it.
        let data = unsafe { std::slice::from_raw_parts(data, head.length) };
        // This member's own part is always mapped: no error is possible.
        let _ = self.enter(self.me, head, data);
    }

    /// Does a staged operation.
    pub(super) fn enter(&self, target: usize, head: Head, data: &[u8]) -> Result<(), Error> {
        let place = self.place(target);
        if place.peer.base.is_null() {
            let verb = if head.how.is_none() { Verb::Put } else { Verb::Accumulate };
            self.by_kernel.count(verb, head.length as u64);
        }
        match head.how {
            None => place.write(head.place, data),
            Some(how) => place.accumulate(head.place, how, data, None),
        }
    }

    /// Combines with a target that is in its epoch, nothing being staged or queued before it.
    #[inline]
    pub(crate) fn combine(
        &self,
        target: usize,
        place: i64,
        how: (Element, Operation),
        brought: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        self.place(target).accumulate(place, how, brought, result)
    }

    /// A target's part.
    #[inline]
    pub(super) fn place(&self, target: usize) -> TargetPart<'_> {
        TargetPart {
            region: &self.region,
            host: &self.host,
            me: self.me,
            target,
            peer: &self.peers[target],
            wakeups: self.wakeups,
            waits: &self.gate_waits,
        }
    }
}

/// A target's part, as one member reaches it.
pub(super) struct TargetPart<'a> {
    pub(super) region: &'a Region,
    pub(super) host: &'a Host,
    pub(super) me: usize,
    pub(super) target: usize,
    pub(super) peer: &'a MappedPeer,
    pub(super) wakeups: Wakeups,
    pub(super) waits: &'a Noted,
}

impl TargetPart<'_> {
    fn perform(&self, op: &Op, brought: &[u8], mut result: Option<&mut [u8]>) -> Result<(), Error> {
        let mut done = Ok(());
        // Blocks are visited as places relative to a null base.
        walk(&op.layout, op.count, std::ptr::null_mut(), 0, op.total, |offset, from, to| {
            if done.is_err() {
                return;
            }
            let place = op.place.wrapping_add(offset as isize as i64);
            let back = result.as_deref_mut().map(|result| &mut result[from..to]);
            done = match (op.verb, op.element, op.operation) {
                (Verb::Put, ..) => self.write(place, &brought[from..to]),
                (Verb::Get, ..) => back.map_or(Ok(()), |back| self.read(place, back)),
                (Verb::CompareAndSwap, Some(element), _) => {
                    let (compare, new) = brought.split_at(op.total as usize);
                    back.map_or(Ok(()), |back| self.swap(place, element, compare, new, back))
                }
                (_, Some(element), Some(operation)) => {
                    self.accumulate(place, (element, operation), &brought[from..to], back)
                }
                _ => Ok(()),
            };
        });
        done
    }

    #[inline]
    pub(super) fn address(&self, place: i64) -> *mut u8 {
        self.peer.base.wrapping_offset(place as isize)
    }

    fn remote(&self, place: i64) -> usize {
        self.peer.address.wrapping_add_signed(place) as usize
    }

    /// Why a copy did not come about. Memory that was held on to belongs to nobody any more when its process
    /// has ended or has executed another program; the kernel knows no process of that number when it has just
    /// ended.
    #[cold]
    fn failed(&self, source: std::io::Error) -> Error {
        let rank = Rank::at(self.target);
        let has_ended = matches!(source.kind(), ErrorKind::UnexpectedEof | ErrorKind::WriteZero)
            || Errno::from_io_error(&source) == Some(Errno::SRCH);
        if has_ended {
            return self.host.lost(rank);
        }
        let process = self.host.process(rank);
        Error::system(format!("cannot access the memory of rank {rank} (process {process})"))(source)
    }

    /// The target's memory, if it is held on to and the faster way for this length.
    #[inline]
    fn held(&self, bytes: usize) -> Option<&process_vm::Held> {
        if bytes <= HELD { self.host.memory(Rank::at(self.target)) } else { None }
    }

    pub(super) fn write(&self, place: i64, bytes: &[u8]) -> Result<(), Error> {
        if self.peer.base.is_null() {
            let address = self.remote(place);
            let written = if let Some(memory) = self.held(bytes.len()) {
                // SAFETY: the range was checked against the part that its owner announced and vouched for.
                unsafe { memory.write(address, bytes) }
            } else {
                let process = self.host.number_of_living(Rank::at(self.target))?;
                // SAFETY: as above; the number still is that owner's, as was just asked.
                unsafe { process_vm::write(process, address, bytes) }
            };
            return written.map_err(|source| self.failed(source));
        }
        // SAFETY: the range was checked against the mapped part; a caller may put a window onto itself, so
        // the two may overlap.
        unsafe { copy(bytes.as_ptr(), self.address(place), bytes.len()) };
        Ok(())
    }

    pub(super) fn read(&self, place: i64, into: &mut [u8]) -> Result<(), Error> {
        if self.peer.base.is_null() {
            let address = self.remote(place);
            let read = if let Some(memory) = self.held(into.len()) {
                memory.read(address, into)
            } else {
                let process = self.host.number_of_living(Rank::at(self.target))?;
                process_vm::read(process, address, into)
            };
            return read.map_err(|source| self.failed(source));
        }
        // SAFETY: as in `write`.
        unsafe { copy(self.address(place), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Whether nobody else can be accumulating here.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.peer.held == Held::Lock(Lock::Exclusive)
    }
}
