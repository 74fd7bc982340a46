//! Determines the simulator's errors: measures cells chosen by a seed on this host, simulates the same cells,
//! and writes the table of errors into docs/simulator.md.
//!
//! ```sh
//! cargo build --release -p unisono
//! cargo run --release -p unisono-laboratory --example simulator_errors -- --write docs/simulator.md
//! ```
//! A cell is a program with barriers (threads, interval, a random part, a way to wait) beside busy loops or a
//! second program, under plain Linux, with pinned threads, as gangs or in a batch. The cells are measured in
//! rounds, each cell once in a round. The error compares medians: of the runs, and of as many simulations
//! from different starts. 30 cells in 7 rounds of 0.5 s take about two and a half minutes. Run it on a quiet
//! machine and as root, for the gangs; cells that this host cannot run are left out with a message.
#![allow(clippy::print_stdout, reason = "the table is its answer")]

use anyhow::Context as _;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fmt::Write as _;
use std::path::PathBuf;
use unisono_gang::policy::Backfill;
use unisono_gang::simulate::{
    KernelModel, Sharing, SimulatedMachine, SimulatedProgram, SimulatedWait, WaitCosts, simulate,
};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::clock::Duration;
use unisono_measure::interval::{LEVEL, median_interval};
use unisono_measure::quantile::median;
use unisono_measure::units::number;
use unisono_study::driver::launch::{ProgramSettings, ProgramSpec};
use unisono_study::driver::regime::{self, RegimeSettings, SharingRegime};
use unisono_study::driver::{Context, NoResult};
use unisono_study::peer::PeerBench;
use unisono_text::counted;

const BEGIN: &str = "<!-- the table of simulator_errors begins -->\n";
const END: &str = "<!-- the table of simulator_errors ends -->\n";

struct Options {
    unisono: PathBuf,
    cells: usize,
    seed: u64,
    rounds: usize,
    seconds: f64,
    /// The document that gets the table between its two marks.
    write: Option<PathBuf>,
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options {
        unisono: "target/release/unisono".into(),
        cells: 30,
        seed: 1,
        rounds: 7,
        seconds: 0.5,
        write: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--unisono" => options.unisono = value.into(),
            "--cells" => options.cells = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--write" => options.write = Some(value.into()),
            _ => anyhow::bail!(
                "simulator_errors [--unisono PATH] [--cells N] [--seed N] [--rounds N] [--seconds S] [--write FILE]"
            ),
        }
    }
    Ok(options)
}

