//! `unisono tree bench`: compares barriers in the switches with barriers in software on the same network.

use super::deploy::failure;
use super::input::NetworkSource;
use super::slow::Slow;
use crate::columns::hanging_lines;
use crate::live_view::table_width;
use crate::machine_output::{self, CsvFlag};
use crate::output;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use unisono_btin::{BarrierGroup, GroupId, ReductionOperator, TurnPoint};
use unisono_fabric::bench::{self, BenchProgress, BenchRow, BenchVariant, SOFTWARE};
use unisono_fabric::{BarrierJob, Deployment, hop};
use unisono_measure::interval::Estimate;
use unisono_measure::paired::Finding;
use unisono_measure::units;
use unisono_measure::verdict::{confidence, finding_in_words, format_ratio};
use unisono_text::counted;

/// The definition of this command's times; `tree deploy` has another definition.
const MEASURED: &str = "time of a barrier: the mean of a run, after a warm-up; set-up, the start of \
                        processes and the run's first barriers are not in it";

/// The expected time of the measurement is announced if it is longer than this.
const LONG: Duration = Duration::from_secs(10);

/// Measure barriers in the switches against the best barriers in software
///
/// The command builds the network as `tree deploy` does, with one process for each member. It then runs these
/// barriers in turns. Two run in the switches: the paper's, which the root node releases (btin in `tree
/// simulate`), and one that the root switch releases (btin_turn). Four run in software, over UDP through the
/// same switches: a central barrier, combining trees with four and with eight children, and a dissemination
/// barrier. Then everything is removed, as by `tree deploy`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono tree generate --members 256 | sudo unisono tree bench -
      75 switches, 256 members: what the switches save
  sudo unisono tree bench net.json --members all --repetitions 9 --json
      every node a member; the runs themselves, for your own statistics
  sudo unisono tree bench net.json --hop
      also what one hop through a switch costs, from lines of switches of two
      lengths

