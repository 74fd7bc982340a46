//! The operators by which switches combine the six bits of data of arrivals, so that a barrier also computes
//! a result.
//!
//! All five operators are associative and commutative, so that neither the shape of the tree nor the order of
//! arrival changes the result. A plain barrier may use any of them, with zeros as data.

use crate::SyncMessage;

/// How a switch combines the data of two arrivals.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ReductionOperator {
    /// The bits that any member set.
    #[default]
    Or,
    /// The bits that every member set.
    And,
    Min,
    Max,
    /// The sum; 63 stands for 63 and above, so that an overflow cannot pass for a small sum.
    Sum,
}

impl ReductionOperator {
    pub const ALL: [Self; 5] = [Self::Or, Self::And, Self::Min, Self::Max, Self::Sum];

    pub fn combine(self, one: u8, other: u8) -> u8 {
        match self {
            Self::Or => one | other,
            Self::And => one & other,
            Self::Min => one.min(other),
            Self::Max => one.max(other),
            Self::Sum => one.saturating_add(other).min(SyncMessage::MAX_DATA),
        }
    }

    /// Returns the neutral element: combining it with any value gives that value. A register starts with it.
    pub fn neutral(self) -> u8 {
        match self {
            Self::Or | Self::Max | Self::Sum => 0,
            Self::And | Self::Min => SyncMessage::MAX_DATA,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_grouping_do_not_show_and_the_neutral_value_changes_nothing() {
        let max = SyncMessage::MAX_DATA;
        for operation in ReductionOperator::ALL {
            for a in 0..=max {
                assert_eq!(operation.combine(operation.neutral(), a), a);
                for b in 0..=max {
                    let both = operation.combine(a, b);
                    assert_eq!(both, operation.combine(b, a));
                    assert!(both <= max);
                    for c in [0, 1, 31, 62, max] {
                        assert_eq!(operation.combine(both, c), operation.combine(a, operation.combine(b, c)));
                    }
                }
            }
        }
    }
}
