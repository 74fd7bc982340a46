//! `unisono events serve`: the broker.

use super::log::LogFlags;
use super::metrics::openmetrics;
use super::policy::{mode, policy};
use super::show::counters;
use super::user::{BecomeUser, NextUser};
use crate::exit::{self, Failure};
use crate::flags::one_of;
use crate::output;
use crate::service::{self, ServiceNotices};
use anyhow::Context as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unisono_broker::{
    AuditFile, Broker, BrokerAddress, CertifiedFiles, ChannelWait, ClientCertificateCheck, Exposure, Limits,
    ServeError, Server, Statistics, TlsService, default_socket,
};
use unisono_enforce::metrics::{self, ScrapeListener};
use unisono_fairqueue::{ClassSpec, Hierarchy, LinkPace};
use unisono_linux::resource_limit::raise_open_files;
use unisono_linux::{activation, interrupt};

/// Serve events to programs, until Ctrl-C
///
/// Without a policy all consumers are of one class. With a policy, each consumer names one of its classes,
/// and classes share the broker's time by weight; programs may also open paths to addresses, as with `unisono
/// queue broker`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono events serve                              at $XDG_RUNTIME_DIR/unisono-events
  unisono events serve --listen /tmp/bus --listen tcp:127.0.0.1:7400
  unisono events serve --listen tls:0.0.0.0:7401 --certificate broker.crt --key broker.key \
      --client-authority programs.crt               for programs of other hosts
  unisono events serve --mqtt 127.0.0.1:1883        also for mosquitto_pub, paho, rumqttc and the like
  unisono events serve --log ~/events               suppliers may ask for durability, consumers may resume
  unisono events serve policy.toml --mode 660       classes of a policy; programs of your group may connect")]
