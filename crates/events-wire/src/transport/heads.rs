//! Compresses the heads of frames in one direction of a stream, as RFC 1144 does for TCP: both ends remember
//! a head, and the next one is sent as its differences from that head. The heads of the events from one
//! supplier to one consumer differ little. Without compression, an event of 1 KB takes 60 bytes more, which
//! are 6 % of the capacity of a link.
//!
//! ```text
//!   length    LEB128: the number of bytes that follow
//!   form      1000 0000   head and payload follow unchanged
//!             1hhh hhhh   a head of h bytes follows; both ends remember it
//!             0mmm mmmm   a head as long as the one remembered; bit i of m: word i (8 bytes) differs
//!   changes   for each such word, the difference as LEB128, its sign in the lowest bit
//!   rest      the bytes of the head after its first seven words
//!   payload
//! ```
//! A head that is sent as differences is remembered, too. Words are little-endian; the last one is padded
//! with zeros. Heads of frames without a payload are not remembered: remembering the heads of answers between
//! events would cost more than it saves.

/// Maximum length of a head that can be remembered: its length is seven bits of a form.
const MAX_HEAD: usize = 127;
/// Number of words whose differences a form can encode.
const WORDS: usize = 7;
const WORD: usize = 8;
const AS_IT_IS: u8 = 0x80;
/// Maximum bytes of a number in LEB128.
const MAX_LEB_BYTES: usize = 10;

/// The number of free bytes that a caller leaves before a payload, so that the decompressed head fits there.
pub(super) const HEADROOM: usize = MAX_HEAD + 1;

/// The state of one end for one direction.
#[derive(Debug)]
pub(super) struct HeadHistory {
    /// The remembered head, padded with zeros.
    last: [u8; MAX_HEAD],
    length: usize,
    /// The form and the differences of the head that is being written.
    changes: Vec<u8>,
}

impl HeadHistory {
    pub(super) fn new() -> Self {
        Self { last: [0; MAX_HEAD], length: 0, changes: Vec::with_capacity(MAX_HEAD + 1) }
    }

    /// Appends the part of a frame before its payload.
    pub(super) fn write(&mut self, head: &[u8], payload: usize, into: &mut Vec<u8>) {
        let front = if payload == 0 || head.is_empty() || head.len() > MAX_HEAD {
            &[AS_IT_IS][..]
        } else if self.compare(head) {
            self.remember(head);
            put_leb((self.changes.len() + payload) as u64, into);
            into.extend_from_slice(&self.changes);
            return;
        } else {
            self.remember(head);
            self.changes.clear();
            self.changes.push(AS_IT_IS | head.len() as u8);
            &self.changes
        };
        put_leb((front.len() + head.len() + payload) as u64, into);
        into.extend_from_slice(front);
        into.extend_from_slice(head);
    }

    /// Reads the head in `frame`, which begins with its form. Returns the number of bytes before the payload,
    /// and the head. `None` means that the head is in the frame itself, from the second byte on.
    pub(super) fn read(&mut self, frame: &[u8]) -> Result<(usize, Option<&[u8]>), &'static str> {
        let (&form, rest) = frame.split_first().ok_or("a frame of no bytes")?;
        if form == AS_IT_IS {
            return Ok((1, None));
        }
        if form & AS_IT_IS != 0 {
            let head = rest.get(..usize::from(form & !AS_IT_IS)).ok_or("a head longer than its frame")?;
            self.remember(head);
            return Ok((1 + head.len(), None));
        }
        if self.length == 0 {
            return Err("changes of a head that was never sent");
        }
        let mut left = rest;
        let mut differ = form;
        while differ != 0 {
            let number = differ.trailing_zeros() as usize;
            differ &= differ - 1;
            let difference = take_leb(&mut left).ok_or("a change that does not end")?;
            let place = self.length.min(number * WORD)..self.length.min((number + 1) * WORD);
            if place.is_empty() {
                return Err("a change behind the end of the head");
            }
            let word = word(&self.last, number).wrapping_add(signed(difference));
            let bytes = place.len();
            self.last[place].copy_from_slice(&word.to_le_bytes()[..bytes]);
        }
        let behind = self.length.min(WORDS * WORD)..self.length;
        let end = left.split_at_checked(behind.len()).ok_or("a head longer than its frame")?.0;
        self.last[behind].copy_from_slice(end);
        Ok((frame.len() - left.len() + end.len(), Some(&self.last[..self.length])))
    }

    /// Encodes the differences between the remembered head and `head`. Returns whether they are shorter. All
    /// words are compared first, in arrays of fixed length, because most words do not change.
    fn compare(&mut self, head: &[u8]) -> bool {
        if head.len() != self.length {
            return false;
        }
        let mut words = [0; WORDS * WORD];
        let (front, behind) = head.split_at(head.len().min(WORDS * WORD));
        words[..front.len()].copy_from_slice(front);
        let mut differences = [0; WORDS];
        for (number, difference) in differences.iter_mut().enumerate() {
            *difference = word(&words, number).wrapping_sub(word(&self.last, number));
        }
        self.changes.clear();
        self.changes.push(0);
        let mut form = 0;
        for (number, difference) in differences.into_iter().enumerate().filter(|(_, it)| *it != 0) {
            form |= 1 << number;
            put_leb(unsigned(difference), &mut self.changes);
        }
        self.changes[0] = form;
        self.changes.extend_from_slice(behind);
        self.changes.len() <= head.len()
    }

    fn remember(&mut self, head: &[u8]) {
        self.last[..head.len()].copy_from_slice(head);
        if head.len() < self.length {
            self.last[head.len()..self.length].fill(0);
        }
        self.length = head.len();
    }
}

