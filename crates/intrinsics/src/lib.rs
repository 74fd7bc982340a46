//! Processor instructions with a safe interface, for crates that forbid unsafe code.
//!
//! [`prefetch`] and [`prefetch_to_write`] bring memory into the cache before it is needed. [`vectorized`]
//! runs a loop with the widest vectors that the processor has:
//!
//! ```
//! use unisono_intrinsics::{Wide, vectorized};
//!
//! struct Ones<'a>(&'a [u64]);
//!
//! impl Wide for Ones<'_> {
//!     type Output = u32;
//!
//!     #[inline(always)]
//!     fn run(self) -> u32 {
//!         self.0.iter().map(|word| word.count_ones()).sum()
//!     }
//! }
//!
//! assert_eq!(vectorized(Ones(&[0b101; 100])), 200);
//! ```

mod prefetch;
mod wide;

pub use prefetch::{prefetch, prefetch_to_write};
pub use wide::{Wide, vectorized};
