//! Simulates the other collectives that registers allow, and compares them with collectives by messages.

use crate::exit::Failure;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use unisono_btin::collective::{self, Collective};
use unisono_btin::simulate::{Conditions, Scheme, SimulatedBarrier, SimulatedTime, Simulator};
use unisono_btin::{NodeId, ReductionOperator};

/// With more members, total exchange is left out, because it takes a barrier for each member and a message
/// for each pair of members.
const MAX_EXCHANGED: usize = 1024;

/// The value that the multicast distributes.
const TOLD: u8 = 42;

/// One collective: its latency by the tree in both modes and by messages, and its result.
pub(super) struct CollectiveRow {
    name: &'static str,
    btin: Option<SimulatedTime>,
    btin_turn: Option<SimulatedTime>,
    messages: Option<SimulatedTime>,
    /// For each round, the value that all members got in both modes; `None` if members got different values.
    agreed: Vec<Option<u8>>,
}

pub(super) fn run(
    simulator: &Simulator<'_>,
    barrier: &SimulatedBarrier<'_>,
    conditions: &Conditions,
) -> anyhow::Result<Vec<CollectiveRow>> {
    let members = barrier.group.members();
    if members.len() > MAX_EXCHANGED {
        return Err(Failure::Usage(format!(
            "--collectives: a total exchange among {} members takes too long; name at most {MAX_EXCHANGED}",
            members.len()
        ))
        .into());
    }
    let value = |node: NodeId| (node.0 * 37 % 64) as u8;
    let row = |name, messages, one: &dyn Fn(Scheme) -> Collective| {
        let (btin, turn) = (one(Scheme::Btin), one(Scheme::BtinTurn));
        let agreed = btin.results.iter().zip(&turn.results).map(|(a, b)| a.filter(|_| a == b)).collect();
        CollectiveRow { name, btin: btin.latency, btin_turn: turn.latency, messages, agreed }
    };
    let by_messages = simulator.run(std::slice::from_ref(barrier), Scheme::Unicast, conditions).latency();
    let allreduce = |operation| {
        row(name(operation), by_messages, &|scheme| {
            collective::allreduce(simulator, barrier, (operation, &value), scheme, conditions)
        })
    };
    let mut rows: Vec<CollectiveRow> = ReductionOperator::ALL.into_iter().map(allreduce).collect();
    rows.push(row("multicast", by_messages, &|scheme| {
        collective::multicast(simulator, barrier, (members[0], TOLD), scheme, conditions)
    }));
    let direct = Some(collective::direct_exchange(simulator, barrier, conditions));
    rows.push(row("total_exchange", direct, &|scheme| {
        collective::total_exchange(simulator, barrier, &value, scheme, conditions)
    }));
    Ok(rows)
}

fn name(operation: ReductionOperator) -> &'static str {
    match operation {
        ReductionOperator::Or => "allreduce_or",
        ReductionOperator::And => "allreduce_and",
        ReductionOperator::Min => "allreduce_min",
        ReductionOperator::Max => "allreduce_max",
        ReductionOperator::Sum => "allreduce_sum",
    }
}

/// Describes the result: `63`, `5 values`, or that members got different values.
fn describe(row: &CollectiveRow) -> String {
    match row.agreed[..] {
        [] => "nothing".to_owned(),
        [one] => one.map_or_else(|| "not the same".to_owned(), |value| value.to_string()),
        ref each if each.contains(&None) => "not the same".to_owned(),
        ref each => format!("{} values", each.len()),
    }
}

pub(super) fn text(rows: &[CollectiveRow]) -> String {
    let us = |time: Option<SimulatedTime>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.2}", time.as_us()))
    };
    let mut out = format!(
        "\n\n{:<15} {:>9} {:>13} {:>15}  every member is told",
        "collective", "btin us", "btin_turn us", "by messages us"
    );
    for row in rows {
        let (a, b, c) = (us(row.btin), us(row.btin_turn), us(row.messages));
        let _ = write!(out, "\n{:<15} {a:>9} {b:>13} {c:>15}  {}", row.name, describe(row));
    }
    out
}

pub(super) fn json(rows: &[CollectiveRow]) -> Value {
    let us = |time: Option<SimulatedTime>| time.map(SimulatedTime::as_us);
    let one = |row: &CollectiveRow| {
        let value = json!({
            "btin_us": us(row.btin), "btin_turn_us": us(row.btin_turn), "by_messages_us": us(row.messages),
            "told": row.agreed,
        });
        (row.name.to_owned(), value)
    };
    Value::Object(rows.iter().map(one).collect::<Map<String, Value>>())
}
