//! The interposed place on the command line: its options, and the process that serves it.

use super::failure;

use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Duration;
use unisono_enforce::READY;
use unisono_enforce::interposed::{Choice, Interposed, Options, Patience, WayName, serve};
use unisono_linux::read;
use unisono_measure::units;

/// How traffic is interposed; for `--backend interposed` alone.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Way {
    /// How frames come to the queue and go on
    #[arg(long, value_enum, default_value_t)]
    way: By,
    /// How the queue waits for frames: spin takes a processor and saves the wake-ups
    #[arg(long, value_enum, default_value_t)]
    wait: Wait,
    /// How long spin-block spins before it blocks
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "50us")]
    spin_budget: Duration,
    /// Keep the queue on this processor
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// Who decides; fifo heeds neither weights nor ceilings nor limits, to compare with
    #[arg(long, value_enum, default_value_t)]
    discipline: Discipline,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum By {
    /// A TAP device: simple, and everywhere
    #[default]
    Tun,
    /// AF_XDP sockets: fast
    AfXdp,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wait {
    /// Ask again and again
    Spin,
    /// Spin for a while, then block
    #[default]
    SpinBlock,
    /// Sleep until a frame comes
    Block,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Discipline {
    /// Hierarchical start-time fair queuing
    #[default]
    Hsfq,
    /// First in, first out
    Fifo,
}

impl Way {
    pub(crate) fn options(&self, device: &str) -> Options {
        Options {
            device: device.to_owned(),
            way: match self.way {
                By::Tun => WayName::Tun,
                By::AfXdp => WayName::AfXdp,
            },
            choice: match self.discipline {
                Discipline::Hsfq => Choice::Fair,
                Discipline::Fifo => Choice::Fifo,
            },
            patience: match self.wait {
                Wait::Spin => Patience::Spin,
                Wait::SpinBlock => Patience::SpinBlock(self.spin_budget),
                Wait::Block => Patience::Block,
            },
            processor: self.cpu,
        }
    }

    /// The place at a device; what serves it is this program.
    pub(crate) fn place(&self, device: &str, policy: String) -> Interposed {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map(|value| value.get_name().to_owned()).unwrap_or_default()
        };
        use clap::ValueEnum;
        let mut arguments = vec!["queue".to_owned(), "interpose".to_owned(), format!("--dev={device}")];
        arguments.push(format!("--way={}", name(self.way.to_possible_value())));
        arguments.push(format!("--wait={}", name(self.wait.to_possible_value())));
        arguments.push(format!("--discipline={}", name(self.discipline.to_possible_value())));
        arguments.push(format!("--spin-budget={}us", self.spin_budget.as_micros()));
        arguments.extend(self.cpu.map(|cpu| format!("--cpu={cpu}")));
        Interposed::new(self.options(device), policy, move || {
            // the link that the kernel keeps leads to this program even if its file was replaced
            let mut command = Command::new("/proc/self/exe");
            command.args(&arguments);
            command
        })
    }
}

/// Serve an interposed queue in the foreground; the policy comes by standard input
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device
    #[arg(long, value_name = "DEV")]
    dev: String,
    #[command(flatten)]
    way: Way,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let policy = String::from_utf8(read::all(std::io::stdin().lock(), read::HAND_WRITTEN)?)?;
    foreground(&args.way.options(&args.dev), &policy)
}

/// Serves until a signal or `unisono queue clear` ends it.
pub(crate) fn foreground(options: &Options, policy: &str) -> anyhow::Result<ExitCode> {
    let ready = || {
        // whoever waits for it may have gone
        let mut output = std::io::stdout();
        let _ = writeln!(output, "{READY}").and_then(|()| output.flush());
    };
    serve(policy, options, ready).map_err(|error| failure::of(error.into()))?;
    Ok(ExitCode::SUCCESS)
}
