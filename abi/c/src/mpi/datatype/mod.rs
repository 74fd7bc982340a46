//! Datatypes: flattens MPI's type constructors into the engine's layouts.
//!
//! The idea: a type consists of its runs (see [`Layout`]), its extent, and the element type of all its data
//! if there is a single one. A constructor combines the runs of its parts and merges adjacent runs: a vector
//! of blocks becomes one run, and a contiguous type of contiguous types one block. Offsets count from the
//! buffer's address, so a lower bound needs no field here. MPI supplies the extent.
//!
//! Cost: one run for each block that does not continue the previous block. Reference: MPI-4.0 sections 5.1.2
//! to 5.1.8.

use crate::error::{argument, ffi_call_or};
use crate::layout::{LayoutHandle, layout, slice};
use std::borrow::Cow;
use std::ffi::c_int;
use unisono_rma::{Element, Error, Layout, Run};

/// Maximum number of runs of a type: a description with more would take more memory than the data of any type
/// in use.
const MAX_RUNS: usize = 1 << 22;

/// Returns the runs of a layout. A contiguous layout, which stores none, yields a single run.
fn runs_of(layout: &Layout) -> Cow<'_, [Run]> {
    if layout.is_contiguous() && layout.size() > 0 {
        let bytes = layout.size();
        return vec![Run { offset: 0, bytes, stride: bytes.cast_signed(), count: 1 }].into();
    }
    layout.runs().into()
}

/// Returns the element type that all these layouts consist of, if it is the same. A layout without data is
/// ignored if its element type is known.
fn common(types: &[&Layout]) -> Option<Element> {
    let known = types.iter().filter(|one| one.element().is_none() || one.size() > 0);
    let mut known = known.map(|one| one.element());
    let first = known.next()?;
    if known.all(|other| other == first) { first } else { None }
}

fn named(element: Option<Element>, bytes: u64) -> Layout {
    element
        .filter(|element| element.size() as u64 == bytes)
        .map_or_else(|| Layout::contiguous(bytes, None), Layout::from_element)
}

/// A list of runs in the order of the data. Adjacent runs are merged when they are added.
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
        if self.0.len() >= MAX_RUNS {
            return Err(Error::Type("a datatype with more than 4 million separate blocks".to_owned()));
        }
        self.0.push(run);
        Ok(())
    }

    /// Adds `count` copies of `part`, `stride` bytes apart; the first copy begins at `start`.
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

/// A constructor that makes a type from other types.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combiner {
    /// One integer: the count.
    Contiguous = 0,
    /// Integers: count, length. Addresses: stride in bytes.
    Vector = 1,
    /// Integers: the length of each block. Addresses: the displacement of each block in bytes. A single
    /// child, or a child for each block.
    Blocks = 2,
    /// Integers: dimensions, sizes, parts, starts, order (0 C, 1 Fortran).
    Subarray = 3,
    /// The child's data with another extent.
    Resized = 4,
}

impl Combiner {
    fn from_code(code: c_int) -> Result<Self, Error> {
        let all = [Self::Contiguous, Self::Vector, Self::Blocks, Self::Subarray, Self::Resized];
        let known = all.into_iter().find(|known| *known as c_int == code);
        known.ok_or_else(|| argument(format!("{code} is no unisono_mpi_combiner")))
    }
}

fn combine(
    combiner: Combiner,
    extent: i64,
    integers: &[i64],
    addresses: &[i64],
    children: &[&Layout],
) -> Result<Layout, Error> {
    let wrong = || Error::Type("a datatype's constructor has arguments missing".to_owned());
    let [first, ..] = children else { return Err(wrong()) };
    let inner = runs_of(first);
    let mut runs = Runs::default();
    match (combiner, integers, addresses) {
        (Combiner::Resized, ..) => runs.0 = inner.into_owned(),
        (Combiner::Contiguous, [count], _) => runs.repeat(&inner, 0, *count, first.extent())?,
        (Combiner::Vector, [count, length], [stride]) => {
            let mut block = Runs::default();
            block.repeat(&inner, 0, *length, first.extent())?;
            runs.repeat(&block.0, 0, *count, *stride)?;
        }
        (Combiner::Blocks, lengths, displacements) if lengths.len() == displacements.len() => {
            for (at, (length, displacement)) in lengths.iter().zip(displacements).enumerate() {
                let child = children.get(at).filter(|_| children.len() == lengths.len()).unwrap_or(first);
                runs.repeat(&runs_of(child), *displacement, *length, child.extent())?;
            }
        }
        (Combiner::Subarray, [dimensions, rest @ ..], _) => {
            let n = usize::try_from(*dimensions).map_err(|_| wrong())?;
            if rest.len() != 3 * n + 1 {
                return Err(wrong());
            }
            runs = subarray(first, &rest[..n], &rest[n..2 * n], &rest[2 * n..3 * n], rest[3 * n] == 1)?;
        }
        _ => return Err(wrong()),
    }
    Layout::from_runs(runs.0, extent, common(children))
}

