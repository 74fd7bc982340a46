//! A transport over the host MPI's own messages, for ranks on other hosts.
//!
//! It is a [`Transport`] made of four callbacks of the shim: `MPI_Isend`, `MPI_Test`, `MPI_Improbe` and
//! `MPI_Mrecv`, on a private communicator, so that no packet meets a message of the program.
//!
//! The idea: users of clusters already run an MPI that reaches all their hosts. Its messages are ordered and
//! reliable, and the engine needs no other property. MPI offers no way to sleep until a message arrives, so a
//! waiting rank polls with growing pauses: a short wait ends at once, and a long wait costs little.
//!
//! Cost: one message for each packet, copied once at each end. After a quiet time a packet may be noticed up
//! to [`MAX_POLL_DELAY`] late. When not to use it: on one host, where memory is shared. Messages do not show
//! that a rank is gone; a [`WatchHandle`] does.

pub mod watch;

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice};
use std::ptr;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_rma::wire::packet::{HEADER, PacketKind};
use unisono_rma::wire::{Gone, Transport};
use unisono_rma::{Error, Rank};
use watch::WatchHandle;

/// Number of polls before the first pause. They take about as long as a message between idle hosts.
const POLLS: u32 = 200;
const FIRST_POLL_DELAY: Duration = Duration::from_micros(5);
const MAX_POLL_DELAY: Duration = Duration::from_micros(200);
/// Larger messages are sent by a rendezvous in most MPIs; several packets in flight are faster than one long
/// packet.
const MAX_PAYLOAD: usize = 256 * 1024;

/// The host MPI's messages, for jobs of several hosts. Each function returns 0 or an MPI error code.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Callbacks {
    /// The first argument of each function.
    pub context: *mut c_void,
    /// Begins to send a packet and stores the operation in `*pending`. The packet's memory stays valid until
    /// `sent` reports that the packet was sent.
    pub send: unsafe extern "C" fn(
        context: *mut c_void,
        to: c_int,
        packet: *mut c_void,
        bytes: usize,
        pending: *mut *mut c_void,
    ) -> c_int,
    /// Sets `*done` to 1 if the packet was sent, else to 0.
    pub sent:
        unsafe extern "C" fn(context: *mut c_void, pending: *mut *mut c_void, done: *mut c_int) -> c_int,
    /// Matches a packet that has arrived. Stores its sender, its length, and in `*message` the message for
    /// `take`. `*message` is NULL if none has arrived.
    pub receive: unsafe extern "C" fn(
        context: *mut c_void,
        from: *mut c_int,
        bytes: *mut usize,
        message: *mut *mut c_void,
    ) -> c_int,
    /// Receives the packet that `receive` matched.
    pub take: unsafe extern "C" fn(
        context: *mut c_void,
        message: *mut *mut c_void,
        packet: *mut c_void,
        bytes: usize,
    ) -> c_int,
}

/// A packet that the host MPI has not finished sending. Its memory must not move.
#[derive(Debug)]
struct UnsentPacket {
    _packet: Box<[u8]>,
    pending: *mut c_void,
}

/// A rank's end of the transport.
#[derive(Debug)]
pub(crate) struct HostMessages {
    rank: Rank,
    size: usize,
    callbacks: Callbacks,
    outgoing: VecDeque<UnsentPacket>,
    arrived: VecDeque<(Rank, Vec<u8>)>,
    gone: Vec<Gone>,
    /// `None`: the hosts cannot connect, and the host MPI alone notices ranks that are gone.
    watch: Option<Box<WatchHandle>>,
    /// The peers that have sent a goodbye, whose last packets have therefore been sent.
    left: Vec<bool>,
    /// Whether this rank has sent its goodbyes.
    leaving: bool,
}

// SAFETY: the context and the pending requests belong to the shim. Any thread may call the shim if any thread
// may call the host MPI; a job of several hosts requests MPI_THREAD_MULTIPLE before it uses threads.
unsafe impl Send for HostMessages {}

