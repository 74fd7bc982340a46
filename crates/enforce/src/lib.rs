//! The places on this host where a policy of [`unisono_fairqueue`] is enforced, each a
//! [`unisono_fairqueue::Backend`].
//!
//! ```text
//!   Policy --> kernel       its classes and classifiers, told over netlink; or our scheduler in it
//!          --> interposed   all frames of a device pass through a process that schedules them
//!          --> cpu          its shares of processor time: the kernel's controller, or the core by turns
//!                 |
//!              Journal      what was there before, on the disk before anything is changed
//! ```
//! A place changes only what belongs to its device or its groups, all at once or not at all. It puts back
//! what was there when it is told to, when a signal ends it half way, and when the next start finds the
//! journal of one that was killed.
//!
//! It does *not* schedule by itself (that is [`unisono_fairqueue`]) nor know arguments (that is the program).
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
pub mod unit;

pub use background::READY;
pub use error::{Blame, Error};
pub use place::{Place, Settled, settle, switch};
