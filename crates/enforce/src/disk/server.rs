//! The server: its socket, its connections, and its shutdown.

use super::backing::Backing;
use super::handshake::{Export, Exports};
use super::nbd::ExportFacts;
use super::queue::{DiskClassFigures, FailureNote, RequestQueue};
use super::{DiskError, connection, policy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use unisono_fairqueue::{ClassId, Policy};
use unisono_linux::direct::FileAccess;
use unisono_linux::local_socket::SocketName;
use unisono_linux::{disk_file, local_socket, poll};

/// The most clients at the same time; each has two threads and at most 32 MiB of requests.
const MAX_CONNECTIONS: usize = 64;
/// The interval at which the server checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The time limit, at the end, for clients to read the last replies.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const ROOT_USER: u32 = 0;
/// The mode of a socket for its owner and root.
const OWNER: u32 = 0o600;

/// A server for a file or a block device. It schedules requests by the classes of a policy.
pub struct DiskServer {
    served: Mutex<Arc<ServedPolicy>>,
    queue: RequestQueue,
    facts: ExportFacts,
    backing: Backing,
    clients: Clients,
    socket: Option<ServedSocket>,
}

/// The policy in force.
struct ServedPolicy {
    policy: Policy,
    /// The users who may choose each class, by class number; `None` for every user.
    users: Vec<Option<Vec<u32>>>,
}

impl ServedPolicy {
    fn checked(policy: Policy, user_id: impl Fn(&str) -> Option<u32>) -> Result<Self, DiskError> {
        policy::check(&policy)?;
        let users = policy::users(&policy, user_id)?;
        Ok(Self { policy, users })
    }
}

/// The counters of a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DiskFigures {
    /// Clients that were accepted.
    pub connections: u64,
    /// Clients that were refused: no class for their user, too many connections, a thread that could not be
    /// started, or bytes of another protocol.
    pub refused: u64,
    pub classes: Vec<DiskClassFigures>,
}

impl DiskServer {
    /// Opens and locks the disk. `user_id` returns the number of a user whom the policy names.
    pub fn open(
        path: &Path,
        access: FileAccess,
        policy: Policy,
        user_id: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self, DiskError> {
        let served = ServedPolicy::checked(policy, user_id)?;
        let refused = |source| DiskError::File { path: path.to_owned(), source };
        let file = disk_file::open(path, access).map_err(refused)?;
        let locked = match access {
            FileAccess::Read => file.try_lock_shared(),
            FileAccess::Write => file.try_lock(),
        };
        locked.map_err(|error| match error {
            TryLockError::WouldBlock => DiskError::InUse { path: path.to_owned() },
            TryLockError::Error(source) => refused(source),
        })?;
        let size = disk_file::length(&file).map_err(refused)?;
        if size == 0 {
            return Err(DiskError::Empty { path: path.to_owned() });
        }
        let facts = ExportFacts { size, access };
        let queue = RequestQueue::new(&served.policy);
        Ok(Self {
            served: Mutex::new(Arc::new(served)),
            queue,
            facts,
            backing: Backing::new(file),
            clients: Clients::default(),
            socket: None,
        })
    }

    /// Serves by another policy from now on: shares, purposes, deadlines, the rate, and the users who may
    /// choose a class. Clients stay connected, and no request is lost. Fails, and changes nothing, if the
    /// policy asks for something that a disk cannot keep, or lacks a class that a client uses.
    pub fn change(&self, policy: Policy, user_id: impl Fn(&str) -> Option<u32>) -> Result<(), DiskError> {
        let changed = ServedPolicy::checked(policy, user_id)?;
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue.change(&changed.policy)?;
        *served = Arc::new(changed);
        Ok(())
    }

    fn served(&self) -> Arc<ServedPolicy> {
        Arc::clone(&self.served.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the length of the disk in bytes.
    pub fn size(&self) -> u64 {
        self.facts.size
    }

    /// Returns the names of the classes that clients may choose.
    pub fn class_names(&self) -> Vec<String> {
        self.queue.figures().into_iter().map(|class| class.name).collect()
    }

    /// Listens at a Unix socket with this file mode. Replaces a socket that a killed server has left.
    pub fn listen(&mut self, path: &Path, mode: u32) -> Result<(), DiskError> {
        let refused = |source| DiskError::Listen { path: path.to_owned(), source };
        local_socket::remove_stale(path).map_err(refused)?;
        let listener = local_socket::listen(path, mode).map_err(refused)?;
        self.socket = Some(ServedSocket { listener, name: SocketName::from_path(path) });
        if mode != OWNER {
            local_socket::set_mode(path, mode).map_err(refused)?;
        }
        Ok(())
    }

    /// Gives the socket's file to the user and group to which this process switches later. This function does
    /// not switch.
    pub fn change_owner(&self, user: u32, group: u32) -> io::Result<()> {
        let paths = self.socket.iter().map(|socket| socket.name.path());
        paths.into_iter().try_for_each(|path| local_socket::set_owner(path, user, group))
    }

    /// Serves until `is_over` returns true, with up to `depth` requests at the disk at a time. Then executes
    /// the requests that have arrived, and syncs the disk.
    pub fn serve(
        &self,
        depth: usize,
        is_over: &dyn Fn() -> bool,
        note: FailureNote<'_>,
    ) -> Result<DiskFigures, DiskError> {
        let socket = self.socket.as_ref().ok_or(DiskError::Server(io::ErrorKind::NotConnected.into()))?;
        socket.listener.set_nonblocking(true).map_err(DiskError::Server)?;
        let Self { queue, clients, .. } = self;
        thread::scope(|scope| {
            let _end = EndOnDrop { clients, queue };
            for number in 0..depth.max(1) {
                let thread = thread::Builder::new().name(format!("disk-{number}"));
                thread.spawn_scoped(scope, || queue.work(&self.backing, note)).map_err(DiskError::Server)?;
            }
            while !is_over() {
                let ready = poll::readable([socket.listener.as_fd()], Some(POLL_INTERVAL));
                if ready.map_err(DiskError::Server)?[0] {
                    self.accept(&socket.listener, scope);
                }
            }
            Ok(())
        })?;
        self.backing.sync().map_err(DiskError::Sync)?;
        Ok(self.figures())
    }

    fn figures(&self) -> DiskFigures {
        let state = self.clients.state();
        DiskFigures { connections: state.accepted, refused: state.refused, classes: self.queue.figures() }
    }

    /// Returns the counters of the classes that a client may choose, as JSON.
    fn figures_for(&self, exports: &Exports) -> Vec<u8> {
        let mut figures = self.figures();
        figures.classes.retain(|class| exports.offered().any(|export| export.name == class.name));
        serde_json::to_vec(&figures).expect("it has only strings and numbers")
    }

    fn accept<'scope, 'env>(&'env self, listener: &UnixListener, scope: &'scope thread::Scope<'scope, 'env>) {
        let clients = &self.clients;
        // fails if there are too many open files, or if the client has gone again; the other clients are
        // served
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(POLL_INTERVAL);
            return;
        };
        let admitted = self.exports_of(&stream).and_then(|exports| Ok((exports, clients.enter(&stream)?)));
        let Ok((exports, number)) = admitted else {
            clients.state().refused += 1;
            return;
        };
        let client = thread::Builder::new().name("disk-client".to_owned());
        let serving = client.spawn_scoped(scope, move || {
            let _left = LeaveOnDrop { clients, number };
            let served = connection::serve(&stream, &exports, &self.queue, &|| self.figures_for(&exports));
            if served.is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
                clients.state().refused += 1;
            }
            let _ = stream.shutdown(Shutdown::Both); // the client may have closed it
        });
        if serving.is_err() {
            clients.leave(number);
            clients.state().refused += 1;
        }
    }

    /// Returns the exports of a client. Fails with `PermissionDenied` if the policy has no class for the
    /// client's user.
    fn exports_of(&self, stream: &UnixStream) -> io::Result<Exports> {
        let user = local_socket::peer(stream)?.user;
        let served = self.served();
        let may_use = |class: ClassId| {
            let users = served.users[class.index()].as_ref();
            user == ROOT_USER || users.is_none_or(|users| users.contains(&user))
        };
        let tree = &served.policy.hierarchy;
        let exports: Vec<Export> = tree
            .classes()
            .filter(|(id, _)| tree.is_leaf(*id))
            .map(|(class, facts)| Export { name: facts.name.clone(), class, is_permitted: may_use(class) })
            .collect();
        if !exports.iter().any(|export| export.is_permitted) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Exports { facts: self.facts, exports, default: served.policy.default })
    }
}

