//! What `unisono barrier` compares: Unisono's barriers and those of others.

use crate::exit::Failure;
use std::time::Duration;
use unisono_barrier::{Algorithm, SpinBudget, Wait};
use unisono_linux::clock::Nanos;
use unisono_study::peer::{self, Bench, PeerBuilds, PeerFile, catalogue};
use unisono_study::workload::own::{self, BarrierChoice};
use unisono_study::workload::{self, Measurement, Options};

pub(super) struct ComparedRow {
    name: String,
    how: VariantKind,
}

enum VariantKind {
    /// Runs in this process if it is the only row, otherwise in a process of its own, like a peer.
    Unisono(BarrierChoice),
    Program(PeerFile),
}

impl ComparedRow {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Measures once. In a comparison every run is a new process, so that none profits from the caches of
    /// another.
    pub(super) fn measure(&self, options: &Options, alone: bool) -> anyhow::Result<Measurement> {
        match &self.how {
            VariantKind::Unisono(choice) if alone => Ok(own::run(choice, options).map_err(as_failure)?),
            VariantKind::Unisono(choice) => {
                let budget = choice.spin_budget.map(|budget| Duration::from(budget.nanos()));
                let (algorithm, wait) = (choice.algorithm_name(), choice.wait_name());
                let program = PeerFile::unisono(&std::env::current_exe()?, algorithm, wait, budget);
                Ok(program.measure(options)?)
            }
            VariantKind::Program(program) if program.name == "std" && alone => {
                Ok(own::run_std(options).map_err(as_failure)?)
            }
            VariantKind::Program(program) => Ok(program.measure(options)?),
        }
    }
}

fn as_failure(error: workload::Error) -> anyhow::Error {
    match error {
        workload::Error::Options(said) => Failure::Usage(said).into(),
        other => other.into(),
    }
}

/// A row that is not built yet.
pub(super) enum WantedRow {
    Unisono(BarrierChoice),
    Peer(String),
}

const RECOMMENDED: &str = "recommended";

pub(super) fn algorithms() -> impl Iterator<Item = &'static str> {
    std::iter::once(RECOMMENDED).chain(Algorithm::ALL.iter().map(|algorithm| algorithm.name()))
}

pub(super) fn waits() -> impl Iterator<Item = &'static str> {
    Wait::ALL.iter().map(|wait| wait.name())
}

/// Reads what to compare. For an unknown name it proposes the nearest.
pub(super) fn parse(
    implementations: &[String],
    algorithms: &[String],
    waits: &[String],
    spin_budget: Option<Duration>,
) -> Result<Vec<WantedRow>, Failure> {
    let own = ["unisono".to_owned()];
    let implementations = if implementations.is_empty() { &own } else { implementations };
    let every = |names: &[String], all: Vec<&str>| match names {
        [name] if name == "all" => all.into_iter().map(str::to_owned).collect(),
        names => names.to_vec(),
    };
    let implementations = &every(implementations, catalogue::barriers().collect());
    let algorithms = &every(algorithms, self::algorithms().filter(|name| *name != RECOMMENDED).collect());
    let waits = &every(waits, self::waits().collect());
    let mut choices = Vec::new();
    for algorithm in or_nothing(algorithms) {
        for wait in or_nothing(waits) {
            choices.push(read_choice(algorithm, wait, spin_budget)?);
        }
    }
    let mut wanted = Vec::new();
    let known: Vec<&str> = catalogue::barriers().collect();
    for name in implementations {
        let name = catalogue::canonical(name);
        match name {
            "unisono" => wanted.extend(choices.iter().map(|choice| WantedRow::Unisono(*choice))),
            name if known.contains(&name) => wanted.push(WantedRow::Peer(name.to_owned())),
            name => return Err(unknown("implementation", name, &known)),
        }
    }
    let chosen = !algorithms.is_empty() || !waits.is_empty() || spin_budget.is_some();
    if chosen && !wanted.iter().any(|wanted| matches!(wanted, WantedRow::Unisono(_))) {
        return Err(Failure::Usage(
            "--algorithm, --wait and --spin-budget choose among Unisono's own barriers; add unisono to \
             --implementation, or leave them out"
                .into(),
        ));
    }
    Ok(wanted)
}

