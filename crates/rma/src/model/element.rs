//! The types of elements that accumulates combine.
//!
//! Each type has a code in messages. Plain puts and gets move bytes and need no element type.

use super::coded::coded;

coded! {
    #[non_exhaustive]
    pub enum Element {
        /// Raw bytes: replace and bitwise operations.
        Byte = 1 "byte",
        I8 = 2 "i8",
        I16 = 3 "i16",
        /// 32-bit signed; Fortran's LOGICAL too.
        I32 = 4 "i32",
        I64 = 5 "i64",
        U8 = 6 "u8",
        U16 = 7 "u16",
        U32 = 8 "u32",
        U64 = 9 "u64",
        F32 = 10 "f32",
        F64 = 11 "f64",
        Complex32 = 12 "complex f32",
        Complex64 = 13 "complex f64",
        /// C's `_Bool`: logical operations.
        Bool = 14 "bool",
        /// A float and an int, for the operations that find an index.
        F32Int = 15 "(f32, i32)",
        /// A double and an int, 16 bytes.
        F64Int = 16 "(f64, i32)",
        IntInt = 17 "(i32, i32)",
        /// A long and an int, 16 bytes.
        LongInt = 18 "(i64, i32)",
        /// A short and an int, 8 bytes.
        ShortInt = 19 "(i16, i32)",
        /// C's `long double` on x86-64: 80 bits in 16 bytes. Elsewhere it has only replace and no-op.
        LongDouble = 20 "long double",
        /// Two of C's `long double`: 32 bytes on x86-64. Elsewhere as `LongDouble`.
        ComplexLong = 21 "complex long double",
        /// A `long double` and an int: 32 bytes on x86-64. Elsewhere as `LongDouble`.
        LongDoubleInt = 22 "(long double, i32)",
        /// Two floats, the second is the index: Fortran's `MPI_2REAL`.
        F32F32 = 23 "(f32, f32)",
        /// Two doubles, the second is the index: Fortran's `MPI_2DOUBLE_PRECISION`.
        F64F64 = 24 "(f64, f64)",
        /// 16 bytes of a type without arithmetic here, such as a quadruple float: replace and no-op.
        Bits128 = 25 "16 bytes without arithmetic",
        /// 32 bytes of a type without arithmetic here, such as a complex of quadruple floats: replace and
        /// no-op.
        Bits256 = 26 "32 bytes without arithmetic",
    }
}

impl Element {
    /// The size of the largest element (bytes).
    pub(crate) const MAX_BYTES: usize = 32;

    /// Returns the number of bytes from one element to the next, padding included.
    #[inline]
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
}

/// A Rust type that is an element: every bit pattern is a value, and it has no padding.
///
/// # Safety
/// Implementors have the size of their [`Element`], no padding and no invalid bit patterns.
pub unsafe trait Plain: Copy + Send + 'static {
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
            assert!(element.size() <= Element::MAX_BYTES);
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
