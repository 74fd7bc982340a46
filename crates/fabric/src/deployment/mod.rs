//! A running network, with its groups' members as processes: the base of `unisono tree deploy` and `bench`.
//!
//! A [`Deployment`] owns the whole network. Dropping it ends the processes, and with them the namespaces. The
//! same happens if the process that holds it is killed, because namespaces have no names unless the user
//! asked for them.

mod carriers;
mod endurance;

use crate::cables::Cables;
use crate::diagnose::{Suspect, suspects};
use crate::error::Error;
use crate::fabric::{Fabric, ProgramHook};
use crate::home_processors::HomeProcessors;
use crate::job::{BarrierJob, NodeContext};
use crate::node;
use crate::node_processes::{NodeNews, NodeProcesses};
use crate::orders::{BarrierRun, NodeOrder, NodeReport};
use crate::program::SwitchProgram;
use crate::software::SoftwareAlgorithm;
use crate::switches::{Switches, Times};
use carriers::shortened;
pub use endurance::{EnduranceResult, TRACED_BARRIERS};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_btin::repair::around_links;
use unisono_btin::{End, NodeId, PlanError, SwitchNetwork, TreePlan};
use unisono_linux::affinity::Tid;
use unisono_linux::clock::{Duration, Instant};
use unisono_linux::interrupt;

/// The interval between two checks for a signal.
const POLL_INTERVAL: StdDuration = StdDuration::from_millis(100);
/// The maximum time that a node may take to carry out an order.
const ORDER_TIMEOUT: StdDuration = StdDuration::from_secs(60);

/// The distance between the first episodes of two successive set-ups of the registers (*lives*). It is odd,
/// so that the first episodes of all lives differ, and large, so that no life reaches the episodes of the
/// next.
const SPREAD: u16 = 0x4e35;

#[derive(Clone, Debug, Default)]
pub struct BarriersRan {
    /// The longest of the members' times for all barriers together.
    pub took: Duration,
    /// The number of timeouts of all members together.
    pub repeated: u64,
    /// Each member's entry and exit times for each barrier (all barriers of that number in its groups), if a
    /// trace was requested.
    pub moments: BTreeMap<NodeId, Vec<(Instant, Instant)>>,
    groups: Vec<Vec<NodeId>>,
}

