//! Explains why figures are doubtful, in words that name the remedy.
//!
//! The idea: four kinds of noise spoil a measurement, and each has its own remedy. *Foreign load*: just
//! before a run, another program used the processors. Load that was steady before the study is no noise
//! ([`crate::background`]). *Steal*: during the runs, the hypervisor gave the processors to another guest;
//! the kernel counts steal in ticks of 10 ms, so it is summed over runs. *Scatter*: the repetitions differ
//! much. *Drift*: the machine gets slower or faster while the study runs. Two modes are not scatter:
//! [`crate::modes`] reports them.
//!
//! Cost: drift uses Kendall's rank correlation, quadratic in the number of runs.
//!
//! Reference: M. G. Kendall, *A New Measure of Rank Correlation*, 1938.

use crate::background::LoadPattern;
use crate::record::RunLine;
use crate::{modes, quantile};
use std::collections::BTreeMap;

/// A run with at least this foreign load (share of all processors) is doubtful.
pub const FOREIGN_LOAD_LIMIT: f64 = 0.10;
/// Runs with at least this steal together (share of all processors) are doubtful.
pub const STEAL_LIMIT: f64 = 0.02;
/// Repetitions with at least this scatter (coefficient of variation) are doubtful.
pub const VARIATION_LIMIT: f64 = 0.15;
/// The least number of runs in which drift can be told from chance.
pub const MIN_DRIFT_RUNS: usize = 6;

/// Returns the standard deviation over the mean; `None` for fewer than two finite values or a mean of zero.
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let values = quantile::sorted(values);
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 || mean == 0.0 {
        return None;
    }
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(variance.sqrt() / mean.abs())
}

/// Computes Kendall's rank correlation between the values and their order: 1 if they only rise, -1 if they
/// only fall; `None` for fewer than two values.
pub fn rank_correlation(in_order: &[f64]) -> Option<f64> {
    let n = in_order.len();
    if n < 2 {
        return None;
    }
    let mut balance = 0i64;
    for (i, earlier) in in_order.iter().enumerate() {
        for later in &in_order[i + 1..] {
            balance += match later.total_cmp(earlier) {
                std::cmp::Ordering::Greater if later > earlier => 1,
                std::cmp::Ordering::Less if later < earlier => -1,
                _ => 0,
            };
        }
    }
    Some(balance as f64 / (n * (n - 1) / 2) as f64)
}

/// Detects drift in values given in the order of measurement: a rank correlation that chance gives less than
/// once in a hundred (normal approximation), and a change of at least five per cent from the first third to
/// the last. Returns the median of the last third over the median of the first.
pub fn drift(in_order: &[f64]) -> Option<f64> {
    let n = in_order.len();
    if n < MIN_DRIFT_RUNS {
        return None;
    }
    let deviation = (2.0 * (2 * n + 5) as f64 / (9 * n * (n - 1)) as f64).sqrt();
    if rank_correlation(in_order)?.abs() < 2.576 * deviation {
        return None;
    }
    let third = n / 3;
    let change = quantile::median(&in_order[n - third..])? / quantile::median(&in_order[..third])?;
    (change.is_finite() && (change - 1.0).abs() >= 0.05).then_some(change)
}

/// Returns warnings about one run, for its record.
pub fn run_warnings(foreign_load: Option<f64>, steal: Option<f64>) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(load) = foreign_load.filter(|l| *l >= FOREIGN_LOAD_LIMIT) {
        warnings.push(format!(
            "other programs used {} of the processors just before this run; stop them and measure again",
            percent(load)
        ));
    }
    if let Some(steal) = steal.filter(|s| *s >= STEAL_LIMIT) {
        warnings.push(format!(
            "the hypervisor took {} of the processors during this run; measure again at a quieter hour or on a dedicated host",
            percent(steal)
        ));
    }
    warnings
}

