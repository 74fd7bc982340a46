//! Measures barriers in turns (A B, B A, A B, ...): Unisono's own barriers, and barriers of other projects.
//!
//! In a comparison every run is a new process, so that no barrier profits from warm caches. The runs of one
//! turn have the same seed, so that all of them do the same computation.

use crate::peer::{self, PeerBench, PeerBuilds, PeerFile, catalogue};
use std::path::Path;
use std::time::Duration;
use unisono_barrier::{Algorithm, SpinBudget, Wait};
use unisono_text::nearest;
use unisono_workload::barrier_choice::{self, BarrierChoice};
use unisono_workload::{self as workload, Measurement, Options};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Workload(#[from] workload::Error),
    #[error(transparent)]
    Peer(#[from] peer::Error),
    /// This host can run none of the barriers.
    #[error("{0}")]
    NothingRuns(String),
    #[error("measuring {name}: {source}")]
    Row { name: String, source: Box<Error> },
}

impl Error {
    /// Whether the error is a wrong command line.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Workload(workload::Error::Options(_)) => true,
            Self::Row { source, .. } => source.is_usage(),
            _ => false,
        }
    }
}

/// A barrier that this host can run.
pub struct ComparedRow {
    name: String,
    how: VariantKind,
}

enum VariantKind {
    /// A barrier of Unisono. It runs in this process if it is the only row and runs once, otherwise in a
    /// process of its own, like a peer.
    Unisono(BarrierChoice),
    Program(PeerFile),
}

impl ComparedRow {
    fn measure(&self, options: &Options, alone: bool, unisono: &Path) -> Result<Measurement, Error> {
        Ok(match &self.how {
            VariantKind::Unisono(choice) if alone => barrier_choice::run(choice, options)?,
            VariantKind::Unisono(choice) => {
                let budget = choice.spin_budget.map(|budget| Duration::from(budget.duration()));
                let (algorithm, wait) = (choice.algorithm_name(), choice.wait_name());
                PeerFile::unisono(unisono, algorithm, wait, budget).measure(options)?
            }
            VariantKind::Program(program) if program.name == "std" && alone => {
                barrier_choice::run_std(options)?
            }
            VariantKind::Program(program) => program.measure(options)?,
        })
    }
}

/// Measures each row `runs` times, in turns. Returns the measurements in the order of the rows. Before each
/// run, `progress` gets the number of completed runs and the name of the next barrier.
pub fn measure_interleaved(
    rows: &[ComparedRow],
    runs: usize,
    options: &Options,
    unisono: &Path,
    mut progress: impl FnMut(usize, &str),
) -> Result<Vec<Vec<Measurement>>, Error> {
    let mut measured = vec![Vec::new(); rows.len()];
    let alone = rows.len() == 1 && runs == 1;
    for run in 0..runs {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        if run % 2 == 1 {
            order.reverse();
        }
        let options = Options { seed: options.seed.wrapping_add(run as u64), ..options.clone() };
        for (place, index) in order.into_iter().enumerate() {
            let row = &rows[index];
            progress(run * rows.len() + place, &row.name);
            let result = row.measure(&options, alone, unisono);
            let name = || row.name.clone();
            measured[index]
                .push(result.map_err(|source| Error::Row { name: name(), source: source.into() })?);
        }
    }
    Ok(measured)
}

/// A row that is not built yet.
pub enum WantedRow {
    Unisono(BarrierChoice),
    Peer(String),
}

const RECOMMENDED: &str = "recommended";

pub fn algorithm_names() -> impl Iterator<Item = &'static str> {
    std::iter::once(RECOMMENDED).chain(Algorithm::ALL.iter().map(|algorithm| algorithm.name()))
}

pub fn wait_names() -> impl Iterator<Item = &'static str> {
    Wait::ALL.iter().map(|wait| wait.name())
}

