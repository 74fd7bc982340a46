//! The safe layer: slices of plain values.

use super::{NOT_YET, Window};
use crate::element::Plain;
use crate::error::Error;
use crate::operation::Operation;
use crate::rank::Rank;
use std::marker::PhantomData;

/// Data asked for by [`Window::get`]; the window keeps it until it is taken.
#[derive(Debug)]
#[must_use = "the data is had by Window::take"]
pub struct Pending<T> {
    pub(crate) number: u64,
    pub(crate) values: PhantomData<T>,
}

impl Window {
    /// Writes `data` to `target`, `place` units from its base. What cannot be written at once is copied.
    ///
    /// # Errors
    /// As [`raw_put`](Self::raw_put).
    pub fn put<T: Plain>(&mut self, data: &[T], target: Rank, place: i64) -> Result<(), Error> {
        let _ = (data, target, place);
        Err(NOT_YET)
    }

    /// Asks for `count` values; [`take`](Self::take) them once the epoch has ended or was flushed.
    ///
    /// # Errors
    /// As [`raw_get`](Self::raw_get).
    pub fn get<T: Plain>(&mut self, count: usize, target: Rank, place: i64) -> Result<Pending<T>, Error> {
        let _ = (count, target, place);
        Err(NOT_YET)
    }

    /// What was asked for.
    ///
    /// # Errors
    /// [`Error::Sync`] when it has not come: end the epoch or flush first.
    pub fn take<T: Plain>(&mut self, pending: Pending<T>) -> Result<Vec<T>, Error> {
        let _ = pending.number;
        Err(NOT_YET)
    }

    /// Reads `into.len()` values and waits for them; in a passive epoch.
    ///
    /// # Errors
    /// As [`raw_get`](Self::raw_get); [`Error::Sync`] in an active epoch, where data comes at its end.
    pub fn get_now<T: Plain>(&mut self, into: &mut [T], target: Rank, place: i64) -> Result<(), Error> {
        let _ = (into, target, place);
        Err(NOT_YET)
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
        let _ = (data, target, place, operation);
        Err(NOT_YET)
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
        let _ = (value, target, place, operation);
        Err(NOT_YET)
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
        let _ = (old, new, target, place);
        Err(NOT_YET)
    }

    /// Reads this rank's own part, `place` bytes from its base. Others may write at the same time; each value
    /// is whole if it is aligned.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn load<T: Plain>(&self, place: usize, into: &mut [T]) -> Result<(), Error> {
        let _ = (place, into);
        Err(NOT_YET)
    }

    /// Writes this rank's own part, `place` bytes from its base.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn store<T: Plain>(&mut self, place: usize, data: &[T]) -> Result<(), Error> {
        let _ = (place, data);
        Err(NOT_YET)
    }
}