/// Returns warnings about all runs of a study, for one figure: the number of disturbed runs, and the variants
/// that scatter or drift. `place` returns a run's variant and circumstances in words.
pub fn study_warnings(runs: &[&RunLine], figure: &str, place: &dyn Fn(&RunLine) -> String) -> Vec<String> {
    let mut warnings = Vec::new();
    let measured: Vec<&&RunLine> = runs.iter().filter(|r| r.value(figure).is_some()).collect();
    let of_all = if measured.len() == 1 { "1 run".into() } else { format!("{} runs", measured.len()) };
    let disturbed = measured.iter().filter(|run| has_foreign_load(run)).count();
    if disturbed > 0 {
        warnings.push(format!(
            "in {disturbed} of {of_all} other programs used at least {} of the processors; stop them and measure again",
            percent(FOREIGN_LOAD_LIMIT)
        ));
    }
    if let Some(stolen) = steal_of_all(&measured).filter(|stolen| *stolen >= STEAL_LIMIT) {
        warnings.push(format!(
            "the hypervisor took {} of the processors during {of_all} together; measure again at a quieter hour or on a dedicated host",
            percent(stolen)
        ));
    }
    let mut groups: BTreeMap<(&str, String), Vec<&RunLine>> = BTreeMap::new();
    for run in measured {
        groups.entry((&run.variant, format!("{:?}", run.parameters))).or_default().push(run);
    }
    let (mut scattered, mut rows) = (Vec::new(), 0);
    for mut group in groups.into_values() {
        group.sort_by_key(|run| run.sequence);
        let values: Vec<f64> = group.iter().filter_map(|run| run.value(figure)).collect();
        let Some(first) = group.first().filter(|_| modes::two_modes(&values).is_none()) else { continue };
        rows += 1;
        if let Some(change) = drift(&values) {
            warnings.push(drift_warning(&place(first), change));
        } else if let Some(scatter) =
            coefficient_of_variation(&values).filter(|c| *c >= VARIATION_LIMIT && values.len() >= 3)
        {
            scattered.push(ScatteredRow { place: place(first), runs: values.len(), scatter });
        }
    }
    warnings.extend(scatter_warning(&scattered, rows));
    warnings
}

/// Returns whether other programs used the processors just before the run, and not steadily.
pub fn has_foreign_load(run: &RunLine) -> bool {
    let is_steady = run.host.background.is_some_and(|load| load.pattern == LoadPattern::Steady);
    !is_steady && run.host.foreign_load.is_some_and(|load| load >= FOREIGN_LOAD_LIMIT)
}

/// Returns the share of all processors that the hypervisor took during these runs together.
fn steal_of_all(runs: &[&&RunLine]) -> Option<f64> {
    let with_steal = runs.iter().filter_map(|run| Some((run.host.steal?, run.elapsed_s)));
    let (stolen, elapsed) = with_steal
        .fold((0.0, 0.0), |(stolen, all), (share, elapsed)| (stolen + share * elapsed, all + elapsed));
    (elapsed > 0.0).then(|| stolen / elapsed)
}

/// The number of repetitions of the longest profile.
const MANY_RUNS: usize = 10;

fn drift_warning(place: &str, change: f64) -> String {
    let direction = if change > 1.0 { "rose" } else { "fell" };
    format!(
        "{place}: the figure {direction} by {} while the study ran; let the machine settle and measure again",
        percent((change - 1.0).abs())
    )
}

/// Repetitions of one variant with the same parameters that differ much.
struct ScatteredRow {
    place: String,
    runs: usize,
    /// Coefficient of variation.
    scatter: f64,
}

/// Writes one sentence about all rows that scatter, with the remedy.
fn scatter_warning(scattered: &[ScatteredRow], rows: usize) -> Option<String> {
    let worst = scattered.iter().max_by(|a, b| a.scatter.total_cmp(&b.scatter))?;
    let remedy = if worst.runs < MANY_RUNS {
        "use --paper for more and longer runs"
    } else {
        "a quieter machine would tell more"
    };
    let (place, most) = (&worst.place, percent(worst.scatter));
    Some(if scattered.len() == 1 {
        format!("{place}: {} runs scatter by {most} (coefficient of variation); {remedy}", worst.runs)
    } else {
        format!(
            "{} of {rows} rows scatter by {} or more (coefficient of variation), the most {place}, by {most}; {remedy}",
            scattered.len(),
            percent(VARIATION_LIMIT)
        )
    })
}

fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value < 9.95 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Figure, HostFacts};
    use proptest::prelude::*;

    #[test]
    fn a_rising_sequence_drifts_and_a_shuffled_one_does_not() {
        let rising: Vec<f64> = (0..9).map(|i| 100.0 + 3.0 * f64::from(i)).collect();
        let change = drift(&rising).expect("it rises by a fifth");
        assert!((change - 121.0 / 103.0).abs() < 1e-9, "{change}");
        assert_eq!(
            drift(
                &[106.0, 100.0, 112.0, 103.0, 124.0, 109.0, 121.0, 118.0, 115.0].map(|v| (v * 7919.0) % 31.0)
            ),
            None
        );
        assert_eq!(drift(&[1.0, 2.0, 3.0]), None, "three runs may rise by chance");
        assert_eq!(
            drift(&[100.0, 100.1, 100.2, 100.3, 100.4, 100.5, 100.6]),
            None,
            "half a per cent does not matter"
        );
    }

    proptest! {
        #[test]
        fn the_rank_correlation_turns_with_the_sequence(mut values in prop::collection::vec(-100.0f64..100.0, 2..30)) {
            let forward = rank_correlation(&values).expect("two or more");
            values.reverse();
            let backward = rank_correlation(&values).expect("two or more");
            prop_assert!((forward + backward).abs() < 1e-12 && (-1.0..=1.0).contains(&forward));
        }
    }

    #[test]
    fn chance_alone_is_seldom_called_drift() {
        use rand::{Rng, SeedableRng};
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        let called = (0..2_000).filter(|_| {
            drift(&std::array::from_fn::<f64, 12, _>(|_| 1.0 + random.random::<f64>())).is_some()
        });
        assert!(called.count() < 40, "more than twice in a hundred");
    }

    fn run(sequence: u32, value: f64, foreign_load: f64) -> RunLine {
        RunLine {
            variant: "gang".into(),
            sequence,
            figures: vec![Figure::new("x", value, "1")],
            host: HostFacts { foreign_load: Some(foreign_load), ..HostFacts::default() },
            ..RunLine::default()
        }
    }

    #[test]
    fn warnings_name_the_disturbance_and_the_remedy() {
        let runs = [run(0, 1.0, 0.0), run(1, 1.2, 0.3), run(2, 0.8, 0.0)];
        let place = |run: &RunLine| format!("the {} of two", run.variant);
        let warnings = study_warnings(&runs.iter().collect::<Vec<_>>(), "x", &place);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings[0].contains("in 1 of 3 runs") && warnings[0].contains("stop them"),
            "{warnings:?}"
        );
        assert!(
            warnings[1].contains("the gang of two: 3 runs scatter by 20 %")
                && warnings[1].contains("--paper"),
            "{warnings:?}"
        );
        assert_eq!(
            study_warnings(&[&run(0, 1.0, 0.0), &run(1, 1.0, 0.0)], "x", &place),
            Vec::<String>::new()
        );
    }

    #[test]
    fn one_tick_in_a_short_run_is_no_warning_and_steady_load_neither() {
        let with = |elapsed_s, steal, pattern| {
            let background = Some(crate::background::BackgroundLoad { pattern, share: 0.5, steal: 0.0 });
            let host =
                HostFacts { steal: Some(steal), foreign_load: Some(0.5), background, ..HostFacts::default() };
            RunLine { elapsed_s, host, ..run(0, 1.0, 0.0) }
        };
        let warnings =
            |runs: [RunLine; 2]| study_warnings(&[&runs[0], &runs[1]], "x", &|_| "a row".to_owned());
        let steady = LoadPattern::Steady;
        assert_eq!(warnings([with(0.01, 0.5, steady), with(2.0, 0.0, steady)]), Vec::<String>::new());
        let stolen = warnings([with(1.0, 0.1, steady), with(1.0, 0.0, steady)]);
        assert!(stolen.len() == 1 && stolen[0].starts_with("the hypervisor took 5.0 % of"), "{stolen:?}");
        let unsteady = warnings([with(1.0, 0.0, LoadPattern::Unsteady), with(1.0, 0.0, steady)]);
        assert!(
            unsteady.len() == 1 && unsteady[0].starts_with("in 1 of 2 runs other programs"),
            "{unsteady:?}"
        );
    }

    #[test]
    fn a_quiet_run_has_no_warning() {
        assert_eq!(run_warnings(Some(0.01), Some(0.0)), Vec::<String>::new());
        assert_eq!(run_warnings(Some(0.5), Some(0.1)).len(), 2);
        assert_eq!(run_warnings(None, None), Vec::<String>::new());
    }
}
