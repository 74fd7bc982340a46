//! Answers monitoring programs and browsers over HTTP: `GET` and `HEAD` requests for `/metrics`, and for
//! other pages that the caller has.
//!
//! Each connection has a thread; there are at most [`MAX_CONNECTIONS`] at a time. A request may take
//! [`TIMEOUT`] and [`MAX_REQUEST`] bytes. Writing the answer may take [`TIMEOUT`] again in all, however
//! slowly the client reads. Each connection is closed after one answer. When all places are taken, the
//! connection that has waited longest without having sent a complete request loses its place. So silent or
//! slow clients delay no other client, hold little memory, and keep nobody out. There is no password: every
//! program that can connect can read. So listen at a loopback address, or at a Unix socket, to which only its
//! owner and root can connect.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use unisono_linux::local_socket::SocketName;
use unisono_linux::{local_socket, poll};

/// The content type that the specification requires.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
/// Forbids pages all that they do not need: they load their own files alone, and no other page may show them.
const GUARDS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n\
     Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\n";
/// The most connections at the same time; a monitoring program opens one.
const MAX_CONNECTIONS: usize = 16;
/// The time limit for a request to arrive, and again for its answer to be written. Monitoring programs give
/// up after 10 s by default.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest request in bytes; a monitoring program's request has some hundred.
const MAX_REQUEST: usize = 8192;
/// The interval at which `is_over` is called.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The mode of a Unix socket.
const OWNER: u32 = 0o600;

/// The address at which monitoring programs are answered.
#[derive(Debug)]
pub struct ScrapeListener {
    socket: ScrapeSocket,
    /// The file of the Unix socket, if dropping this value removes it.
    owned_name: Option<SocketName>,
}

/// Whether a listener removes the file of its Unix socket at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameOwned {
    Yes,
    No,
}

#[derive(Debug)]
enum ScrapeSocket {
    Tcp(TcpListener),
    /// A Unix socket with its path. Only its owner and root may connect; chmod(1) on the path lets others in.
    Unix(UnixListener, PathBuf),
}

impl ScrapeListener {
    /// Listens at `ADDRESS:PORT`, or, if the text has a slash in it, at a Unix socket with that path.
    /// Dropping the listener then removes the socket's file.
    pub fn bind(address: &str) -> io::Result<Self> {
        if !address.contains('/') {
            return Self::at(address, TcpListener::bind(address)?.into());
        }
        let path = PathBuf::from(address);
        local_socket::remove_stale(&path)?;
        let mut listener = Self::at(address, local_socket::listen(&path, OWNER)?.into())?;
        listener.own_name(NameOwned::Yes);
        Ok(listener)
    }

    /// Listens at a socket that another process has bound to this address.
    pub fn at(address: &str, socket: OwnedFd) -> io::Result<Self> {
        let socket = match address.contains('/') {
            true => ScrapeSocket::Unix(socket.into(), PathBuf::from(address)),
            false => ScrapeSocket::Tcp(socket.into()),
        };
        match &socket {
            ScrapeSocket::Tcp(listener) => listener.set_nonblocking(true)?,
            ScrapeSocket::Unix(listener, _) => listener.set_nonblocking(true)?,
        }
        Ok(Self { socket, owned_name: None })
    }

    /// The address at which it listens by TCP, with the port that the kernel chose for 0.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            ScrapeSocket::Tcp(listener) => listener.local_addr().ok(),
            ScrapeSocket::Unix(..) => None,
        }
    }

    /// The path of a Unix socket.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.socket {
            ScrapeSocket::Tcp(_) => None,
            ScrapeSocket::Unix(_, path) => Some(path),
        }
    }

    /// Has this listener remove the file of a Unix socket at its end, or leave it.
    pub fn own_name(&mut self, owned: NameOwned) {
        self.owned_name = self.path().filter(|_| owned == NameOwned::Yes).map(SocketName::from_path);
    }

    /// Accepts a connection. Returns `None` if none waits, because the client has gone again.
    fn accept(&self) -> io::Result<Option<ScrapeConnection>> {
        let accepted = match &self.socket {
            ScrapeSocket::Tcp(listener) => listener.accept().map(|(stream, _)| ScrapeConnection::Tcp(stream)),
            ScrapeSocket::Unix(listener, _) => {
                listener.accept().map(|(stream, _)| ScrapeConnection::Unix(stream))
            }
        };
        match accepted {
            Ok(scraper) => Ok(Some(scraper)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for ScrapeListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ScrapeSocket::Tcp(listener) => listener.as_fd(),
            ScrapeSocket::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl fmt::Display for ScrapeListener {
    /// Writes the address to connect to, with the port that the system chose if the port was 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            ScrapeSocket::Tcp(_) => match self.address() {
                Some(address) => write!(f, "http://{address}/metrics"),
                None => f.write_str("an address that the system does not tell"),
            },
            ScrapeSocket::Unix(_, path) => write!(f, "{}", path.display()),
        }
    }
}

