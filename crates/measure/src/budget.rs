//! Whether a budget was kept: the median of the runs, or every run, against a limit.

use crate::quantile;
use crate::record::{Budget, RunLine};

/// What became of a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    /// The value that counts: the median, or the greatest where every run must keep to it.
    pub value: f64,
    /// The greatest run.
    pub worst: f64,
    /// Runs.
    pub n: usize,
    /// Whether the value is within the limit.
    pub reached: bool,
}

/// Compares the runs with the limit; `None` where none has the figure.
#[must_use]
pub fn judge(budget: &Budget, runs: &[&RunLine]) -> Option<Kept> {
    let values: Vec<f64> = runs
        .iter()
        .filter(|run| run.variant == budget.variant && run.has(&budget.only))
        .filter_map(|run| run.value(&budget.figure))
        .collect();
    let worst = values.iter().copied().reduce(f64::max)?;
    let value = if budget.every { worst } else { quantile::median(&values)? };
    Some(Kept { value, worst, n: values.len(), reached: value <= budget.most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figure;
    use std::collections::BTreeMap;

    #[test]
    fn the_median_or_every_run_must_keep_to_a_budget() {
        let run = |bytes: u32, value| RunLine {
            variant: "engine-fence".into(),
            parameters: BTreeMap::from([("bytes".to_owned(), bytes.into())]),
            figures: vec![Figure { name: "step_ns".into(), value, unit: "ns".into(), distribution: None }],
            ..RunLine::default()
        };
        let runs = [run(16, 100.0), run(16, 120.0), run(16, 900.0), run(64, 1.0)];
        let runs: Vec<&RunLine> = runs.iter().collect();
        let budget = |every, most| Budget {
            variant: "engine-fence".into(),
            figure: "step_ns".into(),
            only: BTreeMap::from([("bytes".to_owned(), 16.into())]),
            every,
            most,
            ..Budget::default()
        };
        let kept = judge(&budget(false, 120.0), &runs).expect("runs");
        assert_eq!(kept, Kept { value: 120.0, worst: 900.0, n: 3, reached: true });
        assert!(!judge(&budget(false, 119.0), &runs).expect("runs").reached);
        assert!(!judge(&budget(true, 120.0), &runs).expect("runs").reached, "one run of three is too slow");
        assert_eq!(judge(&Budget::default(), &runs), None);
    }
}
