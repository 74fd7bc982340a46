//! Judges whether the runs of a variant kept a budget. The median of the runs, or every single run, is
//! compared with the budget's upper or lower limit.

use crate::quantile;
use crate::record::{Budget, RunLine};
use crate::verdict::pairs;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetResult {
    /// The value compared with the limit: the median, or the worst run if every run must keep the budget.
    pub value: f64,
    /// The worst run: the greatest value for an upper limit, the least value for a lower limit.
    pub worst: f64,
    pub n: usize,
    /// Whether the value is within the limit.
    pub reached: bool,
}

/// Compares the runs with the limit; `None` if no run has the figure.
pub fn judge(budget: &Budget, runs: &[&RunLine]) -> Option<BudgetResult> {
    let runs: Vec<&RunLine> = runs.iter().copied().filter(|run| run.has_parameters(&budget.only)).collect();
    let beside = |other: &String, compare: fn((f64, f64)) -> f64| -> Vec<f64> {
        pairs(&budget.variant, other, |run| run.value(&budget.figure), &runs)
            .into_iter()
            .map(compare)
            .collect()
    };
    let values: Vec<f64> = match (&budget.divisor, &budget.subtrahend) {
        (Some(other), _) => beside(other, |(own, other)| own / other),
        (None, Some(other)) => beside(other, |(own, other)| own - other),
        (None, None) => {
            let own = runs.iter().filter(|run| run.variant == budget.variant);
            own.filter_map(|run| run.value(&budget.figure)).collect()
        }
    };
    let worse = if budget.least.is_some() { f64::min } else { f64::max };
    let worst = values.iter().copied().reduce(worse)?;
    let value = if budget.every { worst } else { quantile::median(&values)? };
    let reached =
        budget.most.is_none_or(|most| value <= most) && budget.least.is_none_or(|least| value >= least);
    Some(BudgetResult { value, worst, n: values.len(), reached })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figure;
    use std::collections::BTreeMap;

    #[test]
    fn a_budget_may_be_about_another_variant_of_the_same_repetition() {
        let run = |variant: &str, repetition, value| RunLine {
            variant: variant.into(),
            repetition,
            figures: vec![Figure::new("mbit", value, "Mbit/s")],
            ..RunLine::default()
        };
        let runs =
            [run("a", 0, 9.0), run("b", 0, 10.0), run("b", 1, 20.0), run("a", 1, 22.0), run("c", 1, 1.0)];
        let runs: Vec<&RunLine> = runs.iter().collect();
        let budget = Budget { variant: "a".into(), figure: "mbit".into(), ..Budget::default() };
        let quotient = Budget { divisor: Some("b".into()), least: Some(0.9), every: true, ..budget.clone() };
        assert_eq!(
            judge(&quotient, &runs),
            Some(BudgetResult { value: 0.9, worst: 0.9, n: 2, reached: true })
        );
        let difference = Budget { subtrahend: Some("b".into()), most: Some(1.0), ..budget.clone() };
        assert_eq!(
            judge(&difference, &runs),
            Some(BudgetResult { value: 0.5, worst: 2.0, n: 2, reached: true })
        );
        assert_eq!(judge(&Budget { divisor: Some("d".into()), ..budget }, &runs), None);
    }

    #[test]
    fn the_median_or_every_run_must_keep_to_a_budget() {
        let run = |bytes: u32, value| RunLine {
            variant: "engine-fence".into(),
            parameters: BTreeMap::from([("bytes".to_owned(), bytes.into())]),
            figures: vec![Figure::new("step_ns", value, "ns")],
            ..RunLine::default()
        };
        let runs = [run(16, 100.0), run(16, 120.0), run(16, 900.0), run(64, 1.0)];
        let runs: Vec<&RunLine> = runs.iter().collect();
        let budget = |every, most| Budget {
            variant: "engine-fence".into(),
            figure: "step_ns".into(),
            only: BTreeMap::from([("bytes".to_owned(), 16.into())]),
            every,
            most: Some(most),
            ..Budget::default()
        };
        let kept = judge(&budget(false, 120.0), &runs).expect("runs");
        assert_eq!(kept, BudgetResult { value: 120.0, worst: 900.0, n: 3, reached: true });
        assert!(!judge(&budget(false, 119.0), &runs).expect("runs").reached);
        assert!(!judge(&budget(true, 120.0), &runs).expect("runs").reached, "one run of three is too slow");
        assert_eq!(judge(&Budget::default(), &runs), None);
        let reach = |every, least| Budget { most: None, least: Some(least), ..budget(every, 0.0) };
        let kept = judge(&reach(false, 120.0), &runs).expect("runs");
        assert_eq!(kept, BudgetResult { value: 120.0, worst: 100.0, n: 3, reached: true });
        assert!(!judge(&reach(false, 121.0), &runs).expect("runs").reached);
        assert!(
            !judge(&reach(true, 120.0), &runs).expect("runs").reached,
            "one run of three is too little"
        );
    }
}
