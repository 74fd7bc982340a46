//! Layouts: what memory on either side of a transfer looks like.

use crate::error::{Status, answer, argument, null};
use std::ffi::c_int;
use unisono_rma::{Element, Error, Layout, Run};

/// What memory looks like: elements in a row, strided, indexed, or any runs of bytes. May be used by several
/// threads at a time.
#[derive(Debug)]
pub struct LayoutHandle(pub(crate) Layout);

/// The predefined types of elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementCode {
    /// Raw bytes: replace and bitwise operations.
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
    /// `bool`: logical operations.
    Bool = 14,
    /// `struct { float value; int place; }`
    F32Int = 15,
    /// `struct { double value; int place; }`
    F64Int = 16,
    /// `struct { int value; int place; }`
    IntInt = 17,
    /// `struct { long value; int place; }`
    LongInt = 18,
    /// `struct { short value; int place; }`
    ShortInt = 19,
    /// `long double` of x86-64.
    LongDouble = 20,
    /// `long double complex` of x86-64.
    ComplexLong = 21,
    /// `struct { long double value; int place; }` of x86-64
    LongDoubleInt = 22,
    /// `struct { float value, place; }`
    F32F32 = 23,
    /// `struct { double value, place; }`
    F64F64 = 24,
    /// 16 bytes without arithmetic: replace and no-op.
    Bits128 = 25,
    /// 32 bytes without arithmetic: replace and no-op.
    Bits256 = 26,
}

/// `count` blocks of `bytes` bytes, the first at `offset`, each `stride` bytes after the one before.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LayoutRun {
    /// Of the first block, in bytes; may be negative.
    pub offset: i64,
    /// Of each block.
    pub bytes: u64,
    /// From one block to the next, in bytes.
    pub stride: i64,
    pub count: u64,
}

/// The layouts of single elements, by code less one.
static ELEMENTS: [LayoutHandle; Element::ALL.len()] = {
    use Element as E;
    const fn of(element: E) -> LayoutHandle {
        LayoutHandle(Layout::of(element))
    }
    [
        of(E::Byte),
        of(E::I8),
        of(E::I16),
        of(E::I32),
        of(E::I64),
        of(E::U8),
        of(E::U16),
        of(E::U32),
        of(E::U64),
        of(E::F32),
        of(E::F64),
        of(E::Complex32),
        of(E::Complex64),
        of(E::Bool),
        of(E::F32Int),
        of(E::F64Int),
        of(E::IntInt),
        of(E::LongInt),
        of(E::ShortInt),
        of(E::LongDouble),
        of(E::ComplexLong),
        of(E::LongDoubleInt),
        of(E::F32F32),
        of(E::F64F64),
        of(E::Bits128),
        of(E::Bits256),
    ]
};

/// The element type with this code.
pub(crate) fn element(code: c_int) -> Result<Element, Error> {
    let known = u8::try_from(code).ok().and_then(Element::from_code);
    known.ok_or_else(|| argument(format!("{code} is no unisono_element")))
}

/// The layout behind a handle.
///
/// # Safety
/// `layout` is null or a live handle.
pub(crate) unsafe fn layout<'a>(layout: *const LayoutHandle) -> Result<&'a Layout, Error> {
    // SAFETY: null or a live handle, as the caller says.
    let handle = unsafe { layout.as_ref() };
    handle.map(|handle| &handle.0).ok_or_else(|| null("layout"))
}

/// Fills in the caller's pointer.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn give(to: *mut *mut LayoutHandle, made: Layout) -> Result<(), Error> {
    // SAFETY: null or writable, as the caller says.
    let to = unsafe { to.as_mut() }.ok_or_else(|| null("layout"))?;
    *to = Box::into_raw(Box::new(LayoutHandle(made)));
    Ok(())
}

/// `count` numbers of the caller's.
///
/// # Safety
/// `from` is null or readable for so many.
pub(crate) unsafe fn slice<'a, T>(from: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    match (count, from.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(null(what)),
        // SAFETY: not null, and readable for so many, as the caller says.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(from, count) }),
    }
}

/// The layout of one element, one of unisono_element; NULL for another number. It exists for ever.
#[unsafe(no_mangle)]
pub extern "C" fn unisono_layout_of(element: c_int) -> *const LayoutHandle {
    let at = usize::try_from(element).ok().and_then(|code| code.checked_sub(1));
    at.and_then(|at| ELEMENTS.get(at)).map_or(std::ptr::null(), std::ptr::from_ref)
}

