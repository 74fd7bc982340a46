//! The other collectives that registers allow, beside what messages take for them.

use crate::exit::Failure;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use unisono_btin::collective::{self, Collective};
use unisono_btin::simulate::{Barrier, Conditions, Scheme, Simulator, Time};
use unisono_btin::{NodeId, Operation};

/// More members than this are not exchanged among: it takes a barrier a member, and a message a pair.
const MOST_EXCHANGED: usize = 1024;

/// One collective: its name, the latency by the tree in both modes, and by messages.
pub(super) struct Row {
    name: &'static str,
    btin: Option<Time>,
    btin_turn: Option<Time>,
    messages: Option<Time>,
}

pub(super) fn run(
    simulator: &Simulator<'_>,
    barrier: &Barrier<'_>,
    conditions: &Conditions,
) -> anyhow::Result<Vec<Row>> {
    let members = barrier.group.members();
    if members.len() > MOST_EXCHANGED {
        return Err(Failure::Usage(format!(
            "--collectives: a total exchange among {} members takes too long; name at most {MOST_EXCHANGED}",
            members.len()
        ))
        .into());
    }
    let value = |node: NodeId| (node.0 * 37 % 64) as u8;
    let both =
        |one: &dyn Fn(Scheme) -> Collective| (one(Scheme::Btin).latency, one(Scheme::BtinTurn).latency);
    let by_messages = simulator.run(std::slice::from_ref(barrier), Scheme::Unicast, conditions).latency();
    let reduced = both(&|scheme| {
        collective::allreduce(simulator, barrier, (Operation::Sum, &value), scheme, conditions)
    });
    let told =
        both(&|scheme| collective::multicast(simulator, barrier, (members[0], 42), scheme, conditions));
    let exchanged =
        both(&|scheme| collective::total_exchange(simulator, barrier, &value, scheme, conditions));
    let direct = Some(collective::direct_exchange(simulator, barrier, conditions));
    let row = |name, (btin, btin_turn), messages| Row { name, btin, btin_turn, messages };
    Ok(vec![
        row("allreduce", reduced, by_messages),
        row("multicast", told, by_messages),
        row("total_exchange", exchanged, direct),
    ])
}

pub(super) fn text(rows: &[Row]) -> String {
    let us = |time: Option<Time>| time.map_or_else(|| "-".to_owned(), |time| format!("{:.2}", time.as_us()));
    let mut out = format!(
        "\n\n{:<16} {:>12} {:>14} {:>16}",
        "collective", "btin us", "btin_turn us", "by messages us"
    );
    for row in rows {
        let (a, b, c) = (us(row.btin), us(row.btin_turn), us(row.messages));
        let _ = write!(out, "\n{:<16} {a:>12} {b:>14} {c:>16}", row.name);
    }
    out
}

pub(super) fn json(rows: &[Row]) -> Value {
    let us = |time: Option<Time>| time.map(Time::as_us);
    let one = |row: &Row| {
        let value = json!({
            "btin_us": us(row.btin), "btin_turn_us": us(row.btin_turn), "by_messages_us": us(row.messages),
        });
        (row.name.to_owned(), value)
    };
    Value::Object(rows.iter().map(one).collect::<Map<String, Value>>())
}
