//! Evaluates one candidate: how much would be saved if it became a center?
//!
//! Points that are closer to the candidate than to their center would move to the candidate. A center would
//! close if that saves more than it costs to move its other points to the candidate. If all of this together
//! saves more than the cost of a center, it is carried out.
//!
//! ```text
//!   1 all have left the last evaluation      6 all savings are stored   <- nearly all the work lies before
//!   2 member 0 has set the table's width     7 each center's sum is stored
//!   3 all have counted their centers         8 member 0 has decided
//!   4 member 0 has numbered the members      9 all have moved their points
//!   5 all have numbered their centers
//! ```
//! The members exchange data through the [`SavingsTable`](super::table::SavingsTable).

use super::search::SearchMember;
use super::table::LINE;
use std::sync::atomic::Ordering::Relaxed;

impl<W: FnMut() -> Result<(), String>> SearchMember<'_, W> {
    /// Makes the candidate a center if that saves anything. Returns the saving.
    pub(super) fn evaluate(&mut self, candidate: usize) -> Result<i64, String> {
        let search = self.search;
        let table = &search.table;
        // SYNC(evaluation) release: arriving at each of these barriers publishes this member's stores
        // SYNC(evaluation) acquire: leaving it orders this member's loads after the others' stores
        (self.wait)()?;
        if self.index == 0 {
            table.width.store((self.centres + 1).next_multiple_of(LINE), Relaxed);
        }
        (self.wait)()?;
        let own = &table.counts[self.index];
        own.centres.store(self.own_centres().count(), Relaxed);
        (self.wait)()?;
        if self.index == 0 {
            table.number_members();
        }
        (self.wait)()?;
        for (column, centre) in (own.first_column.load(Relaxed)..).zip(self.own_centres()) {
            table.column[centre].store(column as u32, Relaxed);
        }
        table.row(self.index).iter().for_each(|cell| cell.store(0, Relaxed));
        (self.wait)()?;
        let moving = self.try_points(candidate);
        (self.wait)()?;
        let (closing, closed) = self.try_closing();
        own.saved.store(moving + closing, Relaxed);
        own.closed.store(closed, Relaxed);
        (self.wait)()?;
        if self.index == 0 {
            table.decide(self.z);
        }
        (self.wait)()?;
        let saved = table.saved.load(Relaxed);
        if saved > 0 {
            self.adopt(candidate);
            self.centres = self.centres + 1 - table.closed.load(Relaxed);
        }
        (self.wait)()?;
        Ok(saved)
    }

    fn own_centres(&self) -> impl Iterator<Item = usize> + '_ {
        self.own.clone().filter(|point| self.search.is_centre[*point].load(Relaxed))
    }

    fn column_of(&self, centre: usize) -> usize {
        self.search.table.column[centre].load(Relaxed) as usize
    }

    /// Returns the saving by the member's own points that move to the candidate. The member's row gets the
    /// (negative) saving of the other points if their center closes.
    fn try_points(&mut self, candidate: usize) -> i64 {
        let search = self.search;
        let row = search.table.row(self.index);
        let mut saved = 0;
        for (i, point) in self.own.clone().enumerate() {
            let difference = search.cost[point].load(Relaxed) - search.points.cost(point, candidate);
            self.moves[i] = difference > 0;
            if difference > 0 {
                saved += difference;
            } else {
                let centre = search.assigned[point].load(Relaxed) as usize;
                let cell = &row[self.column_of(centre)];
                // only this member writes its row
                cell.store(cell.load(Relaxed) + difference, Relaxed);
            }
        }
        saved
    }

    /// Returns the saving by the closing of the member's own centers, and the number of these centers.
    fn try_closing(&self) -> (i64, usize) {
        let table = &self.search.table;
        let (mut saved, mut closed) = (0, 0);
        for centre in self.own_centres() {
            let column = self.column_of(centre);
            let cells = (0..table.members).map(|member| table.row(member)[column].load(Relaxed));
            let closing = self.z + cells.sum::<i64>();
            table.row(table.members)[column].store(closing, Relaxed);
            if closing > 0 {
                saved += closing;
                closed += 1;
            }
        }
        (saved, closed)
    }

    fn adopt(&self, candidate: usize) {
        let search = self.search;
        let closing = search.table.row(search.table.members);
        let closes = |centre: usize| closing[self.column_of(centre)].load(Relaxed) > 0;
        for (i, point) in self.own.clone().enumerate() {
            if self.moves[i] || closes(search.assigned[point].load(Relaxed) as usize) {
                self.assign(point, candidate, search.points.cost(point, candidate));
            }
        }
        for centre in self.own_centres().filter(|centre| closes(*centre)) {
            search.is_centre[centre].store(false, Relaxed);
        }
        self.open(candidate);
    }
}