/// The load beside the first program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    /// This number of threads that only compute.
    Loops(usize),
    /// A second program with barriers and this interval, otherwise like the first.
    Program { interval_us: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Cell {
    regime: SharingRegime,
    threads: usize,
    interval_us: f64,
    variance_us: f64,
    wait: &'static str,
    beside: Beside,
}

const SPIN_BUDGET_US: f64 = 50.0;

impl Cell {
    fn draw(chance: &mut Pcg64Mcg) -> Self {
        fn choose<T: Copy>(chance: &mut Pcg64Mcg, all: &[T]) -> T {
            all[chance.random_range(0..all.len())]
        }
        use SharingRegime::{Batch, Gang, Linux, Spread};
        let regime = choose(chance, &[Linux, Linux, Spread, Spread, Gang, Batch]);
        let interval_us = choose(chance, &[10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        // a batch gives each program its share of the time, so loops would only be another program
        let is_alone = matches!(regime, Gang | Batch);
        let beside = match choose(chance, &[1, 2, 4, 0, 0]) {
            loops if loops > 0 && !is_alone => Beside::Loops(loops),
            _ => Beside::Program { interval_us: choose(chance, &[0.0, 10.0, 100.0]) },
        };
        Self {
            regime,
            threads: choose(chance, &[2, 2, 4, 8]),
            interval_us,
            variance_us: interval_us * choose(chance, &[0.0, 0.0, 1.0]),
            wait: choose(chance, &["spin", "block", "spin-block"]),
            beside,
        }
    }

    fn in_words(&self) -> String {
        let Self { regime, threads, interval_us, variance_us, wait, beside } = self;
        let regime = match regime {
            SharingRegime::Spread => "pinned threads",
            SharingRegime::Gang => "gangs",
            SharingRegime::Batch => "batch",
            _ => "plain Linux",
        };
        let variance = if *variance_us > 0.0 { format!(" + up to {variance_us} us") } else { String::new() };
        let beside = match beside {
            Beside::Loops(loops) => counted(*loops, "loop"),
            Beside::Program { interval_us } => format!("the same at {interval_us} us"),
        };
        let threads = counted(*threads, "thread");
        format!("{threads}, {interval_us} us{variance}, {wait}, beside {beside}, {regime}")
    }

    fn measure(&self, context: Context, seconds: f64, seed: u64) -> Result<f64, NoResult> {
        let first = ProgramSettings {
            program: Some("unisono".into()),
            threads: Some(self.threads),
            interval_us: Some(self.interval_us),
            variance_us: Some(self.variance_us),
            wait: Some(self.wait.into()),
            spin_budget_us: (self.wait == "spin-block").then_some(SPIN_BUDGET_US),
            ..ProgramSettings::default()
        };
        let other = match self.beside {
            Beside::Loops(loops) => ProgramSettings {
                program: Some("tight-loop".into()),
                threads: Some(loops),
                ..ProgramSettings::default()
            },
            Beside::Program { interval_us } => {
                ProgramSettings { interval_us: Some(interval_us), variance_us: None, ..first.clone() }
            }
        };
        let apps =
            vec![ProgramSpec::new(context, &first, seed)?, ProgramSpec::new(context, &other, seed + 1)?];
        let settings = RegimeSettings { regime: self.regime, ..RegimeSettings::default() };
        let (measured, _) = regime::run_under(context, &settings, apps, seconds)?;
        Ok(measured[0].barriers_per_s)
    }

    fn simulate(&self, cores: usize, seconds: f64, seed: u64) -> anyhow::Result<f64> {
        let us = |us: f64| Duration::from_nanos((us * 1e3) as u64);
        let wait = match self.wait {
            "spin" => SimulatedWait::Spin,
            "block" => SimulatedWait::Block,
            _ => SimulatedWait::SpinBlock(us(SPIN_BUDGET_US)),
        };
        let program = |interval: f64, variance: f64| SimulatedProgram {
            wait,
            ..SimulatedProgram::barriers("program", self.threads, us(interval), us(variance))
        };
        let other = match self.beside {
            Beside::Loops(loops) => SimulatedProgram::computing("loops", loops),
            Beside::Program { interval_us } => program(interval_us, 0.0),
        };
        let sharing = match self.regime {
            SharingRegime::Spread => Sharing::Spread,
            SharingRegime::Gang => {
                Sharing::Gang { slice: Duration::from_millis(20), backfill: Backfill::Offer }
            }
            SharingRegime::Batch => Sharing::Batch,
            _ => Sharing::Linux,
        };
        let machine = SimulatedMachine {
            cores,
            cache_cores: 16,
            kernel: KernelModel::Eevdf,
            costs: WaitCosts::EXAMPLE_HOST,
        };
        let programs = [program(self.interval_us, self.variance_us), other];
        let report =
            simulate(&machine, &programs, sharing, Duration::from_nanos((seconds * 1e9) as u64), seed)?;
        Ok(report.gangs[0].barriers_per_s)
    }
}

fn main() -> anyhow::Result<()> {
    let options = options()?;
    let unisono = options.unisono.canonicalize().with_context(|| {
        format!("there is no {}; cargo build --release -p unisono", options.unisono.display())
    })?;
    let cpus: Vec<usize> = affinity::allowed(Tid::SELF)?.iter().collect();
    let directory = tempfile::tempdir()?;
    let bench = PeerBench::default();
    let interrupted = || None;
    let context = Context {
        bench: &bench,
        unisono: &unisono,
        directory: directory.path(),
        cpus: &cpus,
        interrupted: &interrupted,
    };
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    let cells: Vec<Cell> = (0..options.cells).map(|_| Cell::draw(&mut chance)).collect();
    let mut measured = vec![Vec::new(); cells.len()];
    let mut missing = vec![None; cells.len()];
    for round in 0..options.rounds {
        for (at, cell) in cells.iter().enumerate() {
            if missing[at].is_some() {
                continue;
            }
            eprint!("\rround {} of {}, cell {} of {} ", round + 1, options.rounds, at + 1, cells.len());
            match cell.measure(context, options.seconds, options.seed + (round * cells.len() + at) as u64) {
                Ok(rate) => measured[at].push(rate),
                Err(NoResult::Skipped(why) | NoResult::Failed(why) | NoResult::Interrupted(why)) => {
                    missing[at] = Some(why);
                }
            }
        }
    }
    eprintln!();
    let table = table(&options, &cells, &measured, &missing, cpus.len())?;
    print!("{table}");
    if let Some(path) = &options.write {
        let text = std::fs::read_to_string(path)?;
        std::fs::write(path, replaced(&text, &table).context("the document lacks the two marks")?)?;
    }
    Ok(())
}

/// Returns the document with this table between its marks.
fn replaced(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}\n{END}{after}"))
}

fn table(
    options: &Options,
    cells: &[Cell],
    measured: &[Vec<f64>],
    missing: &[Option<String>],
    cores: usize,
) -> anyhow::Result<String> {
    let mut rows = String::new();
    let mut errors = Vec::new();
    for ((cell, runs), missing) in cells.iter().zip(measured).zip(missing) {
        let Some(estimate) = median_interval(runs, LEVEL) else {
            let why = missing.as_deref().unwrap_or("nothing was measured");
            eprintln!("left out: {}: {why}", cell.in_words());
            continue;
        };
        let starts = (1..=options.rounds as u64).map(|seed| cell.simulate(cores, 1.0, seed));
        let simulated = median(&starts.collect::<anyhow::Result<Vec<f64>>>()?).unwrap_or(0.0);
        let error = (simulated / estimate.value - 1.0) * 100.0;
        errors.push(error.abs());
        writeln!(
            rows,
            "| {} | {} ({} to {}) | {} | {error:+.0} % |",
            cell.in_words(),
            number(estimate.value),
            number(estimate.low),
            number(estimate.high),
            number(simulated)
        )?;
    }
    let middle = median(&errors).map_or_else(|| "nothing".to_owned(), |error| format!("{error:.0} %"));
    let host = unisono_study::host::facts();
    let mut text = format!(
        "{} of {} chosen by seed {}, on {} ({}), Linux {}; n = {} runs of {} s each, medians and their {:.0} % \
         intervals; as many simulations of 1 s. The median error is {middle}.\n\n",
        errors.len(),
        counted(cells.len(), "cell"),
        options.seed,
        counted(cores, "processor"),
        host.cpu,
        host.kernel,
        options.rounds,
        options.seconds,
        LEVEL * 100.0
    );
    text = wrapped(&text);
    text += "| cell | measured barriers/s | simulated | error |\n|---|---|---|---|\n";
    Ok(text + &rows)
}

/// Returns the paragraph in lines of at most 120 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("it begins with a line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > 120 {
            lines.push(word.to_owned());
        } else {
            *last += if last.is_empty() { "" } else { " " };
            *last += word;
        }
    }
    lines.join("\n") + "\n\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_chooses_the_same_cells_and_each_can_be_simulated() {
        let cells = |seed| {
            let mut chance = Pcg64Mcg::seed_from_u64(seed);
            (0..30).map(|_| Cell::draw(&mut chance)).collect::<Vec<_>>()
        };
        assert_eq!(cells(1), cells(1));
        assert_ne!(cells(1), cells(2));
        for cell in cells(1) {
            let rate = cell.simulate(2, 0.05, 1).expect("a simulation");
            assert!(rate > 0.0, "{}", cell.in_words());
        }
    }

    #[test]
    fn the_table_replaces_the_one_between_the_marks_and_nothing_else() {
        let document = format!("before\n{BEGIN}old\n{END}after\n");
        assert_eq!(
            replaced(&document, "new").as_deref(),
            Some(&*format!("before\n{BEGIN}\nnew\n{END}after\n"))
        );
        assert_eq!(replaced("without marks", "new"), None);
    }
}
