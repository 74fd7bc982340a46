//! Messages: nested attributes in requests, acknowledgments in answers.
//!
//! Every received length is checked against the received bytes: the kernel is trusted, but an error of this
//! parser must not read beyond them. Reference: netlink(7), include/uapi/linux/netlink.h.

const HEADER: usize = 16;
const REQUEST: u16 = 0x1;
/// The flags of a request for a whole table.
pub(super) const TABLE: u16 = 0x300;
const ACKNOWLEDGE: u16 = 0x4;
/// The flags of a request to make what must not exist yet.
pub(super) const CREATE_NEW: u16 = 0x400 | 0x200;
const NESTED: u16 = 0x8000;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The flag of an entry whose table changed while it was read.
const INTERRUPTED: u16 = 0x10;
/// The flag of an acknowledgment that does not repeat the original message; attributes follow.
const CAPPED: u16 = 0x100;
const HAS_ATTRIBUTES: u16 = 0x200;
const EXPLANATION: u16 = 1;

/// A request, without the header that the socket puts before it.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until a socket sends it"]
pub struct NetlinkRequest {
    what: String,
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl NetlinkRequest {
    /// Makes a request of a kind, with a fixed structure first; `what` describes it in errors.
    pub(crate) fn new(what: String, kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut request = Self { what, kind, flags, body: fixed.to_vec() };
        request.pad();
        request
    }

    pub(super) fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(4 + value.len()).expect("short because we make names and numbers alone");
        self.body.extend(length.to_ne_bytes());
        self.body.extend(kind.to_ne_bytes());
        self.body.extend(value);
        self.pad();
        self
    }

    /// Appends a text with its terminating zero.
    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that contains the attributes that `fill` appends.
    pub(crate) fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.body.len();
        self.attribute(kind | NESTED, &[]);
        fill(self);
        let length = u16::try_from(self.body.len() - start).expect("short for the same reason");
        self.body[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Appends bytes without an attribute header, such as a structure inside an attribute.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.body.extend(bytes);
        self.pad();
        self
    }

    fn pad(&mut self) {
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// Returns the length of the request with its header.
    pub(super) fn len(&self) -> usize {
        HEADER + self.body.len()
    }

    /// Appends the encoded request. Only the last request of a batch asks for an answer; errors arrive
    /// anyway.
    pub(crate) fn write(&self, sequence: u32, last: bool, bytes: &mut Vec<u8>) {
        let length = u32::try_from(self.len()).expect("short for the same reason");
        let flags = self.flags | REQUEST | if last { ACKNOWLEDGE } else { 0 };
        bytes.extend(length.to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]); // the kernel knows the sender
        bytes.extend(&self.body);
    }
}

/// The kernel's answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelAnswer {
    pub sequence: u32,
    /// The error number, or 0 for success.
    pub errno: i32,
    /// The kernel's text about the error, if it sent one.
    pub explanation: Option<String>,
}

/// A received message.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// Returns the messages among the received bytes of a socket; an invalid length ends the iteration.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = bytes.get(..HEADER)?;
        let length = usize::try_from(word(header, 0)).unwrap_or(usize::MAX);
        let body = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind: half(header, 4), flags: half(header, 6), sequence: word(header, 8), body })
    })
}

/// Returns the acknowledgments among the received bytes of a netlink socket; skips other messages.
pub fn answers(bytes: &[u8]) -> impl Iterator<Item = KernelAnswer> {
    messages(bytes).filter(|message| message.kind == ERROR && message.body.len() >= 4).map(
        |Message { flags, sequence, body, .. }| {
            let errno = i32::from_ne_bytes(word(body, 0).to_ne_bytes()).wrapping_neg();
            KernelAnswer { sequence, errno, explanation: explanation(body, flags) }
        },
    )
}

/// Returns the notices among the received bytes of a socket: each with its kind, without its header.
pub(super) fn notices(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    messages(bytes).map(|message| (message.kind, message.body))
}

/// A message of a table, without its header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    body: Vec<u8>,
    fixed: usize,
}

impl Entry {
    /// Returns a word of the fixed structure at its beginning.
    pub(super) fn word(&self, at: usize) -> u32 {
        self.body.get(at..at + 4).map_or(0, |bytes| word(bytes, 0))
    }

    pub(super) fn attribute(&self, kind: u16) -> Option<&[u8]> {
        attribute(self.body.get(self.fixed..)?, kind)
    }
}

/// Returns the first attribute of a kind.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// Iterates over consecutive attributes; an invalid length ends the iteration.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(half(rest.get(..4)?, 0));
        let (kind, value) = (half(rest, 2) & !NESTED, rest.get(4..length)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns a number in an attribute: four bytes, or eight.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    match value.len() {
        4 => Some(u64::from(word(value, 0))),
        8 => Some(u64::from_ne_bytes(value.try_into().ok()?)),
        _ => None,
    }
}

/// Returns a text in an attribute, without its zero.
pub(crate) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}

