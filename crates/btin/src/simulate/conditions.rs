//! The assumptions of a simulation. The defaults are the paper's, and each deviation from them is an option.

use super::SimulatedTime;
use crate::SwitchNetwork;
use unisono_text::named;

/// The cost of a message on its way (paper, section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Start-up of a message at a node, t_s.
    pub startup: SimulatedTime,
    /// Propagation over a link, t_p.
    pub propagation: SimulatedTime,
    /// Delay of a switch, and of a node's interface, t_r.
    pub switch: SimulatedTime,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            startup: SimulatedTime::microseconds(2),
            propagation: SimulatedTime::nanoseconds(20),
            switch: SimulatedTime::nanoseconds(300),
        }
    }
}

impl Costs {
    /// Returns the time that a message takes over `distance` links, including the two links to the nodes: t_s
    /// + d t_p + (d + 1) t_r.
    pub fn message(&self, distance: u64) -> SimulatedTime {
        self.startup + self.propagation * distance + self.switch * (distance + 1)
    }
}

named! {
    #[derive(PartialOrd, Ord)]
    pub enum Scheme {
        /// A message from every member to the root, and one back to each.
        Unicast = "unicast",
        /// A message from every member to the root, and one back that the switches replicate.
        Multicast = "multicast",
        /// The barrier tree as in the paper: turned at the root node.
        Btin = "btin",
        /// The barrier tree, turned at the root switch.
        BtinTurn = "btin_turn",
    }
}

named! {
    /// The receive rate of the root node in unicast and multicast. The paper does not state it, although no
    /// parameter affects its figures more.
    #[derive(PartialOrd, Ord, Default)]
    pub enum Intake {
        /// One message in (t_r + t_p) / L, as if L = round(f k - p / q) links (a switch's mean number of
        /// links to other switches) delivered messages in parallel. This is the only assumption found that
        /// reproduces the paper's figures; a node with one port cannot receive at this rate.
        #[default]
        ParallelLinks = "parallel-links",
        /// One message in t_r + t_p, as for a node with one port.
        OnePort = "one-port",
        /// One message in t_s: the node has a start-up for each message that it receives, as for each message
        /// that it sends.
        StartupEach = "startup-each",
    }
}

/// The routes of unicast and multicast messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Routes {
    /// The shortest routes that up\*/down\* routing allows.
    #[default]
    UpDown,
    /// The shortest routes of all.
    Shortest,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Channels {
    /// No contention (paper, section 5.1: "channel contention is not considered").
    #[default]
    Free,
    /// A direction of a link carries one message in t_r + t_p; others wait in order of arrival.
    Contended,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Faults {
    /// The share of link crossings that lose the message.
    pub loss: f64,
    /// The share of link crossings that deliver the message twice.
    pub duplicate: f64,
    /// The maximum extra time of a crossing. The extra time is uniformly distributed, so that messages can
    /// overtake each other.
    pub jitter: SimulatedTime,
    /// Links, by number, that lose all messages from a time on.
    pub failing: Vec<(u32, SimulatedTime)>,
}

impl Faults {
    /// Returns whether messages can get lost, so that nodes need timers.
    pub fn lose(&self) -> bool {
        self.loss > 0.0 || !self.failing.is_empty()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Conditions {
    pub costs: Costs,
    /// The receive rate of the root node in unicast and multicast.
    pub intake: Intake,
    /// L of [`Intake::ParallelLinks`]. `None`: the network's [`parallel_links`](super::parallel_links).
    pub parallel_links: Option<u64>,
    pub routes: Routes,
    /// The members' arrivals are uniformly distributed over this time. Zero: all arrive at once, as in the
    /// paper.
    pub arrivals: SimulatedTime,
    pub channels: Channels,
    pub faults: Faults,
    /// A node repeats its message after this time. `None`: after four times the analytic latency of its
    /// scheme. Nodes repeat messages only if messages can get lost.
    pub timeout: Option<SimulatedTime>,
    /// A node gives up after this many repetitions.
    pub attempts: u32,
    /// The number of barriers that run one after the other (trees only).
    pub episodes: u16,
    pub seed: u64,
}

impl Conditions {
    /// Returns the time that the root node of unicast and multicast needs to receive one message.
    pub fn intake(&self, network: &SwitchNetwork) -> SimulatedTime {
        let links = self.parallel_links.unwrap_or_else(|| super::parallel_links(network)).max(1);
        match self.intake {
            Intake::ParallelLinks => (self.costs.switch + self.costs.propagation) / links,
            Intake::OnePort => self.costs.switch + self.costs.propagation,
            Intake::StartupEach => self.costs.startup,
        }
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            costs: Costs::default(),
            intake: Intake::default(),
            parallel_links: None,
            routes: Routes::default(),
            arrivals: SimulatedTime::ZERO,
            channels: Channels::default(),
            faults: Faults::default(),
            timeout: None,
            attempts: 50,
            episodes: 1,
            seed: 1,
        }
    }
}
