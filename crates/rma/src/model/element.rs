//! The types of elements that accumulates combine.
//!
//! One code each, which is also what messages carry. Plain puts and gets move bytes and need none.

/// A predefined element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Element {
    /// Raw bytes: replace and bitwise operations.
    Byte = 1,
    I8 = 2,
    I16 = 3,
    /// 32-bit signed; Fortran's LOGICAL too.
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
    /// C's `_Bool`: logical operations.
    Bool = 14,
    /// A float and an int, for the operations that find a place.
    F32Int = 15,
    /// A double and an int, 16 bytes.
    F64Int = 16,
    IntInt = 17,
    /// A long and an int, 16 bytes.
    LongInt = 18,
    /// A short and an int, 8 bytes.
    ShortInt = 19,
    /// C's `long double` on x86-64: 80 bits in 16 bytes. Elsewhere only replace and no-op are defined.
    LongDouble = 20,
    /// Two of C's `long double`: 32 bytes on x86-64. Elsewhere as there.
    ComplexLong = 21,
    /// A `long double` and an int: 32 bytes on x86-64. Elsewhere as there.
    LongDoubleInt = 22,
    /// Two floats, of which the second is the place: Fortran's `MPI_2REAL`.
    F32F32 = 23,
    /// Two doubles, of which the second is the place: Fortran's `MPI_2DOUBLE_PRECISION`.
    F64F64 = 24,
    /// 16 bytes of a type without arithmetic here, such as a quadruple float: replace and no-op.
    Bits128 = 25,
    /// 32 bytes of a type without arithmetic here, such as a complex of quadruple floats: replace and no-op.
    Bits256 = 26,
}

impl Element {
    /// Every type, in the order of codes.
    pub const ALL: [Self; 26] = [
        Self::Byte,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::Complex32,
        Self::Complex64,
        Self::Bool,
        Self::F32Int,
        Self::F64Int,
        Self::IntInt,
        Self::LongInt,
        Self::ShortInt,
        Self::LongDouble,
        Self::ComplexLong,
        Self::LongDoubleInt,
        Self::F32F32,
        Self::F64F64,
        Self::Bits128,
        Self::Bits256,
    ];

    /// No element is larger (bytes).
    pub(crate) const LARGEST: usize = 32;

    /// Bytes from one element to the next, padding included.
    #[inline]
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Byte | Self::I8 | Self::U8 | Self::Bool => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64
            | Self::U64
            | Self::F64
            | Self::Complex32
            | Self::F32Int
            | Self::IntInt
            | Self::ShortInt
            | Self::F32F32 => 8,
            Self::Complex64
            | Self::F64Int
            | Self::LongInt
            | Self::LongDouble
            | Self::F64F64
            | Self::Bits128 => 16,
            Self::ComplexLong | Self::LongDoubleInt | Self::Bits256 => 32,
        }
    }

    /// The name in errors and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Byte => "byte",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Complex32 => "complex f32",
            Self::Complex64 => "complex f64",
            Self::Bool => "bool",
            Self::F32Int => "(f32, i32)",
            Self::F64Int => "(f64, i32)",
            Self::IntInt => "(i32, i32)",
            Self::LongInt => "(i64, i32)",
            Self::ShortInt => "(i16, i32)",
            Self::LongDouble => "long double",
            Self::ComplexLong => "complex long double",
            Self::LongDoubleInt => "(long double, i32)",
            Self::F32F32 => "(f32, f32)",
            Self::F64F64 => "(f64, f64)",
            Self::Bits128 => "16 bytes without arithmetic",
            Self::Bits256 => "32 bytes without arithmetic",
        }
    }

    /// The type with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// A Rust type that is an element: any bit pattern is a value, and it has no padding.
///
/// # Safety
/// Implementors have the size of their [`Element`], no padding and no invalid bit patterns.
pub unsafe trait Plain: Copy + Send + 'static {
    /// Its element type.
    const ELEMENT: Element;
}

macro_rules! plain {
    ($($type:ty => $element:ident),*) => {$(
        // SAFETY: a primitive number: no padding, every bit pattern valid, size checked by a test.
        unsafe impl Plain for $type {
            const ELEMENT: Element = Element::$element;
        }
    )*};
}

plain!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back_to_their_types_and_nothing_else_is_a_code() {
        for element in Element::ALL {
            assert_eq!(Element::from_code(element as u8), Some(element));
            assert!(element.size() <= Element::LARGEST);
        }
        assert_eq!(Element::from_code(0), None);
        assert_eq!(Element::from_code(27), None);
    }

    #[test]
    fn plain_types_have_the_size_of_their_elements() {
        fn check<T: Plain>() {
            assert_eq!(size_of::<T>(), T::ELEMENT.size());
        }
        check::<i8>();
        check::<u16>();
        check::<i32>();
        check::<u64>();
        check::<f32>();
        check::<f64>();
    }
}
