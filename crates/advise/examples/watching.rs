//! Measures the slowdown of a program that `unisono advise` watches:
//!
//! ```sh
//! cargo run --release -p unisono-advise --example watching -- 20 ./solver 1000
//! ```
//! Runs the program the given number of times in each of two ways, in turns (A B B A): without watching, and
//! watched as in a trial. Prints the ratio of the times with its interval; the budget is 1.02. Choose a
//! program that takes about a second, on a quiet machine: a shorter program is watched more often, relative
//! to its length, than real programs are.
#![allow(clippy::print_stdout, reason = "what it measured is its answer")]

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;
use unisono_advise::remedy::Programs;
use unisono_advise::trial::{self, TrialBudget};
use unisono_advise::{RunEnd, TriedRemedy};
use unisono_linux::clock::Duration;
use unisono_measure::interval::LEVEL;
use unisono_measure::paired;
use unisono_measure::record::Better;

const LIMIT: Duration = Duration::from_secs(300);

/// Runs the program without watching it; returns the seconds that it took.
fn alone(command: &[OsString]) -> Option<f64> {
    let begin = Instant::now();
    let mut one = Command::new(&command[0]);
    one.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = one.status().ok()?;
    status.success().then(|| begin.elapsed().as_secs_f64())
}

/// Runs the program as a trial does, watching it; returns the seconds that it took.
fn watched(programs: &Programs) -> Option<f64> {
    // the total budget is used up after the first round
    let budget = TrialBudget { total: Duration::ZERO, run: LIMIT };
    let trials =
        trial::run(programs, &[TriedRemedy::Plain], budget, &mut |_, _| {}, &|_| true, &|| None).ok()?;
    trials.runs.first().filter(|run| run.ended == RunEnd::Succeeded).map(|run| run.seconds)
}

fn main() {
    let mut words = std::env::args_os().skip(1);
    let runs = words.next().and_then(|word| word.to_str()?.parse::<usize>().ok());
    let command: Vec<OsString> = words.collect();
    let (Some(runs), false) = (runs, command.is_empty()) else {
        eprintln!("watching RUNS CMD ARGS");
        std::process::exit(2);
    };
    let programs = Programs {
        commands: vec![command.clone()],
        unisono: "unisono".into(),
        root: false,
        parts: Vec::new(),
        rank_programs: Vec::new(),
    };
    let mut pairs = Vec::new();
    for round in 0..runs {
        let pair = if round % 2 == 0 {
            let first = watched(&programs);
            first.zip(alone(&command))
        } else {
            let second = alone(&command);
            watched(&programs).zip(second)
        };
        let Some(pair) = pair else {
            eprintln!("the program cannot be started, fails, or takes longer than {LIMIT}");
            std::process::exit(1);
        };
        pairs.push(pair);
    }
    match paired::compare(&pairs, Better::Lower, LEVEL) {
        Some(comparison) => {
            let ratio = comparison.ratio;
            println!(
                "watched / alone: {:.4} ({:.4} to {:.4}), n = {}",
                ratio.value, ratio.low, ratio.high, ratio.n
            );
        }
        None => println!("too few runs"),
    }
}
