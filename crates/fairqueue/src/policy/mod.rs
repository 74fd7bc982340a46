//! Policies: the share of a link that each class gets, how much it may borrow, and which packets belong to
//! it.
//!
//! ```toml
//! rate = "100mbit"            # the rate of the link
//! default = "rest"            # the class of packets that no match names; made if it is not declared
//! overhead = 18               # the link adds these bytes to each frame of the device; 0 if left out
//! atm = true                  # and carries it in ATM cells
//! receive = "by-class"        # packets that come in: kernel threads of each class receive them
//! receive_processors = "0-3"  # on these processors; on all if left out
//!
//! [class.video]
//! weight = 3                  # relative to its siblings; 1 if left out
//! ceiling = "80mbit"          # never more than this, even if siblings are idle
//!
//! [class.video.live]          # a nested class; or [class.live] with parent = "video"
//! limit = "64KiB"             # or packets = 100; overflow = "drop-tail" or "drop-longest"
//! order = "deadline"          # or "fifo"
//! ecn = "5ms"                 # packets that have waited longer are marked, if their sender uses ECN
//! match = [{ cgroup = "/system.slice/video.service" }, { port = 5004, protocol = "udp" }]
//!
//! [class.video.archive]       # packets wait at leaves: only classes without children have matches
//! match = [{ address = "10.0.0.0/8", port = [8000, 8010] }, { priority = 6 }]
//!
//! [class.cell]                # its hosts take turns, however many connections each has
//! fair = "host"               # or "receiver", or "flow", which is flows = "fair"
//!
//! [class.streams]             # below it, sockets of users may have leaves of their own
//! sockets = { from = ["alice", 1000], max = 500, weight = "1..100" }
//!
//! [class.voice]               # by fields that other programs and switches set
//! match = [{ dscp = "ef" }, { mark = 0x10 }, { vlan = 5 }, { mac = "02:00:5e:10:00:01" }]
//!
//! [cpu]                       # shares of processor time of the control groups that classes match
//! live = 3
//!
//! [io]                        # shares of the host's disks, of the same control groups
//! live = 3
//!
//! [disk.live]                 # requests to a disk: an order of the class's own, and who may send them
//! deadline = "10ms"           # or purpose = "interactive" or "throughput"
//! users = ["alice", 1000]
//! ```
//!
//! A packet belongs to the class of the first match, in the order of the file, that matches it. The parser
//! accepts a policy only if it is consistent: no match is shadowed by earlier ones, and no ceiling is above
//! the ceiling of an ancestor. An error names line, column and a correction. The module is pure. The backend
//! that enforces a policy checks whether the host has the device and the features that the policy needs.

mod check;
mod class_change;
mod dscp;
mod error;
mod framing;
mod guarantees;
mod index;
mod mac;
mod matcher;
mod read;
mod shadow;
mod subscribers;
mod table_columns;
mod table_rows;
mod units;

pub use class_change::{ChangedPolicy, ClassTerms, TermsChange, TermsChangeError};
pub use dscp::Dscp;
pub use error::PolicyError;
pub use framing::LinkFraming;
pub use index::SoleCondition;
pub use mac::MacAddress;
pub use matcher::{Facts, IpProtocol, Matcher, Network, NetworkError};
pub use subscribers::{SubscribersError, SubscribersFile, WithSubscribers};
pub use table_columns::RateColumns;
pub use unisono_text::Position;

use crate::cello::Purpose;
use crate::hierarchy::{ClassId, Hierarchy};
use crate::rate::Rate;
use crate::weight::Weight;
use error::Mistake;
use index::RuleIndex;
use read::{ClassForm, RowMatches};
use std::collections::BTreeSet;
use std::net::IpAddr;
use unisono_time::Duration;

const ROOT: &str = "root";
/// The longest text of a policy, in bytes: some 200 for each of 60,000 classes.
const MAX_TEXT: usize = 16 << 20;

/// How the packets of a leaf are queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flows {
    /// One queue for all packets of the class, in the class's order.
    #[default]
    Together,
    /// One queue for each flow; the flows take turns.
    Fair,
    /// One queue for each host; the hosts take turns, however many flows each of them has. The host is the
    /// sender of a packet, unless the packet belongs to the class by its receiver alone.
    Hosts,
    /// As `Hosts`, but the host is always the receiver of a packet.
    Receivers,
}

