//! Numbers in readable form: three significant digits and a suitable unit, `84 ns`, `7.4 us`, `12.3 M/s`,
//! `1.5 %`. Times are written `ns`, `us`, `ms`, `s`, as on the command line.

use crate::escape::slug;

/// The space between a number and its unit: no line break, not stretched by justification.
pub const NO_BREAK_SPACE: char = '\u{a0}';

#[derive(Clone, Copy, Debug, PartialEq)]
enum UnitKind {
    /// The length of one unit in nanoseconds.
    Time(f64),
    /// Events per second.
    Rate,
    Percent,
    /// A ratio or a count.
    Number,
    /// A unit that is shown as written.
    Other,
}

fn kind(unit: &str) -> UnitKind {
    match unit {
        "ns" => UnitKind::Time(1.0),
        "us" | "µs" => UnitKind::Time(1e3),
        "ms" => UnitKind::Time(1e6),
        "s" => UnitKind::Time(1e9),
        "1/s" | "/s" => UnitKind::Rate,
        "%" => UnitKind::Percent,
        "1" | "" => UnitKind::Number,
        _ => UnitKind::Other,
    }
}

pub(crate) fn is_time(unit: &str) -> bool {
    matches!(kind(unit), UnitKind::Time(_))
}

/// Formats a value with its unit, in the most readable magnitude.
pub fn quantity(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "no number".to_owned();
    }
    match kind(unit) {
        UnitKind::Time(scale) => {
            let ns = value * scale;
            if !ns.is_finite() {
                return scientific(value, unit);
            }
            let steps = [(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];
            if ns == 0.0 {
                return format!("0{NO_BREAK_SPACE}ns");
            }
            magnitude(ns, &steps)
        }
        UnitKind::Rate => magnitude(value, &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")]),
        UnitKind::Percent => format!("{}{NO_BREAK_SPACE}%", plain(value)),
        UnitKind::Number => plain(value),
        UnitKind::Other => format!("{}{NO_BREAK_SPACE}{unit}", plain(value)),
    }
}

fn scientific(value: f64, unit: &str) -> String {
    format!("{value:.2e}{NO_BREAK_SPACE}{unit}")
}

fn magnitude(value: f64, steps: &[(f64, &str)]) -> String {
    // 999.7 must not become "1000 ns": choose the step after rounding to three digits
    let size = rounded(value.abs());
    let (scale, name) =
        steps.iter().rev().find(|(scale, _)| size >= *scale).or(steps.first()).copied().unwrap_or((1.0, ""));
    let scaled = value / scale;
    if scaled.abs() >= 1e6 {
        scientific(scaled, name)
    } else {
        format!("{}{NO_BREAK_SPACE}{name}", significant(scaled))
    }
}

/// Formats a value without a unit. Below 1,000 it has three significant digits (two below 0.0001); larger
/// values are rounded to an integer, or below 10,000 to three digits if they have a fraction, and written in
/// groups of thousands. From 1e12 on and below 1e-9 it has an exponent.
pub fn plain(value: f64) -> String {
    if !value.is_finite() {
        return "no number".to_owned();
    }
    if value.abs() >= 1e12 || (value != 0.0 && value.abs() < 1e-9) {
        return format!("{value:.2e}");
    }
    if value != 0.0 && value.abs() < 1e-4 {
        // two digits: a value as small as this is seldom known to three digits
        let digits = 1 - value.abs().log10().floor() as i32;
        return format!("{value:.*}", digits.unsigned_abs() as usize);
    }
    if value.abs() < 1000.0 || value.fract() != 0.0 && value.abs() < 10_000.0 {
        return significant(value);
    }
    grouped(value.round())
}

fn grouped(value: f64) -> String {
    if value.abs() >= 1e12 {
        return format!("{value:.2e}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    if value < 0.0 { format!("\u{2212}{text}") } else { text }
}

pub(crate) fn count(n: usize) -> String {
    grouped(n as f64)
}

fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let place = 10f64.powi(2 - value.abs().log10().floor() as i32);
    if !place.is_finite() || place == 0.0 { value } else { (value * place).round() / place }
}

/// Formats a value with three significant digits, without trailing zeros after the point.
fn significant(value: f64) -> String {
    let value = rounded(value);
    if value.abs() >= 1000.0 {
        return grouped(value);
    }
    if value != 0.0 && value.abs() < 1e-4 {
        return format!("{value:.2e}");
    }
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 8) as usize };
    let text = format!("{:.digits$}", value.abs());
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if value < 0.0 { format!("\u{2212}{text}") } else { text.to_owned() }
}

/// Returns the unit at the end of a parameter's or figure's name: `interval_us` is in `us`.
pub(crate) fn unit_in_name(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("ns") => "ns",
        Some("us") => "us",
        Some("ms") => "ms",
        Some("s") if name.ends_with("_per_s") => "1/s",
        Some("s") => "s",
        Some("percent") => "%",
        _ => "1",
    }
}

