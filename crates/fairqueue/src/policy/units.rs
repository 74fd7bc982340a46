//! Reads lengths of queues and durations, with their units.

use crate::rate::measured;
use unisono_time::Duration;

/// The greatest length of a queue in a policy, in bytes.
const MAX_BYTES: u128 = 1 << 40;

/// Reads a number of bytes with its unit.
pub(super) fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, u128); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
    measured(text, &UNITS).filter(|bytes| *bytes <= MAX_BYTES).and_then(|bytes| u64::try_from(bytes).ok())
}

/// Reads a duration with its unit; at most a thousand seconds.
pub(super) fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u128); 3] = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    measured(text, &UNITS)
        .filter(|nanos| *nanos <= 1_000_000_000_000)
        .and_then(|nanos| u64::try_from(nanos).ok().map(Duration::from_nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("64KiB"), Some(65_536));
        assert_eq!(bytes("1.5MiB"), Some(1_572_864));
        assert_eq!(bytes("1514B"), Some(1514));
        assert_eq!(bytes("0B"), Some(0));
        for text in ["64", "64kB", "64 kib", "-1B", "99999999999GiB"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }
}
