//! The way from a call to an operation: all checks, then the path.

use super::{Flavor, Window};
use crate::memory::op::{Back, Data, Op};
use crate::model::{Amount, Element, EpochKind, Error, Layout, Operation, Rank, Stats, Target, Verb};
use crate::path::mapped::MappedPath;

impl Window {
    /// Returns the offset of the access in the target's part, if the access stays inside the part.
    pub(crate) fn locate(&self, target: &Target<'_>) -> Result<i64, Error> {
        if self.flavor == Flavor::Dynamic {
            return Ok(target.displacement);
        }
        let part = self.parts[target.rank.index()];
        if target.displacement < 0 {
            return Err(Error::Disp(target.displacement));
        }
        let offset = i128::from(target.displacement) * i128::from(part.unit);
        let (low, high) = target.layout.bounds(target.count);
        let (start, end) = (offset + low, offset + high);
        if low < high && (start < 0 || end > i128::from(part.bytes)) {
            let (bytes, unit) = (part.bytes, part.unit);
            return Err(Error::Range { target: target.rank, start, end, bytes, unit });
        }
        // An offset inside a part fits into 63 bits. An offset that does not fit belongs to an access of no
        // bytes.
        Ok(i64::try_from(offset).unwrap_or(0))
    }

    /// Checks everything about an operation and does it, or queues it.
    pub(crate) fn issue(
        &mut self,
        call: &'static str,
        verb: Verb,
        how: Option<(Element, Operation)>,
        target: Target<'_>,
        data: Data,
        back: Option<Back>,
    ) -> Result<(), Error> {
        let reach = self.epochs.access(call, target.rank)?;
        let total = target.layout.total(target.count)?;
        if let Some((element, operation)) = how
            && verb != Verb::CompareAndSwap
            && total > 0
        {
            operation.check(element)?;
        }
        agree(&data, back.as_ref(), total, verb)?;
        let offset = self.locate(&target)?;
        if total == 0 {
            return Ok(());
        }
        self.epochs.issued(reach);
        self.count(reach, verb, total);
        let op = Op {
            verb,
            element: how.map(|(element, _)| element),
            operation: how.map(|(_, operation)| operation),
            offset,
            count: target.count,
            layout: target.layout.clone(),
            total,
            data,
            back,
        };
        let issued = self.path.issue(reach, target.rank, op);
        if matches!(issued, Err(Error::NotYet)) {
            self.discount(reach, verb, total);
        }
        issued
    }

    /// Returns the mapped path, the target's index and the offset in its part, if the window is on that path
    /// and `bytes` bytes from that offset on lie inside the part.
    #[inline]
    fn mapped_bytes(
        &mut self,
        bytes: usize,
        target: Rank,
        displacement: i64,
    ) -> Option<(&mut MappedPath, usize, u64)> {
        let path = self.path.mapped_mut()?;
        let start = self.parts.get(target.index())?.inside(bytes, displacement)?;
        Some((path, target.index(), start))
    }

    /// Counts an operation that was done at once. The kind of its epoch is known when the epoch ends.
    #[inline]
    fn count_direct(&mut self, verb: Verb, bytes: usize) {
        self.epochs.fence_operations += 1;
        self.issued.count(verb, bytes as u64);
    }

    /// Writes contiguous bytes at once. This is the common case: the target is mapped and known to be in its
    /// epoch, or the last put to it was staged in the same epoch. Returns false if nothing was done.
    #[inline]
    pub(crate) fn try_put_direct(
        &mut self,
        source: *const u8,
        bytes: usize,
        target: Rank,
        displacement: i64,
    ) -> bool {
        let Some((path, index, start)) = self.mapped_bytes(bytes, target, displacement) else { return false };
        // SAFETY: the caller of the public call promised a readable source; the range was checked.
        let done = unsafe { path.try_put_direct(index, start, source, bytes) };
        if done {
            self.count_direct(Verb::Put, bytes);
        }
        done
    }

    /// Reads contiguous bytes at once, in the same cases as [`try_put_direct`](Self::try_put_direct). Returns
    /// false if nothing was done.
    #[inline]
    pub(crate) fn try_get_direct(
        &mut self,
        sink: *mut u8,
        bytes: usize,
        target: Rank,
        displacement: i64,
    ) -> bool {
        let Some((path, index, start)) = self.mapped_bytes(bytes, target, displacement) else { return false };
        // SAFETY: the caller of the public call promised a writable sink; the range was checked.
        let done = unsafe { path.try_get_direct(index, start, sink, bytes) };
        if done {
            self.count_direct(Verb::Get, bytes);
        }
        done
    }

