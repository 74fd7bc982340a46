//! Operations on many blocks of a part that is reached through the kernel.
//!
//! The idea: a system call takes up to [`MAX_RANGES`] blocks, and an accumulate reads that many, combines
//! them and writes them back. Blocks are visited by their addresses, unless two of them overlap: then the
//! order of travel decides what the target has at the end. Blocks that lie close together are read with the
//! gaps between them, because a copy of a gap costs less than one more range; gaps are never written. Cost:
//! two system calls for 1024 blocks, and 0.3 us for each block that is written. When not to use: for a single
//! block, or if the target can apply the blocks itself (`staging`).

use super::MappedPath;
use super::execute::TargetPart;
use super::gate::AccumulateLength;
use super::staging::{Head, MAX_STAGED_BYTES};
use crate::memory::combine::combine;
use crate::memory::cursor::walk;
use crate::memory::op::Op;
use crate::model::{Element, Error, Operation, Rank, Verb};
use std::borrow::Cow;
use unisono_linux::process_vm::{self, MAX_RANGES, RemoteRange};

/// The bytes after which a batch ends: they and their result stay in a cache of the second level, and others
/// do not wait long for the gate. Chosen, not measured.
const MAX_BATCH_BYTES: usize = 128 << 10;
/// Ranges are read with their gaps if both together are at most this many times as long. A range costs as
/// much as a copy of about a kilobyte. Chosen, not measured.
const MAX_SPREAD: usize = 8;

/// A block of the target's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartBlock {
    /// Bytes from the start of the part.
    pub(super) offset: i64,
    pub(super) bytes: usize,
    /// The position of the block in the data.
    pub(super) at: usize,
}

impl PartBlock {
    fn data(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.bytes
    }

    fn are_in_order(blocks: &[Self]) -> bool {
        blocks.is_sorted_by(|a, b| a.offset + a.bytes as i64 <= b.offset)
    }

    /// Sorts the blocks by their addresses. If two of them overlap, they stay as they are. Returns whether
    /// none overlap.
    fn sort(blocks: &mut Vec<Self>) -> bool {
        if Self::are_in_order(blocks) {
            return true;
        }
        let mut sorted = blocks.clone();
        sorted.sort_unstable_by_key(|block| block.offset);
        let is_in_order = Self::are_in_order(&sorted);
        if is_in_order {
            *blocks = sorted;
        }
        is_in_order
    }

    /// Returns the data of blocks, one after the other: as it is in `brought` if the blocks are in the order
    /// of travel.
    fn gather<'a>(blocks: &[Self], brought: &'a [u8]) -> Cow<'a, [u8]> {
        let follows = |pair: &[Self]| pair[0].data().end == pair[1].at;
        match (blocks.first(), blocks.last()) {
            (Some(first), Some(last)) if blocks.windows(2).all(follows) => {
                Cow::Borrowed(&brought[first.at..last.data().end])
            }
            _ => {
                let mut data = Vec::new();
                blocks.iter().for_each(|block| data.extend_from_slice(&brought[block.data()]));
                Cow::Owned(data)
            }
        }
    }

    /// Returns the number of the first blocks that one batch takes.
    fn batch(blocks: &[Self]) -> usize {
        let mut bytes = 0;
        let fits = |block: &&Self| {
            bytes += block.bytes;
            bytes <= MAX_BATCH_BYTES
        };
        blocks.iter().take(MAX_RANGES).take_while(fits).count().max(1)
    }
}

/// The way in which blocks change or are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockAccess {
    Put,
    Get,
    Accumulate(Element, Operation),
}

/// Staged entries that are done together, because they are alike.
#[derive(Debug, Default)]
pub(super) struct AlikeEntries {
    how: Option<(Element, Operation)>,
    blocks: Vec<PartBlock>,
    data: Vec<u8>,
}

impl AlikeEntries {
    /// Adds an entry; returns false if it is long, or if its operation differs from the operation of the
    /// present entries.
    pub(super) fn add(&mut self, head: Head, data: &[u8]) -> bool {
        let is_alike = self.blocks.is_empty() || self.how == head.how;
        let takes = is_alike && head.length <= MAX_STAGED_BYTES;
        if takes {
            self.how = head.how;
            self.blocks.push(PartBlock { offset: head.offset, bytes: head.length, at: self.data.len() });
            self.data.extend_from_slice(data);
        }
        takes
    }
}

impl MappedPath {
    /// Does the entries at a target that is reached through the kernel, and removes them.
    pub(super) fn execute_alike(&self, target: usize, entries: &mut AlikeEntries) -> Result<(), Error> {
        let AlikeEntries { how, blocks, data } = std::mem::take(entries);
        if let [] | [_] = blocks[..] {
            let only = blocks.first().map(|block| Head { how, offset: block.offset, length: block.bytes });
            return only.map_or(Ok(()), |head| self.execute_entry(target, head, &data));
        }
        let verb = if how.is_none() { Verb::Put } else { Verb::Accumulate };
        self.by_kernel.count(verb, data.len() as u64);
        let access =
            how.map_or(BlockAccess::Put, |(element, operation)| BlockAccess::Accumulate(element, operation));
        self.part(target).access_blocks(access, blocks, &data, None)
    }
}

