//! `unisono-join`: joins the event broker of this host with the brokers of other hosts, over zenoh.
//!
//! `unisono_broker::join` describes joining. This program adds the network and the threads: for each class a
//! zenoh session, a thread that sends (`outgoing.rs`) and a thread that receives (`incoming.rs`), each with a
//! connection of its own to the broker. `network.rs` opens the sessions, `state.rs` holds the state that all
//! threads share. Read `outgoing.rs` first, then `incoming.rs`.
#![forbid(unsafe_code)]

mod incoming;
mod network;
mod outgoing;
mod state;

use anyhow::Context;
use clap::Parser;
use network::ClassNetwork;
use state::{JoinExposure, JoinState};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_events_client::BrokerAddress;
use unisono_broker::join::JoinSettings;
use unisono_linux::interrupt;

/// Join the event broker of this host with those of other hosts, over zenoh
///
/// Events that programs of this host publish on the given topics are published at the brokers of all other
/// hosts that run unisono-join, and the other way round: each event once, in the order of its supplier. What
/// is lost on the way, consumers are told as a gap. Run it on each host, beside `unisono events serve`.
///
/// An event makes one hop, so each host has to reach each other one: directly, or through zenoh routers.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:
  unisono-join --topics 'plant/#' --listen tls/10.0.0.1:7447 --zenoh-config tls.json5     on the first host
  unisono-join --topics 'plant/#' --connect tls/10.0.0.1:7447 --zenoh-config tls.json5    on the others
  unisono-join --topics 'plant/#' --listen tcp/10.0.0.1:7447 --insecure  in a network that only these hosts reach
  unisono-join --config join.toml --zenoh-config tls.json5               several classes; TLS and access control by zenoh"
)]
struct Args {
    /// The broker of this host: the path of its socket, tcp:HOST:PORT or tls:HOST:PORT?authority=FILE
    #[arg(long, value_name = "ADDRESS")]
    at: Option<BrokerAddress>,
    /// Topics that travel: a pattern; give it again for more
    #[arg(long, value_name = "PATTERN", required_unless_present = "config", conflicts_with = "config")]
    topics: Vec<String>,
    /// Topics that stay here although --topics has them
    #[arg(long, value_name = "PATTERN", conflicts_with = "config")]
    except: Vec<String>,
    /// Where to wait for other hosts: a zenoh endpoint, as tls/0.0.0.0:7447
    ///
    /// Beyond loopback addresses the endpoint has to be a tls/ one, and other hosts have to show a
    /// certificate or a password (--zenoh-config).
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "config")]
    listen: Vec<String>,
    /// Another host that listens: a zenoh endpoint
    #[arg(long, value_name = "ENDPOINT", conflicts_with = "config")]
    connect: Vec<String>,
    /// Classes of events with their topics, queues, priorities and endpoints: a TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Zenoh's own configuration (JSON5): discovery, routers, TLS, access control
    ///
    /// Without it, this program neither looks for other hosts nor is found by them: it listens and connects
    /// where --listen and --connect, or the file of --config, say.
    #[arg(long, value_name = "FILE")]
    zenoh_config: Option<PathBuf>,
    /// Allow endpoints that other hosts can reach even if they have no TLS, or if other hosts need neither a
    /// certificate nor a password
    #[arg(long)]
    insecure: bool,
    /// What this host is called in messages of the others; left out: its host name
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Print the counters as a JSON object, at each interval and at the end
    #[arg(long)]
    json: bool,
    /// Seconds from one object of --json to the next
    #[arg(long, value_name = "SECONDS", default_value = "10", requires = "json", value_parser = clap::value_parser!(u64).range(1..=86400))]
    every: u64,
}

fn name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.len() > 64 || text.contains(['/', '*', '$', '?', '#']) {
        true => Err("a name has 1 to 64 bytes, and none of / * $ ? #; choose another one".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// The time that the threads have to end: a stuck network gives up after five seconds.
const FAREWELL: Duration = Duration::from_secs(7);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unisono-join: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn settings(args: &Args) -> anyhow::Result<JoinSettings> {
    if let Some(path) = &args.config {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        return JoinSettings::parse(&text).map_err(|error| anyhow::anyhow!("{}:{error}", path.display()));
    }
    Ok(JoinSettings::of_topics(&args.topics, &args.except, (&args.listen, &args.connect))?)
}

fn run(args: &Args) -> anyhow::Result<()> {
    let settings = settings(args)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = args.name.clone().unwrap_or_else(|| name(&host).unwrap_or_else(|_| "unnamed".to_owned()));
    let at = args.at.clone().unwrap_or_else(|| BrokerAddress::Shared(unisono_events_client::default_socket()));
    interrupt::catch_for_server().context("cannot catch Ctrl-C")?;
    let exposure = if args.insecure { JoinExposure::Anybody } else { JoinExposure::Protected };
    let state = Arc::new(JoinState::new(at, host, settings, exposure));
    let mut threads = Vec::new();
    for class in 0..state.settings.classes.len() {
        let network = Arc::new(ClassNetwork::open(&state, class, args.zenoh_config.as_deref())?);
        let (seen, of) = (Arc::clone(&state), Arc::clone(&network));
        threads.push(std::thread::spawn(move || outgoing::run(&seen, class, &of)));
        let seen = Arc::clone(&state);
        threads.push(std::thread::spawn(move || incoming::run(&seen, class, &network)));
    }
    let mut next = Instant::now() + Duration::from_secs(args.every);
    // a thread that ended early has printed the reason
    while interrupt::caught().is_none() && !threads.iter().any(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(POLL_INTERVAL);
        if args.json && Instant::now() >= next {
            next += Duration::from_secs(args.every);
            print(&state)?;
        }
    }
    let early = interrupt::caught().is_none();
    state.stop();
    let until = Instant::now() + FAREWELL;
    while Instant::now() < until && !threads.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::sleep(POLL_INTERVAL);
    }
    if args.json {
        print(&state)?;
    }
    anyhow::ensure!(!early, "a part of it ended; see above");
    Ok(())
}

fn print(state: &JoinState) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let object = serde_json::json!({ "format": "unisono-join-1", "classes": state.statistics() });
    serde_json::to_writer(&mut out, &object)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}
