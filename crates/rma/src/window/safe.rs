//! The safe layer: slices of plain values.

use super::{Flavor, Window};
use crate::memory::op::{Back, Data};
use crate::model::{Error, Layout, Operation, Plain, Rank, Reach, Sink, Source, Target, Verb};
use crate::path::Path;
use std::marker::PhantomData;

/// Data asked for by [`Window::get`]; the window keeps it until it is taken.
#[derive(Debug)]
#[must_use = "the data is had by Window::take"]
pub struct Pending<T> {
    number: u64,
    values: PhantomData<T>,
}

/// The bytes of plain values.
fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: plain values have no padding, so that every byte is initialized.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of plain values, to be written.
fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every bit pattern is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

fn target<T: Plain>(layout: &Layout, rank: Rank, place: i64, count: usize) -> Target<'_> {
    debug_assert_eq!(layout.element(), Some(T::ELEMENT));
    Target { rank, place, count: count as u64, layout }
}

impl Window {
    /// Writes `data` to `target`, `place` units from its base. What cannot be written at once is copied.
    ///
    /// # Errors
    /// As [`raw_put`](Self::raw_put).
    pub fn put<T: Plain>(&mut self, data: &[T], target: Rank, place: i64) -> Result<(), Error> {
        let layout = T::ELEMENT.layout();
        let bytes = bytes_of(data);
        if self.put_at_once(bytes.as_ptr(), bytes.len(), target, place) {
            return Ok(());
        }
        let to = self::target::<T>(&layout, target, place, data.len());
        if self.put_staged(bytes, &to)?.is_some() {
            return Ok(());
        }
        self.issue("put", Verb::Put, None, to, Data::Owned(bytes.into()), None)
    }

    /// As [`put`](Self::put), of data that is there for ever: what cannot be written at once is not copied.
    ///
    /// # Errors
    /// As [`raw_put`](Self::raw_put).
    pub fn put_static<T: Plain>(
        &mut self,
        data: &'static [T],
        target: Rank,
        place: i64,
    ) -> Result<(), Error> {
        let layout = T::ELEMENT.layout();
        let to = self::target::<T>(&layout, target, place, data.len());
        let source = Source { address: data.as_ptr().cast(), count: data.len() as u64, layout: &layout };
        // SAFETY: the data can be read for ever, and a shared slice of plain values is not changed.
        unsafe { self.raw_put(source, to) }
    }

    /// Asks for `count` values; [`take`](Self::take) them once the epoch has ended or was flushed.
    ///
    /// # Errors
    /// As [`raw_get`](Self::raw_get).
    pub fn get<T: Plain>(&mut self, count: usize, target: Rank, place: i64) -> Result<Pending<T>, Error> {
        let layout = T::ELEMENT.layout();
        let bytes = layout.total(count as u64)?;
        let mut kept = vec![0_u8; bytes as usize];
        let back = Back::new(Sink { address: kept.as_mut_ptr(), count: count as u64, layout: &layout });
        let from = self::target::<T>(&layout, target, place, count);
        self.issue("get", Verb::Get, None, from, Data::Nothing, Some(back))?;
        Ok(self.keep(target, kept))
    }

    /// Keeps the memory that an answer goes to: its bytes do not move until they are taken or the window goes
    /// away.
    fn keep<T: Plain>(&mut self, target: Rank, kept: Vec<u8>) -> Pending<T> {
        self.next_kept += 1;
        self.kept.insert(self.next_kept, (target, kept));
        Pending { number: self.next_kept, values: PhantomData }
    }

    /// What was asked for.
    ///
    /// # Errors
    /// [`Error::Sync`] when it has not come: end the epoch or flush first.
    pub fn take<T: Plain>(&mut self, pending: Pending<T>) -> Result<Vec<T>, Error> {
        let gone = Error::Sync {
            call: "take",
            problem: "is for data that has not come",
            remedy: "end the epoch, or flush, first; data is taken once, from the window it was asked of",
        };
        let Some((target, _)) = self.kept.get(&pending.number) else { return Err(gone) };
        if !self.path.is_settled(*target) {
            return Err(gone);
        }
        let Some((_, bytes)) = self.kept.remove(&pending.number) else { return Err(gone) };
        let mut values: Vec<T> = Vec::with_capacity(bytes.len() / size_of::<T>());
        // SAFETY: the vector has room for so many bytes, which lie in memory of its own.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast(), bytes.len()) };
        // SAFETY: so many values were just written, and every bit pattern is a value.
        unsafe { values.set_len(bytes.len() / size_of::<T>()) };
        Ok(values)
    }

