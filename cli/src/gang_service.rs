//! `unisono gang daemon` and the commands that talk to it.

use crate::completions;
use crate::events::mode;
use crate::exit::Failure;
use crate::gang_table;
use crate::live_view::{LiveViewFlags, LiveViewText, table_width};
use crate::machine_output::{self, CsvFlag, TableForm};
use crate::output;
use crate::service::{self, ServiceNotices, utf8};
use crate::user::user_id;
use anyhow::Context;
use clap_complete::engine::ArgValueCandidates;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use unisono_gang::service::client;
use unisono_gang::service::keeper::RulesFile;
use unisono_gang::service::metrics::openmetrics;
use unisono_gang::service::request::{GangName, GangTarget, ServiceReply, ServiceRequest, ServiceView};
use unisono_gang::service::server::{self, DaemonNotice, DaemonOptions, SOCKET, TurnsBy};
use unisono_gang::{Error, GangHint};
use unisono_linux::cgroup::hierarchies;
use unisono_measure::units::duration;

/// Let programs that run already take turns as gangs; `unisono gang add` names them
///
/// The daemon needs root. `unisono gang add` adds a process or a control group as a gang; the daemon lets
/// the gangs take turns. It moves an added process into a control group of its own, below the group where the
/// process was, so that the limits of that group still apply.
/// A gang that leaves its cores idle rests: it takes no turns and runs whenever it likes, until it wants its
/// cores again. A gang without another gang to take turns with is left alone.
///
/// When the daemon ends, all gangs run on without turns. When it is killed, its guardian lets them run, and
/// the next daemon takes them over again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang daemon
      only root may add gangs
  sudo unisono gang daemon --mode 666
      every user may add processes of that user
  sudo unisono gang daemon --slice 10ms
  sudo unisono gang daemon --rules /etc/unisono/gangs.toml
  sudo unisono gang daemon --trace turns.json
      a file for ui.perfetto.dev
  sudo unisono gang add --pid $(pgrep -o solver)
      the oldest process of this name

Other programs keep the share that Linux gives them: the daemon gives its gangs no priority over them. Do not \
pause a container whose group is a gang; remove the gang first.

A file of rules has a [[gang]] for each rule: `cgroup`, or `program` and `user`, and `name` and `weight` of the gangs \
(unisono-gang-rules(5)). `*` in `program` stands for any letters; in `cgroup` it stays within a level, so that `*/*` are groups \
of the second level. `name` and `user` have no `*`. If a changed file has an error, the old rules stay in force.")]
pub(crate) struct DaemonArgs {
    /// Length of a slice (1ms to 10s). A gang runs for as many slices as its weight, then the next gang runs
    /// [default: 20ms, and up to 100ms while the threads of a gang wait for each other less often than every
    /// 2.5 ms]
    #[arg(long, value_parser = duration)]
    slice: Option<Duration>,
    /// Where to listen for the commands
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
    /// Users with access to the socket, as the permission bits of a file. Users other than root may then add
    /// their own processes, with a weight of 1
    #[arg(long, default_value = "600", value_parser = mode)]
    mode: u32,
    /// Let the time of day decide whose turn it is, so that daemons of several hosts with the same gangs,
    /// slices and weights switch at the same moment. A gang has the same name on all hosts
    #[arg(long)]
    by_clock: bool,
    /// Let Linux choose the core of each thread
    #[arg(long)]
    no_spread: bool,
    /// A file that says which programs, users' processes and control groups become gangs by themselves. It is
    /// read again when it changes, and on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// Write into this file which gang ran on which processors and when, for trace viewers
    /// (ui.perfetto.dev, chrome://tracing). The file is emptied first, and ends at 256 MiB
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

impl DaemonArgs {
    /// Returns the command-line options that give a daemon these values.
    pub(crate) fn options(&self) -> anyhow::Result<Vec<String>> {
        let slice = self.slice.map(|slice| ["--slice".to_owned(), format!("{}us", slice.as_micros())]);
        let mut options: Vec<String> = slice.into_iter().flatten().collect();
        options.extend(["--mode".to_owned(), format!("{:o}", self.mode)]);
        options.extend(["--socket".to_owned(), utf8(&self.socket)?]);
        options.extend(self.by_clock.then(|| "--by-clock".to_owned()));
        options.extend(self.no_spread.then(|| "--no-spread".to_owned()));
        if let Some(rules) = &self.rules {
            let path = std::path::absolute(rules).context("find the file of rules")?;
            options.extend(["--rules".to_owned(), utf8(&path)?]);
        }
        if let Some(trace) = &self.trace {
            let path = std::path::absolute(trace).context("find the trace's file")?;
            options.extend(["--trace".to_owned(), utf8(&path)?]);
        }
        Ok(options)
    }
}

/// The daemon to talk to.
#[derive(clap::Args)]
pub(crate) struct Connection {
    /// Where the daemon listens
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

impl Connection {
    fn ask(&self, request: &ServiceRequest) -> anyhow::Result<ServiceReply> {
        client::ask(&self.socket, request).map_err(|error| failure_at(error, &named_socket(&self.socket)))
    }

