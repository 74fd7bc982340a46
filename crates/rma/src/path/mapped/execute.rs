//! An operation on memory that is in reach: mapped, or another process's through the kernel.

use super::region::Region;
use super::staging::Head;
use super::{LockHeld, MappedPath, MappedPeer};
use crate::host::HostMembers;
use crate::memory::copy::copy;
use crate::memory::cursor::walk;
use crate::memory::op::Op;
use crate::model::{Error, Lock, Rank, Verb, WaitCell};
use rustix::io::Errno;
use std::borrow::Cow;
use std::io::ErrorKind;
use unisono_linux::process_vm;
use unisono_sync::Wakeups;

/// The number of bytes up to which a copy through /proc/PID/mem, which stays open, is faster than
/// process_vm_readv(2), which looks up the process in each call (`unisono_linux::process_vm` has the
/// figures).
const HELD: usize = 4096;

impl MappedPath {
    /// Does an operation whose target is in its epoch.
    pub(super) fn execute(&self, target: usize, op: &Op) -> Result<(), Error> {
        let part = self.part(target);
        if part.peer.base.is_null() {
            self.by_kernel.count(op.verb, op.total);
        }
        let brought = if op.verb == Verb::Get { Cow::Borrowed(&[][..]) } else { op.bytes() };
        let brought = brought.as_ref();
        let Some(back) = &op.back else { return part.perform(op, brought, None) };
        if back.layout.is_contiguous() {
            // SAFETY: the raw layer requires a sink that is writable until the operation is complete; `agree`
            // has compared the amounts.
            let result = unsafe { std::slice::from_raw_parts_mut(back.address, op.total as usize) };
            return part.perform(op, brought, Some(result));
        }
        let mut result = vec![0; op.total as usize];
        part.perform(op, brought, Some(&mut result))?;
        back.write(0, &result);
        Ok(())
    }

    pub(super) fn execute_entry(&self, target: usize, head: Head, data: &[u8]) -> Result<(), Error> {
        let part = self.part(target);
        if part.peer.base.is_null() {
            let verb = if head.how.is_none() { Verb::Put } else { Verb::Accumulate };
            self.by_kernel.count(verb, head.length as u64);
        }
        match head.how {
            None => part.write(head.offset, data),
            Some(how) => part.accumulate(head.offset, how, data, None),
        }
    }

    #[inline]
    pub(super) fn part(&self, target: usize) -> TargetPart<'_> {
        TargetPart {
            region: &self.region,
            host: &self.host,
            me: self.me,
            target,
            peer: &self.peers[target],
            wakeups: self.wakeups,
            waits: &self.gate_waits,
            alone: self.peers[target].held == LockHeld::Lock(Lock::Exclusive),
        }
    }
}

/// A target's part, for accesses by this member.
pub(super) struct TargetPart<'a> {
    pub(super) region: &'a Region,
    pub(super) host: &'a HostMembers,
    pub(super) me: usize,
    pub(super) target: usize,
    pub(super) peer: &'a MappedPeer,
    pub(super) wakeups: Wakeups,
    pub(super) waits: &'a WaitCell,
    /// Whether no other rank can accumulate here.
    pub(super) alone: bool,
}

