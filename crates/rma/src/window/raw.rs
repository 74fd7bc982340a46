//! The raw layer: operations on addresses and layouts, for `abi/mpi` and `abi/c`.
//!
//! Each operation is issued inside an access epoch to its target. It is complete at the origin (buffers may
//! be used again, results have arrived) after the call that ends the epoch, or after a flush. A count of zero
//! is allowed and does nothing.

use super::Window;
use super::issue::single_element;
use crate::memory::op::{Back, Data};
use crate::model::{Element, Error, Layout, Operation, Rank, Sink, Source, Target, Verb};

impl Window {
    /// Writes `source` to `target`. Fails with [`Error::Sync`], [`Error::Range`], [`Error::Rank`],
    /// [`Error::Type`] for different amounts of data.
    ///
    /// # Safety
    /// The source is readable, and not changed, until the operation is complete at the origin.
    #[inline]
    pub unsafe fn raw_put(&mut self, source: Source<'_>, target: Target<'_>) -> Result<(), Error> {
        let bytes = contiguous(&target, source.layout, source.count);
        if let Some(bytes) = bytes
            && self.try_put_direct(source.address, bytes, target.rank, target.displacement)
        {
            return Ok(());
        }
        let data = match bytes {
            // SAFETY: the caller promises that the source is readable.
            Some(bytes @ 1..) => unsafe { std::slice::from_raw_parts(source.address, bytes) },
            _ => &[],
        };
        self.put_slow(data, target, || Data::borrowed(source))
    }

    /// Reads `target` into `sink`. Fails as [`raw_put`](Self::raw_put) does.
    ///
    /// # Safety
    /// The sink is writable, and no other code accesses it, until the operation is complete at the origin.
    #[inline]
    pub unsafe fn raw_get(&mut self, sink: Sink<'_>, target: Target<'_>) -> Result<(), Error> {
        if let Some(bytes) = contiguous(&target, sink.layout, sink.count)
            && self.try_get_direct(sink.address, bytes, target.rank, target.displacement)
        {
            return Ok(());
        }
        self.get_slow(sink, target)
    }

    #[inline(never)] // so that a get that is done directly is inlined into its caller
    fn get_slow(&mut self, sink: Sink<'_>, target: Target<'_>) -> Result<(), Error> {
        self.issue("get", Verb::Get, None, target, Data::Nothing, Some(Back::new(sink)))
    }

    /// Combines `source` into `target`, element by element, each atomically. Fails as
    /// [`raw_put`](Self::raw_put) does, and with [`Error::Operation`]; [`Error::Type`] for layouts without a
    /// single element type.
    ///
    /// # Safety
    /// As [`raw_put`](Self::raw_put).
    pub unsafe fn raw_accumulate(
        &mut self,
        source: Source<'_>,
        target: Target<'_>,
        operation: Operation,
    ) -> Result<(), Error> {
        let element = match element_of(target.layout, source.layout) {
            Ok(element) => element,
            // the standard does not require types and operation to fit if no element is combined
            Err(_) if moves_nothing(&target) => {
                let data = Data::borrowed(source);
                return self.issue("accumulate", Verb::Accumulate, None, target, data, None);
            }
            Err(error) => return Err(error),
        };
        let (bytes, at) =
            (contiguous(&target, source.layout, source.count), (target.rank, target.displacement));
        if let Some(bytes) = bytes {
            let (how, data) = ((element, operation), (source.address, std::ptr::null_mut()));
            // SAFETY: the caller promises that the source is readable.
            if unsafe { self.try_accumulate_direct(how, data, bytes, at) }? {
                return Ok(());
            }
        }
        let how = Some((element, operation));
        self.issue("accumulate", Verb::Accumulate, how, target, Data::borrowed(source), None)
    }

    /// Combines as [`raw_accumulate`](Self::raw_accumulate) does, and stores the target's old values in
    /// `result`. With [`Operation::NoOp`] the source is ignored. Fails as
    /// [`raw_accumulate`](Self::raw_accumulate) does.
    ///
    /// # Safety
    /// As [`raw_put`](Self::raw_put) for the source and [`raw_get`](Self::raw_get) for the result.
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
            // A get_accumulate with no-op is atomic and in order like any other, so it is sent with zeros as
            // its data.
            Data::Owned(vec![0; target.layout.total(target.count)? as usize].into())
        } else {
            element_of(target.layout, source.layout)?;
            let bytes = contiguous(&target, source.layout, source.count);
            if let Some(bytes) =
                bytes.filter(|bytes| contiguous(&target, result.layout, result.count) == Some(*bytes))
            {
                let (how, data) = ((element, operation), (source.address, result.address));
                // SAFETY: the caller promises that the source is readable and the result writable.
                if unsafe {
                    self.try_accumulate_direct(how, data, bytes, (target.rank, target.displacement))
                }? {
                    return Ok(());
                }
            }
            Data::borrowed(source)
        };
        let how = Some((element, operation));
        self.issue("get_accumulate", Verb::GetAccumulate, how, target, data, Some(Back::new(result)))
    }

    /// Does a [`raw_get_accumulate`](Self::raw_get_accumulate) of one element. Fails as
    /// [`raw_get_accumulate`](Self::raw_get_accumulate) does.
    ///
    /// # Safety
    /// As for [`raw_get_accumulate`](Self::raw_get_accumulate), for one `element` each.
    pub unsafe fn raw_fetch_and_op(
        &mut self,
        source: *const u8,
        result: *mut u8,
        element: Element,
        target: (Rank, i64),
        operation: Operation,
    ) -> Result<(), Error> {
        let nothing = [0_u8; Element::MAX_BYTES];
        let brought = if operation == Operation::NoOp { nothing.as_ptr() } else { source };
        // SAFETY: the caller promises one readable and one writable element; none is longer than `nothing`.
        if unsafe {
            self.try_accumulate_direct((element, operation), (brought, result), element.size(), target)
        }? {
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
        self.issue(
            "fetch_and_op",
            Verb::GetAccumulate,
            how,
            single_element(&layout, target),
            data,
            Some(back),
        )
    }

    /// Stores the target's old value in `result`, and writes `source` to the target if that value equals
    /// `compare`. Elements are integers, bytes or bools. Fails as
    /// [`raw_fetch_and_op`](Self::raw_fetch_and_op) does, and with [`Error::Operation`] for other elements.
    ///
    /// # Safety
    /// As [`raw_fetch_and_op`](Self::raw_fetch_and_op).
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
        // SAFETY: the caller promises one readable element.
        let source = unsafe { std::slice::from_raw_parts(source, size) };
        let (how, data) = (Some((element, Operation::Replace)), Data::small(&[compare, source]));
        self.issue(
            "compare_and_swap",
            Verb::CompareAndSwap,
            how,
            single_element(&layout, target),
            data,
            Some(back),
        )
    }
}

/// Returns the number of bytes, if both sides are contiguous and have the same number of bytes.
#[inline]
fn contiguous(target: &Target<'_>, layout: &Layout, count: u64) -> Option<usize> {
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

/// Returns the predefined type that both layouts have.
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
