//! `unisono queue show --disk`: watches the classes of a disk that `unisono queue disk` serves.

use super::disk::DISK_FORMAT;
use super::units;
use crate::columns::{self, Column};
use crate::exit::Failure;
use crate::live_view::{LiveViewFlags, LiveViewText};
use crate::machine_output::{self, TableForm};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unisono_enforce::disk::{self, DiskClassFigures, DiskFigures};
use unisono_fairqueue::DelayFigures;

const VIEW: LiveViewText = LiveViewText {
    title: "unisono queue show --disk",
    help: "share: the part of the disk that a class gets while all classes have requests waiting. clients: those that are \
           connected. reads/s, writes/s: bytes since the last table. waiting: requests in the queue. late: requests that \
           ended after the deadline of the class; median, p99: from the arrival of a request to its end, since the \
           server has started. Columns that do not fit are left out.",
};

pub(super) fn show(socket: &Path, view: &LiveViewFlags, output: TableForm) -> anyhow::Result<ExitCode> {
    let read = || disk::figures_of(socket).map_err(|error| Failure::Host(error.to_string()));
    let (mut earlier, mut at) = (read()?, Instant::now());
    view.show(output, &VIEW, |width| {
        let (figures, now) = (read()?, Instant::now());
        let text = match output {
            TableForm::Csv => machine_output::csv(&figures.classes)?,
            TableForm::Json => machine_output::json(DISK_FORMAT, &figures)?,
            TableForm::Text => table(&figures, &earlier, now - at, width),
        };
        (earlier, at) = (figures, now);
        Ok(text)
    })
}

fn table(now: &DiskFigures, earlier: &DiskFigures, interval: Duration, width: usize) -> String {
    let names: Vec<String> = now.classes.iter().map(|class| class.name.clone()).collect();
    let column = |rank, width, head, cell: &dyn Fn(&DiskClassFigures) -> String| Column {
        rank,
        width,
        head,
        cells: now.classes.iter().map(cell).collect(),
    };
    let per_second = |of: fn(&DiskClassFigures) -> u64| {
        move |class: &DiskClassFigures| {
            let before = earlier.classes.iter().find(|before| before.name == class.name).map_or(0, of);
            let bytes = of(class).saturating_sub(before) as f64 / interval.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "positive; `as` saturates"
            )]
            units::size(bytes as u64)
        }
    };
    let delay = |of: fn(&DelayFigures) -> u64| {
        move |class: &DiskClassFigures| {
            class.delay.as_ref().map_or_else(|| "-".to_owned(), |delay| units::time(of(delay)))
        }
    };
    let columns = vec![
        column(3, 6, "share", &|class| format!("{:.1}%", class.share * 100.0)),
        column(5, 7, "clients", &|class| class.clients.to_string()),
        column(0, 9, "reads/s", &per_second(|class| class.read_bytes)),
        column(1, 9, "writes/s", &per_second(|class| class.written_bytes)),
        column(2, 7, "waiting", &|class| class.waiting.to_string()),
        column(7, 6, "late", &|class| class.late.to_string()),
        column(8, 6, "failed", &|class| class.failed.to_string()),
        column(6, 8, "median", &delay(|delay| delay.median_ns)),
        column(4, 8, "p99", &delay(|delay| delay.p99_ns)),
    ];
    columns::lines("class", &names, columns, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_interval_and_a_class_that_is_new_begins_at_zero() {
        let figures = |classes: &[(&str, u64)]| {
            let class = |(name, read_bytes): &(&str, u64)| {
                serde_json::json!({
                    "name": name, "share": 0.25, "clients": 2, "waiting": 7, "requests": 9, "read_bytes": read_bytes,
                    "written_bytes": 0, "contended_bytes": 0, "failed": 0, "late": 0, "delay": null,
                })
            };
            let classes: Vec<_> = classes.iter().map(class).collect();
            let figures = serde_json::json!({ "connections": 1, "refused": 0, "classes": classes });
            serde_json::from_value::<DiskFigures>(figures).expect("as the server writes it")
        };
        let (before, now) = (figures(&[("a", 4096)]), figures(&[("a", 12_288), ("new", 2048)]));
        let text = table(&now, &before, Duration::from_secs(2), usize::MAX);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines[0],
            [
                "class", "share", "clients", "reads/s", "writes/s", "waiting", "late", "failed", "median",
                "p99"
            ]
        );
        assert_eq!(lines[1][..6], ["a", "25.0%", "2", "4.0", "KiB", "0"]);
        assert_eq!(lines[2][..5], ["new", "25.0%", "2", "1.0", "KiB"]);
    }
}
