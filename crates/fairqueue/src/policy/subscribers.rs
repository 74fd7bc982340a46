//! Subscribers of an access network: classes from a table of comma-separated values.
//!
//! ```toml
//! subscribers = { file = "subscribers.csv", rates = "download" }    # or subscribers = "subscribers.csv"
//! ```
//! ```csv
//! Name,Addresses,Rate,Ceiling,Parent
//! smith,"100.64.1.17, 2001:db8:1:17::/64",5mbit,50mbit,tower1
//! ```
//! The columns may come in any order. The names of LibreQoS's `ShapedDevices.csv` are known, too; there,
//! rates are numbers of Mbit/s. Rows with the same name are devices of one subscriber.
//!
//! A row becomes a class of a policy's text, so that a policy with its subscribers is an ordinary policy
//! ([`SubscribersFile::insert`]). A subscriber's weight is the guaranteed rate in Mbit/s. The guarantees hold
//! if the parent has as much ([`WithSubscribers::parse`] checks it).
//!
//! Cost: some microseconds a row.

use super::error::{Mistake, wrong};
use super::matcher::Network;
use super::read::{CLASS_LINES, HEADING, is_name, write_class};
use super::table_columns::{RateColumns, TableColumn, columns};
use super::table_rows::rows;
use super::{Policy, PolicyError};
use crate::hierarchy::ClassId;
use crate::rate::Rate;
use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use unisono_text::Position;

const KEY: &str = "subscribers";
pub(super) const MBIT: f64 = 1e6;
/// The tolerated relative shortfall of a guarantee, because weights are rounded.
const ROUNDING: f64 = 1e-6;

/// The key `subscribers` of a policy's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscribersFile {
    /// The file, as the policy names it.
    pub file: String,
    pub rates: RateColumns,
    /// The bytes of the text that the key and its value take.
    place: Range<usize>,
}

/// A policy's text with a class for each subscriber.
#[derive(Clone, Debug)]
pub struct WithSubscribers {
    text: String,
    /// The table's file, as the policy names it.
    file: String,
    /// The line of the text with the first subscriber.
    first_line: usize,
    /// The subscribers, in the order of their lines.
    rows: Vec<Subscriber>,
}

/// The text that has a mistake.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubscribersError {
    #[error(transparent)]
    InPolicy(PolicyError),
    #[error(transparent)]
    InTable(PolicyError),
}

#[derive(Clone, Debug)]
struct Subscriber {
    /// The line of the table.
    line: usize,
    name: String,
    networks: Vec<Network>,
    /// The guaranteed rate in bits a second.
    minimum: Option<Rate>,
    ceiling: Option<Rate>,
    parent: String,
}

impl SubscribersFile {
    /// Returns the key of a policy's text, if it has one. Errors in the rest of the text are left to
    /// [`Policy::parse`].
    pub fn in_policy(text: &str) -> Result<Option<Self>, PolicyError> {
        let Ok(document) = DeTable::parse(text) else { return Ok(None) };
        let found = document.get_ref().iter().find(|(key, _)| key.get_ref() == KEY);
        let Some((key, value)) = found else { return Ok(None) };
        let place = key.span().start..value.span().end;
        let text_of = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
        let expected = "expected the name of a file, as in subscribers = \"subscribers.csv\", or { file = \"subscribers.csv\", \
                        rates = \"upload\" }";
        let read = match value.get_ref() {
            DeValue::String(file) => Ok((file.clone().into_owned(), RateColumns::Download)),
            DeValue::Table(table) => (|| {
                let (mut file, mut rates) = (None, RateColumns::Download);
                for (key, value) in table.iter() {
                    match (key.get_ref().as_ref(), text_of(value.get_ref()).as_deref()) {
                        ("file", Some(name)) => file = Some(name.to_owned()),
                        ("rates", Some("download")) => rates = RateColumns::Download,
                        ("rates", Some("upload")) => rates = RateColumns::Upload,
                        _ => return wrong(key.span().start, expected),
                    }
                }
                match file {
                    Some(file) => Ok((file, rates)),
                    None => wrong(place.start, expected),
                }
            })(),
            _ => wrong(value.span().start, expected),
        };
        match read {
            Ok((file, rates)) => Ok(Some(Self { file, rates, place })),
            Err(mistake) => Err(in_text(text, mistake)),
        }
    }

