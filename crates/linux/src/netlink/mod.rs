//! Route netlink: devices, addresses and queueing disciplines, without starting `ip` and `tc`.
//!
//! ```text
//!   link::veth(..)  traffic::clsact(..)   --->  NetlinkRequest  --->  NetlinkSocket::run  --->  the kernel
//!                                                                          ^ the first error, in words
//! ```
//!
//! Requests are encoded as plain bytes and sent in batches. The kernel answers each request that fails, and
//! of the others only the last, so a thousand requests need few system calls. The kernel executes them in
//! order; if a request fails, it still executes the others of the batch.
//!
//! A socket belongs to the network namespace of the thread that opened it. Cost: some microseconds per
//! request in addition to the kernel's work. When not to use it: this is not a netlink library
//! (docs/decisions/0013 explains why none is used); it reads only the few kernel tables that are needed here.
//!
//! Reference: netlink(7), rtnetlink(7), tc(8).

pub mod address;
pub mod capture;
pub mod egress;
pub mod filter;
pub mod htb;
pub mod ingress;
pub mod link;
mod message;
pub mod qdisc;
pub mod token_bucket;
pub mod traffic;
pub mod watch;
pub mod xdp;

pub use message::{KernelAnswer, NetlinkRequest, answers};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The number of bytes sent at a time; the kernel queues the answers in the meantime.
const BATCH: usize = 16 * 1024;
/// The time limit for the kernel's answer to a batch.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The number of times that a table is read again if it changes during the reading.
const TRIES: usize = 20;

#[derive(Debug, thiserror::Error)]
#[error("{what}: {}", self.reason())]
pub struct Refused {
    pub what: String,
    pub errno: i32,
    /// The kernel's own explanation, if it sent one.
    pub explanation: Option<String>,
}

impl Refused {
    pub fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }

    fn reason(&self) -> String {
        let words = self.error();
        match &self.explanation {
            Some(text) => format!("{text} ({words})"),
            None => words.to_string(),
        }
    }

    fn local(error: impl Into<io::Error>) -> Self {
        let what = "talk to the kernel over netlink".to_owned();
        Self { what, errno: error.into().raw_os_error().unwrap_or(libc::EIO), explanation: None }
    }
}

/// A route netlink socket, in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct NetlinkSocket {
    descriptor: OwnedFd,
    sequence: u32,
}

impl NetlinkSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open() -> io::Result<Self> {
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        // explanations are optional: old kernels lack them
        let _ = crate::socket::set_option(&descriptor, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, &1_i32);
        let _ = crate::socket::set_option(&descriptor, libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, &1_i32);
        set_socket_timeout(&descriptor, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self { descriptor, sequence: 0 })
    }

    /// Executes requests in order. Fails at the first request that the kernel refuses; the kernel may have
    /// executed later requests of the same batch.
    pub fn run(&mut self, requests: &[NetlinkRequest]) -> Result<(), Refused> {
        let mut rest = requests;
        while !rest.is_empty() {
            let mut length = 0;
            let fitting = rest.iter().take_while(|request| {
                length += request.len();
                length <= BATCH
            });
            let (now, later) = rest.split_at(fitting.count().max(1));
            self.run_batch(now)?;
            rest = later;
        }
        Ok(())
    }

    fn run_batch(&mut self, requests: &[NetlinkRequest]) -> Result<(), Refused> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for (at, request) in requests.iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            request.write(self.sequence, at + 1 == requests.len(), &mut bytes);
        }
        self.send(&bytes)?;
        let mut refused: Option<Refused> = None;
        let mut buffer = vec![0; 32 * 1024];
        loop {
            for answer in answers(self.receive(&mut buffer)?) {
                let Some(request) = requests.get(answer.sequence.wrapping_sub(first) as usize) else {
                    continue;
                };
                if answer.errno != 0 && refused.is_none() {
                    let KernelAnswer { errno, explanation, .. } = answer.clone();
                    refused = Some(Refused { what: request.what().to_owned(), errno, explanation });
                }
                if answer.sequence == self.sequence {
                    return refused.map_or(Ok(()), Err);
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Refused> {
        send(&self.descriptor, bytes, SendFlags::empty()).map_err(Refused::local)
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a [u8], Refused> {
        let (length, _) = recv(&self.descriptor, &mut *buffer, RecvFlags::empty()).map_err(Refused::local)?;
        Ok(&buffer[..length])
    }

    /// Reads a table: the entries of the kernel's answer to a request, as a consistent snapshot. Fails if the
    /// kernel refuses, or if the table changes faster than it can be read.
    fn table(&mut self, request: &NetlinkRequest, fixed: usize) -> Result<Vec<message::Entry>, Refused> {
        for _ in 0..TRIES {
            if let Some(entries) = self.answer(request, fixed, false)? {
                return Ok(entries);
            }
        }
        let what = request.what().to_owned();
        Err(Refused { what, errno: libc::EAGAIN, explanation: Some("it changes all the time".to_owned()) })
    }

    /// Reads the entries of the kernel's answer to a request for a single one: one, or none.
    fn entries(&mut self, request: &NetlinkRequest, fixed: usize) -> Result<Vec<message::Entry>, Refused> {
        Ok(self.answer(request, fixed, true)?.unwrap_or_default())
    }

    /// Reads the entries of the kernel's answer up to its end: the end of the table, or the acknowledgment of
    /// a request for a single entry. Returns `None` if the table changed meanwhile.
    fn answer(
        &mut self,
        request: &NetlinkRequest,
        fixed: usize,
        acknowledged: bool,
    ) -> Result<Option<Vec<message::Entry>>, Refused> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        request.write(self.sequence, acknowledged, &mut bytes);
        self.send(&bytes)?;
        let (mut entries, mut is_whole) = (Vec::new(), true);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let answers = self.receive(&mut buffer)?;
            for piece in message::pieces(answers, self.sequence, fixed) {
                match piece {
                    message::Piece::Entry(entry) => entries.push(entry),
                    message::Piece::Changed => is_whole = false,
                    message::Piece::End(0) => return Ok(is_whole.then_some(entries)),
                    message::Piece::End(errno) => {
                        return Err(Refused { what: request.what().to_owned(), errno, explanation: None });
                    }
                }
            }
        }
    }
}

crate::as_fd!(NetlinkSocket.descriptor);
