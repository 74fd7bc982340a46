//! The network block device protocol: the requests of a client and the replies to them, after the handshake.
//!
//! ```text
//!   client: magic, flags, type, cookie, offset, length [, the bytes of a write]
//!   server: magic, error, cookie [, the bytes of a read]        in any order
//! ```
//! Numbers are big endian. The server sends simple replies only; structured replies would add holes in the
//! answer of a read. The functions are pure, and each request is checked against the export before it is
//! scheduled. Reference: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.

pub use unisono_linux::direct::FileAccess;

/// The longest read or write: the length that the reference allows to clients that do not ask for the limit.
pub const MAX_REQUEST: u32 = 32 << 20;
pub const REQUEST_LENGTH: usize = 28;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

const FLAG_FUA: u16 = 1 << 0;
const FLAG_NO_HOLE: u16 = 1 << 1;

/// The reason why a request was refused or failed. The values are the numbers of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum NbdError {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
}

/// The facts about an export that decide whether a request is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportFacts {
    /// The length of the disk in bytes.
    pub size: u64,
    pub access: FileAccess,
}

impl ExportFacts {
    /// Returns the transmission flags, which say which operations a client may use.
    pub fn flags(self) -> u16 {
        const HAS_FLAGS: u16 = 1 << 0;
        const READ_ONLY: u16 = 1 << 1;
        const SEND_FLUSH: u16 = 1 << 2;
        const SEND_FUA: u16 = 1 << 3;
        const SEND_TRIM: u16 = 1 << 5;
        const SEND_WRITE_ZEROES: u16 = 1 << 6;
        // a flush of one connection covers the writes of all connections, because all write into one file
        const CAN_MULTI_CONN: u16 = 1 << 8;
        let by_access = match self.access {
            FileAccess::Read => READ_ONLY,
            FileAccess::Write => SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES,
        };
        HAS_FLAGS | CAN_MULTI_CONN | by_access
    }

    fn contains(self, request: &NbdRequest) -> bool {
        let end = request.offset.checked_add(u64::from(request.length));
        end.is_some_and(|end| end <= self.size)
    }
}

/// A request as it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NbdRequest {
    pub flags: u16,
    pub kind: u16,
    /// The client's identification of the request; the reply carries it, too.
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

/// A checked operation on the range of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskCommand {
    Read,
    Write(WriteDurability),
    Flush,
    Trim(WriteDurability),
    Zero(WriteDurability, ZeroedSpace),
    /// The client leaves; there is no reply.
    Disconnect,
}

/// When the reply to a write may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteDurability {
    /// At once: the next flush makes it durable.
    UntilFlush,
    /// After it is on the disk (FUA).
    OnReply,
}

/// What happens to the disk space of zeroed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroedSpace {
    MayBeHole,
    Kept,
}

impl NbdRequest {
    const READ: u16 = 0;
    const WRITE: u16 = 1;
    const DISCONNECT: u16 = 2;
    const FLUSH: u16 = 3;
    const TRIM: u16 = 4;
    const WRITE_ZEROES: u16 = 6;

    /// Parses a request. Returns `None` if the bytes are no request: the stream is then out of step, and
    /// later requests cannot be found.
    pub fn parse(bytes: &[u8; REQUEST_LENGTH]) -> Option<Self> {
        let (magic, rest) = take::<4>(bytes)?;
        let (flags, rest) = take::<2>(rest)?;
        let (kind, rest) = take::<2>(rest)?;
        let (cookie, rest) = take::<8>(rest)?;
        let (offset, rest) = take::<8>(rest)?;
        let (length, _) = take::<4>(rest)?;
        (u32::from_be_bytes(magic) == REQUEST_MAGIC).then(|| Self {
            flags: u16::from_be_bytes(flags),
            kind: u16::from_be_bytes(kind),
            cookie: u64::from_be_bytes(cookie),
            offset: u64::from_be_bytes(offset),
            length: u32::from_be_bytes(length),
        })
    }

    /// Returns the number of bytes that follow the request in the stream, even if the request is refused.
    pub fn payload(&self) -> u32 {
        if self.kind == Self::WRITE { self.length } else { 0 }
    }

    /// Returns the operation, if its range lies within the export and the export allows it.
    pub fn check(&self, export: ExportFacts) -> Result<DiskCommand, NbdError> {
        let durability =
            if self.flags & FLAG_FUA != 0 { WriteDurability::OnReply } else { WriteDurability::UntilFlush };
        let known_flags = if self.kind == Self::WRITE_ZEROES { FLAG_FUA | FLAG_NO_HOLE } else { FLAG_FUA };
        if self.flags & !known_flags != 0 {
            return Err(NbdError::Invalid);
        }
        let changes = matches!(self.kind, Self::WRITE | Self::TRIM | Self::WRITE_ZEROES);
        if changes && export.access == FileAccess::Read {
            return Err(NbdError::NotPermitted);
        }
        let has_range = changes || self.kind == Self::READ;
        if has_range && !export.contains(self) {
            let grows = matches!(self.kind, Self::WRITE | Self::WRITE_ZEROES);
            return Err(if grows { NbdError::NoSpace } else { NbdError::Invalid });
        }
        match self.kind {
            Self::READ if self.length > MAX_REQUEST => Err(NbdError::Invalid),
            Self::READ => Ok(DiskCommand::Read),
            Self::WRITE => Ok(DiskCommand::Write(durability)),
            Self::DISCONNECT => Ok(DiskCommand::Disconnect),
            Self::FLUSH => Ok(DiskCommand::Flush),
            Self::TRIM => Ok(DiskCommand::Trim(durability)),
            Self::WRITE_ZEROES if self.flags & FLAG_NO_HOLE != 0 => {
                Ok(DiskCommand::Zero(durability, ZeroedSpace::Kept))
            }
            Self::WRITE_ZEROES => Ok(DiskCommand::Zero(durability, ZeroedSpace::MayBeHole)),
            _ => Err(NbdError::Invalid),
        }
    }
}