impl Flows {
    /// Returns whether hosts take turns, and not flows.
    pub fn are_of_hosts(self) -> bool {
        matches!(self, Self::Hosts | Self::Receivers)
    }

    /// Returns the key of a policy that says how the flows of a class wait.
    fn key(self) -> &'static str {
        if self.are_of_hosts() { "fair" } else { "flows" }
    }
}

/// The queue of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LeafQueue {
    /// Whether flows share a queue.
    pub flows: Flows,
    /// The time after which a packet that still waits is marked (ECN). `None`: no packet is marked.
    pub congestion: Option<Duration>,
}

/// A checked policy.
///
/// ```
/// use unisono_fairqueue::Policy;
///
/// let text = "rate = \"100mbit\"\n[class.video]\nweight = 3\nmatch = [{ port = 5004 }]\n";
/// let policy = Policy::parse(text)?;
/// assert_eq!(policy.rate.bits_per_second(), 100_000_000);
/// let wrong = Policy::parse("rate = \"100mbit\"\n[class.video]\nwieght = 3\n");
/// assert!(wrong.is_err_and(|error| error.to_string().contains("did you mean `weight`?")));
/// # Ok::<(), unisono_fairqueue::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    pub text: String,
    /// The rate of the link.
    pub rate: Rate,
    /// The bytes that the rate is charged for a packet.
    pub framing: LinkFraming,
    /// Receiving by kernel threads of each class. `None`: the kernel receives as it does by itself.
    pub receiving: Option<ClassReceiving>,
    pub hierarchy: Hierarchy,
    /// The class of packets that no rule matches; a leaf.
    pub default: ClassId,
    /// The ceiling of each class that has one, by class number.
    pub ceilings: Vec<Option<Rate>>,
    /// The form in which each class is written, by class number.
    forms: Vec<ClassForm>,
    /// The queue of each class, by class number.
    pub queues: Vec<LeafQueue>,
    /// The rules that assign packets to classes, in the order of the file: the first rule that matches
    /// decides.
    pub rules: Vec<Rule>,
    index: RuleIndex,
    /// Shares of processor time.
    pub cpu: Option<GroupShares>,
    /// Shares of the requests to disks, by the kernel's controller.
    pub io: Option<GroupShares>,
    /// The leaves with an entry in the table `disk`; each occurs once.
    pub disk: Vec<DiskClass>,
    /// The leaves in which sockets may have leaves of their own; each occurs once.
    pub sockets: Vec<SocketClass>,
}

/// The terms on which kernel threads of each class receive packets, before the network stack spends time on
/// them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClassReceiving {
    /// The processors of the threads; at least one. `None`: all that are online.
    pub processors: Option<BTreeSet<u32>>,
    /// Whether senders at the other end of a pair of virtual devices are said to finish their checksums.
    pub has_complete_checksums: bool,
}

/// Assigns the packets that match to a class.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// The class; always a leaf.
    pub class: ClassId,
    pub matcher: Matcher,
    pub at: Position,
}

#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct GroupShares {
    /// The control groups with a share; each occurs once.
    pub shares: Vec<GroupShare>,
}

/// The weight of a control group for processor time or for requests to disks, relative to its siblings in the
/// host's tree of control groups.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct GroupShare {
    /// The class whose match names the control group.
    pub class: ClassId,
    pub cgroup: String,
    /// Processor time: from 0.01 to 100; disks: from 0.01 to 10. The kernel's default weight is 1.
    pub weight: Weight,
}

/// A class's use of a disk, and the users of its requests.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DiskClass {
    /// Always a leaf.
    pub class: ClassId,
    pub purpose: Purpose,
    /// The time from the arrival of a request to its deadline; present if the purpose is real-time.
    pub deadline: Option<Duration>,
    /// The names or numbers of the users who may send requests. `None`: every user who can connect.
    pub users: Option<Vec<String>>,
}

/// A class in which sockets of users may have leaves of their own. The other packets of the class share a
/// leaf with the lowest weight.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct SocketClass {
    pub class: ClassId,
    /// The names or numbers of the users who may request a leaf for a socket.
    pub from: Vec<String>,
    /// The most sockets of each user at a time.
    pub max: u32,
    pub min_weight: Weight,
    pub max_weight: Weight,
}

