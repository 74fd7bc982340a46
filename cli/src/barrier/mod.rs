//! `unisono barrier`: measures the BARRIER program with Unisono's barriers and others, alone or beside busy
//! loops.

mod table;

use crate::exit::Failure;
use crate::flags::{WorkloadFlags, one_number};
use crate::help::{Completed, owned};
use crate::machine_output::CsvFlag;
use clap::builder::StringValueParser;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use unisono_measure::units;
use unisono_study::compare;
use unisono_study::peer::catalogue;
use unisono_workload::competitor::Competitors;
use unisono_workload::options::write_result;
use unisono_workload::{Measurement, Pin};

/// Measure the cost of a barrier here
///
/// Threads compute for an interval (plus a random part), meet at a barrier, and repeat. This is the program
/// BARRIER of the gang scheduling study. If you give several algorithms, waits or implementations, separated
/// by commas, they are measured in turns (A B B A) and compared in a table.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono barrier
      two threads, the recommended barrier
  unisono barrier --threads 8 --competitors 2
      beside two busy loops
  unisono barrier --wait spin,block,adaptive --pin spread --runs 5
  unisono barrier --implementation unisono,pthread,libgomp,libomp --runs 10
  unisono barrier --algorithm all --seconds 0.3 --runs 3
  unisono barrier --interval 10us --variance 5us --json

What to read: `blocks/s` counts threads that went to sleep. With a wait that spins first it should be near \
0 on idle cores; if most barriers block although there are cores enough, the kernel has stacked the \
threads on one core, and `--pin spread` will show what that costs.")]
pub(crate) struct Args {
    #[command(flatten)]
    flags: WorkloadFlags,
    /// Unisono's algorithm: recommended, by name, or all; several separated by commas
    #[arg(long, value_name = "A", value_delimiter = ',', value_parser = Completed::new(|| owned(compare::algorithm_names()), StringValueParser::new()), hide_possible_values = true)]
    algorithm: Vec<String>,
    /// How to wait: spin, yield, block, spin-block, adaptive, or all; several separated by commas
    #[arg(long, value_name = "W", value_delimiter = ',', value_parser = Completed::new(|| owned(compare::wait_names()), StringValueParser::new()), hide_possible_values = true)]
    wait: Vec<String>,
    /// Time for which spin-block spins before it blocks
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    spin_budget: Option<Duration>,
    /// Whose barrier: unisono, std, pthread, cxx, libgomp, libomp, also libgomp-active, libgomp-passive,
    /// libomp-active, libomp-passive, or all; several separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = Completed::new(|| owned(catalogue::barriers()), StringValueParser::new()), hide_possible_values = true)]
    implementation: Vec<String>,
    /// Number of busy loops that run at the same time, each as a process
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = one_number)]
    competitors: usize,
    /// Where the busy loops run: none, spread or processors like 0-3,8
    #[arg(long, value_name = "PIN", default_value = "spread")]
    competitor_pin: Pin,
    /// Runs of each variant, in turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = one_number)]
    runs: usize,
    /// Print one JSON object for each variant
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = args.flags.options()?;
    options.check().map_err(usage)?;
    if args.runs == 0 || args.runs > 10_000 {
        return Err(Failure::Usage(format!("{} runs: ask for 1 to 10000", args.runs)).into());
    }
    let wanted = compare::parse(&args.implementation, &args.algorithm, &args.wait, args.spin_budget);
    let unisono = std::env::current_exe()?;
    let rows = compare::prepare(wanted.map_err(usage)?, &unisono, &mut |what| eprintln!("{what}"))
        .map_err(failure)?;
    let competitors = Competitors::start(&unisono, args.competitors, &args.competitor_pin).map_err(usage)?;
    let total = rows.len() * args.runs;
    let seconds = (options.warm_up.as_secs_f64() + options.seconds) * total as f64;
    let bar = (!args.json && seconds > 2.0).then(|| progress(total));
    let measured = compare::measure_interleaved(&rows, args.runs, &options, &unisono, |done, name| {
        if let Some(bar) = &bar {
            bar.set_position(done as u64);
            bar.set_message(name.to_owned());
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let beside = (args.competitors > 0).then_some(args.competitors);
    let with_competitors = |runs: Vec<Measurement>| {
        runs.into_iter().map(|run| Measurement { competitors: beside, ..run }).collect::<Vec<_>>()
    };
    let measured = measured.map_err(failure)?.into_iter().map(with_competitors);
    drop(competitors);
    let results: Vec<table::VariantRuns> = measured.map(table::VariantRuns::new).collect();
    let json = results.iter().map(table::VariantRuns::json).collect::<Result<Vec<_>, _>>()?.join("\n");
    if let Some(path) = &args.flags.result {
        write_result(path, &json)?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{json}")?;
    } else if args.table.csv {
        writeln!(out, "{}", table::csv(&results)?)?;
    } else {
        write!(out, "{}", table::render(&results, &options))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn progress(total: usize) -> indicatif::ProgressBar {
    let style = indicatif::ProgressStyle::with_template("{bar:30} run {pos} of {len}, {eta} left: {msg}")
        .expect("the template is valid because it is a constant that tests render");
    let bar = indicatif::ProgressBar::new(total as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn failure(error: compare::Error) -> anyhow::Error {
    match error {
        compare::Error::NothingRuns(text) => Failure::Host(text).into(),
        error if error.is_usage() => usage(error).into(),
        error => error.into(),
    }
}

fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}
