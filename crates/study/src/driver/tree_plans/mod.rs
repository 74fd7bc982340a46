//! Trees beyond the paper compared with the paper's trees, simulated on the same networks and groups.
//!
//! | compared | parts | each measured at |
//! |---|---|---|
//! | roots | `paper`, `turned`, `any` | sizes of groups |
//! | ties between parents, if `concurrent` | `number`, `load` | numbers of concurrent groups |
//! | trees after failures, if `failed` | `repaired`, `anew` | numbers of failed links of the tree |
//! | other collectives, if `collectives` | each by the tree, `turned`, by `messages` | sizes of groups |
//!
//! - `paper`: the paper's tree; `turned`: the same tree, with messages turned at the root switch instead of
//!   the root node; `any`: any switch may be the root, also turned.
//! - `number`: ties are broken by number, without regard to load; `load`: ties are broken in favor of the
//!   link that the fewest groups use.
//! - `repaired`: the tree is repaired after each failed link; `anew`: a new tree is planned on the links that
//!   are left.
//!
//! A figure is the mean over a run's networks, as in [`super::tree`]. No figure depends on elapsed time.

mod collectives;

use super::tree::{FigureSamples, NetworkSettings, draw_network};
use super::{Context, Driver, DriverKind, MeasuredPart, NoResult, RunResult};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use unisono_btin::generate::Sparse;
use unisono_btin::repair::{NetworkFailure, StandingTree};
use unisono_btin::simulate::{Channels, Conditions, Scheme, Simulated, SimulatedBarrier, Simulator};
use unisono_btin::{
    BarrierGroup, GroupId, Loads, NodeId, PlanOptions, Roots, SwitchNetwork, Tree, TreePlan, plan,
};

