//! The one-sided windows of [`unisono_rma`] for C: `libunisono.so`, `libunisono.a` and `unisono.h`.
//!
//! Each function is its namesake of the Rust crate, or of MPI-4.0 chapter 12, in C's clothes:
//!
//! - *Handles* are opaque pointers. Making one fills in the caller's pointer; ending one takes the pointer's
//!   address and sets it to NULL, so that a second end is an error instead of a crash.
//! - *Errors* are codes ([`Status`]); the text is had by [`unisono_error_text`](error::unisono_error_text).
//!   Nothing unwinds into C: a panic becomes [`Status::Internal`].
//! - *Enumerations* come in as `int` and are checked: a number that no enumeration has is an error.
//! - *Layouts* say what the memory on either side looks like; those of single elements exist from the start.
//!
//! Cost: a null check and a move of arguments over the raw layer. When not to use: from Rust; use the crate.
//! It does *not* start processes (`unisono run` does).
//!
//! The headers are made by cbindgen and checked in, so that a C compiler needs nothing else; a test compares.
//! The MPI preload is a user in C like others; what it needs beside `unisono.h` is in [`mpi`].
#![allow(
    clippy::missing_safety_doc,
    reason = "one rule for all: pointers are null where that is said, or valid as C callers know it"
)]

pub mod error;
pub mod job;
pub mod layout;
/// cbindgen:ignore
pub mod mpi;
pub mod operate;
pub mod request;
pub mod synchronize;
pub mod window;

pub use error::Status;
