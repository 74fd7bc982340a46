//! A network that is up, with a helper at every host.

use super::helper::{self, HelperContext};
use crate::cables::Cables;
use crate::error::Error;
use crate::fabric::{Fabric, ProgramHook};
use crate::home_processors::HomeProcessors;
use crate::layout::GROUPS;
use crate::node_processes::{NodeNews, NodeProcesses};
use crate::program::SwitchProgram;
use crate::switches::{Switches, Times};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use unisono_btin::{NodeId, SwitchNetwork};
use unisono_linux::interrupt;
use unisono_linux::netlink::link::Carrier;

/// The number of registers of a switch, one for each group.
pub const MAX_REGISTERS: u16 = GROUPS as u16;
/// The interval between two checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum time that the helpers may take to begin.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A network that serves the processes of its hosts as long as this value lives.
pub struct ServedNetwork<'a> {
    processes: NodeProcesses, // dropped first, so that helpers end before the resources that they use
    cables: Cables,
    fabric: Fabric,
    hook: ProgramHook,
    program: SwitchProgram,
    network: &'a SwitchNetwork,
    times: Times,
}

impl<'a> ServedNetwork<'a> {
    /// Brings a network up, with a helper at every node. The helpers serve root and these users, and claim
    /// the first `registers` registers of each switch.
    pub fn new(network: &'a SwitchNetwork, users: &[u32], registers: u16) -> Result<Self, Error> {
        let homes = HomeProcessors::default(); // the ranks run where their launcher or the scheduler puts them
        let Switches { fabric, hook, program, cables, mut times } = Switches::bring_up(network, &homes)?;
        let start = Instant::now();
        let context = HelperContext { network, program: &program, registers, users };
        let nodes: Vec<NodeId> = (0..).map(NodeId).take(network.nodes().len()).collect();
        let processes = NodeProcesses::start(&nodes, &fabric, &homes, |node, orders| {
            helper::serve(node, context, orders)
        })?;
        let mut served = Self { processes, cables, fabric, hook, program, network, times };
        let mut missing = nodes.len();
        while missing > 0 {
            missing -= served.news()?;
            if missing > 0 && start.elapsed() > READY_TIMEOUT {
                return Err(Error::Barrier(format!("{missing} helpers do not begin")));
            }
        }
        times.nodes = start.elapsed();
        served.times = times;
        Ok(served)
    }

    /// Serves until the time is over or a signal arrives. Messages between hosts go around cables that are
    /// pulled; `tell` is called with each change of a cable. Fails if a helper ends.
    pub fn serve(&mut self, time: Duration, mut tell: impl FnMut(&str)) -> Result<(), Error> {
        let start = Instant::now();
        while start.elapsed() < time && interrupt::caught().is_none() {
            self.news()?;
            let changes = self.cables.poll_changes(&mut self.fabric)?;
            for (cable, carrier) in &changes {
                let how = if *carrier == Carrier::Present { "is up again" } else { "is down" };
                tell(&format!("{} {how}", cable.name(self.network)));
            }
            if !changes.is_empty() {
                let down: Vec<u32> = self.cables.links_down().collect();
                self.program.update_routes(&self.network.without_links(&down))?;
            }
        }
        Ok(())
    }

    /// Waits for news for a moment. Returns the number of helpers that have begun.
    fn news(&mut self) -> Result<usize, Error> {
        let news = self.processes.receive_reports(POLL_INTERVAL, self.cables.as_fd())?;
        for (node, heard) in &news {
            if let NodeNews::Ended(ended) = heard {
                return Err(Error::Barrier(format!("the helper of node {} {ended}", node.0)));
            }
        }
        Ok(news.len())
    }

    /// Returns the program, to read registers and counters and to make it lose frames on purpose.
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

    pub fn times(&self) -> Times {
        self.times
    }
}