/// Returns a word of a head that is padded with zeros.
fn word<const LENGTH: usize>(head: &[u8; LENGTH], number: usize) -> u64 {
    head[number * WORD..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Encodes a difference by zigzag: the sign is in the lowest bit, so that small differences of either sign
/// are short.
fn unsigned(difference: u64) -> u64 {
    (difference << 1) ^ (((difference as i64) >> 63) as u64)
}

fn signed(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

fn put_leb(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn take_leb(bytes: &mut &[u8]) -> Option<u64> {
    let length = bytes.iter().take(MAX_LEB_BYTES).position(|byte| byte & 0x80 == 0)? + 1;
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    Some(taken.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
}

/// Returns the start and the end of a frame, or `None` until its length has come. A length has at most five
/// bytes.
pub(super) fn span(bytes: &[u8]) -> Result<Option<(usize, usize)>, &'static str> {
    let mut left = &bytes[..bytes.len().min(5)];
    match take_leb(&mut left) {
        Some(length) => {
            let begin = bytes.len().min(5) - left.len();
            Ok(Some((begin, begin + length as usize)))
        }
        None if bytes.len() < 5 => Ok(None),
        None => Err("a length that does not end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes a frame with one end's history, and decodes it with the other's.
    fn cross(from: &mut HeadHistory, to: &mut HeadHistory, head: &[u8], payload: &[u8]) -> (usize, Vec<u8>) {
        let mut bytes = Vec::new();
        from.write(head, payload.len(), &mut bytes);
        bytes.extend(payload);
        let (begin, end) = span(&bytes).expect("a length").expect("all of it");
        assert_eq!(end, bytes.len());
        let frame = &bytes[begin..];
        let (front, head) = to.read(frame).expect("it is sound");
        let arrived = match head {
            None => frame[1..].to_vec(),
            Some(head) => [head, &frame[front..]].concat(),
        };
        (bytes.len(), arrived)
    }

    proptest! {
        #[test]
        fn heads_arrive_as_they_were_sent(frames in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..140), 0..12_usize, any::<u64>(), 0..3_usize), 1..40,
        )) {
            let (mut from, mut to) = (HeadHistory::new(), HeadHistory::new());
            let mut head = Vec::new();
            for (new, bytes, place, change, payload) in frames {
                if new {
                    head = bytes;
                } else if let Some(word) = head.get_mut(place * WORD..(place + 1) * WORD) {
                    word.copy_from_slice(&change.to_le_bytes());
                }
                let (length, arrived) = cross(&mut from, &mut to, &head, &vec![7; payload]);
                prop_assert_eq!(&arrived, &[&head[..], &vec![7; payload]].concat());
                prop_assert!(length <= head.len() + payload + 3, "never longer than three bytes more");
            }
        }

        #[test]
        fn what_was_not_written_here_is_refused_or_read(frames in prop::collection::vec(
            prop::collection::vec(any::<u8>(), 0..150), 1..20,
        )) {
            let mut to = HeadHistory::new();
            for frame in frames {
                if let Ok((front, head)) = to.read(&frame) {
                    prop_assert!(front <= frame.len() && head.is_none_or(|head| head.len() < HEADROOM));
                }
            }
        }
    }

    #[test]
    fn the_next_event_of_a_supplier_needs_eight_bytes() {
        let (mut from, mut to) = (HeadHistory::new(), HeadHistory::new());
        // number and age of an event change, as in DELIVER over TCP
        let head = |number: u64, age: u64| {
            let mut head = vec![3; 52];
            head[16..24].copy_from_slice(&number.to_le_bytes());
            head[32..40].copy_from_slice(&age.to_le_bytes());
            head
        };
        let payload = [1; 1024];
        let (first, _) = cross(&mut from, &mut to, &head(126, 1_000_000), &payload);
        assert_eq!(first, 1024 + 52 + 3);
        let (second, arrived) = cross(&mut from, &mut to, &head(127, 1_400_000), &payload);
        assert_eq!(second, 1024 + 2 + 1 + 1 + 3);
        assert_eq!(arrived[..52], head(127, 1_400_000));
    }

    #[test]
    fn hostile_lengths_and_changes_are_refused() {
        assert_eq!(span(&[0xff; 4]), Ok(None));
        assert_eq!(span(&[0xff; 5]), Err("a length that does not end"));
        let mut to = HeadHistory::new();
        assert_eq!(to.read(&[]), Err("a frame of no bytes"));
        assert_eq!(to.read(&[1, 2]), Err("changes of a head that was never sent"));
        assert_eq!(to.read(&[0x85, 1, 2]), Err("a head longer than its frame"));
        assert_eq!(to.read(&[0x83, 1, 2, 3]), Ok((4, None)));
        assert_eq!(to.read(&[0b10, 2]), Err("a change behind the end of the head"));
        assert_eq!(to.read(&[1, 0xff, 0xff]), Err("a change that does not end"));
    }
}
