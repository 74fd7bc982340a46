//! A transport over the host MPI's own messages, for ranks on other hosts.
//!
//! It is a [`Transport`] made of four callbacks of the shim: `MPI_Isend`, `MPI_Test`, `MPI_Improbe` and
//! `MPI_Imrecv`, on a private communicator, so that no packet meets a message of the program.
//!
//! The idea: users of clusters already run an MPI that reaches all their hosts. Its messages are ordered and
//! reliable, and the engine needs no other property. MPI offers no way to sleep until a message arrives, so a
//! waiting rank polls with growing pauses: a short wait ends at once, and a long wait costs little. Long
//! packets that have arrived are received at the same time. Where the host MPI sends them by a rendezvous,
//! its answers to their senders then go out together, and not each behind this rank's own data.
//!
//! Cost: one message for each packet, copied once at each end. A poll in vain takes more than a microsecond
//! where the host MPI asks the kernel for messages (MPICH over UCX's TCP), so the engine gets the packet that
//! ended a wait without another poll. After a quiet time a packet may be noticed up to [`MAX_POLL_DELAY`]
//! late. When not to use it: on one host, where memory is shared. Messages do not show that a rank is gone; a
//! [`WatchHandle`] does.

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

/// The minimum number of polls before the first pause. They take as long as a message between idle hosts.
const POLLS: u32 = 200;
/// The minimum time before the first pause, if each rank of this host has a processor. It is longer than a
/// pause with the kernel's timer slack (50 us) and a wake-up: otherwise two ranks that wait for each other
/// can go on to find each other asleep. The shim's waits that serve windows poll as long (host_ranks.c).
pub(crate) const AWAKE: Duration = Duration::from_micros(500);
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
    /// `ended` reports that the operation has ended.
    pub send: unsafe extern "C" fn(
        context: *mut c_void,
        to: c_int,
        packet: *mut c_void,
        bytes: usize,
        pending: *mut *mut c_void,
    ) -> c_int,
    /// Sets `*done` to 1 and `*pending` to NULL if an operation of `send` or `take` has ended, else `*done`
    /// to 0.
    pub ended:
        unsafe extern "C" fn(context: *mut c_void, pending: *mut *mut c_void, done: *mut c_int) -> c_int,
    /// Matches a packet that has arrived. Stores its sender, its length, and in `*message` the message for
    /// `take`. `*message` is NULL if none has arrived.
    pub receive: unsafe extern "C" fn(
        context: *mut c_void,
        from: *mut c_int,
        bytes: *mut usize,
        message: *mut *mut c_void,
    ) -> c_int,
    /// Receives the packet that `receive` matched. Sets `*message` to NULL if the packet is there as a whole,
    /// else to an operation; the packet's memory then stays valid until `ended` reports that it has ended.
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

/// A packet that the host MPI has matched.
#[derive(Debug)]
struct MatchedPacket {
    from: Rank,
    /// Must not be freed before `pending` is null.
    bytes: Vec<u8>,
    /// The operation that receives the packet; null if the packet is there as a whole.
    pending: *mut c_void,
    /// Whether the engine does not get it, because its sender was gone or was refused.
    is_refused: bool,
}

/// A rank's end of the transport.
#[derive(Debug)]
pub(crate) struct HostMessages {
    rank: Rank,
    size: usize,
    callbacks: Callbacks,
    /// The minimum time of polling before the first pause of a wait.
    awake: Duration,
    outgoing: VecDeque<UnsentPacket>,
    /// In the order in which the host MPI matched them.
    matched: VecDeque<MatchedPacket>,
    /// Whether a wait has found a packet since the engine was last told that there is none.
    has_waited: bool,
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
    /// Creates the end of a rank, whose waits poll for at least `awake` before their first pause.
    pub(crate) fn new(
        rank: Rank,
        size: usize,
        awake: Duration,
        callbacks: Callbacks,
        watch: Option<Box<WatchHandle>>,
    ) -> Self {
        Self {
            rank,
            size,
            callbacks,
            awake,
            outgoing: VecDeque::new(),
            matched: VecDeque::new(),
            has_waited: false,
            gone: Vec::new(),
            watch,
            left: vec![false; size],
            leaving: false,
        }
    }

    /// Begins to receive the next packet that has arrived; returns whether there was one.
    fn match_next(&mut self) -> Result<bool, Error> {
        let (mut from, mut bytes, mut message) = (0, 0, ptr::null_mut());
        let Callbacks { context, receive, take, .. } = self.callbacks;
        // SAFETY: a function of the shim with its own context, and room for its results.
        let code = unsafe { receive(context, &raw mut from, &raw mut bytes, &raw mut message) };
        check("MPI_Improbe", code)?;
        if message.is_null() {
            return Ok(false);
        }
        let mut packet = vec![0_u8; bytes];
        // SAFETY: the message that was just matched, and memory of its size, which `matched` keeps until the
        // host MPI has filled it.
        let code = unsafe { take(context, &raw mut message, packet.as_mut_ptr().cast(), bytes) };
        check("MPI_Imrecv", code)?;
        // the engine ignores packets of ranks that do not exist
        let from = Rank(u32::try_from(from).unwrap_or(u32::MAX));
        let is_refused = self.is_gone(from);
        if message.is_null() {
            // notices and goodbyes are short, so they are there as a whole
            if let Some(gone) = decode_notice(&packet) {
                self.record_gone(gone);
                return Ok(true);
            }
            if let Some(left) = self.left.get_mut(from.index()) {
                *left |= packet.first() == Some(&(PacketKind::Goodbye as u8));
            }
        }
        self.matched.push_back(MatchedPacket { from, bytes: packet, pending: message, is_refused });
        Ok(true)
    }

