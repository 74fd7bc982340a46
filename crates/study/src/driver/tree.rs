//! Barriers over networks, simulated: the same networks and groups under each scheme.
//!
//! One run draws some networks and simulates every scheme and every size of group on each. Each scheme at
//! each size is a [`MeasuredPart`]: its variant is the run's with the scheme appended (`small-multicast`),
//! and its parameter is `members`. A figure is the mean over the networks, as in the paper, with the
//! distribution. No figure depends on elapsed time: the same seed gives the same figures on every machine.

use super::{Context, Driver, DriverKind, MeasuredPart, NoResult, RunResult};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use unisono_btin::generate::{NetworkOptions, Sparse, generate};
use unisono_btin::simulate::analytic;
use unisono_btin::simulate::{
    Channels, Conditions, Intake, Scheme, SimulatedBarrier, SimulatedTime, Simulator,
};
use unisono_btin::{BarrierGroup, GroupId, NodeId, PlanOptions, ReductionOperator, SwitchNetwork, plan};
use unisono_measure::quantile;
use unisono_measure::record::Figure;

const SCHEMES: [Scheme; 4] = Scheme::ALL;

/// The networks that a run draws, and the groups on them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NetworkSettings {
    pub switches: Option<u32>,
    pub nodes: Option<u32>,
    /// Nodes of each switch, as an alternative to `nodes`.
    pub nodes_per_switch: Option<u32>,
    pub ports: Option<u16>,
    /// The part of all ports that is in use.
    pub connectivity_percent: Option<f64>,
    /// Networks of a run, over which its figures are averaged. `None`: 1.
    pub networks: Option<u32>,
    /// Members of each group, one measurement each. `None`: every node.
    pub groups: Option<Vec<u32>>,
}

impl NetworkSettings {
    pub(super) fn network_options(&self, sparse: Sparse) -> NetworkOptions {
        let default = NetworkOptions::default();
        let switches = self.switches.unwrap_or(default.switches);
        let per_switch = self.nodes_per_switch.map(|nodes| nodes * switches);
        let percent = |percent| percent / 100.0;
        NetworkOptions {
            switches,
            ports: self.ports.unwrap_or(default.ports),
            nodes: self.nodes.or(per_switch).unwrap_or(default.nodes),
            connectivity: self.connectivity_percent.map_or(default.connectivity, percent),
            members: 0,
            seed: 0,
            sparse,
        }
    }

    /// Returns the sizes of the groups. Fails if a size does not fit a network of this many nodes.
    pub(super) fn groups(&self, nodes: u32) -> Result<Vec<u32>, String> {
        let groups = self.groups.clone().unwrap_or_else(|| vec![nodes]);
        if groups.is_empty() {
            return Err("`groups` is empty; name at least one size".to_owned());
        }
        if let Some(wrong) = groups.iter().find(|members| !(2..=nodes).contains(members)) {
            return Err(format!(
                "a group of {wrong} members; in a network of {nodes} nodes a group has from 2 to {nodes}"
            ));
        }
        Ok(groups)
    }

    pub(super) fn networks(&self) -> u32 {
        self.networks.unwrap_or(1).max(1)
    }
}

struct DrawnTrees {
    wish: NetworkOptions,
    networks: u32,
    groups: Vec<u32>,
    schemes: Vec<Scheme>,
    conditions: Conditions,
}

impl DrawnTrees {
    fn new(settings: &TreeDriver) -> Result<Self, String> {
        let known = |name: &String| {
            let found = SCHEMES.into_iter().find(|scheme| scheme.name() == name);
            found.ok_or_else(|| {
                format!("there is no scheme {name:?}; write unicast, multicast, btin or btin_turn")
            })
        };
        let schemes = settings.schemes.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        let intake = match &settings.intake {
            None => Intake::default(),
            Some(name) => Intake::ALL.into_iter().find(|intake| intake.name() == name).ok_or_else(|| {
                format!("there is no intake {name:?}; write parallel-links, one-port or startup-each")
            })?,
        };
        let wish = settings.network.network_options(Sparse::BareTree);
        let groups = settings.network.groups(wish.nodes)?;
        // L is computed from the requested connectivity: the paper's formula does not cover the case in which
        // only a bare tree can be built
        let links = wish.connectivity * f64::from(wish.ports)
            - f64::from(wish.nodes) / f64::from(wish.switches.max(1));
        Ok(Self {
            wish,
            networks: settings.network.networks(),
            groups,
            schemes,
            conditions: Conditions {
                intake,
                channels: if settings.contended { Channels::Contended } else { Channels::Free },
                arrivals: SimulatedTime::nanoseconds((settings.arrivals_us.max(0.0) * 1e3) as u64),
                parallel_links: Some(links.round().max(1.0) as u64),
                ..Conditions::default()
            },
        })
    }
}

/// Values of a scheme at one size of group, one for each network.
#[derive(Default)]
pub(super) struct FigureSamples {
    values: BTreeMap<&'static str, (&'static str, Vec<f64>)>,
}

