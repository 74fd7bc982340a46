//! Policies: the share of a link that each class gets, how much it may borrow, and which packets belong to
//! it.
//!
//! ```toml
//! rate = "100mbit"            # what the link carries
//! default = "rest"            # the class of all that no match names; made if it is not declared
//!
//! [class.video]
//! weight = 3                  # beside its siblings; 1 if left out
//! ceiling = "80mbit"          # never more than this, whoever is idle
//!
//! [class.video.live]          # a class in a class; or [class.live] with parent = "video"
//! limit = "64KiB"             # or packets = 100; overflow = "drop-tail" or "drop-longest"
//! order = "deadline"          # or "fifo"
//! ecn = "5ms"                 # what has waited longer is marked, if its sender understands marks
//! match = [{ cgroup = "/system.slice/video.service" }, { port = 5004, protocol = "udp" }]
//!
//! [class.video.archive]       # packets wait at leaves: matches belong to classes without classes in them
//! match = [{ address = "10.0.0.0/8", port = [8000, 8010] }, { priority = 6 }]
//!
//! [class.voice]               # by what other programs and switches write on packets
//! match = [{ dscp = "ef" }, { mark = 0x10 }, { vlan = 5 }]
//!
//! [cpu]                       # shares of processor time of the control groups that classes match
//! live = 3
//! ```
//!
//! The first match in the order of the file decides, over all classes. A policy that is accepted makes sense
//! as a whole: no match is shadowed by those before it, and no ceiling is above that of a class above it. An
//! error names line and column, and what to write instead. The module is pure. Whether the host has the
//! device, and can do what the policy asks, is checked where the policy is enforced.

mod check;
mod dscp;
mod error;
mod matcher;
mod read;
mod shadow;
mod units;

pub use dscp::Dscp;
pub use error::{PolicyError, Position};
pub use matcher::{Facts, IpProtocol, Matcher, Network, NetworkError};
pub use units::{Rate, RateError};

use crate::hierarchy::{ClassId, Hierarchy};
use crate::weight::Weight;
use error::Wrong;
use unisono_linux::clock::Nanos;

const ROOT: &str = "root";
/// Longer texts are no policies.
const MOST_TEXT: usize = 1 << 20;

/// Which packets of a leaf wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flows {
    /// All packets of the class, in its order.
    #[default]
    Together,
    /// Each flow has its turn: packets wait for those of their own flow.
    Fair,
}

/// How the packets of a leaf wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeafQueue {
    /// Who waits for whom.
    pub flows: Flows,
    /// How long a packet may wait before it is marked (ECN). `None`: for ever.
    pub congestion: Option<Nanos>,
}

#[derive(Clone, Debug)]
pub struct Policy {
    pub text: String,
    /// What the link carries.
    pub rate: Rate,
    pub hierarchy: Hierarchy,
    /// The class of what no rule names; a leaf.
    pub default: ClassId,
    /// The most that each class may have, by its number.
    pub ceilings: Vec<Option<Rate>>,
    /// How packets wait in each class, by its number.
    pub queues: Vec<LeafQueue>,
    /// Which packets are whose, in the order of the file: the first that matches decides.
    pub rules: Vec<Rule>,
    pub cpu: Option<CpuPolicy>,
}

/// Packets of a kind belong to a class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The class; a leaf.
    pub class: ClassId,
    pub matcher: Matcher,
    pub at: Position,
}

#[derive(Clone, PartialEq, Debug)]
pub struct CpuPolicy {
    /// The control groups that have one, each once.
    pub shares: Vec<CpuShare>,
}

/// A control group's share of processor time, beside its siblings in the host's tree.
#[derive(Clone, PartialEq, Debug)]
pub struct CpuShare {
    /// The class whose match names the control group.
    pub class: ClassId,
    pub cgroup: String,
    /// Its weight; 1 is what a control group has that nobody gave one. From 0.01 to 100.
    pub weight: Weight,
}

impl Policy {
    /// Reads and checks a policy. The error says what is wrong first, where, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let policy = match text.len() {
            0..=MOST_TEXT => read::read(text).and_then(|written| check::check(text, written)),
            long => error::wrong(0, format!("{long} bytes are too many for a policy; at most {MOST_TEXT}")),
        };
        policy.map_err(|Wrong { at, what }| PolicyError { at: Position::of(text, at), what })
    }

    pub fn class_of(&self, facts: &Facts<'_>) -> ClassId {
        let rule = self.rules.iter().find(|rule| rule.matcher.matches(facts));
        rule.map_or(self.default, |rule| rule.class)
    }

    /// Which packets of a class wait for each other.
    pub fn flows(&self, class: ClassId) -> Flows {
        self.queues.get(class.index()).copied().unwrap_or_default().flows
    }

    /// How long a packet of a class may wait before it is marked.
    pub fn congestion(&self, class: ClassId) -> Option<Nanos> {
        self.queues.get(class.index())?.congestion
    }

    /// The most that a class may have: its own ceiling or the least above it.
    pub fn ceiling(&self, mut class: ClassId) -> Rate {
        loop {
            match self.ceilings.get(class.index()).copied().flatten() {
                Some(ceiling) => return ceiling,
                None if class == ClassId::ROOT => return self.rate,
                None => class = self.hierarchy.class(class).parent,
            }
        }
    }

    /// What a class is sure of while all others want more than their own, in bits a second: its part, by
    /// weight, of what the class above it is sure of, and no more than its ceiling. The classes below one are
    /// together never sure of more than that one, whose ceiling may be less than its share.
    pub fn guarantee(&self, class: ClassId) -> f64 {
        if class == ClassId::ROOT {
            return self.rate.bits_per_second() as f64;
        }
        let above = self.guarantee(self.hierarchy.class(class).parent);
        (above * self.hierarchy.part(class)).min(self.ceiling(class).bits_per_second() as f64)
    }
}
