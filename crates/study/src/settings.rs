//! What a run is told: every key that `[settings]`, a variant's `settings` and a sweep may name.
//!
//! One flat list for all drivers, units in the names, so that a study file reads like the records it
//! leads to (`interval_us = 10`), a sweep can vary any of them, and a wrong key is found with its line.
//! Which driver reads which: [`Driver::reads`](crate::driver::Driver::reads).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What runs beside what, and under whose rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// Concurrently, where the kernel likes.
    Linux,
    /// Concurrently, thread i of each program pinned to processor i; no gangs.
    Spread,
    /// As `linux`, one program with nice -20 (the second, unless `favoured` says otherwise).
    Nice,
    /// One after the other, pinned like `spread`, each for its share of the time.
    Batch,
    /// Concurrently, each program on its own share of the processors.
    Partition,
    /// As gangs, by `unisono gang run`.
    Gang,
}

/// Where two threads of a hand-off run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandOffPlacement {
    /// Both on one processor.
    Same,
    /// Each on its own.
    Cross,
    /// Where the kernel likes.
    Free,
}

/// Settings of a run; what is absent has the driver's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Whose program: `unisono`, or a peer or kernel by name (`libgomp`, `std`, ...).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Participants of each program; absent: as many as this process may use processors (concurrent
    /// programs) or two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Computation before each barrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<f64>,
    /// Most additional computation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variance_us: Option<f64>,
    /// Barrier algorithm of our own program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// How to wait: `spin`, `yield`, `block`, `spin-block`, `adaptive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// How long `spin-block` spins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spin_budget_us: Option<f64>,
    /// Busy loops beside the program: their number (`single`, one after the other around the processors) or
    /// how many on each processor used (`wait-cost`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub competitors: Option<usize>,
    /// Whether participants are pinned, one after the other around the processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// Problem size of a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Where the two threads of a hand-off run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<HandOffPlacement>,
    /// Under whose rule concurrent programs run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regime: Option<Regime>,
    /// The gangs' slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice_ms: Option<f64>,
    /// The gangs' weights, one a program; or those of the classes of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<u32>>,
    /// The gangs' mechanism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<String>,
    /// Which program `nice` favours: 1, or 2 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub favoured: Option<usize>,
    /// Nice value of the favoured program (`nice`; -20 if absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nice: Option<i32>,
    /// How many programs run beside the first (1 if absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<usize>,
    /// As `program`, for the others; like the first if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_program: Option<String>,
    /// As `threads`, for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_threads: Option<usize>,
    /// As `interval_us`, for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_interval_us: Option<f64>,
    /// As `variance_us`, for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_variance_us: Option<f64>,
    /// As `wait`, for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_wait: Option<String>,
    /// As `spin_budget_us`, for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_spin_budget_us: Option<f64>,
    /// Requests a second, of all streams together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<f64>,
    /// Requests that arrive together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Processes of an exchange (2 if absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// Whether an MPI's program runs on `unisono mpi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preload: Option<bool>,
    /// How the engine synchronizes: `direct`, `deferred` (the paper's design), `naive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub style: Option<String>,
    /// Bytes to each neighbour, one measurement each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Vec<u64>>,
    /// What an exchange measures: `messages`, `fence`, `pscw`, `lock`, `put-flush`, `barrier`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// In which windows: `allocated`, `created`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<Vec<String>>,
    /// Rounds of computation of a request, two barriers each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Switches of a network that is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches: Option<u32>,
    /// Nodes of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Nodes for each switch of the network; instead of `nodes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_per_switch: Option<u32>,
    /// Ports of each of its switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<u16>,
    /// The part of all ports that is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connectivity_percent: Option<f64>,
    /// How many networks a run draws; its figures are averages over them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networks: Option<u32>,
    /// How many members groups have, one measurement each; absent: every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<u32>>,
    /// How a barrier is carried out over a network: `unicast`, `multicast`, `btin`, `btin_turn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schemes: Option<Vec<String>>,
    /// How fast a root node takes messages in: `parallel-links`, `one-port`, `startup-each`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intake: Option<String>,
    /// Whether messages wait for each other at links (not if absent, as in the paper).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contended: Option<bool>,
    /// Members arrive within this time (all at once if absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals_us: Option<f64>,
    /// How many groups synchronize at once, one measurement each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<Vec<u32>>,
    /// How many links of a tree have failed, one measurement each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Vec<u32>>,
    /// Whether the other collectives by a barrier tree's registers are compared with messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collectives: Option<bool>,
    /// Where a policy is enforced: `none`, `kernel`, `tun`, `af-xdp`, `middleware`, ... (or who orders
    /// requests, who shares out a processor).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// The congestion control of connections: `cubic`, `bbr`; the host's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Connections of each class that are always full (2 each if absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<Vec<u32>>,
    /// Messages a second of each class (none if absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_s: Option<Vec<u32>>,
    /// The length of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<usize>,
    /// Within what time a message should arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<f64>,
    /// Connections of a program that belongs to no class and does not cooperate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub legacy_flows: Option<u32>,
    /// What the link carries (100 if absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_mbit: Option<f64>,
    /// Whether one thread holds both ends of messages that are alone, so that nobody has to be woken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_thread: Option<bool>,
    /// Classes that a queueing discipline decides among.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<u32>,
    /// Whose the next packet is: `saturated` (of the class served), `random`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
}

impl Settings {
    /// The settings that are present, by name.
    #[must_use]
    pub fn present(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        }
    }

    /// `self`, overlaid with what `over` names.
    ///
    /// # Errors
    /// The name that is no setting, or the value that is none of its kind.
    pub fn overlaid(&self, over: &Map<String, Value>) -> Result<Self, String> {
        let mut map = self.present();
        map.extend(over.iter().map(|(k, v)| (k.clone(), v.clone())));
        serde_json::from_value(Value::Object(map)).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_replaces_what_it_names_and_keeps_the_rest() {
        let base = Settings { threads: Some(2), interval_us: Some(10.0), ..Settings::default() };
        let over = Map::from_iter([("interval_us".to_owned(), Value::from(40))]);
        let got = base.overlaid(&over).expect("a setting");
        assert_eq!((got.threads, got.interval_us), (Some(2), Some(40.0)));
        assert!(base.overlaid(&Map::from_iter([("intervall".to_owned(), Value::from(1))])).is_err());
        assert!(base.overlaid(&Map::from_iter([("threads".to_owned(), Value::from("two"))])).is_err());
    }
}
