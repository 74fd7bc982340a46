//! The helper of one host: a process of root that claims registers for the processes of its host and gives
//! them open packet sockets.
//!
//! Any process of the host's network namespace can connect to the helper's abstract socket. The kernel tells
//! its user; root and the users that the deployment names are served. A packet socket that a process gets
//! receives the barrier frames of its group and nothing else, for good. The frames that it sends are not
//! restricted: such a user can send any frame into the network.

use super::group::{ClaimedGroup, Outgoing};
use super::message::{
    self, GroupSet, HELPER_NAME, HelperAnswer, HelperOffer, HelperRequest, MAX_MESSAGE, PREFIX,
};
use crate::error::Error;
use crate::fabric::{self, NODE_DEVICE};
use crate::layout::{BARRIER, REQUEST, RegisterRequest};
use crate::node::{ETHERNET, header, tolerate};
use crate::orders::NodeReport;
use crate::program::SwitchProgram;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use unisono_btin::{BarrierFrame, GroupId, NodeId, SwitchNetwork};
use unisono_linux::local_socket::{Peer, peer, send_with};
use unisono_linux::netlink::NetlinkSocket;
use unisono_linux::netlink::link::{self, Index, LinkState};
use unisono_linux::packet::{FrameTest, PacketSocket};
use unisono_linux::poll::readable_of;
use unisono_linux::resource_limit::raise_open_files;

/// The loopback device, through which processes of one host talk.
const LOOPBACK: Index = Index(1);
/// The maximum number of connections; each group needs one, and a switch has at most 256 registers.
const MAX_CONNECTIONS: usize = 1024;
/// The maximum number of connections of a user, so that users leave places to each other. Root has no limit.
const MAX_OF_USER: usize = MAX_CONNECTIONS / 2;
/// The number of connections that are accepted before the helper turns to its other work again.
const ACCEPTED_AT_ONCE: usize = 64;
/// The descriptors that a helper needs: two for each connection, and the inherited descriptors.
const OPEN_FILES: u64 = 2 * MAX_CONNECTIONS as u64;

/// The part of the deployment that all helpers share.
#[derive(Clone, Copy)]
pub(super) struct HelperContext<'a> {
    pub(super) network: &'a SwitchNetwork,
    pub(super) program: &'a SwitchProgram,
    pub(super) registers: u16,
    /// The users that are served beside root.
    pub(super) users: &'a [u32],
}

/// A process that asks, and its group.
struct ServedProcess {
    user: u32,
    /// `None`: the process has ended or has left its group.
    stream: Option<UnixStream>,
    received: Vec<u8>,
    group: Option<ClaimedGroup>,
    socket: Option<PacketSocket>,
}

struct Helper<'a> {
    context: HelperContext<'a>,
    node: NodeId,
    network: u64,
    requests: PacketSocket,
    connections: Vec<ServedProcess>,
    /// The maximum number of connections: [`MAX_CONNECTIONS`], or as many as there are descriptors for.
    places: usize,
    next_request: u16,
}

/// Serves as the helper of a node until the orders end. The calling thread must be in the node's namespace.
pub(super) fn serve(node: NodeId, context: HelperContext<'_>, mut orders: UnixStream) -> Result<(), Error> {
    fabric::take_address(node)?;
    let inherited = fs::read_dir("/proc/self/fd").map_err(Error::io("count open files"))?.count() as u64;
    // with fewer than these, some processes have to wait until others leave
    let files =
        raise_open_files(OPEN_FILES + inherited).map_err(Error::io("raise the limit of open files"))?;
    let places = (files.saturating_sub(inherited) / 2).min(MAX_CONNECTIONS as u64) as usize;
    let mut socket = NetlinkSocket::open().map_err(Error::io("open a netlink socket"))?;
    socket.run(&[link::set(LOOPBACK, LinkState::Up)])?;
    let requests = PacketSocket::open(NODE_DEVICE, REQUEST).map_err(Error::io("open a packet socket"))?;
    let listener = SocketAddr::from_abstract_name(HELPER_NAME)
        .and_then(|name| UnixListener::bind_addr(&name))
        .map_err(Error::io("listen for processes of this host"))?;
    listener.set_nonblocking(true).map_err(Error::io("prepare a socket"))?;
    let network = message::digest(context.network);
    let connections = Vec::new();
    let mut helper = Helper { context, node, network, requests, connections, places, next_request: 0 };
    let mut ready = serde_json::to_vec(&NodeReport::Ready).expect("serializes because it is a name");
    ready.push(b'\n');
    orders.write_all(&ready).map_err(Error::io("report to the deployment"))?;
    loop {
        let connections = helper.connections.len();
        let [orders_ready, asked, answered, streams, sockets] = helper.wait(&orders, &listener)?;
        if orders_ready.contains(&0) {
            return Ok(()); // a helper gets no orders but the end
        }
        if answered.contains(&0) {
            helper.take_answers();
        }
        (0..connections).filter(|at| streams.contains(at)).for_each(|at| helper.serve_process(at));
        (0..connections).filter(|at| sockets.contains(at)).for_each(|at| helper.take_frames(at));
        (0..connections).for_each(|at| helper.step(at, |group, next, out| group.tick(next, out)));
        helper.connections.retain(ServedProcess::is_needed);
        if asked.contains(&0) {
            helper.accept(&listener);
        }
    }
}

