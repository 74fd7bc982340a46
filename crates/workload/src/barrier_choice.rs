//! BARRIER over the barriers that need no compiler: Unisono's and the standard library's.

use super::options::{Options, Pin};
use super::{Error, Measurement, barrier};
use std::sync::Barrier;
use unisono_barrier::{
    Algorithm, Group, GroupSpec, Participant, RecommendedLoad, SpinBudget, Wait, recommended,
};

/// A barrier of Unisono. Fields with `None` are chosen automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierChoice {
    pub algorithm: Option<Algorithm>,
    pub wait: Option<Wait>,
    /// The spin budget; `None` stands for 50 us.
    pub spin_budget: Option<SpinBudget>,
}

impl BarrierChoice {
    /// Returns the algorithm's name as in `--algorithm`.
    pub fn algorithm_name(&self) -> &'static str {
        self.algorithm.map_or("recommended", Algorithm::name)
    }

    /// Returns the wait policy's name as in `--wait`.
    pub fn wait_name(&self) -> &'static str {
        self.wait.map_or("recommended", Wait::name)
    }

    /// Returns both names, for progress and errors.
    pub fn name(&self) -> String {
        format!("{} {}", self.algorithm_name(), self.wait_name())
    }

    /// Creates the barrier. Also returns the reason for the choice, if there was one.
    pub fn group(&self, options: &Options) -> Result<(Group, Option<String>), Error> {
        let refused = |error: unisono_barrier::Error| Error::Options(error.to_string());
        let mut cpus = options.pin.placement()?;
        cpus.sort_unstable();
        cpus.dedup();
        let cpus = if cpus.is_empty() { Pin::Spread.placement()?.len() } else { cpus.len() };
        let recommended = recommended(options.threads, cpus, RecommendedLoad::Unknown);
        let mut spec = GroupSpec::new(options.threads)
            .map_err(refused)?
            .algorithm(self.algorithm.unwrap_or(recommended.algorithm))
            .wait(self.wait.unwrap_or(recommended.wait));
        if let Some(budget) = self.spin_budget {
            spec = spec.spin_budget(budget);
        }
        let why = self.algorithm.is_none().then_some(recommended.why);
        Ok((spec.for_threads().map_err(refused)?, why))
    }

    /// Adds the barrier's names to a measurement.
    pub fn label(
        &self,
        group: &Group,
        chosen_because: Option<String>,
        measured: Measurement,
        implementation: &str,
    ) -> Measurement {
        let budget = self.spin_budget.unwrap_or(SpinBudget::DEFAULT).duration().as_nanos();
        Measurement {
            implementation: implementation.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            algorithm: group.algorithm().name().into(),
            wait: group.wait_policy().name().into(),
            spin_budget_ns: (group.wait_policy() == Wait::SpinBlock).then_some(budget),
            chosen_because,
            ..measured
        }
    }
}

pub fn run(choice: &BarrierChoice, options: &Options) -> Result<Measurement, Error> {
    options.check()?;
    let (group, chosen_because) = choice.group(options)?;
    let measured = barrier::run(options, |index| {
        let mut seat = BarrierMember::join(&group, index);
        move || seat.wait()
    })?;
    Ok(choice.label(&group, chosen_because, measured, "unisono"))
}

/// A participant, or the reason why there is none. A participant that has waited leaves its group properly
/// when dropped, together with all others. Otherwise a participant that is still leaving the last episode
/// would report it gone.
pub struct BarrierMember {
    participant: Result<Option<Participant>, String>,
    has_waited: bool,
}

impl BarrierMember {
    pub fn join(group: &Group, index: usize) -> Self {
        let participant = group.participant(index).map(Some).map_err(|error| error.to_string());
        Self { participant, has_waited: false }
    }

    #[inline]
    pub fn wait(&mut self) -> Result<(), String> {
        let waited = match &mut self.participant {
            Ok(Some(participant)) => participant.wait().map(|_| ()).map_err(|error| error.to_string()),
            Ok(None) => Err("it has left".into()),
            Err(error) => Err(error.clone()),
        };
        self.has_waited = waited.is_ok();
        waited
    }
}

impl Drop for BarrierMember {
    fn drop(&mut self) {
        if std::thread::panicking() || !self.has_waited {
            return; // the participant's own drop notifies the others
        }
        if let Ok(Some(participant)) = self.participant.as_mut().map(Option::take) {
            // the run is over: an error here could only concern an episode without participants
            participant.leave().ok();
        }
    }
}

/// Runs BARRIER over [`std::sync::Barrier`]: a mutex and a condition variable, which block at once.
pub fn run_std(options: &Options) -> Result<Measurement, Error> {
    let shared = Barrier::new(options.threads.max(1));
    let measured = barrier::run(options, |_| {
        || {
            shared.wait();
            Ok(())
        }
    })?;
    Ok(Measurement {
        implementation: "std".into(),
        version: "Rust's standard library".into(),
        algorithm: "std::sync::Barrier".into(),
        wait: "block".into(),
        ..measured
    })
}
