//! The predefined operations of accumulates, and their element types.
//!
//! Reference: MPI-4.0 section 6.9.2 (operations and their types), 12.3.4 (replace, no-op).

use super::coded::coded;
use crate::model::{Element, Error};

/// The arithmetic of `long double` is written for the 80-bit format; only x86-64 has it.
const HAS_LONG_DOUBLE: bool = cfg!(target_arch = "x86_64");

coded! {
    /// How an accumulate combines the origin's value with the target's.
    pub enum Operation {
        Sum = 1 "sum",
        Product = 2 "product",
        Min = 3 "min",
        Max = 4 "max",
        /// 1 if both are nonzero, else 0.
        LogicalAnd = 5 "logical and",
        LogicalOr = 6 "logical or",
        /// 1 if exactly one operand is nonzero, else 0.
        LogicalXor = 7 "logical xor",
        BitAnd = 8 "bitwise and",
        BitOr = 9 "bitwise or",
        BitXor = 10 "bitwise xor",
        /// The origin's value.
        Replace = 11 "replace",
        /// The target's value; for get-accumulate and fetch-and-op.
        NoOp = 12 "no-op",
        /// The pair with the smaller value; of two equal values the pair with the smaller index.
        MinLoc = 13 "minloc",
        /// The pair with the greater value; of two equal values the pair with the smaller index.
        MaxLoc = 14 "maxloc",
    }
}

impl Operation {
    pub const fn is_defined_for(self, element: Element) -> bool {
        use Element as E;
        let integer = matches!(element, E::I8 | E::I16 | E::I32 | E::I64 | E::U8 | E::U16 | E::U32 | E::U64);
        let real = matches!(element, E::F32 | E::F64);
        let long = matches!(element, E::LongDouble) && HAS_LONG_DOUBLE;
        let complex = matches!(element, E::Complex32 | E::Complex64)
            || matches!(element, E::ComplexLong) && HAS_LONG_DOUBLE;
        let pair = matches!(
            element,
            E::F32Int | E::F64Int | E::IntInt | E::LongInt | E::ShortInt | E::F32F32 | E::F64F64
        ) || matches!(element, E::LongDoubleInt) && HAS_LONG_DOUBLE;
        match self {
            Self::Replace | Self::NoOp => true,
            Self::Sum | Self::Product => integer || real || long || complex,
            Self::Min | Self::Max => integer || real || long,
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => integer || matches!(element, E::Bool),
            Self::BitAnd | Self::BitOr | Self::BitXor => integer || matches!(element, E::Byte),
            Self::MinLoc | Self::MaxLoc => pair,
        }
    }

    /// Fails with [`Error::Operation`] if the operation is not defined for `element`.
    pub fn check(self, element: Element) -> Result<(), Error> {
        if self.is_defined_for(element) {
            return Ok(());
        }
        Err(Error::Operation {
            operation: self.name(),
            element: element.name(),
            allowed: "see Operation::is_defined_for",
        })
    }
}