/// Makes the layout of a box cut out of an array. The fastest dimension is a block; each further dimension
/// repeats the box that has been built so far.
fn subarray(
    child: &Layout,
    sizes: &[i64],
    parts: &[i64],
    starts: &[i64],
    fortran: bool,
) -> Result<Runs, Error> {
    let outside = || Error::Type("a subarray that reaches beyond the address space".to_owned());
    let mut inner = runs_of(child).into_owned();
    let mut stride = child.extent();
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

/// Makes a layout from the offset of each byte of the data, in order.
fn traced(offsets: &[i64], extent: i64, element: Option<Element>) -> Result<Layout, Error> {
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
    Layout::from_runs(runs.0, extent, element)
}

fn element_of(code: c_int) -> Option<Element> {
    Element::from_code(u8::try_from(code).ok()?)
}

/// Makes a layout handle for C; null after an error.
fn hand_out(make: impl FnOnce() -> Result<Layout, Error>) -> *mut LayoutHandle {
    ffi_call_or(std::ptr::null_mut(), || Ok(Box::into_raw(Box::new(LayoutHandle(make()?)))))
}

/// Makes the layout of a predefined type of `bytes` bytes. `element` is a value of unisono_element, or 0 for
/// data without arithmetic. Every call that makes a layout returns NULL after an error.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_mpi_layout_named(element: c_int, bytes: u64) -> *mut LayoutHandle {
    hand_out(|| Ok(named(element_of(element), bytes)))
}

/// Makes a layout from other layouts. `combiner` is a value of unisono_mpi_combiner and defines the meaning
/// of the integers and addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_layout_combine(
    combiner: c_int,
    extent: i64,
    integers: *const i64,
    integer_count: usize,
    addresses: *const i64,
    address_count: usize,
    children: *const *const LayoutHandle,
    child_count: usize,
) -> *mut LayoutHandle {
    hand_out(|| {
        // SAFETY: the shim passes arrays of these lengths.
        let integers = unsafe { slice(integers, integer_count, "integers") }?;
        // SAFETY: the shim passes arrays of these lengths.
        let addresses = unsafe { slice(addresses, address_count, "addresses") }?;
        // SAFETY: the shim passes arrays of these lengths.
        let children = unsafe { slice(children, child_count, "children") }?;
        // SAFETY: the shim passes live handles.
        let children: Result<Vec<_>, _> = children.iter().map(|child| unsafe { layout(*child) }).collect();
        combine(Combiner::from_code(combiner)?, extent, integers, addresses, &children?)
    })
}

/// Makes a layout from the offset of each byte of the data, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_layout_traced(
    offsets: *const i64,
    count: usize,
    extent: i64,
    element: c_int,
) -> *mut LayoutHandle {
    // SAFETY: the shim passes an array of `count` offsets.
    hand_out(|| traced(unsafe { slice(offsets, count, "offsets") }?, extent, element_of(element)))
}

/// Returns the element type of all data in a layout; 0 if there is no single type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_layout_element(layout: *const LayoutHandle) -> c_int {
    ffi_call_or(0, || {
        // SAFETY: the shim passes a live handle.
        let layout = unsafe { self::layout(layout) }?;
        Ok(layout.element().map_or(0, |element| element as c_int))
    })
}

/// Returns the element type if the layout is exactly a single element; 0 otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_layout_single(layout: *const LayoutHandle) -> c_int {
    ffi_call_or(0, || {
        // SAFETY: the shim passes a live handle.
        let layout = unsafe { self::layout(layout) }?;
        let single = layout.element().filter(|element| {
            let in_a_row = || matches!(layout.runs(), [run] if run.offset == 0 && run.count == 1);
            layout.size() == element.size() as u64 && (layout.is_contiguous() || in_a_row())
        });
        Ok(single.map_or(0, |element| element as c_int))
    })
}

#[cfg(test)]
mod tests;
