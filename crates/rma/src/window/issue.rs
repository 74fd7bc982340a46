//! From a call to an operation: every check, then the path.

use super::{Flavor, Window};
use crate::memory::copy::copy;
use crate::memory::op::{Back, Data, Op};
use crate::model::{Amount, Element, Error, Layout, Operation, Part, Rank, Reach, Stats, Target, Verb};
use crate::path::Path;

impl Window {
    /// The byte in the target's part that `place` names, if the access stays inside.
    pub(crate) fn locate(&self, target: &Target<'_>) -> Result<i64, Error> {
        if self.flavor == Flavor::Dynamic {
            return Ok(target.place);
        }
        let part = self.parts[target.rank.index()];
        if target.place < 0 {
            return Err(Error::Disp(target.place));
        }
        let place = i128::from(target.place) * i128::from(part.unit);
        let (low, high) = target.layout.bounds(target.count);
        let (start, end) = (place + low, place + high);
        if low < high && (start < 0 || end > i128::from(part.bytes)) {
            let (bytes, unit) = (part.bytes, part.unit);
            return Err(Error::Range { target: target.rank, start, end, bytes, unit });
        }
        // Inside a part, whose length fits; or nowhere at all, and then nothing is accessed.
        Ok(i64::try_from(place).unwrap_or(0))
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
        let place = self.locate(&target)?;
        if total == 0 {
            return Ok(());
        }
        self.epochs.issued(reach);
        self.count(reach, verb, total);
        let op = Op {
            verb,
            element: how.map(|(element, _)| element),
            operation: how.map(|(_, operation)| operation),
            place,
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

    /// Writes `bytes` in a row at once, if the target is known to be in its epoch and mapped: the common
    /// case.
    #[inline]
    pub(crate) fn put_at_once(&mut self, source: *const u8, bytes: usize, target: Rank, place: i64) -> bool {
        let Some(direct) = self.path.mapped_mut() else { return false };
        let index = target.index();
        let (Some(peer), Some(part)) = (direct.peers.get(index), self.parts.get(index)) else { return false };
        let Some(start) = inside(*part, bytes, place) else { return false };
        if peer.direct {
            // SAFETY: the caller of the public call promised a readable source; the range was checked.
            unsafe { copy(source, peer.base.wrapping_add(start as usize), bytes) };
            direct.dirty = true;
        } else {
            // SAFETY: as above.
            let staged = unsafe { direct.stage_again(index, start.cast_signed(), bytes, source) };
            if !staged {
                return false;
            }
        }
        self.epochs.fence_operations += 1;
        self.issued.count(Verb::Put, bytes as u64);
        true
    }

    /// Reads `bytes` in a row at once; otherwise as [`put_at_once`](Self::put_at_once).
    #[inline]
    pub(crate) fn get_at_once(&mut self, sink: *mut u8, bytes: usize, target: Rank, place: i64) -> bool {
        let Some(address) = self.reach_at_once(bytes, target, place) else { return false };
        // SAFETY: the caller of the public call promised a writable sink; the range was checked.
        unsafe { copy(address, sink, bytes) };
        true
    }

    /// Combines contiguous elements at once, as [`put_at_once`](Self::put_at_once) writes; what was there
    /// goes to `result`, unless that is null.
    ///
    /// # Safety
    /// `bytes` bytes are readable at `source`, and writable at `result` or it is null.
    #[inline]
    pub(crate) unsafe fn combine_at_once(
        &mut self,
        (element, operation): (Element, Operation),
        (source, result): (*const u8, *mut u8),
        bytes: usize,
        (target, place): (Rank, i64),
    ) -> Result<bool, Error> {
        let index = target.index();
        let Some(direct) = self.path.mapped_mut() else { return Ok(false) };
        let (Some(peer), Some(part)) = (direct.peers.get(index), self.parts.get(index)) else {
            return Ok(false);
        };
        if !peer.direct || bytes == 0 || !operation.is_defined_for(element) {
            return Ok(false);
        }
        let Some(start) = inside(*part, bytes, place) else { return Ok(false) };
        // SAFETY: the caller promises a readable source.
        let brought = unsafe { std::slice::from_raw_parts(source, bytes) };
        let back = (!result.is_null()).then(|| {
            // SAFETY: the caller promises a writable result.
            unsafe { std::slice::from_raw_parts_mut(result, bytes) }
        });
        direct.dirty = true;
        direct.combine(index, start.cast_signed(), (element, operation), brought, back)?;
        self.epochs.fence_operations += 1;
        let verb = if result.is_null() { Verb::Accumulate } else { Verb::GetAccumulate };
        self.issued.count(verb, bytes as u64);
        Ok(true)
    }

    /// The address of a place in a part that may be accessed at once; counts the access.
    #[inline]
    fn reach_at_once(&mut self, bytes: usize, target: Rank, place: i64) -> Option<*mut u8> {
        let direct = self.path.mapped_mut()?;
        let peer = direct.peers.get(target.index()).filter(|peer| peer.direct)?;
        let part = self.parts.get(target.index())?;
        let start = inside(*part, bytes, place)?;
        self.epochs.fence_operations += 1;
        self.issued.count(Verb::Get, bytes as u64);
        Some(peer.base.wrapping_add(start as usize))
    }

    /// Stages a short put in a row, without making an operation of it; `None`: it was not.
    #[inline]
    pub(crate) fn put_staged(&mut self, data: &[u8], target: &Target<'_>) -> Result<Option<()>, Error> {
        if !self.path.is_mapped() || data.is_empty() {
            return Ok(None);
        }
        let reach = self.epochs.access("put", target.rank)?;
        let place = self.locate(target)?;
        let Some(direct) = self.path.mapped_mut() else { return Ok(None) };
        if !direct.stage_put(reach, target.rank.index(), place, data) {
            return Ok(None);
        }
        self.epochs.issued(reach);
        self.issued.count(Verb::Put, data.len() as u64);
        Ok(Some(()))
    }

    /// Counts an operation that is not done at once: its kind of synchronization is known now.
    fn count(&mut self, reach: Reach, verb: Verb, bytes: u64) {
        self.issued.count(verb, bytes);
        let amount = Amount { operations: 1, bytes };
        self.counted += amount;
        let stats = self.stats_of(reach);
        stats.operations += 1;
        stats.bytes += bytes;
    }

    /// Takes back one that has to be issued again.
    fn discount(&mut self, reach: Reach, verb: Verb, bytes: u64) {
        self.issued.discount(verb, bytes);
        self.counted.operations -= 1;
        self.counted.bytes -= bytes;
        let stats = self.stats_of(reach);
        stats.operations -= 1;
        stats.bytes -= bytes;
    }

    pub(crate) fn stats_of(&mut self, reach: Reach) -> &mut Stats {
        match reach {
            Reach::Fence => &mut self.stats.fence,
            Reach::Started => &mut self.stats.pscw,
            Reach::Locked => &mut self.stats.passive,
        }
    }
}

/// The byte that `place` names, if `bytes` from there on lie inside a part.
#[inline]
fn inside(part: Part, bytes: usize, place: i64) -> Option<u64> {
    let start = u64::try_from(place).ok()?.checked_mul(u64::from(part.unit))?;
    let end = start.checked_add(bytes as u64)?;
    (end <= part.bytes).then_some(start)
}

/// Origin and target must agree on the amount of data.
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

/// A place for one element.
pub(crate) fn one(element: &Layout, (rank, place): (Rank, i64)) -> Target<'_> {
    Target { rank, place, count: 1, layout: element }
}