/// Turns a name into words: `interval_us` -> `interval`, `barriers_per_s` -> `barriers per second`.
pub(crate) fn words(name: &str) -> String {
    let stem = ["_ns", "_us", "_ms", "_percent"].iter().find_map(|unit| name.strip_suffix(unit));
    let text = match (stem, name.strip_suffix("_per_s")) {
        (Some(stem), _) => stem.to_owned(),
        (None, Some(stem)) => format!("{stem} per second"),
        (None, None) => name.strip_suffix("_s").unwrap_or(name).to_owned(),
    };
    let text = text.strip_prefix("ns_per_").map_or(text.clone(), |rest| format!("time per {rest}"));
    let text = text.replace(['_', '-'], " ");
    if slug(&text) == "x" { name.to_owned() } else { text }
}

/// Removes the unit at the end of a label, because ticks have units: `interval (us)` and `interval, us`
/// become `interval`.
pub(crate) fn without_unit(label: &str) -> &str {
    let label = label.trim();
    let cut = match label.strip_suffix(')') {
        Some(rest) => rest.rfind('('),
        None => label.rfind(','),
    };
    match cut {
        Some(at) => {
            let unit = label[at + 1..].trim_end_matches(')').trim();
            if at > 0 && kind(unit) != UnitKind::Other && !unit.is_empty() {
                label[..at].trim_end()
            } else {
                label
            }
        }
        None => label,
    }
}

/// Formats a number of seconds, for example `48 s`, `2 min 3 s`, `1 h 4 min`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || !(0.0..1e12).contains(&seconds) {
        return "an unknown time".to_owned();
    }
    let whole = seconds.round() as u64;
    match whole {
        0..120 if seconds < 10.0 => format!("{seconds:.1}{NO_BREAK_SPACE}s"),
        0..120 => format!("{whole}{NO_BREAK_SPACE}s"),
        120..7200 => format!("{}{NO_BREAK_SPACE}min {}{NO_BREAK_SPACE}s", whole / 60, whole % 60),
        _ => format!("{}{NO_BREAK_SPACE}h {}{NO_BREAK_SPACE}min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn show(value: f64, unit: &str) -> String {
        quantity(value, unit).replace(NO_BREAK_SPACE, " ")
    }

    #[test]
    fn quantities_carry_three_digits_and_the_unit_that_fits() {
        assert_eq!(show(84.0, "ns"), "84 ns");
        assert_eq!(show(7_400.0, "ns"), "7.4 us");
        assert_eq!(show(0.0405, "us"), "40.5 ns");
        assert_eq!(show(999.7, "ns"), "1 us");
        assert_eq!(show(15_000.0, "us"), "15 ms");
        assert_eq!(show(37_000.0, "1/s"), "37 k/s");
        assert_eq!(show(1_234_567.0, "1/s"), "1.23 M/s");
        assert_eq!(show(0.0, "1/s"), "0 /s");
        assert_eq!(show(1.52, "%"), "1.52 %");
        assert_eq!(show(16_200.0, "1"), "16,200");
        assert_eq!(show(f64::NAN, "ns"), "no number");
    }

    #[test]
    fn names_become_words() {
        assert_eq!(words("interval_us"), "interval");
        assert_eq!(words("barriers_per_s"), "barriers per second");
        assert_eq!(words("ns_per_barrier"), "time per barrier");
        assert_eq!(words("app1_barriers_per_s"), "app1 barriers per second");
        assert_eq!(unit_in_name("interval_us"), "us");
        assert_eq!(unit_in_name("app1_barriers_per_s"), "1/s");
        assert_eq!(unit_in_name("threads"), "1");
    }

    #[test]
    fn a_label_loses_the_unit_that_its_ticks_carry() {
        assert_eq!(without_unit("interval (us)"), "interval");
        assert_eq!(without_unit("interval, us"), "interval");
        assert_eq!(without_unit("barriers per second (1/s)"), "barriers per second");
        assert_eq!(without_unit("both programs (sum)"), "both programs (sum)");
    }

    proptest! {
        #[test]
        fn every_number_has_a_short_text(bits in any::<u64>(), unit in "(ns|us|ms|s|1/s|%|1|bytes)") {
            let value = f64::from_bits(bits);
            prop_assert!(quantity(value, &unit).chars().count() <= 24, "{}", quantity(value, &unit));
        }

        #[test]
        fn a_quantity_reads_back_to_within_a_half_of_its_third_digit(value in 1e-1f64..1e9) {
            let text = show(value, "ns");
            let (number, unit) = text.split_once(' ').expect("a number and a unit");
            let scale = match unit { "ns" => 1.0, "us" => 1e3, "ms" => 1e6, _ => 1e9 };
            let back = number.replace(',', "").parse::<f64>().expect("a number") * scale;
            prop_assert!((back / value - 1.0).abs() <= 0.0051, "{value} -> {text}");
        }
    }
}
