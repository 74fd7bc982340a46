//! The predefined operations of accumulates, and for which elements each is defined.
//!
//! Reference: MPI-4.0 section 6.9.2 (which operation goes with which type), 12.3.4 (replace, no-op).

use crate::model::{Element, Error};

/// Whether the arithmetic of `long double` is built in: only x86-64 has the 80-bit format that it is written
/// for.
const HAS_LONG_DOUBLE: bool = cfg!(target_arch = "x86_64");

/// How an accumulate combines what it brings with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    Sum = 1,
    Product = 2,
    Min = 3,
    Max = 4,
    /// Both nonzero: 1, else 0.
    LogicalAnd = 5,
    LogicalOr = 6,
    /// Exactly one nonzero.
    LogicalXor = 7,
    BitAnd = 8,
    BitOr = 9,
    /// Bitwise exclusive or.
    BitXor = 10,
    /// What is brought.
    Replace = 11,
    /// What is there; for get-accumulate and fetch-and-op.
    NoOp = 12,
    /// The pair with the smaller value; of equal ones the smaller place.
    MinLoc = 13,
    /// The pair with the greater value; of equal ones the smaller place.
    MaxLoc = 14,
}

impl Operation {
    /// Every operation, in the order of codes.
    pub const ALL: [Self; 14] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::Replace,
        Self::NoOp,
        Self::MinLoc,
        Self::MaxLoc,
    ];

    /// The name in errors and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::LogicalAnd => "logical and",
            Self::LogicalOr => "logical or",
            Self::LogicalXor => "logical xor",
            Self::BitAnd => "bitwise and",
            Self::BitOr => "bitwise or",
            Self::BitXor => "bitwise xor",
            Self::Replace => "replace",
            Self::NoOp => "no-op",
            Self::MinLoc => "minloc",
            Self::MaxLoc => "maxloc",
        }
    }

    /// The operation with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Whether it is defined for `element`.
    #[must_use]
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

    /// Checks that it is defined for `element`.
    ///
    /// # Errors
    /// [`Error::Operation`].
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
