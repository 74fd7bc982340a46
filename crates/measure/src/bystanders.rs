//! Processor time that bystanders lost when a variant gained: the processor time that they had during the
//! runs of each side of a comparison.
//!
//! A scheduler that takes processors from other programs makes its own programs faster without being a better
//! scheduler. Bystanders are the programs of a run that the comparison does not judge
//! ([`Verdict::bystanders`]), and foreign programs, which ran on the host before the run began. The report
//! states the bystanders' processor time beside the gain. Verdicts on gangs compare work per processor time
//! obtained ([`Verdict::divisor`]), which taking processors from others does not raise.
//!
//! Cost: two medians a judgement. The kernel counts foreign programs' time in ticks of 10 ms, so a short run
//! cannot show a difference below `MIN_DIFFERENCE`.

use crate::quantile;
use crate::record::{Outcome, RunLine, Verdict};

/// The smallest difference reported: a fiftieth of a processor, one tick of 10 ms in half a second (the
/// length of a quick run).
const MIN_DIFFERENCE: f64 = 0.02;

/// Median processor time of the bystanders during the runs of each side of a comparison, in processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BystanderTime {
    pub beside_variant: f64,
    pub beside_against: f64,
}

impl BystanderTime {
    /// Computes the bystanders' processor time. `None` if the verdict does not ask for bystanders, or if the
    /// runs did not record them.
    pub(crate) fn from_runs(verdict: &Verdict, runs: &[&RunLine]) -> Option<Self> {
        let is_asked = verdict.bystanders.is_some() || verdict.divisor.is_some() || verdict.answers.is_some();
        if !is_asked {
            return None;
        }
        let beside = |variant: &str| {
            let measured =
                runs.iter().filter(|run| run.variant == variant && run.outcome == Outcome::Measured);
            quantile::median(&measured.filter_map(|run| bystanders(verdict, run)).collect::<Vec<_>>())
        };
        Some(Self { beside_variant: beside(&verdict.variant)?, beside_against: beside(&verdict.against)? })
    }

    /// Returns the processors that bystanders lost; negative if they gained. `None` if the difference is
    /// below `MIN_DIFFERENCE`.
    pub fn lost(&self) -> Option<f64> {
        let lost = self.beside_against - self.beside_variant;
        (lost.abs() >= MIN_DIFFERENCE).then_some(lost)
    }

    /// Returns the loss in words, for example `bystanders had 0.51 processors instead of 1.02`. `None` if the
    /// difference is below `MIN_DIFFERENCE`.
    pub fn in_words(&self) -> Option<String> {
        self.lost()?;
        let Self { beside_variant, beside_against } = self;
        Some(format!("bystanders had {beside_variant:.2} processors instead of {beside_against:.2}"))
    }
}

/// Returns the processors that bystanders had during a run.
fn bystanders(verdict: &Verdict, run: &RunLine) -> Option<f64> {
    let foreign = run.host.foreign_load_during.map(|share| share * f64::from(run.host.cpus));
    let beside = verdict.bystanders.as_ref().map(|figure| run.value(figure));
    match (beside, foreign) {
        (Some(beside), foreign) => Some(beside? + foreign.unwrap_or(0.0)),
        (None, foreign) => foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Figure, HostFacts};
    use crate::verdict::{Answer, judge};

    fn run(variant: &str, repetition: u32, [work, own, beside, foreign]: [f64; 4]) -> RunLine {
        RunLine {
            variant: variant.into(),
            repetition,
            figures: vec![
                Figure::new("work", work, "1/s"),
                Figure::new("own", own, "1"),
                Figure::new("beside", beside, "1"),
            ],
            host: HostFacts { cpus: 2, foreign_load_during: Some(foreign), ..HostFacts::default() },
            ..RunLine::default()
        }
    }

    fn judged(gang: [f64; 4], plain: [f64; 4], bystanders: Option<&str>) -> (f64, Option<BystanderTime>) {
        let verdict = Verdict {
            variant: "gang".into(),
            against: "plain".into(),
            figure: "work".into(),
            divisor: Some("own".into()),
            bystanders: bystanders.map(Into::into),
            ..Verdict::default()
        };
        let runs: Vec<RunLine> =
            (0..6).flat_map(|at| [run("gang", at, gang), run("plain", at, plain)]).collect();
        let judgement = judge(&verdict, &runs.iter().collect::<Vec<_>>()).remove(0);
        let Answer::Compared { comparison, .. } = judgement.answer else { panic!("there are pairs") };
        (comparison.ratio.value, judgement.bystanders)
    }

    #[test]
    fn processors_taken_from_foreign_programs_are_no_gain_and_are_named() {
        // twice the work with twice the processor time, all of it taken from foreign programs
        let (ratio, paid) = judged([20.0, 2.0, 0.0, 0.0], [10.0, 1.0, 0.0, 0.5], None);
        let paid = paid.expect("foreign load is recorded");
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        assert_eq!(paid.lost(), Some(1.0));
        assert_eq!(paid.in_words().as_deref(), Some("bystanders had 0.00 processors instead of 1.00"));
    }

    #[test]
    fn a_program_beside_the_judged_one_is_a_bystander() {
        let (ratio, paid) = judged([20.0, 1.0, 1.0, 0.0], [10.0, 0.5, 1.5, 0.0], Some("beside"));
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        assert_eq!(paid.and_then(|paid| paid.lost()), Some(0.5));
        let (_, nobody) = judged([20.0, 1.0, 1.0, 0.0], [10.0, 1.0, 1.0, 0.0], Some("beside"));
        assert_eq!(nobody.and_then(|paid| paid.in_words()), None, "nothing was taken from anybody");
    }
}
