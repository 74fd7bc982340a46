//! The table of `queue show`, in lines that fit a terminal.

use super::units;
use crate::columns::{self, Column};
use std::cmp::Ordering;
use std::collections::HashSet;
use unisono_fairqueue::{Live, LiveClass, Pace, TrafficDirection};
use unisono_text::nearest;

const BAR: usize = 12;
/// The rows of a table besides the rows of classes: its head, the link, and the sum of the classes left out.
const OTHER_ROWS: usize = 3;

/// Returns the table in lines of at most `width` characters, and in at most `rows` lines (but at least the
/// link and one class). `link_rate` is the rate of all classes, also of classes that `live` lacks. With
/// `usize::MAX` it has all columns, full names and all classes. If not all classes fit, the link comes first,
/// then classes with children, then the others by their rate, and last the sum of the rest.
pub(super) fn table(live: &Live, paces: &[Pace], link_rate: f64, width: usize, rows: usize) -> String {
    let direction = if live.direction == TrafficDirection::In { " in" } else { "" };
    let head = format!("{}{direction} ({})", live.device, live.backend);
    if live.classes.len() + 2 <= rows {
        let names =
            live.classes.iter().map(|class| format!("{}{}", "  ".repeat(depth(live, class)), class.name));
        let names: Vec<String> = names.chain(["the link".to_owned()]).collect();
        return columns::lines(&head, &names, columns(live, paces, link_rate), width);
    }
    let (live, paces) = busiest(live, paces, rows.saturating_sub(OTHER_ROWS).max(1));
    let mut names: Vec<String> = live.classes.iter().map(|class| class.name.clone()).collect();
    names.insert(0, "the link".to_owned());
    let mut columns = columns(&live, &paces, link_rate);
    columns.iter_mut().for_each(|column| column.cells.rotate_right(1));
    columns::lines(&head, &names, columns, width)
}

/// Returns the rate at which all classes together send.
pub(super) fn link_rate(live: &Live, paces: &[Pace]) -> f64 {
    let top = live.classes.iter().zip(paces).filter(|(class, _)| class.parent.is_none());
    top.map(|(_, pace)| pace.rate).sum()
}

/// Returns the first `kept` classes, those with children first and then the others by their rate, and the sum
/// of the leaves that are left out.
fn busiest(live: &Live, paces: &[Pace], kept: usize) -> (Live, Vec<Pace>) {
    let parents: HashSet<&str> = live.classes.iter().filter_map(|class| class.parent.as_deref()).collect();
    let mut order: Vec<usize> = (0..live.classes.len()).collect();
    let has_children = |at: usize| parents.contains(live.classes[at].name.as_str());
    order.sort_by(|one, other| {
        let by_rate = paces[*other].rate.total_cmp(&paces[*one].rate);
        match (has_children(*one), has_children(*other)) {
            (true, true) => Ordering::Equal,
            (false, false) => by_rate,
            (one, other) => other.cmp(&one),
        }
    });
    let rest = order.split_off(kept.min(order.len()));
    let mut sum = LiveClass { name: format!("{} more", rest.len()), ..LiveClass::default() };
    let mut pace = Pace::default();
    // the leaves count all packets that a class with children counts
    for at in rest.into_iter().filter(|at| !has_children(*at)) {
        let (class, of_class) = (&live.classes[at], &paces[at]);
        sum.guarantee += class.guarantee;
        sum.backlog.packets += class.backlog.packets;
        sum.backlog.bytes += class.backlog.bytes;
        pace.rate += of_class.rate;
        pace.share += of_class.share;
        pace.dropped += of_class.dropped;
        pace.receiving += of_class.receiving;
        pace.dropped_early += of_class.dropped_early;
    }
    let classes = order.iter().map(|at| live.classes[*at].clone()).chain([sum]).collect();
    let paces = order.iter().map(|at| paces[*at]).chain([pace]).collect();
    (Live { classes, ..live.clone() }, paces)
}

