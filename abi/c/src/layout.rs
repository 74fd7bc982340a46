//! Layouts: the places of a transfer's data in the origin's or the target's memory.

use crate::error::{CallStatus, argument, ffi_call, null};
use crate::handle;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use unisono_rma::{Element, Error, Layout, Run};

/// The places of a transfer's data in memory: contiguous, strided or indexed elements, or arbitrary runs of
/// bytes. Several threads may use a layout at the same time.
#[derive(Debug)]
pub struct LayoutHandle(pub(crate) Layout);

/// The predefined types of elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementCode {
    /// Raw bytes, for replace and bitwise operations.
    Byte = 1,
    I8 = 2,
    I16 = 3,
    I32 = 4,
    I64 = 5,
    U8 = 6,
    U16 = 7,
    U32 = 8,
    U64 = 9,
    F32 = 10,
    F64 = 11,
    Complex32 = 12,
    Complex64 = 13,
    /// `bool`, for logical operations.
    Bool = 14,
    /// `struct { float value; int index; }`
    F32Int = 15,
    /// `struct { double value; int index; }`
    F64Int = 16,
    /// `struct { int value; int index; }`
    IntInt = 17,
    /// `struct { long value; int index; }`
    LongInt = 18,
    /// `struct { short value; int index; }`
    ShortInt = 19,
    /// `long double` of x86-64.
    LongDouble = 20,
    /// `long double complex` of x86-64.
    ComplexLong = 21,
    /// `struct { long double value; int index; }` of x86-64
    LongDoubleInt = 22,
    /// `struct { float value, index; }`
    F32F32 = 23,
    /// `struct { double value, index; }`
    F64F64 = 24,
    /// 16 bytes without arithmetic: replace and no-op.
    Bits128 = 25,
    /// 32 bytes without arithmetic: replace and no-op.
    Bits256 = 26,
}

/// `count` blocks of `bytes` bytes each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LayoutRun {
    /// Bytes from the buffer's address to the first block; may be negative.
    pub offset: i64,
    /// Bytes of one block.
    pub bytes: u64,
    /// Bytes from the start of one block to the start of the next.
    pub stride: i64,
    pub count: u64,
}

/// The layouts of single elements, in the order of codes, starting with code 1.
static ELEMENTS: [LayoutHandle; Element::ALL.len()] = {
    let mut all = [const { MaybeUninit::uninit() }; Element::ALL.len()];
    let mut at = 0;
    while at < all.len() {
        all[at].write(LayoutHandle(Layout::from_element(Element::ALL[at])));
        at += 1;
    }
    // SAFETY: the loop wrote every entry, and a `MaybeUninit<T>` has the same representation as its `T`.
    unsafe { std::mem::transmute::<[MaybeUninit<LayoutHandle>; Element::ALL.len()], _>(all) }
};

/// Returns the element type with this code.
pub(crate) fn element(code: c_int) -> Result<Element, Error> {
    let known = u8::try_from(code).ok().and_then(Element::from_code);
    known.ok_or_else(|| argument(format!("{code} is no unisono_element")))
}

/// Returns the layout behind a handle.
///
/// # Safety
/// `layout` is null or a live handle.
pub(crate) unsafe fn layout<'a>(layout: *const LayoutHandle) -> Result<&'a Layout, Error> {
    // SAFETY: null or a live handle; the caller guarantees it.
    let handle = unsafe { layout.as_ref() };
    handle.map(|handle| &handle.0).ok_or_else(|| null("layout"))
}

/// Stores the handle of a layout in the program's pointer.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn write_handle(to: *mut *mut LayoutHandle, made: Layout) -> Result<(), Error> {
    // SAFETY: null or writable; the caller guarantees it.
    unsafe { handle::store(to, "layout", LayoutHandle(made)) }
}

/// Returns an array of `count` entries that the program passed; `what` names it in the error if it is NULL.
///
/// # Safety
/// `from` is null or readable for `count` entries.
pub(crate) unsafe fn slice<'a, T>(from: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    match (count, from.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(null(what)),
        // SAFETY: not null, and readable for `count` entries; the caller guarantees it.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(from, count) }),
    }
}

/// Returns the layout of a single element; `element` is a value of unisono_element. NULL for an unknown
/// number. The layout is static: it need not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_layout_of(element: c_int) -> *const LayoutHandle {
    let at = usize::try_from(element).ok().and_then(|code| code.checked_sub(1));
    at.and_then(|at| ELEMENTS.get(at)).map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Makes a layout of `count` blocks of `length` elements each. The starts of two blocks are `stride` elements
/// apart.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_strided(
    element: c_int,
    count: u64,
    length: u64,
    stride: i64,
    layout: *mut *mut LayoutHandle,
) -> CallStatus {
    ffi_call(|| {
        let made = Layout::strided(self::element(element)?, count, length, stride)?;
        // SAFETY: unisono.h requires NULL or room for the handle.
        unsafe { write_handle(layout, made) }
    })
}