/// A part of a table, as its reader has to handle it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Entry(Entry),
    /// The end of the table, or an error instead of it: the error's number, 0 for none.
    End(i32),
    /// The table changed while it was read: read it again.
    Changed,
}

/// Returns the parts of a table among the received bytes of a socket; `fixed` is the length of the structure
/// at the beginning of each entry.
pub(super) fn pieces(bytes: &[u8], sequence: u32, fixed: usize) -> impl Iterator<Item = Piece> {
    messages(bytes).filter(move |message| message.sequence == sequence).map(
        move |Message { kind, flags, body, .. }| match kind {
            ERROR | DONE => Piece::End(body.get(..4).map_or(0, |body| (word(body, 0) as i32).wrapping_neg())),
            _ if flags & INTERRUPTED != 0 => Piece::Changed,
            _ => Piece::Entry(Entry { body: body.to_owned(), fixed }),
        },
    )
}

/// Returns the kernel's text about an error. It follows the error number and the request, of which the kernel
/// repeats only the header or everything.
fn explanation(message: &[u8], flags: u16) -> Option<String> {
    if flags & HAS_ATTRIBUTES == 0 {
        return None;
    }
    let original = message.get(4..4 + HEADER)?;
    let repeated = if flags & CAPPED != 0 { HEADER } else { usize::try_from(word(original, 0)).ok()? };
    let rest = message.get(4_usize.checked_add(repeated)?.checked_next_multiple_of(4)?..)?;
    attribute(rest, EXPLANATION).map(text)
}

/// Reads four bytes of a slice that is known to hold them.
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acknowledgement(sequence: u32, errno: i32, text: Option<&str>) -> Vec<u8> {
        let flags = if text.is_some() { CAPPED | HAS_ATTRIBUTES } else { 0 };
        let mut answer = NetlinkRequest::new(String::new(), ERROR, flags, &(-errno).to_ne_bytes());
        answer.raw(&[7; HEADER]); // the request's own header
        if let Some(text) = text {
            answer.attribute(9, &[1, 2, 3]).text(EXPLANATION, text);
        }
        let mut bytes = Vec::new();
        answer.write(sequence, false, &mut bytes);
        let flags = flags.to_ne_bytes();
        bytes[6..8].copy_from_slice(&flags);
        bytes
    }

    #[test]
    fn a_request_carries_its_own_lengths_and_is_padded() {
        let mut request = NetlinkRequest::new("it".to_owned(), 16, 0x600, &[0; 16]);
        request.text(3, "abcd").nest(18, |inner| {
            inner.text(1, "veth").nest(2, |innermost| {
                innermost.attribute(1, &[5; 3]);
            });
        });
        let mut bytes = Vec::new();
        request.write(7, true, &mut bytes);
        assert_eq!(bytes.len(), request.len());
        assert_eq!(word(&bytes, 0) as usize, bytes.len());
        assert_eq!(half(&bytes, 6), 0x600 | REQUEST | ACKNOWLEDGE);
        assert_eq!(half(&bytes, 32), 9, "four bytes of head, four of text, its zero");
        let nest = 32 + 12;
        assert_eq!(
            usize::from(half(&bytes, nest)),
            bytes.len() - nest,
            "the outer attribute ends the message"
        );
    }

    #[test]
    fn answers_come_with_the_kernels_words() {
        let both =
            [acknowledgement(3, 0, None), acknowledgement(4, libc::EEXIST, Some("name taken"))].concat();
        let read: Vec<KernelAnswer> = answers(&both).collect();
        assert_eq!(read[0], KernelAnswer { sequence: 3, errno: 0, explanation: None });
        let explanation = Some("name taken".to_owned());
        assert_eq!(read[1], KernelAnswer { sequence: 4, errno: libc::EEXIST, explanation });
        assert_eq!(read.len(), 2);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic_or_go_on_for_ever(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(answers(&bytes).count() <= bytes.len());
        }

        #[test]
        fn no_bytes_make_the_reader_of_notices_panic_or_go_on_for_ever(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            prop_assert!(notices(&bytes).map(|(_, body)| body.len() + HEADER).sum::<usize>() <= bytes.len());
        }

        #[test]
        fn no_bytes_make_the_reader_of_tables_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for piece in pieces(&bytes, 0, 20) {
                if let Piece::Entry(entry) = piece {
                    let _ = (entry.word(4), entry.attribute(1).map(text), entry.attribute(2).and_then(number));
                }
            }
        }

        #[test]
        fn an_answer_cut_or_changed_anywhere_is_read_or_passed_over(
            at in 0_usize..100, value in any::<u8>(), cut in 0_usize..100,
        ) {
            let mut bytes = acknowledgement(4, libc::EEXIST, Some("name taken"));
            let length = bytes.len();
            bytes[at % length] = value;
            bytes.truncate(length - cut % length);
            prop_assert!(answers(&bytes).count() <= 2);
        }
    }
}
