//! `unisono events serve`: the broker.

use super::first_client::AccessConditions;
use super::limits::{self, LimitFlags};
use super::log::LogFlags;
use super::policy::mode;
use super::settings::SettingsFiles;
use super::show::counters;
use super::take_over::Successor;
use super::user::{BecomeUser, NextUser};
use super::web::{self, NameDisplay, PageSet, WebPages};
use crate::exit::{self, Failure};
use crate::flags::one_of;
use crate::live_view::table_width;
use crate::machine_output;
use crate::output;
use crate::service::{self, ServiceNotices};
use anyhow::Context as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use unisono_broker::{
    AuditFile, Exposure, Limits, ReloadAsker, ServeEnd, ServeError, Server, SocketOrigin, TlsService,
    WebEncryption,
};
use unisono_events_client::{BrokerAddress, CertifiedFiles, ChannelWait, Statistics, default_socket};

use unisono_enforce::metrics::{self, NameOwned, ScrapeListener};
use unisono_linux::resource_limit::raise_open_files;
use unisono_linux::{activation, interrupt};

/// Serve events to programs, until Ctrl-C
///
/// Without a policy all consumers are of one class. With a policy, each consumer names a class of the policy,
/// and classes share the broker's time by weight; programs may also open paths to addresses, as with `unisono
/// queue broker`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  unisono events serve
      at $XDG_RUNTIME_DIR/unisono-events
  unisono events serve --listen /tmp/bus --listen tcp:127.0.0.1:7400
  unisono events serve --listen tls:0.0.0.0:7401 --certificate broker.crt \\
          --key broker.key --client-authority programs.crt
      for programs of other hosts
  unisono events serve --mqtt 127.0.0.1:1883
      also for mosquitto_pub, paho, rumqttc and the like
  unisono events serve --mqtt ws:127.0.0.1:9001
      also for pages in a browser, by MQTT.js
  unisono events serve --log ~/events
      suppliers may ask for durability, consumers may resume
  unisono events serve --log ~/events --take-over
      the same, in place of the broker that serves there now
  unisono events serve --web 127.0.0.1:9471
      live counters for a browser
  unisono events serve policy.toml --mode 660
      classes of a policy; programs of your group may connect")]
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
    /// Where to listen for MQTT clients: tcp:HOST:PORT, or tls:HOST:PORT; without a scheme it is TCP. By
    /// WebSocket, also for pages in a browser: ws:HOST:PORT, or wss:HOST:PORT with TLS
    #[arg(long, value_name = "ADDRESS", value_parser = mqtt_address)]
    mqtt: Vec<MqttAddress>,
    /// For ws: and wss: addresses: pages from there may connect, such as https://plant.example
    ///
    /// A browser lets any page connect to any address, also to one of this host. So only pages from localhost
    /// or a loopback address may connect, and those whose origin this option names exactly: scheme, host, and
    /// port if it is not the default. Programs other than browsers usually send no origin, and are not
    /// refused.
    #[arg(long, value_name = "ORIGIN", requires = "mqtt")]
    mqtt_origin: Vec<String>,
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
    /// With --client-authority: lists of certificates that the authority has revoked (PEM)
    ///
    /// A connection whose certificate a list names is refused, or ended. Every authority of a program's
    /// certificate needs a list, and a list that is out of date lets no program in.
    #[arg(long, value_name = "FILE", requires = "client_authority")]
    revocations: Option<PathBuf>,
    /// The rights of clients to publish and subscribe, and their limits: a TOML file
    ///
    /// Without it, every client that can connect may do everything. With it, a client that no rule names is
    /// refused.
    #[arg(long, value_name = "FILE")]
    permissions: Option<PathBuf>,
    /// Ask programs and MQTT clients over TCP for a token; this TOML file has the hashes of the tokens
    ///
    /// Without TLS others can read a token on its way. So tokens from other hosts are taken at tls: and udp:
    /// addresses only.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Users with access to the socket, as chmod(1) writes it
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600")]
    mode: u32,
    /// Allow addresses that other hosts can reach even if they have no TLS, or if clients need neither a
    /// certificate nor a token
    #[arg(long)]
    insecure: bool,
    /// When root starts it: the user to become once it listens, as a name or as UID or UID:GID
    ///
    /// Without this option the broker becomes a user that owns nothing and that no other process has. The
    /// broker gives the log to its user; with --take-over the log's owner is that user. It needs access to
    /// the directories above the log. With `root` the broker stays root.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[command(flatten)]
    log: LogFlags,
    /// Take the place of the broker that serves at the first path of --listen: its sockets and its log. No
    /// client is refused meanwhile
    ///
    /// Give the options of that broker, with the same --log; sockets that this one does not name are closed.
    /// That broker serves until this one has read and checked all its files; if this one fails, it serves on.
    /// Clients then connect again (--reconnect), and with a log no acknowledged event and no MQTT session is
    /// lost. Without a broker there, this one starts as usual. Only root and that broker's user may ask for
    /// this.
    #[arg(long)]
    take_over: bool,
    /// Append a line to this file for each connection, request and refusal: who, from where, what, done or
    /// refused (JSON Lines)
    ///
    /// The file is made with mode 600, before the broker becomes another user. Equal lines within a second
    /// are one line with their number. A line that cannot be written is a warning and is counted
    /// (`audit_lost`).
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Answer monitoring programs there (GET /metrics): ADDRESS:PORT, or the path of a Unix socket. With
    /// --permissions, the names of consumers and topics are shown at a Unix socket only
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Show browsers a page of live counters there: ADDRESS:PORT, or the path of a Unix socket. An address
    /// that other hosts can reach needs --insecure
    ///
    /// The page lists topics and consumers with their rates, marks slow consumers, and shows classes, their
    /// shares and missed deadlines. It changes nothing. GET /statistics.json returns the object of `events
    /// top --json`; /healthz and /metrics are for monitoring programs. Every user of the host can read the
    /// page at a TCP address, so with --permissions names of consumers and topics are shown at a Unix socket
    /// only.
    #[arg(long, value_name = "ADDRESS")]
    web: Option<String>,
    /// Seconds after which a program counts as gone whose host does not answer over TCP or UDP
    ///
    /// Its consumers get a notice, and a stand-by supplier takes over, within twice this time. A program that
    /// computes is not gone: its kernel answers, or over UDP a thread of the library. Over UDP it is at least
    /// 3 s. Programs watch the broker by the same time.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 5)]
    peer_timeout: u64,
    /// Let two programs exchange events over a TCP connection of their own, without the broker
    ///
    /// Both programs have to be connected by `tcp:`. The broker introduces the supplier of a topic to its
    /// only consumer, and the supplier connects to a port that the consumer's kernel chooses, at the address
    /// from which the consumer is connected to the broker: firewalls have to let such connections pass. Both
    /// ends show keys from the broker; keys and events are not encrypted. Permissions hold as before; a link
    /// whose permission is withdrawn is closed within a second. Events of a topic with several consumers, or
    /// with a subscription that asks for a filter, a group, a class or a share, go through the broker.
    #[arg(long)]
    direct_tcp: bool,
    #[command(flatten)]
    limits: LimitFlags,
    /// How the broker waits
    #[arg(long, value_name = "HOW", value_parser = one_of(&ChannelWait::ALL), default_value = "sleep")]
    wait: ChannelWait,
    /// Print the counters as one JSON object when the broker ends; with --print-limits, the limits
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let limits = args.limits.limits();
    if args.limits.print_limits {
        return limits::print(&limits, args.json);
    }
    let user = NextUser::chosen(args.user.as_deref())?;
    let limits = Limits { peer_timeout: Duration::from_secs(args.peer_timeout).into(), ..limits };
    // Descriptors: a client over shared memory needs the most, for its socket, its memory and its wake-ups.
    // The log has an open file for each segment: a few for each of up to 256 identities.
    let of_log = if args.log.path().is_some() { 1536 } else { 0 };
    let wanted = limits.clients as u64 * 8 + 256 + of_log;
    let files = raise_open_files(wanted).context("cannot raise the limit of open files")?;
    if files < wanted {
        eprintln!(
            "note: this process may open {files} files, and {} clients may need {wanted}: those beyond wait until \
             others leave; raise the limit (LimitNOFILE= of the unit, ulimit -Hn), or give root CAP_SYS_RESOURCE",
            limits.clients
        );
    }
    let files = SettingsFiles {
        policy: args.policy.clone(),
        permissions: args.permissions.clone(),
        tokens: args.tokens.clone(),
    };
    let broker = files.broker(limits)?;
    let audit = args.audit.as_deref().map(AuditFile::open).transpose();
    let audit = audit.map_err(|error| Failure::Usage(error.to_string()))?;
    let mut broker = if audit.is_some() { broker.with_audit() } else { broker };
    if args.direct_tcp {
        broker = broker.with_direct_tcp();
    }
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
        // the Unix socket at a path serves clients with and without shared memory
        addresses.push(match address {
            BrokerAddress::Unix(path) => BrokerAddress::Shared(path),
            other => other,
        });
    }
    let predecessor = if args.take_over { Successor::ask(&addresses, &args.log)? } else { None };
    if predecessor.is_none() {
        args.log.add_to(&mut broker)?;
    }
    let exposure = if args.insecure { Exposure::Anybody } else { Exposure::Loopback };
    let mut server = Server::new(broker, args.wait)?;
    server.set_note_handler(|text| eprintln!("note: {text}"));
    let has_activation = inherit(&mut server)?;
    let successor = predecessor.map(|asked| asked.inherit(&mut server));
    if let Some(file) = audit {
        server.audit_to(file, Box::new(|error| exit::print_error(&format!("warning: {error}"))));
    }
    let own = CertifiedFiles::new(args.certificate.as_deref(), args.key.as_deref());
    if let Some(own) = own.map_err(|error| refused(error.into()))? {
        let service = TlsService {
            own,
            client_authority: args.client_authority.clone(),
            revocations: args.revocations.clone(),
        };
        server.use_tls(&service).map_err(refused)?;
    }
    let access = AccessConditions {
        mode: args.mode,
        asks_token: args.tokens.is_some(),
        asks_certificate: args.client_authority.is_some(),
        has_permissions: server.has_permissions(),
    };
    let mut announcements = Vec::new();
    for address in &args.mqtt {
        let mut websocket = |address, encryption| {
            let origins = args.mqtt_origin.clone().into();
            server.listen_mqtt_websocket(address, exposure, (encryption, origins))
        };
        let (listening, scheme) = match *address {
            MqttAddress::WebSocket(address, WebEncryption::None) => {
                (websocket(address, WebEncryption::None), "ws:")
            }
            MqttAddress::WebSocket(address, WebEncryption::Tls) => {
                (websocket(address, WebEncryption::Tls), "wss:")
            }
            MqttAddress::Plain(address) => (server.listen_mqtt(address, exposure), ""),
            MqttAddress::Tls(address) => (server.listen_mqtt_tls(address, exposure), "tls:"),
        };
        let listening = listening.map_err(refused)?;
        let client = match address {
            MqttAddress::WebSocket(..) => format!("mqtt.connect(\"{scheme}//{listening}\")"),
            _ => access.mqtt(listening, !scheme.is_empty()),
        };
        announcements.push(format!("serving MQTT at {scheme}{listening}; {client}"));
    }
    let certificates = [&args.certificate, &args.key, &args.client_authority, &args.revocations];
    let certificates = certificates.into_iter().flatten().map(PathBuf::as_path);
    let user = match &successor {
        Some(successor) if user == NextUser::Unused => successor.user().unwrap_or(user),
        _ => user,
    };
    let become_user =
        BecomeUser { user, log: args.log.path(), files: files.paths().chain(certificates).collect() };
    let serving = ServePlan {
        server,
        addresses: &addresses,
        has_activation,
        access,
        announcements,
        exposure,
        quiet: args.json,
        metrics: args.metrics.as_deref(),
        web: args.web.as_deref(),
        become_user: &become_user,
        files: &files,
        successor,
    };
    let statistics = serving.run()?;
    match args.json {
        true => output::answer(&machine_output::json("unisono-events-statistics-1", &statistics)?)?,
        false => output::answer(counters(&statistics, table_width()).trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves at these addresses, and at the sockets that systemd has opened, until a signal. A broker started by
/// root first becomes `user`, as `--user` says.
pub(crate) fn serve(
    files: &SettingsFiles,
    (addresses, mode, exposure): (&[BrokerAddress], u32, Exposure),
    quiet: bool,
    user: Option<&str>,
) -> anyhow::Result<Statistics> {
    let become_user = BecomeUser { user: NextUser::chosen(user)?, log: None, files: files.paths().collect() };
    let mut server = Server::new(files.broker(Limits::default())?, ChannelWait::Sleep)?;
    server.set_note_handler(|text| eprintln!("note: {text}"));
    let has_activation = inherit(&mut server)?;
    let access =
        AccessConditions { mode, has_permissions: server.has_permissions(), ..AccessConditions::default() };
    let (become_user, metrics, web, successor) = (&become_user, None, None, None);
    let announcements = Vec::new();
    let serving = ServePlan {
        server,
        addresses,
        has_activation,
        access,
        announcements,
        exposure,
        quiet,
        metrics,
        web,
        become_user,
        files,
        successor,
    };
    serving.run()
}

/// Passes the sockets of systemd to a server. Returns whether there are any.
fn inherit(server: &mut Server) -> anyhow::Result<bool> {
    let sockets = activation::listeners().context("cannot take the sockets of LISTEN_FDS")?;
    let any = !sockets.is_empty();
    server.inherit(sockets, SocketOrigin::ServiceManager);
    Ok(any)
}

/// An address at which MQTT clients may connect.
#[derive(Clone, Copy, Debug)]
enum MqttAddress {
    Plain(SocketAddr),
    Tls(SocketAddr),
    WebSocket(SocketAddr, WebEncryption),
}

/// Makes the address of a scheme.
type MakeMqttAddress = fn(SocketAddr) -> MqttAddress;

fn mqtt_address(text: &str) -> Result<MqttAddress, String> {
    let schemes: [(&str, MakeMqttAddress); 6] = [
        ("tcp:", MqttAddress::Plain),
        ("tls:", MqttAddress::Tls),
        ("mqtt:", MqttAddress::Plain),
        ("mqtts:", MqttAddress::Tls),
        ("ws:", |address| MqttAddress::WebSocket(address, WebEncryption::None)),
        ("wss:", |address| MqttAddress::WebSocket(address, WebEncryption::Tls)),
    ];
    let named = schemes.iter().find_map(|(scheme, make)| Some((text.strip_prefix(scheme)?, *make)));
    let (place, make) = named.unwrap_or((text, MqttAddress::Plain));
    let place = if named.is_some() { place.strip_prefix("//").unwrap_or(place) } else { place };
    let wrong =
        |error| format!("{error}; write tcp:HOST:PORT, tls:HOST:PORT, ws:HOST:PORT, or wss:HOST:PORT");
    let found = place.to_socket_addrs().map_err(wrong)?.next();
    Ok(make(found.ok_or_else(|| "the host has no address".to_owned())?))
}

pub(super) fn refused(error: ServeError) -> anyhow::Error {
    match error {
        ServeError::Wait(_) | ServeError::Transport(_) => error.into(),
        other => Failure::Usage(other.to_string()).into(),
    }
}

/// A server with all that it needs to serve.
struct ServePlan<'a> {
    server: Server,
    addresses: &'a [BrokerAddress],
    /// Whether systemd has opened sockets.
    has_activation: bool,
    access: AccessConditions,
    /// The lines that say where the server listens, printed once it listens everywhere.
    announcements: Vec<String>,
    exposure: Exposure,
    quiet: bool,
    metrics: Option<&'a str>,
    web: Option<&'a str>,
    become_user: &'a BecomeUser<'a>,
    files: &'a SettingsFiles,
    /// None: the server takes no other broker's place.
    successor: Option<Successor<'a>>,
}

impl ServePlan<'_> {
    /// Listens at the addresses, and serves until a signal, or until another broker takes over.
    fn run(self) -> anyhow::Result<Statistics> {
        let Self { mut server, access, mut announcements, exposure, quiet, become_user, successor, .. } =
            self;
        let files = self.files.clone();
        server.set_settings_reader(Box::new(move || files.read_again().map_err(|error| error.to_string())));
        let hides_names = server.has_permissions();
        interrupt::catch_for_server().context("cannot catch Ctrl-C")?;
        let own = [BrokerAddress::Shared(default_socket())];
        let is_default = !self.has_activation && self.addresses.is_empty();
        // `--listen` may name a socket that systemd or the other broker has already opened
        for address in if is_default { &own } else { self.addresses } {
            let listening = server.listen(address, access.mode, exposure).map_err(refused)?;
            let client = access.native(&listening);
            announcements.push(format!("serving at {listening}; {client}; Ctrl-C ends it"));
        }
        let mut pages = Vec::new();
        for (place, set) in [(self.metrics, PageSet::Metrics), (self.web, PageSet::All)] {
            let Some(place) = place else { continue };
            let listener = listen_for_scrapes(&mut server, place, exposure)?;
            announcements.push(match (set, listener.path()) {
                (PageSet::All, _) => format!("the page for browsers is at {}", web::place(&listener)),
                (PageSet::Metrics, None) => format!("metrics are at {listener}"),
                (PageSet::Metrics, Some(path)) => {
                    let path = path.display();
                    format!("metrics are at {path}; curl --unix-socket {path} http://localhost/metrics")
                }
            });
            pages.push((listener, set));
        }
        for left in server.listen_at_inherited().map_err(refused)? {
            eprintln!(
                "note: the broker served at {left} until now, and this one does not: no option names it"
            );
        }
        if !quiet {
            announcements.iter().for_each(|line| eprintln!("{line}"));
        }
        for (listener, _) in &pages {
            server.hand_over_too(listener.as_fd().try_clone_to_owned()?);
        }
        let predecessor = successor.map(|successor| successor.release(&mut server)).transpose()?;
        let mut names = server.names();
        for (listener, _) in &mut pages {
            listener.own_name(NameOwned::Yes);
            names.extend(listener.path().map(Path::to_owned));
        }
        let service = ServiceNotices::connect();
        let sweeper = become_user.go(&server, &names, quiet)?;
        let (window, reloads) = (server.window(), server.reload_trigger());
        let is_over = AtomicBool::new(false);
        let end = std::thread::scope(|scope| {
            for (listener, set) in &pages {
                // every user of the host can connect to a TCP address, so only a Unix socket shows the names
                let names = if hides_names && listener.path().is_none() {
                    NameDisplay::Hidden
                } else {
                    NameDisplay::Shown
                };
                let answers = WebPages::new(&window, *set, names, listener);
                let is_over = || is_over.load(Ordering::Relaxed);
                scope.spawn(move || metrics::serve_pages(listener, |asked| answers.page(asked), is_over));
            }
            let _over = SetOnDrop(&is_over);
            if let Some(predecessor) = predecessor {
                predecessor.end();
                if !quiet {
                    eprintln!("took over: the broker that served there has ended");
                }
            }
            service.ready();
            server.serve(&|| {
                service.alive();
                if let Some(hang_up) = interrupt::hung_up() {
                    reloads.ask(ReloadAsker::Signal { user: hang_up.sender });
                }
                interrupt::caught().is_some()
            })
        })?;
        let statistics = server.broker().statistics(unisono_events_client::now());
        // the other broker's sockets have these names now
        if end == ServeEnd::TakenOver {
            pages.iter_mut().for_each(|(listener, _)| listener.own_name(NameOwned::No));
        }
        drop((service, server, pages));
        match (end, sweeper) {
            (ServeEnd::TakenOver, Some(sweeper)) => sweeper.leave_sockets(),
            (_, sweeper) => drop(sweeper),
        }
        Ok(statistics)
    }
}

