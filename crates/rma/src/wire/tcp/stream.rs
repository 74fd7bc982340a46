//! Packets on a stream of bytes: cuts the bytes of a connection into packets, and keeps bytes that the
//! network does not take.
//!
//! A packet travels unchanged; its header holds its length. No kind of packet has the code zero, so a
//! header whose first byte is zero is the transport's own: a heartbeat, 48 zero bytes. Lengths are checked
//! before memory is allocated. So a peer can make this side hold at most [`BUFFER`] bytes and one packet.
//!
//! Cost: short packets are read many at a time and copied once; a longer packet is read into the memory that
//! the caller gets. Sending copies only the bytes that the kernel does not take.
//! When not to use: over anything that loses or reorders bytes.

use crate::wire::packet::{BadPacket, HEADER, announced};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};

pub(super) const BUFFER: usize = 64 << 10;
/// Packets longer than this are read into memory of their own.
const LARGE: usize = 16 << 10;
/// An empty queue that has grown beyond this capacity (bytes) frees its memory.
const KEEP: usize = 1 << 20;
const PIECES: usize = 64;

/// The transport's own message, sent to peers from which nothing has arrived.
pub(super) const HEARTBEAT: [u8; HEADER] = [0; HEADER];

/// Bytes that have arrived, to be cut into packets.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Allocated with the first bytes.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// A large packet that has not arrived in full, and the number of its bytes that have arrived.
    large: Option<(Vec<u8>, usize)>,
    /// Memory for the next large packet.
    spare: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamCut {
    /// Not enough bytes for a packet.
    Nothing,
    /// A packet was put into the given memory.
    WirePacket,
}

impl Incoming {
    /// Reads once from `source`; returns the number of bytes, zero at its end.
    pub(super) fn fill(&mut self, source: &mut impl Read) -> io::Result<usize> {
        if let Some((bytes, filled)) = &mut self.large
            && *filled < bytes.len()
        {
            let read = source.read(&mut bytes[*filled..])?;
            *filled += read;
            return Ok(read);
        }
        if self.buffer.is_empty() {
            self.buffer.resize(BUFFER, 0);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == BUFFER {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = source.read(&mut self.buffer[self.end..])?;
        self.end += read;
        Ok(read)
    }

    /// Whether there is room to read more before packets are taken out.
    pub(super) fn has_room(&self) -> bool {
        match &self.large {
            Some((bytes, filled)) => *filled < bytes.len(),
            None => self.end - self.start < BUFFER,
        }
    }

    /// Whether no byte of a packet is here.
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end && self.large.is_none()
    }

    pub(super) fn cut(&mut self, packet: &mut Vec<u8>) -> Result<StreamCut, BadPacket> {
        if let Some((bytes, filled)) = &mut self.large {
            if *filled < bytes.len() {
                return Ok(StreamCut::Nothing);
            }
            std::mem::swap(packet, bytes);
            self.spare = std::mem::take(bytes);
            self.large = None;
            return Ok(StreamCut::WirePacket);
        }
        loop {
            let there = &self.buffer[self.start..self.end];
            let Some((header, _)) = there.split_first_chunk::<HEADER>() else {
                return Ok(StreamCut::Nothing);
            };
            if header[0] == 0 {
                if *header != HEARTBEAT {
                    return Err(BadPacket::Code { what: "kind", code: 0 });
                }
                self.start += HEADER;
                continue;
            }
            let bytes = HEADER + announced(header)?;
            if let Some(whole) = there.get(..bytes) {
                packet.clear();
                packet.extend_from_slice(whole);
                self.start += bytes;
                return Ok(StreamCut::WirePacket);
            }
            if bytes > LARGE {
                let mut large = std::mem::take(&mut self.spare);
                large.resize(bytes, 0);
                large[..there.len()].copy_from_slice(there);
                self.large = Some((large, there.len()));
                (self.start, self.end) = (0, 0);
            }
            return Ok(StreamCut::Nothing);
        }
    }
}

/// Bytes that the network has not taken yet.
#[derive(Debug, Default)]
pub(super) struct UnsentBytes {
    kept: VecDeque<u8>,
}

impl UnsentBytes {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Sends a packet, and keeps the bytes that the sink does not take.
    pub(super) fn send(
        &mut self,
        sink: &mut impl Write,
        header: &[u8; HEADER],
        payload: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let taken = if self.is_empty() { write(sink, header, payload)? } else { 0 };
        let mut skip = taken;
        for piece in std::iter::once(&header[..]).chain(payload.iter().map(|piece| &**piece)) {
            self.kept.extend(&piece[skip.min(piece.len())..]);
            skip = skip.saturating_sub(piece.len());
        }
        Ok(())
    }

