//! Limits of a connection: lines of bounded length, and a bounded rate of requests per user.
//!
//! Requests above the rate are not refused but read later, so that the daemon has time for gangs and for
//! other users. Time is an argument. Cost: a few additions per line.

use super::request::MAX_LINE;
use std::collections::BTreeMap;
use unisono_linux::clock::{Duration, Instant};

/// The maximum numbers of connections: of all users together, and of one user other than root.
pub const MAX_PEERS: usize = 64;
pub const MAX_OF_USER: usize = 8;
/// The number of requests that a user may send at once.
const AT_ONCE: u32 = 20;
/// Time after which a user may send one more request. A request takes up to a millisecond, for reads of
/// `/proc`, so a user takes at most a twentieth of a core.
const EVERY: Duration = Duration::from_millis(20);

/// Splits the bytes of a connection into lines.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
}

/// The client sent more bytes without a line end than a request may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl LineBuffer {
    /// Appends bytes. Fails once a line is too long for a request.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.bytes.extend_from_slice(bytes);
        let is_line = self.bytes.iter().take(MAX_LINE + 1).any(|byte| *byte == b'\n');
        if is_line || self.bytes.len() <= MAX_LINE { Ok(()) } else { Err(TooLong) }
    }

    /// Removes and returns the next complete line, without its line end.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    pub fn has_line(&self) -> bool {
        self.bytes.contains(&b'\n')
    }
}

/// A token bucket per user: the number of requests that the user may still send.
#[derive(Debug, Default)]
pub struct Floodgate {
    /// By user: the remaining tokens, and the time of the last refill.
    users: BTreeMap<u32, (u32, Instant)>,
}

impl Floodgate {
    /// Returns whether a request of this user may be carried out now; if so, it takes a token.
    pub fn admits(&mut self, user: u32, now: Instant) -> bool {
        let (hand, since) = self.users.entry(user).or_insert((AT_ONCE, now));
        let more = refills(*since, now);
        if more > 0 {
            *hand = u32::try_from(more).unwrap_or(AT_ONCE).saturating_add(*hand).min(AT_ONCE);
            *since += EVERY * more;
        }
        let admits = *hand > 0;
        *hand -= u32::from(admits);
        admits
    }

    /// Removes users whose bucket is full again.
    pub fn forget(&mut self, now: Instant) {
        self.users.retain(|_, (hand, since)| refills(*since, now) + u64::from(*hand) < u64::from(AT_ONCE));
    }
}

fn refills(since: Instant, now: Instant) -> u64 {
    (now - since).as_nanos() / EVERY.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_without_an_end_is_given_up_and_many_lines_are_not() {
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.push(&vec![b'x'; MAX_LINE]), Ok(()));
        assert_eq!(buffer.push(b"x"), Err(TooLong));
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.push(&b"{}\n".repeat(MAX_LINE)), Ok(()));
        assert_eq!(std::iter::from_fn(|| buffer.next_line()).count(), MAX_LINE);
        assert!(!buffer.has_line());
    }

    #[test]
    fn one_user_who_floods_does_not_keep_another_out() {
        let mut gate = Floodgate::default();
        let admitted = (0..10_000).filter(|i| gate.admits(5, Instant::from_millis(*i))).count();
        // 20 in the burst, and one per 20 ms of ten seconds
        assert!((515..=520).contains(&admitted), "{admitted}");
        assert!(gate.admits(6, Instant::from_secs(10)));
        gate.forget(Instant::from_millis(10_100));
        assert_eq!(gate.users.len(), 1, "the one who flooded has to wait longer");
        gate.forget(Instant::from_secs(20));
        assert!(gate.users.is_empty());
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_are_cut(
            lines in proptest::collection::vec("[a-z]{0,9}", 0..9), cut in 1usize..7
        ) {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut buffer = LineBuffer::default();
            let mut read = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                prop_assert!(buffer.push(piece).is_ok());
                read.extend(std::iter::from_fn(|| buffer.next_line()));
            }
            let read: Vec<String> = read.into_iter().map(|l| String::from_utf8(l).expect("letters")).collect();
            prop_assert_eq!(read, lines);
        }
    }
}
