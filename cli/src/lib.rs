//! The `unisono` program: parses arguments and prints answers. Each subcommand is a file or a folder with an
//! `Args` type and a `run` function; the crates do the work. `unisono-laboratory` is the same program with
//! more studies.
//!
//! Exit codes: 0 done; 1 the work failed; 2 bad usage or bad input; 3 this host cannot do it, or the broker,
//! the daemon or the policy that is needed is not there.
#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the documents of arguments are help texts, in which [x] is no link"
)]

/// Replaces the standard library's macro: it prints by [`output::remark`], which escapes control characters,
/// because standard error may contain text from outside this program.
macro_rules! eprint {
    ($($what:tt)*) => { $crate::output::remark(format_args!($($what)*)) };
}

macro_rules! eprintln {
    ($($what:tt)*) => { $crate::output::remark(format_args!("{}\n", format_args!($($what)*))) };
}

mod advise;
mod barrier;
mod columns;
mod completions;
mod doctor;
#[cfg(test)]
mod documented_commands_tests;
mod events;
mod exit;
mod fit;
mod flags;
mod gang;
mod gang_install;
mod gang_service;
mod gang_simulate;
mod gang_table;
mod help;
mod live_view;
mod machine_output;
mod man;
mod mpi;
mod output;
mod queue;
mod report;
mod run;
mod separators;
mod service;
mod study;
mod text_file;
mod tree;
mod user;
mod version;
mod workload;

pub use exit::{Failure, code};
pub use flags::one_of;
pub use study::LABORATORY_STUDIES;
pub use workload::{KernelArgs, measure, scene};

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;
use std::sync::LazyLock;
use unisono_linux::process;

/// Shorten the waits of parallel programs that share a machine or a network
///
/// A thread that waits can spin: it then holds a processor that the thread it waits for may need. Or it can
/// block: waking it then takes microseconds. Unisono measures both costs on this machine, offers
/// barriers that choose between them, and runs unmodified parallel programs as gangs: all threads of a
/// program run at the same time, and the programs take turns.
#[derive(Parser)]
#[command(
    name = "unisono",
    version = VERSION.as_str(),
    propagate_version = true,
    after_long_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The release and the commit: `0.2.0 (0123456789ab)`.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), unisono_study::COMMIT));

const EXAMPLES: &str = "\
Start here:
  unisono study                           measure what waiting costs here
  unisono doctor                          show what this host supports
  unisono barrier --threads 2             measure one barrier
  sudo unisono gang run -- ./a ::: ./b    run two programs in turns
  unisono fit -- ./mine                   run one thread for each processor
  unisono advise -- ./mine ::: ./yours    try what makes two programs fast
  unisono run -n 4 ./mine                 start four processes with windows
  mpiexec -n 8 unisono mpi -- ./program   give MPI faster windows and waits
  unisono tree generate > net.json        draw a network, for its barriers
  sudo unisono queue show                 watch the shares of a link
  unisono events serve                    publish and subscribe

Exit codes: 0 done; 1 the work failed; 2 bad usage or bad input; 3 this host cannot do it, or the broker, the daemon or the policy is not there.
Every table has --json; answers go to standard output, progress and warnings to standard error.";

#[derive(Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, read once")]
enum Command {
    Doctor(doctor::Args),
    Study(study::Args),
    Report(report::Args),
    Barrier(Box<barrier::Args>),
    Gang(gang::Args),
    Fit(fit::Args),
    Advise(advise::Args),
    Run(run::Args),
    Mpi(mpi::Args),
    Tree(tree::Args),
    Queue(queue::Args),
    Events(events::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[command(hide = true)]
    Workload(Box<workload::Args>),
}

/// Runs the command that the command line names.
#[must_use]
pub fn main() -> ExitCode {
    unisono_linux::ignored_signals::keep_children();
    completions::answer_shell();
    if version::is_asked_as_json(&std::env::args_os().skip(1).collect::<Vec<_>>()) {
        return exit::code(version::print_json());
    }
    let typed: Vec<_> = std::env::args_os().collect();
    let result = match Cli::try_parse_from(&typed)
        .unwrap_or_else(|error| help::with_explanation(error, &Cli::command(), &typed).exit())
        .command
    {
        Command::Doctor(args) => doctor::run(args),
        Command::Study(args) => study::run(args),
        Command::Report(args) => report::run(args),
        Command::Barrier(args) => barrier::run(*args),
        Command::Gang(args) => gang::run(args),
        Command::Fit(args) => fit::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Mpi(args) => mpi::run(args),
        Command::Tree(args) => guarded(|| tree::run(args)),
        Command::Queue(args) => guarded(|| queue::run(args)),
        Command::Events(args) => guarded(|| events::run(args)),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Workload(args) => workload::run(*args),
    };
    exit::code(result)
}

/// Runs a command that creates files owned by root and starts no programs for the user. It first sets a umask
/// that lets no other user write these files.
fn guarded(command: impl FnOnce() -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    process::deny_writing_by_others();
    command()
}