    /// Inserts the subscribers of a table into the policy's text, from which this key was read. Fails if the
    /// table has a mistake.
    pub fn insert(&self, text: &str, table: &str) -> Result<WithSubscribers, PolicyError> {
        let rows = read_table(table, self.rates).map_err(|mistake| in_text(table, mistake))?;
        let mut whole = String::with_capacity(text.len() + 160 * rows.len());
        // a name in a comment may not end it
        let file = self.file.replace(char::is_control, " ");
        let _ = write!(whole, "{}# subscribers of {file}{}", &text[..self.place.start], {
            // the key's lines stay as many as they are, so that errors name the lines of the file
            let lines = text[self.place.clone()].matches('\n').count();
            "\n".repeat(lines)
        });
        whole.push_str(&text[self.place.end..]);
        if !whole.ends_with('\n') {
            whole.push('\n');
        }
        whole.push_str(HEADING);
        let first_line = whole.lines().count() + 1;
        for Subscriber { name, networks, minimum, ceiling, parent, .. } in &rows {
            let weight = minimum.map(|rate| rate.bits_per_second() as f64 / MBIT);
            write_class(&mut whole, name, weight, *ceiling, parent, networks);
        }
        Ok(WithSubscribers { text: whole, file, first_line, rows })
    }
}

impl WithSubscribers {
    /// Parses the policy. Fails if it has a mistake, or if a parent cannot guarantee the rates of all of its
    /// subscribers.
    pub fn parse(&self) -> Result<Policy, SubscribersError> {
        let row = |line: usize| self.rows.get(line.checked_sub(self.first_line)? / CLASS_LINES);
        let in_row = |row: &Subscriber, what| {
            SubscribersError::InTable(PolicyError { at: Position { line: row.line, column: 1 }, what })
        };
        let place = |at: Position| match row(at.line) {
            Some(row) => format!("{}:{}", self.file, row.line),
            None => format!("{at} of the policy"),
        };
        let policy = Policy::parse_naming(&self.text, &place).map_err(|error| match row(error.at.line) {
            Some(row) => in_row(row, format!("`{}`: {}", row.name, error.what)),
            None => SubscribersError::InPolicy(error),
        })?;
        let guarantees = policy.guarantees();
        for row in &self.rows {
            let Some((minimum, class)) = row.minimum.zip(policy.hierarchy.find(&row.name)) else { continue };
            if let Some(what) = broken_promise(&policy, &guarantees, class, minimum.bits_per_second() as f64)
            {
                return Err(in_row(row, what));
            }
        }
        Ok(policy)
    }
}

/// Says why a subscriber's class does not get the bits a second that its row promises, if so.
pub(super) fn broken_promise(
    policy: &Policy,
    guarantees: &[f64],
    class: ClassId,
    promised: f64,
) -> Option<String> {
    let (gets, class) = (guarantees[class.index()], policy.hierarchy.class(class));
    (gets < promised * (1.0 - ROUNDING)).then(|| {
        let (parent, has) = (&policy.hierarchy.class(class.parent).name, guarantees[class.parent.index()]);
        format!(
            "`{}` is promised {:.1} mbit, and gets {:.1} of the {:.1} mbit of `{parent}` while all need theirs; lower \
             the guaranteed rates (a weight of a subscriber is a guaranteed rate in Mbit/s), or raise the weight of \
             `{parent}`",
            class.name,
            promised / MBIT,
            gets / MBIT,
            has / MBIT
        )
    })
}

