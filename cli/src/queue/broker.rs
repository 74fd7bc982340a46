//! `unisono queue broker`: orders and paces the messages that programs hand to it.

use crate::events::{SettingsFiles, in_words, mode, serve};
use crate::exit::Failure;
use crate::machine_output::{CsvFlag, TableForm};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use unisono_broker::Exposure;
use unisono_events_client::{BrokerAddress, Client, Statistics};

/// Order and pace the messages of programs that cooperate
///
/// This is `unisono events serve` with a policy, under its older name. Programs connect to SOCKET, open a
/// path in a class of the policy, and hand over messages; a message may have a deadline. (Rust programs use
/// the crate unisono-events-client; PROTOCOL.md of the crate unisono-events-wire is for others.) Until Ctrl-C
/// the broker sends the messages on, as datagrams or over connections, in the order of the policy and no
/// faster than its rate. It needs no privilege, makes the socket, and changes nothing else on the host;
/// started by root, it becomes another user before it reads from a program. It does not hold back programs
/// that send by themselves: `unisono queue apply` does.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono queue broker policy.toml --listen /run/user/1000/broker
      serve until Ctrl-C; programs name their class, the policy's matches are
      not used
  unisono queue broker --status /run/user/1000/broker
      print what each class has got

Give the policy a rate a little below that of the link (98mbit for 100mbit). Then messages wait in the broker, which \
knows their order, and not after it.")]
pub(crate) struct Args {
    /// The policy: rate, classes, weights, limits; no ceilings, flows or ecn
    #[arg(value_name = "POLICY", required_unless_present = "status")]
    policy: Option<PathBuf>,
    /// The socket to listen at
    #[arg(long, value_name = "SOCKET", required_unless_present = "status")]
    listen: Option<PathBuf>,
    /// Users with access to the socket, as chmod(1) writes it: 600 for you and root, 660 also for your group,
    /// 666 for all users
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600")]
    mode: u32,
    /// When root starts it: the user to become once it listens, as a name or as UID or UID:GID
    ///
    /// Without this option the broker becomes a user that owns nothing and that no other process has. That
    /// user may choose the congestion controls of net.ipv4.tcp_allowed_congestion_control only. With `root`
    /// the broker stays root.
    #[arg(long, value_name = "NAME", conflicts_with = "status")]
    user: Option<String>,
    /// Print the statistics of the broker that listens at SOCKET
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["policy", "listen"])]
    status: Option<PathBuf>,
    /// Print statistics as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let statistics = match (&args.status, &args.policy, &args.listen) {
        (Some(socket), ..) => {
            let mut client = Client::connect_unix(socket).map_err(in_words)?;
            client.statistics()?
        }
        (None, Some(policy), Some(socket)) => serve_policy(policy, socket, args)?,
        _ => return Err(Failure::Usage("a policy and --listen SOCKET are needed".to_owned()).into()),
    };
    let form = TableForm::chosen(args.json, args.table.csv);
    form.answer("unisono-events-statistics-1", &statistics, &statistics.classes, || table(&statistics))?;
    Ok(ExitCode::SUCCESS)
}

fn serve_policy(path: &std::path::Path, socket: &std::path::Path, args: &Args) -> anyhow::Result<Statistics> {
    let files = SettingsFiles { policy: Some(path.to_owned()), ..SettingsFiles::default() };
    let address = [BrokerAddress::Unix(socket.to_owned())];
    serve(&files, (&address, args.mode, Exposure::Loopback), args.json, args.user.as_deref())
}

fn table(statistics: &Statistics) -> String {
    let mut text = format!(
        "{:<20} {:>7} {:>12} {:>15} {:>6} {:>6} {:>8} {:>11} {:>11}\n",
        "class", "share", "messages", "bytes", "lost", "late", "waiting", "median", "p99"
    );
    for class in &statistics.classes {
        let delay = |of: fn(&unisono_events_client::DelayDistribution) -> f64| {
            class.delay_us.as_ref().map_or_else(|| "-".to_owned(), |delay| format!("{:.0} us", of(delay)))
        };
        let _ = writeln!(
            text,
            "{:<20} {:>6.1}% {:>12} {:>15} {:>6} {:>6} {:>8} {:>11} {:>11}",
            class.name,
            class.share * 100.0,
            class.messages,
            class.bytes,
            class.lost,
            class.late,
            class.waiting,
            delay(|delay| delay.median),
            delay(|delay| delay.p99)
        );
    }
    if statistics.sent_away > 0 {
        let _ = writeln!(text, "{} programs were sent away because of what they sent", statistics.sent_away);
    }
    text
}
