//! The safe layer: slices of plain values.

use super::{Flavor, Window};
use crate::memory::op::{Back, Data};
use crate::model::{EpochKind, Error, Layout, Operation, Plain, Rank, Sink, Source, Target, Verb};
use std::marker::PhantomData;

/// The result of a [`Window::get`] that may not have arrived yet. The window keeps it until the program takes
/// it.
#[derive(Debug)]
#[must_use = "Window::take returns the data"]
pub struct Pending<T> {
    number: u64,
    values: PhantomData<T>,
}

fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: plain values have no padding, so that every byte is initialized.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns the bytes of plain values, for writing.
fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: plain values have no padding, and every bit pattern is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

fn target<T: Plain>(layout: &Layout, rank: Rank, displacement: i64, count: usize) -> Target<'_> {
    debug_assert_eq!(layout.element(), Some(T::ELEMENT));
    Target { rank, displacement, count: count as u64, layout }
}

impl Window {
    /// Writes `data` to `target`, `displacement` units from its base. Data that cannot be written at once is
    /// copied. Fails as [`raw_put`](Self::raw_put) does.
    pub fn put<T: Plain>(&mut self, data: &[T], target: Rank, displacement: i64) -> Result<(), Error> {
        let layout = T::ELEMENT.layout();
        let bytes = bytes_of(data);
        if self.try_put_direct(bytes.as_ptr(), bytes.len(), target, displacement) {
            return Ok(());
        }
        let to = self::target::<T>(&layout, target, displacement, data.len());
        self.put_slow(bytes, to, || Data::Owned(bytes.into()))
    }

    /// Writes `data` as [`put`](Self::put) does. The data lives for ever and is therefore not copied. Fails
    /// as [`raw_put`](Self::raw_put) does.
    pub fn put_static<T: Plain>(
        &mut self,
        data: &'static [T],
        target: Rank,
        displacement: i64,
    ) -> Result<(), Error> {
        let layout = T::ELEMENT.layout();
        let to = self::target::<T>(&layout, target, displacement, data.len());
        let source = Source { address: data.as_ptr().cast(), count: data.len() as u64, layout: &layout };
        // SAFETY: the data lives for ever, and a shared slice of plain values never changes.
        unsafe { self.raw_put(source, to) }
    }

    /// Requests `count` values; [`take`](Self::take) them once the epoch has ended or was flushed. Fails as
    /// [`raw_get`](Self::raw_get) does.
    pub fn get<T: Plain>(
        &mut self,
        count: usize,
        target: Rank,
        displacement: i64,
    ) -> Result<Pending<T>, Error> {
        let layout = T::ELEMENT.layout();
        let bytes = layout.total(count as u64)?;
        let mut kept = vec![0_u8; bytes as usize];
        let back = Back::new(Sink { address: kept.as_mut_ptr(), count: count as u64, layout: &layout });
        let from = self::target::<T>(&layout, target, displacement, count);
        self.issue("get", Verb::Get, None, from, Data::Nothing, Some(back))?;
        Ok(self.store_answer(target, kept))
    }

    /// Stores the memory for an answer in the window. The bytes do not move until the program takes them or
    /// the window is dropped.
    fn store_answer<T: Plain>(&mut self, target: Rank, kept: Vec<u8>) -> Pending<T> {
        self.next_kept += 1;
        self.kept.insert(self.next_kept, (target, kept));
        Pending { number: self.next_kept, values: PhantomData }
    }

