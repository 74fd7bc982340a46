//! Types and rules for all other modules: a window without its memory and its messages.
//!
//! Nothing here communicates, allocates window memory or calls the kernel. Read [`epochs`] first: it holds
//! the standard's rules for the order of calls. [`layout`] describes data that is not contiguous.

mod assert;
mod coded;
mod element;
mod epochs;
mod error;
mod launcher;
mod layout;
mod membership;
mod operation;
mod rank;
mod spec;
mod stats;
mod stats_table;
mod transfer;

pub use assert::Assert;
pub(crate) use coded::coded;
pub use element::{Element, Plain};
pub use epochs::Lock;
pub(crate) use epochs::{EpochKind, Epochs};
pub use error::{Error, ErrorClass, Gone};
pub(crate) use launcher::from_launcher;
pub(crate) use layout::MAX_DESCRIPTION;
pub use layout::{Layout, Run};
pub use membership::{Bootstrap, JobMembership, Key, MAX_RANKS, environment};
pub use operation::Operation;
pub use rank::Rank;
pub use spec::{Completion, Locks, Placement, Spec, Style};
pub use stats::{Amount, Medium, Stats, Traffic, Verb, WindowStats};
pub(crate) use stats::{Counts, WaitCell, Waits, counted, record_message_wait};
pub use stats_table::{STATS, StatsTable};
pub(crate) use transfer::WindowPart;
pub use transfer::{Sink, Source, Target};
