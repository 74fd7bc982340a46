//! Datatypes: what MPI's constructors describe, flattened into the engine's layouts.
//!
//! The idea: a type is its runs (see [`Layout`]), its extent and the element that all of it is made of, if it
//! is one. Constructors combine the runs of their parts and merge what touches: a vector of blocks is one run,
//! a contiguous type of contiguous types is one block. Offsets count from the buffer's address, so that lower
//! bounds need no place here; the extent is what MPI says.
//!
//! Cost: a run a block that does not continue the one before. Reference: MPI-4.0 sections 5.1.2 to 5.1.8.

use crate::failure::{failed, guarded};
use std::ffi::c_uint;
use std::slice;
use unisono_rma::{Element, Error, Layout, Run};

/// A described type.
pub(crate) struct Type {
    runs: Vec<Run>,
    extent: i64,
    element: Option<Element>,
    /// Data of no known element in it: moves, but is not accumulated.
    opaque: bool,
    pub(crate) layout: Layout,
}

/// More runs than any type needs; beyond, describing it would take more memory than its data.
const MOST_RUNS: usize = 1 << 22;

impl Type {
    fn new(runs: Vec<Run>, extent: i64, element: Option<Element>) -> Result<Self, Error> {
        let layout = Layout::from_runs(runs.clone(), extent, element)?;
        Ok(Self { runs, extent, element, opaque: element.is_none(), layout })
    }

    fn named(element: Option<Element>, bytes: u64) -> Self {
        let layout = element
            .filter(|element| element.size() as u64 == bytes)
            .map_or_else(|| Layout::contiguous(bytes, None), Layout::of);
        let runs = vec![Run { offset: 0, bytes, stride: bytes.cast_signed(), count: 1 }];
        Self {
            runs,
            extent: bytes.cast_signed(),
            element: layout.element(),
            opaque: element.is_none(),
            layout,
        }
    }

    /// The element that all of these are made of.
    fn common(types: &[&Type]) -> Option<Element> {
        let mut known = types.iter().filter(|one| one.opaque || !one.runs.is_empty()).map(|one| one.element);
        let first = known.next()?;
        if known.all(|other| other == first) { first } else { None }
    }
}

/// Runs in the order of the data, merged as they come.
#[derive(Default)]
struct Runs(Vec<Run>);

impl Runs {
    fn push(&mut self, run: Run) -> Result<(), Error> {
        if run.bytes == 0 || run.count == 0 {
            return Ok(());
        }
        if let Some(last) = self.0.last_mut() {
            let touches = last.offset.checked_add(last.bytes.cast_signed()) == Some(run.offset);
            if last.count == 1 && run.count == 1 && touches {
                last.bytes += run.bytes;
                last.stride = last.bytes.cast_signed();
                return Ok(());
            }
            if last.bytes == run.bytes && run.count == 1 {
                let step = run.offset.wrapping_sub(last.offset);
                if last.count == 1 {
                    (last.stride, last.count) = (step, 2);
                    return Ok(());
                }
                if i128::from(last.stride) * i128::from(last.count) == i128::from(step) {
                    last.count += 1;
                    return Ok(());
                }
            }
        }
        if self.0.len() >= MOST_RUNS {
            return Err(Error::Type("a datatype with more than 4 million separate blocks".to_owned()));
        }
        self.0.push(run);
        Ok(())
    }

    /// `count` times what `part` is, `stride` apart, beginning at `start`.
    fn repeat(&mut self, part: &[Run], start: i64, count: i64, stride: i64) -> Result<(), Error> {
        let Ok(times) = u64::try_from(count) else {
            return Err(Error::Type(format!("a datatype with {count} blocks")));
        };
        let outside = || Error::Type("a datatype that reaches beyond the address space".to_owned());
        if let [run] = part
            && times > 0
        {
            let offset = run.offset.checked_add(start).ok_or_else(outside)?;
            let dense = run.count == 1 && run.bytes.cast_signed() == stride;
            let continued = i128::from(run.stride) * i128::from(run.count) == i128::from(stride);
            if dense {
                let bytes = run.bytes.checked_mul(times).ok_or_else(outside)?;
                return self.push(Run { offset, bytes, stride: bytes.cast_signed(), count: 1 });
            }
            if times == 1 {
                return self.push(Run { offset, ..*run });
            }
            if run.count == 1 {
                return self.push(Run { offset, bytes: run.bytes, stride, count: times });
            }
            if continued {
                let count = run.count.checked_mul(times).ok_or_else(outside)?;
                return self.push(Run { offset, count, ..*run });
            }
        }
        if part.is_empty() {
            return Ok(());
        }
        for time in 0..count {
            let shift = stride.checked_mul(time).and_then(|shift| shift.checked_add(start));
            let shift = shift.ok_or_else(outside)?;
            for run in part {
                self.push(Run { offset: run.offset.checked_add(shift).ok_or_else(outside)?, ..*run })?;
            }
        }
        Ok(())
    }
}

/// `enum core_combiner` in `shim/core.h`.
const CONTIGUOUS: c_uint = 0;
const VECTOR: c_uint = 1;
const BLOCKS: c_uint = 2;
const SUBARRAY: c_uint = 3;
const RESIZED: c_uint = 4;

