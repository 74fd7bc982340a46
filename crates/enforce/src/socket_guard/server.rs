//! The server of the guard: its socket, its clients, its end.
//!
//! Clients may be hostile. A user whom no policy names gets a refusal before a byte of the request is read.
//! Every other user may have [`MAX_REQUESTS_OF_USER`] requests at a time, each in a thread of its own.
//! Closing a descriptor that a client has passed can take as long as the client likes (`SO_LINGER`, a file
//! system in user space), and then only requests of the same user wait.

use super::{SocketGuard, UserLookup};
use crate::error::Error;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use unisono_linux::local_socket::{Peer, SocketName};
use unisono_linux::private_directory::make_enterable;
use unisono_linux::{Errno, local_socket, poll};
use unisono_socket_shares::message::{REQUEST_BYTES, ShareAnswer, ShareRequest};

/// The most requests at a time, of one user and of all.
const MAX_REQUESTS_OF_USER: usize = 8;
const MAX_REQUESTS: usize = 64;
/// A client sends its request in one call, right after it has connected.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which the server checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which leaves without sockets are removed. Chosen, not measured: such a leaf has no
/// packets, and its guarantee is lent to the others.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Why there is no guard.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    #[error("cannot listen at {}: {source}", path.display())]
    Listen { path: PathBuf, source: io::Error },
    #[error("a guard answers at {} already", path.display())]
    InUse { path: PathBuf },
    #[error("cannot serve: {0}")]
    Server(#[source] io::Error),
    #[error(transparent)]
    Policy(#[from] Error),
}

/// Serves requests for leaves.
pub struct GuardServer {
    listener: UnixListener,
    /// The name of the socket, which is removed when this value is dropped. `None`: the service manager made
    /// the socket.
    name: Option<SocketName>,
    requests: Arc<Requests>,
}

/// The requests in progress.
struct Requests {
    guard: SocketGuard,
    /// The number of requests in progress, by user.
    open: Mutex<BTreeMap<u32, usize>>,
}

impl GuardServer {
    /// Listens at a Unix socket with this file mode. Replaces a socket that a killed guard has left.
    pub fn listen(path: &Path, mode: u32, user_id: UserLookup) -> Result<Self, GuardError> {
        let refused = |source| GuardError::Listen { path: path.to_owned(), source };
        if let Some(above) = path.parent() {
            make_enterable(above).map_err(refused)?;
        }
        local_socket::remove_stale(path).map_err(refused)?;
        let listener = local_socket::listen(path, mode).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => GuardError::InUse { path: path.to_owned() },
            _ => refused(source),
        })?;
        let mut server = Self::at(listener, user_id);
        server.name = Some(SocketName::from_path(path));
        // the umask may have removed bits of the mode
        local_socket::set_mode(path, mode).map_err(refused)?;
        Ok(server)
    }

    /// Serves at a socket that the service manager has made.
    pub fn at(listener: UnixListener, user_id: UserLookup) -> Self {
        let requests = Requests { guard: SocketGuard::new(user_id), open: Mutex::default() };
        Self { listener, name: None, requests: Arc::new(requests) }
    }

    /// Serves until `is_over` returns true, and then removes the leaves of all sockets. Passes errors of
    /// devices to `note`.
    pub fn serve(&self, is_over: &dyn Fn() -> bool, note: &dyn Fn(&str)) -> Result<(), GuardError> {
        self.listener.set_nonblocking(true).map_err(GuardError::Server)?;
        let (mut scanned, mut noted) = (None::<Instant>, Vec::new());
        while !is_over() {
            if scanned.is_none_or(|scanned| scanned.elapsed() >= SCAN_INTERVAL) {
                let errors =
                    self.requests.guard.remove_ended().unwrap_or_else(|error| vec![error.to_string()]);
                // reports only new errors, because the same error may come every second
                errors.iter().filter(|error| !noted.contains(*error)).for_each(|error| note(error));
                (scanned, noted) = (Some(Instant::now()), errors);
            }
            let ready = poll::readable([self.listener.as_fd()], Some(POLL_INTERVAL));
            if ready.map_err(GuardError::Server)?[0] {
                self.accept();
            }
        }
        Ok(self.requests.guard.remove_all()?)
    }

    fn accept(&self) {
        // fails if there are too many open files, or if the client has gone again; the other clients are
        // served
        let Ok((stream, _)) = self.listener.accept() else {
            thread::sleep(POLL_INTERVAL);
            return;
        };
        let Ok(peer) = local_socket::peer(&stream) else { return };
        if let Err(refused) = self.requests.enter(peer.user) {
            answer(&stream, &refused);
            return;
        }
        let requests = Arc::clone(&self.requests);
        let client = thread::Builder::new().name("guard-client".to_owned()).spawn(move || {
            let _left = OpenRequest { requests: &requests, user: peer.user };
            answer(&stream, &requests.guard.answer(&stream, peer));
        });
        if client.is_err() {
            self.requests.leave(peer.user);
        }
    }
}