fn read_table(table: &str, rates: RateColumns) -> Result<Vec<Subscriber>, Mistake> {
    let rows = rows(table)?;
    let mut rows = rows.into_iter();
    let Some((head_at, head)) = rows.next() else {
        return wrong(
            0,
            "the table is empty; its first line names the columns, such as Name,Addresses,Rate,Ceiling,Parent",
        );
    };
    let columns = columns(head_at, &head, rates)?;
    let mut subscribers: Vec<Subscriber> = Vec::new();
    let (mut names, mut owners) = (HashMap::<String, usize>::new(), HashMap::<Network, usize>::new());
    let mut line = LineCursor { text: table, passed: 0, line: 1 };
    for (at, fields) in rows {
        if fields.len() != columns.len() {
            let what = format!("{} fields in a table of {} columns", fields.len(), columns.len());
            return wrong(at, what);
        }
        let subscriber = read_row(line.advance_to(at), at, &columns, &fields)?;
        let place = subscribers.len();
        let place = *names.entry(subscriber.name.clone()).or_insert(place);
        for network in &subscriber.networks {
            if let Some(owner) = owners.insert(*network, place) {
                let (owner, line) = (&subscribers.get(owner).unwrap_or(&subscriber).name, subscriber.line);
                let first = subscribers.iter().find(|known| known.networks.contains(network));
                let first = first.map_or(line, |known| known.line);
                return wrong(at, format!("{network} is an address of `{owner}` already (line {first})"));
            }
        }
        match subscribers.get_mut(place) {
            None => subscribers.push(subscriber),
            Some(first) => {
                let same = |one: &Subscriber| (one.minimum, one.ceiling, one.parent.clone());
                if same(first) != same(&subscriber) {
                    let what = format!(
                        "`{}` has other rates or another parent than in line {}; the devices of a subscriber share one class",
                        first.name, first.line
                    );
                    return wrong(at, what);
                }
                first.networks.extend(subscriber.networks);
            }
        }
    }
    Ok(subscribers)
}

fn read_row(
    line: usize,
    at: usize,
    columns: &[Option<TableColumn>],
    fields: &[(usize, String)],
) -> Result<Subscriber, Mistake> {
    let mut row = Subscriber {
        line,
        name: String::new(),
        networks: Vec::new(),
        minimum: None,
        ceiling: None,
        parent: String::new(),
    };
    for (column, (at, field)) in columns.iter().zip(fields) {
        let field = field.trim();
        match column {
            Some(TableColumn::Name) => row.name = class_name(*at, field)?,
            Some(TableColumn::Parent) if !field.is_empty() => row.parent = class_name(*at, field)?,
            Some(TableColumn::Addresses) => {
                for part in field.split([',', ';', ' ']).filter(|part| !part.is_empty()) {
                    read_addresses(*at, part, &mut row.networks)?;
                }
            }
            Some(TableColumn::Minimum) if !field.is_empty() => row.minimum = Some(read_rate(*at, field)?),
            Some(TableColumn::Ceiling) if !field.is_empty() => row.ceiling = Some(read_rate(*at, field)?),
            _ => {}
        }
    }
    if let Some((minimum, ceiling)) =
        row.minimum.zip(row.ceiling).filter(|(minimum, ceiling)| minimum > ceiling)
    {
        return wrong(at, format!("the guaranteed rate {minimum} is above the ceiling {ceiling}"));
    }
    if row.networks.is_empty() {
        return wrong(at, format!("`{}` has no address", row.name));
    }
    Ok(row)
}

/// Returns the name of a class for a name in the table, in which characters that are not allowed there are
/// replaced by "-".
fn class_name(at: usize, field: &str) -> Result<String, Mistake> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let name: String = field.chars().map(|letter| if allowed(letter) { letter } else { '-' }).collect();
    match is_name(&name) && name != super::ROOT {
        true => Ok(name),
        false => {
            wrong(at, format!("{field:?} is no name for a class; use 1 to 64 of a-z, A-Z, 0-9, - and _"))
        }
    }
}

/// Reads a rate with a unit, or a number of Mbit/s.
fn read_rate(at: usize, field: &str) -> Result<Rate, Mistake> {
    let with_unit = match field.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        true => format!("{field}mbit"),
        false => field.to_owned(),
    };
    with_unit.parse().or_else(|error| wrong(at, format!("{error}")))
}