    fn now<T: Plain>(&mut self, target: Rank, result: &mut [T], pending: Pending<T>) -> Result<(), Error> {
        self.flush_local(target)?;
        result.copy_from_slice(&self.take(pending)?);
        Ok(())
    }

    /// Reads `into.len()` values and waits for them; in a passive epoch.
    ///
    /// # Errors
    /// As [`raw_get`](Self::raw_get); [`Error::Sync`] in an active epoch, where data comes at its end.
    pub fn get_now<T: Plain>(&mut self, into: &mut [T], target: Rank, place: i64) -> Result<(), Error> {
        self.epochs.passive("get_now", Some(target))?;
        let bytes = bytes_of_mut(into);
        if self.get_at_once(bytes.as_mut_ptr(), bytes.len(), target, place) {
            return Ok(());
        }
        let pending = self.get::<T>(into.len(), target, place)?;
        self.now(target, into, pending)
    }

    /// Combines `data` into the target, element by element, each atomically.
    ///
    /// # Errors
    /// As [`raw_accumulate`](Self::raw_accumulate).
    pub fn accumulate<T: Plain>(
        &mut self,
        data: &[T],
        target: Rank,
        place: i64,
        operation: Operation,
    ) -> Result<(), Error> {
        let layout = T::ELEMENT.layout();
        let to = self::target::<T>(&layout, target, place, data.len());
        let how = Some((T::ELEMENT, operation));
        self.issue("accumulate", Verb::Accumulate, how, to, Data::Owned(bytes_of(data).into()), None)
    }

    /// As [`accumulate`](Self::accumulate), of data that is there for ever: it is not copied.
    ///
    /// # Errors
    /// As [`raw_accumulate`](Self::raw_accumulate).
    pub fn accumulate_static<T: Plain>(
        &mut self,
        data: &'static [T],
        target: Rank,
        place: i64,
        operation: Operation,
    ) -> Result<(), Error> {
        let layout = T::ELEMENT.layout();
        let to = self::target::<T>(&layout, target, place, data.len());
        let source = Source { address: data.as_ptr().cast(), count: data.len() as u64, layout: &layout };
        // SAFETY: as in `put_static`.
        unsafe { self.raw_accumulate(source, to, operation) }
    }

    /// As [`accumulate`](Self::accumulate), and asks for what was there before.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate).
    pub fn get_accumulate<T: Plain>(
        &mut self,
        data: &[T],
        target: Rank,
        place: i64,
        operation: Operation,
    ) -> Result<Pending<T>, Error> {
        self.answered(
            Verb::GetAccumulate,
            "get_accumulate",
            bytes_of(data),
            data.len(),
            (target, place),
            operation,
        )
    }

    fn answered<T: Plain>(
        &mut self,
        verb: Verb,
        call: &'static str,
        brought: &[u8],
        count: usize,
        (target, place): (Rank, i64),
        operation: Operation,
    ) -> Result<Pending<T>, Error> {
        let layout = T::ELEMENT.layout();
        let mut kept = vec![0_u8; count * size_of::<T>()];
        let back = Back::new(Sink { address: kept.as_mut_ptr(), count: count as u64, layout: &layout });
        let to = self::target::<T>(&layout, target, place, count);
        self.issue(call, verb, Some((T::ELEMENT, operation)), to, Data::Owned(brought.into()), Some(back))?;
        Ok(self.keep(target, kept))
    }