impl HostMessages {
    pub(crate) fn new(
        rank: Rank,
        size: usize,
        callbacks: Callbacks,
        watch: Option<Box<WatchHandle>>,
    ) -> Self {
        Self {
            rank,
            size,
            callbacks,
            outgoing: VecDeque::new(),
            arrived: VecDeque::new(),
            gone: Vec::new(),
            watch,
            left: vec![false; size],
            leaving: false,
        }
    }

    /// Receives all packets that have arrived; returns whether there was one.
    fn receive_arrived(&mut self) -> Result<bool, Error> {
        let mut any = false;
        loop {
            let (mut from, mut bytes, mut message) = (0, 0, ptr::null_mut());
            let Callbacks { context, receive, take, .. } = self.callbacks;
            // SAFETY: a function of the shim with its own context, and room for its results.
            let code = unsafe { receive(context, &raw mut from, &raw mut bytes, &raw mut message) };
            check("MPI_Improbe", code)?;
            if message.is_null() {
                return Ok(any);
            }
            let mut packet = vec![0; bytes];
            // SAFETY: the message that was just matched, and memory of its size.
            let code = unsafe { take(context, &raw mut message, packet.as_mut_ptr().cast(), bytes) };
            check("MPI_Mrecv", code)?;
            any = true;
            let Ok(from) = u32::try_from(from) else { continue };
            if let Some(gone) = decode_notice(&packet) {
                self.record_gone(gone);
                continue;
            }
            if let Some(left) = self.left.get_mut(from as usize) {
                *left |= packet.first() == Some(&(PacketKind::Goodbye as u8));
            }
            if !self.is_gone(Rank(from)) {
                self.arrived.push_back((Rank(from), packet));
            }
        }
    }

    /// Polls for neighbors that are gone, when that is due, and tells the others. Returns whether there was
    /// one.
    fn poll(&mut self) -> Result<bool, Error> {
        let Some(watch) = &mut self.watch else { return Ok(false) };
        let mut any = false;
        for gone in watch.poll()?.to_vec() {
            let notice = encode_notice(&gone);
            if !self.record_gone(gone) {
                continue;
            }
            any = true;
            let own = self.rank;
            for to in (0..self.size).map(Rank::at).filter(|to| *to != own) {
                self.send_bytes(to, notice.clone())?;
            }
        }
        Ok(any)
    }

    /// Returns whether that is news: the rank has not left before.
    fn record_gone(&mut self, gone: Gone) -> bool {
        let left = self.left.get(gone.rank.index()).is_none_or(|left| *left);
        let is_news = !left && gone.rank != self.rank && !self.is_gone(gone.rank);
        if is_news {
            self.gone.push(gone);
        }
        is_news
    }

    fn is_gone(&self, rank: Rank) -> bool {
        self.gone.iter().any(|gone| gone.rank == rank)
    }

    /// Sends a message, unless the rank is gone.
    fn send_bytes(&mut self, to: Rank, bytes: Vec<u8>) -> Result<(), Error> {
        if self.is_gone(to) {
            return Ok(());
        }
        let mut packet = bytes.into_boxed_slice();
        let mut pending = ptr::null_mut();
        let Callbacks { context, send, .. } = self.callbacks;
        let to = c_int::try_from(to.0).map_err(|_| Error::Job(format!("rank {to} is beyond MPI's")))?;
        let (start, bytes) = (packet.as_mut_ptr(), packet.len());
        // SAFETY: `outgoing` keeps the packet unmoved until the host MPI has sent it.
        let code = unsafe { send(context, to, start.cast(), bytes, &raw mut pending) };
        check("MPI_Isend", code)?;
        self.outgoing.push_back(UnsentPacket { _packet: packet, pending });
        Ok(())
    }

    /// Drops the packets that the host MPI has sent; returns whether none remains.
    fn drop_sent(&mut self) -> Result<bool, Error> {
        let Callbacks { context, sent, .. } = self.callbacks;
        let mut kept = VecDeque::with_capacity(self.outgoing.len());
        let mut failure = None;
        for mut packet in self.outgoing.drain(..) {
            let mut done = 0;
            // SAFETY: a function of the shim with its own context, and a request that the shim made.
            let code = unsafe { sent(context, &raw mut packet.pending, &raw mut done) };
            match check("MPI_Test", code) {
                Err(error) => failure = Some(error),
                Ok(()) if done == 0 => kept.push_back(packet),
                Ok(()) => {}
            }
        }
        self.outgoing = kept;
        failure.map_or(Ok(self.outgoing.is_empty()), Err)
    }
}

