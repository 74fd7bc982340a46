//! The options of `--backend interposed`, and the process that serves the queue.

use super::failure;
use crate::flags::one_of;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Duration;
use unisono_enforce::READY;
use unisono_enforce::interposed::{
    EngineDiscipline, FramePathName, Interposed, Options, RequestedOptions, WaitStrategy, serve,
};
use unisono_linux::read;
use unisono_measure::units;

/// The options of `--backend interposed`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct InterposeOptions {
    /// How frames reach the queue and leave it [default: tun]
    #[arg(long, value_parser = one_of(&FramePathName::ALL))]
    way: Option<FramePathName>,
    /// How the queue waits for frames; spin occupies a processor and saves wake-ups [default: spin-block]
    #[arg(long, value_parser = one_of(&WaitStrategy::ALL))]
    wait: Option<WaitStrategy>,
    /// Time for which spin-block spins before it blocks [default: 50us]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    spin_budget: Option<Duration>,
    /// Run the queue on this processor
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// The rule that decides which packet is sent next; fifo, for comparison, ignores weights, ceilings and
    /// limits [default: hsfq]
    #[arg(long, value_parser = one_of(&EngineDiscipline::ALL))]
    discipline: Option<EngineDiscipline>,
}

fn name_of<T: PartialEq>(value: T, all: &[(T, &'static str, &'static str)]) -> &'static str {
    all.iter().find(|(known, _, _)| *known == value).map_or("", |(_, name, _)| name)
}

impl InterposeOptions {
    /// Returns the names of the options that were given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let given = [
            ("--way", self.way.is_some()),
            ("--wait", self.wait.is_some()),
            ("--spin-budget", self.spin_budget.is_some()),
            ("--cpu", self.cpu.is_some()),
            ("--discipline", self.discipline.is_some()),
        ];
        given.into_iter().filter_map(|(option, is_given)| is_given.then_some(option)).collect()
    }

    fn requested_options(&self) -> RequestedOptions {
        let wait = match (self.wait, self.spin_budget) {
            (None | Some(WaitStrategy::SpinBlock(_)), Some(budget)) => Some(WaitStrategy::SpinBlock(budget)),
            (wait, _) => wait,
        };
        RequestedOptions { way: self.way, choice: self.discipline, wait, processor: self.cpu }
    }

    pub(crate) fn options(&self, device: &str) -> Options {
        self.requested_options().applied_to(&Options::at(device))
    }

    /// Returns the interposed backend of a device, whose queue is served by this program.
    pub(crate) fn backend(&self, device: &str) -> Interposed {
        Interposed::new(device, self.requested_options(), server)
    }
}

/// Returns the command that serves a queue with these options.
pub(crate) fn server(options: &Options) -> Command {
    // `/proc/self/exe` is the running program even if its file was replaced
    let mut command = Command::new("/proc/self/exe");
    command.args(["queue", "interpose"]).arg(format!("--dev={}", options.device));
    command.arg(format!("--way={}", name_of(options.way, &FramePathName::ALL)));
    command.arg(format!("--discipline={}", name_of(options.choice, &EngineDiscipline::ALL)));
    command.arg(format!("--wait={}", options.wait.name()));
    if let WaitStrategy::SpinBlock(budget) = options.wait {
        command.arg(format!("--spin-budget={}us", budget.as_micros()));
    }
    command.args(options.processor.map(|processor| format!("--cpu={processor}")));
    command
}

/// Serve an interposed queue in the foreground; the policy comes by standard input
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device
    #[arg(long, value_name = "DEV")]
    dev: String,
    #[command(flatten)]
    way: InterposeOptions,
    /// The file descriptor of the lock of the journals
    #[arg(long, value_name = "NUMBER")]
    lock: Option<i32>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = String::from_utf8(read::all(std::io::stdin().lock(), read::HAND_WRITTEN)?)?;
    foreground(&Options { lock: args.lock, ..args.way.options(&args.dev) }, &policy)
}

/// Serves until a signal or `unisono queue clear` ends it.
pub(crate) fn foreground(options: &Options, policy: &str) -> anyhow::Result<ExitCode> {
    let ready = || {
        // the reader may have closed the output
        let mut output = std::io::stdout();
        let _ = writeln!(output, "{READY}").and_then(|()| output.flush());
    };
    serve(policy, options, ready).map_err(|error| failure::from_error(error.into()))?;
    Ok(ExitCode::SUCCESS)
}
