//! Operations on many blocks of a part that is reached through the kernel.
//!
//! The idea: a system call takes up to [`MAX_RANGES`] blocks, and an accumulate reads that many, combines
//! them and writes them back. Blocks that lie close together are read with the gaps between them, because a
//! copy of a gap costs less than one more range; gaps are never written. Cost: two system calls for 1024
//! blocks, and 0.3 us for each block. When not to use: for a single block.

use super::execute::TargetPart;
use super::gate::AccumulateLength;
use crate::memory::combine::combine;
use crate::memory::cursor::walk;
use crate::memory::op::Op;
use crate::model::{Element, Error, Operation, Rank, Verb};
use unisono_linux::process_vm::{self, MAX_RANGES, RemoteRange};

/// The bytes after which a batch ends: they and their result stay in a cache of the second level, and others
/// do not wait long for the gate. Chosen, not measured.
const MAX_BATCH_BYTES: usize = 128 << 10;
/// Ranges are read with their gaps if both together are at most this many times as long. A range costs as
/// much as a copy of about a kilobyte. Chosen, not measured.
const MAX_SPREAD: usize = 8;

/// Blocks that one system call transfers.
#[derive(Default)]
struct RangeBatch {
    ranges: Vec<RemoteRange>,
    /// The position of the first block in the data.
    start: usize,
    bytes: usize,
}

impl RangeBatch {
    fn is_full(&self, more: usize) -> bool {
        self.ranges.len() == MAX_RANGES || (self.bytes > 0 && self.bytes + more > MAX_BATCH_BYTES)
    }

    fn add(&mut self, address: usize, bytes: usize) {
        self.bytes += bytes;
        match self.ranges.last_mut() {
            Some(last) if last.address + last.bytes == address => last.bytes += bytes,
            _ => self.ranges.push(RemoteRange { address, bytes }),
        }
    }

    fn is_in_order(ranges: &[RemoteRange]) -> bool {
        ranges.is_sorted_by(|a, b| a.address + a.bytes <= b.address)
    }

    fn overlaps(&self) -> bool {
        !Self::is_in_order(&self.ranges) && {
            let mut sorted = self.ranges.clone();
            sorted.sort_unstable_by_key(|range| range.address);
            !Self::is_in_order(&sorted)
        }
    }

    /// Returns the range that has all blocks, if it is short and the blocks lie in order.
    fn span(&self) -> Option<RemoteRange> {
        let (first, last) = (self.ranges.first()?, self.ranges.last()?);
        let bytes = (last.address + last.bytes).checked_sub(first.address)?;
        let is_short = self.ranges.len() > 1 && bytes <= MAX_SPREAD * self.bytes;
        (is_short && Self::is_in_order(&self.ranges)).then_some(RemoteRange { address: first.address, bytes })
    }
}

impl TargetPart<'_> {
    /// Does an operation on the blocks of a layout. It is no compare-and-swap.
    pub(super) fn perform_scattered(
        &self,
        op: &Op,
        brought: &[u8],
        mut result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let (mut batch, mut done) = (RangeBatch::default(), Ok(()));
        walk(&op.layout, op.count, std::ptr::null_mut(), 0, op.total, |block, from, to| {
            if done.is_err() {
                return;
            }
            if op.element.is_some_and(|element| !(to - from).is_multiple_of(element.size())) {
                done = Err(Error::Type("a block of the layout splits an element".to_owned()));
                return;
            }
            if batch.is_full(to - from) {
                done = self.perform_batch(op, &batch, brought, result.as_deref_mut());
                batch.ranges.clear();
                (batch.start, batch.bytes) = (from, 0);
            }
            batch.add(self.remote(op.offset.wrapping_add(block as isize as i64)), to - from);
        });
        done?;
        self.perform_batch(op, &batch, brought, result)
    }

    fn perform_batch(
        &self,
        op: &Op,
        batch: &RangeBatch,
        brought: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let place = batch.start..batch.start + batch.bytes;
        let back = result.map(|result| &mut result[place.clone()]);
        match (op.verb, op.element, op.operation) {
            (Verb::Put, ..) => self.write_ranges(&batch.ranges, &brought[place]),
            (Verb::Get, ..) => back.map_or(Ok(()), |back| self.read_batch(batch, back)),
            (_, Some(element), Some(operation)) => {
                self.accumulate_batch(batch, (element, operation), &brought[place], back)
            }
            _ => Ok(()),
        }
    }

    fn accumulate_batch(
        &self,
        batch: &RangeBatch,
        (element, operation): (Element, Operation),
        brought: &[u8],
        mut back: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        if batch.overlaps() {
            let mut at = 0;
            return batch.ranges.iter().try_for_each(|range| {
                let place = at..at + range.bytes;
                at += range.bytes;
                let offset = range.address.wrapping_sub(self.remote(0)) as i64;
                let back = back.as_deref_mut().map(|back| &mut back[place.clone()]);
                self.accumulate(offset, (element, operation), &brought[place], back)
            });
        }
        self.exclusively(AccumulateLength::Long, || {
            let mut there = vec![0; batch.bytes];
            self.read_batch(batch, &mut there)?;
            if let Some(back) = back {
                back.copy_from_slice(&there);
            }
            if operation == Operation::NoOp {
                return Ok(());
            }
            // SAFETY: two slices of equal length; the operation was checked.
            unsafe { combine(element, operation, there.as_mut_ptr(), brought.as_ptr(), there.len()) };
            self.write_ranges(&batch.ranges, &there)
        })
    }

    fn read_batch(&self, batch: &RangeBatch, into: &mut [u8]) -> Result<(), Error> {
        let Some(span) = batch.span() else {
            let process = self.host.memory_of(Rank::at(self.target))?;
            let read = process_vm::read_ranges(process, &batch.ranges, into);
            return read.map_err(|source| self.failed(source));
        };
        let mut all = vec![0; span.bytes];
        let process = self.host.memory_of(Rank::at(self.target))?;
        process_vm::read(process, span.address, &mut all).map_err(|source| self.failed(source))?;
        let mut at = 0;
        for range in &batch.ranges {
            let from = range.address - span.address;
            into[at..at + range.bytes].copy_from_slice(&all[from..from + range.bytes]);
            at += range.bytes;
        }
        Ok(())
    }

    fn write_ranges(&self, ranges: &[RemoteRange], bytes: &[u8]) -> Result<(), Error> {
        let process = self.host.memory_of(Rank::at(self.target))?;
        // SAFETY: the ranges lie inside the part that its owner announced and guarantees; the call checks
        // that the owner lives.
        let written = unsafe { process_vm::write_ranges(process, ranges, bytes) };
        written.map_err(|source| self.failed(source))
    }
}