/// A notice that a rank is gone: its number and the reason. It is shorter than every packet of the engine.
fn encode_notice(gone: &Gone) -> Vec<u8> {
    let why = &gone.why[..gone.why.floor_char_boundary(HEADER - 5)];
    [&gone.rank.0.to_le_bytes(), why.as_bytes()].concat()
}

fn decode_notice(packet: &[u8]) -> Option<Gone> {
    let (rank, why) = packet.split_first_chunk::<4>().filter(|_| packet.len() < HEADER)?;
    Some(Gone { rank: Rank(u32::from_le_bytes(*rank)), why: String::from_utf8_lossy(why).into_owned() })
}

fn check(call: &str, code: c_int) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    Err(Error::System {
        doing: format!("{call} failed with error code {code}"),
        source: io::Error::other("see the MPI's own messages"),
    })
}

impl Transport for HostMessages {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn max_payload(&self) -> usize {
        MAX_PAYLOAD
    }

    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error> {
        let length: usize = payload.iter().map(|piece| piece.len()).sum();
        let mut packet = Vec::with_capacity(HEADER + length);
        packet.extend_from_slice(header);
        payload.iter().for_each(|piece| packet.extend_from_slice(piece));
        if header[0] == PacketKind::Goodbye as u8 {
            self.leaving = true;
            if let Some(watch) = &mut self.watch {
                watch.leave(to, header)?;
            }
        }
        self.send_bytes(to, packet)?;
        if self.outgoing.len() > 16 {
            self.drop_sent()?;
        }
        Ok(())
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        if self.arrived.is_empty() && !self.receive_arrived()? {
            self.poll()?;
        }
        Ok(self.arrived.pop_front().map(|(from, bytes)| {
            *packet = bytes;
            from
        }))
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let mut pause = FIRST_POLL_DELAY;
        let mut polls = 0;
        let waiting_to_send = !self.outgoing.is_empty();
        while self.arrived.is_empty() && !self.receive_arrived()? {
            if self.drop_sent()? && waiting_to_send || self.poll()? {
                break;
            }
            if until.is_some_and(|until| clock::now() >= until) {
                break;
            }
            polls += 1;
            if polls > POLLS {
                std::thread::sleep(pause.into());
                pause = (pause * 2).min(MAX_POLL_DELAY);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Error> {
        self.drop_sent()
    }

    fn gone(&self) -> &[Gone] {
        &self.gone
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        if !self.is_gone(peer) {
            self.gone.push(Gone { rank: peer, why: why.to_owned() });
            self.arrived.retain(|(from, _)| *from != peer);
        }
    }
}

impl HostMessages {
    /// Whether the goodbye of a peer is still missing.
    fn expects_goodbyes(&self) -> bool {
        let comes =
            |rank: usize| rank != self.rank.index() && !self.left[rank] && !self.is_gone(Rank::at(rank));
        self.leaving && (0..self.size).any(comes)
    }
}

/// Waits until the host MPI has read this rank's packets and has delivered the last packets of the other
/// ranks, because an MPI that shuts down with messages left in it prints a warning, or hangs.
impl Drop for HostMessages {
    fn drop(&mut self) {
        let deadline = clock::now() + Duration::from_secs(5);
        while clock::now() < deadline {
            let settled = self.drop_sent().unwrap_or(true);
            // an error of the host MPI ends the wait
            if settled && (!self.expects_goodbyes() || self.receive_arrived().is_err()) {
                break;
            }
            std::thread::sleep(FIRST_POLL_DELAY.into());
        }
        // the host MPI may still read the remaining packets, so they are leaked and not freed
        self.outgoing.drain(..).for_each(std::mem::forget);
    }
}

#[cfg(test)]
mod tests;
