//! What a window is, without memory and without messages: types and rules that every other module uses.
//!
//! Nothing here communicates, allocates window memory or calls the kernel. Read [`epochs`] first: it holds
//! the standard's rules about which call fits when. [`layout`] describes data that does not lie in a row.

mod assert;
mod element;
mod epochs;
mod error;
mod launched;
mod layout;
mod ledger;
mod operation;
mod place;
mod rank;
mod spec;
mod stats;
mod transfer;

pub use assert::Assert;
pub use element::{Element, Plain};
pub use epochs::Lock;
pub(crate) use epochs::{Epochs, Reach};
pub use error::{Error, ErrorClass, Gone};
pub(crate) use launched::launched;
pub(crate) use layout::MOST_DESCRIPTION;
pub use layout::{Layout, Run};
pub use ledger::{Ledger, STATS};
pub use operation::Operation;
pub use place::{Key, MOST_RANKS, Meeting, Place, environment};
pub use rank::Rank;
pub use spec::{Completion, Locks, Placement, Spec, Style};
pub use stats::{Amount, Medium, Stats, Traffic, Verb, WindowStats};
pub(crate) use stats::{Counts, Noted, Waits, counted, waited_for_messages};
pub(crate) use transfer::Part;
pub use transfer::{Sink, Source, Target};
