//! The result of a simulation, as a table and as JSON.

use super::{SimulationRun, collectives};
use crate::tree::comparison::scheme_in_words;
use crate::tree::planning::PlannedGroup;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use unisono_btin::NetworkFile;
use unisono_btin::simulate::analytic;
use unisono_btin::simulate::{Busiest, Conditions, Routes, Scheme, Simulated, SimulatedTime};
use unisono_text::counted;

/// Maximum number of waiting members, and of ports that they wait for, that are listed by name.
const NAMED: usize = 8;

pub(super) fn text(run: &SimulationRun<'_>) -> String {
    let mut out = String::new();
    let PlannedGroup { group, plan, .. } = &run.trees.planned[0];
    let (topology, network) = (&run.trees.topology, run.network());
    let _ = write!(
        out,
        "{} of {} at {}; tree: root switch {}, height {}, {}, {}",
        counted(group.members().len(), "member"),
        counted(network.nodes().len(), "node"),
        counted(network.switch_count(), "switch"),
        topology.switch_shown(plan.tree.root_switch),
        plan.height,
        counted(plan.edges, "link"),
        counted(plan.leaves, "leaf"),
    );
    if let Some(theorem) = theorem(run) {
        let switches = network.switch_count();
        let _ = write!(
            out,
            "\naverage tree height by Theorem 1 of the paper, for {} of {:.1} links each: {theorem:.1}",
            counted(switches, "switch"),
            2.0 * network.links().len() as f64 / switches as f64,
        );
    }
    let groups = run.trees.planned.len();
    if groups > 1 {
        let _ = write!(out, "\n{groups} groups at the same time; the slowest is shown");
    }
    for line in run.trees.notes.lines() {
        let _ = write!(out, "\n{line}");
    }
    let _ = write!(
        out,
        "\n\n{:<10} {:>10} {:>12} {:>13} {:>9} {:>9} {:>10}",
        "scheme", "latency us", "on paper us", "vs multicast", "hops", "messages", "start-ups",
    );
    let latency = |scheme| {
        let found = run.schemes.iter().find(|(simulated, _)| simulated.scheme == scheme);
        found.and_then(|(simulated, _)| simulated.latency()).map(SimulatedTime::as_us)
    };
    let multicast = latency(Scheme::Multicast);
    for (simulated, analytic) in &run.schemes {
        let own = simulated.latency().map(SimulatedTime::as_us);
        let of = |value: Option<f64>, suffix: &str| {
            value.filter(|v| v.is_finite()).map_or_else(|| "-".to_owned(), |v| format!("{v:.2}{suffix}"))
        };
        let _ = write!(
            out,
            "\n{:<10} {:>10} {:>12} {:>13} {:>9} {:>9} {:>10}",
            simulated.scheme.name(),
            of(own, ""),
            of(Some(analytic.as_us()), ""),
            of(multicast.zip(own).map(|(theirs, own)| theirs / own), "x"),
            simulated.hops,
            simulated.messages,
            simulated.startups,
        );
    }
    let _ = write!(out, "\n\n{:<10} {:<38}  hops over the busiest cable", "scheme", "how a barrier works");
    for (simulated, _) in &run.schemes {
        let (scheme, busiest) = (simulated.scheme, busiest(simulated.busiest, topology));
        let _ = write!(out, "\n{:<10} {:<38}  {busiest}", scheme.name(), scheme_in_words(scheme));
    }
    for (scheme, in_switches) in &run.in_switches {
        let name = scheme.name();
        let us = |us: Option<f64>| us.map_or_else(|| "no end".to_owned(), |us| format!("{us:.2} us"));
        let (kept, plain) = (us(latency(*scheme)), us(in_switches.map(SimulatedTime::as_us)));
        let _ = write!(
            out,
            "\n{name}: {kept} with registers in nodes' memory, {plain} with all in their switches"
        );
    }
    if !run.collectives.is_empty() {
        out.push_str(&collectives::text(&run.collectives));
    }
    for (simulated, _) in &run.schemes {
        out.push_str(&troubles(run, simulated));
    }
    out
}

