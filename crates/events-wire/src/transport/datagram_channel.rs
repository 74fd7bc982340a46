//! A link over UDP that stays alive even while its program makes no call.
//!
//! QUIC runs in the process, not in the kernel. So on the program's side of the link, a thread serves the
//! link while the program computes: it acknowledges datagrams, retransmits lost ones and sends signs of life.
//! The broker's side has no such thread, because the broker never computes for long.
//!
//! Cost: an uncontended lock per call; on the program's side, a thread that wakes twice a second.

use super::TransportError;
use super::datagrams::DatagramEnd;
use crate::datagram::DatagramLink;
use crate::tls::CertificateChain;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

/// The time without a call after which the thread serves the link: half of the interval of signs of life.
/// Chosen, not measured.
const KEEP_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct DatagramChannel {
    end: Arc<Mutex<DatagramEnd>>,
    /// The descriptor on which callers wait.
    ready: OwnedFd,
    /// The thread that serves the link; `None` on the broker's side.
    keeper: Option<Thread>,
}

impl DatagramChannel {
    /// Makes the broker's side of a link.
    pub(super) fn new(
        socket: OwnedFd,
        remote: SocketAddr,
        link: Box<DatagramLink>,
        claim: Arc<()>,
    ) -> Result<Self, TransportError> {
        Self::over(DatagramEnd::new(socket, remote, link, Some(claim))?)
    }

    /// Makes a program's side of a link. Returns after the handshake.
    pub(super) fn connect(
        socket: OwnedFd,
        remote: SocketAddr,
        link: DatagramLink,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let mut channel = Self::over(DatagramEnd::connect(socket, remote, link, timeout)?)?;
        let end = Arc::downgrade(&channel.end);
        let keeper = thread::Builder::new().name("unisono-udp".to_owned()).spawn(move || keep(&end));
        channel.keeper = Some(keeper.map_err(TransportError::Failed)?.thread().clone());
        Ok(channel)
    }

    fn over(end: DatagramEnd) -> Result<Self, TransportError> {
        let ready = end.descriptor()?;
        Ok(Self { end: Arc::new(Mutex::new(end)), ready, keeper: None })
    }

    pub(super) fn end(&self) -> MutexGuard<'_, DatagramEnd> {
        // a poisoned lock is harmless: a thread that panics in a call leaves this end as consistent as it is
        // between two datagrams
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn peer_certificates(&self) -> Option<CertificateChain> {
        self.end().peer_certificates()
    }
}

/// Serves the link until the channel is dropped or closed.
fn keep(end: &Weak<Mutex<DatagramEnd>>) {
    loop {
        thread::park_timeout(KEEP_INTERVAL);
        let Some(end) = end.upgrade() else { return };
        let mut end = end.lock().unwrap_or_else(PoisonError::into_inner);
        // if the network fails, the program's next call reports it
        if end.is_closed() || end.keep(KEEP_INTERVAL).is_err() {
            return;
        }
    }
}

impl AsFd for DatagramChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for DatagramChannel {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.unpark();
        }
    }
}
