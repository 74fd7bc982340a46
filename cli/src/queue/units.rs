//! Formats rates, sizes and times in readable units.

/// Formats a rate in bits per second.
pub(super) fn rate(bits: f64) -> String {
    scaled(bits, &[(1e9, "gbit"), (1e6, "mbit"), (1e3, "kbit")], "bit")
}

/// Formats a size in bytes.
pub(super) fn size(bytes: u64) -> String {
    scaled(bytes as f64, &[(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB")], "B")
}

/// Formats a time in nanoseconds.
pub(super) fn time(ns: u64) -> String {
    scaled(ns as f64, &[(1e9, "s"), (1e6, "ms"), (1e3, "us")], "ns")
}

fn scaled(value: f64, units: &[(f64, &str)], one: &str) -> String {
    match units.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) if value / unit < 100.0 => format!("{:.1} {name}", value / unit),
        Some((unit, name)) => format!("{:.0} {name}", value / unit),
        None => format!("{value:.0} {one}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_enough() {
        assert_eq!(
            [rate(0.0), rate(59_834_000.0), rate(1e8), rate(64_000.0)],
            ["0 bit", "59.8 mbit", "100 mbit", "64.0 kbit"]
        );
        assert_eq!([size(0), size(1536), size(1 << 20)], ["0 B", "1.5 KiB", "1.0 MiB"]);
        assert_eq!([time(0), time(1500), time(5_240_000)], ["0 ns", "1.5 us", "5.2 ms"]);
    }
}
