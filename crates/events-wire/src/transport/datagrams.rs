//! A link over a connected UDP socket, with a timer.
//!
//! An epoll descriptor watches both, so that a caller that waits for a transport also wakes for
//! retransmissions, due acknowledgements and signs of life.

use super::TransportError;
use crate::datagram::{DatagramLink, LinkEnd, LinkRead};
use crate::interrupt::{self, InterruptPoll};
use crate::tls::CertificateChain;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, send};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The size of the buffer for a received datagram. It is more than the 1452 bytes of the largest datagram
/// that either end sends (an Ethernet frame without its headers). Longer datagrams are ignored.
const MAX_DATAGRAM_BYTES: usize = 2048;
/// The maximum number of datagrams that one call receives, so that a flood does not keep the caller forever.
const TURN: usize = 256;
/// The maximum time for which a program that ends waits until the broker has all its bytes, also those for
/// which there was no room: enough for several retransmissions on a network with a round-trip time of 100 ms.
const FAREWELL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct DatagramEnd {
    /// The descriptor on which callers wait: an epoll descriptor for the socket and the timer.
    both: OwnedFd,
    socket: OwnedFd,
    timer: OwnedFd,
    /// When the timer expires.
    armed: Option<Instant>,
    link: Box<DatagramLink>,
    remote: SocketAddr,
    /// Whether the other end is on the same host, so that the kernel's report that its process has ended is
    /// trusted.
    is_local: bool,
    closed: bool,
    /// Whether datagrams were taken from the socket since the caller last asked whether it may sleep.
    took_in: bool,
    /// When datagrams were last received.
    pumped: Instant,
    datagram: Vec<u8>,
    /// The process that connected.
    process: u32,
    /// While this reference exists, the listener leaves datagrams from this address to this channel.
    _claim: Option<Arc<()>>,
}