pub(crate) fn read_choice(
    algorithm: Option<&str>,
    wait: Option<&str>,
    spin_budget: Option<Duration>,
) -> Result<BarrierChoice, Failure> {
    let algorithm = match algorithm {
        None | Some(RECOMMENDED) => None,
        Some(name) => {
            Some(name.parse().map_err(|_| unknown("algorithm", name, &algorithms().collect::<Vec<_>>()))?)
        }
    };
    let wait = match wait {
        None | Some(RECOMMENDED) => None,
        Some(name) => Some(name.parse().map_err(|_| unknown("wait", name, &waits().collect::<Vec<_>>()))?),
    };
    let spin_budget = spin_budget
        .map(|budget| SpinBudget::new(Nanos::from(budget)))
        .transpose()
        .map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(BarrierChoice { algorithm, wait, spin_budget })
}

fn or_nothing(names: &[String]) -> Vec<Option<&str>> {
    if names.is_empty() { vec![None] } else { names.iter().map(|name| Some(name.as_str())).collect() }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> Failure {
    let nearest = peer::nearest(name, known).unwrap_or_default();
    Failure::Usage(format!(
        "there is no {what} {name:?}; did you mean {nearest}? known are: {}",
        known.join(", ")
    ))
}

/// Builds the wanted peers. It reports and leaves out what cannot be built; if nothing is left, that is an
/// error.
pub(super) fn prepare(wanted: Vec<WantedRow>) -> anyhow::Result<Vec<ComparedRow>> {
    let peers: Vec<&str> = wanted
        .iter()
        .filter_map(|wanted| match wanted {
            WantedRow::Peer(name) => Some(name.as_str()),
            WantedRow::Unisono(_) => None,
        })
        .collect();
    let mut bench = Bench::default();
    if !peers.is_empty() {
        let unisono = std::env::current_exe()?;
        let mut said = |what: &str| eprintln!("{what}");
        bench = Bench::prepare(&peer::default_cache()?, PeerBuilds::Short, &unisono, &mut said, |name| {
            peers.contains(&name)
        })?;
    }
    let mut variants = Vec::new();
    let mut missing = Vec::new();
    for wanted in wanted {
        match wanted {
            WantedRow::Unisono(choice) => {
                variants.push(ComparedRow { name: choice.name(), how: VariantKind::Unisono(choice) });
            }
            WantedRow::Peer(name) => match bench.program(&name) {
                Ok(program) => {
                    variants.push(ComparedRow { name, how: VariantKind::Program(program.clone()) });
                }
                Err(error) => missing.push(error.to_string()),
            },
        }
    }
    if variants.is_empty() {
        return Err(Failure::Host(missing.join("\n")).into());
    }
    for missing in missing {
        eprintln!("skipped: {missing}");
    }
    Ok(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn refused(implementations: &[&str], algorithms: &[&str], waits: &[&str]) -> String {
        match parse(&words(implementations), &words(algorithms), &words(waits), None) {
            Ok(_) => panic!("accepted"),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn algorithms_and_waits_multiply_and_peers_stand_once() {
        let wanted = parse(
            &words(&["unisono", "std"]),
            &words(&["central", "tournament"]),
            &words(&["spin", "block"]),
            None,
        )
        .unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(wanted.len(), 5);
    }

    #[test]
    fn unknown_names_are_answered_with_the_nearest() {
        assert!(refused(&[], &["disemination"], &[]).contains("did you mean dissemination?"));
        assert!(refused(&[], &[], &["spinblock"]).contains("did you mean spin-block?"));
        assert!(refused(&["pthreads"], &[], &[]).contains("did you mean pthread?"));
    }

    #[test]
    fn choosing_an_algorithm_for_somebody_elses_barrier_is_refused() {
        assert!(refused(&["pthread"], &["central"], &[]).contains("Unisono's own"));
    }

    #[test]
    fn a_spin_budget_beyond_a_second_is_refused() {
        assert!(parse(&[], &[], &[], Some(Duration::from_secs(2))).is_err());
        assert!(parse(&[], &[], &[], Some(Duration::from_millis(4))).is_ok());
    }
}