/// Reads an address, a network, or the first and the last address of a range.
fn read_addresses(at: usize, part: &str, networks: &mut Vec<Network>) -> Result<(), Mistake> {
    if let Some((first, last)) = part.split_once('-') {
        let ends = (first.parse::<IpAddr>(), last.parse::<IpAddr>());
        match ends {
            (Ok(IpAddr::V4(first)), Ok(IpAddr::V4(last))) if first <= last => {
                let address =
                    |bits: u128| Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).into();
                networks.extend(cover(first.to_bits().into(), last.to_bits().into(), 32, address));
            }
            (Ok(IpAddr::V6(first)), Ok(IpAddr::V6(last))) if first <= last => {
                networks.extend(cover(first.to_bits(), last.to_bits(), 128, |bits| {
                    Ipv6Addr::from_bits(bits).into()
                }));
            }
            _ => {
                let what = format!(
                    "{part:?} is no range; write the first and the last address, as in 10.0.0.1-10.0.0.9"
                );
                return wrong(at, what);
            }
        }
        return Ok(());
    }
    match part.parse() {
        Ok(network) => networks.push(network),
        Err(error) => return wrong(at, format!("address: {error}")),
    }
    Ok(())
}

/// Returns the networks that together have all addresses from `first` to `last`.
fn cover(mut first: u128, last: u128, bits: u8, address: impl Fn(u128) -> IpAddr) -> Vec<Network> {
    let mut networks = Vec::new();
    loop {
        // the largest network that begins here and does not go beyond the end
        let mut size = u32::from(bits).min(first.trailing_zeros());
        while size > 0 && size < 128 && (first | ((1 << size) - 1)) > last || size == 128 && last != u128::MAX
        {
            size -= 1;
        }
        let whole = if size >= 128 { u128::MAX } else { (1 << size) - 1 };
        networks.extend(Network::new(address(first), bits - size as u8));
        match (first | whole).checked_add(1).filter(|next| *next <= last) {
            Some(next) => first = next,
            None => return networks,
        }
    }
}

/// Finds the lines of ascending offsets in one pass.
struct LineCursor<'a> {
    text: &'a str,
    passed: usize,
    line: usize,
}

impl LineCursor<'_> {
    fn advance_to(&mut self, offset: usize) -> usize {
        self.line += self.text[self.passed..offset].matches('\n').count();
        self.passed = offset;
        self.line
    }
}