pub(crate) struct Args {
    /// Classes and their weights
    #[arg(value_name = "POLICY")]
    policy: Option<PathBuf>,
    /// Where to listen, beside sockets that systemd has opened: the path of a socket, by which programs of
    /// this host share memory with the broker, tcp:HOST:PORT, tls:HOST:PORT for TCP with TLS, or
    /// udp:HOST:PORT for UDP (QUIC) [default: unless systemd has opened sockets,
    /// $XDG_RUNTIME_DIR/unisono-events, or /tmp/unisono-UID/events]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<PathBuf>,
    /// Where to listen for MQTT clients: HOST:PORT, or tls:HOST:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = mqtt_address)]
    mqtt: Vec<MqttAddress>,
    /// For tls: and udp: addresses: the broker's certificate (PEM), followed by the intermediate ones, if any
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// The key (PEM) of the certificate
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Ask programs at tls: and udp: addresses for a certificate of this authority (PEM)
    ///
    /// The permissions know a program by a name in its certificate, as certificate:NAME. With --tokens, a
    /// program may show a token instead.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    client_authority: Option<PathBuf>,
    /// With --client-authority: lists of certificates that the authority has revoked (PEM), read again on
    /// SIGHUP
    ///
    /// A connection whose certificate a list names is refused, or ended. Every authority of a program's
    /// certificate needs a list, and a list that is out of date lets nobody in. The user that the broker
    /// becomes has to be able to read the file.
    #[arg(long, value_name = "FILE", requires = "client_authority")]
    revocations: Option<PathBuf>,
    /// Who may publish and subscribe what, and how much: a TOML file
    ///
    /// Without it, everybody who can connect may do everything. With it, a client that no rule names is
    /// refused.
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// Ask programs and MQTT clients over TCP for a token; this TOML file has the hashes of the tokens
    ///
    /// Without TLS others can read a token on its way. So tokens from other hosts are taken at tls: and udp:
    /// addresses only.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Who may connect to the socket, as chmod(1) writes it
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600")]
    mode: u32,
    /// Allow addresses that other hosts can reach even if they have no TLS, or if clients need neither a
    /// certificate nor a token
    #[arg(long)]
    insecure: bool,
    /// When root starts it: the user to become once it listens, as a name or as UID or UID:GID
    ///
    /// Without this option the broker becomes a user that owns nothing and that no other process has. The
    /// broker gives the log to its user, who must be able to enter the directories above the log. With
    /// `root` the broker stays root.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    log: LogFlags,
    /// Append a line to this file for each connection, request and refusal: who, from where, what, done or
    /// refused (JSON Lines)
    ///
    /// The file is made with mode 600, before the broker becomes another user. Equal lines within a second
    /// are one line with their number. A line that cannot be written is a warning and is counted
    /// (`audit_lost`).
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Answer monitoring programs there (GET /metrics): ADDRESS:PORT, or the path of a Unix socket; with
    /// --permissions, only the socket of a path tells names of consumers and topics
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Programs that may be connected at a time, half of them of one user [default: 256]
    ///
    /// The events that wait may then take 4 MiB of memory for each program.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: Option<u32>,
    /// How the broker waits
    #[arg(long, value_name = "HOW", value_parser = one_of(&ChannelWait::ALL), default_value = "sleep")]
    wait: ChannelWait,
    /// Print the counters as one JSON object when the broker ends
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let user = NextUser::chosen(args.user.as_deref())?;
    let limits = args.clients.map_or_else(Limits::default, limits);
    // a client with shared memory needs the most files: a socket, memory and bells
    // the log has a file for each segment: for each of 256 identities a few
    let of_log = if args.log.path().is_some() { 1536 } else { 0 };
    raise_open_files(limits.clients as u64 * 8 + 256 + of_log)
        .context("cannot raise the limit of open files")?;
    let broker = match &args.policy {
        Some(path) => {
            let policy = policy(path)?;
            let pace = LinkPace::new(policy.rate, Limits::LATE);
            Broker::new(policy.hierarchy, limits).with_paths(pace)
        }
        None => {
            let tree = Hierarchy::new(ClassSpec::new("all"))?.with_default("rest")?;
            Broker::new(tree, limits)
        }
    };
    let broker = args.log.add_to(broker)?;
    let broker = super::access::guarded(broker, args.permissions.as_deref(), args.tokens.as_deref())?;
    let audit = args.audit.as_deref().map(AuditFile::open).transpose();
    let audit = audit.map_err(|error| Failure::Usage(error.to_string()))?;
    let broker = if audit.is_some() { broker.with_audit() } else { broker };
    let mut addresses = Vec::new();
    for listen in &args.listen {
        let address: Result<BrokerAddress, _> = listen.to_string_lossy().parse();
        let address = address.map_err(|error| Failure::Usage(error.to_string()))?;
        if let BrokerAddress::Tls(place) | BrokerAddress::Udp(place) = &address
            && (place.authority.is_some() || place.own.is_some() || place.token.is_some())
        {
            let what =
                "files behind a ? are for programs; give the broker's with --certificate FILE and --key FILE";
            return Err(Failure::Usage(format!("{address}: {what}")).into());
        }
        // the socket at a path serves both kinds of clients
        addresses.push(match address {
            BrokerAddress::Unix(path) => BrokerAddress::Shared(path),
            other => other,
        });
    }
    let exposure = if args.insecure { Exposure::Anybody } else { Exposure::Loopback };
    let mut server = Server::new(broker, args.wait)?;
    server.tell_notes(|text| eprintln!("note: {text}"));
    if let Some(file) = audit {
        server.audit_to(file, Box::new(|error| exit::print_error(&format!("warning: {error}"))));
    }
    let own = CertifiedFiles::of(args.certificate.as_deref(), args.key.as_deref());
    if let Some(own) = own.map_err(|error| refused(error.into()))? {
        let service = TlsService {
            own,
            client_authority: args.client_authority.clone(),
            revocations: args.revocations.clone(),
        };
        server.use_tls(&service).map_err(refused)?;
    }
    for address in &args.mqtt {
        let (listening, scheme) = match address {
            MqttAddress::Plain(address) => (server.listen_mqtt(*address, exposure), ""),
            MqttAddress::Tls(address) => (server.listen_mqtt_tls(*address, exposure), "tls:"),
        };
        let listening = listening.map_err(refused)?;
        if !args.json {
            eprintln!("serving MQTT at {scheme}{listening}");
        }
    }
    let become_user = BecomeUser { user, log: args.log.path() };
    let statistics = serve_at(
        server,
        (&addresses, args.mode, exposure),
        (args.json, args.metrics.as_deref()),
        &become_user,
    )?;
    match args.json {
        true => output::answer(&serde_json::to_string(&statistics)?)?,
        false => output::answer(counters(&statistics).trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Limits of a broker that serves this many programs; one user has half of all, so that others find room.
fn limits(clients: u32) -> Limits {
    /// Bytes that may wait for each program of a user, as in the defaults.
    const WAITING: u64 = 4 << 20;
    let (all, usual) = (u64::from(clients) * WAITING, Limits::default());
    Limits {
        clients: clients as usize,
        clients_of_user: (clients as usize).div_ceil(2),
        memory: all.max(usual.memory),
        memory_of_user: (all / 2).max(usual.memory_of_user),
        ..usual
    }
}

/// Serves at these addresses, and at the sockets that systemd has opened, until a signal. Started by root, it
/// becomes `user` first, as `--user` says.
pub(crate) fn serve(
    broker: Broker,
    at: (&[BrokerAddress], u32, Exposure),
    quiet: bool,
    user: Option<&str>,
) -> anyhow::Result<Statistics> {
    let become_user = BecomeUser { user: NextUser::chosen(user)?, log: None };
    serve_at(Server::new(broker, ChannelWait::Sleep)?, at, (quiet, None), &become_user)
}

/// The address for MQTT clients.
#[derive(Clone, Copy, Debug)]
enum MqttAddress {
    Plain(SocketAddr),
    Tls(SocketAddr),
}

fn mqtt_address(text: &str) -> Result<MqttAddress, String> {
    let (place, encrypted) = text.strip_prefix("tls:").map_or((text, false), |place| (place, true));
    let wrong = |error| format!("{error}; write HOST:PORT, or tls:HOST:PORT");
    let found = place.to_socket_addrs().map_err(wrong)?.next();
    let address = found.ok_or_else(|| "the host has no address".to_owned())?;
    Ok(if encrypted { MqttAddress::Tls(address) } else { MqttAddress::Plain(address) })
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
    become_user: &BecomeUser<'_>,
) -> anyhow::Result<Statistics> {
    let hides_names = server.has_permissions();
    interrupt::catch_for_server().context("cannot catch Ctrl-C")?;
    let inherited = activation::listeners().context("cannot take the sockets of LISTEN_FDS")?;
    let own = [BrokerAddress::Shared(default_socket())];
    let addresses = if inherited.is_empty() && addresses.is_empty() { &own } else { addresses };
    let mut opened = Vec::new();
    for socket in inherited {
        opened.extend(path_of(&socket)?.map(BrokerAddress::Shared));
        server.listen_inherited(socket).map_err(refused)?;
    }
    // `--listen` may name a socket that systemd has opened already
    for address in addresses.iter().filter(|address| !opened.contains(address)) {
        let listening = server.listen(address, mode, exposure).map_err(refused)?;
        if !quiet {
            eprintln!("serving at {listening}; Ctrl-C ends it");
        }
    }
    let scrapes = metrics.map(|place| listen_for_scrapes(place, exposure)).transpose()?;
    let mut names = server.names().to_vec();
    if let Some(ScrapeListener::Unix(_, path)) = &scrapes {
        names.push(path.clone());
    }
    let service = ServiceNotices::connect();
    let sweeper = become_user.go(&server, &names, quiet)?;
    let (window, certificates) = (server.window(), server.certificate_check());
    let is_over = AtomicBool::new(false);
    let text = || {
        let statistics = window.ask(SCRAPE_TIMEOUT).ok_or("the broker does not answer")?;
        // every user of the host can connect to a TCP address
        let is_for_owner = matches!(scrapes, Some(ScrapeListener::Unix(..)));
        Ok(openmetrics(if is_for_owner || !hides_names {
            statistics
        } else {
            statistics.without_names()
        }))
    };
    std::thread::scope(|scope| {
        if let Some(listener) = &scrapes {
            scope.spawn(|| metrics::serve_scrapes(listener, text, || is_over.load(Ordering::Relaxed)));
        }
        let _over = SetOnDrop(&is_over);
        service.ready();
        server.serve(&|| {
            service.alive();
            if interrupt::hung_up() {
                read_again(certificates.as_deref());
            }
            interrupt::caught().is_some()
        })
    })?;
    let statistics = server.broker().statistics(unisono_broker::now());
    drop((service, server, scrapes, sweeper));
    Ok(statistics)
}

/// Ends the thread of the scrapes, also when the broker panics: the scope would wait for it for ever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads the files again on SIGHUP. If a new file is wrong, a server keeps the earlier contents.
fn read_again(certificates: Option<&ClientCertificateCheck>) {
    match certificates.map_or(Ok(false), ClientCertificateCheck::read_again) {
        Ok(true) => exit::print_error("SIGHUP: the revocation lists were read again"),
        Ok(false) => {}
        Err(error) => exit::print_error(&format!("warning: SIGHUP: {error}; the lists read before hold on")),
    }
}

/// The path of a listening Unix socket.
fn path_of(socket: &OwnedFd) -> std::io::Result<Option<PathBuf>> {
    let address = UnixListener::from(socket.try_clone()?).local_addr();
    Ok(address.ok().and_then(|address| address.as_pathname().map(PathBuf::from)))
}

/// Time that a monitoring program waits for the broker's next turn.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);

fn listen_for_scrapes(place: &str, exposure: Exposure) -> anyhow::Result<ScrapeListener> {
    let reached = place.parse::<SocketAddr>().is_ok_and(|address| !address.ip().is_loopback());
    if reached && exposure == Exposure::Loopback {
        let what =
            format!("{place} can be reached from other hosts; name a loopback address, or say --insecure");
        return Err(Failure::Usage(what).into());
    }
    service::listen_for_scrapes(place)
}
