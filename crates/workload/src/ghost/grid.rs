//! The neighbors of a process in a periodic grid, as square as the number of processes allows.

use unisono_rma::Rank;

/// Left, right, above, below.
pub(super) const NEIGHBOURS: usize = 4;

/// The side of a neighbor's ghost area to which this process's data goes.
pub(super) const OPPOSITE: [usize; NEIGHBOURS] = [1, 0, 3, 2];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) neighbour: [Rank; NEIGHBOURS],
    /// The neighbors without duplicates.
    pub(super) distinct: Vec<Rank>,
}

impl Grid {
    pub(super) fn from_rank(rank: usize, size: usize) -> Self {
        let rows =
            (1..=size).take_while(|r| r * r <= size).filter(|r| size.is_multiple_of(*r)).last().unwrap_or(1);
        let columns = size / rows;
        let (row, column) = (rank / columns, rank % columns);
        let left = row * columns + (column + columns - 1) % columns;
        let right = row * columns + (column + 1) % columns;
        // in a single row the neighbors above and below are the left and right ones
        let (above, below) = match rows {
            1 => (left, right),
            _ => ((row + rows - 1) % rows * columns + column, (row + 1) % rows * columns + column),
        };
        let neighbour = [left, right, above, below].map(Rank::at);
        let mut distinct: Vec<Rank> = Vec::new();
        for rank in neighbour {
            if !distinct.contains(&rank) {
                distinct.push(rank);
            }
        }
        Self { neighbour, distinct }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_sends_to_a_side_the_other_receives_from_the_opposite_one() {
        for size in 1..=12 {
            for rank in 0..size {
                let grid = Grid::from_rank(rank, size);
                for (side, opposite) in OPPOSITE.into_iter().enumerate() {
                    let there = Grid::from_rank(grid.neighbour[side].index(), size);
                    assert_eq!(there.neighbour[opposite].index(), rank, "{rank} of {size}, side {side}");
                }
            }
        }
    }

    #[test]
    fn two_processes_have_each_other_on_all_sides_and_nine_have_four_neighbours() {
        assert_eq!(Grid::from_rank(0, 2).distinct, [Rank(1)]);
        assert_eq!(Grid::from_rank(0, 2).neighbour, [Rank(1); 4]);
        assert_eq!(Grid::from_rank(4, 9).neighbour, [Rank(3), Rank(5), Rank(1), Rank(7)]);
    }
}
