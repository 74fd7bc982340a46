//! The table of `queue show`, in lines that fit a terminal.

use super::units;
use crate::columns::{self, Column};
use unisono_fairqueue::{Live, LiveClass, Pace, TrafficDirection};

const BAR: usize = 12;
/// Returns the table in lines of at most `width` characters. With `usize::MAX` it has all columns and full
/// names.
pub(super) fn table(live: &Live, paces: &[Pace], width: usize) -> String {
    let direction = if live.direction == TrafficDirection::In { " in" } else { "" };
    let head = format!("{}{direction} ({})", live.device, live.backend);
    let names = live.classes.iter().map(|class| format!("{}{}", "  ".repeat(depth(live, class)), class.name));
    let names: Vec<String> = names.chain(["the link".to_owned()]).collect();
    columns::lines(&head, &names, columns(live, paces), width)
}

/// Returns the time in which a class's backlog drains at its present rate, in nanoseconds; `None` if the rate
/// is zero.
pub(super) fn wait_of(class: &LiveClass, pace: &Pace) -> Option<u64> {
    let bits = class.backlog.bytes as f64 * 8.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; `as` saturates")]
    let wait = |rate: f64| (bits / rate * 1e9) as u64;
    if bits > 0.0 { Some(pace.rate).filter(|rate| *rate > 0.0).map(wait) } else { Some(0) }
}

fn columns(live: &Live, paces: &[Pace]) -> Vec<Column> {
    let column = |rank, width, head, link: String, cell: &dyn Fn(&LiveClass, &Pace) -> String| {
        let cells = live.classes.iter().zip(paces).map(|(class, pace)| cell(class, pace));
        Column { rank, width, head, cells: cells.chain([link]).collect() }
    };
    let none = String::new;
    let top = live.classes.iter().zip(paces).filter(|(class, _)| class.parent.is_none());
    let all: f64 = top.map(|(_, pace)| pace.rate).sum();
    let mut columns = vec![
        column(4, 11, "guaranteed", units::rate(live.rate.bits_per_second() as f64), &|class, _| {
            units::rate(class.guarantee)
        }),
        column(0, 11, "gets", units::rate(all), &|_, pace| units::rate(pace.rate)),
        column(1, 6, "share", none(), &|_, pace| format!("{:.1}%", pace.share * 100.0)),
        column(9, BAR + 1, "", none(), &|_, pace| format!("{:<BAR$}", bar(pace.share))),
        column(5, 7, "drops/s", none(), &|_, pace| format!("{:.0}", pace.dropped)),
        column(2, 9, "waiting", none(), &|class, _| units::size(class.backlog.bytes)),
    ];
    if live.classes.iter().all(|class| class.delay.is_none()) {
        let wait = |class: &_, pace: &_| wait_of(class, pace).map_or("-".to_owned(), units::time);
        columns.push(column(3, 8, "wait", none(), &wait));
        return columns;
    }
    let mut delay = |rank, head, of: fn(&unisono_fairqueue::DelayFigures) -> u64| {
        let time = |class: &LiveClass, _: &_| class.delay.map_or_else(none, |delay| units::time(of(&delay)));
        columns.push(column(rank, 8, head, none(), &time));
    };
    delay(8, "min", |delay| delay.min_ns);
    delay(6, "median", |delay| delay.median_ns);
    delay(3, "p99", |delay| delay.p99_ns);
    delay(7, "max", |delay| delay.max_ns);
    columns
}

fn bar(share: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
    let length = (share * BAR as f64).round() as usize;
    "#".repeat(length)
}

fn depth(live: &Live, class: &LiveClass) -> usize {
    let above = |name: &String| live.classes.iter().find(|class| class.name == *name);
    std::iter::successors(class.parent.as_ref().and_then(above), |class| {
        class.parent.as_ref().and_then(above)
    })
    .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_fairqueue::{Backlog, DelayFigures, LinkFraming, Rate};

    fn live(delay: Option<DelayFigures>) -> (Live, Vec<Pace>) {
        let class = |name: &str, parent: Option<&str>| LiveClass {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            guarantee: 5e7,
            packets: 1,
            bytes: 1000,
            dropped: 0,
            backlog: Backlog { packets: 1, bytes: 1000 },
            queue: None,
            delay,
        };
        let classes = vec![
            class("video-of-a-department-with-a-long-name", None),
            class("mail", Some("video-of-a-department-with-a-long-name")),
        ];
        let (backend, device) = ("interposed".to_owned(), "enp0s31f6".to_owned());
        let paces = vec![Pace { rate: 9.5e7, share: 1.0, dropped: 123.0 }; classes.len()];
        (
            Live {
                backend,
                device,
                direction: TrafficDirection::Out,
                at_ns: 1,
                rate: Rate::new(100_000_000).expect("above zero"),
                framing: LinkFraming::default(),
                classes,
            },
            paces,
        )
    }

    #[test]
    fn lines_fit_every_width_and_rate_and_share_are_always_there() {
        let delay =
            DelayFigures { min_ns: 900, median_ns: 20_000, mean_ns: 1, p99_ns: 3_000_000, max_ns: 4_000_000 };
        for delay in [None, Some(delay)] {
            let (live, paces) = live(delay);
            for width in [40, 60, 80, 200] {
                let table = table(&live, &paces, width);
                assert!(table.lines().all(|line| line.chars().count() <= width), "{width}:\n{table}");
                assert!(
                    table.contains(" gets") && table.contains("share") && table.contains("100.0%"),
                    "{table}"
                );
                assert_eq!(table.lines().count(), 4);
            }
        }
    }

    #[test]
    fn the_columns_that_matter_least_are_the_first_to_go() {
        let heads = |width| {
            let (live, paces) = live(None);
            let table = table(&live, &paces, width);
            table.lines().next().map(|head| head.split_whitespace().skip(2).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(heads(40).as_deref(), Some("gets share"));
        assert_eq!(heads(60).as_deref(), Some("gets share waiting"));
        assert_eq!(heads(80).as_deref(), Some("guaranteed gets share waiting wait"));
        assert_eq!(heads(200).as_deref(), Some("guaranteed gets share drops/s waiting wait"));
    }
}
