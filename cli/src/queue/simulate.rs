//! `unisono queue simulate`: computes exactly when each packet of a trace leaves.

use crate::exit::Failure;
use crate::machine_output;
use crate::output;
use crate::text_file;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_fairqueue::{Departure, Discipline, Fifo, RoundRobin, Trace, Weighted, start_time};
use unisono_linux::read::MACHINE_WRITTEN;
use unisono_text::counted;

/// Compute when each packet of a trace leaves the link
///
/// The command computes without rounding and without chance: the same trace gives the same departures
/// everywhere. A packet that arrives at the moment of a choice takes part in the choice. A packet that
/// arrives exactly when the last one has left begins a new busy period. Of several classes with equal tags,
/// the class that has waited longest is served.
#[derive(clap::Args)]
#[command(
    after_help = r#"A trace is JSON. The rate is in bits a second, times are decimal texts in seconds, lengths are in bytes:
  {"rate": 8000000,
   "tree": {"name": "link", "children": [{"name": "video", "weight": 3},
                                         {"name": "rest", "weight": 1}]},
   "packets": [{"id": 0, "t": "0.0", "class": "video", "len": 1500},
               {"id": 1, "t": "0.0", "class": "rest", "len": 1500}]}
A class may have "order": "deadline". A packet may have a "deadline" (a time, like "t") and a "flow".

Examples:
  unisono queue simulate trace.json
  unisono queue simulate --json trace.json
      departures: [{"id": 0, "start": "0.0", "end": "0.0015"}, ...]
  unisono queue simulate --discipline round-robin trace.json
      the same under deficit round robin"#
)]
pub(crate) struct Args {
    /// The trace; - is standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The rule that decides which packet leaves next
    #[arg(long, value_enum, default_value_t)]
    discipline: SimulatedDiscipline,
    /// Print the departures as one JSON object, in their order
    #[arg(long)]
    json: bool,
    /// Print the departures as comma-separated values, in their order
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Default)]
enum SimulatedDiscipline {
    /// Hierarchical start-time fair queuing
    #[default]
    StartTime,
    /// First in, first out
    Fifo,
    /// Weighted fair queuing among the leaves
    Weighted,
    /// Deficit round robin among the leaves
    RoundRobin,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (name, text) = text_file::read(&args.trace, MACHINE_WRITTEN)?;
    let trace = Trace::parse(&text).map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
    let classes = trace.hierarchy().clone();
    let mut discipline: Box<dyn Discipline<usize>> = match args.discipline {
        SimulatedDiscipline::StartTime => start_time(classes),
        SimulatedDiscipline::Fifo => Box::new(Fifo::default()),
        SimulatedDiscipline::Weighted => Box::new(Weighted::new(classes, trace.rate())),
        SimulatedDiscipline::RoundRobin => Box::new(RoundRobin::new(classes, 1500)),
    };
    let departures = trace.departures(discipline.as_mut());
    if args.json {
        let object = json!({ "departures": objects(&departures) });
        output::answer(&machine_output::json("unisono-queue-simulate-1", &object)?)?;
    } else if args.csv {
        output::answer(&machine_output::csv(&objects(&departures))?)?;
    } else {
        output::answer(table(&trace, &departures).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn objects(departures: &[Departure]) -> Vec<serde_json::Value> {
    departures
        .iter()
        .map(|departure| {
            json!({
                "id": departure.id, "start": departure.start.to_string(), "end": departure.end.to_string(),
            })
        })
        .collect()
}

fn table(trace: &Trace, departures: &[Departure]) -> String {
    let mut table = String::from("class                 packets        bytes   mean delay    max delay\n");
    for class in trace.delays(departures) {
        let _ = writeln!(
            table,
            "{:<20} {:>8} {:>12} {:>9.3} ms {:>9.3} ms",
            class.name,
            class.packets,
            class.bytes,
            class.mean * 1e3,
            class.max_delay * 1e3
        );
    }
    let end = departures.last().map_or(0.0, |last| last.end.to_f64());
    let _ = write!(table, "{}; the last has left after {end:.6} s", counted(departures.len(), "packet"));
    table
}
