//! Where a policy is enforced: in the kernel, in a process that all packets pass through, or by agreement.

use crate::discipline::Backlog;
use crate::policy::Policy;
use serde::{Deserialize, Serialize};

/// One place, on one device.
///
/// ```text
///             apply(A)        apply(B)
///   as it was ------> A holds ------> B holds
///       ^ ^              | clear         | clear
///       | +--------------+               |
///       +--------------------------------+      also by a signal during apply, and by the next start after kill -9
/// ```
pub trait Backend {
    /// Why it cannot.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// Enforces a policy: all of it or nothing, and then what was there before is there again. Another policy is
    /// replaced, without losing packets where that is possible.
    ///
    /// # Errors
    /// The host cannot, or the device is not there. Nothing has changed then.
    fn apply(&mut self, policy: &Policy) -> Result<(), Self::Error>;

    /// What each class has got until now.
    ///
    /// # Errors
    /// No policy is enforced there, or the host does not answer.
    fn live(&mut self) -> Result<Live, Self::Error>;

    /// Puts back what was there before the first policy.
    ///
    /// # Errors
    /// What could not be put back. Nothing to put back is no error.
    fn clear(&mut self) -> Result<(), Self::Error>;
}

/// What all classes have got until now.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Live {
    /// Which place.
    pub backend: String,
    /// The device.
    pub device: String,
    /// When, on the monotonic clock.
    pub at_ns: u64,
    /// The link's rate, in bits a second.
    pub rate: u64,
    /// The classes, parents before children; without the root.
    pub classes: Vec<LiveClass>,
}

/// What a class has got until now; a class with children, what all below it have.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LiveClass {
    /// Its name.
    pub name: String,
    /// The class above it, unless that is the root.
    pub parent: Option<String>,
    /// What it is sure of, in bits a second.
    pub guarantee: f64,
    /// Packets that have left.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// What waits.
    pub backlog: Backlog,
    /// How long packets waited; none where the place does not say.
    pub delay: Option<DelayFigures>,
}

/// How long packets waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DelayFigures {
    /// On average.
    pub mean_ns: u64,
    /// All but one in a hundred, at most.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}