fn combine(
    combiner: c_uint,
    extent: i64,
    integers: &[i64],
    addresses: &[i64],
    children: &[&Type],
) -> Result<Type, Error> {
    let wrong = || Error::Type("a datatype's constructor has arguments missing".to_owned());
    let [first, ..] = children else { return Err(wrong()) };
    let mut runs = Runs::default();
    match (combiner, integers, addresses) {
        (RESIZED, ..) => runs.0.clone_from(&first.runs),
        (CONTIGUOUS, [count], _) => runs.repeat(&first.runs, 0, *count, first.extent)?,
        (VECTOR, [count, length], [stride]) => {
            let mut block = Runs::default();
            block.repeat(&first.runs, 0, *length, first.extent)?;
            runs.repeat(&block.0, 0, *count, *stride)?;
        }
        (BLOCKS, lengths, places) if lengths.len() == places.len() => {
            for (at, (length, place)) in lengths.iter().zip(places).enumerate() {
                let child = children.get(at).filter(|_| children.len() == lengths.len()).unwrap_or(first);
                runs.repeat(&child.runs, *place, *length, child.extent)?;
            }
        }
        (SUBARRAY, [dimensions, rest @ ..], _) => {
            let n = usize::try_from(*dimensions).map_err(|_| wrong())?;
            if rest.len() != 3 * n + 1 {
                return Err(wrong());
            }
            runs = subarray(first, &rest[..n], &rest[n..2 * n], &rest[2 * n..3 * n], rest[3 * n] == 1)?;
        }
        _ => return Err(wrong()),
    }
    Type::new(runs.0, extent, Type::common(children))
}

/// A box cut out of an array: the fastest dimension is a block, each further one repeats what there is.
fn subarray(
    child: &Type,
    sizes: &[i64],
    parts: &[i64],
    starts: &[i64],
    fortran: bool,
) -> Result<Runs, Error> {
    let outside = || Error::Type("a subarray that reaches beyond the address space".to_owned());
    let mut inner = child.runs.clone();
    let mut stride = child.extent;
    let mut offset = 0_i64;
    for step in 0..sizes.len() {
        let dimension = if fortran { step } else { sizes.len() - 1 - step };
        let mut outer = Runs::default();
        outer.repeat(&inner, 0, parts[dimension], stride)?;
        inner = outer.0;
        let shift = starts[dimension].checked_mul(stride).ok_or_else(outside)?;
        offset = offset.checked_add(shift).ok_or_else(outside)?;
        stride = stride.checked_mul(sizes[dimension]).ok_or_else(outside)?;
    }
    let mut placed = Runs::default();
    placed.repeat(&inner, offset, 1, 0)?;
    Ok(placed)
}

/// From the offset of each byte of the data, in order.
fn traced(offsets: &[i64], extent: i64, element: Option<Element>) -> Result<Type, Error> {
    let mut blocks: Vec<(i64, u64)> = Vec::new();
    for offset in offsets {
        match blocks.last_mut() {
            Some((start, bytes)) if start.checked_add_unsigned(*bytes) == Some(*offset) => *bytes += 1,
            _ => blocks.push((*offset, 1)),
        }
    }
    let mut runs = Runs::default();
    for (offset, bytes) in blocks {
        runs.push(Run { offset, bytes, stride: bytes.cast_signed(), count: 1 })?;
    }
    Type::new(runs.0, extent, element)
}

fn element_of(code: c_uint) -> Option<Element> {
    Element::from_code(u8::try_from(code).ok()?)
}

fn boxed(result: Result<Type, Error>) -> *mut Type {
    match result {
        Ok(described) => Box::into_raw(Box::new(described)),
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

/// A slice from C, whose pointer may be null if it is empty.
///
/// # Safety
/// As `slice::from_raw_parts` for `count` above zero.
pub(crate) unsafe fn slice_of<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller vouches for it.
    unsafe { slice::from_raw_parts(start, count) }
}

#[unsafe(no_mangle)]
extern "C" fn core_type_named(element: c_uint, bytes: u64) -> *mut Type {
    guarded(std::ptr::null_mut(), || Box::into_raw(Box::new(Type::named(element_of(element), bytes))))
}

/// # Safety
/// The arrays have the lengths given, and the children are types of this file.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_type_combine(
    combiner: c_uint,
    extent: i64,
    integers: *const i64,
    integer_count: usize,
    addresses: *const i64,
    address_count: usize,
    children: *const *const Type,
    child_count: usize,
) -> *mut Type {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let integers = unsafe { slice_of(integers, integer_count) };
        // SAFETY: the caller's promise.
        let addresses = unsafe { slice_of(addresses, address_count) };
        // SAFETY: the caller's promise; a reference has the layout of a pointer that is not null.
        let children: &[&Type] = unsafe { slice_of(children.cast(), child_count) };
        boxed(combine(combiner, extent, integers, addresses, children))
    })
}

/// # Safety
/// `offsets` has `count` numbers.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_type_traced(
    offsets: *const i64,
    count: usize,
    extent: i64,
    element: c_uint,
) -> *mut Type {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: the caller's promise.
        let offsets = unsafe { slice_of(offsets, count) };
        boxed(traced(offsets, extent, element_of(element)))
    })
}

/// # Safety
/// `described` is a type of this file.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_type_element(described: *const Type) -> c_uint {
    guarded(0, || {
        // SAFETY: the caller's promise.
        let described = unsafe { &*described };
        described.element.map_or(0, |element| element as c_uint)
    })
}

/// # Safety
/// `described` is a type of this file.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_type_single(described: *const Type) -> c_uint {
    guarded(0, || {
        // SAFETY: the caller's promise.
        let described = unsafe { &*described };
        let single = described.element.filter(|element| {
        let bytes = element.size() as u64;
        matches!(described.runs.as_slice(), [run] if run.offset == 0 && run.bytes == bytes && run.count == 1)
    });
        single.map_or(0, |element| element as c_uint)
    })
}

/// # Safety
/// `described` is null, or a type of this file that nobody uses any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_type_free(described: *mut Type) {
    guarded((), || {
        if !described.is_null() {
            // SAFETY: it came from Box::into_raw, and the caller gives it back once.
            drop(unsafe { Box::from_raw(described) });
        }
    });
}

#[cfg(test)]
mod tests;