With more members than processors the time of a barrier is the work of all members together, not its latency: \
`tree simulate` shows latencies. Each variant is run until it is warm; then runs of all variants are interleaved. n: runs of \
each variant; barriers: in each run; timeouts: how often a member sent its messages again. Intervals are 95 % \
confidence intervals of the median; below n = 6 the level is lower. The ratio is the median of the ratios within \
each repetition. The verdict is by the rule of unisono study: one side is faster if the whole interval of the ratio is \
on its side of 1; there is no difference if the interval contains 1 and is at most 0.1 wide; otherwise, and with \
fewer than three repetitions, it is not decided.")]
pub(crate) struct Args {
    #[command(flatten)]
    source: NetworkSource,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
    /// About how long each run lasts; a run has at least ten barriers, or five slow ones
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "200ms")]
    length: Duration,
    /// Also measure what one hop costs: a message on one cable and in the switch behind it
    #[arg(long)]
    hop: bool,
    /// Print the figures as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.source.read()?;
    let group = input.group()?;
    let _note = super::prepare("tree bench")?;
    let network = &input.topology.network;
    // one job for each turning point, with the same members, so that the registers of both are set up at once
    let turns = [TurnPoint::AtNode, TurnPoint::AtSwitch];
    let mut jobs = Vec::new();
    for (id, turn) in (0..).zip(turns) {
        let group = BarrierGroup::new(network, GroupId(id), group.members().to_vec())?;
        jobs.push(BarrierJob { group, turn, operation: ReductionOperator::Or });
    }
    let mut deployment = Deployment::new(network, &jobs).map_err(failure)?;
    deployment.set_up().map_err(failure)?;
    let mut variants: Vec<BenchVariant> =
        (0..).zip(turns).map(|(job, turn)| BenchVariant::Switches(job, turn)).collect();
    variants.extend(SOFTWARE.map(BenchVariant::Software));
    let mut slow = Slow::new();
    let progress = |progress: BenchProgress<'_>| match progress {
        BenchProgress::Planned(time) if time > LONG => {
            eprintln!(
                "unisono: {}: the runs will take about {:.0} s",
                counted(group.members().len(), "member"),
                time.as_secs_f64()
            );
        }
        BenchProgress::Planned(_) => {}
        BenchProgress::Run(begun, all, variant) => slow.run(begun, all, &variant.to_string()),
    };
    let rows = bench::compare(&mut deployment, &variants, args.repetitions, args.length, progress);
    slow.end();
    let rows = rows.map_err(failure)?;
    drop(deployment);
    let hop = if args.hop { hop::measure(args.repetitions, args.length).map_err(failure)? } else { None };
    let members = group.members().len();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if args.json {
        let object = as_json(&rows, hop, network.switch_count(), members, processors);
        output::answer(&machine_output::json("unisono-tree-bench-1", &object)?)?;
    } else if args.table.csv {
        output::answer(&machine_output::csv(&row_objects(&rows))?)?;
    } else {
        as_table(&rows, hop, network.switch_count(), members, processors)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_table(
    rows: &[BenchRow],
    hop: Option<Estimate>,
    switches: usize,
    members: usize,
    processors: usize,
) -> std::io::Result<()> {
    output::answer(&format!(
        "{} on {}, a process each on {}\n{}\n\n{:<22}{:>10}   {:<22}{:>4}{:>10}{:>9}",
        counted(members, "member"),
        counted(switches, "switch"),
        counted(processors, "processor"),
        hanging_lines(MEASURED, table_width()),
        "barrier",
        "median us",
        "95 % interval",
        "n",
        "barriers",
        "timeouts"
    ))?;
    for BenchRow { variant, micros, runs, barriers, repeated } in rows {
        let Some(micros) = micros else { continue };
        output::answer(&format!(
            "{:<22}{:>10.1}   {:<22}{:>4}{barriers:>10}{repeated:>9}",
            variant.to_string(),
            micros.value,
            format!("{:.1} to {:.1}", micros.low, micros.high),
            runs.len(),
        ))?;
    }
    if let Some(verdict) = verdict(rows) {
        output::answer(&format!("\n{}", hanging_lines(&verdict, table_width())))?;
    }
    if let Some(hop) = hop {
        output::answer(&format!(
            "one hop, by a cable and a switch: {:.3} us ({:.3} to {:.3}, n = {})",
            hop.value, hop.low, hop.high, hop.n
        ))?;
    }
    Ok(())
}

/// Returns whether barriers in the switches are faster than barriers in software, and the ratio that decides.
fn verdict(rows: &[BenchRow]) -> Option<String> {
    let (ours, theirs, compared) = bench::advantage(rows)?;
    let words = match compared.finding(bench::ADVANTAGE) {
        Finding::Better => "the switches are faster",
        Finding::Worse => "software is faster",
        finding => finding_in_words(finding),
    };
    Some(format!(
        "verdict: {words}\nbest in software ({theirs}) / best in the switches ({ours}): {} times ({})",
        format_ratio(compared.ratio.value),
        confidence(&compared)
    ))
}

fn estimate(estimate: Estimate) -> serde_json::Value {
    json!({"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n})
}

/// Returns the figures of each barrier.
fn row_objects(rows: &[BenchRow]) -> Vec<serde_json::Value> {
    let object = |row: &BenchRow| {
        json!({"name": row.variant.to_string(), "us_per_barrier": row.micros.map(estimate), "runs_us": row.runs,
            "barriers_per_run": row.barriers, "repeated": row.repeated})
    };
    rows.iter().map(object).collect()
}

fn as_json(
    rows: &[BenchRow],
    hop: Option<Estimate>,
    switches: usize,
    members: usize,
    processors: usize,
) -> serde_json::Value {
    let barriers = row_objects(rows);
    let advantage = bench::advantage(rows).map(|(ours, theirs, compared)| {
        let finding = match compared.finding(bench::ADVANTAGE) {
            Finding::Better => "better",
            Finding::Worse => "worse",
            Finding::Same => "same",
            Finding::Undecided => "undecided",
        };
        json!({"software": theirs.to_string(), "switches": ours.to_string(), "finding": finding,
            "ratio": estimate(compared.ratio)})
    });
    json!({"switches": switches, "members": members, "processors": processors, "processes": members,
        "barriers": barriers, "advantage": advantage, "hop_us": hop.map(estimate)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::interval::median_interval;

    /// Returns a row for each variant; all of its runs have this mean time, in microseconds.
    fn rows(runs: usize, switches: f64, software: f64) -> Vec<BenchRow> {
        let row = |variant, micros| {
            let runs = vec![micros; runs];
            BenchRow { variant, micros: median_interval(&runs, 0.95), runs, barriers: 10, repeated: 0 }
        };
        vec![
            row(BenchVariant::Switches(0, TurnPoint::AtNode), switches),
            row(BenchVariant::Software(SOFTWARE[0]), software),
        ]
    }

    #[test]
    fn the_verdict_names_the_faster_side_and_needs_three_repetitions() {
        let said = |runs, switches, software| verdict(&rows(runs, switches, software)).expect("two variants");
        let ratio = "best in software (UDP, central) / best in the switches (switches, root node)";
        assert_eq!(
            said(7, 10.0, 25.0),
            format!(
                "verdict: the switches are faster\n{ratio}: 2.50 times (95 % interval 2.50 to 2.50, n = 7)"
            )
        );
        assert!(said(7, 25.0, 10.0).starts_with("verdict: software is faster\n"));
        assert!(said(7, 10.0, 10.0).starts_with("verdict: no difference\n"));
        assert!(said(2, 10.0, 25.0).starts_with("verdict: not decided\n"));
        assert_eq!(verdict(&rows(7, 10.0, 25.0)[..1]), None);
    }
}
