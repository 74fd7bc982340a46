//! The places on this host where a policy of [`unisono_fairqueue`] is enforced. Each is a
//! [`EnforcingPlace`].
//!
//! ```text
//!   Policy --> kernel       its classes and classifiers, told over netlink; or our scheduler in it
//!          --> interposed   all frames of a device pass through a process that schedules them
//!          --> cpu          its shares of processor time: the kernel's controller, or the core by turns
//!                 |
//!              Journal      what was there before, on the disk before anything is changed
//! ```
//! A place changes only what belongs to its device or its groups, all of it or nothing. It restores what was
//! there on command, when a signal interrupts a change, and when the next start finds the journal of a killed
//! process.
//!
//! Read first `place` (what every place can do), then `places` (which one a device's policy is in), then
//! `journal`, then `kernel` or `interposed`.
//! The crate does *not* schedule (that is [`unisono_fairqueue`]) and does not read arguments (that is the
//! program).
#![forbid(unsafe_code)]

mod background;
pub mod cpu;
pub mod disk;
mod error;
pub mod interposed;
pub mod journal;
pub mod kernel;
pub mod metrics;
mod place;
pub mod places;
pub mod unit;

pub use background::READY;
pub use error::{Blame, Error};
pub use place::{BackendName, DeviceHook, EnforcingPlace, KernelQueueName, PlaceKind, StopQuestion};
pub use places::{Settled, settle, switch};