type PartSamples = BTreeMap<(&'static str, u32), FigureSamples>;

enum PlanComparison<'a> {
    Roots,
    Ties(&'a [u32]),
    Failures(&'a [u32]),
    Collectives,
}

/// Parameters that the driver adds to the records. They are not settings of the study.
const ADDED_PARAMETERS: [&str; 3] = ["members", "concurrent_groups", "failed_links"];

pub(crate) const TREE_PLANS: DriverKind = DriverKind {
    added_parameters: &ADDED_PARAMETERS,
    is_simulated: true,
    ..DriverKind::new::<TreePlansDriver>("tree-plans")
};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TreePlansDriver {
    #[serde(flatten)]
    network: NetworkSettings,
    /// Numbers of groups that synchronize at once, one measurement each.
    concurrent: Option<Vec<u32>>,
    /// Numbers of failed links of a tree, one measurement each.
    failed: Option<Vec<u32>>,
    /// Whether to compare collective operations other than the barrier: done by the registers of a barrier
    /// tree, and done by messages.
    collectives: bool,
}

impl TreePlansDriver {
    /// Returns the comparison that the settings ask for; if they ask for several, the first.
    fn compared(&self) -> PlanComparison<'_> {
        match (&self.concurrent, &self.failed, self.collectives) {
            (Some(counts), _, _) => PlanComparison::Ties(counts),
            (None, Some(counts), _) => PlanComparison::Failures(counts),
            (None, None, true) => PlanComparison::Collectives,
            (None, None, false) => PlanComparison::Roots,
        }
    }
}

impl Driver for TreePlansDriver {
    fn parts(&self) -> Option<Vec<String>> {
        let parts: &[&str] = match self.compared() {
            PlanComparison::Roots => &["paper", "turned", "any"],
            PlanComparison::Ties(_) => &["number", "load"],
            PlanComparison::Failures(_) => &["repaired", "anew"],
            PlanComparison::Collectives => &collectives::PARTS,
        };
        Some(parts.iter().map(|part| (*part).to_owned()).collect())
    }

    fn estimated_overhead(&self, _: f64) -> Duration {
        const A_TREE: Duration = Duration::from_micros(100);
        const A_BARRIER: Duration = Duration::from_micros(30);
        let network = &self.network;
        let sizes = network.groups.as_ref().map_or(1, Vec::len) as u32;
        let networks = network.networks() * network.switches.unwrap_or(75).div_ceil(75);
        let one = match self.compared() {
            PlanComparison::Ties(counts) => A_TREE * counts.iter().sum(),
            PlanComparison::Failures(counts) => A_TREE * counts.iter().copied().max().unwrap_or(0),
            // a total exchange is one barrier for each member, by the tree and by the turned tree
            PlanComparison::Collectives => {
                A_TREE * sizes + A_BARRIER * 2 * network.groups.iter().flatten().sum()
            }
            PlanComparison::Roots => A_TREE * sizes,
        };
        one * networks
    }

    fn run(&self, context: Context, _: f64, seed: u64) -> Result<RunResult, NoResult> {
        let wish = self.network.network_options(Sparse::Refuse);
        let groups = self.network.groups(wish.nodes).map_err(NoResult::Failed)?;
        let wrong = |text: &str| Err(NoResult::Failed(text.to_owned()));
        let asked = [self.concurrent.is_some(), self.failed.is_some(), self.collectives];
        if asked.into_iter().filter(|one| *one).count() > 1 {
            return wrong("either concurrent groups or failed links or collectives");
        }
        let compared = self.compared();
        let of = match compared {
            PlanComparison::Roots | PlanComparison::Collectives => ADDED_PARAMETERS[0],
            PlanComparison::Ties(_) => ADDED_PARAMETERS[1],
            PlanComparison::Failures(_) => ADDED_PARAMETERS[2],
        };
        if of != ADDED_PARAMETERS[0] && groups.len() > 1 {
            return wrong("groups of one size only are compared here");
        }
        let mut seen = PartSamples::new();
        for number in 0..self.network.networks() {
            if let Some(signal) = (context.interrupted)() {
                return Err(NoResult::Interrupted(signal.to_owned()));
            }
            let (network, _) = draw_network(&wish, seed, number).map_err(NoResult::Failed)?;
            let mut random = Pcg64Mcg::seed_from_u64(seed.wrapping_add(number.into()));
            let done = groups.iter().try_for_each(|members| match compared {
                PlanComparison::Roots => compare_roots(&network, *members, &mut random, &mut seen),
                PlanComparison::Ties(counts) => {
                    compare_ties(&network, *members, counts, &mut random, &mut seen)
                }
                PlanComparison::Failures(counts) => {
                    compare_failures(&network, *members, counts, &mut random, &mut seen)
                }
                PlanComparison::Collectives => {
                    collectives::compare_collectives(&network, *members, &mut random, &mut seen)
                }
            });
            done.map_err(NoResult::Failed)?;
        }
        let parts = seen.iter().map(|((part, at), seen)| MeasuredPart {
            name: (*part).to_owned(),
            parameters: BTreeMap::from([(of.to_owned(), (*at).into())]),
            figures: seen.figures(),
        });
        Ok(RunResult { parts: parts.collect(), ..RunResult::default() })
    }
}

fn draw_group(
    network: &SwitchNetwork,
    id: u8,
    members: u32,
    random: &mut Pcg64Mcg,
) -> Result<BarrierGroup, String> {
    let mut nodes: Vec<NodeId> = (0..network.nodes().len() as u32).map(NodeId).collect();
    let (chosen, _) = nodes.partial_shuffle(random, members as usize);
    BarrierGroup::new(network, GroupId(id), chosen.to_vec()).map_err(|error| error.to_string())
}

fn plan_tree(network: &SwitchNetwork, group: &BarrierGroup, roots: Roots) -> Result<TreePlan, String> {
    let mut options = PlanOptions::default();
    options.roots = roots;
    plan(network, group, &options).map_err(|error| error.to_string())
}

/// Simulates one barrier of each group by its tree, all at once.
fn simulate_barriers(
    network: &SwitchNetwork,
    trees: &[(&BarrierGroup, &TreePlan)],
    scheme: Scheme,
    channels: Channels,
) -> Simulated {
    let barriers: Vec<SimulatedBarrier<'_>> =
        trees.iter().map(|(group, plan)| SimulatedBarrier::planned(group, plan)).collect();
    Simulator::new(network).run(&barriers, scheme, &Conditions { channels, ..Conditions::default() })
}

fn add_simulated(
    seen: &mut PartSamples,
    at: (&'static str, u32),
    simulated: &Simulated,
    height: u32,
) -> Result<(), String> {
    let latency = simulated.latency().ok_or("a barrier did not end")?.as_us();
    let seen = seen.entry(at).or_default();
    seen.add("latency_us", "us", latency);
    seen.add("barriers_per_s", "1/s", 1e6 / latency);
    seen.add("height", "1", height.into());
    Ok(())
}

fn compare_roots(
    network: &SwitchNetwork,
    members: u32,
    random: &mut Pcg64Mcg,
    seen: &mut PartSamples,
) -> Result<(), String> {
    let group = draw_group(network, 0, members, random)?;
    let paper = plan_tree(network, &group, Roots::Members)?;
    let any = plan_tree(network, &group, Roots::Any)?;
    let kinds = [
        ("paper", &paper, Scheme::Btin),
        ("turned", &paper, Scheme::BtinTurn),
        ("any", &any, Scheme::BtinTurn),
    ];
    for (part, plan, scheme) in kinds {
        let barrier = simulate_barriers(network, &[(&group, plan)], scheme, Channels::Free);
        add_simulated(seen, (part, members), &barrier, plan.height)?;
    }
    Ok(())
}

fn compare_ties(
    network: &SwitchNetwork,
    members: u32,
    counts: &[u32],
    random: &mut Pcg64Mcg,
    seen: &mut PartSamples,
) -> Result<(), String> {
    let most = counts.iter().copied().max().unwrap_or(0);
    if most > 256 {
        return Err(format!("{most} groups at once: a message names 256"));
    }
    let groups: Vec<BarrierGroup> =
        (0..most).map(|id| draw_group(network, id as u8, members, random)).collect::<Result<_, _>>()?;
    for &count in counts {
        let groups = &groups[..count as usize];
        let (mut plain, mut shared) = (Loads::new(network), Loads::new(network));
        let (mut by_number, mut by_load) = (Vec::new(), Vec::new());
        for group in groups {
            let plan = plan_tree(network, group, Roots::Members)?;
            plain.add(network, &plan.tree);
            by_number.push(plan);
            let plan = shared.plan(network, group, &PlanOptions::default());
            by_load.push(plan.map_err(|error| error.to_string())?);
        }
        for (part, plans, loads) in [("number", &by_number, &plain), ("load", &by_load, &shared)] {
            let trees: Vec<(&BarrierGroup, &TreePlan)> = groups.iter().zip(plans).collect();
            let barriers = simulate_barriers(network, &trees, Scheme::Btin, Channels::Contended);
            let height = plans.iter().map(|plan| plan.height).max().unwrap_or(0);
            add_simulated(seen, (part, count), &barriers, height)?;
            let busiest = loads.links().iter().max().copied().unwrap_or(0);
            seen.entry((part, count)).or_default().add("trees_on_busiest_link", "1", busiest.into());
        }
    }
    Ok(())
}

/// Lets links of the tree fail one after the other; no failure cuts members off.
fn compare_failures(
    network: &SwitchNetwork,
    members: u32,
    counts: &[u32],
    random: &mut Pcg64Mcg,
    seen: &mut PartSamples,
) -> Result<(), String> {
    let group = draw_group(network, 0, members, random)?;
    let whole = plan_tree(network, &group, Roots::Members)?;
    let mut standing = StandingTree::new(network, &group, &whole.tree).map_err(|error| error.to_string())?;
    let mut failed = BTreeSet::new();
    let (mut last, most) = (whole.clone(), counts.iter().copied().max().unwrap_or(0));
    for count in 1..=most {
        let mut links = used_links(network, &standing.plan().tree);
        links.shuffle(random);
        let mut can_fail = links.into_iter().filter_map(|link| {
            let left = without_links(network, failed.iter().copied().chain([link]).collect());
            let anew = plan_tree(&left, &group, Roots::Members).ok()?;
            Some((link, left, anew))
        });
        // all remaining links are bridges: no further link can fail
        let Some((link, left, anew)) = can_fail.next() else { break };
        failed.insert(link);
        standing.fail(NetworkFailure::Link(link)).map_err(|error| error.to_string())?;
        if counts.contains(&count) {
            let repaired = standing.plan();
            for (part, plan) in [("repaired", &repaired), ("anew", &anew)] {
                let barrier = simulate_barriers(&left, &[(&group, plan)], Scheme::Btin, Channels::Free);
                add_simulated(seen, (part, count), &barrier, plan.height)?;
                let changed = changed(&plan.tree, &last.tree);
                seen.entry((part, count)).or_default().add("registers_changed", "1", changed as f64);
            }
        }
        last = standing.plan();
    }
    Ok(())
}

fn used_links(network: &SwitchNetwork, tree: &Tree) -> Vec<u32> {
    let mut loads = Loads::new(network);
    loads.add(network, tree);
    (0..).zip(loads.links()).filter(|(_, load)| **load > 0).map(|(link, _)| link).collect()
}

fn without_links(network: &SwitchNetwork, failed: BTreeSet<u32>) -> SwitchNetwork {
    let ports = network.switches().map(|switch| network.ports(switch)).collect();
    let links = (0..).zip(network.links()).filter(|(number, _)| !failed.contains(number));
    let links = links.map(|(_, link)| *link).collect();
    SwitchNetwork::new(ports, links, network.nodes().to_vec())
        .expect("sound because fewer links are at each port")
}

/// Counts the switches whose register changed, appeared or vanished.
fn changed(now: &Tree, before: &Tree) -> usize {
    let differ = |(switch, register)| before.registers.get(switch) != Some(register);
    let gone = before.registers.keys().filter(|switch| !now.registers.contains_key(switch)).count();
    now.registers.iter().filter(|one| differ(*one)).count() + gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(settings: &TreePlansDriver) -> Result<RunResult, NoResult> {
        let (bench, nowhere) = (crate::peer::PeerBench::default(), std::path::Path::new("/"));
        let never = || None;
        let context =
            Context { bench: &bench, unisono: nowhere, directory: nowhere, cpus: &[], interrupted: &never };
        settings.run(context, 0.0, 1)
    }

    fn seen(settings: &TreePlansDriver) -> BTreeMap<(String, u64), BTreeMap<String, f64>> {
        let part = |part: MeasuredPart| {
            let at = part.parameters.values().next().and_then(serde_json::Value::as_u64);
            let figures = part.figures.into_iter().map(|figure| (figure.name, figure.value)).collect();
            ((part.name, at.expect("a number")), figures)
        };
        run(settings).expect("good settings").parts.into_iter().map(part).collect()
    }

    fn groups_of(sizes: &[u32], networks: u32) -> TreePlansDriver {
        let (groups, networks) = (Some(sizes.to_vec()), Some(networks));
        let network = NetworkSettings { groups, networks, ..NetworkSettings::default() };
        TreePlansDriver { network, ..TreePlansDriver::default() }
    }

    fn part_at(part: &str, at: u64) -> (String, u64) {
        (part.to_owned(), at)
    }

    #[test]
    fn a_freer_root_is_never_higher_and_turning_always_faster() {
        let seen = seen(&groups_of(&[4, 256], 5));
        for members in [4, 256] {
            let figure = |part, name| seen[&part_at(part, members)][name];
            assert!(figure("any", "height") <= figure("paper", "height"));
            assert!(figure("turned", "latency_us") < figure("paper", "latency_us"));
            assert!(figure("any", "latency_us") <= figure("turned", "latency_us"));
        }
        assert!(
            seen[&part_at("any", 4)]["height"] < seen[&part_at("paper", 4)]["height"],
            "small groups gain"
        );
    }

    #[test]
    fn groups_that_share_links_by_load_have_a_less_busy_link() {
        let seen = seen(&TreePlansDriver { concurrent: Some(vec![1, 64]), ..groups_of(&[16], 3) });
        let busiest = |part, at| seen[&part_at(part, at)]["trees_on_busiest_link"];
        assert!(busiest("load", 64) < busiest("number", 64));
        assert_eq!(busiest("load", 1), 1.0);
    }

    #[test]
    fn a_repair_changes_fewer_registers_than_a_new_plan_and_is_at_best_as_low() {
        let seen = seen(&TreePlansDriver { failed: Some(vec![1, 8]), ..groups_of(&[256], 5) });
        for failed in [1, 8] {
            let figure = |part, name| seen[&part_at(part, failed)][name];
            assert!(figure("repaired", "registers_changed") < figure("anew", "registers_changed"));
            assert!(figure("repaired", "height") >= figure("anew", "height"));
        }
    }

    #[test]
    fn wrong_settings_are_named() {
        let wrong = |settings: TreePlansDriver| format!("{:?}", run(&settings).expect_err("refused"));
        assert!(wrong(groups_of(&[257], 1)).contains("2 to 256"));
        let both = TreePlansDriver {
            concurrent: Some(vec![2]),
            failed: Some(vec![2]),
            ..TreePlansDriver::default()
        };
        assert!(wrong(both).contains("either"));
        let both = TreePlansDriver { collectives: true, failed: Some(vec![2]), ..TreePlansDriver::default() };
        assert!(wrong(both).contains("collectives"));
    }

    #[test]
    fn trees_gain_by_size_in_what_is_one_barrier_and_lose_a_total_exchange() {
        let seen = seen(&TreePlansDriver { collectives: true, ..groups_of(&[4, 64], 3) });
        assert_eq!(seen.len(), 2 * collectives::PARTS.len());
        let latency = |part, at| seen[&part_at(part, at)]["latency_us"];
        for at in [4, 64] {
            assert!(latency("sum-turned", at) < latency("sum-tree", at));
            assert_eq!(latency("multicast-tree", at), latency("sum-tree", at), "both are one barrier");
            assert!(latency("exchange-tree", at) > latency("sum-tree", at) * (at as f64 - 1.0));
        }
        assert!(latency("sum-tree", 64) < latency("sum-messages", 64));
        assert!(latency("exchange-tree", 64) > latency("exchange-messages", 64));
    }
}
