//! The backends that enforce a policy of [`unisono_fairqueue`] on this host. Those for a network device
//! implement [`Backend`].
//!
//! ```text
//!   Policy --> kernel       its classes and classifiers, set over netlink; or our scheduler in the kernel
//!          --> interposed   all frames of a device pass through a process that schedules them
//!          --> cpu          its shares of processor time: the kernel's controller, or turns (the core)
//!          --> socket_guard sockets of users get leaves of their own in the kernel's classes
//!          --> disk         a file or block device that a process serves to programs (NBD), by its classes
//!                 |
//!              Journal      the previous state, written to a file before any change
//! ```
//! A backend changes only its device or its control groups, and makes a change completely or not at all. The
//! previous state is restored on command, when a signal interrupts a change, and when the next command finds
//! the journal of a killed process.
//!
//! Read first `backend` (the trait of all backends), then `backends` (the module that finds the backend of a
//! device's policy), then `journal`, then `kernel` or `interposed`. The crate does *not* schedule (see
//! [`unisono_fairqueue`]) and does not read arguments (the program does).
#![forbid(unsafe_code)]

mod backend;
pub mod backends;
mod background;
pub mod class_group;
mod containers;
pub mod cpu;
mod delays;
mod device_kind;
pub mod disk;
mod error;
mod foreign_programs;
mod group_weights;
pub mod interposed;
pub mod journal;
pub mod kernel;
pub mod metrics;
pub mod socket_guard;
pub mod unit;

pub use backend::{
    Backend, BackendKind, BackendName, DeviceHook, InterruptCheck, KernelQueueName, SocketShare,
};
pub use backends::{Recovered, recover_all, switch};
pub use background::READY;
pub use error::{Blame, Error};
pub use group_weights::disk_bytes;
