//! The sockets that weigh themselves, as `queue show` tells them.

use super::units;
use crate::columns::{self, Column};
use serde_json::{Value, json};
use std::time::Duration;
use unisono_enforce::SocketShare;

/// The most sockets in a table; `--json` has all.
const MAX_ROWS: usize = 20;

/// A socket and its rate since an earlier reading, in bits a second.
pub(super) struct SocketUse<'a> {
    share: &'a SocketShare,
    rate: f64,
}

/// Compares two readings. A leaf whose counter went back belongs to another socket now, which began at zero.
pub(super) fn uses<'a>(
    now: &'a [SocketShare],
    earlier: &[SocketShare],
    interval: Duration,
) -> Vec<SocketUse<'a>> {
    let rate = |share: &SocketShare| {
        let before = earlier.iter().find(|before| before.leaf == share.leaf).map_or(0, |before| before.bytes);
        let bytes = share.bytes.checked_sub(before).unwrap_or(share.bytes);
        bytes as f64 * 8.0 / interval.as_secs_f64()
    };
    now.iter().map(|share| SocketUse { share, rate: rate(share) }).collect()
}

pub(super) fn json_of(uses: &[SocketUse<'_>]) -> Vec<Value> {
    let object = |SocketUse { share, rate }: &SocketUse<'_>| {
        json!({
            "class": share.class, "program": share.program, "user": share.user, "weight": share.weight,
            "packets": share.packets, "bytes": share.bytes, "rate": rate,
        })
    };
    uses.iter().map(object).collect()
}

/// Returns the table of the sockets with the highest rates, below an empty line; empty without sockets.
pub(super) fn table(uses: &[SocketUse<'_>], width: usize) -> String {
    if uses.is_empty() {
        return String::new();
    }
    let mut rows: Vec<&SocketUse<'_>> = uses.iter().collect();
    rows.sort_by(|one, other| other.rate.total_cmp(&one.rate));
    let left_out = rows.len().saturating_sub(MAX_ROWS);
    rows.truncate(MAX_ROWS);
    let column = |rank, width, head, cell: &dyn Fn(&SocketUse<'_>) -> String| Column {
        rank,
        width,
        head,
        cells: rows.iter().map(|row| cell(row)).collect(),
    };
    let columns = vec![
        column(2, 20, "program", &|of| match of.share.program.as_str() {
            "" => "-".to_owned(),
            name => name.to_owned(),
        }),
        column(3, 10, "user", &|of| of.share.user.to_string()),
        column(0, 8, "weight", &|of| of.share.weight.to_string()),
        column(1, 11, "gets", &|of| units::rate(of.rate)),
    ];
    let names: Vec<String> = rows.iter().map(|of| of.share.class.clone()).collect();
    let mut text = format!("\n\n{}", columns::lines("sockets in class", &names, columns, width));
    if left_out > 0 {
        text.push_str(&format!("\n{left_out} slower sockets are left out; --json has all"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(leaf: u16, bytes: u64) -> SocketShare {
        let (class, program) = ("video".to_owned(), "streamer".to_owned());
        SocketShare { leaf, class, program, user: 1000, weight: 1.5, packets: 1, bytes }
    }

    #[test]
    fn the_fastest_sockets_come_first_and_the_others_are_counted() {
        let earlier = [share(7, 1_000_000), share(8, 9)];
        let mut now = vec![share(8, 259), share(7, 500_000)];
        let text = table(&uses(&now, &earlier, Duration::from_secs(2)), usize::MAX);
        let lines: Vec<Vec<&str>> =
            text.trim().lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["sockets", "in", "class", "program", "user", "weight", "gets"]);
        // leaf 7 belongs to a new socket, which has sent 500,000 bytes
        assert_eq!(lines[1], ["video", "streamer", "1000", "1.5", "2.0", "mbit"]);
        assert_eq!(lines[2][4..], ["1.0", "kbit"]);
        now.extend((0..30).map(|leaf| share(100 + leaf, 0)));
        let uses = uses(&now, &earlier, Duration::from_secs(2));
        let text = table(&uses, usize::MAX);
        assert!(text.ends_with("12 slower sockets are left out; --json has all"), "{text}");
        assert_eq!(json_of(&uses).len(), 32);
        assert_eq!(table(&[], 80), "");
    }
}
