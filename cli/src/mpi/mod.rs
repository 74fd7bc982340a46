//! `unisono mpi`: runs an MPI program with Unisono's windows and waits.

mod first_rank;

use crate::exit::{self, Failure};
use anyhow::Context;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use unisono_btin::NetworkFile;
use unisono_linux::elf::Linking;
use unisono_linux::programs::executable;
use unisono_mpi_preload::{self as preload, Error, libraries};
use unisono_text::shell_quoted;

/// Run an MPI program with Unisono's windows and waits
///
/// The command loads a library into the program; the program's file stays as it is. The library replaces
/// MPI's windows and, among the ranks of one host, MPI_Barrier. The program's own MPI does the rest: MPICH
/// from 3.1 on, Open MPI 3 to 5, Intel MPI and others with the ABI of MPICH, and every MPI with the standard
/// ABI of MPI 5.0. The library finds out in the program's process which MPI is loaded. It needs neither a
/// compiler nor headers.
///
/// With MPICH the library also changes how ranks wait for messages (MPI_Recv, MPI_Wait and the like) and in
/// collectives. Where ranks outnumber processors, a rank that waits gives way to the other ranks. Beside
/// other programs it sleeps. A rank that waits in MPICH itself spins: it keeps the processor from the rank
/// that it waits for. `--only windows` leaves waits and collectives as they are.
///
///   mpiexec -n 8 unisono mpi -- ./program
///
/// Ranks on one host share memory. Between hosts the library uses the MPI's own messages, except for barriers
/// with --tree.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mpiexec -n 8 unisono mpi -- ./program input
  mpiexec -n 8 unisono mpi --stats -- ./program
      what its windows did and its waits cost, at the end
  mpiexec -n 8 unisono mpi --json FILE -- ./program
      the same, as JSON in a file
  mpiexec -n 8 unisono mpi --only windows -- ./program
      waits and collectives stay the MPI's
  mpiexec -n 8 unisono mpi -- python3 script.py
      mpi4py
  mpiexec -n 1 ./master : -n 8 unisono mpi --partly -- ./worker
  mpiexec -hosts n1,n2 -n 8 unisono mpi --tree net.json -- ./program
      barriers along the network's links
  unisono mpi --print
      prints what is preloaded
  unisono mpi --mpicc /opt/mpi/bin/mpicc -- ./program
      compiles a bridge to an MPI with another ABI")]
pub(crate) struct Args {
    /// Compile a bridge with this mpicc, for an MPI that has none of the known ABIs
    #[arg(long, value_name = "MPICC")]
    mpicc: Option<String>,

    /// Print at the program's end the operations on the windows of all ranks, and the cost of their waits
    ///
    /// One table has a line for each call that waits: how long it waited, how many of its waits were crowded,
    /// and the gain. A wait is crowded if ranks outnumber processors, or if other programs want the
    /// processors as well. To know the gain, a few crowded waits are left to the MPI. They take about 2 % of
    /// the time.
    #[arg(long)]
    stats: bool,

    /// Write the tables of --stats, and the waits of each rank, into this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Serve nothing but windows and MPI_Barrier
    #[arg(long, value_name = "WHAT", value_parser = ["windows"])]
    only: Option<String>,

    /// Use the MPI's messages among the ranks of a host, too
    #[arg(long)]
    messages: bool,

    /// Barriers between hosts follow the links of this network (btin-topo-1)
    ///
    /// MPI_Barrier on a communicator with ranks on several hosts then goes along a tree of hosts, planned as
    /// 'unisono tree plan' plans it; the ranks of a host share memory. It runs in the switches where 'unisono
    /// tree deploy NETWORK --serve' has programmed them. Each host is found in the network by its name or one
    /// of its IPv4 addresses in `node_names`. Every host needs the same file under the same
    /// path. Where that is not so, or the hosts cannot connect, one line says so and the barriers stay the
    /// MPI's.
    #[arg(long, value_name = "NETWORK", conflicts_with = "messages")]
    tree: Option<PathBuf>,

    /// Run even though another MPI's mpiexec started the program, so that every rank is alone
    #[arg(long)]
    singleton: bool,

    /// Serve the ranks that run under 'unisono mpi' though other ranks of the job do not
    ///
    /// All processes of a job normally run under 'unisono mpi' with the same options, and a job of which some
    /// do not is ended. With this option at each 'unisono mpi' of the job, communicators are served if all of
    /// their members are. Example: mpiexec -n 1 ./master : -n 8 unisono mpi --partly -- ./worker
    #[arg(long)]
    partly: bool,

    /// MPI_Comm_spawn of served ranks started this process
    #[arg(long, hide = true)]
    spawned: bool,

    /// Only print the path of the preloaded library
    #[arg(long)]
    print: bool,

