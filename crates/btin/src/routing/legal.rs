//! Whether a route is legal, judged from the outside.
//!
//! Knows nothing of how routes or directions are found: it computes its own distances from the root, by
//! relaxing all links until nothing changes, and reads the rule off the definition.

use super::RoutingChannel;
use crate::relax::relax;
use crate::{Network, SwitchId};
use unisono_linux::counted::counted;

/// Why a route is not legal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Illegal {
    /// It names a link that is not there.
    #[error("step {step} takes link {link}, but the network has {} (from 0)", counted(links, "link"))]
    NoSuchLink {
        /// Which step, from 0.
        step: usize,
        link: u32,
        /// How many there are.
        links: usize,
    },
    /// A step does not begin where the one before ended.
    #[error("step {step} begins at switch {begins}, but the message is at switch {is}")]
    Broken {
        /// Which step, from 0.
        step: usize,
        /// Where it begins.
        begins: u32,
        /// Where the message is.
        is: u32,
    },
    /// It does not arrive.
    #[error("the route ends at switch {ends}, not at switch {to}")]
    Elsewhere {
        /// Where it ends.
        ends: u32,
        /// Where it should.
        to: u32,
    },
    /// Up after down.
    #[error("step {step} goes up from switch {from} to switch {to} after the route went down")]
    UpAfterDown {
        /// Which step, from 0.
        step: usize,
        from: u32,
        to: u32,
    },
}

/// Judges routes by the directions that a root gives to links.
#[derive(Clone, Debug)]
pub struct RouteJudge<'a> {
    network: &'a Network,
    distance: Vec<u32>,
}

impl<'a> RouteJudge<'a> {
    /// A judge for the directions from a root.
    #[must_use]
    pub fn new(network: &'a Network, root: SwitchId) -> Self {
        let mut distance = vec![u32::MAX; network.switch_count()];
        distance[root.0 as usize] = 0;
        relax(network, &mut distance);
        // what the root cannot reach is measured from its lowest switch
        while let Some(lost) = distance.iter().position(|distance| *distance == u32::MAX) {
            distance[lost] = 0;
            relax(network, &mut distance);
        }
        Self { network, distance }
    }

    /// Whether a route leads from one switch to another, up first and then down.
    ///
    /// # Errors
    /// The first step that is wrong.
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
