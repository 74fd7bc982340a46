//! `unisono run`: starts the processes of a native one-sided program, without MPI.

use crate::exit::{self, Failure};
use crate::flags::one_of;
use crate::machine_output;
use anyhow::Context;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use unisono_launch::{Bind, Cluster, Error, HostRanks, LaunchCommand, Options, Prefix, WindowTable};
use unisono_measure::units;

/// Start N processes of a native one-sided program (no MPI needed)
///
/// The program uses the Rust crate unisono-rma or the C library libunisono. Each process reads its rank from
/// the environment (UNISONO_RANK, UNISONO_SIZE, UNISONO_JOB). --hosts spreads the processes over several
/// hosts. Standard input goes to rank 0. Output is passed on as it comes, in whole lines.
#[derive(clap::Args)]
#[command(override_usage = "unisono run [OPTIONS] -n <N> <PROGRAM> [ARGS]...\n       \
    unisono run [OPTIONS] --hosts <HOST:N>,... <PROGRAM> [ARGS]...")]
#[command(after_help = "Examples:
  unisono run -n 4 ./heat --size 512
      four processes; everything after the program's name belongs to the program
  unisono run -n 8 --prefix --timeout 30s ./table
      lines say whose they are; the job is ended after half a minute
  unisono run -n 2 --json ./table >run.json
      one JSON object follows on the last line of standard output
  unisono run --hosts node1:4,node2:4 ./heat --size 512
      eight processes on two hosts, reached by ssh
  unisono run --hosts a=10.0.0.1:2,b=10.0.0.2:2 \\
          --launch 'ip netns exec {host} {args}' ./table
      two network namespaces, and the addresses at which they reach each other

Several hosts: --launch runs a helper on each host. The helper starts that host's processes in the directory of the \
same name, with the environment that it finds there. unisono must have the same path on all hosts. The job's key goes \
over the helper's standard input. Processes of one host share memory. Processes of different hosts talk over TCP, \
unencrypted: use a network that you trust. Rank 0 listens on the first host; give its address with '=' where its name \
has none here. When a host is lost, the others end and the exit code is 1. Under Slurm, --launch srun starts the helpers; or start the program \
itself: export UNISONO_JOB=$(openssl rand -hex 16), then srun -n 8 ./heat.

Where ranks run: --bind auto gives each rank a processor of its own if there are enough, because Linux may put two \
ranks that wait for each other on one processor. If there are too few, no rank is bound, because the kernel balances \
better than a fixed assignment. Two jobs that run at the same time are bound to the same processors: divide the \
processors with taskset, or give --bind none.

Signals: SIGINT (Ctrl-C), SIGTERM, SIGHUP, SIGQUIT and SIGALRM are passed on to every rank and to the processes \
that it started; a second such signal kills them. SIGUSR1, SIGUSR2, SIGWINCH and SIGCONT are passed on each time. Ctrl-Z stops all ranks of this host. \
When this process is killed, the ranks are killed, too.

Exit codes: the first failing rank's (128 + N if signal N ended it); 124 after --timeout; 2 bad usage, or the program \
cannot be started. When a rank fails, the others are given --grace to end by themselves, then told to (SIGTERM), and \
after the same time killed.")]
pub(crate) struct Args {
    /// Processes to start (1 to 4096)
    #[arg(short = 'n', long, value_name = "N", required_unless_present_any = ["hosts", "helper"])]
    ranks: Option<usize>,
    /// Hosts and how many processes each starts: NAME:N or NAME=ADDRESS:N, in the order of ranks
    #[arg(long, value_name = "HOST:N", value_delimiter = ',', conflicts_with = "ranks")]
    hosts: Vec<HostRanks>,
    /// The command that starts a process on a host: ssh, srun, or a command with {host} and {args} in it
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "hosts")]
    launch: LaunchCommand,
    /// The port at which rank 0 listens for the other hosts [default: a random one from 20000 to 31999]
    #[arg(long, value_name = "PORT", requires = "hosts", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Start the processes that the launcher on another host asks for
    #[arg(long, hide = true, conflicts_with_all = ["ranks", "hosts", "command"])]
    helper: bool,
    /// Begin each line with its rank: "[3] "
    #[arg(long)]
    prefix: bool,
    /// On which processors ranks run
    #[arg(long, value_parser = one_of(&BIND), default_value = "auto", value_name = "WHERE")]
    bind: Bind,
    /// End the job after this time
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    timeout: Option<Duration>,
    /// Time that the other ranks get before SIGTERM, and again before SIGKILL
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2s")]
    grace: Duration,
    /// Also start a program that is linked to an MPI or imports mpi4py: each rank is alone
    #[arg(long)]
    singleton: bool,
    /// Print at the end a table of the operations on the windows of all ranks
    #[arg(long)]
    stats: bool,
    /// Print a summary as one JSON object on standard output, after the ranks' output
    #[arg(long)]
    json: bool,
    /// Write the summary into this file as JSON
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required_unless_present = "helper", trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"], num_args = 1..)]
    command: Vec<OsString>,
}

