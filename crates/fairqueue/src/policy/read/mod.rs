//! Reads a policy's TOML into classes. Each value is checked on its own; an error names its position.

mod disk;
mod matchers;
mod receiving;
mod row_classes;
mod sockets;

pub(super) use disk::WrittenDisk;
pub(super) use row_classes::{CLASS_LINES, ClassLine, HEADING, RowMatches, write_class};
pub(super) use sockets::WrittenSockets;

use super::error::{Mistake, meant, wrong};
use super::matcher::Matcher;
use super::units;
use super::{ClassReceiving, Flows, LinkFraming};
use crate::hierarchy::{Limit, Order, Overflow};
use crate::rate::Rate;
use crate::weight::Weight;
use disk::read_disk;
use matchers::read_matchers;
use receiving::WrittenReceiving;
use sockets::read_sockets;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use unisono_time::Duration;

/// The smallest limit in bytes: one full Ethernet frame.
const MIN_BYTES: u64 = 1514;
/// The most levels of classes in a policy.
pub(super) const MAX_DEPTH: usize = 64;
const POLICY_KEYS: [&str; 11] = [
    "rate",
    "overhead",
    "atm",
    "receive",
    "receive_processors",
    "receive_checksums",
    "default",
    "class",
    "cpu",
    "io",
    "disk",
];
pub(super) const KEYS: [&str; 12] = [
    "weight", "ceiling", "limit", "packets", "overflow", "order", "flows", "fair", "ecn", "match", "parent",
    "sockets",
];

/// A value and its byte offset in the text.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

#[derive(Debug)]
pub(super) struct Written {
    pub(super) rate: Rate,
    pub(super) framing: LinkFraming,
    pub(super) receiving: Option<ClassReceiving>,
    pub(super) default: Option<Placed<String>>,
    pub(super) classes: Vec<WrittenClass>,
    /// The offset of the classes that were read as rows of a table. `None`: there are none.
    pub(super) rows: Option<usize>,
    pub(super) cpu: Option<Vec<(Placed<String>, Weight)>>,
    pub(super) io: Option<Vec<(Placed<String>, Weight)>>,
    pub(super) disk: Vec<WrittenDisk>,
}

#[derive(Debug)]
pub(super) struct WrittenClass {
    pub(super) name: Placed<String>,
    /// The class whose table contains this one.
    pub(super) within: Option<usize>,
    pub(super) parent: Option<Placed<String>>,
    /// `None`: the text has none, and the weight is 1.
    pub(super) weight: Option<Weight>,
    pub(super) ceiling: Option<Placed<Rate>>,
    pub(super) limit: Option<Limit>,
    pub(super) order: Option<Placed<Order>>,
    pub(super) flows: Option<Placed<Flows>>,
    pub(super) congestion: Option<Placed<Duration>>,
    pub(super) matchers: Vec<Placed<Matcher>>,
    pub(super) sockets: Option<Placed<WrittenSockets>>,
}

/// The form in which the terms of a class are written, as far as a change has to know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClassForm {
    /// The text does not declare the class: it is the root, or the default.
    Implied,
    /// The text declares it in TOML, which has several forms for it.
    Declared,
    /// A row of a table, without a guaranteed rate.
    Row,
    /// A row whose weight promises a rate.
    PromisedRow,
}

impl WrittenClass {
    pub(super) fn new(name: Placed<String>, within: Option<usize>) -> Self {
        Self {
            name,
            within,
            parent: None,
            weight: None,
            ceiling: None,
            limit: None,
            order: None,
            flows: None,
            congestion: None,
            matchers: Vec::new(),
            sockets: None,
        }
    }
}

type WrittenValue<'a> = Spanned<DeValue<'a>>;
type TableEntry<'t, 'a> = (&'t str, usize, &'t WrittenValue<'a>);

/// Returns the entries of a table, in the order of the file.
fn entries<'t, 'a>(table: &'t DeTable<'a>) -> Vec<TableEntry<'t, 'a>> {
    let mut entries: Vec<TableEntry<'t, 'a>> =
        table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span().start, value)).collect();
    entries.sort_by_key(|(_, at, _)| *at);
    entries
}

/// Reads a policy. Without the matches of its rows it takes a fraction of the time.
pub(super) fn read(text: &str, matches: RowMatches) -> Result<Written, Mistake> {
    let Some(rows) = row_classes::at_end(text, matches) else { return read_toml(text) };
    match read_toml(rows.rest) {
        Ok(mut written) => {
            written.classes.extend(rows.classes);
            written.rows = Some(rows.begin);
            Ok(written)
        }
        // the whole text may be sound even so
        Err(_) => read_toml(text),
    }
}

