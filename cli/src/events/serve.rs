//! `unisono events serve`: the broker.

use super::log::LogFlags;
use super::metrics::openmetrics;
use super::policy::{mode, policy};
use super::service::ServiceNotices;
use super::show::counters;
use crate::exit::Failure;
use crate::output;
use anyhow::Context as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unisono_broker::{
    Broker, BrokerAddress, Exposure, Limits, PathPace, ServeError, Server, ServerWait, Statistics,
    default_socket,
};
use unisono_enforce::metrics::{self, ScrapeListener};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::{activation, interrupt};

/// Serve events to programs, until Ctrl-C
///
/// Without a policy all consumers are of one class. With one, consumers name a class of it, and classes
/// share the broker's time by weight; programs may also open paths to addresses, as with `unisono queue
/// broker`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono events serve                              at $XDG_RUNTIME_DIR/unisono-events
  unisono events serve --listen /tmp/bus --listen tcp:127.0.0.1:7400
  unisono events serve --mqtt 127.0.0.1:1883        also for mosquitto_pub, paho, rumqttc and the like
  unisono events serve --log ~/events               suppliers may ask for durability, consumers may resume
  unisono events serve policy.toml --mode 660       classes of a policy; programs of your group may connect")]
pub(crate) struct Args {
    /// Classes and their weights
    #[arg(value_name = "POLICY")]
    policy: Option<PathBuf>,
    /// Where to listen, unless systemd has opened sockets for it: the path of a socket, shm:PATH for shared
    /// memory, or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS", default_values_os_t = [default_socket()])]
    listen: Vec<PathBuf>,
    /// Where to listen for MQTT clients: HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = socket_address)]
    mqtt: Vec<SocketAddr>,
    /// Who may publish and subscribe what, and how much: a TOML file
    ///
    /// Without it, everybody who can connect may do everything. With it, a client that no rule names is
    /// refused.
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// Ask programs and MQTT clients over TCP for a token; this TOML file has the hashes of the tokens
    ///
    /// Nothing is encrypted over TCP. So a token that comes from another host is refused: with --tokens, only
    /// programs of this host can connect.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Who may connect to the socket, as chmod(1) writes it
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600")]
    mode: u32,
    /// Listen also at TCP addresses that other hosts can reach, although TCP is not encrypted
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    log: LogFlags,
    /// Answer monitoring programs there (GET /metrics): ADDRESS:PORT, or the path of a Unix socket
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// How the broker waits: sleep; spin, which takes a processor; or adaptive, which spins for 50 us first
    #[arg(long, value_name = "HOW", value_parser = ["sleep", "spin", "adaptive"], default_value = "sleep")]
    wait: String,
    /// Counters as one JSON object, at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let broker = match &args.policy {
        Some(path) => {
            let policy = policy(path)?;
            let pace = PathPace::new(policy.rate.bits_per_second());
            Broker::new(policy.hierarchy, Limits::default()).with_paths(pace)
        }
        None => {
            let tree = Hierarchy::new(ClassSpec::new("all"))?.with_default("rest")?;
            Broker::new(tree, Limits::default())
        }
    };
    let broker = args.log.add_to(broker)?;
    let broker = super::access::guarded(broker, args.permissions.as_deref(), args.tokens.as_deref())?;
    let mut addresses = Vec::new();
    for listen in &args.listen {
        let address: Result<BrokerAddress, _> = listen.to_string_lossy().parse();
        addresses.push(address.map_err(|error| Failure::Usage(error.to_string()))?);
    }
    let wait = match args.wait.as_str() {
        "spin" => ServerWait::Spin,
        "adaptive" => ServerWait::Adaptive,
        _ => ServerWait::Sleep,
    };
    let exposure = if args.insecure { Exposure::Anybody } else { Exposure::Loopback };
    let mut server = Server::new(broker, wait)?;
    for address in &args.mqtt {
        let listening = server.listen_mqtt(*address, exposure).map_err(refused)?;
        if !args.json {
            eprintln!("serving MQTT at {listening}");
        }
    }
    let statistics =
        serve_at(server, (&addresses, args.mode, exposure), (args.json, args.metrics.as_deref()))?;
    match args.json {
        true => output::answer(&serde_json::to_string(&statistics)?)?,
        false => output::answer(counters(&statistics).trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves at these addresses until a signal.
pub(crate) fn serve(
    broker: Broker,
    at: (&[BrokerAddress], u32, Exposure),
    wait: ServerWait,
    quiet: bool,
) -> anyhow::Result<Statistics> {
    serve_at(Server::new(broker, wait)?, at, (quiet, None))
}

/// A host and a port.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().map_err(|error| format!("{error}; write HOST:PORT"))?.next();
    found.ok_or_else(|| "the host has no address".to_owned())
}

fn refused(error: ServeError) -> anyhow::Error {
    match error {
        ServeError::Wait(_) | ServeError::Transport(_) => error.into(),
        other => Failure::Usage(other.to_string()).into(),
    }
}

fn serve_at(
    mut server: Server,
    (addresses, mode, exposure): (&[BrokerAddress], u32, Exposure),
    (quiet, metrics): (bool, Option<&str>),
) -> anyhow::Result<Statistics> {
    interrupt::catch().context("cannot catch Ctrl-C")?;
    let inherited = activation::listeners().context("cannot take the sockets of LISTEN_FDS")?;
    let addresses = if inherited.is_empty() { addresses } else { &[] };
    for socket in inherited {
        server.listen_inherited(socket).map_err(refused)?;
    }
    for address in addresses {
        let listening = server.listen(address, mode, exposure).map_err(refused)?;
        if !quiet {
            eprintln!("serving at {listening}; Ctrl-C ends it");
        }
    }
    let scrapes = metrics.map(|place| listen_for_scrapes(place, exposure)).transpose()?;
    let window = server.window();
    let is_over = AtomicBool::new(false);
    let text = || {
        let statistics = window.ask(PATIENCE).ok_or("the broker does not answer")?;
        Ok(openmetrics(statistics))
    };
    std::thread::scope(|scope| {
        if let Some(listener) = &scrapes {
            scope.spawn(|| metrics::serve(listener, text, || is_over.load(Ordering::Relaxed)));
        }
        let service = ServiceNotices::ready();
        let served = server.serve(&|| {
            service.alive();
            interrupt::caught().is_some()
        });
        is_over.store(true, Ordering::Relaxed);
        served
    })?;
    Ok(server.broker().statistics(unisono_broker::now()))
}

/// How long a monitoring program waits for the broker's next turn.
const PATIENCE: Duration = Duration::from_secs(5);

fn listen_for_scrapes(place: &str, exposure: Exposure) -> anyhow::Result<ScrapeListener> {
    let reached = place.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback());
    if reached && exposure == Exposure::Loopback {
        let what =
            format!("{place} can be reached from other hosts; name a loopback address, or say --insecure");
        return Err(Failure::Usage(what).into());
    }
    ScrapeListener::at(place).map_err(|error| {
        let what = "name an ADDRESS:PORT of this host that is free, or a path";
        Failure::Usage(format!("cannot listen at {place}: {error}; {what}")).into()
    })
}