impl Policy {
    /// Reads and checks a policy. The error names the first mistake, its position and a correction.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        Self::parse_naming(text, &|at| at.to_string())
    }

    /// Parses a text with lines of several files. `place` names a position for a message about two of them.
    fn parse_naming(text: &str, place: &dyn Fn(Position) -> String) -> Result<Self, PolicyError> {
        let policy = match text.len() {
            0..=MAX_TEXT => {
                read::read(text, RowMatches::Read).and_then(|written| check::check(text, written, place))
            }
            long => error::wrong(0, format!("{long} bytes are too many for a policy; at most {MAX_TEXT}")),
        };
        policy.map_err(|Mistake { at, what }| PolicyError { at: Position::at_offset(text, at), what })
    }

    /// Sets the weight and the ceiling of a class, and keeps those that are `None`. The caller must have
    /// checked them ([`Self::change_terms`]). The policy's text stays as it is.
    pub fn set_terms(&mut self, class: ClassId, weight: Option<Weight>, ceiling: Option<Rate>) {
        if let Some(weight) = weight {
            self.hierarchy.class_mut(class).weight = weight;
        }
        if ceiling.is_some() {
            self.ceilings[class.index()] = ceiling;
        }
    }

    pub fn class_of(&self, facts: &Facts<'_>) -> ClassId {
        self.index.first(&self.rules, facts).map_or(self.default, |number| self.rules[number].class)
    }

    /// Returns how the packets of a class are queued.
    pub fn flows(&self, class: ClassId) -> Flows {
        self.queues.get(class.index()).copied().unwrap_or_default().flows
    }

    /// Returns the host whose packet this is, if hosts take turns in the class of the packet.
    pub fn host(&self, class: ClassId, facts: &Facts<'_>) -> Option<IpAddr> {
        let without_receiver = Facts { destination: None, destination_mac: None, ..*facts };
        let without_receiver = Facts { destination_port: None, ..without_receiver };
        match self.flows(class) {
            Flows::Together | Flows::Fair => None,
            Flows::Hosts if self.class_of(&without_receiver) == class => facts.source,
            Flows::Hosts | Flows::Receivers => facts.destination,
        }
    }

    /// Returns a class in which hosts take turns, for the refusals of backends that cannot have them do so.
    pub fn class_of_hosts(&self) -> Option<&str> {
        let mut classes = self.hierarchy.classes();
        let (_, class) = classes.find(|(id, _)| self.flows(*id).are_of_hosts())?;
        Some(&class.name)
    }

    /// Returns the time after which a waiting packet of the class is marked (ECN), if any is marked.
    pub fn congestion(&self, class: ClassId) -> Option<Duration> {
        self.queues.get(class.index())?.congestion
    }

    /// Returns the first part of the policy that only queues of packets can keep, as the subject of an error:
    /// "the class a has `flows`". Matches are no such part, so that a link and a disk can have one policy.
    pub fn packet_part(&self) -> Option<String> {
        if !self.framing.is_plain() {
            let key = if self.framing.atm { "atm" } else { "overhead" };
            return Some(format!("the policy has `{key}`"));
        }
        if self.receiving.is_some() {
            return Some("the policy has `receive`".to_owned());
        }
        self.hierarchy.classes().find_map(|(id, class)| {
            let key = match self.flows(id) {
                Flows::Together if self.congestion(id).is_some() => "ecn",
                Flows::Together => return None,
                flows => flows.key(),
            };
            Some(format!("the class {} has `{key}`", class.name))
        })
    }

    /// Returns the terms on which sockets may have leaves of their own in a class, or `None` if none may.
    pub fn sockets(&self, class: ClassId) -> Option<&SocketClass> {
        self.sockets.iter().find(|sockets| sockets.class == class)
    }

    /// Returns the highest rate of a class: its own ceiling, or the ceiling of the nearest ancestor that has
    /// one, or else the rate of the link.
    pub fn ceiling(&self, mut class: ClassId) -> Rate {
        loop {
            match self.ceilings.get(class.index()).copied().flatten() {
                Some(ceiling) => return ceiling,
                None if class == ClassId::ROOT => return self.rate,
                None => class = self.hierarchy.class(class).parent,
            }
        }
    }
}
