//! The layout of a transfer's data: a flattened description of a contiguous, strided, indexed or struct type.
//!
//! The idea: the data of any nested type is a list of *runs* of blocks, in the order of travel. A layout is
//! flattened once, never changes and is cheap to clone. Its [`id`](Layout::id) belongs to no other layout of
//! this process, so an origin describes it once to a target and then sends the id (the paper's "cache derived
//! datatypes at the target"). Reference: the paper, section 6; MPI-4.0 section 5.1.

use crate::model::{Element, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// `count` blocks of `bytes` bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes from the element's address to the first block; may be negative.
    pub offset: i64,
    pub bytes: u64,
    /// Bytes from the start of one block to the start of the next.
    pub stride: i64,
    pub count: u64,
}

/// The layout of a transfer's data: contiguous, strided, indexed, or any list of [`Run`]s, in the order in
/// which the data travels. Clones share one description.
///
/// ```text
///   offset           stride             extent (where the next element of a count starts)
///     |                |                  |
///     v                v                  v
///   --[bytes]----------[bytes]------------|--[bytes]----------[bytes]---
/// ```
/// A vector of a million blocks is one run. Cost: 40 bytes for each run here and 32 on the wire; nothing for
/// contiguous data ([`Layout::from_element`], [`Layout::bytes`]). In MPI's words it is a flattened derived
/// datatype (MPI-4.0, section 5.1).
#[derive(Clone, Debug)]
pub struct Layout {
    form: LayoutForm,
    element: Option<Element>,
}

#[derive(Clone, Debug)]
enum LayoutForm {
    Contiguous(u64),
    Flattened(Arc<Flattened>),
}

#[derive(Debug)]
struct Flattened {
    id: u64,
    runs: Box<[Run]>,
    /// Prefix sums: `ends[i]` is the number of data bytes of an element in the runs 0 to i.
    /// [`Layout::find`] searches here.
    ends: Box<[u64]>,
    size: u64,
    extent: i64,
    /// The first byte and the byte after the last, relative to the element's address.
    bounds: (i64, i64),
}

/// The largest number of runs of a layout: it bounds the memory that a hostile description can ask for.
const MAX_RUNS: usize = 1 << 22;

/// The length of the longest description that [`Layout::encode`] writes (bytes).
pub(crate) const MAX_DESCRIPTION: u64 = 16 + 32 * MAX_RUNS as u64;

impl Layout {
    pub const fn from_element(element: Element) -> Self {
        Self { form: LayoutForm::Contiguous(element.size() as u64), element: Some(element) }
    }

    /// Creates the layout of `bytes` contiguous bytes, for puts and gets.
    pub const fn bytes(bytes: u64) -> Self {
        Self { form: LayoutForm::Contiguous(bytes), element: Some(Element::Byte) }
    }

    /// Creates the layout of `bytes` contiguous bytes made of `element`s. `None` stands for data of several
    /// types, which only puts and gets can move.
    pub const fn contiguous(bytes: u64, element: Option<Element>) -> Self {
        Self { form: LayoutForm::Contiguous(bytes), element }
    }

    /// Creates a flattened type from its runs, in the order in which data travels, and the distance from one
    /// element to the next. `element` is the predefined type of all data; accumulates need it. Fails with
    /// [`Error::Type`] for runs with offsets beyond 2^63, for blocks that split an element, and for too many
    /// runs.
    pub fn from_runs(runs: Vec<Run>, extent: i64, element: Option<Element>) -> Result<Self, Error> {
        let refuse = |what: &str| Err(Error::Type(format!("not a layout: {what}")));
        if runs.len() > MAX_RUNS {
            return refuse("more runs than any type needs");
        }
        let runs: Vec<Run> = runs.into_iter().filter(|run| run.bytes > 0 && run.count > 0).collect();
        let (mut size, mut low, mut high) = (0_u64, i64::MAX, i64::MIN);
        let mut ends = Vec::with_capacity(runs.len());
        for run in &runs {
            let Some((bytes, first, end)) = span(*run) else { return refuse("an offset beyond 2^63") };
            if element.is_some_and(|element| !run.bytes.is_multiple_of(element.size() as u64)) {
                return refuse("a block ends inside an element");
            }
            let Some(sum) = size.checked_add(bytes) else { return refuse("more than 2^64 bytes") };
            (size, low, high) = (sum, low.min(first), high.max(end));
            ends.push(sum);
        }
        if runs.is_empty() {
            (low, high) = (0, 0);
        }
        if let [Run { offset: 0, bytes, stride, count }] = *runs.as_slice() {
            let packed = count == 1 || u64::try_from(stride) == Ok(bytes);
            if packed && u64::try_from(extent) == Ok(size) {
                return Ok(Self { form: LayoutForm::Contiguous(size), element });
            }
        }
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (runs, ends) = (runs.into(), ends.into());
        let flattened = Flattened { id, runs, ends, size, extent, bounds: (low, high) };
        Ok(Self { form: LayoutForm::Flattened(Arc::new(flattened)), element })
    }