    /// Combines one value into the target and says what was there; waits for it, in a passive epoch.
    ///
    /// # Errors
    /// As [`get_now`](Self::get_now); [`Error::Operation`].
    pub fn fetch_and_op<T: Plain>(
        &mut self,
        value: T,
        target: Rank,
        place: i64,
        operation: Operation,
    ) -> Result<T, Error> {
        let call = "fetch_and_op";
        self.epochs.passive(call, Some(target))?;
        let (brought, mut result) = ([value], [value]);
        if self.is_direct() {
            let (source, back) = (brought.as_ptr().cast(), result.as_mut_ptr().cast());
            // SAFETY: both are values of this function's, and the direct path is done with them at once in a
            // passive epoch.
            unsafe { self.raw_fetch_and_op(source, back, T::ELEMENT, (target, place), operation) }?;
            return Ok(result[0]);
        }
        let (verb, bytes) = (Verb::GetAccumulate, bytes_of(&brought));
        let pending = self.answered::<T>(verb, call, bytes, 1, (target, place), operation)?;
        self.now(target, &mut result, pending)?;
        Ok(result[0])
    }

    /// Writes `new` if `old` is there, and says what was there; waits for it, in a passive epoch.
    ///
    /// # Errors
    /// As [`get_now`](Self::get_now); [`Error::Operation`].
    pub fn compare_and_swap<T: Plain>(
        &mut self,
        old: T,
        new: T,
        target: Rank,
        place: i64,
    ) -> Result<T, Error> {
        let call = "compare_and_swap";
        self.epochs.passive(call, Some(target))?;
        if !Operation::BitAnd.is_defined_for(T::ELEMENT) {
            return Err(Error::Operation {
                operation: "compare and swap",
                element: T::ELEMENT.name(),
                allowed: "use an integer",
            });
        }
        let mut result = [old];
        let pair = [old, new];
        if self.is_direct() {
            let (compare, source) = ((&raw const pair[0]).cast(), (&raw const pair[1]).cast());
            let back = result.as_mut_ptr().cast();
            // SAFETY: as in `fetch_and_op`.
            unsafe { self.raw_compare_and_swap(source, compare, back, T::ELEMENT, (target, place)) }?;
            return Ok(result[0]);
        }
        let (verb, how) = (Verb::CompareAndSwap, Operation::Replace);
        let pending = self.answered::<T>(verb, call, bytes_of(&pair), 1, (target, place), how)?;
        self.now(target, &mut result, pending)?;
        Ok(result[0])
    }

    fn own_bytes(&self, place: usize, bytes: usize) -> Result<*mut u8, Error> {
        self.epochs.usable("load or store")?;
        if self.flavor == Flavor::Dynamic {
            return Err(Error::Flavor { call: "load or store", needs: "Job::allocate or Job::create" });
        }
        let part = self.parts[self.rank.index()];
        let end = place as u64 as i128 + bytes as i128;
        if end > i128::from(part.bytes) {
            let start = place as i128;
            return Err(Error::Range { target: self.rank, start, end, bytes: part.bytes, unit: 1 });
        }
        Ok(self.base.wrapping_add(place))
    }

    /// Reads this rank's own part, `place` bytes from its base. Others may write at the same time; then what
    /// is read is a mixture.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn load<T: Plain>(&self, place: usize, into: &mut [T]) -> Result<(), Error> {
        let bytes = bytes_of_mut(into);
        let address = self.own_bytes(place, bytes.len())?;
        // SAFETY: the range was checked against this rank's part, which lives as long as the window.
        unsafe { std::ptr::copy(address, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Writes this rank's own part, `place` bytes from its base.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn store<T: Plain>(&mut self, place: usize, data: &[T]) -> Result<(), Error> {
        let bytes = bytes_of(data);
        let address = self.own_bytes(place, bytes.len())?;
        // SAFETY: as in `load`.
        unsafe { std::ptr::copy(bytes.as_ptr(), address, bytes.len()) };
        Ok(())
    }

    /// Counts an epoch as completed.
    pub(crate) fn count_epoch(&mut self, reach: Reach) {
        let issued = self.issued.sum();
        let before = std::mem::replace(&mut self.counted, issued);
        let waited = self.path.take_gate_waits();
        let stats = self.stats_of(reach);
        stats.epochs += 1;
        stats.add(waited);
        stats.operations += issued.operations - before.operations;
        stats.bytes += issued.bytes - before.bytes;
    }
}