    /// Returns the result of a get. Fails with [`Error::Sync`] when the data has not arrived: end the
    /// epoch or flush first.
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
        // SAFETY: the vector was made with room for these bytes, which lie in other memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), values.as_mut_ptr().cast(), bytes.len()) };
        // SAFETY: the line above has written these values, and every bit pattern is a value.
        unsafe { values.set_len(bytes.len() / size_of::<T>()) };
        Ok(values)
    }

    fn wait_result<T: Plain>(
        &mut self,
        target: Rank,
        result: &mut [T],
        pending: Pending<T>,
    ) -> Result<(), Error> {
        self.flush_local(target)?;
        result.copy_from_slice(&self.take(pending)?);
        Ok(())
    }

    /// Reads `into.len()` values and waits for them. Needs a passive epoch. Fails as
    /// [`raw_get`](Self::raw_get) does, and with [`Error::Sync`] in an active epoch, where data arrives at
    /// the epoch's end.
    pub fn get_now<T: Plain>(
        &mut self,
        into: &mut [T],
        target: Rank,
        displacement: i64,
    ) -> Result<(), Error> {
        self.epochs.passive("get_now", Some(target))?;
        let bytes = bytes_of_mut(into);
        if self.try_get_direct(bytes.as_mut_ptr(), bytes.len(), target, displacement) {
            return Ok(());
        }
        let pending = self.get::<T>(into.len(), target, displacement)?;
        self.wait_result(target, into, pending)
    }

    /// Combines `data` into the target, element by element, each atomically. Fails as
    /// [`raw_accumulate`](Self::raw_accumulate) does.
    ///
    /// ```
    /// use unisono_rma::{Assert, Error, Job, Operation, Rank, Spec};
    ///
    /// fn member(mut job: Job) -> Result<(), Error> {
    ///     let mut window = job.allocate(8, Spec::new())?;
    ///     window.fence(Assert::NO_PRECEDE)?;
    ///     window.accumulate(&[1.5_f64], Rank(0), 0, Operation::Sum)?;
    ///     window.fence(Assert::NO_SUCCEED)?;
    ///     let mut sum = [0.0_f64];
    ///     window.load(0, &mut sum)?;
    ///     assert!(job.rank() != Rank(0) || sum == [3.0]);
    ///     window.free()?;
    ///     job.finalize()
    /// }
    ///
    /// let members = Job::threads(2).into_iter().map(|job| std::thread::spawn(move || member(job)));
    /// members.collect::<Vec<_>>().into_iter().try_for_each(|member| member.join().expect("no panic"))?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn accumulate<T: Plain>(
        &mut self,
        data: &[T],
        target: Rank,
        displacement: i64,
        operation: Operation,
    ) -> Result<(), Error> {
        let layout = T::ELEMENT.layout();
        let to = self::target::<T>(&layout, target, displacement, data.len());
        let how = Some((T::ELEMENT, operation));
        self.issue("accumulate", Verb::Accumulate, how, to, Data::Owned(bytes_of(data).into()), None)
    }

    /// Combines `data` as [`accumulate`](Self::accumulate) does. The data lives for ever and is therefore not
    /// copied. Fails as [`raw_accumulate`](Self::raw_accumulate) does.
    pub fn accumulate_static<T: Plain>(
        &mut self,
        data: &'static [T],
        target: Rank,
        displacement: i64,
        operation: Operation,
    ) -> Result<(), Error> {
        let layout = T::ELEMENT.layout();
        let to = self::target::<T>(&layout, target, displacement, data.len());
        let source = Source { address: data.as_ptr().cast(), count: data.len() as u64, layout: &layout };
        // SAFETY: as in `put_static`.
        unsafe { self.raw_accumulate(source, to, operation) }
    }

    /// Combines `data` as [`accumulate`](Self::accumulate) does, and requests the target's old values. Fails
    /// as [`accumulate`](Self::accumulate) does.
    pub fn get_accumulate<T: Plain>(
        &mut self,
        data: &[T],
        target: Rank,
        displacement: i64,
        operation: Operation,
    ) -> Result<Pending<T>, Error> {
        self.answered(
            Verb::GetAccumulate,
            "get_accumulate",
            bytes_of(data),
            data.len(),
            (target, displacement),
            operation,
        )
    }

    fn answered<T: Plain>(
        &mut self,
        verb: Verb,
        call: &'static str,
        brought: &[u8],
        count: usize,
        (target, displacement): (Rank, i64),
        operation: Operation,
    ) -> Result<Pending<T>, Error> {
        let layout = T::ELEMENT.layout();
        let mut kept = vec![0_u8; count * size_of::<T>()];
        let back = Back::new(Sink { address: kept.as_mut_ptr(), count: count as u64, layout: &layout });
        let to = self::target::<T>(&layout, target, displacement, count);
        self.issue(call, verb, Some((T::ELEMENT, operation)), to, Data::Owned(brought.into()), Some(back))?;
        Ok(self.store_answer(target, kept))
    }

    /// Combines one value into the target, waits for the target's old value and returns it. Needs a passive
    /// epoch. Fails as [`get_now`](Self::get_now) does, and with [`Error::Operation`].
    pub fn fetch_and_op<T: Plain>(
        &mut self,
        value: T,
        target: Rank,
        displacement: i64,
        operation: Operation,
    ) -> Result<T, Error> {
        let call = "fetch_and_op";
        self.epochs.passive(call, Some(target))?;
        let (brought, mut result) = ([value], [value]);
        if self.is_direct() {
            let (source, back) = (brought.as_ptr().cast(), result.as_mut_ptr().cast());
            // SAFETY: both are values of this function, and in a passive epoch the mapped path does not use
            // them after it returns.
            unsafe { self.raw_fetch_and_op(source, back, T::ELEMENT, (target, displacement), operation) }?;
            return Ok(result[0]);
        }
        let (verb, bytes) = (Verb::GetAccumulate, bytes_of(&brought));
        let pending = self.answered::<T>(verb, call, bytes, 1, (target, displacement), operation)?;
        self.wait_result(target, &mut result, pending)?;
        Ok(result[0])
    }

    /// Writes `new` if the target holds `old`, waits for the target's old value and returns it. Needs a
    /// passive epoch. Fails as [`get_now`](Self::get_now) does, and with [`Error::Operation`].
    pub fn compare_and_swap<T: Plain>(
        &mut self,
        old: T,
        new: T,
        target: Rank,
        displacement: i64,
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
            unsafe { self.raw_compare_and_swap(source, compare, back, T::ELEMENT, (target, displacement)) }?;
            return Ok(result[0]);
        }
        let (verb, how) = (Verb::CompareAndSwap, Operation::Replace);
        let pending = self.answered::<T>(verb, call, bytes_of(&pair), 1, (target, displacement), how)?;
        self.wait_result(target, &mut result, pending)?;
        Ok(result[0])
    }

    fn own_bytes(&self, offset: usize, bytes: usize) -> Result<*mut u8, Error> {
        self.epochs.usable("load or store")?;
        if self.flavor == Flavor::Dynamic {
            return Err(Error::Flavor { call: "load or store", needs: "Job::allocate or Job::create" });
        }
        let part = self.parts[self.rank.index()];
        let end = offset as u64 as i128 + bytes as i128;
        if end > i128::from(part.bytes) {
            let start = offset as i128;
            return Err(Error::Range { target: self.rank, start, end, bytes: part.bytes, unit: 1 });
        }
        Ok(self.base.wrapping_add(offset))
    }

    /// Reads this rank's own part, `offset` bytes from its base. If other members write there at the same
    /// time, the result is a mixture of old and new bytes.
    pub fn load<T: Plain>(&self, offset: usize, into: &mut [T]) -> Result<(), Error> {
        let bytes = bytes_of_mut(into);
        let address = self.own_bytes(offset, bytes.len())?;
        // SAFETY: the range was checked against this rank's part, which lives as long as the window.
        unsafe { std::ptr::copy(address, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Writes this rank's own part, `offset` bytes from its base.
    pub fn store<T: Plain>(&mut self, offset: usize, data: &[T]) -> Result<(), Error> {
        let bytes = bytes_of(data);
        let address = self.own_bytes(offset, bytes.len())?;
        // SAFETY: as in `load`.
        unsafe { std::ptr::copy(bytes.as_ptr(), address, bytes.len()) };
        Ok(())
    }

    pub(crate) fn count_epoch(&mut self, reach: EpochKind) {
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