impl ServedProcess {
    fn is_needed(&self) -> bool {
        self.stream.is_some() || self.group.as_ref().is_some_and(|group| !group.is_over())
    }

    /// Sends an answer. If the process does not take the answer, the helper treats it as ended.
    fn answer(&mut self, answer: &HelperAnswer) {
        let Some(stream) = &mut self.stream else { return };
        let bytes = message::encode(answer);
        let sent = match &self.socket {
            Some(socket) if *answer == HelperAnswer::Claimed => send_with(stream, &bytes, socket.as_fd()),
            _ => stream.write_all(&bytes),
        };
        if sent.is_err() {
            self.stream = None;
        }
    }
}

impl Helper<'_> {
    /// Waits for events. Returns the numbers of the ready descriptors of each kind: the deployment's orders,
    /// the listener, the switches' answers, the processes, the sockets of groups that are being left.
    fn wait(&self, orders: &UnixStream, listener: &UnixListener) -> Result<[Vec<usize>; 5], Error> {
        let fixed = [orders.as_fd(), listener.as_fd(), self.requests.as_fd()];
        let fixed = fixed.into_iter().enumerate().map(|(kind, descriptor)| (kind, 0, descriptor));
        let connections = || self.connections.iter().enumerate();
        let streams =
            connections().filter_map(|(at, connection)| Some((3, at, connection.stream.as_ref()?.as_fd())));
        let sockets = connections().filter_map(|(at, connection)| {
            let is_leaving = connection.group.as_ref().is_some_and(ClaimedGroup::is_leaving);
            connection.socket.as_ref().filter(|_| is_leaving).map(|socket| (4, at, socket.as_fd()))
        });
        let watched: Vec<(usize, usize, BorrowedFd<'_>)> = fixed.chain(streams).chain(sockets).collect();
        let due = connections().filter_map(|(_, connection)| connection.group.as_ref()?.due()).min();
        let timeout: Option<Duration> = due.map(|due| due.saturating_duration_since(Instant::now()));
        let descriptors: Vec<BorrowedFd<'_>> = watched.iter().map(|(.., descriptor)| *descriptor).collect();
        let ready =
            readable_of(&descriptors, timeout).map_err(Error::io("wait for processes and switches"))?;
        let mut kinds: [Vec<usize>; 5] = Default::default();
        for ((kind, at, _), _) in watched.iter().zip(ready).filter(|(_, ready)| *ready) {
            kinds[*kind].push(*at);
        }
        Ok(kinds)
    }

    fn accept(&mut self, listener: &UnixListener) {
        // others that connect all the time do not keep the helper from its work
        for _ in 0..ACCEPTED_AT_ONCE {
            let Ok((stream, _)) = listener.accept() else { return };
            let Ok(Peer { user, .. }) = peer(&stream) else { continue };
            let stream = Some(stream);
            let mut connection =
                ServedProcess { user, stream, received: Vec::new(), group: None, socket: None };
            match self.greet(&connection) {
                Ok(welcome) => {
                    connection.answer(&welcome);
                    self.connections.push(connection);
                }
                Err(why) => connection.answer(&HelperAnswer::Refused { why }),
            }
        }
    }

    fn greet(&self, connection: &ServedProcess) -> Result<HelperAnswer, String> {
        let Some(stream) = &connection.stream else { return Err("the process has ended".to_owned()) };
        stream.set_nonblocking(true).map_err(|error| error.to_string())?;
        let user = connection.user;
        if user != 0 && !self.context.users.contains(&user) {
            return Err(format!(
                "the helper of the switches serves root and the users that its deployment names, not user \
                 {user}: unisono tree deploy --serve --user NAME"
            ));
        }
        let of_user = self.connections.iter().filter(|other| other.user == user).count();
        if self.connections.len() >= self.places || (user != 0 && of_user >= MAX_OF_USER) {
            return Err(format!(
                "too many processes of this host use the helper of the switches ({of_user} of user {user})"
            ));
        }
        let mut used = GroupSet::default();
        self.groups().for_each(|group| used.insert(group.id()));
        Ok(HelperAnswer::Welcome(HelperOffer {
            node: self.node.0,
            network: self.network,
            registers: self.context.registers,
            used,
        }))
    }

    fn groups(&self) -> impl Iterator<Item = &ClaimedGroup> {
        self.connections.iter().filter_map(|connection| connection.group.as_ref())
    }

    /// Reads and executes the requests of a process.
    fn serve_process(&mut self, at: usize) {
        let mut bytes = [0; 4096];
        loop {
            let connection = &mut self.connections[at];
            let Some(stream) = &mut connection.stream else { break };
            match stream.read(&mut bytes) {
                Ok(0) => connection.stream = None,
                Ok(length) => connection.received.extend(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => connection.stream = None,
            }
            if connection.received.len() > MAX_MESSAGE + PREFIX {
                connection.stream = None;
            }
        }
        loop {
            match message::cut(&mut self.connections[at].received) {
                Ok(Some(request)) => self.execute(at, request),
                Ok(None) => break,
                Err(_) => {
                    self.connections[at].stream = None;
                    break;
                }
            }
        }
        let connection = &self.connections[at];
        let is_left = connection.group.as_ref().is_some_and(|group| !group.is_leaving());
        if connection.stream.is_none() && is_left {
            self.step(at, |group, next, out| group.give_back(None, next, out));
        }
    }

    fn execute(&mut self, at: usize, request: HelperRequest) {
        match request {
            HelperRequest::Claim { group, first, members } => {
                if let Err(answer) = self.claim(at, GroupId(group), first, &members) {
                    self.connections[at].answer(&answer);
                }
                self.step(at, |group, next, out| group.tick(next, out));
            }
            HelperRequest::Return => {
                if self.connections[at].group.as_ref().is_some_and(ClaimedGroup::is_held) {
                    let answer = Some(HelperAnswer::Returned);
                    self.step(at, |group, next, out| group.give_back(answer, next, out));
                } else {
                    self.connections[at].answer(&HelperAnswer::Returned);
                }
            }
            HelperRequest::Leave { episode } => {
                if self.connections[at].group.as_ref().is_some_and(ClaimedGroup::is_held) {
                    self.step(at, |group, _, out| group.leave(episode, out));
                }
                self.connections[at].stream = None;
            }
            HelperRequest::Suspects => {
                let HelperContext { network, program, .. } = self.context;
                let group = self.connections[at].group.as_ref();
                let named = group.map_or_else(Vec::new, |group| group.suspects(network, program));
                self.connections[at].answer(&HelperAnswer::Suspects { named });
            }
        }
    }

    fn claim(&mut self, at: usize, id: GroupId, first: u16, members: &[u32]) -> Result<(), HelperAnswer> {
        let failed = |why: String| HelperAnswer::Failed { why };
        if self.connections[at].group.as_ref().is_some_and(|group| !group.is_over()) {
            return Err(failed("a connection claims a second group".to_owned()));
        }
        if u16::from(id.0) >= self.context.registers
            || self.groups().any(|group| group.id() == id && !group.is_over())
        {
            return Err(HelperAnswer::Taken);
        }
        let group = ClaimedGroup::new(self.context.network, self.node, id, first, members).map_err(failed)?;
        let open = || {
            let socket = PacketSocket::open(NODE_DEVICE, BARRIER)?;
            // the message of a frame has the group between its kind and its data
            let is_barrier = FrameTest { offset: 12, mask: u16::MAX, value: BARRIER };
            let is_own = FrameTest { offset: ETHERNET as u32, mask: 0xff << 6, value: u16::from(id.0) << 6 };
            socket.restrict(&[is_barrier, is_own])?;
            Ok(socket)
        };
        let socket = open().map_err(|error: std::io::Error| failed(format!("no packet socket: {error}")))?;
        self.connections[at].socket = Some(socket);
        self.connections[at].group = Some(group);
        Ok(())
    }

    fn take_answers(&mut self) {
        let mut bytes = [0; 64];
        while let Ok(Some(length)) = self.requests.receive_now(&mut bytes) {
            let answer = bytes.get(ETHERNET..length).and_then(RegisterRequest::answer);
            for at in 0..self.connections.len() {
                if let Some(answer) = answer {
                    self.step(at, |group, next, out| group.take(answer, next, out));
                }
            }
        }
    }

    fn take_frames(&mut self, at: usize) {
        let mut bytes = [0; 64];
        loop {
            let Some(socket) = &self.connections[at].socket else { return };
            let Ok(Some(length)) = socket.receive_now(&mut bytes) else { return };
            if let Some(payload) = bytes.get(ETHERNET..length).and_then(|bytes| bytes.first_chunk()) {
                let frame = BarrierFrame::from_bytes(*payload);
                self.step(at, |group, next, out| group.take_frame(frame, next, out));
            }
        }
    }

    /// Changes a group, and sends the messages that follow. A message that is lost is sent again.
    fn step(
        &mut self,
        at: usize,
        change: impl FnOnce(&mut ClaimedGroup, &mut dyn FnMut() -> u16, &mut Outgoing),
    ) {
        let connection = &mut self.connections[at];
        let Some(group) = &mut connection.group else { return };
        let mut out = Outgoing::default();
        let number = &mut self.next_request;
        change(
            group,
            &mut || {
                *number = number.wrapping_add(1);
                *number
            },
            &mut out,
        );
        for request in out.requests {
            let bytes = [&header(REQUEST)[..], &request.to_bytes()].concat();
            let _ = tolerate(self.requests.send(&bytes), "send a request");
        }
        for frame in out.frames {
            let bytes = [&header(BARRIER)[..], &frame.to_bytes()].concat();
            if let Some(socket) = &connection.socket {
                let _ = tolerate(socket.send(&bytes), "send a frame");
            }
        }
        if let Some(answer) = out.answer {
            connection.answer(&answer);
        }
    }
}