    /// Sends kept bytes. Returns whether none is left.
    pub(super) fn flush(&mut self, sink: &mut impl Write) -> io::Result<bool> {
        while !self.kept.is_empty() {
            let (first, second) = self.kept.as_slices();
            match sink.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => drop(self.kept.drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if self.kept.capacity() > KEEP {
            self.kept = VecDeque::new();
        }
        Ok(true)
    }

    pub(super) fn clear(&mut self) {
        self.kept = VecDeque::new();
    }
}

/// Writes the beginning of a packet, once; returns the number of bytes taken.
fn write(sink: &mut impl Write, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    pieces[0] = IoSlice::new(header);
    let count = payload.len().min(PIECES - 1);
    pieces[1..=count].copy_from_slice(&payload[..count]);
    loop {
        match sink.write_vectored(&pieces[..=count]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::packet::{Header, MAX_PAYLOAD, PacketKind, WirePacket};
    use proptest::prelude::*;

    /// A network that accepts and returns any number of bytes at a time, and sometimes none.
    #[derive(Default)]
    struct Network {
        bytes: VecDeque<u8>,
        sizes: Vec<usize>,
        /// The numbers of calls to write and to read. With one common number each would always get the same
        /// sizes.
        calls: [usize; 2],
    }

    impl Network {
        fn amount(&mut self, direction: usize) -> io::Result<usize> {
            self.calls[direction] += 1;
            match self.sizes[self.calls[direction] % self.sizes.len()] {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                1 => Err(io::ErrorKind::Interrupted.into()),
                amount => Ok(amount),
            }
        }
    }

    impl Write for Network {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let amount = self.amount(0)?.min(bytes.len());
            self.bytes.extend(&bytes[..amount]);
            Ok(amount)
        }

        fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            self.write(&all)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Network {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let amount = self.amount(1)?.min(bytes.len()).min(self.bytes.len());
            for byte in &mut bytes[..amount] {
                *byte = self.bytes.pop_front().expect("counted");
            }
            Ok(amount)
        }
    }

    proptest! {
        #[test]
        fn packets_come_out_as_they_went_in_however_the_network_cuts_them(
            lengths in prop::collection::vec(prop_oneof![Just(0_usize), 1..200_usize, 15_000..70_000_usize], 1..12),
            mut sizes in prop::collection::vec(prop_oneof![0..3_usize, 2..100_usize, 1000..100_000_usize], 1..8),
            heartbeat in 0_usize..12,
        ) {
            sizes.push(4096); // with sizes of zero alone no byte would travel
            let mut network = Network { sizes, ..Network::default() };
            let (mut outgoing, mut incoming) = (UnsentBytes::default(), Incoming::default());
            let content = |tag: usize, length: usize| (0..length).map(|at| (at * 7 + tag) as u8).collect::<Vec<_>>();
            for (tag, length) in lengths.iter().enumerate() {
                if tag == heartbeat {
                    outgoing.send(&mut network, &HEARTBEAT, &[]).expect("sends");
                }
                let bytes = content(tag, *length);
                let header = Header { tag: tag as u32, ..Header::new(PacketKind::Put, 1) }.encode(bytes.len());
                let (first, second) = bytes.split_at(bytes.len() / 2);
                outgoing.send(&mut network, &header, &[IoSlice::new(first), IoSlice::new(second)]).expect("sends");
            }
            let (mut packet, mut came) = (Vec::new(), 0);
            while came < lengths.len() {
                outgoing.flush(&mut network).expect("flushes");
                let _ = incoming.fill(&mut network);
                while incoming.cut(&mut packet).expect("well formed") == StreamCut::WirePacket {
                    let packet = WirePacket::parse(&packet).expect("whole");
                    prop_assert_eq!(packet.header.tag as usize, came);
                    prop_assert!(packet.payload == content(came, lengths[came]), "packet {} differs", came);
                    came += 1;
                }
                prop_assert!(incoming.has_room());
            }
            prop_assert!(incoming.is_empty() || heartbeat >= lengths.len());
        }
    }

    #[test]
    fn an_oversized_packet_is_refused_before_memory_is_taken() {
        let header = Header::new(PacketKind::Put, 1).encode(MAX_PAYLOAD + 1);
        let mut incoming = Incoming::default();
        incoming.fill(&mut &header[..]).expect("reads");
        assert_eq!(incoming.cut(&mut Vec::new()), Err(BadPacket::TooLong(MAX_PAYLOAD + 1)));
    }

    #[test]
    fn a_heartbeat_with_anything_in_it_is_refused() {
        let mut wrong = HEARTBEAT;
        wrong[12] = 1;
        let mut incoming = Incoming::default();
        incoming.fill(&mut &wrong[..]).expect("reads");
        assert!(incoming.cut(&mut Vec::new()).is_err());
    }
}
