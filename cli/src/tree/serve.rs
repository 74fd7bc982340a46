//! `unisono tree deploy --serve`: switches for the programs of others, such as MPI's.

use super::deploy::{Args, failure};
use crate::exit::Failure;
use crate::machine_output;
use crate::output;
use crate::user::user_id;
use serde_json::json;
use std::cell::RefCell;
use std::process::ExitCode;
use unisono_fabric::leftovers::Note;
use unisono_fabric::served::ServedNetwork;
use unisono_text::counted;

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.source.read()?;
    let network = &input.topology.network;
    let unknown = |name: &String| Failure::Usage(format!("--user {name}: this host has no such user"));
    let users: Vec<u32> =
        args.users.iter().map(|name| user_id(name).ok_or_else(|| unknown(name))).collect::<Result<_, _>>()?;
    let _note = super::prepare("tree deploy")?;
    let mut served = ServedNetwork::new(network, &users, args.registers).map_err(failure)?;
    if args.names {
        served.fabric().publish(&Note::prefix()).map_err(failure)?;
    }
    served.program().lose_one_in(args.lose.unwrap_or(0)).map_err(failure)?;
    let (times, hook) = (served.times(), served.hook().to_string());
    let up = times.network + times.program + times.nodes;
    eprintln!(
        "unisono: {}, {}, {} up in {:.2} s; programs by {hook}; helpers at all nodes serve {}",
        counted(network.switch_count(), "switch"),
        counted(network.nodes().len(), "node"),
        counted(network.links().len(), "link"),
        up.as_secs_f64(),
        ["root"].into_iter().chain(args.users.iter().map(String::as_str)).collect::<Vec<_>>().join(", "),
    );
    let events = RefCell::new(Vec::new());
    let ended = served.serve(args.time, |text| {
        eprintln!("unisono: {text}");
        events.borrow_mut().push(text.to_owned());
    });
    let failed = ended.err().map(|error| error.to_string());
    if let Some(what) = &failed {
        eprintln!("unisono: {what}");
    }
    let counters = served.program().counters().map_err(failure)?;
    drop(served);
    if args.json {
        let counters: serde_json::Map<String, serde_json::Value> =
            counters.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let answer = json!({
            "switches": network.switch_count(), "nodes": network.nodes().len(),
            "links": network.links().len(), "users": args.users, "registers": args.registers, "hook": hook,
            "up_s": {"network": times.network.as_secs_f64(), "program": times.program.as_secs_f64(),
                "nodes": times.nodes.as_secs_f64(), "all": up.as_secs_f64()},
            "events": events.take(), "failed": failed, "counters": counters,
        });
        output::answer(&machine_output::json("unisono-tree-serve-1", &answer)?)?;
    } else {
        for (name, value) in counters.iter().filter(|(_, value)| *value > 0) {
            output::answer(&format!("  {value:>8} {name}"))?;
        }
    }
    Ok(ExitCode::from(u8::from(failed.is_some())))
}