/// Returns the lines above the picture.
pub(super) fn notes(run: &SimulationRun<'_>) -> Vec<String> {
    let one = |(simulated, _): &(Simulated, SimulatedTime)| {
        let latency = simulated.latency().map_or("no end".to_owned(), |t| format!("{:.2} us", t.as_us()));
        format!("{} {latency}, {}", simulated.scheme.name(), counted(simulated.hops, "hop"))
    };
    let mut notes = vec![run.schemes.iter().map(one).collect::<Vec<_>>().join("; ")];
    notes.extend(run.trees.notes.lines().map(str::to_owned));
    notes
}

fn theorem(run: &SimulationRun<'_>) -> Option<f64> {
    analytic::theorem_1(run.network(), run.network().switch_count())
}

fn busiest(busiest: Option<Busiest>, topology: &NetworkFile) -> String {
    match busiest {
        None => "-".to_owned(),
        Some(Busiest { from: Ok(end), crossings }) => {
            let port = topology.port_shown(end.switch, end.port);
            format!("{crossings} out of switch {} port {port}", topology.switch_shown(end.switch))
        }
        Some(Busiest { from: Err(node), crossings }) => {
            format!("{crossings} out of node {}", topology.node_shown(node))
        }
    }
}

/// Describes lost messages and, if a barrier did not end, the waiting members and the ports that they wait
/// for.
fn troubles(run: &SimulationRun<'_>, simulated: &Simulated) -> String {
    let topology = &run.trees.topology;
    let mut out = String::new();
    let name = simulated.scheme.name();
    if simulated.lost + simulated.duplicated > 0 {
        let repeated: u64 = simulated.courses.iter().map(|course| course.repetitions).sum();
        let (lost, twice) = (simulated.lost, simulated.duplicated);
        let _ = write!(
            out,
            "\n{name}: {} lost, {twice} delivered twice, {repeated} sent again",
            counted(lost, "message")
        );
    }
    for (PlannedGroup { group, .. }, course) in run.trees.planned.iter().zip(&simulated.courses) {
        if course.is_complete() {
            continue;
        }
        let waiting: Vec<String> =
            course.unreleased.iter().take(NAMED).map(|node| topology.node_shown(*node)).collect();
        let more = course.unreleased.len().saturating_sub(NAMED);
        let _ = write!(
            out,
            "\n{name}: group {} did not end: {} of {} members wait ({}{})",
            group.id().0,
            course.unreleased.len(),
            group.members().len(),
            waiting.join(", "),
            if more > 0 { format!(", and {more} more") } else { String::new() },
        );
        for end in course.missing.iter().take(NAMED) {
            let _ = write!(
                out,
                "\n{name}:   switch {} waits for a message at port {}",
                topology.switch_name(end.switch),
                end.port.0
            );
        }
    }
    out
}

pub(super) fn json(run: &SimulationRun<'_>, conditions: &Conditions, per_link: bool) -> Value {
    let PlannedGroup { group, plan, .. } = &run.trees.planned[0];
    let network = run.network();
    let schemes: Map<String, Value> = run
        .schemes
        .iter()
        .map(|(simulated, analytic)| {
            (simulated.scheme.name().to_owned(), scheme(run, simulated, *analytic, per_link))
        })
        .collect();
    let traffic = analytic::figure_7_traffic(network.switch_count() as u64, group.members().len() as u64);
    json!({
        "switches": network.switch_count(), "nodes": network.nodes().len(), "links": network.links().len(),
        "members": group.members().len(), "root_switch": plan.tree.root_switch.0,
        "root_node": plan.tree.root_node.map(|node| node.0), "height": plan.height,
        "height_by_theorem_1": theorem(run), "edges": plan.edges, "leaves": plan.leaves, "schemes": schemes,
        "traffic_as_in_figure_7": {"multicast": traffic.0, "btin": traffic.1},
        "collectives": (!run.collectives.is_empty()).then(|| collectives::json(&run.collectives)),
        "assumptions": assumptions(run, conditions),
    })
}

