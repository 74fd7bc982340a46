//! The packet, the unit of exchange between two ranks: a header of fixed size, then a payload.
//!
//! All numbers are little-endian. The header is [`HEADER`] bytes:
//!
//! ```text
//!    0 kind      1 flags     2 element   3 operation
//!    4 window (u32)                      8 tag (u32)         12 payload bytes (u32)
//!   16 offset (i64)                      24 layout (u64)
//!   32 count (u64)                      40 extra (u64)
//! ```
//! [`PacketKind`] says how each kind uses the header. [`WirePacket::parse`] takes untrusted bytes and never
//! panics; it checks that codes are known, that the payload is as long as the header says and not longer than
//! [`MAX_PAYLOAD`]. The receiving engine checks the *meaning* of the numbers (whether a window exists,
//! whether a place lies inside it) before it uses them.
//!
//! Cost: 48 bytes an operation. Aggregated operations ([`PacketKind::Batch`]) travel as one message, each
//! with its header, padded to eight bytes.

use crate::model::coded;
use crate::model::{Element, Lock, Operation, Verb};

pub const HEADER: usize = 48;

/// The largest payload (bytes). Longer transfers travel in pieces.
pub const MAX_PAYLOAD: usize = 1 << 20;

coded! {
    #[non_exhaustive]
    pub enum PacketKind {
        /// Write the payload at `offset`, `count` elements of `layout`, from byte `extra` of the data on.
        Put = 1 "put",
        /// Send back the data of `count` elements of `layout` at `offset`, from byte `extra` of the data on;
        /// the payload is the number of bytes (a u64). The answer is [`PacketKind::Data`] with the same
        /// `tag`.
        Get = 2 "get",
        /// Combine the payload with the data at `offset`; otherwise like [`PacketKind::Put`].
        Accumulate = 3 "accumulate",
        /// Do the same as [`PacketKind::Accumulate`], and send back the old data.
        GetAccumulate = 4 "get accumulate",
        /// Compare with the first half of the payload; if equal, write the second half; send back the old
        /// data.
        CompareAndSwap = 5 "compare and swap",
        /// An answer: data for the request `tag`, from byte `extra` of it on.
        Data = 6 "data",
        /// Describes layout `layout` of the sender from now on: the payload is a part of the bytes that
        /// [`crate::Layout::encode`] writes, `count` bytes in all, from byte `extra` of them on. Pieces come
        /// in order, without other descriptions between them.
        Layout = 7 "layout",
        /// The sender forgets layout `layout`, and will not refer to it again.
        Forget = 8 "forget",
        /// `extra` is the number of ranks that will access the receiver in the epoch `tag` (part of a
        /// reduce-scatter; `offset` is its round).
        FenceCount = 9 "fence count",
        /// The sender has exposed its window to the receiver (post), epoch `tag`.
        Post = 10 "post",
        /// The sender has no operation in the epoch `tag`. This packet replaces the mark of a last operation.
        Done = 11 "done",
        /// Asks for the lock of the receiver's window; `extra` is 1 for shared, 2 for exclusive.
        LockRequest = 12 "lock request",
        /// The receiver has the lock now. With [`PacketFlags::ACKNOWLEDGE`] it is a [`Self::Complete`] as
        /// well.
        LockGranted = 13 "lock granted",
        /// Releases a lock that no operation released.
        Unlock = 14 "unlock",
        /// All operations that the receiver sent with tag `tag` or before are complete here.
        Complete = 15 "complete",
        /// Asks for [`PacketKind::Complete`] with this `tag`.
        Flush = 16 "flush",
        /// An arrival at a barrier or a contribution to an exchange; `tag` numbers it, `extra` is its round.
        Collect = 17 "collect",
        /// Several packets, one after the other, each padded to eight bytes. With a lock request all of them
        /// are operations on this window; the flags and the tag are those of the whole batch.
        Batch = 18 "batch",
        /// A request of the receiver was refused: `tag` names it, `extra` is the reason, the payload is text.
        Refused = 19 "refused",
        /// The sender ends in an orderly way: it will send no more.
        Goodbye = 20 "goodbye",
    }
}

