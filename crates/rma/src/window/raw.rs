//! The raw layer: addresses and layouts. What `abi/mpi` and `abi/c` call.
//!
//! Common to all: the operation is issued inside an access epoch to its target, and complete at the origin
//! (buffers may be used again, results have come) after the call that ends the epoch, or a flush. Zero counts
//! are allowed and do nothing.

use super::issue::one;
use super::{Request, Window};
use crate::memory::op::{Back, Data};
use crate::model::{Element, Error, Layout, Operation, Rank, Sink, Source, Target, Verb};

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
        if source.layout.is_contiguous() && target.layout.is_contiguous() {
            let bytes = source.layout.size().saturating_mul(source.count);
            if bytes == target.layout.size().saturating_mul(target.count) {
                if self.put_at_once(source.address, bytes as usize, target.rank, target.place) {
                    return Ok(());
                }
                if bytes > 0 {
                    // SAFETY: the caller promises that the source is readable.
                    let data = unsafe { std::slice::from_raw_parts(source.address, bytes as usize) };
                    if self.put_staged(data, &target)?.is_some() {
                        return Ok(());
                    }
                }
            }
        }
        self.issue("put", Verb::Put, None, target, Data::borrowed(source), None)
    }

    /// Reads `target` into `sink`.
    ///
    /// # Safety
    /// The sink is writable, and accessed by nobody else, until the operation is complete at the origin.
    ///
    /// # Errors
    /// As [`raw_put`](Self::raw_put).
    pub unsafe fn raw_get(&mut self, sink: Sink<'_>, target: Target<'_>) -> Result<(), Error> {
        if sink.layout.is_contiguous() && target.layout.is_contiguous() {
            let bytes = sink.layout.size().saturating_mul(sink.count);
            if bytes == target.layout.size().saturating_mul(target.count)
                && self.get_at_once(sink.address, bytes as usize, target.rank, target.place)
            {
                return Ok(());
            }
        }
        self.issue("get", Verb::Get, None, target, Data::Nothing, Some(Back::new(sink)))
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
        let element = match element_of(target.layout, source.layout) {
            Ok(element) => element,
            // the standard asks nothing of types and operation where no element is combined
            Err(_) if moves_nothing(&target) => {
                let data = Data::borrowed(source);
                return self.issue("accumulate", Verb::Accumulate, None, target, data, None);
            }
            Err(error) => return Err(error),
        };
        let (bytes, at) = (in_a_row(&target, source.layout, source.count), (target.rank, target.place));
        if let Some(bytes) = bytes {
            let (how, data) = ((element, operation), (source.address, std::ptr::null_mut()));
            // SAFETY: the caller promises that the source is readable.
            if unsafe { self.combine_at_once(how, data, bytes, at) }? {
                return Ok(());
            }
        }
        let how = Some((element, operation));
        self.issue("accumulate", Verb::Accumulate, how, target, Data::borrowed(source), None)
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
        if moves_nothing(&target) {
            let data = if operation == Operation::NoOp { Data::Nothing } else { Data::borrowed(source) };
            let back = Some(Back::new(result));
            return self.issue("get_accumulate", Verb::GetAccumulate, None, target, data, back);
        }
        let element = element_of(target.layout, target.layout)?;
        let data = if operation == Operation::NoOp {
            // Atomic and in order like the others, though it brings nothing.
            Data::Owned(vec![0; target.layout.total(target.count)? as usize].into())
        } else {
            element_of(target.layout, source.layout)?;
            let bytes = in_a_row(&target, source.layout, source.count);
            if let Some(bytes) =
                bytes.filter(|bytes| in_a_row(&target, result.layout, result.count) == Some(*bytes))
            {
                let (how, data) = ((element, operation), (source.address, result.address));
                // SAFETY: the caller promises that the source is readable and the result writable.
                if unsafe { self.combine_at_once(how, data, bytes, (target.rank, target.place)) }? {
                    return Ok(());
                }
            }
            Data::borrowed(source)
        };
        let how = Some((element, operation));
        self.issue("get_accumulate", Verb::GetAccumulate, how, target, data, Some(Back::new(result)))
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
        let nothing = [0_u8; Element::LARGEST];
        let brought = if operation == Operation::NoOp { nothing.as_ptr() } else { source };
        // SAFETY: the caller promises one readable and one writable element; none is longer than `nothing`.
        if unsafe { self.combine_at_once((element, operation), (brought, result), element.size(), target) }? {
            return Ok(());
        }
        let layout = element.layout();
        let back = Back::new(Sink { address: result, count: 1, layout: &layout });
        let data = if operation == Operation::NoOp {
            Data::Small { bytes: [0; 32], length: element.size() }
        } else {
            Data::borrowed(Source { address: source, count: 1, layout: &layout })
        };
        let how = Some((element, operation));
        self.issue("fetch_and_op", Verb::GetAccumulate, how, one(&layout, target), data, Some(back))
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
        if !Operation::BitAnd.is_defined_for(element) && element != Element::Bool {
            return Err(Error::Operation {
                operation: "compare and swap",
                element: element.name(),
                allowed: "use an integer, a byte or a bool",
            });
        }
        let (layout, size) = (element.layout(), element.size());
        let back = Back::new(Sink { address: result, count: 1, layout: &layout });
        // SAFETY: the caller promises one readable element.
        let compare = unsafe { std::slice::from_raw_parts(compare, size) };
        // SAFETY: as above.
        let source = unsafe { std::slice::from_raw_parts(source, size) };
        let (how, data) = (Some((element, Operation::Replace)), Data::small(&[compare, source]));
        self.issue("compare_and_swap", Verb::CompareAndSwap, how, one(&layout, target), data, Some(back))
    }

    /// [`raw_put`](Self::raw_put) in a passive epoch, with a request for its completion at the origin.
    ///
    /// # Safety
    /// As there, until the request is complete.
    ///
    /// # Errors
    /// As there; [`Error::Sync`] in an active epoch.
    pub unsafe fn raw_rput(&mut self, source: Source<'_>, target: Target<'_>) -> Result<Request, Error> {
        self.epochs.passive("rput", Some(target.rank))?;
        // SAFETY: the caller promises the same.
        unsafe { self.raw_put(source, target) }?;
        Ok(Request { target: target.rank })
    }

    /// [`raw_get`](Self::raw_get) with a request.
    ///
    /// # Safety
    /// As there, until the request is complete.
    ///
    /// # Errors
    /// As [`raw_rput`](Self::raw_rput).
    pub unsafe fn raw_rget(&mut self, sink: Sink<'_>, target: Target<'_>) -> Result<Request, Error> {
        self.epochs.passive("rget", Some(target.rank))?;
        // SAFETY: the caller promises the same.
        unsafe { self.raw_get(sink, target) }?;
        Ok(Request { target: target.rank })
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
        self.epochs.passive("raccumulate", Some(target.rank))?;
        // SAFETY: the caller promises the same.
        unsafe { self.raw_accumulate(source, target, operation) }?;
        Ok(Request { target: target.rank })
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
        self.epochs.passive("rget_accumulate", Some(target.rank))?;
        // SAFETY: the caller promises the same.
        unsafe { self.raw_get_accumulate(source, result, target, operation) }?;
        Ok(Request { target: target.rank })
    }
}

/// The bytes at both sides, if they lie in a row at both and are as many.
#[inline]
fn in_a_row(target: &Target<'_>, layout: &Layout, count: u64) -> Option<usize> {
    if !target.layout.is_contiguous() || !layout.is_contiguous() {
        return None;
    }
    let bytes = target.layout.size().checked_mul(target.count)?;
    let fits = layout.size().checked_mul(count) == Some(bytes);
    fits.then(|| usize::try_from(bytes).ok())?
}

fn moves_nothing(target: &Target<'_>) -> bool {
    target.count == 0 || target.layout.size() == 0
}

/// The one predefined type that both layouts are made of.
fn element_of(target: &Layout, source: &Layout) -> Result<Element, Error> {
    match (target.element(), source.element()) {
        (Some(target), Some(source)) if target == source => Ok(target),
        (Some(target), Some(source)) => Err(Error::Type(format!(
            "the origin has elements of type {} and the target of type {}; make them equal",
            source.name(),
            target.name()
        ))),
        _ => Err(Error::Type("an accumulate needs layouts of one predefined element type".to_owned())),
    }
}
