//! The header of a timed message (its *stamp*): its number, and the time when it was sent.

use unisono_linux::clock::Instant;

/// The number of bytes of a stamp.
pub(super) const STAMP: usize = 16;

/// Writes the number and the send time to the start of a message.
pub(super) fn stamp(message: &mut [u8], number: u64, sent: Instant) {
    message[..8].copy_from_slice(&number.to_le_bytes());
    message[8..STAMP].copy_from_slice(&sent.as_nanos().to_le_bytes());
}

/// Returns the number and the send time, if the message is long enough for them.
pub(super) fn stamped(message: &[u8]) -> Option<(u64, Instant)> {
    let (number, rest) = message.split_first_chunk()?;
    let (sent, _) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), Instant::from_nanos(u64::from_le_bytes(*sent))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_when_it_was_sent() {
        let mut message = [0; STAMP];
        stamp(&mut message, 3, Instant::from_nanos(77));
        assert_eq!(stamped(&message), Some((3, Instant::from_nanos(77))));
        assert_eq!(stamped(&[0; 15]), None);
    }
}