    /// The program and its arguments
    #[arg(required_unless_present = "print", trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

impl Args {
    /// Returns the options that must be the same for every rank of a job, apart from options that name files.
    fn shared_options(&self) -> Vec<String> {
        let flags = [("--stats", self.stats), ("--messages", self.messages), ("--partly", self.partly)];
        let mut options: Vec<String> =
            flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.to_owned()).collect();
        options.extend(self.only.iter().flat_map(|only| ["--only".to_owned(), only.clone()]));
        let network = self.tree.iter().map(|network| absolute(network).display().to_string());
        options.extend(network.flat_map(|network| ["--tree".to_owned(), network]));
        options
    }

    /// Returns the options of the 'unisono mpi' that starts a spawned process. `--json` is not among them,
    /// because the parents write its file.
    fn options_of_children(&self) -> Vec<String> {
        let mut options = self.shared_options();
        options.extend(self.mpicc.iter().flat_map(|mpicc| ["--mpicc".to_owned(), mpicc.clone()]));
        options
    }

    /// Returns the words that every rank of a job must have in common: the version of Unisono and the
    /// options.
    fn agreement(&self) -> String {
        let mut words = vec![format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), libraries::build())];
        words.extend(self.shared_options());
        words.extend(self.json.is_some().then(|| "--json".to_owned()));
        words.join(" ")
    }
}

/// Names the launcher of an MPI. Debian has several launchers, with suffixes; other installations do not.
fn own_launcher(mpi: &str, exists: impl Fn(&str) -> bool) -> String {
    let suffixed = format!("mpiexec.{mpi}");
    if exists(&suffixed) {
        return suffixed;
    }
    format!("the mpiexec of the {mpi} that compiled it, by its path (pip: in the environment's bin)")
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match start(args) {
        Err(error) if first_rank::first_rank_reports() => Ok(exit::code_of(&error)),
        result => result,
    }
}

fn start(args: Args) -> anyhow::Result<ExitCode> {
    if args.print {
        let (library, _) = find_libraries(args.mpicc.as_deref()).map_err(usage_error)?;
        crate::output::answer(&library.display().to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(command) = command_behind_launcher(&args.program, std::env::args_os().skip(1).collect()) {
        let text = "an MPI's launcher starts the ranks and belongs before 'unisono mpi'; write";
        return Err(Failure::Usage(format!("{text}: {command}")).into());
    }
    let (name, arguments) = args.program.split_first().expect("clap requires one unless --print is given");
    let program = preload::find(name).map_err(usage_error)?;
    preload::require_launcher(name, |variable| std::env::var(variable).ok()).map_err(usage_error)?;
    let (mpi, linking) = preload::linking_of(&program).map_err(usage_error)?;
    if let Some(mpi) = mpi
        && let Some(launcher) = preload::other_launcher(mpi)
        && !args.singleton
    {
        return Err(Failure::Usage(format!(
            "{name} is linked to {}, but the mpiexec of {} started it, with which every rank is alone; \
             use {}, or --singleton if each is to run alone",
            mpi.name(),
            launcher.name(),
            own_launcher(mpi.name(), |name| executable(Path::new(name)).is_ok())
        ))
        .into());
    }
    if linking == Linking::Inside {
        if first_rank::is_first_rank() {
            exit::print_error(&format!(
                "{name} has its MPI linked in statically, where nothing can be preloaded; it runs without \
                 Unisono's windows (link it to the MPI's shared library to have them)"
            ));
        }
        let mut command = Command::new(&program);
        return Err(start_error(command.arg0(name).args(arguments), &program));
    }
    if let Some(network) = &args.tree {
        check_network(network)?;
    }
    // an error about the program is reported before any library is built for it
    let (library, bridge) = find_libraries(args.mpicc.as_deref()).map_err(usage_error)?;
    if linking == Linking::Static && first_rank::is_first_rank() {
        exit::print_error(&format!(
            "{name} has no MPI, and is linked statically: 'unisono mpi' serves the programs that it starts, not itself"
        ));
    }
    let mut command = preload::command(&program, &library);
    command.arg0(name).args(arguments);
    let flags = [
        (args.stats, ("UNISONO_MPI_STATS", "1")),
        (args.messages, ("UNISONO_MPI_TRANSPORT", "messages")),
        (args.partly, ("UNISONO_MPI_PARTLY", "1")),
        (args.singleton, ("UNISONO_MPI_SINGLETON", "1")),
        (args.spawned, ("UNISONO_MPI_SPAWNED", "1")),
    ];
    command.envs(flags.into_iter().filter(|(given, _)| *given).map(|(_, variable)| variable));
    command.envs(bridge.map(|bridge| ("UNISONO_MPI_BRIDGE", bridge)));
    command.envs(args.json.as_ref().map(|file| ("UNISONO_MPI_STATS_JSON", absolute(file))));
    command.envs(args.tree.as_ref().map(|network| ("UNISONO_MPI_TREE", absolute(network))));
    command.envs(args.only.as_ref().map(|only| ("UNISONO_MPI_ONLY", only)));
    let unisono = std::env::current_exe().context("find this program's own path")?;
    command.env("UNISONO_MPI_PROGRAM", unisono);
    command.env("UNISONO_MPI_OPTIONS", args.options_of_children().join("\n"));
    command.env("UNISONO_MPI_AGREEMENT", args.agreement());
    // The launcher knows this process's ID, which stays the same when the program replaces it. The process
    // that has this ID reports at its end if it used no MPI.
    command.env("UNISONO_MPI_PROCESS", std::process::id().to_string());
    Err(start_error(&mut command, &program))
}

/// Returns the command to type in place of a command with `unisono mpi` before the launcher: the launcher
/// with its options first, then `unisono mpi` with its own, then the program. `words` are this process's
/// arguments without its name. Returns `None` if `program` starts no launcher, or if the launcher starts no
/// program.
fn command_behind_launcher(program: &[String], mut words: Vec<OsString>) -> Option<String> {
    let program: Vec<OsString> = program.iter().map(OsString::from).collect();
    words.truncate(words.len().saturating_sub(program.len()));
    words.insert(0, "unisono".into());
    if words.last().is_some_and(|word| word != "--") {
        words.push("--".into());
    }
    let command = unisono_fit::with_prefixed_ranks(&program, preload::is_launcher, &words)?;
    Some(shell_quoted(&command))
}

/// Returns a path that stays right if the program changes its directory.
fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf())
}

