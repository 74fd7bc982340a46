//! The cost of a scheduling decision in each discipline, by the number of classes. One run measures all
//! disciplines, each as a part.

use super::{Context, Driver, DriverKind, MeasuredPart, NoResult, RunResult};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use unisono_measure::record::Figure;
use unisono_workload::decisions::{Decider, Pattern, measure};

pub(crate) const DECISIONS: DriverKind = DriverKind::new::<DecisionsDriver>("decisions");

#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DecisionsDriver {
    classes: u32,
    pattern: Pattern,
}

impl Default for DecisionsDriver {
    fn default() -> Self {
        Self { classes: 1000, pattern: Pattern::Saturated }
    }
}

impl Driver for DecisionsDriver {
    fn parts(&self) -> Option<Vec<String>> {
        Some(Decider::ALL.map(|decider| decider.name().to_owned()).into())
    }

    fn estimated_overhead(&self, seconds: f64) -> Duration {
        // for all disciplines together; measured: 1.03 to 1.09 s for 100,000 classes (AMD EPYC, n = 10)
        const NANOS_A_CLASS: f64 = 10_000.0;
        let filling = f64::from(self.classes) * NANOS_A_CLASS * 1e-9;
        Duration::from_secs_f64(seconds * (Decider::ALL.len() - 1) as f64 + filling)
    }

    fn run(&self, _: Context, seconds: f64, seed: u64) -> Result<RunResult, NoResult> {
        if !(1..=1_000_000).contains(&self.classes) {
            return Err(NoResult::Failed(format!("{} classes; write 1 to 1000000", self.classes)));
        }
        let took = measure(self.classes, self.pattern, Duration::from_secs_f64(seconds), seed);
        let of = |decider| took.iter().find(|took| took.decider == decider);
        let parts = took.iter().map(|one| {
            let mut figures = vec![Figure::new("ns_per_packet", one.ns_per_packet, "ns")];
            if let Some(heap) = of(Decider::Heap).filter(|_| one.decider != Decider::Heap) {
                figures.push(Figure::new("of_heap", one.ns_per_packet / heap.ns_per_packet, "1"));
            }
            if let Some(flat) = of(Decider::StartTime).filter(|_| one.decider == Decider::FourLevels) {
                figures.push(Figure::new("of_flat", one.ns_per_packet / flat.ns_per_packet, "1"));
            }
            MeasuredPart { name: one.decider.name().to_owned(), parameters: BTreeMap::new(), figures }
        });
        let mut result = RunResult { parts: parts.collect(), ..RunResult::default() };
        if let (Some(heap), Some(ours)) = (of(Decider::Heap), of(Decider::StartTime))
            && heap.order != ours.order
        {
            result.warnings.push("the order of departures differs from the textbook's".to_owned());
        }
        Ok(result)
    }
}
