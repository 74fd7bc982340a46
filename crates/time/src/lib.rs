//! Moments and lengths of time, in whole nanoseconds; 64 bits hold 584 years.
//!
//! The crate reads no clock: the caller passes the time. So a policy gives the same answer in a test, in a
//! simulation and on the machine. [`Instant`] is a moment, [`Duration`] a length; the compiler refuses a sum
//! of two moments. All operators saturate: a deadline that is [`Instant::NEVER`] stays never, and the time
//! since a later moment is zero.
//!
//! ```
//! use unisono_time::{Duration, Instant};
//!
//! let arrival = Instant::from_micros(10);
//! let deadline = arrival + Duration::from_millis(2);
//! assert_eq!(deadline - arrival, Duration::from_micros(2000));
//! assert_eq!(arrival - deadline, Duration::ZERO);
//! assert_eq!(Instant::NEVER + Duration::SECOND, Instant::NEVER);
//! ```
//!
//! The feature `serde` reads and writes each type as a number.
#![no_std]
#![forbid(unsafe_code)]

mod duration;
mod instant;

pub use duration::Duration;
pub use instant::Instant;
