//! Traces: classes and arrivals on one link, as JSON.
//!
//! ```json
//! {"rate": 100000000,
//!  "tree": {"name": "root", "children": [{"name": "http", "weight": 2}, {"name": "rt", "weight": 1}]},
//!  "packets": [{"id": 0, "t": "0.0006", "class": "http", "len": 1500}]}
//! ```
//! `rate` is in bits a second, `t` in seconds as a decimal text, `len` in bytes. A class may have `"order":
//! "deadline"`; a packet may have a `deadline` (in the form of `t`) and a `flow`.

use crate::hierarchy::{ClassId, ClassSpec, Hierarchy, HierarchyError, Order};
use crate::packet::{NO_DEADLINE, Packet};
use crate::rate::Rate;
use crate::seconds::{Decimal, MAX_PLACES};
use crate::weight::{Weight, WeightError};
use serde::Deserialize;
use serde_json::{Number, Value};
use unisono_time::Instant;

/// Classes and arrivals on one link.
///
/// ```
/// use unisono_fairqueue::{Scheduler, Trace};
///
/// let trace = Trace::parse(
///     r#"{"rate": 8000, "tree": {"name": "root", "children": [{"name": "a", "weight": 1}]},
///         "packets": [{"id": 0, "t": "0", "class": "a", "len": 500}]}"#,
/// )?;
/// let departures = trace.departures(&mut Scheduler::new(trace.hierarchy().clone()));
/// assert_eq!(departures[0].end.to_string(), "0.5");
/// # Ok::<(), unisono_fairqueue::TraceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) rate: Rate,
    pub(crate) hierarchy: Hierarchy,
    pub(crate) arrivals: Vec<Arrival>,
}

#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Decimal,
    pub(crate) class: ClassId,
    /// The packet. Its item is its position in the trace.
    pub(crate) packet: Packet<usize>,
    pub(crate) id: Value,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The text is not JSON, or does not have the form of a trace; the message includes the position.
    #[error("{0}")]
    Form(#[from] serde_json::Error),
    #[error("classes are nested more than {max} deep")]
    TooDeep { max: usize },
    #[error("rate: expected a whole number of bits a second, at least 1 and at most {max}, not {rate}")]
    Rate { rate: Number, max: u64 },
    #[error("class `{class}` has no weight; give it one, such as \"weight\": 1")]
    NoWeight { class: String },
    #[error("class `{class}`: {error}")]
    Weight { class: String, error: WeightError },
    #[error("tree: {0}")]
    Tree(#[from] HierarchyError),
    #[error("packets[{number}]: {what}")]
    Packet {
        /// The packet's position in `packets`, from 0.
        number: usize,
        what: String,
    },
}

/// The highest rate that a trace may name, in bits a second.
const MAX_RATE: u64 = 1_000_000_000_000_000;
/// The most levels of classes in a trace.
const MAX_DEPTH: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rate: Number,
    tree: TraceClass,
    packets: Vec<TracePacket>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceClass {
    name: String,
    weight: Option<Number>,
    #[serde(default)]
    order: ClassOrder,
    #[serde(default)]
    children: Vec<TraceClass>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum ClassOrder {
    #[default]
    Fifo,
    Deadline,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TracePacket {
    id: Value,
    t: String,
    class: String,
    len: u64,
    deadline: Option<String>,
    #[serde(default)]
    flow: u32,
}

impl Trace {
    /// Reads a trace. The error names the mistake and its position.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        // a class and the list of its children are two levels of JSON
        if depth(text) > 2 * MAX_DEPTH {
            return Err(TraceError::TooDeep { max: MAX_DEPTH });
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        reader.disable_recursion_limit();
        let file = File::deserialize(&mut reader)?;
        reader.end()?;
        let rate = file.rate.as_u64().filter(|rate| *rate <= MAX_RATE).and_then(Rate::new);
        let rate = rate.ok_or(TraceError::Rate { rate: file.rate, max: MAX_RATE })?;
        let hierarchy = Hierarchy::new(class(file.tree, Depth::Root)?)?;
        let arrivals = file.packets.into_iter().enumerate().map(|(number, sent)| {
            arrival(&hierarchy, number, sent).map_err(|what| TraceError::Packet { number, what })
        });
        let mut arrivals: Vec<Arrival> = arrivals.collect::<Result<_, _>>()?;
        arrivals.sort_by_key(|arrival| arrival.at.scaled(MAX_PLACES)); // stable
        Ok(Self { rate, hierarchy, arrivals })
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    pub fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }
}

#[derive(PartialEq)]
enum Depth {
    Root,
    Below,
}

fn class(from: TraceClass, place: Depth) -> Result<ClassSpec, TraceError> {
    let weight = match from.weight {
        Some(weight) => weight
            .to_string()
            .parse()
            .map_err(|error| TraceError::Weight { class: from.name.clone(), error })?,
        None if place == Depth::Root => Weight::ONE,
        None => return Err(TraceError::NoWeight { class: from.name }),
    };
    let mut spec = ClassSpec::new(from.name).weighing(weight);
    spec.order = match from.order {
        ClassOrder::Fifo => Order::Fifo,
        ClassOrder::Deadline => Order::Deadline,
    };
    spec.children =
        from.children.into_iter().map(|child| class(child, Depth::Below)).collect::<Result<_, _>>()?;
    Ok(spec)
}

fn arrival(hierarchy: &Hierarchy, number: usize, sent: TracePacket) -> Result<Arrival, String> {
    let decimal = |key, text: &str| {
        Decimal::parse(text).ok_or_else(|| {
            format!(
                "{key}: expected seconds as a decimal text such as \"0.0006\", with at most {MAX_PLACES} places, \
                 not \"{text}\""
            )
        })
    };
    let at = decimal("t", &sent.t)?;
    let class = hierarchy.find(&sent.class).ok_or_else(|| format!("there is no class `{}`", sent.class))?;
    if !hierarchy.is_leaf(class) {
        return Err(format!("class: `{}` has children, and packets wait at leaves", sent.class));
    }
    let length = u32::try_from(sent.len).ok().filter(|len| (1..=Packet::<usize>::MAX_LENGTH).contains(len));
    let length = length.ok_or_else(|| {
        format!("len: expected 1 to {} bytes, not {}", Packet::<usize>::MAX_LENGTH, sent.len)
    })?;
    let deadline = match sent.deadline {
        None => NO_DEADLINE,
        Some(text) => {
            u64::try_from(decimal("deadline", &text)?.scaled(9)).map_or(NO_DEADLINE, Instant::from_nanos)
        }
    };
    Ok(
        Arrival {
            at,
            class,
            packet: Packet { length, flow: sent.flow, deadline, item: number },
            id: sent.id,
        },
    )
}

/// Returns how deep brackets outside of strings are nested.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