impl Drop for ScrapeListener {
    fn drop(&mut self) {
        if let Some(name) = &self.owned_name {
            let _ = name.remove(); // what cannot be removed stays
        }
    }
}

/// A request for a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// The path, without a query.
    pub path: String,
    /// The host that the client believes to speak with, and its port if it is not the default.
    pub host: Option<String>,
}

/// The answer to a request for a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageAnswer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl PageAnswer {
    /// A page with this content type.
    pub fn new(kind: &'static str, body: impl Into<String>) -> Self {
        Self { status: "200 OK", kind, body: body.into() }
    }

    /// The page of `/metrics`, or the reason why there is none.
    #[must_use]
    pub fn metrics(text: Result<String, String>) -> Self {
        text.map_or_else(|why| Self::failure(&why), |text| Self::new(TYPE, text))
    }

    #[must_use]
    pub fn failure(why: &str) -> Self {
        Self::error("500 Internal Server Error", why)
    }

    #[must_use]
    pub fn not_found(what: &str) -> Self {
        Self::error("404 Not Found", what)
    }

    /// The answer to a client that believes to speak with another host.
    #[must_use]
    pub fn wrong_host(what: &str) -> Self {
        Self::error("421 Misdirected Request", what)
    }

    fn error(status: &'static str, what: &str) -> Self {
        Self { status, kind: PLAIN, body: format!("{what}\n") }
    }
}

/// The page for a person who opens the address in a browser.
const INDEX: &str = "<!doctype html><title>unisono</title><a href=\"/metrics\">/metrics</a>\n";

/// Answers scrapes until `is_over` returns true. `text` returns the text of an answer, or the reason why
/// there is none.
pub fn serve_scrapes(
    listener: &ScrapeListener,
    text: impl Fn() -> Result<String, String> + Sync,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    let page = |request: &PageRequest| match &*request.path {
        "/metrics" => PageAnswer::metrics(text()),
        "/" => PageAnswer::new("text/html; charset=utf-8", INDEX),
        _ => PageAnswer::not_found("here is /metrics alone"),
    };
    serve_pages(listener, page, is_over)
}

/// Answers requests for pages until `is_over` returns true.
pub fn serve_pages(
    listener: &ScrapeListener,
    page: impl Fn(&PageRequest) -> PageAnswer + Sync,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    let open = OpenConnections::default();
    std::thread::scope(|scope| {
        while !is_over() {
            let [asked] = poll::readable([listener.as_fd()], Some(POLL_INTERVAL))?;
            let accepted = if asked { listener.accept() } else { Ok(None) };
            let Ok(accepted) = accepted else {
                // Without free descriptors or memory the connection stays in the backlog, and the listener
                // stays readable: trying again at once would spin.
                std::thread::sleep(POLL_INTERVAL);
                continue;
            };
            let Some(mut stream) = accepted else { continue };
            let Some(number) = open.begin(&stream) else { continue };
            let (page, open) = (&page, &open);
            scope.spawn(move || {
                // an error concerns only this client
                let _ = reply(&mut stream, page, || open.has_asked(number));
                open.end(number);
            });
        }
        open.end_silent();
        Ok(())
    })
}

/// The connections that have a thread.
#[derive(Debug, Default)]
struct OpenConnections(Mutex<ConnectionTable>);