impl Drop for GuardServer {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = name.remove(); // what cannot be removed stays
        }
    }
}

impl SocketGuard {
    /// Reads a request and grants or refuses it. The descriptor is closed before the answer.
    fn answer(&self, stream: &UnixStream, peer: Peer) -> ShareAnswer {
        let mut bytes = [0; REQUEST_BYTES];
        let received = stream
            .set_read_timeout(Some(REQUEST_TIMEOUT))
            .and_then(|()| local_socket::receive_with(stream, &mut bytes));
        let request = ShareRequest::parse(&bytes);
        match (received, request) {
            (Ok(Some(socket)), Some(request)) => match self.share(&request, peer, &socket) {
                Ok(()) => ShareAnswer::Done,
                Err(error) => ShareAnswer::Refused { errno: error.errno(), text: error.to_string() },
            },
            (Ok(None), Some(_)) => refused(Errno::BADF, "no descriptor of a socket came with the request"),
            (Ok(_), None) => {
                refused(Errno::INVAL, "the request is not understood; use libunisono of the same version")
            }
            (Err(_), _) => refused(Errno::INVAL, "no whole request came"),
        }
    }
}

impl Requests {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, user: u32) -> Result<(), ShareAnswer> {
        match self.guard.knows(user) {
            Ok(true) => {}
            Ok(false) => {
                let text = format!(
                    "no policy in force here takes sockets of user {user}; the administrator names the user in a class: \
                     sockets = {{ from = [{user}] }}"
                );
                return Err(refused(Errno::PERM, &text));
            }
            Err(error) => return Err(refused(Errno::IO, &error.to_string())),
        }
        let mut open = self.open();
        let all: usize = open.values().sum();
        let own = open.entry(user).or_default();
        if *own >= MAX_REQUESTS_OF_USER || all >= MAX_REQUESTS {
            return Err(refused(Errno::AGAIN, "too many requests at a time; try again"));
        }
        *own += 1;
        Ok(())
    }

    fn leave(&self, user: u32) {
        let mut open = self.open();
        if let Some(own) = open.get_mut(&user) {
            *own -= 1;
            if *own == 0 {
                open.remove(&user);
            }
        }
    }
}

struct OpenRequest<'a> {
    requests: &'a Requests,
    user: u32,
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.requests.leave(self.user);
    }
}

fn refused(errno: Errno, text: &str) -> ShareAnswer {
    ShareAnswer::Refused { errno: errno.raw_os_error(), text: text.to_owned() }
}

/// Writes an answer. It fits into the socket's buffer, so this does not wait for the client.
fn answer(mut stream: &UnixStream, answer: &ShareAnswer) {
    let _ = stream.write_all(&answer.encode()); // the client may have gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_a_bounded_number_of_requests_at_a_time() {
        let requests = Requests { guard: SocketGuard::new(Box::new(|_| None)), open: Mutex::default() };
        // root may send requests even if no policy names it
        let enter = |user| match requests.enter(user) {
            Ok(()) => 0,
            Err(ShareAnswer::Refused { errno, .. }) => errno,
            Err(ShareAnswer::Done) => panic!("it was not asked for a share"),
        };
        for _ in 0..MAX_REQUESTS_OF_USER {
            assert_eq!(enter(0), 0);
        }
        assert_eq!(enter(0), Errno::AGAIN.raw_os_error());
        assert_eq!(enter(4_000_000_000), Errno::PERM.raw_os_error());
        requests.leave(0);
        assert_eq!(enter(0), 0);
        (0..MAX_REQUESTS_OF_USER).for_each(|_| requests.leave(0));
        assert!(requests.open().is_empty());
    }
}
