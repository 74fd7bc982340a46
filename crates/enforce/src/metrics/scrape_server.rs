//! Answers monitoring programs over HTTP: only `GET /metrics`.
//!
//! Each connection has a thread, at most [`MAX_CONNECTIONS`] at a time. A request may take
//! [`REQUEST_TIMEOUT`] and [`MAX_REQUEST`] bytes, and each connection is closed after one answer. So a silent
//! client delays no other one and holds no memory. There is no password: every client that can connect can
//! read. Listen at a loopback address or a Unix socket.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use unisono_linux::poll;

/// The type that the specification requires.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections at the same time; a monitoring program opens one.
const MAX_CONNECTIONS: usize = 16;
/// The time for one request and its answer. Monitoring programs give up after 10 s by default.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A request of a monitoring program has some hundred bytes.
const MAX_REQUEST: usize = 8192;
/// The interval at which `is_over` is called.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The address for monitoring programs. Dropping it removes a Unix socket.
#[derive(Debug)]
pub enum ScrapeListener {
    Tcp(TcpListener),
    /// The file's permissions (the umask) decide who may connect.
    Unix(UnixListener, PathBuf),
}

impl ScrapeListener {
    /// Listens at `ADDRESS:PORT`, or at a Unix socket if the text has a slash in it.
    pub fn bind(address: &str) -> io::Result<Self> {
        if !address.contains('/') {
            return Ok(Self::Tcp(TcpListener::bind(address)?));
        }
        let path = PathBuf::from(address);
        let is_socket = path.symlink_metadata().is_ok_and(|facts| facts.file_type().is_socket());
        let is_left = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(&path).as_ref().is_err_and(is_left) {
            std::fs::remove_file(&path)?;
        }
        Ok(Self::Unix(UnixListener::bind(&path)?, path))
    }

    fn accept(&self) -> io::Result<ScrapeConnection> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| ScrapeConnection::Tcp(stream)),
            Self::Unix(listener, _) => listener.accept().map(|(stream, _)| ScrapeConnection::Unix(stream)),
        }
    }
}

impl AsFd for ScrapeListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl fmt::Display for ScrapeListener {
    /// The address to connect to, with the port that the system chose for port 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => write!(f, "http://{address}/metrics"),
                Err(_) => f.write_str("an address that the system does not tell"),
            },
            Self::Unix(_, path) => write!(f, "{}", path.display()),
        }
    }
}

impl Drop for ScrapeListener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // another process may have removed it
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Answers until `is_over` returns true. `text` makes an answer, or returns the reason why there is none.
pub fn serve_scrapes(
    listener: &ScrapeListener,
    text: impl Fn() -> Result<String, String> + Sync,
    is_over: impl Fn() -> bool,
) -> io::Result<()> {
    let open = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        while !is_over() {
            let [asked] = poll::readable([listener.as_fd()], Some(STOP_POLL_INTERVAL))?;
            // a client may have gone before it was accepted
            let Some(mut stream) = asked.then(|| listener.accept().ok()).flatten() else { continue };
            if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (text, open) = (&text, &open);
            scope.spawn(move || {
                // an error here affects this client only
                let _ = reply(&mut stream, text);
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
        Ok(())
    })
}

#[derive(Debug)]
enum ScrapeConnection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ScrapeConnection {
    fn set_timeouts(&self, patience: Duration) -> io::Result<()> {
        // zero would mean no timeout
        let patience = Some(patience.max(Duration::from_millis(1)));
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience))
            }
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
}

fn reply(stream: &mut ScrapeConnection, text: &impl Fn() -> Result<String, String>) -> io::Result<()> {
    let until = Instant::now() + REQUEST_TIMEOUT;
    let request = request_line(stream, until)?;
    let mut words = request.split(' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some(path)) if path.split('?').next() == Some("/metrics") => match text() {
            Ok(text) => ("200 OK", TYPE, text),
            Err(why) => ("500 Internal Server Error", "text/plain; charset=utf-8", format!("{why}\n")),
        },
        (Some("GET" | "HEAD"), Some(_)) => {
            ("404 Not Found", "text/plain; charset=utf-8", "here is /metrics alone\n".to_owned())
        }
        _ => ("405 Method Not Allowed", "text/plain; charset=utf-8", "GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let body = if request.starts_with("HEAD ") { "" } else { &body };
    stream.set_timeouts(REQUEST_TIMEOUT)?;
    stream.writer().write_all([head.as_str(), body].concat().as_bytes())
}

/// The request's first line, once the whole head has arrived.
fn request_line(stream: &mut ScrapeConnection, until: Instant) -> io::Result<String> {
    let (mut read, mut piece) = (Vec::new(), [0; 1024]);
    while !read.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || read.len() > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_timeouts(left)?;
        let more = stream.reader().read(&mut piece)?;
        if more == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&piece[..more]);
    }
    let line = read.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}
