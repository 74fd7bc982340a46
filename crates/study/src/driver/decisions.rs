//! What a decision of each discipline costs, by the number of classes: one run measures all of them, each a
//! place.

use super::figures::figure;
use super::{Context, Driver, NoOutcome, Outcome, Place};
use crate::settings::Settings;
use crate::workload::decisions::{Decider, Pattern, measure};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
pub struct DecisionsDriver;

impl Driver for DecisionsDriver {
    fn name(&self) -> &'static str {
        "decisions"
    }

    fn reads(&self) -> &'static [&'static str] {
        &["classes", "pattern"]
    }

    fn parts(&self, _: &Settings) -> Option<Vec<String>> {
        Some(Decider::ALL.map(|decider| decider.name().to_owned()).into())
    }

    fn around(&self, settings: &Settings, seconds: f64) -> Duration {
        const NANOS_A_CLASS: f64 = 3000.0;
        let filling = f64::from(settings.classes.unwrap_or(1000)) * NANOS_A_CLASS * 1e-9;
        Duration::from_secs_f64(seconds * (Decider::ALL.len() - 1) as f64 + filling)
    }

    fn run(&self, _: Context, settings: &Settings, seconds: f64, seed: u64) -> Result<Outcome, NoOutcome> {
        let classes = settings.classes.unwrap_or(1000);
        if !(1..=1_000_000).contains(&classes) {
            return Err(NoOutcome::Failed(format!("{classes} classes; write 1 to 1000000")));
        }
        let pattern = match settings.pattern.as_deref() {
            None | Some("saturated") => Pattern::Saturated,
            Some("random") => Pattern::Random,
            Some(other) => {
                return Err(NoOutcome::Failed(format!("pattern {other:?}; write saturated or random")));
            }
        };
        let took = measure(classes, pattern, Duration::from_secs_f64(seconds), seed);
        let of = |decider| took.iter().find(|took| took.decider == decider);
        let places = took.iter().map(|one| {
            let mut figures = vec![figure("ns_per_packet", one.ns_per_packet, "ns")];
            if let Some(heap) = of(Decider::Heap).filter(|_| one.decider != Decider::Heap) {
                figures.push(figure("of_heap", one.ns_per_packet / heap.ns_per_packet, "1"));
            }
            if let Some(flat) = of(Decider::StartTime).filter(|_| one.decider == Decider::FourLevels) {
                figures.push(figure("of_flat", one.ns_per_packet / flat.ns_per_packet, "1"));
            }
            Place { part: one.decider.name().to_owned(), parameters: BTreeMap::new(), figures }
        });
        let mut outcome = Outcome { places: places.collect(), ..Outcome::default() };
        if let (Some(heap), Some(ours)) = (of(Decider::Heap), of(Decider::StartTime))
            && heap.order != ours.order
        {
            outcome.warnings.push("the order of departures differs from the textbook's".to_owned());
        }
        Ok(outcome)
    }
}
