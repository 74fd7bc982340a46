//! An identity's property in a log: a chain of segments, and names of several kinds.

use serde::{Deserialize, Serialize};

/// The number of a chain. 0: the chain of events without an owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ChainNumber(pub(crate) u32);

/// A kind of names that outlive the broker; each kind has its own name space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnedKind {
    /// A consumer that resumes.
    Consumer,
    Writer,
    /// A chain of segments; its name is its number.
    Chain,
}