    fn view(&self) -> anyhow::Result<ServiceView> {
        match self.ask(&ServiceRequest::List {})? {
            ServiceReply::Gangs(view) => Ok(view),
            other => anyhow::bail!("the daemon answered {other:?} to a list; is it of this version?"),
        }
    }
}

/// Make a process, or a control group, a gang of the daemon
///
/// A process comes with all that it has started, and all that it starts later. A control group comes with
/// all processes in it and below it: a container, a service of systemd, a step of a Slurm job.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang add --pid 4242 --name solver
  sudo unisono gang add --cgroup system.slice/simulation.service --weight 2
  sudo unisono gang add --cgroup /sys/fs/cgroup/system.slice/docker-1f2e.scope
The control group of a process: cat /proc/PID/cgroup")]
pub(crate) struct AddArgs {
    #[command(flatten)]
    daemon: Connection,
    /// The number of a process
    #[arg(long, value_name = "PID", required_unless_present = "cgroup", conflicts_with = "cgroup")]
    pid: Option<u32>,
    /// A control group: its path, or as /proc/PID/cgroup names it
    #[arg(long, value_name = "GROUP")]
    cgroup: Option<PathBuf>,
    /// What to call the gang [default: the program's or the group's name]
    #[arg(long, value_parser = name)]
    name: Option<GangName>,
    /// Slices that it gets before the next gang runs
    #[arg(long, default_value_t = 1)]
    weight: u32,
    /// Print the answer as one JSON object
    #[arg(long)]
    json: bool,
}

fn name(text: &str) -> Result<GangName, String> {
    GangName::try_from(text.to_owned())
}

/// List the gangs of the daemon
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang list
  sudo unisono gang list --json

A gang is `running` in its turn, and if no other gang has to wait for it; `waiting` for its turn; or `resting`, because it \
leaves its cores idle. `had s` is the time of its turns, `cpu s` the processor time that it used.")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    daemon: Connection,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

/// Remove a gang from the daemon; its processes run on, where they were before
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang remove solver")]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    daemon: Connection,
    /// Its name
    #[arg(value_parser = name, add = ArgValueCandidates::new(completions::gangs))]
    gang: GangName,
}

/// Change the weight of a gang, or the slice of all gangs
#[derive(clap::Args)]
#[command(
    override_usage = "unisono gang set GANG --weight WEIGHT\n       unisono gang set --slice SLICE",
    after_help = "Examples:
  sudo unisono gang set solver --weight 3
      three slices for each of another gang with weight 1
  sudo unisono gang set --slice 5ms
      for all gangs"
)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    daemon: Connection,
    /// The gang's name
    #[arg(value_parser = name, add = ArgValueCandidates::new(completions::gangs))]
    gang: Option<GangName>,
    /// Slices that it gets before the next gang runs
    #[arg(long, requires = "gang")]
    weight: Option<u32>,
    /// Length of a slice of all gangs (1ms to 10s)
    #[arg(long, value_parser = duration)]
    slice: Option<Duration>,
}

