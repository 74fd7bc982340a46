//! Converts measurements of programs into figures of records.

use unisono_measure::record::Figure;
use unisono_workload::Measurement;

/// Returns the figures of one program. `prefix` is empty, or for example `app1_`.
pub(super) fn program_figures(prefix: &str, m: &Measurement) -> Vec<Figure> {
    let d = &m.ns_per_barrier;
    let name = |name: &str| format!("{prefix}{name}");
    let mut figures = vec![
        Figure::new(name("barriers_per_s"), m.barriers_per_s, "1/s"),
        Figure::new(name("blocks_per_s"), m.blocks_per_s, "1/s"),
        Figure::new(name("cpu_share"), m.cpu_share(), "1"),
    ];
    if d.n > 0 {
        figures.push(Figure::from_distribution(name("ns_per_barrier"), "ns", d.distribution()));
        figures.push(Figure::new(name("mean_ns_per_barrier"), d.mean, "ns"));
        figures.push(Figure::new(name("longest_barrier_us"), d.max / 1e3, "us"));
    }
    if m.iterations_per_s > 0.0 {
        figures.push(Figure::new(name("iterations_per_s"), m.iterations_per_s, "1/s"));
    }
    figures
}
