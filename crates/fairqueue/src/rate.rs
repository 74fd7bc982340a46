//! The rate of a link, and how it is written.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// The rate of a link or a class; a positive number of bits a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rate(NonZeroU64);

/// The highest rate, in bits a second.
const MAX_RATE: u128 = 1_000_000_000_000_000;
impl Rate {
    /// Returns a rate; `bits_per_second` must be from 1 to 10^15.
    pub fn new(bits_per_second: u64) -> Option<Self> {
        NonZeroU64::new(bits_per_second).filter(|rate| u128::from(rate.get()) <= MAX_RATE).map(Self)
    }

    pub fn bits_per_second(self) -> u64 {
        self.0.get()
    }

    pub fn bytes_per_second(self) -> f64 {
        self.0.get() as f64 / 8.0
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// The text has another form, or is not a positive number.
    #[error(
        "`{text}` is no rate; write a positive number and its unit: bit, kbit, mbit or gbit, as in \"100mbit\""
    )]
    Form { text: String },
    /// The rate is below one byte a second; the kernel's classes count whole bytes a second.
    #[error("`{text}` is less than a byte a second; write at least \"{MIN_RATE}bit\"")]
    TooLow { text: String },
}

/// The lowest rate that can be written, in bits a second.
const MIN_RATE: u64 = 8;

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        const UNITS: [(&str, u128); 4] =
            [("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000), ("bit", 1)];
        let rate = measured(text, &UNITS).filter(|rate| *rate <= MAX_RATE);
        let rate = rate.and_then(|rate| Self::new(u64::try_from(rate).ok()?));
        match rate {
            None => Err(RateError::Form { text: text.to_owned() }),
            Some(rate) if rate.bits_per_second() < MIN_RATE => {
                Err(RateError::TooLow { text: text.to_owned() })
            }
            Some(rate) => Ok(rate),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get();
        for (unit, of) in [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)] {
            if bits >= of {
                return write!(f, "{}{unit}", bits as f64 / of as f64);
            }
        }
        write!(f, "{bits}bit")
    }
}

/// Reads a decimal number and its unit, which is one of `units` (with the shortest name last). Returns the
/// number in base units, rounded down.
pub(crate) fn measured(text: &str, units: &[(&str, u128)]) -> Option<u128> {
    let (number, of) = units.iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?, of)))?;
    let number = number.trim_end();
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number =
        |digits: &str| (1..=18).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return None;
    }
    let places = 10_u128.pow(u32::try_from(part.len()).ok()?);
    let (whole, part): (u128, u128) = (whole.parse().ok()?, part.parse().ok()?);
    Some(whole * of + part * of / places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units_and_are_positive() {
        let bits = |text: &str| text.parse::<Rate>().map(Rate::bits_per_second);
        assert_eq!(bits("100mbit"), Ok(100_000_000));
        assert_eq!(bits("2.5 gbit"), Ok(2_500_000_000));
        assert_eq!(bits("64kbit"), Ok(64_000));
        assert_eq!(bits("9bit"), Ok(9));
        let low = "1bit".parse::<Rate>().expect_err("less than a byte").to_string();
        assert_eq!(low, "`1bit` is less than a byte a second; write at least \"8bit\"");
        for text in [
            "",
            "100",
            "mbit",
            "0mbit",
            "-1mbit",
            "1e3mbit",
            ".5mbit",
            "1.mbit",
            "0.1bit",
            "1Mbit",
            "9999999gbit",
        ] {
            assert!(bits(text).is_err(), "{text}");
        }
        for text in ["100mbit", "2.5gbit", "64kbit", "9bit"] {
            assert_eq!(text.parse::<Rate>().expect("it is a rate").to_string(), text);
        }
    }
}