/// Fails if a file is no network that the ranks can read.
fn check_network(file: &Path) -> anyhow::Result<()> {
    let shown = file.display();
    let text =
        std::fs::read_to_string(file).map_err(|error| Failure::Usage(format!("--tree {shown}: {error}")))?;
    let network = NetworkFile::from_json(&text).map_err(|error| {
        Failure::Usage(format!(
            "--tree {shown}:{error}; files in other formats: unisono tree convert FILE --out NETWORK"
        ))
    })?;
    if network.node_names.is_empty() {
        return Err(Failure::Usage(format!(
            "--tree {shown}: it has no node_names, by which hosts are found; add a host name or an address for \
             each node"
        ))
        .into());
    }
    Ok(())
}

/// Replaces this process by the program. Returns only if that fails, with the reason.
fn start_error(command: &mut Command, program: &Path) -> anyhow::Error {
    let error = command.exec();
    Failure::Usage(format!("{} cannot be started: {error}", program.display())).into()
}

/// Returns the library to preload, and the bridge compiled by `mpicc`, if one is given.
fn find_libraries(mpicc: Option<&str>) -> Result<(PathBuf, Option<PathBuf>), Error> {
    let unisono = std::env::current_exe()
        .map_err(|source| Error::Io { what: "find this program's own path".to_owned(), source })?;
    let core = libraries::core(&unisono)?;
    let cache = libraries::cache()?;
    let bridge = mpicc
        .map(|mpicc| libraries::compiled_bridge(mpicc, &cache, &mut |text| exit::print_error(text)))
        .transpose()?;
    Ok((libraries::preload(&core, &cache)?, bridge))
}

fn usage_error(error: Error) -> anyhow::Error {
    match error {
        error if error.is_of_host() => Failure::Host(error.to_string()).into(),
        Error::NoProgram { .. } | Error::Launcher { .. } | Error::Alone { .. } => {
            Failure::Usage(error.to_string()).into()
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_a_launcher_the_command_is_named_that_has_the_prefix_behind_it() {
        let behind = |line: &str, program: usize| {
            let words: Vec<&str> = line.split(' ').skip(1).collect();
            let program: Vec<String> = words[program..].iter().map(|word| (*word).to_owned()).collect();
            command_behind_launcher(&program, words.iter().map(OsString::from).collect())
        };
        assert_eq!(
            behind("unisono mpi --stats -- mpiexec -n 4 python3 -m mpi4py a.py", 3).as_deref(),
            Some("mpiexec -n 4 unisono mpi --stats -- python3 -m mpi4py a.py")
        );
        assert_eq!(
            behind("unisono mpi timeout 60 mpirun -n 4 ./a", 1).as_deref(),
            Some("timeout 60 mpirun -n 4 unisono mpi -- ./a")
        );
        assert_eq!(behind("unisono mpi -- python3 -m mpi4py a.py", 2), None, "a rank");
        assert_eq!(behind("unisono mpi -- mpiexec -n 4", 2), None, "the launcher has no program");
    }

    #[test]
    fn the_launcher_that_is_named_exists() {
        assert_eq!(own_launcher("mpich", |name| name == "mpiexec.mpich"), "mpiexec.mpich");
        let words = own_launcher("mpich", |_| false);
        assert!(!words.contains("mpiexec.") && words.contains("mpich"), "{words}");
    }
}
