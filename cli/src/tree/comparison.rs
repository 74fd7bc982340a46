//! Compares a barrier in a planned tree with a barrier by messages through one root, with the paper's costs.
//! `tree simulate` does the same with other costs.

use super::planning::PlannedGroup;
use super::slow::Slow;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use unisono_btin::NetworkFile;
use unisono_btin::simulate::{Conditions, Scheme, Simulated, SimulatedBarrier, SimulatedTime, Simulator};

/// With more members, a simulation takes much longer than the plan, so only `tree simulate` makes it.
const MAX_MEMBERS: usize = 20_000;

/// With more cables, the simulator's tables would take several times the memory of the network (12 bytes a
/// port and 8 a direction of a cable), so only `tree simulate` makes them.
const MAX_CABLES: usize = 500_000;

/// Returns how a barrier works under a scheme, in at most 38 characters, so that the tables fit 80 columns.
pub(super) fn scheme_in_words(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Unicast => "a message from and to each member",
        Scheme::Multicast => "a message from each, one copied to all",
        Scheme::Btin => "tree, released by the root node",
        Scheme::BtinTurn => "tree, released by the root switch",
    }
}

/// The latency and traffic of each scheme. `None` if there are too many members or cables.
pub(super) struct SchemeComparison(Option<Vec<Simulated>>);

impl SchemeComparison {
    pub(super) fn compute(topology: &NetworkFile, PlannedGroup { group, plan, .. }: &PlannedGroup) -> Self {
        let network = &topology.network;
        let cables = network.links().len() + network.nodes().len();
        if group.members().len() > MAX_MEMBERS || cables > MAX_CABLES {
            return Self(None);
        }
        let barrier = SimulatedBarrier::planned(group, plan);
        let (simulator, conditions) = (Simulator::new(&topology.network), Conditions::default());
        let mut slow = Slow::new();
        let one = |scheme: Scheme| {
            simulator.run_watched(std::slice::from_ref(&barrier), scheme, &conditions, &mut |hops| {
                slow.count(scheme.name(), hops);
            })
        };
        let simulated = Scheme::ALL.into_iter().map(one).collect();
        slow.end();
        Self(Some(simulated))
    }

    pub(super) fn text(&self) -> String {
        let Some(simulated) = &self.0 else {
            return format!(
                "more than {MAX_MEMBERS} members or {MAX_CABLES} cables: unisono tree simulate says what a barrier \
                 takes"
            );
        };
        let mut out = format!(
            "a barrier with the paper's costs (others: unisono tree simulate):\n\
             {:<10} {:>10} {:>8} {:>9}  how a barrier works",
            "scheme", "latency us", "hops", "start-ups"
        );
        for one in simulated {
            let latency = one.latency().map_or_else(|| "-".to_owned(), |time| format!("{:.2}", time.as_us()));
            let (name, hops, startups) = (one.scheme.name(), one.hops, one.startups);
            let way = scheme_in_words(one.scheme);
            let _ = write!(out, "\n{name:<10} {latency:>10} {hops:>8} {startups:>9}  {way}");
        }
        out
    }

    /// Returns an object with the names of the schemes as keys; null if there are too many members or cables.
    pub(super) fn json(&self) -> Value {
        let one = |one: &Simulated| {
            let latency = one.latency().map(SimulatedTime::as_us);
            let value = json!({"latency_us": latency, "hops": one.hops, "startups": one.startups});
            (one.scheme.name().to_owned(), value)
        };
        let all = self.0.as_ref().map(|simulated| simulated.iter().map(one).collect::<Map<_, _>>());
        all.map_or(Value::Null, Value::Object)
    }
}
