//! TLS over a connected socket, without blocking.
//!
//! The handshake is part of reading. A server bounds its duration by the time limit for a program's greeting;
//! a client waits for it when it connects.
//!
//! A client that does not use TLS gets an error message in plain text: from then on this channel carries
//! bytes unencrypted, and that message is the last that the server sends.
//!
//! Cost: the encryption, and one copy more than with a plain socket in each direction; 16 KiB of memory for
//! received ciphertext.

use super::TransportError;
use super::foreign::foreign_service;
use super::socket::{self, Intake};
use crate::interrupt::{self, InterruptPoll};
use crate::tls::{self, CertificateChain};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, Connection, Error as RustlsError, InvalidMessage, ServerConfig,
    ServerConnection,
};
use std::io::{ErrorKind, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of bytes that TLS buffers for the other end, before or after encryption: half of the
/// 128 KiB that a stream collects before it writes.
const HELD: usize = 64 << 10;
/// The number of bytes of ciphertext to read at a time: about the longest TLS record.
const ARRIVED: usize = 16 << 10;
/// The first two bytes of every handshake: the record type, and the first byte of the version.
const HANDSHAKE: [u8; 2] = [0x16, 3];

#[derive(Debug)]
pub(crate) struct TlsChannel {
    socket: OwnedFd,
    connection: Connection,
    /// The ciphertext that TLS has not taken yet is `arrived[start..end]`.
    arrived: Box<[u8]>,
    start: usize,
    end: usize,
    /// Whether the last read emptied the socket.
    drained: bool,
    ended: bool,
    speech: OtherEnd,
}

/// The protocol that the other end has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OtherEnd {
    Unheard,
    Tls,
    Plain,
}

impl TlsChannel {
    /// Makes a broker's end. The handshake follows later, while reading.
    pub(super) fn accept(socket: OwnedFd, config: &Arc<ServerConfig>) -> Result<Self, TransportError> {
        let connection = ServerConnection::new(Arc::clone(config));
        Self::new(socket, connection.map(Connection::Server))
    }

