//! The ways of unicast and multicast messages between a root and everybody else.
//!
//! Up\*/down\* routing turns every link into an up and a down direction, by a breadth-first spanning tree; a
//! legal way goes up first, if at all, and then down. Read backwards a legal way is a legal way, so one
//! search from the root gives both directions, and because it is a search over (switch, has gone down), the
//! ways out of the root branch but never meet again: what a multicast needs.

use super::Routes;
use super::wiring::{CableDirection, Wiring};
use crate::{Network, SwitchId};
use std::collections::VecDeque;

/// The ways from one switch to all others.
pub(super) struct SwitchRoutes {
    first: Vec<u32>,
    out: Vec<CableDirection>,
    back: Vec<CableDirection>,
    reached: Vec<bool>,
}

const NOWHERE: u32 = u32::MAX;

impl SwitchRoutes {
    /// The shortest ways from a switch; between equals those by the lowest port first.
    pub(super) fn new(network: &Network, wiring: &Wiring, root: SwitchId, routes: Routes) -> Self {
        let rank = match routes {
            Routes::UpDown => up_ranks(network),
            Routes::Shortest => Vec::new(),
        };
        // state 2 s: at s and may go up; 2 s + 1: has gone down
        let mut before: Vec<(u32, CableDirection, CableDirection)> =
            vec![(NOWHERE, CableDirection(0), CableDirection(0)); 2 * network.switch_count()];
        let mut best = vec![NOWHERE; network.switch_count()];
        let start = 2 * root.0;
        let mut queue = VecDeque::from([start]);
        best[root.0 as usize] = start;
        while let Some(state) = queue.pop_front() {
            let (here, has_gone_down) = (SwitchId(state / 2), state % 2 == 1);
            for next in network.neighbours(here) {
                let goes_up = match routes {
                    Routes::UpDown => rank[next.switch.0 as usize] < rank[here.0 as usize],
                    Routes::Shortest => true,
                };
                if (goes_up && has_gone_down) || next.switch == here {
                    continue;
                }
                let there = 2 * next.switch.0 + u32::from(!goes_up);
                if there == start || before[there as usize].0 != NOWHERE {
                    continue;
                }
                let out = wiring.out_of(here, next.port);
                let back = wiring.out_of(next.switch, next.far);
                before[there as usize] = (state, out, back);
                let best = &mut best[next.switch.0 as usize];
                *best = if *best == NOWHERE { there } else { *best };
                queue.push_back(there);
            }
        }
        let mut ways = Self {
            first: vec![0],
            out: Vec::new(),
            back: Vec::new(),
            reached: best.iter().map(|state| *state != NOWHERE).collect(),
        };
        for state in best {
            ways.add(state, start, &before);
        }
        ways
    }

    fn add(&mut self, mut state: u32, start: u32, before: &[(u32, CableDirection, CableDirection)]) {
        let from = self.out.len();
        while state != NOWHERE && state != start {
            let (earlier, out, back) = before[state as usize];
            self.out.push(out);
            self.back.push(back);
            state = earlier;
        }
        self.out[from..].reverse();
        self.first.push(u32::try_from(self.out.len()).expect("fits because ways are short"));
    }

    fn at(&self, switch: SwitchId) -> std::ops::Range<usize> {
        let at = switch.0 as usize;
        self.first[at] as usize..self.first[at + 1] as usize
    }

    /// The channels from the root to a switch.
    pub(super) fn out(&self, switch: SwitchId) -> &[CableDirection] {
        &self.out[self.at(switch)]
    }

    /// The channels from a switch to the root.
    pub(super) fn back(&self, switch: SwitchId) -> &[CableDirection] {
        &self.back[self.at(switch)]
    }

    /// Whether there is a way.
    pub(super) fn reaches(&self, switch: SwitchId) -> bool {
        self.reached[switch.0 as usize]
    }
}

/// A rank for every switch, lower is up: its depth in the breadth-first spanning tree of its part of the
/// network around the lowest id, then its id.
fn up_ranks(network: &Network) -> Vec<(u32, u32)> {
    let mut ranks = vec![(NOWHERE, 0); network.switch_count()];
    let mut queue = VecDeque::new();
    for root in network.switches() {
        if ranks[root.0 as usize].0 != NOWHERE {
            continue;
        }
        ranks[root.0 as usize] = (0, root.0);
        queue.push_back(root);
        while let Some(here) = queue.pop_front() {
            let depth = ranks[here.0 as usize].0 + 1;
            for next in network.neighbours(here) {
                let rank = &mut ranks[next.switch.0 as usize];
                if rank.0 == NOWHERE {
                    *rank = (depth, next.switch.0);
                    queue.push_back(next.switch);
                }
            }
        }
    }
    ranks
}
