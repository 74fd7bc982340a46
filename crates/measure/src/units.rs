//! Durations as people type them (`50us`, `20ms`, `1.5s`, `300ns`, `0`), and numbers of things as people read
//! them (`1 process`, `2 processes`).

use std::fmt;
use std::time::Duration;

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    #[error("{text:?} is not a duration; write a number and a unit, for example 50us, 20ms or 1.5s")]
    Unread { text: String },
    #[error("{text:?} is negative; a duration, also one from now to a deadline, is 0 or longer, as in 5ms")]
    Negative { text: String },
    #[error("{text:?} is too long; the longest duration is {}h", MAX_NANOS / 3600e9)]
    TooLong { text: String },
}

/// The longest duration: 10,000 hours, more than a year. Sums of a few such times fit 64 bits.
const MAX_NANOS: f64 = 10_000.0 * 3600e9;

/// Reads a duration: a decimal number with the unit `ns`, `us`, `ms`, `s`, `min` or `h`; a bare `0` needs no
/// unit. Fails for anything else: negative, not finite, no unit, an unknown unit, or more than 10,000 hours.
pub fn duration(text: &str) -> Result<Duration, BadDuration> {
    let bad = || BadDuration::Unread { text: text.to_owned() };
    let trimmed = text.trim();
    if trimmed == "0" {
        return Ok(Duration::ZERO);
    }
    if let Some(length) = trimmed.strip_prefix('-')
        && length.starts_with(|first: char| first.is_ascii_digit())
        && duration(length).is_ok()
    {
        return Err(BadDuration::Negative { text: text.to_owned() });
    }
    let split = trimmed.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').ok_or_else(bad)?;
    let (number, unit) = trimmed.split_at(split);
    let scale = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(bad()),
    };
    let number = number.trim_end();
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(bad());
    }
    let nanos = number.parse::<f64>().map_err(|_| bad())? * scale;
    if !nanos.is_finite() || nanos > MAX_NANOS {
        return Err(BadDuration::TooLong { text: text.to_owned() });
    }
    Ok(Duration::from_nanos(nanos.round() as u64))
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a size; write a whole number and a unit, for example 64KiB, 256MiB or 1GiB")]
pub struct BadSize {
    text: String,
}

/// Reads a size in bytes: a whole number with the unit `KiB`, `MiB` or `GiB`, or a number of bytes without a
/// unit. Fails for anything else, and for more bytes than 64 bits can count.
pub fn bytes(text: &str) -> Result<u64, BadSize> {
    let bad = || BadSize { text: text.to_owned() };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let scale: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(bad()),
    };
    let number = number.trim_end();
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).ok_or_else(bad)
}

/// Displays a duration in the most readable unit: `0.13 us`, `20 ms`.
#[derive(Clone, Copy, Debug)]
pub struct Readable(pub Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos() as f64;
        let (value, unit) = match ns {
            n if n < 1e3 => (n, "ns"),
            n if n < 1e6 => (n / 1e3, "us"),
            n if n < 1e9 => (n / 1e6, "ms"),
            n => (n / 1e9, "s"),
        };
        let digits = usize::from(value < 100.0) + usize::from(value < 10.0);
        let text = format!("{value:.digits$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        write!(f, "{text} {unit}")
    }
}

/// Formats a number for readers: three significant digits below a thousand, but at most three decimals, and
/// from there on four significant digits, in groups of three digits.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() || magnitude < 100.0 {
        let digits = match magnitude {
            m if m >= 10.0 => 1,
            m if m >= 1.0 => 2,
            _ => 3,
        };
        let text = format!("{value:.digits$}");
        return if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').into()
        } else {
            text
        };
    }
    // of a number with more than four digits only the first four are significant
    let step = 10f64.powf((magnitude.log10().floor() - 3.0).max(0.0));
    let digits = format!("{:.0}", (magnitude / step).round() * step);
    let mut grouped = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(c);
    }
    if value < 0.0 { format!("-{grouped}") } else { grouped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("300ns"), Ok(Duration::from_nanos(300)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn sizes_are_read_with_their_units_and_anything_else_is_refused() {
        let sizes = ["0", "17", "64KiB", "256 MiB", "1GiB"].map(bytes);
        assert_eq!(sizes, [0, 17, 1 << 16, 1 << 28, 1 << 30].map(Ok));
        for text in ["", "MiB", "-1MiB", "1.5GiB", "1MB", "1e3", "99999999999GiB", "18446744073709551616"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "us", "-5us", "5 minutes", "1e3us", "nan us", "9999999999999s", "1.2.3ms"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_negative_duration_is_told_from_a_text_that_is_none() {
        let refused = |text| duration(text).expect_err("it is no duration").to_string();
        assert!(refused("-5ms").starts_with("\"-5ms\" is negative; "), "{}", refused("-5ms"));
        for text in ["-5", "--5ms", "-", "-ms"] {
            assert!(refused(text).contains("is not a duration"), "{}", refused(text));
        }
    }

    #[test]
    fn what_is_too_long_is_told_so() {
        assert_eq!(duration("720h"), Ok(Duration::from_secs(720 * 3600)), "a month, as for the age of a log");
        let refused = duration("10001h").map_err(|error| error.to_string());
        assert_eq!(refused, Err("\"10001h\" is too long; the longest duration is 10000h".to_owned()));
    }

    #[test]
    fn readable_durations_keep_three_digits() {
        let show = |ns| Readable(Duration::from_nanos(ns)).to_string();
        assert_eq!(show(84), "84 ns");
        assert_eq!(show(7_400), "7.4 us");
        assert_eq!(show(20_000_000), "20 ms");
    }
}
