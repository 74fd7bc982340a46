//! Judges whether a route is legal, without any code of the routing itself.
//!
//! The judge does not use the code that finds routes or directions. It computes its own distances from the
//! root, by relaxing all links until no distance changes, and applies the definition of a legal route.

use super::RoutingChannel;
use crate::relax::relax;
use crate::{SwitchId, SwitchNetwork};
use unisono_text::counted;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Illegal {
    #[error("step {step} takes link {link}, but the network has {} (counted from 0)", counted(links, "link"))]
    NoSuchLink { step: usize, link: u32, links: usize },
    #[error("step {step} begins at switch {begins}, but the message is at switch {is}")]
    Broken { step: usize, begins: u32, is: u32 },
    #[error("the route ends at switch {ends}, not at switch {to}")]
    Elsewhere { ends: u32, to: u32 },
    #[error("step {step} goes up from switch {from} to switch {to} after the route went down")]
    UpAfterDown { step: usize, from: u32, to: u32 },
}

/// Judges routes by the directions that a root gives to links.
#[derive(Clone, Debug)]
pub struct RouteJudge<'a> {
    network: &'a SwitchNetwork,
    distance: Vec<u32>,
}

impl<'a> RouteJudge<'a> {
    /// Makes a judge for the directions that `root` gives to links.
    pub fn new(network: &'a SwitchNetwork, root: SwitchId) -> Self {
        let mut distance = vec![u32::MAX; network.switch_count()];
        distance[root.0 as usize] = 0;
        relax(network, &mut distance);
        // each component that the root cannot reach gets its lowest switch as a root of its own
        while let Some(lost) = distance.iter().position(|distance| *distance == u32::MAX) {
            distance[lost] = 0;
            relax(network, &mut distance);
        }
        Self { network, distance }
    }

    /// Checks that a route leads from one switch to another, up first and then down.
    pub fn check(&self, from: SwitchId, to: SwitchId, route: &[RoutingChannel]) -> Result<(), Illegal> {
        let mut here = from;
        let mut went_down = false;
        for (step, channel) in route.iter().enumerate() {
            let links = self.network.links().len();
            if channel.link as usize >= links {
                return Err(Illegal::NoSuchLink { step, link: channel.link, links });
            }
            let (begins, ends) = channel.ends(self.network);
            if begins != here {
                return Err(Illegal::Broken { step, begins: begins.0, is: here.0 });
            }
            let near = |switch: SwitchId| (self.distance[switch.0 as usize], switch.0);
            let up = near(ends) < near(begins);
            if up && went_down {
                return Err(Illegal::UpAfterDown { step, from: begins.0, to: ends.0 });
            }
            went_down = !up;
            here = ends;
        }
        if here == to { Ok(()) } else { Err(Illegal::Elsewhere { ends: here.0, to: to.0 }) }
    }
}