impl BarriersRan {
    /// Returns whether no member left a barrier of the trace before every member of its group had entered it.
    pub fn is_synchronized(&self) -> bool {
        self.groups.iter().all(|group| {
            let moments: Vec<&[(Instant, Instant)]> =
                group.iter().filter_map(|member| self.moments.get(member)).map(Vec::as_slice).collect();
            let barriers = moments.iter().map(|member| member.len()).min().unwrap_or(0);
            (0..barriers).all(|at| {
                let entered = moments.iter().map(|member| member[at].0).max();
                let left = moments.iter().map(|member| member[at].1).min();
                entered <= left
            })
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repaired {
    pub registers: usize,
    /// The number of registers that differ from those before the repair.
    pub changed: usize,
    pub roots: usize,
}

/// A callback that receives the events of cables and barriers, in words.
type NewsListener<'a> = Box<dyn FnMut(&str) + 'a>;

pub struct Deployment<'a> {
    processes: NodeProcesses, // dropped first, so that processes end before the resources that they use
    cables: Cables,
    fabric: Fabric,
    hook: ProgramHook,
    program: SwitchProgram,
    network: &'a SwitchNetwork,
    jobs: &'a [BarrierJob],
    /// The links that were excluded because they lose frames.
    blamed: Vec<u32>,
    /// The links that the trees do not use, in the order of their failures.
    without: Vec<u32>,
    avoided: Vec<u32>,
    listener: Option<NewsListener<'a>>,
    plans: Vec<TreePlan>,
    /// The number of set-ups of registers so far, and the first episode of the last one.
    lives: u16,
    first: u16,
    tag: u8,
    times: Times,
}

impl<'a> Deployment<'a> {
    /// Brings a network up and starts a process for each member of its groups. Does not set up registers.
    pub fn new(network: &'a SwitchNetwork, jobs: &'a [BarrierJob]) -> Result<Self, Error> {
        let plans = trees(network, jobs, &[]).map_err(|error| Error::Input(error.to_string()))?;
        let members: BTreeSet<NodeId> = jobs.iter().flat_map(|job| job.group.members()).copied().collect();
        let members: Vec<NodeId> = members.into_iter().collect();
        let homes = HomeProcessors::distribute(&members);
        let Switches { fabric, hook, program, cables, times } = Switches::bring_up(network, &homes)?;
        let start = StdInstant::now();
        let known = NodeContext { network, jobs };
        let processes =
            NodeProcesses::start(&members, &fabric, &homes, |id, orders| node::serve(id, known, orders))?;
        let mut deployment = Self {
            processes,
            cables,
            fabric,
            hook,
            program,
            network,
            jobs,
            blamed: Vec::new(),
            without: Vec::new(),
            avoided: Vec::new(),
            listener: None,
            plans,
            lives: 0,
            first: 0,
            tag: 0,
            times,
        };
        deployment.collect_reports(members.len(), ORDER_TIMEOUT, &[], |_, report| {
            matches!(report, NodeReport::Ready)
        })?;
        deployment.times.nodes = start.elapsed();
        Ok(deployment)
    }

    /// Sets up the registers of all groups; the members do so by themselves. Returns the number of registers.
    pub fn set_up(&mut self) -> Result<usize, Error> {
        let start = StdInstant::now();
        self.first = self.lives.wrapping_mul(SPREAD);
        self.lives = self.lives.wrapping_add(1);
        let order = NodeOrder::SetUp { without: self.without.clone(), first: self.first };
        let registers = self.about_registers(&order)?;
        self.times.registers = start.elapsed();
        Ok(registers)
    }

    /// Releases the registers of all groups. Returns the number of registers.
    pub fn release(&mut self) -> Result<usize, Error> {
        self.about_registers(&NodeOrder::Release)
    }

    fn about_registers(&mut self, order: &NodeOrder) -> Result<usize, Error> {
        let asked = self.processes.send_order(order, |_| true)?;
        let mut registers = 0;
        self.collect_reports(asked, ORDER_TIMEOUT, &[], |_, report| match report {
            NodeReport::SetUp { registers: more } => {
                registers += *more;
                true
            }
            _ => false,
        })?;
        Ok(registers)
    }

    /// Runs barriers of several jobs at the same time. `jobs` are their indices. If a cable has been pulled
    /// and there is a way around it, fails at once with [`Error::Cable`], which names the cable; if there is
    /// no way around it, waits, because the cable may be plugged in again. Fails after `run.stuck_after` with
    /// [`Error::Barrier`], which names the cause: a node that ended, or the ports from which registers lack
    /// an arrival. By then the members have given up; [`Deployment::set_up_again`] makes them usable again.
    pub fn barriers(&mut self, jobs: &[usize], run: BarrierRun) -> Result<BarriersRan, Error> {
        self.update_cables()?;
        if let Some(broken) = self.broken(jobs) {
            return Err(Error::Cable(broken));
        }
        self.run(jobs, &NodeOrder::Barriers { jobs: jobs.to_vec(), run }, run)
    }

    /// Runs software barriers among the members of a group.
    pub fn software(
        &mut self,
        algorithm: SoftwareAlgorithm,
        job: usize,
        run: BarrierRun,
    ) -> Result<BarriersRan, Error> {
        self.tag = self.tag.wrapping_add(1);
        self.run(&[job], &NodeOrder::Software { algorithm, job, tag: self.tag, run }, run)
    }

    fn run(&mut self, jobs: &[usize], order: &NodeOrder, run: BarrierRun) -> Result<BarriersRan, Error> {
        let of = self.jobs;
        let takes_part = |node| jobs.iter().any(|job| of[*job].group.contains(node));
        let asked = self.processes.send_order(order, takes_part)?;
        let groups = jobs.iter().map(|job| of[*job].group.members().to_vec()).collect();
        let mut ran = BarriersRan { groups, ..BarriersRan::default() };
        let standing = if matches!(order, NodeOrder::Barriers { .. }) { jobs } else { &[] };
        let done = self.collect_reports(asked, StdDuration::MAX, standing, |node, report| {
            let NodeReport::Done { took, repeated, moments } = report else { return false };
            ran.took = ran.took.max(*took);
            ran.repeated += *repeated;
            if run.trace {
                ran.moments.insert(node, std::mem::take(moments));
            }
            true
        });
        done.map(|()| ran)
    }

    /// Waits for `expected` reports that `take` accepts. If a report cannot arrive any more, or if a cable
    /// that a job in `standing` needs is pulled, orders all nodes to stop.
    fn collect_reports(
        &mut self,
        mut expected: usize,
        timeout: StdDuration,
        standing: &[usize],
        mut take: impl FnMut(NodeId, &mut NodeReport) -> bool,
    ) -> Result<(), Error> {
        let start = StdInstant::now();
        while expected > 0 {
            let mut trouble = None;
            for (node, heard) in self.processes.receive_reports(POLL_INTERVAL, self.cables.as_fd())? {
                match heard {
                    NodeNews::Report(NodeReport::Stuck { job, episode }) => {
                        trouble.get_or_insert_with(|| self.describe_stuck(job, episode));
                    }
                    NodeNews::Report(NodeReport::Failed { why }) => {
                        expected -= 1;
                        trouble = Some(why);
                    }
                    NodeNews::Report(mut report) => {
                        if take(node, &mut report) {
                            expected -= 1;
                        }
                    }
                    NodeNews::Ended(ended) => {
                        expected -= 1;
                        trouble = Some(format!("the process of {} {ended}", self.place(node)));
                    }
                }
            }
            if let Some(signal) = interrupt::caught() {
                trouble = Some(format!("ended by {signal}"));
            } else if start.elapsed() > timeout {
                trouble.get_or_insert_with(|| format!("{expected} nodes do not answer"));
            }
            let broken = if self.update_cables()? { self.broken(standing) } else { None };
            if trouble.is_some() || broken.is_some() && expected > 0 {
                self.stop()?;
                let broken = broken.map(Error::Cable);
                return Err(trouble.map(Error::Barrier).or(broken).expect("set because one of them is"));
            }
        }
        Ok(())
    }

    /// Stops the nodes. Each node answers once, even if it is idle.
    fn stop(&mut self) -> Result<(), Error> {
        let mut asked = self.processes.send_order(&NodeOrder::Stop, |_| true)?;
        let start = StdInstant::now();
        while asked > 0 && start.elapsed() < ORDER_TIMEOUT {
            for (_, heard) in self.processes.receive_reports(POLL_INTERVAL, self.cables.as_fd())? {
                asked -=
                    usize::from(matches!(heard, NodeNews::Report(NodeReport::Stopped) | NodeNews::Ended(_)));
            }
        }
        Ok(())
    }

    fn describe_stuck(&self, job: usize, episode: u16) -> String {
        let group = self.jobs[job].group.id().0;
        let suspects = || self.suspects(job).iter().map(ToString::to_string).collect::<Vec<String>>();
        let named = self.needed(&[job]).unwrap_or_else(|| shortened(&suspects()));
        let episode = episode.wrapping_sub(self.first);
        format!("barrier {episode} of group {group} does not end: {named}")
    }

    /// Sets the listener for events of cables and barriers.
    pub fn listen(&mut self, listener: impl FnMut(&str) + 'a) {
        self.listener = Some(Box::new(listener));
    }

    fn notify(&mut self, text: &str) {
        self.listener.iter_mut().for_each(|listener| listener(text));
    }

    /// Returns the links that the trees do not use, in the order of their failures.
    pub fn without(&self) -> &[u32] {
        &self.without
    }

    pub fn suspects(&self, job: usize) -> Vec<Suspect> {
        let (job, plan) = (&self.jobs[job], &self.plans[job]);
        let state = |switch| self.program.state(switch, job.group.id()).ok().flatten();
        suspects(self.network, &plan.tree, job.turn, state)
    }

    /// Recovers after a barrier was given up: excludes the links in `blamed` and the links whose cable is
    /// down, reroutes messages, repairs the trees and sets up all registers again. Roots stay if they can,
    /// and so do all parts of trees that were not cut off. Links whose cable is plugged in again are used
    /// again. Barriers count from 0 again. Fails if the exclusion of these links cuts members off; the error
    /// names them.
    pub fn set_up_again(&mut self, blamed: &[u32]) -> Result<Repaired, Error> {
        self.update_cables()?;
        if let Some(unreachable) = self.unreachable() {
            return Err(Error::Barrier(unreachable));
        }
        let known = self.blamed.len();
        let new: Vec<u32> = blamed.iter().copied().filter(|link| !self.blamed.contains(link)).collect();
        self.blamed.extend(new);
        let failed = self.failed();
        let plans = match trees(self.network, self.jobs, &failed) {
            Ok(plans) => plans,
            Err(error) => {
                self.blamed.truncate(known);
                return Err(Error::Barrier(error.to_string()));
            }
        };
        self.update_routes()?;
        let changed = plans.iter().zip(&self.plans).map(|(now, before)| changed(now, before)).sum();
        let moved = plans.iter().zip(&self.plans);
        let roots = moved.filter(|(now, before)| now.tree.root_switch != before.tree.root_switch).count();
        (self.plans, self.without) = (plans, failed);
        Ok(Repaired { registers: self.set_up()?, changed, roots })
    }

    /// Returns the program, to read its counters and to make it lose frames on purpose.
    pub fn program(&self) -> &SwitchProgram {
        &self.program
    }

    pub fn fabric(&mut self) -> &mut Fabric {
        &mut self.fabric
    }

    /// Returns the hook that calls the program at the switches' ports.
    pub fn hook(&self) -> &ProgramHook {
        &self.hook
    }

    pub fn is_complete(&self) -> bool {
        let mut members = self.jobs.iter().flat_map(|job| job.group.members());
        members.all(|member| self.processes.process(*member).is_some())
    }

    pub fn process(&self, node: NodeId) -> Option<Tid> {
        self.processes.process(node)
    }

    pub fn times(&self) -> Times {
        self.times
    }

    fn place(&self, node: NodeId) -> String {
        let End { switch, port } = self.network.nodes()[node.0 as usize];
        format!("node {} (port {} of switch {})", node.0, port.0, switch.0)
    }
}

fn trees(network: &SwitchNetwork, jobs: &[BarrierJob], without: &[u32]) -> Result<Vec<TreePlan>, PlanError> {
    jobs.iter().map(|job| around_links(network, &job.group, without)).collect()
}

/// Returns the number of switches whose register differs, or that gained or lost a register.
fn changed(now: &TreePlan, before: &TreePlan) -> usize {
    let (now, before) = (&now.tree.registers, &before.tree.registers);
    let differ = now.iter().filter(|(switch, register)| before.get(switch) != Some(register)).count();
    differ + before.keys().filter(|switch| !now.contains_key(switch)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_wait_for_those_of_their_own_group_alone() {
        let trace = |entered, left| vec![(Instant::from_nanos(entered), Instant::from_nanos(left))];
        let moments =
            BTreeMap::from([(NodeId(0), trace(0, 1)), (NodeId(1), trace(5, 9)), (NodeId(2), trace(8, 9))]);
        let groups = |groups: &[&[u32]]| {
            let group = |members: &&[u32]| members.iter().copied().map(NodeId).collect();
            BarriersRan {
                moments: moments.clone(),
                groups: groups.iter().map(group).collect(),
                ..BarriersRan::default()
            }
        };
        assert!(groups(&[&[0], &[1, 2]]).is_synchronized());
        assert!(!groups(&[&[1, 2], &[0, 1]]).is_synchronized(), "0 left before 1 had come");
    }
}