fn in_text(text: &str, Mistake { at, what }: Mistake) -> PolicyError {
    PolicyError { at: Position::at_offset(text, at), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "rate = \"1gbit\"\ndefault = \"rest\"\nsubscribers = \"s.csv\"\n\
        [class.tower1]\nceiling = \"200mbit\"\nweight = 200\n[class.rest]\n[class]\n";

    fn whole(table: &str) -> Result<Policy, String> {
        let key = SubscribersFile::in_policy(POLICY).expect("it is sound").expect("it is there");
        assert_eq!((key.file.as_str(), key.rates), ("s.csv", RateColumns::Download));
        let whole = key.insert(POLICY, table).map_err(|error| error.to_string())?;
        whole.parse().map_err(|error| match error {
            SubscribersError::InTable(error) => error.to_string(),
            SubscribersError::InPolicy(error) => format!("policy {error}"),
        })
    }

    fn networks(policy: &Policy, name: &str) -> Vec<String> {
        let class = policy.hierarchy.find(name).expect("it is there");
        let rules = policy.rules.iter().filter(|rule| rule.class == class);
        rules.filter_map(|rule| rule.matcher.address).map(|network| network.to_string()).collect()
    }

    #[test]
    fn a_table_in_any_order_of_columns_becomes_classes() {
        let policy = whole(
            "\u{23} a comment\r\nParent,Name,Note,Ceiling,Rate,Addresses\r\n\
             tower1,smith,\"a \"\"note\"\",\nof two lines\",50mbit,5mbit,\"100.64.1.17, 2001:db8:1:17::/64\"\r\n\r\n\
             ,J. Jones,,20,2.5,100.64.1.18\r\n\
             tower1,smith,second device,50mbit,5mbit,100.64.2.0/30\r\n",
        )
        .expect("it is sound");
        assert_eq!(networks(&policy, "smith"), ["100.64.1.17/32", "2001:db8:1:17::/64", "100.64.2.0/30"]);
        let smith = policy.hierarchy.find("smith").expect("it is there");
        assert_eq!(policy.hierarchy.class(policy.hierarchy.class(smith).parent).name, "tower1");
        assert_eq!(policy.ceiling(smith).bits_per_second(), 50_000_000);
        let jones = policy.hierarchy.find("J--Jones").expect("it is there");
        assert_eq!(policy.ceiling(jones).bits_per_second(), 20_000_000);
        assert!((policy.hierarchy.class(jones).weight.to_f64() - 2.5).abs() < 1e-9);
    }

    #[test]
    fn the_table_of_libreqos_is_read_for_either_direction() {
        let table = "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,Download Min Mbps,\
            Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment\n\
            1,968 Circle St.,1,Device 1,tower1,,\"100.64.0.1, 100.64.0.14\",,25,5,50,10,\n";
        let of = |text: &str| {
            let key = SubscribersFile::in_policy(text).expect("it is sound").expect("it is there");
            key.insert(text, table).expect("it is sound").parse().expect("it is sound")
        };
        let rest = "[class.tower1]\nweight = 99\n";
        for (key, minimum, ceiling) in [
            ("\"s.csv\"", 25.0, 50),
            ("{ file = \"s.csv\" }", 25.0, 50),
            ("{ file = \"s.csv\", rates = \"upload\" }", 5.0, 10),
        ] {
            let policy = of(&format!("rate = \"1gbit\"\nsubscribers = {key}\n{rest}"));
            let one = policy.hierarchy.find("1").expect("it is there");
            assert_eq!(networks(&policy, "1"), ["100.64.0.1/32", "100.64.0.14/32"]);
            assert!((policy.hierarchy.class(one).weight.to_f64() - minimum).abs() < 1e-9);
            assert_eq!(policy.ceiling(one).bits_per_second(), ceiling * 1_000_000);
        }
    }

    #[test]
    fn a_range_is_covered_exactly() {
        let policy =
            whole("Name,Address\na,10.0.0.3-10.0.0.9\nb,fd00::ffff-fd00::1:0\nc,0.0.0.0-9.255.255.255\n");
        let policy = policy.expect("it is sound");
        assert_eq!(networks(&policy, "a"), ["10.0.0.3/32", "10.0.0.4/30", "10.0.0.8/31"]);
        assert_eq!(networks(&policy, "b"), ["fd00::ffff/128", "fd00::1:0/128"]);
        assert_eq!(networks(&policy, "c"), ["0.0.0.0/5", "8.0.0.0/7"]);
        let all =
            whole("Name,Address\na,0.0.0.0-255.255.255.255\nb,::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n");
        let all = all.expect("it is sound");
        assert_eq!(
            (networks(&all, "a"), networks(&all, "b")),
            (vec!["0.0.0.0/0".to_owned()], vec!["::/0".to_owned()])
        );
    }

    #[test]
    fn mistakes_name_the_line_of_the_table() {
        for (table, expected) in [
            ("", "1:1: the table is empty"),
            (
                "Name;Addresses\n",
                "1:1: the columns are separated by semicolons; separate them by commas",
            ),
            ("name\taddresses\n", "1:1: the columns are separated by tabs"),
            ("Name\n", "1:1: there is no column `Addresses`; the table has Name"),
            ("Nme,Addresses\n", "1:1: unknown column `Nme`; did you mean `Name`?"),
            (
                "Name,Addresses,Rates\na,10.0.0.1,5\n",
                "1:16: unknown column `Rates`; did you mean `Rate`?",
            ),
            ("name,addresses,ceilling\n", "1:16: unknown column `ceilling`; did you mean `Ceiling`?"),
            (
                "Name,Addresses,Download\n",
                "1:16: unknown column `Download`; expected one of Name, Addresses, Rate, Ceiling, Parent, Comment, or a \
                 column of LibreQoS, such as Download Max Mbps",
            ),
            (
                "Circuit ID,IPv4,Downlod Max Mbps\n",
                "1:17: unknown column `Downlod Max Mbps`; did you mean `Download Max Mbps`?",
            ),
            ("Name,Addresses,Rate,Guaranteed\n", "1:21: `Guaranteed` repeats an earlier column"),
            ("Name,Addresses\n\na,10.0.0.1\nb\n", "4:1: 1 fields in a table of 2 columns"),
            ("Name,Addresses\na,10.0.0.300\n", "2:3: address: `10.0.0.300` is no address"),
            ("Name,Addresses\na,10.0.0.9-10.0.0.1\n", "2:3: \"10.0.0.9-10.0.0.1\" is no range"),
            ("Name,Addresses\na,\n", "2:1: `a` has no address"),
            ("Name,Addresses\n\"a,10.0.0.1\n", "2:1: the quotation mark"),
            ("Name,Addresses\n\"a\"b,10.0.0.1\n", "2:4: a comma or the end"),
            (
                "Name,Addresses\na,10.0.0.1\nb,10.0.0.2\nc,10.0.0.1\n",
                "4:1: 10.0.0.1/32 is an address of `a` already (line 2)",
            ),
            (
                "Name,Addresses\na,10.0.0.1 10.0.0.1\n",
                "2:1: 10.0.0.1/32 is an address of `a` already (line 2)",
            ),
            (
                "Name,Addresses,Parent\na,10.0.0.1,tower2\n",
                "2:1: `a`: parent: there is no class `tower2`; did you mean `tower1`?",
            ),
            (
                "Name,Addresses\na,10.0.0.0/8\nb,10.0.0.1\n",
                "3:1: `b`: this match is shadowed: all its packets go to { address = \"10.0.0.0/8\" } of `a` at s.csv:2; move",
            ),
            (
                "Name,Addresses,Ceiling,Parent\na,10.0.0.1,300,tower1\n",
                "2:1: `a`: the ceiling 300mbit is over that of `tower1` above it (at 5:11 of the policy)",
            ),
            (
                "Name,Addresses,Rate,Ceiling\na,10.0.0.1,9mbit,5mbit\n",
                "2:1: the guaranteed rate 9mbit is above the ceiling",
            ),
            ("Name,Addresses,Rate\na,10.0.0.1,fast\n", "2:12: "),
            ("Name,Addresses,Rate\nrest,10.0.0.1,5\n", "2:1: `rest`: "),
            (
                "Name,Addresses,Rate,Parent\na,10.0.0.1,150,tower1\nb,10.0.0.2,150,tower1\n",
                "2:1: `a` is promised 150.0 mbit, and gets 100.0 of the 200.0 mbit of `tower1`",
            ),
            (
                "Name,Addresses,Rate\na,10.0.0.1,1\na,10.0.0.2,2\n",
                "3:1: `a` has other rates or another parent",
            ),
        ] {
            let said = whole(table).expect_err(table);
            assert!(said.starts_with(expected), "{table:?}\n  said      {said}\n  expected  {expected}");
        }
    }

    #[test]
    fn mistakes_of_the_policy_keep_their_place() {
        let text = "rate = \"1gbit\"\nsubscribers = { file = \"s.csv\" }\n[class.a]\nwieght = 2\n";
        let key = SubscribersFile::in_policy(text).expect("it is sound").expect("it is there");
        let error = key.insert(text, "Name,Addresses\nb,10.0.0.1\n").expect("it is sound").parse();
        assert!(matches!(error, Err(SubscribersError::InPolicy(error)) if error.at.line == 4));
        for wrong in
            ["subscribers = 5", "subscribers = { fil = \"a\" }", "subscribers = { rates = \"upload\" }"]
        {
            assert!(SubscribersFile::in_policy(wrong).is_err(), "{wrong}");
        }
        assert_eq!(SubscribersFile::in_policy("rate = \"1gbit\"\n[class.subscribers]\n"), Ok(None));
        assert_eq!(SubscribersFile::in_policy("no policy"), Ok(None));
    }
}