/// Returns a message about the first of these names that none of the policies has.
pub(super) fn unknown_class(policies: &[&Live], names: &[String]) -> Option<String> {
    let all = || policies.iter().flat_map(|live| &live.classes).map(|class| class.name.as_str());
    let unknown = names.iter().find(|name| all().all(|known| known != **name))?;
    let near = nearest(unknown, all()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Some(format!("--class {unknown}: no policy that is shown has this class{near}"))
}

/// Returns only the classes of these names, and those below them.
pub(super) fn only(live: &Live, paces: &[Pace], names: &[String]) -> (Live, Vec<Pace>) {
    let is_wanted = |class: &&LiveClass| {
        names.contains(&class.name) || ancestors(live, class).any(|above| names.contains(&above.name))
    };
    let kept = live.classes.iter().zip(paces).filter(|(class, _)| is_wanted(class));
    let (classes, paces) = kept.map(|(class, pace)| (class.clone(), *pace)).unzip();
    (Live { classes, ..live.clone() }, paces)
}

/// Returns the time in which a class's backlog drains at its present rate, in nanoseconds; `None` if the rate
/// is zero.
pub(super) fn wait_of(class: &LiveClass, pace: &Pace) -> Option<u64> {
    let bits = class.backlog.bytes as f64 * 8.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; `as` saturates")]
    let wait = |rate: f64| (bits / rate * 1e9) as u64;
    if bits > 0.0 { Some(pace.rate).filter(|rate| *rate > 0.0).map(wait) } else { Some(0) }
}

fn columns(live: &Live, paces: &[Pace], link_rate: f64) -> Vec<Column> {
    let column = |rank, width, head, link: String, cell: &dyn Fn(&LiveClass, &Pace) -> String| {
        let cells = live.classes.iter().zip(paces).map(|(class, pace)| cell(class, pace));
        Column { rank, width, head, cells: cells.chain([link]).collect() }
    };
    let none = String::new;
    let of_link = live.rate.bits_per_second() as f64;
    let mut columns = vec![
        column(4, 11, "guaranteed", units::rate(of_link), &|class, _| units::rate(class.guarantee)),
        column(0, 11, "gets", units::rate(link_rate), &|_, pace| units::rate(pace.rate)),
        column(1, 6, "share", none(), &|_, pace| format!("{:.1}%", pace.share * 100.0)),
        column(9, BAR + 1, "", none(), &|_, pace| format!("{:<BAR$}", bar(pace.rate / of_link))),
        column(5, 7, "drops/s", none(), &|_, pace| format!("{:.0}", pace.dropped)),
        column(2, 9, "waiting", none(), &|class, _| units::size(class.backlog.bytes)),
    ];
    if live.classes.iter().any(|class| class.receiving.is_some()) {
        let percent = |_: &_, pace: &Pace| format!("{:.1}%", pace.receiving * 100.0);
        columns.push(column(6, 9, "receiving", none(), &percent));
        columns.push(column(7, 7, "early/s", none(), &|_, pace| format!("{:.0}", pace.dropped_early)));
    }
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

/// Returns a bar for a part of the link's rate.
fn bar(part: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1")]
    let length = (part.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    "#".repeat(length)
}

fn depth(live: &Live, class: &LiveClass) -> usize {
    ancestors(live, class).count()
}

fn ancestors<'a>(live: &'a Live, class: &LiveClass) -> impl Iterator<Item = &'a LiveClass> {
    let above = |name: &String| live.classes.iter().find(|class| class.name == *name);
    std::iter::successors(class.parent.as_ref().and_then(above), move |class| {
        class.parent.as_ref().and_then(above)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_fairqueue::{Backlog, ClassId, DelayFigures, LinkFraming, Policy, Rate, ReceivingFigures};

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
            receiving: None,
        };
        let classes = vec![
            class("video-of-a-department-with-a-long-name", None),
            class("mail", Some("video-of-a-department-with-a-long-name")),
        ];
        let (backend, device) = ("interposed".to_owned(), "enp0s31f6".to_owned());
        let paces = vec![Pace { rate: 9.5e7, share: 1.0, dropped: 123.0, ..Pace::default() }; classes.len()];
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
                let table = table(&live, &paces, link_rate(&live, &paces), width, usize::MAX);
                assert!(table.lines().all(|line| line.chars().count() <= width), "{width}:\n{table}");
                assert!(
                    table.contains(" gets") && table.contains("share") && table.contains("100.0%"),
                    "{table}"
                );
                assert_eq!(table.lines().count(), 4);
            }
        }
    }

    /// Two towers of a hundred subscribers each, of which three send.
    fn access_network() -> (Live, Vec<Pace>) {
        let (mut live, _) = live(None);
        let (like, mut paces) = (live.classes[0].clone(), Vec::new());
        live.classes.clear();
        let mut add = |name: String, parent: Option<&str>, rate: f64| {
            live.classes.push(LiveClass { name, parent: parent.map(str::to_owned), ..like.clone() });
            paces.push(Pace { rate, share: rate / 16e6, ..Pace::default() });
        };
        for (tower, rate) in [("tower1", 6e6), ("tower2", 10e6)] {
            add(tower.to_owned(), None, rate);
            for at in 0..100 {
                let rate = if at == 50 {
                    rate - 1e6
                } else if at == 99 {
                    1e6
                } else {
                    0.0
                };
                add(format!("{tower}-{at}"), Some(tower), rate);
            }
        }
        (live, paces)
    }

    #[test]
    fn what_does_not_fit_is_one_line_below_the_link_the_parents_and_those_that_send_most() {
        let (live, paces) = access_network();
        let table = super::table(&live, &paces, 16e6, 80, 9);
        let first = |line: &str| line.split("  ").next().unwrap_or_default().to_owned();
        let names: Vec<String> = table.lines().skip(1).map(first).collect();
        assert_eq!(
            names,
            ["the link", "tower1", "tower2", "tower2-50", "tower1-50", "tower1-99", "tower2-99", "196 more"],
            "{table}"
        );
        let link = table.lines().nth(1).unwrap_or_default();
        assert!(link.contains("16.0 mbit"), "{table}");
        assert!(table.lines().last().is_some_and(|rest| rest.contains(" 0.0%")), "{table}");
        assert_eq!(super::table(&live, &paces, 16e6, 80, 204).lines().count(), 204, "all fit");
    }

    #[test]
    fn classes_are_chosen_with_those_below_them() {
        let (live, paces) = access_network();
        let (only_two, of_two) = only(&live, &paces, &["tower1".to_owned(), "tower2-7".to_owned()]);
        assert_eq!((only_two.classes.len(), of_two.len()), (102, 102));
        let wrong = unknown_class(&[&live], &["twoer1".to_owned()]).expect("there is none");
        assert!(wrong.ends_with("did you mean `tower1`?"), "{wrong}");
    }

    #[test]
    fn a_bar_is_a_part_of_the_rate_of_the_link() {
        let (live, mut paces) = live(None);
        paces.iter_mut().for_each(|pace| pace.rate = 717.0);
        assert!(!table(&live, &paces, 1434.0, 200, usize::MAX).contains('#'), "0.0007 % of the link");
    }

    #[test]
    fn receiving_has_columns_where_classes_have_threads_that_receive() {
        let (mut live, mut paces) = live(None);
        live.classes[0].receiving = Some(ReceivingFigures::default());
        (paces[0].receiving, paces[0].dropped_early) = (0.099, 1500.0);
        let table = table(&live, &paces, 1.0, usize::MAX, usize::MAX);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].ends_with("waiting receiving early/s     wait"), "{table}");
        assert!(lines[1].contains("      9.9%    1500 "), "{table}");
    }

    #[test]
    fn the_columns_that_matter_least_are_the_first_to_go() {
        let heads = |width| {
            let (live, paces) = live(None);
            let table = table(&live, &paces, link_rate(&live, &paces), width, usize::MAX);
            table.lines().next().map(|head| head.split_whitespace().skip(2).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(heads(40).as_deref(), Some("gets share"));
        assert_eq!(heads(60).as_deref(), Some("gets share waiting"));
        assert_eq!(heads(80).as_deref(), Some("guaranteed gets share waiting wait"));
        assert_eq!(heads(200).as_deref(), Some("guaranteed gets share drops/s waiting wait"));
    }

    /// Returns the table of a policy before the first packet.
    fn unused(policy: &Policy) -> String {
        let (tree, guarantees) = (&policy.hierarchy, policy.guarantees());
        let classes = tree.classes().skip(1).map(|(id, class)| {
            let parent = Some(class.parent).filter(|parent| *parent != ClassId::ROOT);
            LiveClass {
                name: class.name.clone(),
                parent: parent.map(|parent| tree.class(parent).name.clone()),
                guarantee: guarantees[id.index()],
                ..LiveClass::default()
            }
        });
        let (like, _) = live(None);
        let (backend, device) = ("kernel".to_owned(), "eth0".to_owned());
        let live = Live { backend, device, rate: policy.rate, classes: classes.collect(), ..like };
        table(&live, &vec![Pace::default(); live.classes.len()], 0.0, usize::MAX, usize::MAX)
    }

    #[test]
    fn the_page_has_a_policy_and_its_table_for_each_kind_of_operator() {
        let page = include_str!("../../../docs/shares.md");
        let (_, section) = page.split_once("\n## For each kind of operator\n").expect("the section begins");
        let (section, _) = section.split_once("\n## ").expect("another section follows");
        let (mut policy, mut tables) = (None, 0);
        for block in section.split("```").skip(1).step_by(2) {
            match block.split_once('\n') {
                Some(("toml", text)) => policy = Some(text),
                Some(("text", text)) if text.starts_with("eth0 (kernel)") => {
                    let text_of_policy = policy.expect("the policy stands before its table");
                    let policy = Policy::parse(text_of_policy).expect("the policy is sound");
                    assert_eq!(text.trim_end(), unused(&policy));
                    tables += 1;
                }
                _ => {}
            }
        }
        assert_eq!(tables, 4, "a host with services, containers, a router, a laptop");
    }
}