impl FigureSamples {
    pub(super) fn add(&mut self, name: &'static str, unit: &'static str, value: f64) {
        self.values.entry(name).or_insert((unit, Vec::new())).1.push(value);
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let one = |(name, (unit, values)): (&&str, &(&str, Vec<f64>))| Figure {
            distribution: quantile::distribution(values),
            ..Figure::new(*name, mean(values), unit)
        };
        self.values.iter().map(one).collect()
    }
}

pub(crate) const TREE: DriverKind = DriverKind {
    added_parameters: &["members"],
    is_simulated: true,
    ..DriverKind::new::<TreeDriver>("tree")
};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TreeDriver {
    #[serde(flatten)]
    network: NetworkSettings,
    /// The schemes: `unicast`, `multicast`, `btin`, `btin_turn`.
    schemes: Vec<String>,
    /// A root node's model of receiving messages: `parallel-links`, `one-port`, `startup-each`.
    intake: Option<String>,
    /// Whether messages wait for each other at links; in the paper they do not.
    contended: bool,
    /// All members arrive within this time. 0: all arrive at the same time.
    arrivals_us: f64,
}

impl Default for TreeDriver {
    fn default() -> Self {
        Self {
            network: NetworkSettings::default(),
            schemes: SCHEMES.map(|scheme| scheme.name().to_owned()).into(),
            intake: None,
            contended: false,
            arrivals_us: 0.0,
        }
    }
}

impl Driver for TreeDriver {
    fn parts(&self) -> Option<Vec<String>> {
        Some(self.schemes.clone())
    }

    fn estimated_overhead(&self, _: f64) -> Duration {
        const NANOS_A_HOP: f64 = 100.0;
        const MEMBERS_IN_CACHE: f64 = 80_000.0;
        let NetworkOptions { switches, nodes, .. } = self.network.network_options(Sparse::BareTree);
        let members = |sizes: &Vec<u32>| sizes.iter().copied().map(f64::from).sum();
        let members: f64 = self.network.groups.as_ref().map_or_else(|| f64::from(nodes), members);
        let sizes = self.network.groups.as_ref().map_or(1, Vec::len) as f64;
        let places = members + sizes * f64::from(switches);
        let hops = places * f64::from(switches.max(2)).log2() * f64::from(self.network.networks());
        let slower = 1.0 + f64::from(nodes) / MEMBERS_IN_CACHE;
        Duration::from_nanos((hops * NANOS_A_HOP * slower) as u64)
    }

    fn run(&self, context: Context, _: f64, seed: u64) -> Result<RunResult, NoResult> {
        let wanted = DrawnTrees::new(self).map_err(NoResult::Failed)?;
        let mut seen: BTreeMap<(u32, Scheme), FigureSamples> = BTreeMap::new();
        let mut bare_trees = 0;
        for number in 0..wanted.networks {
            if let Some(signal) = (context.interrupted)() {
                return Err(NoResult::Interrupted(signal.to_owned()));
            }
            let seed = network_seed(seed, number);
            bare_trees += u32::from(one_network(&wanted, seed, &mut seen).map_err(NoResult::Failed)?);
        }
        let parts = seen
            .iter()
            .map(|((members, scheme), seen)| MeasuredPart {
                name: scheme.name().to_owned(),
                parameters: BTreeMap::from([("members".to_owned(), (*members).into())]),
                figures: seen.figures(),
            })
            .collect();
        let mut warnings = Vec::new();
        if bare_trees > 0 {
            warnings.push(format!(
                "{} % of the ports do not connect {} switches and {} nodes; the bare tree was taken instead",
                wanted.wish.connectivity * 100.0,
                wanted.wish.switches,
                wanted.wish.nodes
            ));
        }
        Ok(RunResult { parts, warnings, ..RunResult::default() })
    }
}

