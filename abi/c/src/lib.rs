//! The C form of [`unisono_rma`]'s one-sided windows, [`unisono_events_client`]'s events and
//! [`unisono_socket_shares`]'s shares: `libunisono.so`, `libunisono.a` and `unisono.h`.
//!
//! Each function behaves like its namesake in the Rust crates or in MPI-4.0 chapter 12:
//!
//! - *Handles* are opaque pointers. A call that makes a handle stores it in the program's pointer. A call
//!   that ends a handle takes that pointer's address and sets the pointer to NULL, so that ending a handle
//!   twice is an error and not a crash.
//! - *Errors* are codes ([`CallStatus`]); [`unisono_error_text`](error::unisono_error_text) returns the text.
//!   Nothing unwinds into C: a panic becomes [`CallStatus::Internal`].
//! - *Enumerations* are passed as `int` and checked: an unknown number is an error.
//! - *Layouts* describe the places of the data on either side of a transfer. The layouts of single elements
//!   are predefined.
//!
//! Cost over the Rust crates' unchecked functions: null checks and argument passing. When not to use it: from
//! Rust, where you use the crates. The library does *not* start processes (`unisono run` does).
//!
//! cbindgen generates the headers. They are checked in, so that a C compiler needs no other tool; a test
//! compares them with the sources. The MPI preload is a C program like any other; [`mpi`] holds the functions
//! that it needs beside `unisono.h`.
#![allow(
    clippy::missing_safety_doc,
    reason = "one rule for all: pointers are null where that is said, or valid as C callers know it"
)]

pub mod error;
pub mod events;
mod handle;
pub mod job;
pub mod layout;
/// cbindgen:ignore
pub mod mpi;
pub mod operate;
pub mod request;
pub mod socket_share;
pub mod synchronize;
pub mod window;

pub use error::CallStatus;
