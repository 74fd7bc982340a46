//! The fuzz targets, called by `cargo test` with mutated samples and by `fuzz/targets/rma` guided by
//! coverage.
//!
//! The idea: each function takes any bytes and compares the result of the code under test with an obvious
//! expectation. A violation panics. Cost: none in a usual build, which does not contain this file.
//! Reference: `cargo xtask fuzz`.

#![expect(clippy::missing_panics_doc, reason = "panicking is how a fuzzer reports")]

use super::handshake::{Acceptor, AcceptorStep, CHALLENGE, Connector, LocalIdentity};
use super::stream::{HEARTBEAT, Incoming, StreamCut};
use crate::model::{Key, Layout};
use crate::wire::descriptions::ReceivedDescriptions;
use crate::wire::packet::{HEADER, PacketKind, WirePacket, announced};
use std::collections::HashMap;
use std::io::{self, Read};

/// Parses a packet: it must encode to the same bytes, and the members of a batch must lie in it.
pub fn packet(bytes: &[u8]) {
    let Ok(packet) = WirePacket::parse(bytes) else { return };
    assert_eq!(packet.header.encode(packet.payload.len()), bytes[..HEADER], "the same header");
    assert_eq!(packet.payload, &bytes[HEADER..], "the same payload");
    match packet.header.kind {
        PacketKind::Batch => {
            let mut taken = 0;
            for member in packet.members() {
                let Ok(member) = member else { break };
                assert_ne!(member.header.kind, PacketKind::Batch, "no batch in a batch");
                assert_eq!(member.header.encode(member.payload.len()), packet.payload[taken..taken + HEADER]);
                taken = (taken + HEADER + member.payload.len()).next_multiple_of(8);
            }
            descriptions(packet);
        }
        PacketKind::Layout => layout(packet.payload),
        _ => {}
    }
}

/// Decodes a layout: its encoding must decode to the same layout, and its bounds must be in order.
pub fn layout(bytes: &[u8]) {
    let Ok(layout) = Layout::decode(bytes) else { return };
    let encoded = layout.encode();
    // a layout that turns out to be contiguous is simplified, and needs no description
    if !encoded.is_empty() {
        let again = Layout::decode(&encoded).expect("what is encoded is decoded");
        let of = |layout: &Layout| (layout.size(), layout.extent(), layout.runs().to_vec());
        assert_eq!(of(&layout), of(&again));
    }
    let (start, end) = layout.bounds(3);
    assert!(start <= end, "{start} to {end}");
}

/// Takes descriptions of layouts in pieces, as the members of a batch. A layout must be known if and only if
/// its pieces came one after the other from the beginning to the end, and must equal the one that the joined
/// bytes describe.
fn descriptions(batch: WirePacket<'_>) {
    let mut there = ReceivedDescriptions::default();
    let (mut outcomes, mut row) = (HashMap::new(), Vec::new());
    for member in batch.members() {
        let Ok(WirePacket { header, payload }) = member else { return };
        match header.kind {
            PacketKind::Layout => {
                let follows = header.extra == row.len() as u64 && !payload.is_empty();
                row.extend_from_slice(payload);
                if there.take(&header, payload).is_err() {
                    return;
                }
                assert!(follows && row.len() as u64 <= header.count, "accepted {header:?}");
                if row.len() as u64 == header.count {
                    let layout = Layout::decode(&row).expect("what was taken describes a layout");
                    assert!(outcomes.insert(header.layout, layout).is_none(), "described twice");
                    row.clear();
                }
            }
            PacketKind::Forget => {
                there.forget(header.layout);
                outcomes.remove(&header.layout);
            }
            _ => {}
        }
        there.check();
        for (id, layout) in &outcomes {
            assert_eq!(there.find(*id).expect("told").runs(), layout.runs());
        }
    }
}

/// A reader whose input determines how many bytes it returns at a time.
struct Pieces<'a> {
    sizes: &'a [u8],
    at: usize,
    rest: &'a [u8],
}

impl Read for Pieces<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.at += 1;
        let size = self.sizes.get(self.at % self.sizes.len().max(1)).map_or(usize::MAX, |size| {
            // mostly a few bytes, sometimes many
            if *size < 200 { 1 + usize::from(*size) } else { usize::from(*size) << 8 }
        });
        let size = size.min(bytes.len()).min(self.rest.len());
        let (now, later) = self.rest.split_at(size);
        bytes[..size].copy_from_slice(now);
        self.rest = later;
        Ok(size)
    }
}