/// `count` blocks of `length` elements, `stride` elements from one block's begin to the next one's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_strided(
    element: c_int,
    count: u64,
    length: u64,
    stride: i64,
    layout: *mut *mut LayoutHandle,
) -> Status {
    answer(|| {
        let made = Layout::strided(self::element(element)?, count, length, stride)?;
        // SAFETY: the caller's pointer.
        unsafe { give(layout, made) }
    })
}

/// Blocks of `lengths[i]` elements at `offsets[i]` elements, in this order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_indexed(
    element: c_int,
    blocks: usize,
    offsets: *const i64,
    lengths: *const u64,
    layout: *mut *mut LayoutHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's array.
        let offsets = unsafe { slice(offsets, blocks, "offsets") }?;
        // SAFETY: the caller's array.
        let lengths = unsafe { slice(lengths, blocks, "lengths") }?;
        let blocks: Vec<(i64, u64)> = offsets.iter().copied().zip(lengths.iter().copied()).collect();
        let made = Layout::indexed(self::element(element)?, &blocks)?;
        // SAFETY: the caller's pointer.
        unsafe { give(layout, made) }
    })
}

/// Any runs of bytes in the order in which data travels, as of a struct; `extent` bytes from one to the next.
/// `element` is the one type that all data is made of, which accumulates need, or 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_runs(
    runs: *const LayoutRun,
    count: usize,
    extent: i64,
    element: c_int,
    layout: *mut *mut LayoutHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's array.
        let runs = unsafe { slice(runs, count, "runs") }?;
        let run = |run: &LayoutRun| Run {
            offset: run.offset,
            bytes: run.bytes,
            stride: run.stride,
            count: run.count,
        };
        let element = if element == 0 { None } else { Some(self::element(element)?) };
        let made = Layout::from_runs(runs.iter().map(run).collect(), extent, element)?;
        // SAFETY: the caller's pointer.
        unsafe { give(layout, made) }
    })
}

/// Bytes of data in one of these; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_size(layout: *const LayoutHandle) -> u64 {
    // SAFETY: null or a live handle.
    unsafe { layout.as_ref() }.map_or(0, |layout| layout.0.size())
}

/// Bytes from one of these to the next; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_extent(layout: *const LayoutHandle) -> i64 {
    // SAFETY: null or a live handle.
    unsafe { layout.as_ref() }.map_or(0, |layout| layout.0.extent())
}

/// Frees a layout and sets `*layout` to NULL. Operations that use it may still be under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_layout_free(layout: *mut *mut LayoutHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's pointer is null or valid.
        let from = unsafe { layout.as_mut() }.ok_or_else(|| null("layout"))?;
        let was = std::mem::replace(from, std::ptr::null_mut());
        if was.is_null() {
            return Err(argument("the layout has been freed"));
        }
        if !ELEMENTS.as_ptr_range().contains(&was.cast_const()) {
            // SAFETY: made by `give`, and forgotten by the caller from here on.
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
            // SAFETY: a handle that exists for ever.
            assert_eq!(unsafe { unisono_layout_size(handle) }, theirs.size() as u64, "{}", theirs.name());
        }
        assert!(unisono_layout_of(0).is_null() && unisono_layout_of(27).is_null());
    }

    #[test]
    fn a_layout_is_freed_once_and_that_of_an_element_never() {
        let mut made = std::ptr::null_mut();
        // SAFETY: a valid pointer to fill in.
        assert_eq!(unsafe { unisono_layout_strided(11, 2, 1, 3, &raw mut made) }, Status::Ok);
        // SAFETY: the handle just made.
        assert_eq!(unsafe { unisono_layout_extent(made) }, 32);
        // SAFETY: the handle just made.
        assert_eq!(unsafe { unisono_layout_free(&raw mut made) }, Status::Ok);
        // SAFETY: a valid pointer to null.
        assert_eq!(unsafe { unisono_layout_free(&raw mut made) }, Status::Arg);
        let mut fixed = unisono_layout_of(11).cast_mut();
        // SAFETY: a handle that exists for ever.
        assert_eq!(unsafe { unisono_layout_free(&raw mut fixed) }, Status::Ok);
        // SAFETY: as above.
        assert_eq!(unsafe { unisono_layout_size(unisono_layout_of(11)) }, 8);
    }
}