impl TargetPart<'_> {
    fn perform(&self, op: &Op, brought: &[u8], mut result: Option<&mut [u8]>) -> Result<(), Error> {
        let is_scattered = !op.layout.is_contiguous() && op.verb != Verb::CompareAndSwap;
        if is_scattered && self.peer.base.is_null() {
            return self.perform_scattered(op, brought, result);
        }
        let mut done = Ok(());
        // With a null base the address of a block is its offset.
        walk(&op.layout, op.count, std::ptr::null_mut(), 0, op.total, |block, from, to| {
            if done.is_err() {
                return;
            }
            let offset = op.offset.wrapping_add(block as isize as i64);
            let back = result.as_deref_mut().map(|result| &mut result[from..to]);
            done = match (op.verb, op.element, op.operation) {
                (Verb::Put, ..) => self.write(offset, &brought[from..to]),
                (Verb::Get, ..) => back.map_or(Ok(()), |back| self.read(offset, back)),
                (Verb::CompareAndSwap, Some(element), _) => {
                    let (compare, new) = brought.split_at(op.total as usize);
                    back.map_or(Ok(()), |back| self.swap(offset, element, compare, new, back))
                }
                (_, Some(element), Some(operation)) => {
                    self.accumulate(offset, (element, operation), &brought[from..to], back)
                }
                _ => Ok(()),
            };
        });
        done
    }

    #[inline]
    pub(super) fn address(&self, offset: i64) -> *mut u8 {
        self.peer.base.wrapping_offset(offset as isize)
    }

    pub(super) fn remote(&self, offset: i64) -> usize {
        self.peer.address.wrapping_add_signed(offset) as usize
    }

    /// Returns the error for a copy that failed. An open /proc/PID/mem reads and writes nothing once its
    /// process has ended or has executed another program; process_vm_readv(2) reports a process that has
    /// ended as unknown, and a process that has executed another program by a bad address.
    #[cold]
    pub(super) fn failed(&self, source: std::io::Error) -> Error {
        let rank = Rank::at(self.target);
        let is_end = |kind| matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::WriteZero);
        let is_empty = || {
            let memory = self.host.memory(rank);
            let read = memory.map(|memory| memory.read(self.remote(0), &mut [0]));
            read.is_some_and(|read| read.is_err_and(|error| is_end(error.kind())))
        };
        let has_ended = is_end(source.kind())
            || match Errno::from_io_error(&source) {
                Some(Errno::SRCH) => true,
                Some(Errno::FAULT) => is_empty(),
                _ => false,
            };
        if has_ended {
            return self.host.lost(rank);
        }
        let process = self.host.process(rank);
        Error::system(format!("cannot access the memory of rank {rank} (process {process})"))(source)
    }

    /// Returns the target's open /proc/PID/mem, if there is one and it is the faster way for this length.
    #[inline]
    fn held(&self, bytes: usize) -> Option<&process_vm::HeldMemory> {
        if bytes <= HELD { self.host.memory(Rank::at(self.target)) } else { None }
    }

    pub(super) fn write(&self, offset: i64, bytes: &[u8]) -> Result<(), Error> {
        if self.peer.base.is_null() {
            let address = self.remote(offset);
            let written = if let Some(memory) = self.held(bytes.len()) {
                // SAFETY: the range lies inside the part that its owner announced and guarantees.
                unsafe { memory.write(address, bytes) }
            } else {
                let process = self.host.memory_of(Rank::at(self.target))?;
                // SAFETY: the range lies inside the announced part; the call checks that its owner lives.
                unsafe { process_vm::write(process, address, bytes) }
            };
            return written.map_err(|source| self.failed(source));
        }
        // SAFETY: the range lies inside the mapped part; a program may put a window onto itself, so `copy`
        // allows that the two overlap.
        unsafe { copy(bytes.as_ptr(), self.address(offset), bytes.len()) };
        Ok(())
    }

    pub(super) fn read(&self, offset: i64, into: &mut [u8]) -> Result<(), Error> {
        if self.peer.base.is_null() {
            let address = self.remote(offset);
            let read = if let Some(memory) = self.held(into.len()) {
                memory.read(address, into)
            } else {
                process_vm::read(self.host.memory_of(Rank::at(self.target))?, address, into)
            };
            return read.map_err(|source| self.failed(source));
        }
        // SAFETY: as in `write`.
        unsafe { copy(self.address(offset), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Does an operation that another member staged for this part, which is this member's own and has `bytes`
    /// bytes. Ignores an entry that reaches outside the part.
    #[inline]
    pub(super) fn apply(&self, head: Head, data: *const u8, bytes: u64) {
        let end = u64::try_from(head.offset).ok().and_then(|offset| offset.checked_add(head.length as u64));
        if end.is_none_or(|end| end > bytes) {
            return;
        }
        let Some(how) = head.how else {
            // SAFETY: the range lies inside this member's own part, and the entry inside the ring.
            unsafe { copy(data, self.address(head.offset), head.length) };
            return;
        };
        // SAFETY: `StagingReader::next` has limited the entry to the ring.
        let data = unsafe { std::slice::from_raw_parts(data, head.length) };
        // This member's own part is always mapped, so there can be no error.
        let _ = self.accumulate(head.offset, how, data, None);
    }
}