fn read_toml(text: &str) -> Result<Written, Mistake> {
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        let what = match (error.message(), text.get(span.clone())) {
            ("duplicate key", Some(key)) => {
                format!("`{key}` is there twice; names are unique, so rename one or put both into one table")
            }
            (message, _) => message.replace('\n', " "),
        };
        Mistake { at: span.start, what }
    })?;
    let (mut rate, mut default, mut classes, mut disk) = (None, None, Vec::new(), Vec::new());
    let (mut cpu, mut io) = (None, None);
    let (mut framing, mut receiving) = (LinkFraming::default(), WrittenReceiving::default());
    for (key, at, value) in entries(document.get_ref()) {
        match key {
            "rate" => rate = Some(read_rate("rate", value)?.value),
            "overhead" => framing.overhead = read_overhead(value)?,
            "atm" => framing.atm = read_atm(value)?,
            "receive" => receiving.read_way(value)?,
            "receive_processors" => receiving.read_processors(value)?,
            "receive_checksums" => receiving.read_checksums(value)?,
            "default" => default = Some(text_of("default", "the name of a class", value)?),
            "class" => {
                for (name, at, value) in entries(table_of("class", value)?) {
                    read_class(&mut classes, name, at, value, None, 1)?;
                }
            }
            "cpu" => cpu = Some(read_group_shares("cpu", value)?),
            "io" => io = Some(read_group_shares("io", value)?),
            "disk" => disk = read_disk(value)?,
            _ => {
                return wrong(at, format!("unknown key `{key}`; {}", meant(key, &POLICY_KEYS)));
            }
        }
    }
    let Some(rate) = rate else {
        return wrong(0, "the policy does not say what the link carries; write, say, rate = \"100mbit\"");
    };
    let receiving = receiving.checked()?;
    Ok(Written { rate, framing, receiving, default, classes, rows: None, cpu, io, disk })
}

fn read_class(
    classes: &mut Vec<WrittenClass>,
    name: &str,
    at: usize,
    value: &WrittenValue<'_>,
    within: Option<usize>,
    depth: usize,
) -> Result<(), Mistake> {
    let DeValue::Table(table) = value.get_ref() else {
        return wrong(at, format!("`{name}` is no class; a class is a table, as in [class.{name}]"));
    };
    if depth > MAX_DEPTH {
        return wrong(at, format!("`{name}`: classes are nested more than {MAX_DEPTH} deep"));
    }
    if !is_name(name) {
        return wrong(at, format!("{name:?} is no name for a class; use 1 to 64 of a-z, A-Z, 0-9, - and _"));
    }
    if name == super::ROOT {
        return wrong(at, format!("`{name}` is the name of the whole link; choose another one"));
    }
    let number = classes.len();
    classes.push(WrittenClass::new(Placed { value: name.to_owned(), at }, within));
    let mut waiting = WrittenRoom::default();
    for (key, at, value) in entries(table) {
        let class = &mut classes[number];
        match key {
            "weight" => class.weight = Some(read_weight(value)?),
            "ceiling" => class.ceiling = Some(read_rate("ceiling", value)?),
            "limit" => waiting.bytes = Some(read_limit(value)?),
            "packets" => waiting.packets = Some(read_packets(value)?),
            "overflow" => waiting.overflow = Some(read_overflow(value)?),
            "order" => class.order = Some(read_order(value)?),
            "flows" | "fair" => {
                if class.flows.is_some() {
                    return wrong(at, "`flows` and `fair` say the same; take one of them out");
                }
                class.flows = Some(if key == "fair" { read_fair(value)? } else { read_flows(value)? });
            }
            "ecn" => class.congestion = Some(read_congestion(value)?),
            "match" => class.matchers = read_matchers(value)?,
            "sockets" => class.sockets = Some(Placed { value: read_sockets(value)?, at }),
            "parent" => class.parent = Some(text_of("parent", "the name of a class", value)?),
            _ if matches!(value.get_ref(), DeValue::Table(_)) => {
                read_class(classes, key, at, value, Some(number), depth + 1)?;
            }
            _ => return wrong(at, format!("unknown key `{key}`; {}", meant(key, &KEYS))),
        }
    }
    classes[number].limit = waiting.limit()?;
    if let (Some(parent), Some(_)) = (&classes[number].parent, within) {
        return wrong(parent.at, "a class in the table of another is its child already; leave `parent` out");
    }
    Ok(())
}