    /// Creates the layout of `count` blocks of `length` elements each. `stride` elements lie between the
    /// starts of two blocks. Fails with [`Error::Type`] when an offset overflows.
    ///
    /// ```
    /// use unisono_rma::{Element, Layout};
    ///
    /// // a column of a matrix of 8 rows and 10 columns
    /// let column = Layout::strided(Element::F64, 8, 1, 10)?;
    /// assert_eq!((column.size(), column.is_contiguous()), (8 * 8, false));
    /// # Ok::<(), unisono_rma::Error>(())
    /// ```
    pub fn strided(element: Element, count: u64, length: u64, stride: i64) -> Result<Self, Error> {
        let size = element.size() as u64;
        let overflow = || Error::Type("not a layout: an offset beyond 2^63".to_owned());
        let bytes = length.checked_mul(size).ok_or_else(overflow)?;
        let step = stride.checked_mul(size.cast_signed()).ok_or_else(overflow)?;
        let run = Run { offset: 0, bytes, stride: step, count };
        let (_, low, high) = span(run).ok_or_else(overflow)?;
        Self::from_runs(vec![run], high.saturating_sub(low), Some(element))
    }

    /// Creates the layout of a list of blocks. Each is given as its offset and its length, both in elements.
    /// Fails with [`Error::Type`] when an offset overflows.
    pub fn indexed(element: Element, blocks: &[(i64, u64)]) -> Result<Self, Error> {
        let size = element.size() as u64;
        let overflow = || Error::Type("not a layout: an offset beyond 2^63".to_owned());
        let mut runs = Vec::with_capacity(blocks.len());
        for (offset, length) in blocks {
            let offset = offset.checked_mul(size.cast_signed()).ok_or_else(overflow)?;
            let bytes = length.checked_mul(size).ok_or_else(overflow)?;
            runs.push(Run { offset, bytes, stride: bytes.cast_signed(), count: 1 });
        }
        let ends = runs.iter().filter_map(|run| span(*run)).map(|(_, _, end)| end).max().unwrap_or(0);
        let starts = runs.iter().map(|run| run.offset).min().unwrap_or(0);
        Self::from_runs(runs, ends.saturating_sub(starts), Some(element))
    }

    /// Returns the number of a flattened layout within this process, or `None` if the layout is contiguous
    /// and needs no description.
    pub fn id(&self) -> Option<u64> {
        match &self.form {
            LayoutForm::Contiguous(_) => None,
            LayoutForm::Flattened(flattened) => Some(flattened.id),
        }
    }

    /// Returns the predefined type of all data, if it is a single type.
    #[inline]
    pub const fn element(&self) -> Option<Element> {
        self.element
    }

    /// Returns the number of bytes of data in one element of this layout.
    #[inline]
    pub fn size(&self) -> u64 {
        match &self.form {
            LayoutForm::Contiguous(bytes) => *bytes,
            LayoutForm::Flattened(flattened) => flattened.size,
        }
    }

    /// Returns the distance from one element to the next, when several are counted (bytes).
    #[inline]
    pub fn extent(&self) -> i64 {
        match &self.form {
            LayoutForm::Contiguous(bytes) => bytes.cast_signed(),
            LayoutForm::Flattened(flattened) => flattened.extent,
        }
    }

    /// Whether the data of any count of elements is contiguous.
    #[inline]
    pub const fn is_contiguous(&self) -> bool {
        matches!(self.form, LayoutForm::Contiguous(_))
    }

