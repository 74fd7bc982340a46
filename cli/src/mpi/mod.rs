//! `unisono mpi`: runs an MPI program with Unisono's windows.

mod company;

use crate::exit::{self, Failure};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_linux::elf::Linking;
use unisono_mpi_preload::{self as preload, Error, HostMpi, build};

/// Run an MPI program with Unisono's one-sided communication
///
/// The program is not changed. A preloaded library serves its windows, and MPI_Barrier among the ranks of a
/// host. Its own MPI (MPICH or Open MPI) does everything else. The command finds out which MPI that is from
/// what the program is linked to, or from the mpiexec that started it, and builds the library once with the
/// mpicc of that MPI.
///
///   mpiexec -n 8 unisono mpi -- ./program
///
/// Ranks on one host share memory. Between hosts the library uses the MPI's own messages.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mpiexec -n 8 unisono mpi -- ./program input
  mpiexec -n 8 unisono mpi --stats -- ./program       what its windows did, at the end
  mpiexec -n 8 unisono mpi -- python3 script.py       mpi4py
  unisono mpi --print -- ./program                    builds what is preloaded, and prints its path")]
pub(crate) struct Args {
    /// The program's MPI, if the command cannot find it out
    #[arg(long, value_name = "MPI", value_parser = ["mpich", "openmpi"])]
    mpi: Option<String>,

    /// Print a table of what the windows of all ranks did when the program ends
    #[arg(long)]
    stats: bool,

    /// Use the MPI's messages among the ranks of a host, too
    #[arg(long)]
    messages: bool,

    /// Run even though another MPI's mpiexec started the program, so that every rank is alone
    #[arg(long)]
    singleton: bool,

    /// Only build the preloaded library, and print its path
    #[arg(long)]
    print: bool,

    /// The program and its arguments
    #[arg(required_unless_present = "print", trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match start(args) {
        Err(error) if company::first_rank_says_it() => Ok(exit::code_of(&error)),
        result => result,
    }
}

fn start(args: Args) -> anyhow::Result<ExitCode> {
    let shim = |mpi| shim(mpi).map_err(worded);
    let given = args.mpi.as_deref().and_then(HostMpi::by_name);
    let Some((name, arguments)) = args.program.split_first() else {
        let mpi = given.ok_or_else(|| {
            Failure::Usage(
                "--print without a program needs the MPI: add --mpi mpich or --mpi openmpi".to_owned(),
            )
        })?;
        crate::output::answer(&shim(mpi)?.display().to_string())?;
        return Ok(ExitCode::SUCCESS);
    };
    let program = preload::find(name).map_err(worded)?;
    preload::in_company(name, |variable| std::env::var(variable).ok()).map_err(worded)?;
    let (mpi, linking) = preload::mpi_of(&program, given).map_err(worded)?;
    if let Some(launcher) = preload::other_launcher(mpi)
        && !args.singleton
    {
        return Err(Failure::Usage(format!(
            "{name} is linked to {}, but the mpiexec of {} started it, with which every rank is alone; \
             use mpiexec.{}, or --singleton if each is to run alone",
            mpi.name(),
            launcher.name(),
            mpi.name()
        ))
        .into());
    }
    let shim = shim(mpi)?;
    if args.print {
        crate::output::answer(&shim.display().to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    if linking == Linking::Static && company::is_first_rank() {
        exit::say(&format!(
            "{name} has no MPI, and is linked statically: 'unisono mpi' serves the programs that it starts, not itself"
        ));
    }
    let mut command = preload::command(&program, &shim);
    command.arg0(name).args(arguments);
    if args.stats {
        command.env("UNISONO_MPI_STATS", "1");
    }
    if args.messages {
        command.env("UNISONO_MPI_TRANSPORT", "messages");
    }
    // the launcher knows this process: the program takes its place, and says at its end if it used no MPI
    command.env("UNISONO_MPI_PROCESS", std::process::id().to_string());
    let error = command.exec();
    Err(Failure::Usage(format!("{} cannot be started: {error}", program.display())).into())
}

fn shim(mpi: HostMpi) -> Result<PathBuf, Error> {
    let unisono = std::env::current_exe()
        .map_err(|source| Error::Io { what: "find this program's own path".to_owned(), source })?;
    let core = build::core(&unisono)?;
    let compiler = build::compiler(mpi)?;
    build::shim(mpi, &compiler, &core, &build::cache()?, &mut |text| exit::say(text))
}

fn worded(error: Error) -> anyhow::Error {
    match error {
        error if error.is_of_host() => Failure::Host(error.to_string()).into(),
        Error::NoProgram { .. }
        | Error::Launcher { .. }
        | Error::Alone { .. }
        | Error::NoMpi { .. }
        | Error::Static { .. }
        | Error::OtherMpi { .. } => Failure::Usage(error.to_string()).into(),
        error => error.into(),
    }
}
