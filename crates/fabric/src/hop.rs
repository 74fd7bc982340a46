//! For `unisono tree bench --hop`: measures the cost of one hop through a switch, with two lines of switches
//! of different length and a node at each end.
//!
//! The messages of a barrier between the two ends go up the line and down again. The cost of nodes, sockets
//! and scheduler is the same for both lengths and cancels out in the difference.

use crate::bench::{BenchVariant, compare};
use crate::deployment::Deployment;
use crate::error::Error;
use crate::job::BarrierJob;
use std::time::Duration;
use unisono_btin::{
    BarrierGroup, End, GroupId, NodeId, Port, ReductionOperator, SwitchId, SwitchLink, SwitchNetwork,
    TurnPoint,
};
use unisono_measure::interval::{Estimate, median_interval};

/// The lengths of the lines; they differ enough for the difference to exceed the scheduler's noise.
const SHORT: u32 = 2;
const LONG: u32 = 258;

/// Measures the time of a hop in microseconds, with its confidence interval over `repetitions` pairs of runs.
pub fn measure(repetitions: u32, length: Duration) -> Result<Option<Estimate>, Error> {
    let (short, long) = (line(SHORT), line(LONG));
    let (of_short, of_long) = (jobs(&short), jobs(&long));
    let mut near = Deployment::new(&short, &of_short)?;
    let mut far = Deployment::new(&long, &of_long)?;
    near.set_up()?;
    far.set_up()?;
    let hops = f64::from(2 * (LONG - SHORT));
    let variants = [BenchVariant::Switches(0, TurnPoint::AtSwitch)];
    let mut slopes = Vec::new();
    for _ in 0..repetitions {
        let mean = |deployment: &mut Deployment<'_>| -> Result<f64, Error> {
            let rows = compare(deployment, &variants, 1, length, |_| ())?;
            Ok(rows[0].runs[0])
        };
        let (short, long) = (mean(&mut near)?, mean(&mut far)?);
        slopes.push((long - short) / hops);
    }
    Ok(median_interval(&slopes, 0.95))
}

/// Makes switches in a line, with a node at each end.
fn line(switches: u32) -> SwitchNetwork {
    let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
    let links = (1..switches).map(|at| SwitchLink { a: end(at - 1, 1), b: end(at, 0) }).collect();
    let nodes = vec![end(0, 2), end(switches - 1, 2)];
    SwitchNetwork::new(vec![3; switches as usize], links, nodes).expect("each port is used once")
}

fn jobs(network: &SwitchNetwork) -> Vec<BarrierJob> {
    let group = BarrierGroup::new(network, GroupId(0), vec![NodeId(0), NodeId(1)]).expect("both are there");
    vec![BarrierJob { group, turn: TurnPoint::AtSwitch, operation: ReductionOperator::Or }]
}
