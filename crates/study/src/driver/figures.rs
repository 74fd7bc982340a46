//! Measurements of programs as figures of records.

use crate::workload::Measurement;
use unisono_measure::record::{Distribution, Figure};

/// A figure without a distribution.
pub(super) fn figure(name: impl Into<String>, value: f64, unit: &str) -> Figure {
    Figure { name: name.into(), value, unit: unit.to_owned(), distribution: None }
}

/// The figures of one program; `prefix` is empty or for example `app1_`.
pub(super) fn of_program(prefix: &str, m: &Measurement) -> Vec<Figure> {
    let d = &m.ns_per_barrier;
    let name = |name: &str| format!("{prefix}{name}");
    let mut figures = vec![
        figure(name("barriers_per_s"), m.barriers_per_s, "1/s"),
        figure(name("blocks_per_s"), m.blocks_per_s, "1/s"),
        figure(name("cpu_share"), m.cpu_share(), "1"),
    ];
    if d.n > 0 {
        let distribution = Distribution {
            n: d.n,
            min: d.min,
            p25: d.p25,
            median: d.median,
            p75: d.p75,
            p99: d.p99,
            max: d.max,
        };
        figures.push(Figure {
            name: name("ns_per_barrier"),
            value: d.median,
            unit: "ns".into(),
            distribution: Some(distribution),
        });
        figures.push(figure(name("mean_ns_per_barrier"), d.mean, "ns"));
        figures.push(figure(name("longest_barrier_us"), d.max / 1e3, "us"));
    }
    if m.iterations_per_s > 0.0 {
        figures.push(figure(name("iterations_per_s"), m.iterations_per_s, "1/s"));
    }
    figures
}