impl From<Verb> for PacketKind {
    fn from(verb: Verb) -> Self {
        match verb {
            Verb::Put => Self::Put,
            Verb::Get => Self::Get,
            Verb::Accumulate => Self::Accumulate,
            Verb::GetAccumulate => Self::GetAccumulate,
            Verb::CompareAndSwap => Self::CompareAndSwap,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketFlags(pub u8);

impl PacketFlags {
    /// The last operation of this origin in its epoch: the receiver decrements its counter.
    pub const LAST: Self = Self(1);
    /// Releases the lock once the operation is done.
    pub const UNLOCK: Self = Self(2);
    /// The origin waits, or will wait, for [`PacketKind::Complete`].
    pub const ACKNOWLEDGE: Self = Self(4);
    /// The operation, or the batch, carries a request for a shared lock: it is done when the lock is granted.
    /// Without [`Self::UNLOCK`] the origin has the lock afterwards.
    pub const LOCK_SHARED: Self = Self(8);
    /// As [`Self::LOCK_SHARED`], for an exclusive lock.
    pub const LOCK_EXCLUSIVE: Self = Self(16);
    /// The operation belongs to an access epoch of fence. Without this flag and without a lock, it belongs to
    /// an access epoch of start.
    pub const FENCE: Self = Self(32);

    /// The lock request, a shared one, comes from a holder of another lock: it goes before waiting requests.
    pub const HOLDER: Self = Self(64);

    const KNOWN: u8 = 127;

    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// Returns the lock that the operations request.
    pub const fn lock(self) -> Option<Lock> {
        if self.has(Self::LOCK_EXCLUSIVE) {
            Some(Lock::Exclusive)
        } else if self.has(Self::LOCK_SHARED) {
            Some(Lock::Shared)
        } else {
            None
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: PacketKind,
    pub flags: PacketFlags,
    /// The type of elements, where an operation combines them.
    pub element: Option<Element>,
    pub operation: Option<Operation>,
    /// The number of the window in the job; 0 is the job itself.
    pub window: u32,
    /// Names a request or an epoch.
    pub tag: u32,
    /// The position in the receiver's window, in bytes from its base (an address in a dynamic window).
    pub offset: i64,
    /// The receiver's or sender's layout; 0 is contiguous bytes.
    pub layout: u64,
    /// The number of elements of the layout, or of bytes of contiguous data.
    pub count: u64,
    pub extra: u64,
}

impl Header {
    /// Creates a header of this kind for this window with everything else zero.
    pub const fn new(kind: PacketKind, window: u32) -> Self {
        Self {
            kind,
            flags: PacketFlags(0),
            element: None,
            operation: None,
            window,
            tag: 0,
            offset: 0,
            layout: 0,
            count: 0,
            extra: 0,
        }
    }

    /// Encodes this header; a payload of `payload` bytes (at most [`MAX_PAYLOAD`]) follows it.
    pub fn encode(&self, payload: usize) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[1] = self.flags.0;
        bytes[2] = self.element.map_or(0, |element| element as u8);
        bytes[3] = self.operation.map_or(0, |operation| operation as u8);
        bytes[4..8].copy_from_slice(&self.window.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.tag.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::try_from(payload).unwrap_or(u32::MAX).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.layout.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.count.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.extra.to_le_bytes());
        bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WirePacket<'a> {
    pub header: Header,
    pub payload: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPacket {
    /// Shorter than a header, or of another length than the header says.
    #[error("{bytes} bytes came for a packet of {wanted}")]
    Length {
        bytes: usize,
        /// The expected number of bytes.
        wanted: usize,
    },
    #[error("{what} {code} is unknown; the other side may be of another version")]
    Code { what: &'static str, code: u8 },
    #[error("a payload of {0} bytes, above the limit")]
    TooLong(usize),
}

/// Returns the payload's length from a header, after a check; for a transport that reads a stream.
pub fn announced(header: &[u8; HEADER]) -> Result<usize, BadPacket> {
    let payload = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
    if payload > MAX_PAYLOAD { Err(BadPacket::TooLong(payload)) } else { Ok(payload) }
}

impl<'a> WirePacket<'a> {
    /// Parses untrusted bytes as exactly one packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadPacket> {
        let Some((head, payload)) = bytes.split_first_chunk::<HEADER>() else {
            return Err(BadPacket::Length { bytes: bytes.len(), wanted: HEADER });
        };
        let announced = announced(head)?;
        if payload.len() != announced {
            return Err(BadPacket::Length { bytes: bytes.len(), wanted: HEADER + announced });
        }
        Ok(Self { header: header(head)?, payload })
    }

    /// Returns the packets in the payload of a [`PacketKind::Batch`]. A batch inside a batch is an error.
    pub fn members(self) -> impl Iterator<Item = Result<WirePacket<'a>, BadPacket>> {
        let mut rest = self.payload;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let one = first(rest);
            rest = match &one {
                Ok(packet) => {
                    let bytes = (HEADER + packet.payload.len()).next_multiple_of(8);
                    rest.get(bytes..).unwrap_or(&[])
                }
                Err(_) => &[],
            };
            Some(one)
        })
    }
}

fn first(bytes: &[u8]) -> Result<WirePacket<'_>, BadPacket> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(BadPacket::Length { bytes: bytes.len(), wanted: HEADER });
    };
    let announced = announced(head)?;
    let Some(payload) = rest.get(..announced) else {
        return Err(BadPacket::Length { bytes: bytes.len(), wanted: HEADER + announced });
    };
    let header = header(head)?;
    if header.kind == PacketKind::Batch {
        return Err(BadPacket::Code { what: "kind in a batch", code: PacketKind::Batch as u8 });
    }
    Ok(WirePacket { header, payload })
}

fn header(head: &[u8; HEADER]) -> Result<Header, BadPacket> {
    let bad = |what, code| BadPacket::Code { what, code };
    let [code, flags, element, operation, ..] = *head;
    let kind = PacketKind::from_code(code).ok_or(bad("kind", code))?;
    if flags & !PacketFlags::KNOWN != 0 {
        return Err(bad("flags", flags));
    }
    let element = match element {
        0 => None,
        code => Some(Element::from_code(code).ok_or(bad("element", code))?),
    };
    let operation = match operation {
        0 => None,
        code => Some(Operation::from_code(code).ok_or(bad("operation", code))?),
    };
    let short = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| u64::from(short(at)) | u64::from(short(at + 4)) << 32;
    Ok(Header {
        kind,
        flags: PacketFlags(flags),
        element,
        operation,
        window: short(4),
        tag: short(8),
        offset: long(16).cast_signed(),
        layout: long(24),
        count: long(32),
        extra: long(40),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put() -> Header {
        Header {
            flags: PacketFlags::LAST.with(PacketFlags::FENCE),
            element: Some(Element::F64),
            operation: Some(Operation::Sum),
            tag: 7,
            offset: -8,
            layout: 1 << 40,
            count: 3,
            extra: u64::MAX,
            ..Header::new(PacketKind::Accumulate, 5)
        }
    }

    #[test]
    fn a_header_survives_the_journey() {
        let mut bytes = put().encode(3).to_vec();
        bytes.extend_from_slice(b"abc");
        let packet = WirePacket::parse(&bytes).expect("well formed");
        assert_eq!((packet.header, packet.payload), (put(), &b"abc"[..]));
    }

    #[test]
    fn a_packet_cut_short_or_with_unknown_codes_is_refused() {
        let bytes = put().encode(3);
        assert!(matches!(WirePacket::parse(&bytes), Err(BadPacket::Length { wanted: 51, .. })));
        assert!(matches!(WirePacket::parse(&bytes[..20]), Err(BadPacket::Length { wanted: HEADER, .. })));
        for (at, value) in [(0, 0), (0, 99), (1, 128), (2, 27), (3, 15)] {
            let mut wrong = put().encode(0);
            wrong[at] = value;
            assert!(matches!(WirePacket::parse(&wrong), Err(BadPacket::Code { .. })), "{at}: {value}");
        }
        assert!(matches!(WirePacket::parse(&put().encode(MAX_PAYLOAD + 1)), Err(BadPacket::TooLong(_))));
    }

    #[test]
    fn the_members_of_a_batch_come_out_in_order_and_none_is_a_batch() {
        let mut payload = Vec::new();
        for text in ["a", "", "twelve bytes"] {
            payload.extend_from_slice(&put().encode(text.len()));
            payload.extend_from_slice(text.as_bytes());
            payload.resize(payload.len().next_multiple_of(8), 0);
        }
        let batch = WirePacket { header: Header::new(PacketKind::Batch, 5), payload: &payload };
        let texts: Vec<_> = batch.members().map(|one| one.expect("well formed").payload).collect();
        assert_eq!(texts, [&b"a"[..], b"", b"twelve bytes"]);
        let nested = Header::new(PacketKind::Batch, 5).encode(0);
        let batch = WirePacket { header: batch.header, payload: &nested };
        assert!(batch.members().next().is_some_and(|one| one.is_err()));
    }
}