/// Reads a stream in pieces, whose sizes are in the first bytes. The packets and the place of an error must
/// be those that a simple reading of all the bytes at once finds.
pub fn stream(bytes: &[u8]) {
    let (sizes, bytes) = bytes.split_at(bytes.len().min(4));
    let (expected, error_expected) = cut_at_once(bytes);
    let mut source = Pieces { sizes, at: 0, rest: bytes };
    let (mut incoming, mut packet, mut came) = (Incoming::default(), Vec::new(), 0);
    let error = 'stream: loop {
        assert!(incoming.has_room(), "everything complete has been taken out");
        if incoming.fill(&mut source).expect("a slice is read") == 0 {
            break false;
        }
        loop {
            match incoming.cut(&mut packet) {
                Ok(StreamCut::Nothing) => break,
                Ok(StreamCut::WirePacket) => {
                    assert_eq!(Some(&packet[..]), expected.get(came).copied(), "packet {came}");
                    came += 1;
                }
                Err(_) => break 'stream true,
            }
        }
    };
    assert_eq!((came, error), (expected.len(), error_expected));
}

fn cut_at_once(mut bytes: &[u8]) -> (Vec<&[u8]>, bool) {
    let mut packets = Vec::new();
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let Ok(payload) = announced(header) else { return (packets, true) };
        if header[0] == 0 && *header != HEARTBEAT {
            return (packets, true);
        }
        let Some((packet, rest)) = bytes.split_at_checked(HEADER + payload) else { break };
        if header[0] != 0 {
            packets.push(packet);
        }
        bytes = rest;
    }
    (packets, false)
}