impl TargetPart<'_> {
    /// Does an operation on the blocks of a layout. It is no compare-and-swap.
    pub(super) fn perform_scattered(
        &self,
        op: &Op,
        brought: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let (mut blocks, mut splits) = (Vec::new(), false);
        walk(&op.layout, op.count, std::ptr::null_mut(), 0, op.total, |block, from, to| {
            let offset = op.offset.wrapping_add(block as isize as i64);
            splits |= op.element.is_some_and(|element| !(to - from).is_multiple_of(element.size()));
            blocks.push(PartBlock { offset, bytes: to - from, at: from });
        });
        if splits {
            return Err(Error::Type("a block of the layout splits an element".to_owned()));
        }
        let access = match (op.verb, op.element, op.operation) {
            (Verb::Put, ..) => BlockAccess::Put,
            (Verb::Get, ..) => BlockAccess::Get,
            (_, Some(element), Some(operation)) => BlockAccess::Accumulate(element, operation),
            _ => return Ok(()),
        };
        self.access_blocks(access, blocks, brought, result)
    }

    /// Does an operation on blocks, whose data is in `brought`, and stores the old values in `result`.
    pub(super) fn access_blocks(
        &self,
        access: BlockAccess,
        mut blocks: Vec<PartBlock>,
        brought: &[u8],
        mut result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let is_in_order = PartBlock::sort(&mut blocks);
        if let (BlockAccess::Accumulate(element, operation), false) = (access, is_in_order) {
            return blocks.iter().try_for_each(|block| {
                let back = result.as_deref_mut().map(|result| &mut result[block.data()]);
                self.accumulate(block.offset, (element, operation), &brought[block.data()], back)
            });
        }
        let mut rest = blocks.as_slice();
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(PartBlock::batch(rest));
            rest = later;
            self.access_batch(access, batch, brought, result.as_deref_mut())?;
        }
        Ok(())
    }

    fn access_batch(
        &self,
        access: BlockAccess,
        batch: &[PartBlock],
        brought: &[u8],
        mut result: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let data = || PartBlock::gather(batch, brought);
        let mut store = |block: &PartBlock, bytes: &[u8]| {
            if let Some(result) = &mut result {
                result[block.data()].copy_from_slice(bytes);
            }
        };
        match access {
            BlockAccess::Put => self.write_batch(batch, &data()),
            BlockAccess::Get => self.read_batch(batch, store),
            BlockAccess::Accumulate(element, operation) => {
                let brought = data();
                self.exclusively(AccumulateLength::Long, || {
                    let mut there = Vec::with_capacity(brought.len());
                    self.read_batch(batch, |block, bytes| {
                        there.extend_from_slice(bytes);
                        store(block, bytes);
                    })?;
                    if operation == Operation::NoOp {
                        return Ok(());
                    }
                    // SAFETY: two slices of equal length; the operation was checked.
                    unsafe { combine(element, operation, there.as_mut_ptr(), brought.as_ptr(), there.len()) };
                    self.write_batch(batch, &there)
                })
            }
        }
    }

    /// Returns the ranges of a batch's blocks.
    fn ranges(&self, batch: &[PartBlock]) -> Vec<RemoteRange> {
        let mut ranges: Vec<RemoteRange> = Vec::with_capacity(batch.len());
        for block in batch {
            let address = self.remote(block.offset);
            match ranges.last_mut() {
                Some(last) if last.address + last.bytes == address => last.bytes += block.bytes,
                _ => ranges.push(RemoteRange { address, bytes: block.bytes }),
            }
        }
        ranges
    }

    /// Reads blocks, and calls `visit` with each of them and its bytes, in their order.
    fn read_batch(&self, batch: &[PartBlock], mut visit: impl FnMut(&PartBlock, &[u8])) -> Result<(), Error> {
        let bytes = batch.iter().map(|block| block.bytes).sum();
        let process = self.host.memory_of(Rank::at(self.target))?;
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
        let span = usize::try_from(last.offset + last.bytes as i64 - first.offset).unwrap_or(usize::MAX);
        if span > MAX_SPREAD * bytes || !PartBlock::are_in_order(batch) {
            let mut there = vec![0; bytes];
            let read = process_vm::read_ranges(process, &self.ranges(batch), &mut there);
            read.map_err(|source| self.failed(source))?;
            let mut at = 0;
            for block in batch {
                visit(block, &there[at..at + block.bytes]);
                at += block.bytes;
            }
            return Ok(());
        }
        let mut all = vec![0; span];
        let read = process_vm::read(process, self.remote(first.offset), &mut all);
        read.map_err(|source| self.failed(source))?;
        for block in batch {
            let from = (block.offset - first.offset) as usize;
            visit(block, &all[from..from + block.bytes]);
        }
        Ok(())
    }

    fn write_batch(&self, batch: &[PartBlock], bytes: &[u8]) -> Result<(), Error> {
        let process = self.host.memory_of(Rank::at(self.target))?;
        // SAFETY: the ranges lie inside the part that its owner announced and guarantees; the call checks
        // that the owner lives.
        let written = unsafe { process_vm::write_ranges(process, &self.ranges(batch), bytes) };
        written.map_err(|source| self.failed(source))
    }
}
