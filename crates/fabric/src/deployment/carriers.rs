//! A deployment's reaction to pulled cables: it notifies the listener, reroutes messages at once, and reports
//! the barriers that cannot end without the cables.

use super::{Deployment, trees};
use crate::cables::DeployedCable;
use crate::error::Error;
use unisono_btin::NodeId;
use unisono_linux::netlink::link::Carrier;

impl Deployment<'_> {
    /// Reads the changes of cables, notifies the listener, and reroutes messages. Returns whether any cable
    /// has changed.
    pub(super) fn update_cables(&mut self) -> Result<bool, Error> {
        let news = self.cables.poll_changes(&mut self.fabric)?;
        for (cable, carrier) in &news {
            let how = if *carrier == Carrier::Present { "is up again" } else { "is down" };
            let text = format!("{} {how}", cable.name(self.network));
            self.notify(&text);
        }
        self.update_routes()?;
        Ok(!news.is_empty())
    }

    /// Routes messages between nodes around failed links.
    pub(super) fn update_routes(&mut self) -> Result<(), Error> {
        let failed = self.failed();
        if failed != self.avoided {
            self.program.update_routes(&self.network.without_links(&failed))?;
            self.avoided = failed;
        }
        Ok(())
    }

    /// Returns the unusable links, in the order of their failures.
    pub(super) fn failed(&self) -> Vec<u32> {
        let now: Vec<u32> = self.blamed.iter().copied().chain(self.cables.links_down()).collect();
        let mut failed = self.without.clone();
        failed.retain(|link| now.contains(link));
        for link in now {
            if !failed.contains(&link) {
                failed.push(link);
            }
        }
        failed
    }

    /// Describes the cables that are down and that the barriers of these jobs need. Returns `None` if there
    /// are none, or if there is no way around them.
    pub(super) fn broken(&self, jobs: &[usize]) -> Option<String> {
        let broken = self.needed(jobs)?;
        (self.unreachable().is_none() && trees(self.network, self.jobs, &self.failed()).is_ok())
            .then_some(broken)
    }

    /// Describes the cables that are down and that these jobs need, or returns `None` if there are none.
    pub(super) fn needed(&self, jobs: &[usize]) -> Option<String> {
        let needs = |cable: &DeployedCable, job: usize| {
            cable.serves(self.network, &self.jobs[job].group, &self.plans[job])
        };
        let needed = self.cables.down().iter().filter(|cable| jobs.iter().any(|job| needs(cable, *job)));
        let named: Vec<String> =
            needed.map(|cable| format!("{} is down", cable.name(self.network))).collect();
        (!named.is_empty()).then(|| shortened(&named))
    }

    pub(super) fn unreachable(&self) -> Option<String> {
        let is_member = |node: NodeId| self.jobs.iter().any(|job| job.group.contains(node));
        let down = self.cables.down().iter();
        let mut members = down.filter(|cable| matches!(cable, DeployedCable::Node(node) if is_member(*node)));
        members.next().map(|cable| format!("{} is down, and there is no other", cable.name(self.network)))
    }
}

/// Lists the names. If there are more than five, lists the first five and the number of the others.
pub(super) fn shortened(named: &[String]) -> String {
    match named.len() {
        0 => "all registers have moved on; a member is slow".to_owned(),
        more @ 6.. => format!("{}; and {} more", named[..5].join("; "), more - 5),
        _ => named.join("; "),
    }
}
