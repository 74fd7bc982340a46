//! Moving data between a layout in memory and bytes in a row.
//!
//! The idea: walk the blocks of the layout in the order of travel, skip what earlier pieces covered, and
//! hand each block's address to a copy or a combination. Cost: one call a block; contiguous data is one
//! block. The caller vouches for the memory, whose bounds it has checked before.

use crate::layout::Layout;

/// Calls `visit(address, from, to)` for each block of `count` elements at `base`, where `from..to` is the
/// block's place in the data as it travels; only what lies in `skip..skip + length`.
#[inline]
pub(crate) fn walk(
    layout: &Layout,
    count: u64,
    base: *mut u8,
    skip: u64,
    length: u64,
    mut visit: impl FnMut(*mut u8, usize, usize),
) {
    let end = skip.saturating_add(length);
    if layout.is_contiguous() {
        let bytes = layout.size().saturating_mul(count).min(end).saturating_sub(skip);
        if bytes > 0 {
            visit(base.wrapping_add(skip as usize), 0, bytes as usize);
        }
        return;
    }
    let mut at = 0_u64;
    for (offset, bytes) in layout.blocks(count) {
        let next = at + bytes;
        if next > skip {
            let (first, last) = (at.max(skip), next.min(end));
            let address = base.wrapping_offset(offset as isize).wrapping_add((first - at) as usize);
            visit(address, (first - skip) as usize, (last - skip) as usize);
        }
        at = next;
        if at >= end {
            return;
        }
    }
}

/// Copies data from a layout into `bytes`, from byte `skip` of the data on.
///
/// # Safety
/// The data of `count` elements at `base` is readable.
pub(crate) unsafe fn gather(layout: &Layout, count: u64, base: *const u8, skip: u64, bytes: &mut [u8]) {
    walk(layout, count, base.cast_mut(), skip, bytes.len() as u64, |address, from, to| {
        let into = bytes[from..to].as_mut_ptr();
        // SAFETY: the block is readable as the caller promises; `into` is a slice of its length; the
        // caller's slice cannot overlap memory that it does not own.
        unsafe { std::ptr::copy(address, into, to - from) };
    });
}

/// Copies `bytes` to a layout, from byte `skip` of its data on.
///
/// # Safety
/// The data of `count` elements at `base` is writable.
pub(crate) unsafe fn scatter(layout: &Layout, count: u64, base: *mut u8, skip: u64, bytes: &[u8]) {
    walk(layout, count, base, skip, bytes.len() as u64, |address, from, to| {
        let piece = bytes[from..to].as_ptr();
        // SAFETY: the block is writable as the caller promises; `piece` is a slice of its length.
        unsafe { std::ptr::copy(piece, address, to - from) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;

    #[test]
    fn pieces_gathered_one_by_one_are_the_whole_and_scatter_back() {
        let memory: Vec<u8> = (0..96).collect();
        let layout = Layout::strided(Element::I16, 3, 2, 5).expect("a small layout");
        let total = layout.total(2).expect("small") as usize;
        let mut whole = vec![0; total];
        // SAFETY: two elements span 48 bytes or so of the vector's 96.
        unsafe { gather(&layout, 2, memory.as_ptr(), 0, &mut whole) };
        assert_eq!(whole[..8], [0, 1, 2, 3, 10, 11, 12, 13]);
        for piece in [1, 3, 7] {
            let mut pieces = vec![0; total];
            for start in (0..total).step_by(piece) {
                let end = (start + piece).min(total);
                // SAFETY: as above.
                unsafe { gather(&layout, 2, memory.as_ptr(), start as u64, &mut pieces[start..end]) };
            }
            assert_eq!(pieces, whole);
        }
        let mut back = vec![0xff; 96];
        // SAFETY: as above.
        unsafe { scatter(&layout, 2, back.as_mut_ptr(), 0, &whole) };
        let mut again = vec![0; total];
        // SAFETY: as above.
        unsafe { gather(&layout, 2, back.as_ptr(), 0, &mut again) };
        assert_eq!(again, whole);
        assert_eq!(back[4..10], [0xff; 6]);
    }
}