/// Watch the gangs of the daemon: running gangs, turns, processor time
///
/// The command prints a table at every interval until Ctrl-C. On a terminal the new table replaces the old
/// one, and `q` and Esc end the command, too. `cores` is the number of processors that a gang used since the
/// last table, and `turn` the part of the time that it was allowed to run.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang top
  sudo unisono gang top --once
  sudo unisono gang top --json
      JSON Lines: what `unisono gang list --json` prints, at every interval")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    daemon: Connection,
    #[command(flatten)]
    view: LiveViewFlags,
    /// Print JSON Lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

/// Print statistics of the gangs in the OpenMetrics format, for monitoring programs
///
/// With --listen the command answers `GET /metrics` until Ctrl-C. There is no password: every program that
/// can connect can read.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo unisono gang metrics
  sudo unisono gang metrics --listen 127.0.0.1:9471")]
pub(crate) struct MetricsArgs {
    #[command(flatten)]
    daemon: Connection,
    /// Answer HTTP requests at ADDRESS:PORT, or at the path of a Unix socket (a path has a / in it)
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

pub(crate) fn failure(error: Error) -> anyhow::Error {
    failure_at(error, "")
}

/// Like [`failure`]; `at` is the option of commands that talk to the daemon, as [`named_socket`] writes it.
fn failure_at(error: Error, at: &str) -> anyhow::Error {
    match error {
        Error::Input(text) => Failure::Usage(text).into(),
        Error::Host(text) => Failure::Host(text).into(),
        Error::Hinted { error, hint } => match failure(*error).downcast::<Failure>() {
            Ok(Failure::Usage(text)) => Failure::Usage(format!("{text}; {}", remedy(hint, at))).into(),
            Ok(Failure::Host(text)) => Failure::Host(format!("{text}; {}", remedy(hint, at))).into(),
            Err(other) => other,
        },
        Error::Start { .. } => Failure::Usage(error.to_string()).into(),
        other => other.into(),
    }
}

/// Returns the text that tells the user how to do what the scheduler advises.
fn remedy(hint: GangHint, at: &str) -> String {
    let words = match hint {
        GangHint::StartDaemon => return format!("start it: sudo unisono gang daemon{at}"),
        GangHint::OpenDaemon => {
            return format!("use sudo, or let others connect: sudo unisono gang daemon --mode 666{at}");
        }
        GangHint::ListGangs => return format!("list its gangs: unisono gang list{at}"),
        GangHint::RunUnprivileged => {
            "without either, `unisono gang run --unprivileged` switches by stop signals"
        }
        GangHint::NameCommands => "write: unisono gang run -- CMD ARGS ::: CMD ARGS",
        _ => "see: unisono gang --help",
    };
    words.to_owned()
}

/// Returns the option that names a socket, with a space before it, or nothing for the default socket.
fn named_socket(socket: &Path) -> String {
    match socket == Path::new(SOCKET) {
        true => String::new(),
        false => format!(" --socket {}", socket.display()),
    }
}

/// Reports a change to the host that was not undone.
pub(crate) fn not_restored(left: &str) {
    eprintln!("unisono: not restored: {left}; try: unisono gang restore");
}

pub(crate) fn daemon(args: DaemonArgs) -> anyhow::Result<ExitCode> {
    unisono_linux::process::deny_writing_by_others();
    if !unisono_linux::process::is_root() {
        let text =
            "the gang daemon stops programs of all users, and needs root; try: sudo unisono gang daemon";
        return Err(Failure::Host(text.into()).into());
    }
    let mut guardian = Command::new(std::env::current_exe().context("find this program for the guardian")?);
    guardian.args(["gang", "guard"]);
    let notices = ServiceNotices::connect();
    let (socket, access) = (args.socket.clone(), first_client(&args.socket, args.mode));
    let options = DaemonOptions {
        slice: args.slice.map(Into::into),
        socket: args.socket,
        mode: args.mode,
        turns_by: if args.by_clock { TurnsBy::Clock } else { TurnsBy::Waiting },
        spread: !args.no_spread,
        guardian: Some(guardian),
        trace: args.trace,
        rules: args.rules.map(|path| RulesFile { path, user: user_id }),
    };
    server::serve(options, &mut |notice| match notice {
        DaemonNotice::Ready => {
            notices.ready();
            eprintln!("unisono: gangs are served at {}; {access}; Ctrl-C ends it", socket.display());
        }
        DaemonNotice::Alive => notices.alive(),
        DaemonNotice::Warning(text) => eprintln!("unisono: {text}"),
        DaemonNotice::NotRestored(left) => not_restored(&left),
    })
    .map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command of a first client, and the users that the permission bits of the socket refuse.
fn first_client(socket: &Path, mode: u32) -> String {
    let at = named_socket(socket);
    let (sudo, refused) = match (mode & 0o006, mode & 0o060) {
        (0o006, _) => ("", "processes of others, unless root adds them"),
        (_, 0o060) => ("", "users outside its group (see --mode)"),
        _ => ("sudo ", "users other than root (see --mode)"),
    };
    format!("first gang: {sudo}unisono gang add --pid PID{at}; refused: {refused}")
}

pub(crate) fn add(args: AddArgs) -> anyhow::Result<ExitCode> {
    let target = match (args.pid, args.cgroup) {
        (Some(number), _) => client::process(number).map_err(failure)?,
        (None, Some(path)) => GangTarget::Group { path: group(path)? },
        (None, None) => return Err(Failure::Usage("name a --pid or a --cgroup".into()).into()),
    };
    let reply = args.daemon.ask(&ServiceRequest::Add { target, name: args.name, weight: args.weight })?;
    match reply {
        ServiceReply::Added { gang } if args.json => {
            let object = serde_json::json!({ "gang": gang });
            output::answer(&machine_output::json("unisono-gang-add-1", &object)?)?;
        }
        ServiceReply::Added { gang } => {
            let at = named_socket(&args.daemon.socket);
            output::answer(&format!("{gang} is a gang; list all: unisono gang list{at}"))?;
        }
        other => anyhow::bail!("the daemon answered {other:?}; is it of this version?"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Converts a control group to a path of the file system. `/proc/PID/cgroup` names a group relative to a
/// mount.
fn group(path: PathBuf) -> anyhow::Result<PathBuf> {
    let all = hierarchies()?;
    if all.iter().any(|hierarchy| path.starts_with(&hierarchy.root)) {
        return Ok(path);
    }
    let inside = path.strip_prefix("/").unwrap_or(&path);
    let found =
        all.iter().map(|hierarchy| (hierarchy, hierarchy.root.join(inside))).find(|(hierarchy, path)| {
            let freezes =
                path.join("cgroup.freeze").exists() || hierarchy.controllers.iter().any(|c| c == "freezer");
            freezes && path.is_dir()
        });
    found.map(|(_, path)| path).ok_or_else(|| {
        let text = format!(
            "there is no control group {}; find it by a process: cat /proc/PID/cgroup",
            path.display()
        );
        Failure::Usage(text).into()
    })
}

/// The name of the format that `gang list` and `gang top` print.
const LIST_FORMAT: &str = "unisono-gang-list-1";

pub(crate) fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let view = args.daemon.view()?;
    if args.json {
        output::answer(&machine_output::json(LIST_FORMAT, &view)?)?;
    } else if args.table.csv {
        output::answer(&machine_output::csv(&view.gangs)?)?;
    } else {
        output::answer(gang_table::served(&view, None, table_width()).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn remove(args: RemoveArgs) -> anyhow::Result<ExitCode> {
    let answer = format!("{} is no gang any more", args.gang);
    args.daemon.ask(&ServiceRequest::Remove { gang: args.gang })?;
    output::answer(&answer)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn set(args: SetArgs) -> anyhow::Result<ExitCode> {
    match args {
        SetArgs { daemon, gang: Some(gang), weight: Some(weight), slice: None } => {
            let answer = format!("{gang} has the weight {weight}");
            daemon.ask(&ServiceRequest::Weight { gang, weight })?;
            output::answer(&answer)?;
        }
        SetArgs { daemon, gang: None, weight: None, slice: Some(slice) } => {
            let milliseconds = slice.as_secs_f64() * 1e3;
            daemon.ask(&ServiceRequest::Slice { milliseconds })?;
            output::answer(&format!("slices of all gangs have {milliseconds} ms"))?;
        }
        SetArgs { gang: Some(gang), slice: Some(slice), .. } => {
            let slice = match slice.as_micros() {
                whole if whole % 1000 == 0 => format!("{}ms", whole / 1000),
                part => format!("{part}us"),
            };
            let text = format!(
                "--slice is the slice of all gangs, so {gang} is not named with it: unisono gang set --slice {slice}; \
                 more slices for {gang} alone: unisono gang set {gang} --weight 2"
            );
            return Err(Failure::Usage(text).into());
        }
        SetArgs { gang, .. } => {
            let gang = gang.map_or_else(|| "GANG".to_owned(), |gang| gang.to_string());
            let text = format!(
                "write what to set: unisono gang set {gang} --weight 2; or, for all gangs: unisono gang set --slice 20ms"
            );
            return Err(Failure::Usage(text).into());
        }
    }
    Ok(ExitCode::SUCCESS)
}

const VIEW: LiveViewText = LiveViewText {
    title: "unisono gang top",
    help: "cores: processors that a gang used since the last table. state: running in its turn, waiting for it, or \
           resting, because it leaves its cores idle. turn %: the part of the time that it was allowed to run. cpu s: \
           processor time in all. weight: slices in a row. threads; width: cores that they can use at once. turns, had s: \
           number and length of its turns. Columns that do not fit are left out.",
};

pub(crate) fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let mut earlier = args.daemon.view()?;
    let output = TableForm::chosen(args.json, args.table.csv);
    let mut looked = std::time::Instant::now();
    args.view.show(output, &VIEW, |width| {
        let view = args.daemon.view()?;
        let passed = std::mem::replace(&mut looked, std::time::Instant::now()).elapsed();
        let text = match output {
            TableForm::Json => machine_output::json(LIST_FORMAT, &view)?,
            TableForm::Csv => machine_output::csv(&view.gangs)?,
            TableForm::Text => {
                gang_table::served(&view, Some((&earlier, passed)), width).trim_end().to_owned()
            }
        };
        earlier = view;
        Ok(text)
    })
}

pub(crate) fn metrics(args: &MetricsArgs) -> anyhow::Result<ExitCode> {
    let Some(place) = &args.listen else {
        output::answer(openmetrics(&args.daemon.view()?).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    };
    let answer = || args.daemon.view().map(|view| openmetrics(&view)).map_err(|error| error.to_string());
    service::answer_scrapes(place, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_says_how_a_first_gang_is_added_and_who_is_refused() {
        assert_eq!(
            first_client(Path::new(SOCKET), 0o600),
            "first gang: sudo unisono gang add --pid PID; refused: users other than root (see --mode)"
        );
        assert_eq!(
            first_client(Path::new("/tmp/gangs"), 0o666),
            "first gang: unisono gang add --pid PID --socket /tmp/gangs; refused: processes of others, unless root \
             adds them"
        );
    }
}
