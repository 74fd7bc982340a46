//! A simulated link: computes the departures of a trace.
//!
//! Deterministic and exact. Arrivals at the instant of a choice come before the choice. An arrival exactly at
//! the end of the last packet begins a new busy period.

use crate::discipline::Discipline;
use crate::hierarchy::ClassId;
use crate::seconds::Seconds;
use crate::trace::{Arrival, Trace};
use serde_json::Value;

#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Departure {
    pub id: Value,
    pub class: ClassId,
    pub length: u32,
    pub arrival: Seconds,
    /// When its first bit leaves.
    pub start: Seconds,
    /// When its last bit has left.
    pub end: Seconds,
}

/// The delays of the packets of one class.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Delays {
    pub name: String,
    pub packets: usize,
    pub bytes: u64,
    /// Seconds from arrival to the last bit, on average.
    pub mean: f64,
    pub max_delay: f64,
}

impl Trace {
    /// Returns the delays of the packets of each leaf.
    pub fn delays(&self, departures: &[Departure]) -> Vec<Delays> {
        let mut of: Vec<(u64, Vec<f64>)> = vec![(0, vec![]); self.hierarchy.classes().count()];
        for departure in departures {
            let (bytes, delays) = &mut of[departure.class.index()];
            *bytes += u64::from(departure.length);
            delays.push(departure.end.to_f64() - departure.arrival.to_f64());
        }
        let leaves = self.hierarchy.classes().zip(of).filter(|((id, _), _)| self.hierarchy.is_leaf(*id));
        leaves
            .map(|((_, class), (bytes, delays))| Delays {
                name: class.name.clone(),
                packets: delays.len(),
                bytes,
                mean: delays.iter().sum::<f64>() / delays.len().max(1) as f64,
                max_delay: delays.iter().copied().fold(0.0, f64::max),
            })
            .collect()
    }

    /// Returns the departures under a discipline, in their order. Packets that the discipline drops are not
    /// among them.
    pub fn departures(&self, discipline: &mut dyn Discipline<usize>) -> Vec<Departure> {
        let places = self.arrivals.iter().map(|arrival| arrival.at.places()).max().unwrap_or(0);
        let per_second = u128::from(self.rate.bits_per_second()) * 10_u128.pow(places);
        let arrives = |arrival: &Arrival| arrival.at.scaled(places) * u128::from(self.rate.bits_per_second());
        let mut sent: Vec<&Arrival> = self.arrivals.iter().collect();
        sent.sort_by_key(|arrival| arrival.packet.item);
        let seconds = |ticks| Seconds { ticks, ticks_per_second: per_second };
        let instant = |ticks| seconds(ticks).instant();
        let mut departures = Vec::with_capacity(self.arrivals.len());
        let mut coming = self.arrivals.iter().peekable();
        let mut now = 0;
        loop {
            // first the arrivals during the last packet, then its end, then the arrivals at this instant
            let mut arrive = |until: &dyn Fn(u128) -> bool, discipline: &mut dyn Discipline<usize>| {
                while let Some(arrival) = coming.next_if(|arrival| until(arrives(arrival))) {
                    let time = instant(arrives(arrival));
                    discipline
                        .enqueue(time, arrival.class, arrival.packet.clone())
                        .expect("taken because the trace has been checked");
                }
            };
            arrive(&|time| time < now, discipline);
            discipline.finish(instant(now));
            arrive(&|time| time == now, discipline);
            if let Some((class, packet)) = discipline.dequeue(instant(now)) {
                let end = now + u128::from(packet.length) * 8 * 10_u128.pow(places);
                let arrival = sent[packet.item];
                departures.push(Departure {
                    id: arrival.id.clone(),
                    class,
                    length: packet.length,
                    arrival: seconds(arrives(arrival)),
                    start: seconds(now),
                    end: seconds(end),
                });
                now = end;
            } else if let Some(next) = coming.peek() {
                now = arrives(next);
            } else {
                return departures;
            }
        }
    }
}