/// Returns the figures of each scheme without the lists of each group's figures.
pub(super) fn rows(run: &SimulationRun<'_>) -> Vec<Value> {
    let row = |(simulated, analytic): &(Simulated, SimulatedTime)| {
        let mut figures = scheme(run, simulated, *analytic, false);
        if let Some(figures) = figures.as_object_mut() {
            figures.remove("groups");
        }
        let name = ("scheme".to_owned(), json!(simulated.scheme.name()));
        [name]
            .into_iter()
            .chain(figures.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())))
            .collect()
    };
    run.schemes.iter().map(row).collect()
}

fn scheme(run: &SimulationRun<'_>, simulated: &Simulated, analytic: SimulatedTime, per_link: bool) -> Value {
    let us = |time: Option<SimulatedTime>| time.map(SimulatedTime::as_us);
    let registers = matches!(simulated.scheme, Scheme::Btin | Scheme::BtinTurn);
    let groups: Vec<Value> = run
        .trees
        .planned
        .iter()
        .zip(&simulated.courses)
        .map(|(PlannedGroup { group, plan, .. }, course)| {
            let in_memory: Map<String, Value> =
                plan.in_memory.iter().map(|(switch, node)| (switch.0.to_string(), json!(node.0))).collect();
            let missing: Vec<[u32; 2]> =
                course.missing.iter().map(|end| [end.switch.0, u32::from(end.port.0)]).collect();
            json!({
                "group": group.id().0, "latency_us": us(course.latency()), "repetitions": course.repetitions,
                "dropped": course.dropped,
                "unreleased": course.unreleased.iter().map(|node| node.0).collect::<Vec<_>>(),
                "waiting_for": missing, "in_memory": registers.then_some(in_memory),
            })
        })
        .collect();
    let (busiest, used, all) = simulated
        .links
        .iter()
        .flat_map(|(a, b)| [*a, *b])
        .fold((0, 0_u64, 0_u64), |(busiest, used, all), load| {
            (load.max(busiest), used + u64::from(load > 0), all + u64::from(load))
        });
    let mut value = json!({
        "latency_us": us(simulated.latency()), "analytic_us": analytic.as_us(), "hops": simulated.hops,
        "messages": simulated.messages, "startups": simulated.startups,
        "link_load": {
            "max": busiest,
            "mean_of_used": if used > 0 { all as f64 / used as f64 } else { 0.0 },
            "directions_used": used,
        },
        "lost": simulated.lost, "duplicated": simulated.duplicated, "events": simulated.events,
        "groups": groups,
    });
    if let Some((_, latency)) = run.in_switches.iter().find(|(scheme, _)| *scheme == simulated.scheme) {
        value["all_in_switches_us"] = json!(us(*latency));
    }
    if per_link {
        let links = run.trees.links.iter().zip(&simulated.links);
        value["per_link"] = links.map(|(link, (a, b))| json!([link, a, b])).collect();
    }
    value
}

fn assumptions(run: &SimulationRun<'_>, conditions: &Conditions) -> Value {
    let faults = &conditions.faults;
    let failing: Vec<Value> = faults
        .failing
        .iter()
        .map(|(link, when)| json!([run.trees.links[*link as usize], when.as_us()]))
        .collect();
    json!({
        "startup_us": conditions.costs.startup.as_us(),
        "propagation_us": conditions.costs.propagation.as_us(),
        "switch_delay_us": conditions.costs.switch.as_us(), "root_intake": conditions.intake.name(),
        "root_intake_us": conditions.intake(run.network()).as_us(),
        "routes": match conditions.routes { Routes::UpDown => "up-down", Routes::Shortest => "shortest" },
        "contention": conditions.channels == unisono_btin::simulate::Channels::Contended,
        "arrivals_within_us": conditions.arrivals.as_us(), "loss": faults.loss, "duplicate": faults.duplicate,
        "jitter_us": faults.jitter.as_us(), "failing_links": failing, "episodes": conditions.episodes,
        "seed": conditions.seed,
    })
}