    /// Combines contiguous elements at once, as [`try_put_direct`](Self::try_put_direct) writes. The target's
    /// old values go to `result`, unless it is null.
    ///
    /// # Safety
    /// `bytes` bytes are readable at `source`, and writable at `result` or it is null.
    #[inline]
    pub(crate) unsafe fn try_accumulate_direct(
        &mut self,
        how: (Element, Operation),
        (source, result): (*const u8, *mut u8),
        bytes: usize,
        (target, displacement): (Rank, i64),
    ) -> Result<bool, Error> {
        let Some((path, index, start)) = self.mapped_bytes(bytes, target, displacement) else {
            return Ok(false);
        };
        if bytes == 0 || !how.1.is_defined_for(how.0) {
            return Ok(false);
        }
        // SAFETY: the caller promises that the source is readable.
        let brought = unsafe { std::slice::from_raw_parts(source, bytes) };
        let back = (!result.is_null()).then(|| {
            // SAFETY: the caller promises that the result is writable.
            unsafe { std::slice::from_raw_parts_mut(result, bytes) }
        });
        let done = path.try_accumulate_direct(index, start, how, brought, back)?;
        if done {
            let verb = if result.is_null() { Verb::Accumulate } else { Verb::GetAccumulate };
            self.count_direct(verb, bytes);
        }
        Ok(done)
    }

    /// Does a put that cannot be done directly. The put is staged if its data is contiguous (then
    /// `contiguous` has the bytes) and short; otherwise it is issued as an operation with `data`.
    #[inline(never)] // so that a put that is done directly is inlined into its caller
    pub(super) fn put_slow(
        &mut self,
        contiguous: &[u8],
        target: Target<'_>,
        data: impl FnOnce() -> Data,
    ) -> Result<(), Error> {
        if self.try_stage(contiguous, &target)? {
            return Ok(());
        }
        self.issue("put", Verb::Put, None, target, data(), None)
    }

    /// Stages a short contiguous put without building an [`Op`]. Returns false if it was not staged.
    #[inline]
    fn try_stage(&mut self, data: &[u8], target: &Target<'_>) -> Result<bool, Error> {
        if !self.path.is_mapped() || data.is_empty() {
            return Ok(false);
        }
        let reach = self.epochs.access("put", target.rank)?;
        let offset = self.locate(target)?;
        let Some(path) = self.path.mapped_mut() else { return Ok(false) };
        let staged = path.try_stage_put(reach, target.rank.index(), offset, data);
        if staged {
            self.epochs.issued(reach);
            self.issued.count(Verb::Put, data.len() as u64);
        }
        Ok(staged)
    }

    /// Counts an operation that is not done at once. The kind of its epoch is known already.
    fn count(&mut self, reach: EpochKind, verb: Verb, bytes: u64) {
        self.issued.count(verb, bytes);
        let amount = Amount { operations: 1, bytes };
        self.counted += amount;
        let stats = self.stats_of(reach);
        stats.operations += 1;
        stats.bytes += bytes;
    }

    /// Removes an operation from the counts, because the caller issues it again.
    fn discount(&mut self, reach: EpochKind, verb: Verb, bytes: u64) {
        self.issued.discount(verb, bytes);
        self.counted.operations -= 1;
        self.counted.bytes -= bytes;
        let stats = self.stats_of(reach);
        stats.operations -= 1;
        stats.bytes -= bytes;
    }

    pub(crate) fn stats_of(&mut self, reach: EpochKind) -> &mut Stats {
        match reach {
            EpochKind::Fence => &mut self.stats.fence,
            EpochKind::Started => &mut self.stats.pscw,
            EpochKind::Locked => &mut self.stats.passive,
        }
    }
}

/// Checks that origin and target agree on the amount of data.
fn agree(data: &Data, back: Option<&Back>, total: u64, verb: Verb) -> Result<(), Error> {
    let amount = |what: &str, bytes: u64| {
        if bytes == total {
            return Ok(());
        }
        Err(Error::Type(format!(
            "the {what} has {bytes} bytes of data and the target {total}; make them equal"
        )))
    };
    match data {
        Data::Nothing => {}
        Data::Small { length, .. } if verb == Verb::CompareAndSwap => amount("pair", *length as u64 / 2)?,
        Data::Small { length, .. } => amount("origin", *length as u64)?,
        Data::Owned(bytes) if verb == Verb::CompareAndSwap => amount("pair", bytes.len() as u64 / 2)?,
        Data::Owned(bytes) => amount("origin", bytes.len() as u64)?,
        Data::Borrowed { count, layout, .. } => amount("origin", layout.total(*count)?)?,
    }
    back.map_or(Ok(()), |back| amount("result", back.layout.total(back.count)?))
}

pub(crate) fn single_element(element: &Layout, (rank, displacement): (Rank, i64)) -> Target<'_> {
    Target { rank, displacement, count: 1, layout: element }
}