    /// Makes a program's end. Returns after the handshake.
    pub(super) fn connect(
        socket: OwnedFd,
        (config, broker): (&Arc<ClientConfig>, ServerName<'static>),
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let connection = ClientConnection::new(Arc::clone(config), broker);
        let mut channel = Self::new(socket, connection.map(Connection::Client))?;
        channel.speech = OtherEnd::Tls;
        let until = Instant::now() + timeout;
        let mut interrupt = InterruptPoll::default();
        loop {
            interrupt.poll()?;
            let _ = channel.push()?;
            if !channel.connection.is_handshaking() {
                return Ok(channel);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!(
                    "no answer to its handshake within {timeout:?}; does a broker listen there with TLS?"
                );
                return Err(TransportError::Tls(what));
            }
            // TLS may have taken only a part of the received bytes, and the socket does not report the rest
            if channel.start == channel.end {
                channel.poll(left)?;
            }
            if channel.take_in()? == CiphertextIntake::Ended {
                return Err(TransportError::Closed);
            }
        }
    }

    /// Waits until the socket has bytes, or room for the bytes of this end.
    fn poll(&mut self, left: Duration) -> Result<(), TransportError> {
        let flags =
            if self.connection.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let left = interrupt::slice(Some(left)).unwrap_or(left);
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)], Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.drained = false;
        Ok(())
    }

    fn new(socket: OwnedFd, connection: Result<Connection, RustlsError>) -> Result<Self, TransportError> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let mut connection = connection.map_err(|error| TransportError::Tls(tls::in_words(&error)))?;
        connection.set_buffer_limit(Some(HELD));
        Ok(Self {
            socket,
            connection,
            arrived: vec![0; ARRIVED].into(),
            start: 0,
            end: 0,
            drained: false,
            ended: false,
            speech: OtherEnd::Unheard,
        })
    }

    /// Returns the other end's certificates after the handshake.
    pub(super) fn peer_certificates(&self) -> Option<CertificateChain> {
        if self.connection.is_handshaking() {
            return None;
        }
        let chain = self.connection.peer_certificates().unwrap_or_default();
        Some(chain.iter().map(|certificate| certificate.clone().into_owned()).collect())
    }

    pub(super) fn write(&mut self, pieces: &[&[u8]]) -> Result<usize, TransportError> {
        if self.speech == OtherEnd::Plain {
            return socket::write(self.socket.as_fd(), pieces);
        }
        let mut taken = 0;
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let count = self.connection.writer().write(rest).map_err(TransportError::Failed)?;
                (taken, rest) = (taken + count, &rest[count..]);
                // the buffer of TLS is full, so its bytes have to leave first
                if count == 0 && (!self.push()? || self.connection.is_handshaking()) {
                    return Ok(taken);
                }
            }
        }
        let _ = self.push()?;
        Ok(taken)
    }

    pub(super) fn flush(&mut self) -> Result<bool, TransportError> {
        if self.speech == OtherEnd::Plain {
            return Ok(true);
        }
        // A flush must not read: the descriptor would no longer report a frame that came with the end of the
        // handshake.
        self.push()
    }

    pub(super) fn wants_room(&self, unsent: bool) -> bool {
        match self.speech {
            OtherEnd::Plain => unsent,
            // unsent bytes wait for the end of the handshake, not for room
            _ => self.connection.wants_write(),
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Intake, TransportError> {
        if self.speech == OtherEnd::Plain {
            return Ok(Intake::Ended);
        }
        loop {
            match self.connection.reader().read(into) {
                Ok(0) => return Ok(Intake::Ended),
                Ok(count) => return Ok(Intake::Bytes { count, all: false }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Frames have lengths, so a truncated connection is safe to treat as an ended connection.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Intake::Ended),
                Err(error) => return Err(TransportError::Failed(error)),
            }
            match self.take_in()? {
                CiphertextIntake::Something => {}
                CiphertextIntake::Nothing => return Ok(Intake::Nothing),
                CiphertextIntake::Ended => return Ok(Intake::Ended),
            }
        }
    }

    /// Passes received bytes to TLS, and sends the answers of TLS.
    fn take_in(&mut self) -> Result<CiphertextIntake, TransportError> {
        if self.start == self.end && !self.ended {
            if std::mem::take(&mut self.drained) {
                return Ok(CiphertextIntake::Nothing);
            }
            match socket::read(self.socket.as_fd(), &mut self.arrived)? {
                Intake::Nothing => return Ok(CiphertextIntake::Nothing),
                Intake::Ended => self.ended = true,
                Intake::Bytes { count, all } => (self.start, self.end, self.drained) = (0, count, all),
            }
        }
        self.detect_tls()?;
        let mut rest = &self.arrived[self.start..self.end];
        let count = self.connection.read_tls(&mut rest).map_err(TransportError::Failed)?;
        self.start += count;
        if let Err(error) = self.connection.process_new_packets() {
            // sends the TLS alert with the reason
            let _ = self.push();
            let service = match error {
                RustlsError::InvalidMessage(InvalidMessage::InvalidContentType) => {
                    foreign_service(&self.arrived[..self.end])
                }
                _ => None,
            };
            return Err(TransportError::Tls(match service {
                Some(service) => format!(
                    "no Unisono broker answers there, but {service}; name the address at which a broker listens \
                     with TLS"
                ),
                None => tls::in_words(&error),
            }));
        }
        let _ = self.push()?;
        Ok(if count == 0 { CiphertextIntake::Ended } else { CiphertextIntake::Something })
    }

    /// Determines from the first bytes whether the other end uses TLS.
    fn detect_tls(&mut self) -> Result<(), TransportError> {
        if self.speech != OtherEnd::Unheard || self.start == self.end {
            return Ok(());
        }
        let first = &self.arrived[self.start..self.end];
        if first.iter().zip(HANDSHAKE).all(|(came, expected)| *came == expected) {
            self.speech = OtherEnd::Tls;
            return Ok(());
        }
        (self.speech, self.start, self.end) = (OtherEnd::Plain, 0, 0);
        Err(TransportError::NoTls)
    }

    /// Sends ciphertext. Returns whether all of it has left.
    fn push(&mut self) -> Result<bool, TransportError> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut CiphertextSink(self.socket.as_fd())) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    let errno = rustix::io::Errno::from_io_error(&error);
                    return Err(errno.map_or(TransportError::Failed(error), TransportError::from));
                }
            }
        }
        Ok(true)
    }

    /// Tells the other end that no more bytes follow.
    pub(super) fn send_close_notify(&mut self) {
        if self.speech != OtherEnd::Plain {
            self.connection.send_close_notify();
            // bytes that do not leave now are lost: this end does not wait
            let _ = self.push();
        }
    }
}

/// The result of reading ciphertext.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CiphertextIntake {
    Something,
    Nothing,
    Ended,
}

unisono_linux::as_fd!(TlsChannel.socket);

/// The socket, as a writer for TLS.
struct CiphertextSink<'a>(BorrowedFd<'a>);

impl Write for CiphertextSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match socket::write(self.0, &[bytes]) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
            Err(TransportError::Failed(error)) => Err(error),
            Err(_) => Err(rustix::io::Errno::PIPE.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