    /// Returns the runs of a flattened layout; none for a contiguous layout.
    pub fn runs(&self) -> &[Run] {
        match &self.form {
            LayoutForm::Contiguous(_) => &[],
            LayoutForm::Flattened(flattened) => &flattened.runs,
        }
    }

    /// Returns the number of bytes of data in `count` elements. Fails with [`Error::Count`] when the product
    /// overflows.
    #[inline]
    pub fn total(&self, count: u64) -> Result<u64, Error> {
        let bytes = self.size();
        count
            .checked_mul(bytes)
            .filter(|total| i64::try_from(*total).is_ok())
            .ok_or(Error::Count { count, bytes })
    }

    /// Returns the first byte that `count` elements touch and the byte after the last, relative to the first
    /// element's address, or (0, 0) if they touch no byte.
    #[inline]
    pub fn bounds(&self, count: u64) -> (i128, i128) {
        if count == 0 {
            return (0, 0);
        }
        match &self.form {
            LayoutForm::Contiguous(bytes) => (0, i128::from(*bytes) * i128::from(count)),
            LayoutForm::Flattened(flattened) => {
                let last = i128::from(flattened.extent) * i128::from(count - 1);
                let (low, high) = (i128::from(flattened.bounds.0), i128::from(flattened.bounds.1));
                if low == high { (0, 0) } else { (low + last.min(0), high + last.max(0)) }
            }
        }
    }

    /// Returns every block of `count` elements in the order of travel: its offset from the first element's
    /// address, and its length.
    pub fn blocks(&self, count: u64) -> impl Iterator<Item = (i64, u64)> + '_ {
        let (elements, whole) = match &self.form {
            LayoutForm::Contiguous(bytes) => (0, bytes.saturating_mul(count)),
            LayoutForm::Flattened(_) => (count, 0),
        };
        let extent = self.extent();
        let strided = (0..elements).flat_map(move |element| {
            let start = extent.wrapping_mul(element.cast_signed());
            self.runs().iter().flat_map(move |run| {
                (0..run.count).map(move |block| {
                    let place = run.stride.wrapping_mul(block.cast_signed());
                    (start.wrapping_add(run.offset).wrapping_add(place), run.bytes)
                })
            })
        });
        (whole > 0).then_some((0, whole)).into_iter().chain(strided)
    }

    /// Finds the block that holds byte `skip` of the data. Returns `None` if there is no data, or if all of
    /// it is contiguous. Cost: two divisions and a binary search of the runs, wherever the byte is.
    pub(crate) fn find(&self, skip: u64) -> Option<LayoutBlock> {
        let LayoutForm::Flattened(flattened) = &self.form else { return None };
        let element = skip.checked_div(flattened.size)?;
        let inside = skip % flattened.size;
        let run = flattened.ends.partition_point(|end| *end <= inside);
        let Run { bytes, count, .. } = *flattened.runs.get(run)?;
        let before = flattened.ends[run] - bytes * count;
        let block = (inside - before) / bytes;
        Some(LayoutBlock { element, run, block, at: skip - (inside - before) % bytes })
    }

    /// Encodes the layout for messages; the result may be longer than one message. It is empty if the layout
    /// is contiguous.
    pub fn encode(&self) -> Vec<u8> {
        let LayoutForm::Flattened(flattened) = &self.form else { return Vec::new() };
        let mut bytes = Vec::with_capacity(16 + 32 * flattened.runs.len());
        bytes.extend_from_slice(&flattened.extent.to_le_bytes());
        bytes.extend_from_slice(&u64::from(self.element.map_or(0, |element| element as u8)).to_le_bytes());
        for run in &flattened.runs {
            bytes.extend_from_slice(&run.offset.to_le_bytes());
            bytes.extend_from_slice(&run.bytes.to_le_bytes());
            bytes.extend_from_slice(&run.stride.to_le_bytes());
            bytes.extend_from_slice(&run.count.to_le_bytes());
        }
        bytes
    }

    /// Decodes and checks the bytes that [`encode`](Self::encode) wrote. Any input is safe.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let refuse = |what: &str| Error::Type(format!("not a layout: {what}"));
        let (words, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || words.len() < 2 || !(words.len() - 2).is_multiple_of(4) {
            return Err(refuse("its description has an impossible length"));
        }
        let word = |index: usize| u64::from_le_bytes(words[index]);
        let element = match word(1) {
            0 => None,
            code => Some(
                u8::try_from(code)
                    .ok()
                    .and_then(Element::from_code)
                    .ok_or_else(|| refuse("unknown element type"))?,
            ),
        };
        let run = |at: usize| Run {
            offset: word(at).cast_signed(),
            bytes: word(at + 1),
            stride: word(at + 2).cast_signed(),
            count: word(at + 3),
        };
        let runs = (2..words.len()).step_by(4).map(run).collect();
        Self::from_runs(runs, word(0).cast_signed(), element)
    }
}