/// The server's listening socket. Dropping it removes its file.
struct ServedSocket {
    listener: UnixListener,
    name: SocketName,
}

impl Drop for ServedSocket {
    fn drop(&mut self) {
        let _ = self.name.remove(); // what cannot be removed stays
    }
}

/// The connections that are open.
#[derive(Default)]
struct Clients {
    state: Mutex<ClientsState>,
    left: Condvar,
}

#[derive(Default)]
struct ClientsState {
    open: BTreeMap<u64, UnixStream>,
    accepted: u64,
    refused: u64,
}

impl Clients {
    fn state(&self) -> MutexGuard<'_, ClientsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, stream: &UnixStream) -> io::Result<u64> {
        let mut state = self.state();
        if state.open.len() >= MAX_CONNECTIONS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let stream = stream.try_clone()?;
        state.accepted += 1;
        let number = state.accepted;
        state.open.insert(number, stream);
        Ok(number)
    }

    fn leave(&self, number: u64) {
        self.state().open.remove(&number);
        self.left.notify_all();
    }

    /// Stops reading requests, and waits until each connection has ended. When the queue has been idle for
    /// [`CLOSE_TIMEOUT`], closes the connections of clients that do not read their replies.
    fn close(&self, queue: &RequestQueue) {
        let shut = |state: &ClientsState, how| {
            state.open.values().for_each(|stream| drop(stream.shutdown(how)));
        };
        let mut state = self.state();
        shut(&state, Shutdown::Read);
        let mut idle_since = None;
        while !state.open.is_empty() {
            let waited = self.left.wait_timeout(state, POLL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !queue.is_idle() {
                idle_since = None;
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() >= CLOSE_TIMEOUT {
                shut(&state, Shutdown::Both);
            }
        }
    }
}

struct LeaveOnDrop<'a> {
    clients: &'a Clients,
    number: u64,
}

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        self.clients.leave(self.number);
    }
}

/// Ends the connections and the threads at the disk when it is dropped, also after an error; otherwise their
/// scope would wait for them for ever.
struct EndOnDrop<'a> {
    clients: &'a Clients,
    queue: &'a RequestQueue,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.clients.close(self.queue);
        self.queue.end();
    }
}
