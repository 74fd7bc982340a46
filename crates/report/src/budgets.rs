//! A study's budgets as a table: limit, measured value, kept or missed.

use crate::number;
use crate::study::Study;
use askama::Template;
use unisono_measure::budget::judge;
use unisono_measure::record::Budget;

fn limit_in_words(budget: &Budget, format_value: impl Fn(f64) -> String) -> String {
    let most = budget.most.map(|most| format!("at most {}", format_value(most)));
    let least = budget.least.map(|least| format!("at least {}", format_value(least)));
    most.into_iter().chain(least).collect::<Vec<_>>().join(", ")
}

#[derive(Template)]
#[template(path = "budgets.html")]
struct BudgetTable<'a> {
    rows: Vec<BudgetRow<'a>>,
    reached: usize,
    missed: usize,
}

struct BudgetRow<'a> {
    label: &'a str,
    wanted: String,
    /// The measured value, or the reason why nothing was measured.
    measured: Result<KeptBudget, String>,
}

struct KeptBudget {
    value: String,
    worst: String,
    n: usize,
    reached: bool,
}

impl<'a> BudgetRow<'a> {
    fn new(study: &Study<'_>, budget: &'a Budget) -> Self {
        let unit = if budget.divisor.is_some() { "x".to_owned() } else { study.unit(&budget.figure) };
        let format_value = |value: f64| number::quantity(value, &unit);
        let kept = judge(budget, &study.runs).map(|kept| KeptBudget {
            value: format_value(kept.value),
            worst: format_value(kept.worst),
            n: kept.n,
            reached: kept.reached,
        });
        let why = || {
            let variants = [Some(&budget.variant), budget.divisor.as_ref(), budget.subtrahend.as_ref()];
            let why = variants.into_iter().flatten().find_map(|variant| study.never_measured_reason(variant));
            why.unwrap_or_else(|| "not measured".to_owned())
        };
        Self {
            label: &budget.label,
            wanted: limit_in_words(budget, format_value),
            measured: kept.ok_or_else(why),
        }
    }
}

/// Draws the table as HTML; empty if the study has no budgets.
pub(crate) fn html(study: &Study<'_>) -> String {
    let rows: Vec<BudgetRow<'_>> = study.head.budgets.iter().map(|b| BudgetRow::new(study, b)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let kept =
        |reached| rows.iter().flat_map(|row| &row.measured).filter(move |kept| kept.reached == reached);
    BudgetTable { reached: kept(true).count(), missed: kept(false).count(), rows }.to_string()
}