/// A block of a flattened layout, as [`Layout::find`] finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayoutBlock {
    pub(crate) element: u64,
    pub(crate) run: usize,
    pub(crate) block: u64,
    /// The position of its first byte in the data.
    pub(crate) at: u64,
}

/// Returns the number of bytes of a run's data, the run's first byte and the byte after its last, or `None`
/// if a number overflows.
fn span(run: Run) -> Option<(u64, i64, i64)> {
    let total = run.bytes.checked_mul(run.count)?;
    let blocks = i64::try_from(run.count.checked_sub(1)?).ok()?;
    let last = run.offset.checked_add(run.stride.checked_mul(blocks)?)?;
    let bytes = i64::try_from(run.bytes).ok()?;
    i64::try_from(total).ok()?;
    Some((total, run.offset.min(last), run.offset.max(last).checked_add(bytes)?))
}

impl Element {
    pub fn layout(self) -> Layout {
        Layout::from_element(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packed_run_is_recognized_as_contiguous_and_needs_no_description() {
        let packed = Layout::strided(Element::F64, 4, 2, 2).expect("a small layout");
        assert!(packed.is_contiguous() && packed.id().is_none() && packed.size() == 64);
        assert!(packed.encode().is_empty());
    }

    #[test]
    fn blocks_follow_the_order_of_travel_over_several_elements() {
        let column = Layout::strided(Element::I32, 2, 1, 3).expect("a small layout");
        assert_eq!((column.size(), column.extent()), (8, 16));
        assert_eq!(column.blocks(2).collect::<Vec<_>>(), [(0, 4), (12, 4), (16, 4), (28, 4)]);
        assert_eq!(column.bounds(2), (0, 32));
        assert_eq!(Layout::from_element(Element::I32).blocks(3).collect::<Vec<_>>(), [(0, 12)]);
    }

    #[test]
    fn two_layouts_never_share_an_identity() {
        let make = || Layout::strided(Element::I32, 2, 1, 3).expect("a small layout");
        let (one, other) = (make(), make());
        assert_ne!(one.id(), other.id());
        assert_eq!(one.id(), one.clone().id());
    }

    #[test]
    fn a_block_that_splits_an_element_is_refused() {
        let run = Run { offset: 0, bytes: 6, stride: 8, count: 2 };
        assert!(Layout::from_runs(vec![run], 16, Some(Element::I32)).is_err());
        assert!(Layout::from_runs(vec![run], 16, None).is_ok());
    }

    proptest! {
        #[test]
        fn a_description_survives_the_journey(
            runs in proptest::collection::vec((-64_i64..64, 1_u64..9, -32_i64..32, 1_u64..4), 1..5),
            extent in -128_i64..128,
        ) {
            let runs: Vec<Run> = runs
                .into_iter()
                .map(|(offset, bytes, stride, count)| Run { offset, bytes, stride, count })
                .collect();
            let sent = Layout::from_runs(runs, extent, None).expect("small runs fit");
            prop_assume!(!sent.is_contiguous());
            let came = Layout::decode(&sent.encode()).expect("our own description is well formed");
            prop_assert_eq!(came.runs(), sent.runs());
            prop_assert_eq!((came.extent(), came.size()), (sent.extent(), sent.size()));
            let blocks: Vec<_> = sent.blocks(3).collect();
            prop_assert_eq!(blocks.iter().map(|(_, bytes)| bytes).sum::<u64>(), sent.total(3).expect("small"));
            let (low, high) = sent.bounds(3);
            for (offset, bytes) in blocks {
                prop_assert!(low <= i128::from(offset) && i128::from(offset) + i128::from(bytes) <= high);
            }
        }
    }
}