#[derive(Debug, Default)]
struct ConnectionTable {
    /// The number of the newest connection.
    last: u64,
    /// The connections by number, the oldest first. A connection has a handle here until its request has
    /// arrived completely.
    all: BTreeMap<u64, Option<ScrapeConnection>>,
}

impl OpenConnections {
    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        // a panic cannot have left the table half changed
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new connection. Returns `None` if all places are taken by connections that are being
    /// answered: the client has to try again.
    fn begin(&self, stream: &ScrapeConnection) -> Option<u64> {
        let mut table = self.lock();
        if table.all.len() >= MAX_CONNECTIONS {
            let silent = table.all.iter().find(|(_, waits)| waits.is_some()).map(|(number, _)| *number)?;
            // its thread finds the stream shut down; its entry is already removed
            if let Some(Some(longest)) = table.all.remove(&silent) {
                longest.shut_down();
            }
        }
        let handle = stream.try_clone().ok()?;
        table.last += 1;
        let number = table.last;
        table.all.insert(number, Some(handle));
        Some(number)
    }

    /// Records that a connection's request has arrived completely. Returns whether the connection still has
    /// its place.
    fn has_asked(&self, number: u64) -> bool {
        self.lock().all.get_mut(&number).map(|waits| *waits = None).is_some()
    }

    fn end(&self, number: u64) {
        self.lock().all.remove(&number);
    }

    fn end_silent(&self) {
        self.lock().all.values().flatten().for_each(ScrapeConnection::shut_down);
    }
}

#[derive(Debug)]
enum ScrapeConnection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ScrapeConnection {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    fn shut_down(&self) {
        // fails if the client has closed the connection already
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Limits the next read or write to the time until `until`. Fails if that time has passed.
    fn set_deadline(&self, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // a limit that rounds to zero would mean no limit
        let left = Some(left.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(left).and_then(|()| stream.set_write_timeout(left)),
            Self::Unix(stream) => stream.set_read_timeout(left).and_then(|()| stream.set_write_timeout(left)),
        }
    }

    fn reader(&mut self) -> &mut dyn Read {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Tcp(stream) => stream,
            Self::Unix(stream) => stream,
        }
    }

    /// Writes all bytes before `until`, or fails. With a time limit for each call instead, a client that
    /// takes a byte now and then could stay for ever.
    fn write_until(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.set_deadline(until)?;
            match self.writer().write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads a request, and answers it if its connection still `has_place` by then.
fn reply(
    stream: &mut ScrapeConnection,
    page: &impl Fn(&PageRequest) -> PageAnswer,
    has_place: impl FnOnce() -> bool,
) -> io::Result<()> {
    let head = request_head(stream, Instant::now() + TIMEOUT)?;
    let mut lines = head.lines();
    let request = lines.next().unwrap_or_default();
    let fields = lines.filter_map(|line| line.split_once(':'));
    let mut hosts = fields.filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = hosts.next().map(|(_, host)| host.trim().to_owned());
    if !has_place() {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let mut words = request.split(' ');
    let PageAnswer { status, kind, body } = match (words.next(), words.next()) {
        _ if hosts.next().is_some() => PageAnswer::error("400 Bad Request", "two hosts"),
        _ if host.is_none() && request.ends_with(" HTTP/1.1") => {
            PageAnswer::error("400 Bad Request", "no host")
        }
        (Some("GET" | "HEAD"), Some(path)) => {
            page(&PageRequest { path: path.split('?').next().unwrap_or_default().to_owned(), host })
        }
        _ => PageAnswer::error("405 Method Not Allowed", "only GET"),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{GUARDS}Connection: close\r\n\r\n"
    );
    let body = if request.starts_with("HEAD ") { "" } else { &body };
    stream.write_until([head.as_str(), body].concat().as_bytes(), Instant::now() + TIMEOUT)
}

/// Returns the request's head when it has arrived completely.
fn request_head(stream: &mut ScrapeConnection, until: Instant) -> io::Result<String> {
    let (mut read, mut piece) = (Vec::new(), [0; 1024]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        if read.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_deadline(until)?;
        let more = stream.reader().read(&mut piece)?;
        if more == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&piece[..more]);
    }
    Ok(String::from_utf8_lossy(&read).into_owned())
}