impl DatagramEnd {
    pub(super) fn new(
        socket: OwnedFd,
        remote: SocketAddr,
        link: Box<DatagramLink>,
        claim: Option<Arc<()>>,
    ) -> Result<Self, TransportError> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let both = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&both, &socket, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&both, &timer, EventData::new_u64(1), EventFlags::IN)?;
        let mut channel = Self {
            both,
            socket,
            timer,
            armed: None,
            link,
            remote,
            is_local: remote.ip().to_canonical().is_loopback(),
            closed: false,
            took_in: false,
            pumped: Instant::now(),
            datagram: Vec::new(),
            process: std::process::id(),
            _claim: claim,
        };
        channel.pump()?;
        Ok(channel)
    }

    /// Makes a program's end. Returns after the handshake.
    pub(super) fn connect(
        socket: OwnedFd,
        remote: SocketAddr,
        link: DatagramLink,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let mut channel = Self::new(socket, remote, Box::new(link), None)?;
        let until = Instant::now() + timeout;
        let mut interrupt = InterruptPoll::default();
        loop {
            interrupt.poll()?;
            match channel.link.end() {
                Some(LinkEnd::Refused(why)) => return Err(TransportError::Tls(why.clone())),
                Some(LinkEnd::SentAway(why)) => return Err(TransportError::SentAway(why.clone())),
                Some(LinkEnd::Gone) => return Err(TransportError::Failed(Errno::CONNREFUSED.into())),
                None if channel.link.is_established() => return Ok(channel),
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("no answer within {timeout:?}; does a broker serve UDP there?");
                return Err(TransportError::Tls(what));
            }
            channel.sleep(left)?;
            channel.pump()?;
        }
    }

    fn sleep(&self, left: Duration) -> Result<(), TransportError> {
        let left = interrupt::slice(Some(left)).unwrap_or(left);
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.both, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives the datagrams that have arrived, handles due timers, and sends the datagrams that may leave.
    pub(super) fn pump(&mut self) -> Result<(), TransportError> {
        let mut arrived = [0; MAX_DATAGRAM_BYTES];
        self.pumped = Instant::now();
        for _ in 0..TURN {
            match recvfrom(&self.socket, &mut arrived, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, length, from)) => {
                    // a datagram that came before the socket was connected may be from another address
                    let is_theirs = from.map(SocketAddr::try_from) == Some(Ok(self.remote));
                    // neither end sends a longer datagram
                    if is_theirs && length <= MAX_DATAGRAM_BYTES {
                        self.took_in = true;
                        self.link.take(Instant::now(), &arrived[..length]);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => self.failed(error)?,
            }
        }
        self.link.pass(Instant::now());
        self.push()
    }

    /// Returns whether the descriptor would wake a caller that sleeps now. The descriptor does not report
    /// datagrams that were received during other calls. These may have brought bytes to read or made room to
    /// write, and nothing else might wake the caller before the next sign of life. So if such datagrams were
    /// received, this returns false, and the caller tries once more.
    pub(super) fn may_sleep(&mut self) -> bool {
        !std::mem::take(&mut self.took_in)
    }

    /// Serves the link in place of a program that makes no call: receives datagrams and sends due datagrams,
    /// unless that was done within `interval`. If it has received datagrams or the link has ended, it also
    /// makes the descriptor ready: a thread that sleeps on it would not learn of them otherwise.
    pub(super) fn keep(&mut self, interval: Duration) -> Result<(), TransportError> {
        if self.closed || self.pumped.elapsed() < interval {
            return Ok(());
        }
        self.pump()?;
        if self.took_in || self.link.end().is_some() {
            self.armed = Some(Instant::now());
            let (never, at_once) = (Timespec { tv_sec: 0, tv_nsec: 0 }, Timespec { tv_sec: 0, tv_nsec: 1 });
            timerfd_settime(
                &self.timer,
                TimerfdTimerFlags::empty(),
                &Itimerspec { it_interval: never, it_value: at_once },
            )?;
        }
        Ok(())
    }

    /// Duplicates the descriptor on which callers wait.
    pub(super) fn descriptor(&self) -> Result<OwnedFd, TransportError> {
        self.both.try_clone().map_err(TransportError::Failed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Sends datagrams, and sets the timer.
    fn push(&mut self) -> Result<(), TransportError> {
        let mut datagram = std::mem::take(&mut self.datagram);
        while self.link.next_datagram(Instant::now(), &mut datagram) {
            match send(&self.socket, &datagram, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                // a datagram for which there is no room, or that is too large for a part of the path, is
                // lost, as it might be in the network
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::MSGSIZE | Errno::INTR) => {}
                Err(error) => self.failed(error)?,
            }
        }
        self.datagram = datagram;
        self.arm()
    }

    /// Handles a network error. It may be temporary, but a refused connection on the same host means that no
    /// process listens any more.
    fn failed(&mut self, error: Errno) -> Result<(), TransportError> {
        match error {
            Errno::CONNREFUSED if self.is_local => {
                self.link.is_deserted();
                Ok(())
            }
            Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::HOSTDOWN
            | Errno::PERM
            | Errno::NOMEM => Ok(()),
            other => Err(other.into()),
        }
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        let now = Instant::now();
        let at = if self.closed { None } else { self.link.wake_at() };
        let is_over = self.armed.is_some_and(|armed| armed <= now);
        if at == self.armed && !is_over {
            return Ok(());
        }
        self.armed = at;
        // 0 would disarm the timer
        let left =
            at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now).max(Duration::from_nanos(1)));
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: never, it_value: left },
        )?;
        Ok(())
    }

    pub(super) fn write(&mut self, pieces: &[&[u8]]) -> Result<usize, TransportError> {
        let mut taken = 0;
        for piece in pieces {
            let count = self.link.write(piece).map_err(|end| match end {
                // the reason follows the bytes that have come, which the caller reads next
                LinkEnd::SentAway(_) => TransportError::Closed,
                end => as_error(end),
            })?;
            taken += count;
            if count < piece.len() {
                break;
            }
        }
        if taken == 0 {
            // receives acknowledgements, which make room
            self.pump()?;
        } else if taken < pieces.iter().map(|piece| piece.len()).sum() {
            // the caller will wait for room, so the taken bytes have to leave now: otherwise no
            // acknowledgement would make room
            self.push()?;
        }
        Ok(taken)
    }

    /// Queues bytes to be sent in a separate datagram, which leaves with the next flush and may be lost.
    pub(super) fn send_unreliable(&mut self, bytes: Vec<u8>) {
        self.link.send_datagram(bytes);
    }

    /// Returns the bytes of the next datagram that the other end sent with
    /// [`send_unreliable`](Self::send_unreliable). Only a program reads such datagrams.
    pub(super) fn take_unreliable(&mut self) -> Option<Vec<u8>> {
        let bytes = self.link.take_datagram();
        // a broker ignores such datagrams
        bytes.filter(|_| self._claim.is_none())
    }

    /// Sends the taken bytes. Returns whether all have left.
    pub(super) fn flush(&mut self) -> Result<bool, TransportError> {
        self.push()?;
        let mut is_held = self.link.is_held();
        if is_held {
            self.pump()?;
            is_held = self.link.is_held();
        }
        // bytes that the other end sent before its end may still be unread, so its end is reported after them
        // and not here
        Ok(!is_held || self.link.end().is_some())
    }

    /// Reads received bytes. Returns their number, or `None` if no bytes have come. The other end's bytes
    /// come before the report of its end.
    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Option<usize>, TransportError> {
        for looks in 0..2 {
            match self.link.read(into) {
                LinkRead::Bytes(count) => {
                    // tells the other end that it may send as many more bytes
                    self.push()?;
                    return Ok(Some(count));
                }
                LinkRead::End(end) => return Err(as_error(end)),
                LinkRead::Nothing if looks == 0 => self.pump()?,
                LinkRead::Nothing => {}
            }
        }
        Ok(None)
    }

    /// Ends the connection after the `rest` of its bytes. A program waits, for a limited time, until the
    /// broker has all of them. A broker does not wait, and gives its program the `reason` of the end.
    pub(super) fn close(&mut self, mut rest: &[u8], reason: &str) {
        let until = Instant::now() + FAREWELL;
        let waits = self._claim.is_none();
        loop {
            let taken = self.link.write(rest).unwrap_or_default();
            rest = &rest[taken..];
            if rest.is_empty() {
                self.link.finish();
            }
            // if the network fails now, the connection ends as well
            let is_over = self.pump().is_err() || self.link.end().is_some();
            if !waits || is_over || (rest.is_empty() && self.link.has_arrived()) {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            // acknowledgements that have just come may have made room for the rest
            if left.is_zero() || (self.may_sleep() && self.sleep(left).is_err()) {
                break;
            }
        }
        self.end(reason);
    }

    /// Tells the other end that this end is gone.
    fn end(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.closed, true) {
            self.link.close(Instant::now(), reason);
            // if the message is lost, the other end detects the silence itself
            let _ = self.push();
        }
    }

    pub(super) fn peer_certificates(&self) -> Option<CertificateChain> {
        self.link.peer_certificates()
    }
}

fn as_error(end: LinkEnd) -> TransportError {
    match end {
        LinkEnd::Gone => TransportError::Closed,
        LinkEnd::Refused(why) => TransportError::Tls(why),
        LinkEnd::SentAway(why) => TransportError::SentAway(why),
    }
}

impl Drop for DatagramEnd {
    fn drop(&mut self) {
        // a forked child's copy does not end the parent's connection
        if std::process::id() == self.process {
            self.end("");
        }
    }
}
