//! The raw layer: addresses and layouts. What `abi/mpi` and `abi/c` call.
//!
//! Common to all: the operation is issued inside an access epoch to its target, and complete at the origin
//! (buffers may be used again, results have come) after the call that ends the epoch, or a flush. Zero counts
//! are allowed and do nothing.

use super::{NOT_YET, Request, Window};
use crate::element::Element;
use crate::error::Error;
use crate::operation::Operation;
use crate::rank::Rank;
use crate::transfer::{Sink, Source, Target};

impl Window {
    /// Writes `source` to `target`.
    ///
    /// # Safety
    /// The source is readable, and not changed, until the operation is complete at the origin.
    ///
    /// # Errors
    /// [`Error::Sync`], [`Error::Range`], [`Error::Rank`], [`Error::Type`] for different amounts of data,
    /// [`Error::Gone`].
    pub unsafe fn raw_put(&mut self, source: Source<'_>, target: Target<'_>) -> Result<(), Error> {
        let _ = (source, target);
        Err(NOT_YET)
    }

    /// Reads `target` into `sink`.
    ///
    /// # Safety
    /// The sink is writable, and accessed by nobody else, until the operation is complete at the origin.
    ///
    /// # Errors
    /// As [`raw_put`](Self::raw_put).
    pub unsafe fn raw_get(&mut self, sink: Sink<'_>, target: Target<'_>) -> Result<(), Error> {
        let _ = (sink, target);
        Err(NOT_YET)
    }

    /// Combines `source` into `target`, element by element, each atomically.
    ///
    /// # Safety
    /// As [`raw_put`](Self::raw_put).
    ///
    /// # Errors
    /// As [`raw_put`](Self::raw_put); [`Error::Operation`]; [`Error::Type`] for layouts of no single element
    /// type.
    pub unsafe fn raw_accumulate(
        &mut self,
        source: Source<'_>,
        target: Target<'_>,
        operation: Operation,
    ) -> Result<(), Error> {
        let _ = (source, target, operation);
        Err(NOT_YET)
    }

    /// As [`raw_accumulate`](Self::raw_accumulate), and puts what was there before into `result`. With
    /// [`Operation::NoOp`] the source is ignored.
    ///
    /// # Safety
    /// As [`raw_put`](Self::raw_put) for the source and [`raw_get`](Self::raw_get) for the result.
    ///
    /// # Errors
    /// As [`raw_accumulate`](Self::raw_accumulate).
    pub unsafe fn raw_get_accumulate(
        &mut self,
        source: Source<'_>,
        result: Sink<'_>,
        target: Target<'_>,
        operation: Operation,
    ) -> Result<(), Error> {
        let _ = (source, result, target, operation);
        Err(NOT_YET)
    }

    /// [`raw_get_accumulate`](Self::raw_get_accumulate) of one element.
    ///
    /// # Safety
    /// As there, for one `element` each.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn raw_fetch_and_op(
        &mut self,
        source: *const u8,
        result: *mut u8,
        element: Element,
        target: (Rank, i64),
        operation: Operation,
    ) -> Result<(), Error> {
        let _ = (source, result, element, target, operation);
        Err(NOT_YET)
    }

    /// Writes one element if what is there equals `compare`, and puts what was there into `result`.
    /// Elements are integers, bytes or bools.
    ///
    /// # Safety
    /// As [`raw_fetch_and_op`](Self::raw_fetch_and_op).
    ///
    /// # Errors
    /// As there; [`Error::Operation`] for other elements.
    pub unsafe fn raw_compare_and_swap(
        &mut self,
        source: *const u8,
        compare: *const u8,
        result: *mut u8,
        element: Element,
        target: (Rank, i64),
    ) -> Result<(), Error> {
        let _ = (source, compare, result, element, target);
        Err(NOT_YET)
    }

    /// [`raw_put`](Self::raw_put) in a passive epoch, with a request for its completion at the origin.
    ///
    /// # Safety
    /// As there, until the request is complete.
    ///
    /// # Errors
    /// As there; [`Error::Sync`] in an active epoch.
    pub unsafe fn raw_rput(&mut self, source: Source<'_>, target: Target<'_>) -> Result<Request, Error> {
        let _ = (source, target);
        Err(NOT_YET)
    }

    /// [`raw_get`](Self::raw_get) with a request.
    ///
    /// # Safety
    /// As there, until the request is complete.
    ///
    /// # Errors
    /// As [`raw_rput`](Self::raw_rput).
    pub unsafe fn raw_rget(&mut self, sink: Sink<'_>, target: Target<'_>) -> Result<Request, Error> {
        let _ = (sink, target);
        Err(NOT_YET)
    }

    /// [`raw_accumulate`](Self::raw_accumulate) with a request.
    ///
    /// # Safety
    /// As there, until the request is complete.
    ///
    /// # Errors
    /// As [`raw_rput`](Self::raw_rput).
    pub unsafe fn raw_raccumulate(
        &mut self,
        source: Source<'_>,
        target: Target<'_>,
        operation: Operation,
    ) -> Result<Request, Error> {
        let _ = (source, target, operation);
        Err(NOT_YET)
    }

    /// [`raw_get_accumulate`](Self::raw_get_accumulate) with a request.
    ///
    /// # Safety
    /// As there, until the request is complete.
    ///
    /// # Errors
    /// As [`raw_rput`](Self::raw_rput).
    pub unsafe fn raw_rget_accumulate(
        &mut self,
        source: Source<'_>,
        result: Sink<'_>,
        target: Target<'_>,
        operation: Operation,
    ) -> Result<Request, Error> {
        let _ = (source, result, target, operation);
        Err(NOT_YET)
    }
}
