//! Computes distances by the simplest algorithm, for code that checks the results of the planner and of the
//! routing. It shares no code with their searches. Cost: the number of links times the greatest distance.

use crate::SwitchNetwork;

/// Lowers `distance`, the number of links to each switch, until no link gives a shorter way to a switch.
pub(crate) fn relax(network: &SwitchNetwork, distance: &mut [u32]) {
    loop {
        let mut changed = false;
        for link in network.links() {
            let (a, b) = (link.a.switch.0 as usize, link.b.switch.0 as usize);
            for (near, far) in [(a, b), (b, a)] {
                let through = distance[near].saturating_add(1);
                if through < distance[far] {
                    distance[far] = through;
                    changed = true;
                }
            }
        }
        if !changed {
            return;
        }
    }
}