    /// Notes which packets have arrived as a whole.
    fn test_matched(&mut self) -> Result<(), Error> {
        let Callbacks { context, ended, .. } = self.callbacks;
        for packet in self.matched.iter_mut().filter(|packet| !packet.pending.is_null()) {
            let mut done = 0;
            // SAFETY: a function of the shim with its own context, and an operation that the shim began.
            let code = unsafe { ended(context, &raw mut packet.pending, &raw mut done) };
            // after an error a part of its bytes may be missing
            packet.is_refused |= code != 0;
            check("MPI_Test", code)?;
        }
        self.matched.retain(|packet| !(packet.is_refused && packet.pending.is_null()));
        Ok(())
    }

    /// Returns the position of the first packet that is there as a whole, behind no other of its sender.
    fn next_whole(&self) -> Option<usize> {
        let is_behind =
            |index: usize, from: Rank| self.matched.iter().take(index).any(|earlier| earlier.from == from);
        self.matched.iter().enumerate().position(|(index, packet)| {
            packet.pending.is_null() && !packet.is_refused && !is_behind(index, packet.from)
        })
    }

    /// Begins to receive packets until one is there for the engine; returns whether there is one.
    fn find_whole(&mut self) -> Result<bool, Error> {
        loop {
            self.test_matched()?;
            if self.next_whole().is_some() {
                return Ok(true);
            }
            if !self.match_next()? {
                return Ok(false);
            }
        }
    }

    /// Whether a packet for the engine is on its way from a rank that can still send it.
    fn is_receiving(&self) -> bool {
        self.matched.iter().any(|packet| !packet.is_refused && !self.is_gone(packet.from))
    }

    /// Does [`find_whole`](Self::find_whole), for callers that do not wait. They come back after a pause of
    /// their own (the agent's is a millisecond), so this polls on for a while if a packet is on its way.
    fn find_arriving(&mut self) -> Result<bool, Error> {
        let until = clock::now() + AWAKE;
        while !self.find_whole()? {
            if !self.is_receiving() || clock::now() >= until {
                return Ok(false);
            }
            // its sender may be on this processor
            std::thread::yield_now();
        }
        Ok(true)
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
        let Callbacks { context, ended, .. } = self.callbacks;
        let mut kept = VecDeque::with_capacity(self.outgoing.len());
        let mut failure = None;
        for mut packet in self.outgoing.drain(..) {
            let mut done = 0;
            // SAFETY: a function of the shim with its own context, and a request that the shim made.
            let code = unsafe { ended(context, &raw mut packet.pending, &raw mut done) };
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
        if self.next_whole().is_none() && (std::mem::take(&mut self.has_waited) || !self.find_arriving()?) {
            self.poll()?;
        }
        let next = self.next_whole().and_then(|index| self.matched.remove(index));
        Ok(next.map(|next| {
            *packet = next.bytes;
            next.from
        }))
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        let mut pause = FIRST_POLL_DELAY;
        let mut polls = 0;
        let waiting_to_send = !self.outgoing.is_empty();
        let known_gone = self.gone.len();
        let awake_until = clock::now() + self.awake;
        while !self.find_whole()? {
            // a packet may have been the notice of another rank that a rank is gone
            if self.drop_sent()? && waiting_to_send || self.poll()? || self.gone.len() > known_gone {
                return Ok(());
            }
            let now = clock::now();
            if until.is_some_and(|until| now >= until) {
                return Ok(());
            }
            polls += 1;
            if polls > POLLS && now >= awake_until {
                std::thread::sleep(pause.into());
                // the host MPI moves long packets only in its calls
                let is_moving = self.is_receiving() || !self.outgoing.is_empty();
                pause = if is_moving { FIRST_POLL_DELAY } else { (pause * 2).min(MAX_POLL_DELAY) };
            }
        }
        self.has_waited = true;
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
            // the host MPI may still write the others
            self.matched.retain(|packet| packet.from != peer || !packet.pending.is_null());
            self.matched.iter_mut().filter(|packet| packet.from == peer).for_each(|packet| {
                packet.is_refused = true;
            });
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

    /// Begins to receive all packets that have arrived. Returns whether no goodbye is missing, and no packet
    /// is on its way.
    fn receive_last(&mut self) -> Result<bool, Error> {
        while self.match_next()? {}
        self.test_matched()?;
        let is_pending = |packet: &MatchedPacket| !packet.pending.is_null() && !self.is_gone(packet.from);
        Ok(!self.expects_goodbyes() && !self.matched.iter().any(is_pending))
    }
}

/// Waits until the host MPI has read this rank's packets and has delivered the last packets of the other
/// ranks, because an MPI that shuts down with messages left in it prints a warning, or hangs.
impl Drop for HostMessages {
    fn drop(&mut self) {
        let deadline = clock::now() + Duration::from_secs(5);
        while clock::now() < deadline {
            let has_sent = self.drop_sent().unwrap_or(true);
            // Another rank that leaves may not send its last packets before this rank receives them. An error
            // of the host MPI ends the wait.
            let has_received = !self.leaving || self.receive_last().unwrap_or(true);
            if has_sent && has_received {
                break;
            }
            std::thread::sleep(FIRST_POLL_DELAY.into());
        }
        // the host MPI may still read or write the remaining packets, so they are leaked and not freed
        self.outgoing.drain(..).for_each(std::mem::forget);
        self.matched.drain(..).filter(|packet| !packet.pending.is_null()).for_each(std::mem::forget);
    }
}

#[cfg(test)]
mod tests;
