//! A study's budgets as a table: what was promised, what was measured, reached or missed.

use crate::escape::Escaped;
use crate::number;
use crate::study::Study;
use std::fmt::Write as _;
use unisono_measure::budget::judge;
use unisono_measure::record::Budget;

/// What a budget asks for, in words.
fn wanted(budget: &Budget, says: impl Fn(f64) -> String) -> String {
    let most = budget.most.map(|most| format!("at most {}", says(most)));
    let least = budget.least.map(|least| format!("at least {}", says(least)));
    most.into_iter().chain(least).collect::<Vec<_>>().join(", ")
}

/// The table, or nothing where the study has no budgets.
pub(crate) fn html(study: &Study<'_>) -> String {
    if study.head.budgets.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"advice\">\n<thead><tr><th>Budget</th><th>wanted</th><th>measured</th><th>worst run</th><th>runs</th><th></th></tr></thead>\n<tbody>\n",
    );
    let mut counts = (0, 0);
    for budget in &study.head.budgets {
        let unit = if budget.of.is_some() { "x".to_owned() } else { study.unit(&budget.figure) };
        let says = |value: f64| number::quantity(value, &unit);
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{}</td>",
            Escaped(&budget.label),
            Escaped(&wanted(budget, says))
        );
        match judge(budget, &study.runs) {
            Some(kept) => {
                let (class, word) = if kept.reached {
                    counts.0 += 1;
                    ("better", "\u{25b2} reached")
                } else {
                    counts.1 += 1;
                    ("worse", "\u{25bc} missed")
                };
                let _ = writeln!(
                    html,
                    "<td><b>{}</b></td><td>{}</td><td>{}</td><td><span class=\"badge {class}\">{word}</span></td></tr>",
                    Escaped(&says(kept.value)),
                    Escaped(&says(kept.worst)),
                    kept.n
                );
            }
            None => {
                let why = [Some(&budget.variant), budget.of.as_ref(), budget.over.as_ref()]
                    .into_iter()
                    .flatten()
                    .find_map(|variant| study.why_never(variant))
                    .unwrap_or_else(|| "not measured".to_owned());
                let _ = writeln!(
                    html,
                    "<td colspan=\"3\">{}</td><td><span class=\"badge unanswered\">\u{2013} not measured</span></td></tr>",
                    Escaped(&why)
                );
            }
        }
    }
    let _ = write!(
        html,
        "</tbody></table></div>\n<p class=\"key\">{} reached, {} missed. The median of the runs counts, or the worst run where the budget is for every run.</p>\n",
        counts.0, counts.1
    );
    html
}