/// Returns the head of a reply. The bytes of a read follow if there is no error.
pub fn reply_head(cookie: u64, error: Option<NbdError>) -> [u8; 16] {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
    head[4..8].copy_from_slice(&error.map_or(0, |error| error as u32).to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    head
}

/// Splits off the first `N` bytes.
pub(super) fn take<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    bytes.split_first_chunk().map(|(first, rest)| (*first, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXPORT: ExportFacts = ExportFacts { size: 1 << 30, access: FileAccess::Write };

    fn bytes(request: &NbdRequest) -> [u8; REQUEST_LENGTH] {
        let NbdRequest { flags, kind, cookie, offset, length } = *request;
        let mut bytes = Vec::from(REQUEST_MAGIC.to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.try_into().expect("28 bytes")
    }

    fn request(kind: u16, offset: u64, length: u32) -> NbdRequest {
        NbdRequest { flags: 0, kind, cookie: 5, offset, length }
    }

    proptest! {
        #[test]
        fn an_accepted_request_is_within_the_export_and_a_refused_one_changes_nothing(
            flags in 0..20_u16, kind in 0..8_u16, cookie: u64,
            offset in prop_oneof![0..2_u64 << 30, any::<u64>()],
            length in prop_oneof![0..1_u32 << 26, any::<u32>()], is_read_only: bool,
        ) {
            let request = NbdRequest { flags, kind, cookie, offset, length };
            prop_assert_eq!(NbdRequest::parse(&bytes(&request)), Some(request));
            let access = if is_read_only { FileAccess::Read } else { FileAccess::Write };
            let export = ExportFacts { access, ..EXPORT };
            if let Ok(command) = request.check(export) {
                let has_range = !matches!(command, DiskCommand::Flush | DiskCommand::Disconnect);
                prop_assert!(!has_range || u128::from(offset) + u128::from(length) <= u128::from(export.size));
                let changes = matches!(
                    command,
                    DiskCommand::Write(_) | DiskCommand::Trim(_) | DiskCommand::Zero(..)
                );
                prop_assert!(!changes || !is_read_only);
                prop_assert!(command != DiskCommand::Read || length <= MAX_REQUEST);
            }
        }

        #[test]
        fn any_bytes_without_the_magic_number_are_refused(bytes: [u8; REQUEST_LENGTH]) {
            let has_magic = bytes[..4] == REQUEST_MAGIC.to_be_bytes();
            prop_assert_eq!(NbdRequest::parse(&bytes).is_some(), has_magic);
        }
    }

    #[test]
    fn each_refusal_has_the_number_that_the_protocol_gives_it() {
        let end = EXPORT.size;
        for (request, wanted) in [
            (request(NbdRequest::READ, end - 1, 2), NbdError::Invalid),
            (request(NbdRequest::READ, u64::MAX, 2), NbdError::Invalid),
            (request(NbdRequest::WRITE, end - 1, 2), NbdError::NoSpace),
            (request(NbdRequest::WRITE_ZEROES, end, 1), NbdError::NoSpace),
            (request(NbdRequest::TRIM, end, 1), NbdError::Invalid),
            (request(5, 0, 1), NbdError::Invalid), // caching is not announced
            (request(99, 0, 1), NbdError::Invalid),
            (NbdRequest { flags: 4, ..request(NbdRequest::READ, 0, 1) }, NbdError::Invalid), // nor one chunk
            (NbdRequest { flags: 16, ..request(NbdRequest::WRITE_ZEROES, 0, 1) }, NbdError::Invalid),
        ] {
            assert_eq!(request.check(EXPORT), Err(wanted), "{request:?}");
        }
        let read_only = ExportFacts { access: FileAccess::Read, ..EXPORT };
        assert_eq!(request(NbdRequest::TRIM, 0, 1).check(read_only), Err(NbdError::NotPermitted));
        assert_eq!(request(NbdRequest::READ, end - 1, 1).check(read_only), Ok(DiskCommand::Read));
    }

    #[test]
    fn a_reply_carries_the_cookie_and_the_error() {
        let head = reply_head(0x0102_0304_0506_0708, Some(NbdError::Io));
        assert_eq!(head, [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