/// Returns whether a text is a valid class name.
pub(super) fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// The limits of a class as they were written.
#[derive(Default)]
struct WrittenRoom {
    bytes: Option<Placed<u64>>,
    packets: Option<Placed<u64>>,
    overflow: Option<Placed<Overflow>>,
}

impl WrittenRoom {
    fn limit(self) -> Result<Option<Limit>, Mistake> {
        let chosen = self.overflow.as_ref().map_or(Overflow::DropTail, |overflow| overflow.value);
        match (self.bytes, self.packets, self.overflow) {
            (Some(_), Some(packets), _) => {
                wrong(packets.at, "`limit` and `packets` both say how much may wait; leave one of them out")
            }
            (None, None, Some(overflow)) => {
                wrong(overflow.at, "`overflow` without a limit means nothing; add, say, limit = \"64KiB\"")
            }
            (None, None, None) => Ok(None),
            (Some(bytes), None, _) => {
                Ok(Some(Limit { packets: u64::MAX, bytes: bytes.value, overflow: chosen }))
            }
            (None, Some(packets), _) => {
                Ok(Some(Limit { packets: packets.value, bytes: u64::MAX, overflow: chosen }))
            }
        }
    }
}

fn table_of<'t, 'a>(key: &str, value: &'t WrittenValue<'a>) -> Result<&'t DeTable<'a>, Mistake> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        other => wrong(start(value), format!("`{key}` is a table, as in [{key}.NAME], not {}", kind(other))),
    }
}

fn text_of(key: &str, what: &str, value: &WrittenValue<'_>) -> Result<Placed<String>, Mistake> {
    match value.get_ref() {
        DeValue::String(text) => Ok(Placed { value: text.clone().into_owned(), at: start(value) }),
        other => wrong(start(value), format!("`{key}` is {what}, in quotation marks, not {}", kind(other))),
    }
}

fn start(value: &WrittenValue<'_>) -> usize {
    value.span().start
}

fn kind(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => format!("{value}"),
        DeValue::Datetime(time) => format!("the time {time}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

fn read_rate(key: &str, value: &WrittenValue<'_>) -> Result<Placed<Rate>, Mistake> {
    let text = text_of(key, "a rate such as \"100mbit\"", value)?;
    match text.value.parse() {
        Ok(rate) => Ok(Placed { value: rate, at: text.at }),
        Err(error) => wrong(text.at, format!("{key}: {error}")),
    }
}

fn read_overhead(value: &WrittenValue<'_>) -> Result<i16, Mistake> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => i16::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    let (min, max) = (LinkFraming::OVERHEADS.start(), LinkFraming::OVERHEADS.end());
    number.filter(|number| LinkFraming::OVERHEADS.contains(number)).map_or_else(
        || {
            let what = format!(
                "overhead: expected a whole number of bytes, from {min} to {max}, that the link adds to each packet, not {}",
                kind(value.get_ref())
            );
            wrong(start(value), what)
        },
        Ok,
    )
}

fn read_atm(value: &WrittenValue<'_>) -> Result<bool, Mistake> {
    match value.get_ref() {
        DeValue::Boolean(atm) => Ok(*atm),
        other => wrong(start(value), format!("atm: expected true or false, not {}", kind(other))),
    }
}

fn read_weight(value: &WrittenValue<'_>) -> Result<Weight, Mistake> {
    let digits = match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        other => {
            return wrong(
                start(value),
                format!("a weight is a decimal number such as 3 or 0.5, not {}", kind(other)),
            );
        }
    };
    match digits.trim_start_matches('+').parse() {
        Ok(weight) => Ok(weight),
        Err(_) if digits.starts_with('-') || digits.bytes().all(|digit| matches!(digit, b'0' | b'.')) => {
            wrong(
                start(value),
                format!(
                    "the weight {digits} gives no share; write a positive number, or leave the class out"
                ),
            )
        }
        Err(error) => wrong(start(value), error.to_string()),
    }
}

fn read_users(key: &str, value: &WrittenValue<'_>) -> Result<Vec<String>, Mistake> {
    let DeValue::Array(list) = value.get_ref() else {
        let what = kind(value.get_ref());
        return wrong(start(value), format!("`{key}` is a list, as in [\"alice\", 1000], not {what}"));
    };
    let user = |user: &WrittenValue<'_>| match (user.get_ref(), number_of(user).map(u32::try_from)) {
        (DeValue::String(name), _) if !name.is_empty() => Ok(name.clone().into_owned()),
        (_, Some(Ok(number))) => Ok(number.to_string()),
        (other, _) => {
            wrong(start(user), format!("a user is a name or a number, as in \"alice\", not {}", kind(other)))
        }
    };
    list.iter().map(user).collect()
}