/// Makes a layout of blocks: block i has `lengths[i]` elements and begins `offsets[i]` elements after the
/// buffer's address. Data is transferred in this order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_indexed(
    element: c_int,
    blocks: usize,
    offsets: *const i64,
    lengths: *const u64,
    layout: *mut *mut LayoutHandle,
) -> CallStatus {
    ffi_call(|| {
        // SAFETY: unisono.h requires an array of `blocks` numbers.
        let offsets = unsafe { slice(offsets, blocks, "offsets") }?;
        // SAFETY: unisono.h requires an array of `blocks` numbers.
        let lengths = unsafe { slice(lengths, blocks, "lengths") }?;
        let blocks: Vec<(i64, u64)> = offsets.iter().copied().zip(lengths.iter().copied()).collect();
        let made = Layout::indexed(self::element(element)?, &blocks)?;
        // SAFETY: unisono.h requires NULL or room for the handle.
        unsafe { write_handle(layout, made) }
    })
}

/// Makes a layout of arbitrary runs of bytes, such as the members of a struct, in the order of transfer.
/// `extent` is the distance in bytes between two such layouts if a count repeats the layout. `element` is the
/// type of all data, which accumulates need; pass 0 if the data has no single element type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_runs(
    runs: *const LayoutRun,
    count: usize,
    extent: i64,
    element: c_int,
    layout: *mut *mut LayoutHandle,
) -> CallStatus {
    ffi_call(|| {
        // SAFETY: unisono.h requires an array of `count` runs.
        let runs = unsafe { slice(runs, count, "runs") }?;
        let run = |run: &LayoutRun| Run {
            offset: run.offset,
            bytes: run.bytes,
            stride: run.stride,
            count: run.count,
        };
        let element = if element == 0 { None } else { Some(self::element(element)?) };
        let made = Layout::from_runs(runs.iter().map(run).collect(), extent, element)?;
        // SAFETY: unisono.h requires NULL or room for the handle.
        unsafe { write_handle(layout, made) }
    })
}

/// Returns the number of bytes of data in a single instance of this layout; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_size(layout: *const LayoutHandle) -> u64 {
    // SAFETY: unisono.h requires NULL or a live handle.
    unsafe { layout.as_ref() }.map_or(0, |layout| layout.0.size())
}

/// Returns the distance in bytes between two consecutive instances of this layout; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_extent(layout: *const LayoutHandle) -> i64 {
    // SAFETY: unisono.h requires NULL or a live handle.
    unsafe { layout.as_ref() }.map_or(0, |layout| layout.0.extent())
}

/// Frees a layout and sets `*layout` to NULL. Operations that use it may still be in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_free(layout: *mut *mut LayoutHandle) -> CallStatus {
    ffi_call(|| {
        // SAFETY: unisono.h requires NULL or the address of a handle.
        let from = unsafe { layout.as_mut() }.ok_or_else(|| null("layout"))?;
        let was = std::mem::replace(from, std::ptr::null_mut());
        if was.is_null() {
            return Err(argument("the layout has been freed"));
        }
        if !ELEMENTS.as_ptr_range().contains(&was.cast_const()) {
            // SAFETY: `write_handle` made it; the program's pointer becomes NULL here, so it is freed once.
            drop(unsafe { Box::from_raw(was) });
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_elements_are_those_of_the_engine() {
        let mirror = [
            (ElementCode::Byte, Element::Byte),
            (ElementCode::I64, Element::I64),
            (ElementCode::U64, Element::U64),
            (ElementCode::F64, Element::F64),
            (ElementCode::Bool, Element::Bool),
            (ElementCode::ShortInt, Element::ShortInt),
            (ElementCode::LongDouble, Element::LongDouble),
            (ElementCode::ComplexLong, Element::ComplexLong),
            (ElementCode::F32F32, Element::F32F32),
            (ElementCode::Bits256, Element::Bits256),
        ];
        for (ours, theirs) in mirror {
            assert_eq!(ours as c_int, c_int::from(theirs as u8));
        }
        for theirs in Element::ALL {
            let handle = unisono_layout_of(c_int::from(theirs as u8));
            // SAFETY: a static handle.
            assert_eq!(unsafe { unisono_layout_size(handle) }, theirs.size() as u64, "{}", theirs.name());
        }
        assert!(unisono_layout_of(0).is_null() && unisono_layout_of(27).is_null());
    }

    #[test]
    fn a_layout_is_freed_once_and_that_of_an_element_never() {
        let mut made = std::ptr::null_mut();
        // SAFETY: a valid pointer to fill in.
        assert_eq!(unsafe { unisono_layout_strided(11, 2, 1, 3, &raw mut made) }, CallStatus::Ok);
        // SAFETY: the handle just made.
        assert_eq!(unsafe { unisono_layout_extent(made) }, 32);
        // SAFETY: the handle just made.
        assert_eq!(unsafe { unisono_layout_free(&raw mut made) }, CallStatus::Ok);
        // SAFETY: a valid pointer to null.
        assert_eq!(unsafe { unisono_layout_free(&raw mut made) }, CallStatus::Arg);
        let mut fixed = unisono_layout_of(11).cast_mut();
        // SAFETY: a static handle.
        assert_eq!(unsafe { unisono_layout_free(&raw mut fixed) }, CallStatus::Ok);
        // SAFETY: a static handle.
        assert_eq!(unsafe { unisono_layout_size(unisono_layout_of(11)) }, 8);
    }
}
