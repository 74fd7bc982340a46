//! Times of a trace, exactly: decimal seconds in, decimal seconds out.
//!
//! A trace is computed in ticks of `1 / (rate * 10^places)` of a second. Every arrival and every transmission
//! is a whole number of ticks, so nothing is rounded before it is printed.

use std::fmt;
use unisono_time::Instant;

/// A decimal number of seconds, with the digits that were written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decimal {
    digits: u128,
    places: u32,
}

/// The most decimal places of an input: picoseconds.
pub(crate) const MAX_PLACES: u32 = 12;
/// The most decimal places of an output; a longer number is rounded.
const WRITTEN_PLACES: usize = 18;

impl Decimal {
    /// Reads `12`, `0.0006` and the like.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let sound = !whole.is_empty()
            && !text.ends_with('.')
            && [whole, part].iter().all(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        let part = part.trim_end_matches('0');
        let places = u32::try_from(part.len()).ok().filter(|places| *places <= MAX_PLACES && sound)?;
        if whole.len() > 9 {
            return None; // more than thirty years
        }
        Some(Self { digits: [whole, part].concat().parse().ok()?, places })
    }

    pub(crate) fn places(self) -> u32 {
        self.places
    }

    /// Returns the number in units of `10^-places` seconds, rounded down if it has more places.
    pub(crate) fn scaled(self, places: u32) -> u128 {
        if places >= self.places {
            self.digits * 10_u128.pow(places - self.places)
        } else {
            self.digits / 10_u128.pow(self.places - places)
        }
    }
}

/// A moment of a trace in ticks, and the number of ticks in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seconds {
    pub(crate) ticks: u128,
    pub(crate) ticks_per_second: u128,
}

impl Seconds {
    /// Returns the moment in whole nanoseconds, rounded down.
    pub(crate) fn instant(self) -> Instant {
        let (whole, rest) = (self.ticks / self.ticks_per_second, self.ticks % self.ticks_per_second);
        let nanos = whole * 1_000_000_000 + rest * 1_000_000_000 / self.ticks_per_second;
        u64::try_from(nanos).map_or(Instant::NEVER, Instant::from_nanos)
    }

    pub fn to_f64(self) -> f64 {
        self.ticks as f64 / self.ticks_per_second as f64
    }
}

/// Writes a decimal number with 1 to 18 places.
impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut whole, mut left) = (self.ticks / self.ticks_per_second, self.ticks % self.ticks_per_second);
        let mut digits = Vec::with_capacity(WRITTEN_PLACES);
        while left > 0 && digits.len() < WRITTEN_PLACES {
            // fits into 128 bits: the rest is less than the ticks of a second, and they are below 10^27
            left *= 10;
            digits.push(u8::try_from(left / self.ticks_per_second).expect("one digit"));
            left %= self.ticks_per_second;
        }
        if left * 2 >= self.ticks_per_second {
            let mut carry = true;
            for digit in digits.iter_mut().rev() {
                if carry {
                    carry = *digit == 9;
                    *digit = if carry { 0 } else { *digit + 1 };
                }
            }
            whole += u128::from(carry);
        }
        while digits.last() == Some(&0) {
            digits.pop();
        }
        write!(f, "{whole}.")?;
        if digits.is_empty() {
            digits.push(0);
        }
        digits.iter().try_for_each(|digit| write!(f, "{digit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_seconds_are_read_exactly_or_not_at_all() {
        let read = |text| Decimal::parse(text).map(|read| (read.digits, read.places));
        assert_eq!(read("0.0006"), Some((6, 4)));
        assert_eq!(read("12"), Some((12, 0)));
        assert_eq!(read("1.500"), Some((15, 1)));
        for text in ["", ".5", "5.", "-1", "1e-3", "0.0000000000001", "1 ", "NaN", "9999999999"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn moments_are_written_with_as_many_places_as_they_need() {
        let write = |ticks, ticks_per_second| Seconds { ticks, ticks_per_second }.to_string();
        assert_eq!(write(0, 7), "0.0");
        assert_eq!(write(12, 100_000), "0.00012");
        assert_eq!(write(1, 3), "0.333333333333333333");
        assert_eq!(write(2, 3), "0.666666666666666667");
        assert_eq!(write(3_000_000_000_000_000_000_000 - 1, 3_000_000_000_000_000_000_000), "1.0");
    }
}