/// Returns the seed of a run's network.
fn network_seed(run: u64, number: u32) -> u64 {
    run.wrapping_add(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Generates a network of a run; also returns whether it is a bare tree.
pub(super) fn draw_network(
    wish: &NetworkOptions,
    run: u64,
    number: u32,
) -> Result<(SwitchNetwork, bool), String> {
    let wish = NetworkOptions { seed: network_seed(run, number), ..wish.clone() };
    let topology = generate(&wish).map_err(|error| error.to_string())?;
    Ok((topology.network, topology.generated.is_some_and(|how| how.bare_tree)))
}

/// Simulates one network; returns whether it is a bare tree.
fn one_network(
    wanted: &DrawnTrees,
    seed: u64,
    seen: &mut BTreeMap<(u32, Scheme), FigureSamples>,
) -> Result<bool, String> {
    let topology =
        generate(&NetworkOptions { seed, ..wanted.wish.clone() }).map_err(|error| error.to_string())?;
    let network = &topology.network;
    let simulator = Simulator::new(network);
    let mut nodes: Vec<NodeId> = (0..wanted.wish.nodes).map(NodeId).collect();
    nodes.shuffle(&mut Pcg64Mcg::seed_from_u64(seed));
    let conditions = Conditions { seed, ..wanted.conditions.clone() };
    let in_memory = BTreeMap::new();
    for &members in &wanted.groups {
        let chosen = nodes[..members as usize].to_vec();
        let group = BarrierGroup::new(network, GroupId(0), chosen).map_err(|error| error.to_string())?;
        let planned = plan(network, &group, &PlanOptions::default()).map_err(|error| error.to_string())?;
        let barrier = SimulatedBarrier {
            group: &group,
            tree: &planned.tree,
            height: planned.height,
            in_memory: &in_memory,
            operation: ReductionOperator::default(),
            data: &|_, _| 0,
        };
        let barrier = std::slice::from_ref(&barrier);
        let mut multicast = None;
        for &scheme in &wanted.schemes {
            let simulated = simulator.run(barrier, scheme, &conditions);
            let latency = simulated.latency().ok_or("a barrier did not end")?.as_us();
            let hops = simulated.hops as f64;
            let seen = seen.entry((members, scheme)).or_default();
            seen.add("latency_us", "us", latency);
            seen.add("barriers_per_s", "1/s", 1e6 / latency);
            seen.add("hops", "1", hops);
            seen.add("messages", "1", simulated.messages as f64);
            seen.add("startups", "1", simulated.startups as f64);
            match scheme {
                Scheme::Unicast => {}
                Scheme::Multicast => multicast = Some((latency, hops)),
                Scheme::Btin | Scheme::BtinTurn => {
                    let distance = u64::from(planned.height) + 2;
                    let intake = conditions.intake(network);
                    let analytic =
                        analytic::latency(scheme, &conditions.costs, distance, members.into(), intake);
                    seen.add("analytic_us", "us", analytic.as_us());
                    seen.add("height", "1", planned.height.into());
                    if let Some(theorem) = analytic::theorem_1(network, network.switch_count()) {
                        seen.add("theorem_height", "1", theorem);
                    }
                    if let Some((their_latency, their_hops)) = multicast {
                        seen.add("times_faster", "1", their_latency / latency);
                        seen.add("times_less_traffic", "1", their_hops / hops);
                    }
                }
            }
        }
    }
    Ok(topology.generated.is_some_and(|how| how.bare_tree))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> TreeDriver {
        let network =
            NetworkSettings { groups: Some(vec![2, 256]), networks: Some(3), ..NetworkSettings::default() };
        TreeDriver { network, ..TreeDriver::default() }
    }

    fn seen(settings: &TreeDriver) -> BTreeMap<(u32, Scheme), FigureSamples> {
        let wanted = DrawnTrees::new(settings).expect("good settings");
        let mut seen = BTreeMap::new();
        for seed in 0..u64::from(wanted.networks) {
            one_network(&wanted, seed, &mut seen).expect("simulated");
        }
        seen
    }

    fn mean(seen: &BTreeMap<(u32, Scheme), FigureSamples>, at: (u32, Scheme), name: &str) -> f64 {
        let figures = seen[&at].figures();
        figures.iter().find(|figure| figure.name == name).map_or(f64::NAN, |figure| figure.value)
    }

    #[test]
    fn with_parallel_links_the_smaller_system_comes_near_the_papers_factor_and_otherwise_far_above() {
        let factor = |intake: &str| {
            let settings = TreeDriver { intake: Some(intake.to_owned()), ..small() };
            mean(&seen(&settings), (256, Scheme::Btin), "times_faster")
        };
        assert!((3.3..4.3).contains(&factor("parallel-links")), "{}", factor("parallel-links"));
        assert!((8.0..11.0).contains(&factor("one-port")), "{}", factor("one-port"));
        assert!((45.0..60.0).contains(&factor("startup-each")), "{}", factor("startup-each"));
    }

    #[test]
    fn counted_hops_give_a_factor_of_two_or_three_and_no_more() {
        let factor = mean(&seen(&small()), (256, Scheme::Btin), "times_less_traffic");
        assert!((1.5..4.0).contains(&factor), "{factor}");
    }

    #[test]
    fn a_hundred_times_the_switches_are_estimated_at_more_than_a_hundred_times_the_time() {
        let of = |switches| {
            let network = NetworkSettings {
                switches: Some(switches),
                nodes_per_switch: Some(10),
                ..NetworkSettings::default()
            };
            TreeDriver { network, ..TreeDriver::default() }.estimated_overhead(0.0).as_secs_f64()
        };
        assert!(of(100_000) > 100.0 * of(1_000), "{} s against {} s", of(100_000), of(1_000));
        assert!((0.1..1.0).contains(&of(10_000)), "{} s for 10,000 switches", of(10_000));
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let wrong = |settings: TreeDriver| DrawnTrees::new(&settings).err().expect("refused");
        assert!(wrong(TreeDriver { schemes: vec!["tree".into()], ..small() }).contains("\"tree\""));
        assert!(wrong(TreeDriver { intake: Some("fast".into()), ..small() }).contains("\"fast\""));
        let mut large = small();
        large.network.groups = Some(vec![257]);
        assert!(wrong(large).contains("256"));
    }
}