/// Runs both sides of a handshake: neither may accept bytes that were made without the key.
pub fn handshake(bytes: &[u8]) {
    let key = Key::from_bytes(*b"nobody knows it!");
    let own = |rank, seed| LocalIdentity { rank, size: 4, key: &key, nonce: [seed; 32] };
    let mut acceptor = Acceptor::new();
    let (step, mut rest) =
        bytes.split_first().map_or((1, bytes), |(step, rest)| (1 + usize::from(*step), rest));
    while !rest.is_empty() {
        let room = acceptor.room();
        let fits = room.len().min(rest.len()).min(step);
        assert!(fits > 0, "an acceptor that has heard everything has judged");
        room[..fits].copy_from_slice(&rest[..fits]);
        rest = &rest[fits..];
        match acceptor.took(fits, &own(1, 2)) {
            Ok(AcceptorStep::Read | AcceptorStep::Send(_)) => {}
            Ok(AcceptorStep::Judge(guest)) => panic!("believed {guest:?}"),
            Err(_) => break,
        }
    }
    if let Some(challenge) = bytes.first_chunk::<CHALLENGE>() {
        let here = ([127, 0, 0, 1], 1).into();
        assert!(Connector::new(own(2, 1), 1).prove(challenge, here).is_err(), "believed a challenge");
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a failing case is named")]
mod tests {
    use super::*;
    use crate::model::Element;
    use crate::wire::packet::{Header, MAX_PAYLOAD, PacketFlags};
    use proptest::prelude::*;

    /// The number of cases for each target; they take a fraction of a second. `cargo xtask fuzz` runs for any
    /// length of time.
    const CASES: u64 = 3000;

    /// A generator of pseudo-random numbers (xorshift64*), so that a failing case can be repeated by its
    /// number.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides.max(1)
        }
    }

    fn any_packet(dice: &mut Dice) -> Vec<u8> {
        let mut header = Header::new(PacketKind::ALL[dice.roll(PacketKind::ALL.len())], dice.roll(5) as u32);
        header.flags = PacketFlags(dice.roll(64) as u8);
        header.count = dice.roll(100) as u64;
        let payload = match (header.kind, dice.roll(20)) {
            (PacketKind::Batch, 0..10) => pieces(dice),
            (PacketKind::Batch, _) => {
                let mut members = Vec::new();
                for _ in 0..dice.roll(4) {
                    members.extend_from_slice(&Header::new(PacketKind::Put, 1).encode(5));
                    members.extend_from_slice(b"hello\0\0\0\0\0\0");
                }
                members
            }
            (PacketKind::Layout, _) => Layout::strided(Element::F64, 1 + dice.roll(9) as u64, 2, 5)
                .expect("a fitting layout")
                .encode(),
            (_, 0) => vec![1; dice.roll(100_000)],
            (_, 1) => vec![2; MAX_PAYLOAD],
            _ => vec![3; dice.roll(300)],
        };
        let mut packet = header.encode(payload.len()).to_vec();
        packet.extend_from_slice(&payload);
        packet
    }

    /// Makes packets that describe two layouts in pieces and may forget the first; sometimes a piece belongs
    /// to another layout.
    fn pieces(dice: &mut Dice) -> Vec<u8> {
        let mut members = Vec::new();
        let mut add = |header: Header, payload: &[u8]| {
            members.extend_from_slice(&header.encode(payload.len()));
            members.extend_from_slice(payload);
            members.resize(members.len().next_multiple_of(8), 0);
        };
        for id in 1..3 {
            let blocks: Vec<_> = (0..2 + dice.roll(9) as i64).map(|block| (3 * block, 1)).collect();
            let bytes = Layout::indexed(Element::U8, &blocks).expect("a fitting layout").encode();
            let (count, mut at) = (bytes.len() as u64, 0);
            while at < bytes.len() {
                let end = (at + 1 + dice.roll(200)).min(bytes.len());
                let layout = if dice.roll(30) == 0 { 3 - id } else { id };
                add(
                    Header { layout, count, extra: at as u64, ..Header::new(PacketKind::Layout, 0) },
                    &bytes[at..end],
                );
                at = if dice.roll(30) == 0 { dice.roll(end) } else { end };
            }
            if dice.roll(3) == 0 {
                add(Header { layout: id, ..Header::new(PacketKind::Forget, 0) }, &[]);
            }
        }
        members
    }

    fn any_stream(dice: &mut Dice) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..4).map(|_| dice.roll(256) as u8).collect();
        for _ in 0..1 + dice.roll(6) {
            bytes.extend(if dice.roll(5) == 0 { HEARTBEAT.to_vec() } else { any_packet(dice) });
        }
        bytes
    }

    fn hurt(bytes: &mut Vec<u8>, dice: &mut Dice) {
        for _ in 0..dice.roll(4) {
            // half of the changes are in the region of the first header
            let near = [bytes.len(), 60][dice.roll(2)].min(bytes.len());
            let at = dice.roll(near);
            match dice.roll(5) {
                _ if bytes.is_empty() => {}
                0 => bytes[at] ^= 1 << dice.roll(8),
                1 => bytes[at] = dice.roll(256) as u8,
                2 => drop(bytes.remove(at)),
                3 => bytes.insert(at, dice.roll(256) as u8),
                _ => bytes.truncate(at),
            }
        }
    }

    fn try_all(make: impl Fn(&mut Dice) -> Vec<u8>, target: fn(&[u8])) {
        for case in 1..=CASES {
            let mut dice = Dice(case.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut bytes = make(&mut dice);
            hurt(&mut bytes, &mut dice);
            if let Err(panic) = std::panic::catch_unwind(|| target(&bytes)) {
                println!("case {case}, {} bytes: {:02x?}", bytes.len(), &bytes[..bytes.len().min(200)]);
                std::panic::resume_unwind(panic);
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_a_target(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            [packet, layout, stream, handshake].into_iter().for_each(|target| target(&bytes));
        }
    }

    #[test]
    fn injured_packets_are_refused_or_what_they_say() {
        try_all(any_packet, packet);
        try_all(
            |dice| Layout::strided(Element::I32, dice.roll(99) as u64, 1, 4).map_or(vec![], |it| it.encode()),
            layout,
        );
    }

    #[test]
    fn injured_streams_are_cut_where_a_simple_reading_cuts_them() {
        try_all(any_stream, stream);
    }

    #[test]
    fn injured_handshakes_convince_nobody() {
        let key = Key::from_bytes([3; 16]);
        let hello = *Connector::new(LocalIdentity { rank: 2, size: 4, key: &key, nonce: [1; 32] }, 1).hello();
        try_all(
            |dice| {
                let step = dice.roll(256) as u8;
                let proof = (0..100).map(|_| dice.roll(256) as u8);
                [step].into_iter().chain(hello).chain(proof).collect()
            },
            handshake,
        );
    }
}
