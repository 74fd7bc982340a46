//! The table for the data that the members of a team exchange during an evaluation.
//!
//! The table has a row for each member and a column for each center. A row is only as wide as the number of
//! centers requires, and rows are adjacent in memory. Between two barriers only one member writes a given
//! number, and the next barrier makes it visible to the others.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// The width of a row is a multiple of this number of cells, which fill a whole number of cache lines, so
/// that the rows of two members share no cache line.
pub(super) const LINE: usize = 16;

#[derive(Debug)]
pub(super) struct SavingsTable {
    pub(super) members: usize,
    pub(super) width: AtomicUsize,
    /// In a member's row: the saving of the member's points if the column's center closes (negative: a cost).
    /// In the last row: the total saving if the center closes.
    cells: Vec<AtomicI64>,
    /// For each point that is a center: its column.
    pub(super) column: Vec<AtomicU32>,
    pub(super) counts: Vec<CachePadded<MemberCounts>>,
    /// The saving of the evaluation, and the number of centers that close.
    pub(super) saved: AtomicI64,
    pub(super) closed: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct MemberCounts {
    pub(super) centres: AtomicUsize,
    pub(super) first_column: AtomicUsize,
    pub(super) saved: AtomicI64,
    pub(super) closed: AtomicUsize,
}

impl SavingsTable {
    pub(super) fn new(points: usize, members: usize) -> Self {
        Self {
            members,
            width: AtomicUsize::new(0),
            // there is room for every point to become a center
            cells: (0..(members + 1) * (points + LINE)).map(|_| AtomicI64::new(0)).collect(),
            column: (0..points).map(|_| AtomicU32::new(0)).collect(),
            counts: (0..members).map(|_| CachePadded::default()).collect(),
            saved: AtomicI64::new(0),
            closed: AtomicUsize::new(0),
        }
    }

    pub(super) fn row(&self, member: usize) -> &[AtomicI64] {
        let width = self.width.load(Relaxed);
        &self.cells[member * width..][..width]
    }

    pub(super) fn number_members(&self) {
        let mut first = 0;
        for counts in &self.counts {
            counts.first_column.store(first, Relaxed);
            first += counts.centres.load(Relaxed);
        }
    }

    /// Stores member 0's decision on the evaluation. A new center costs `z`.
    pub(super) fn decide(&self, z: i64) {
        let sum: i64 = self.counts.iter().map(|counts| counts.saved.load(Relaxed)).sum();
        let closed = self.counts.iter().map(|counts| counts.closed.load(Relaxed)).sum();
        self.saved.store((sum - z).max(0), Relaxed);
        self.closed.store(closed, Relaxed);
    }
}
