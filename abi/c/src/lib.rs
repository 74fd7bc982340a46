//! The one-sided windows of [`unisono_rma`] and the events of [`unisono_broker`] for C: `libunisono.so`,
//! `libunisono.a` and `unisono.h`.
//!
//! Each function does what its namesake in the Rust crates, or in MPI-4.0 chapter 12, does:
//!
//! - *Handles* are opaque pointers. A call that makes a handle stores it in the program's pointer. A call
//!   that ends it takes that pointer's address and sets the pointer to NULL, so that a second end is an error
//!   and not a crash.
//! - *Errors* are codes ([`CallStatus`]); [`unisono_error_text`](error::unisono_error_text) returns the text.
//!   Nothing unwinds into C: a panic becomes [`CallStatus::Internal`].
//! - *Enumerations* come in as `int` and are checked: a number that the enumeration lacks is an error.
//! - *Layouts* say where the data lies on either side. Those of single elements need not be made.
//!
//! Cost over the raw layer of the crate: the null checks and the move of arguments.
//! When not to use: from Rust; use the crate. The library does *not* start processes (`unisono run` does).
//!
//! cbindgen makes the headers, and they are checked in, so that a C compiler needs nothing else; a test
//! compares them with the sources. The MPI preload is a C program like any other; [`mpi`] holds what it needs
//! beside `unisono.h`.
#![allow(
    clippy::missing_safety_doc,
    reason = "one rule for all: pointers are null where that is said, or valid as C callers know it"
)]

pub mod error;
pub mod events;
pub mod job;
pub mod layout;
/// cbindgen:ignore
pub mod mpi;
pub mod operate;
pub mod request;
pub mod synchronize;
pub mod window;

pub use error::CallStatus;