/// Refuses MPI programs, because each of their processes would be a job of one rank here.
fn refuse_mpi(args: &Args) -> Result<(), Failure> {
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let name = |word: &str| Path::new(word).file_name().map(|name| name.to_string_lossy().into_owned());
    let ranks = args.ranks.unwrap_or_else(|| args.hosts.iter().map(|host| host.ranks).sum());
    match &words[..] {
        _ if ranks < 2 || args.singleton => {}
        [first, second, rest @ ..] if second == "mpi" && name(first).as_deref() == Some("unisono") => {
            return Err(Failure::Usage(format!(
                "'unisono run' starts programs without MPI, and every rank would be alone; \
                 write 'mpiexec -n {ranks} unisono mpi {}'",
                rest.join(" ")
            )));
        }
        [program, ..] => {
            let linked = unisono_mpi_preload::linked_to(program)
                .map(|mpi| format!("is linked to an MPI ({})", mpi.name()));
            let has_mpi = linked.or_else(|| {
                unisono_fit::uses_mpi4py(&args.command).then(|| "loads an MPI through mpi4py".to_owned())
            });
            if let Some(has_mpi) = has_mpi {
                return Err(Failure::Usage(format!(
                    "{program} {has_mpi}, whose mpiexec starts its ranks: from 'unisono run' every rank \
                     would be alone; write 'mpiexec -n {ranks} unisono mpi -- {}', or give --singleton if \
                     each is to run alone",
                    words.join(" ")
                )));
            }
        }
        [] => {}
    }
    Ok(())
}

const BIND: [(Bind, &str, &str); 3] = [
    (Bind::Auto, "auto", "One processor for each rank if there are enough, otherwise like none"),
    (
        Bind::Core,
        "core",
        "One processor for each rank; several ranks share one if there are too few",
    ),
    (Bind::None, "none", "The kernel decides"),
];

/// The name of the format of a job's summary.
const FORMAT: &str = "unisono-run-1";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.helper {
        let code =
            unisono_launch::help(exit::print_error).map_err(|error| Failure::Usage(error.to_string()))?;
        return Ok(ExitCode::from(code));
    }
    refuse_mpi(args)?;
    let options = Options {
        ranks: args.ranks.unwrap_or_default(),
        command: args.command.clone(),
        bind: args.bind,
        prefix: if args.prefix { Prefix::Rank } else { Prefix::None },
        windows: if args.stats { WindowTable::Printed } else { WindowTable::Omitted },
        grace: args.grace,
        limit: args.timeout,
    };
    let done = if args.hosts.is_empty() {
        unisono_launch::run(&options, exit::print_error)
    } else {
        let program = std::env::current_exe().context("find this program's own path")?;
        let cluster = Cluster {
            hosts: args.hosts.clone(),
            launch: args.launch.clone(),
            helper: vec![program.into(), "run".into(), "--helper".into()],
            port: args.port,
        };
        unisono_launch::run_across(&options, &cluster, exit::print_error)
    };
    let summary = done.map_err(|error| match error {
        Error::Input(_) | Error::Program { .. } => Failure::Usage(error.to_string()).into(),
        error => anyhow::Error::from(error),
    })?;
    if let Some(file) = &args.summary {
        let text = machine_output::pretty_json(FORMAT, &summary)? + "\n";
        std::fs::write(file, text)
            .with_context(|| format!("cannot write the summary to {}", file.display()))?;
    }
    if args.json {
        writeln!(std::io::stdout(), "{}", machine_output::json(FORMAT, &summary)?)?;
    }
    Ok(ExitCode::from(summary.exit_code))
}
