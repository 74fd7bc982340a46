//! `unisono queue cpu`: control groups take turns on the processor, until a signal.

use super::{failure, policy_file};
use crate::machine_output;
use crate::output;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;
use unisono_enforce::READY;
use unisono_enforce::cpu::{self, GroupTime, Options};
use unisono_measure::units;

/// Share processor time by a policy, without the kernel's controller
///
/// Start-time fair queuing, which shares links, also shares processor time as [cpu] says. The control groups
/// take turns: of the groups that want to run one runs, and the others are stopped (cgroup.freeze). Each is
/// charged for the time that it used. A group is never stopped while no other wants to run. The command runs
/// until Ctrl-C, SIGTERM or `unisono queue clear`; however it ends, all groups run on. Only one group runs at
/// a time. Keep the programs on one processor (taskset), or use `unisono queue apply`, where the kernel's
/// controller shares all processors.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue cpu policy.toml
  unisono queue cpu policy.toml --quantum 4ms
  unisono queue cpu policy.toml --json | tail -n 1
      print what each group used, at the end
  unisono queue apply policy.toml --dev eth0 --cpu-shares core
      in the background, with the link")]
pub(crate) struct Args {
    /// The policy, of which only [cpu] matters; - is standard input
    #[arg(value_name = "POLICY")]
    policy: PathBuf,
    #[command(flatten)]
    turns: Turns,
    /// Print JSON Lines: {"kept":true} when the shares are in force, and at the end
    /// {"groups":[{"cgroup","weight","used_us","share"}]}
    #[arg(long)]
    json: bool,
    /// The device whose policy this belongs to
    #[arg(long, value_name = "DEV", hide = true)]
    of: Option<String>,
}

/// The length of a turn.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Turns {
    /// Length of a turn of a control group, if the groups take turns [default: 10ms]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(super) quantum: Option<Duration>,
}

impl Turns {
    fn quantum(&self) -> Duration {
        self.quantum.unwrap_or(Options::default().quantum)
    }
}

/// The process that lets all control groups run after `queue cpu` was killed
#[derive(clap::Args)]
pub(crate) struct GuardArgs {
    journal: PathBuf,
    process: u32,
}

/// The line that `--json` prints when the shares are in force.
const KEPT: &str = r#"{"format":"unisono-queue-cpu-1","kept":true}"#;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (name, policy) = policy_file::read(&args.policy)?;
    failure::warn(&cpu::recover_all().map_err(failure::from_error)?);
    let options = Options { quantum: args.turns.quantum(), device: args.of.clone() };
    let in_background = args.of.is_some();
    let ready = || {
        let line = match (in_background, args.json) {
            (true, _) => READY,
            (_, true) => KEPT,
            _ => "the control groups take turns now; Ctrl-C ends it",
        };
        // the reader may have closed the output
        let mut output = std::io::stdout();
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    };
    let times = cpu::serve(&policy, &options, this_program(&["queue", "cpu-guard"]), ready)
        .map_err(|error| failure::in_policy(Some(&name), error))?;
    if args.json {
        output::answer(&machine_output::json("unisono-queue-cpu-1", &json(&times))?)?;
    } else if !in_background {
        output::answer(&format!("{}processor time: as before", table(&times)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns this group's share of the time that all groups used; zero if no group used any.
fn share(time: &GroupTime, all: &[GroupTime]) -> f64 {
    let total: u64 = all.iter().map(|time| time.used_us).sum();
    time.used_us as f64 / total.max(1) as f64
}

fn json(times: &[GroupTime]) -> serde_json::Value {
    let group = |time: &GroupTime| serde_json::json!({"cgroup": time.cgroup, "weight": time.weight, "used_us": time.used_us, "share": share(time, times)});
    serde_json::json!({"groups": times.iter().map(group).collect::<Vec<_>>()})
}

fn table(times: &[GroupTime]) -> String {
    let width = times.iter().map(|time| time.cgroup.len()).max().unwrap_or(0);
    let line = |time: &GroupTime| {
        let (seconds, part) = (time.used_us as f64 / 1e6, 100.0 * share(time, times));
        format!(
            "{:width$}  weight {:>3}  used {seconds:>9.2} s  {part:>5.1} %\n",
            time.cgroup, time.weight
        )
    };
    times.iter().map(line).collect()
}

pub(crate) fn guard(args: &GuardArgs) -> anyhow::Result<ExitCode> {
    cpu::guard(&args.journal, args.process).map_err(failure::from_error)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a command that runs this program: `/proc/self/exe` is the running program even if its file was
/// replaced.
fn this_program(arguments: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments);
    command
}

/// Returns the command that enforces a policy's shares of processor time in the background.
pub(super) fn keeper(device: &str, turns: &Turns) -> Command {
    let quantum = format!("--quantum={}us", turns.quantum().as_micros());
    this_program(&["queue", "cpu", "-", "--of", device, &quantum])
}