fn number_of(value: &WrittenValue<'_>) -> Option<u64> {
    match value.get_ref() {
        DeValue::Integer(number) => {
            u64::from_str_radix(number.as_str().trim_start_matches('+'), number.radix()).ok()
        }
        _ => None,
    }
}

fn read_limit(value: &WrittenValue<'_>) -> Result<Placed<u64>, Mistake> {
    let text = text_of("limit", "a size such as \"64KiB\"", value)?;
    match units::bytes(&text.value) {
        Some(bytes) if bytes >= MIN_BYTES => Ok(Placed { value: bytes, at: text.at }),
        Some(_) => wrong(
            text.at,
            format!("a limit of {} holds no packet; write at least \"{MIN_BYTES}B\"", text.value),
        ),
        None => wrong(
            text.at,
            format!(
                "limit: {:?} is no size; write a number and its unit: B, KiB or MiB, as in \"64KiB\"",
                text.value
            ),
        ),
    }
}

fn read_packets(value: &WrittenValue<'_>) -> Result<Placed<u64>, Mistake> {
    match number_of(value) {
        Some(packets) if (1..=1 << 32).contains(&packets) => Ok(Placed { value: packets, at: start(value) }),
        _ => wrong(
            start(value),
            format!("packets: expected a whole number from 1, such as 100, not {}", kind(value.get_ref())),
        ),
    }
}

fn word_of<T: Copy>(key: &str, words: &[(&str, T)], value: &WrittenValue<'_>) -> Result<Placed<T>, Mistake> {
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let text = text_of(key, &format!("one of {}", known.join(", ")), value)?;
    match words.iter().find(|(word, _)| *word == text.value) {
        Some((_, value)) => Ok(Placed { value: *value, at: text.at }),
        None => {
            wrong(text.at, format!("{key}: unknown word `{}`; {}", text.value, meant(&text.value, &known)))
        }
    }
}

fn read_overflow(value: &WrittenValue<'_>) -> Result<Placed<Overflow>, Mistake> {
    const WORDS: [(&str, Overflow); 2] =
        [("drop-tail", Overflow::DropTail), ("drop-longest", Overflow::DropLongest)];
    word_of("overflow", &WORDS, value)
}

fn read_order(value: &WrittenValue<'_>) -> Result<Placed<Order>, Mistake> {
    word_of("order", &[("fifo", Order::Fifo), ("deadline", Order::Deadline)], value)
}

fn read_flows(value: &WrittenValue<'_>) -> Result<Placed<Flows>, Mistake> {
    word_of("flows", &[("together", Flows::Together), ("fair", Flows::Fair)], value)
}

fn read_fair(value: &WrittenValue<'_>) -> Result<Placed<Flows>, Mistake> {
    const WORDS: [(&str, Flows); 3] =
        [("flow", Flows::Fair), ("host", Flows::Hosts), ("receiver", Flows::Receivers)];
    word_of("fair", &WORDS, value)
}

fn read_congestion(value: &WrittenValue<'_>) -> Result<Placed<Duration>, Mistake> {
    let text = text_of("ecn", "a duration such as \"5ms\"", value)?;
    match units::duration(&text.value).filter(|duration| !duration.is_zero()) {
        Some(value) => Ok(Placed { value, at: text.at }),
        None => wrong(
            text.at,
            format!(
                "ecn: {:?} is no duration; write a positive number and its unit: us, ms or s, as in \"5ms\"",
                text.value
            ),
        ),
    }
}

fn read_group_shares(name: &str, value: &WrittenValue<'_>) -> Result<Vec<(Placed<String>, Weight)>, Mistake> {
    let DeValue::Table(table) = value.get_ref() else {
        return wrong(start(value), format!("`{name}` is a table of classes and weights, as in video = 3"));
    };
    entries(table)
        .into_iter()
        .map(|(name, at, value)| Ok((Placed { value: name.to_owned(), at }, read_weight(value)?)))
        .collect()
}