/// Parses the rows to compare. For an unknown name the error proposes the nearest name.
pub fn parse(
    implementations: &[String],
    algorithms: &[String],
    waits: &[String],
    spin_budget: Option<Duration>,
) -> Result<Vec<WantedRow>, workload::Error> {
    let own = ["unisono".to_owned()];
    let implementations = if implementations.is_empty() { &own } else { implementations };
    let every = |names: &[String], all: Vec<&str>| match names {
        [name] if name == "all" => all.into_iter().map(str::to_owned).collect(),
        names => names.to_vec(),
    };
    let implementations = &every(implementations, catalogue::barriers().collect());
    let algorithms = &every(algorithms, algorithm_names().filter(|name| *name != RECOMMENDED).collect());
    let waits = &every(waits, wait_names().collect());
    let mut choices = Vec::new();
    for algorithm in optional_names(algorithms) {
        for wait in optional_names(waits) {
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
        return Err(workload::Error::Options(
            "--algorithm, --wait and --spin-budget choose among Unisono's own barriers; add unisono to \
             --implementation, or leave them out"
                .into(),
        ));
    }
    Ok(wanted)
}

pub fn read_choice(
    algorithm: Option<&str>,
    wait: Option<&str>,
    spin_budget: Option<Duration>,
) -> Result<BarrierChoice, workload::Error> {
    let algorithm = match algorithm {
        None | Some(RECOMMENDED) => None,
        Some(name) => Some(
            name.parse().map_err(|_| unknown("algorithm", name, &algorithm_names().collect::<Vec<_>>()))?,
        ),
    };
    let wait = match wait {
        None | Some(RECOMMENDED) => None,
        Some(name) => {
            Some(name.parse().map_err(|_| unknown("wait", name, &wait_names().collect::<Vec<_>>()))?)
        }
    };
    let spin_budget = spin_budget
        .map(|budget| SpinBudget::new(budget.into()))
        .transpose()
        .map_err(|error| workload::Error::Options(error.to_string()))?;
    Ok(BarrierChoice { algorithm, wait, spin_budget })
}

fn optional_names(names: &[String]) -> Vec<Option<&str>> {
    if names.is_empty() { vec![None] } else { names.iter().map(|name| Some(name.as_str())).collect() }
}

fn unknown(what: &str, name: &str, known: &[&str]) -> workload::Error {
    let meant = nearest(name, known.iter().copied());
    let hint = meant.map_or(String::new(), |meant| format!("did you mean {meant}? "));
    workload::Error::Options(format!("there is no {what} {name:?}; {hint}known are: {}", known.join(", ")))
}

/// Builds the wanted peers. `say` gets a line for each peer that is compiled, and for each that is left out
/// because this host cannot run it. Fails if no row is left.
pub fn prepare(
    wanted: Vec<WantedRow>,
    unisono: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<ComparedRow>, Error> {
    let peers: Vec<&str> = wanted
        .iter()
        .filter_map(|wanted| match wanted {
            WantedRow::Peer(name) => Some(name.as_str()),
            WantedRow::Unisono(_) => None,
        })
        .collect();
    let bench = match peers.is_empty() {
        true => PeerBench::default(),
        false => PeerBench::prepare(&peer::default_cache()?, PeerBuilds::Short, unisono, say, |name| {
            peers.contains(&name)
        })?,
    };
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    for wanted in wanted {
        match wanted {
            WantedRow::Unisono(choice) => {
                rows.push(ComparedRow { name: choice.name(), how: VariantKind::Unisono(choice) });
            }
            WantedRow::Peer(name) => match bench.program(&name) {
                Ok(program) => rows.push(ComparedRow { name, how: VariantKind::Program(program.clone()) }),
                Err(error) => missing.push(error.to_string()),
            },
        }
    }
    if rows.is_empty() {
        return Err(Error::NothingRuns(missing.join("\n")));
    }
    missing.iter().for_each(|missing| say(&format!("skipped: {missing}")));
    Ok(rows)
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
            Err(error) => error.to_string(),
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
        .expect("known names");
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