/// Ends the thread that answers scrapes, even if the broker panics: the thread scope would otherwise wait for
/// that thread forever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn listen_for_scrapes(
    server: &mut Server,
    place: &str,
    exposure: Exposure,
) -> anyhow::Result<ScrapeListener> {
    // a name is resolved here, so that the address that is checked is the one that is used
    let resolved = if place.contains('/') { None } else { place.to_socket_addrs().ok() };
    let address: Option<SocketAddr> = resolved.and_then(|mut all| all.next());
    let named = address.map(|address| address.to_string());
    let place = named.as_deref().unwrap_or(place);
    let reached = address.is_some_and(|address| !address.ip().is_loopback());
    if reached && exposure == Exposure::Loopback {
        let what =
            format!("{place} can be reached from other hosts; name a loopback address, or say --insecure");
        return Err(Failure::Usage(what).into());
    }
    let inherited = match address {
        Some(address) => server.inherited_tcp(address),
        None => server.inherited_unix(Path::new(place)),
    };
    match inherited {
        Some(socket) => {
            if address.is_none() {
                // by the new change time, the process that removes the other broker's sockets leaves this one
                std::fs::set_permissions(place, std::fs::metadata(place)?.permissions())?;
            }
            Ok(ScrapeListener::at(place, socket)?)
        }
        None => service::listen_for_scrapes(place),
    }
}
