//! Moving data between a layout in memory and contiguous bytes.
//!
//! The idea: find the block of the first byte by division ([`Layout::find`]), walk from there in the order of
//! travel, and pass each block's address to a copy or a combination. The cost of a piece depends on its own
//! blocks and not on the blocks before it. So a long transfer takes time in proportion to its length, and a
//! peer that describes 2^60 blocks cannot keep this member busy. Cost: one call for each block; contiguous
//! data is one block. The caller has checked the bounds of the memory.

use crate::model::{Layout, Run};

/// Calls `visit(address, from, to)` for each block of `count` elements at `base` that lies in the bytes
/// `skip..skip + length` of the data. `from..to` is the block's range there, counted from `skip`.
#[inline]
pub(crate) fn walk(
    layout: &Layout,
    count: u64,
    base: *mut u8,
    skip: u64,
    length: u64,
    mut visit: impl FnMut(*mut u8, usize, usize),
) {
    if length == 0 {
        return;
    }
    let end = skip.saturating_add(length);
    if layout.is_contiguous() {
        let bytes = layout.size().saturating_mul(count).min(end).saturating_sub(skip);
        if bytes > 0 {
            visit(base.wrapping_add(skip as usize), 0, bytes as usize);
        }
        return;
    }
    let Some(first) = layout.find(skip) else { return };
    let (mut run, mut block, mut at) = (first.run, first.block, first.at);
    for element in first.element..count {
        let start = base.wrapping_offset(layout.extent().wrapping_mul(element.cast_signed()) as isize);
        for Run { offset, bytes, stride, count } in layout.runs()[run..].iter().copied() {
            let first = offset.wrapping_add(stride.wrapping_mul(block.cast_signed()));
            let mut address = start.wrapping_offset(first as isize);
            for _ in block..count {
                if at >= end {
                    return;
                }
                let next = at.saturating_add(bytes);
                let (from, to) = (at.max(skip), next.min(end));
                visit(
                    address.wrapping_add((from - at) as usize),
                    (from - skip) as usize,
                    (to - skip) as usize,
                );
                address = address.wrapping_offset(stride as isize);
                at = next;
            }
            block = 0;
        }
        run = 0;
    }
}

/// Copies data from a layout into `bytes`, from byte `skip` of the data on.
///
/// # Safety
/// The data of `count` elements at `base` is readable.
pub(crate) unsafe fn gather(layout: &Layout, count: u64, base: *const u8, skip: u64, bytes: &mut [u8]) {
    walk(layout, count, base.cast_mut(), skip, bytes.len() as u64, |address, from, to| {
        let into = bytes[from..to].as_mut_ptr();
        // SAFETY: the caller promises that the block is readable; `into` is a slice of its length.
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
        // SAFETY: the caller promises that the block is writable; `piece` is a slice of its length.
        unsafe { std::ptr::copy(piece, address, to - from) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Element;
    use proptest::prelude::*;

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
                // SAFETY: two elements span 48 bytes or so of the vector's 96.
                unsafe { gather(&layout, 2, memory.as_ptr(), start as u64, &mut pieces[start..end]) };
            }
            assert_eq!(pieces, whole);
        }
        let mut back = vec![0xff; 96];
        // SAFETY: two elements span 48 bytes or so of the vector's 96.
        unsafe { scatter(&layout, 2, back.as_mut_ptr(), 0, &whole) };
        let mut again = vec![0; total];
        // SAFETY: two elements span 48 bytes or so of the vector's 96.
        unsafe { gather(&layout, 2, back.as_ptr(), 0, &mut again) };
        assert_eq!(again, whole);
        assert_eq!(back[4..10], [0xff; 6]);
    }

    proptest! {
        #[test]
        fn a_piece_visits_what_a_walk_from_the_first_block_on_visits_there(
            runs in proptest::collection::vec((-64_i64..64, 1_u64..9, -32_i64..32, 1_u64..5), 0..6),
            extent in -128_i64..128,
            (count, skip, length) in (0_u64..5, 0_u64..200, 0_u64..200),
        ) {
            let run = |(offset, bytes, stride, count)| Run { offset, bytes, stride, count };
            let layout = Layout::from_runs(runs.into_iter().map(run).collect(), extent, None).expect("small");
            let base = std::ptr::null_mut::<u8>();
            let (mut expected, mut at, end) = (Vec::new(), 0, skip + length);
            for (offset, bytes) in layout.blocks(count) {
                let (from, to) = (at.max(skip), (at + bytes).min(end));
                if from < to {
                    let address = base.wrapping_offset(offset as isize).wrapping_add((from - at) as usize);
                    expected.push((address, (from - skip) as usize, (to - skip) as usize));
                }
                at += bytes;
            }
            let mut visited = Vec::new();
            walk(&layout, count, base, skip, length, |address, from, to| visited.push((address, from, to)));
            prop_assert_eq!(visited, expected);
        }
    }

    /// Fails if `work` does not end in time; its thread is then left behind.
    fn ends(work: impl FnOnce() + Send + 'static) {
        let (done, waits) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            work();
            done.send(())
        });
        assert_eq!(waits.recv_timeout(std::time::Duration::from_secs(60)), Ok(()), "it still walks");
    }

    #[test]
    fn a_piece_deep_inside_a_hostile_layout_costs_only_its_own_blocks() {
        ends(|| {
            let run = |stride, count| Run { offset: 0, bytes: 1, stride, count };
            let runs = vec![run(0, 1 << 40), run(8, 1 << 20), run(0, 3)];
            let layout = Layout::from_runs(runs, 0, None).expect("bounds that fit");
            let (mut visited, deep) = (0, (1 << 59) + 5);
            walk(&layout, 1 << 20, std::ptr::null_mut(), deep, 16, |_, from, to| visited += to - from);
            assert_eq!(visited, 16);
        });
    }

    #[test]
    fn any_number_of_elements_without_data_is_nothing() {
        ends(|| {
            let nothing = Layout::from_runs(Vec::new(), 8, None).expect("no runs");
            walk(&nothing, u64::MAX, std::ptr::null_mut(), 0, 8, |_, _, _| unreachable!("there is no data"));
        });
    }
}
