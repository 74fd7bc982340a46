//! Reads the key `sockets` of a class: the users whose sockets may have leaves of their own in it.

use super::super::error::{Mistake, meant, wrong};
use super::{WrittenValue, entries, kind, number_of, read_users, start, text_of};
use crate::weight::Weight;
use toml::de::DeValue;

const KEYS: [&str; 3] = ["from", "max", "weight"];
const EXAMPLE: &str = "sockets = { from = [\"alice\"], max = 1000, weight = \"1..100\" }";
/// The most sockets of a user in a class, unless the policy states another number.
const DEFAULT_SOCKETS: u32 = 1000;
/// The range of weights, unless the policy states another one: turns measured in bytes express these weights
/// well.
const DEFAULT_WEIGHTS: (u32, u32) = (1, 100);
/// The highest allowed ratio of two weights. A turn of the heaviest socket has as many packets as this ratio.
const MAX_RATIO: f64 = 1000.0;

/// The value of the key.
#[derive(Debug)]
pub(in super::super) struct WrittenSockets {
    pub(in super::super) from: Vec<String>,
    pub(in super::super) max: u32,
    pub(in super::super) weights: (Weight, Weight),
}

pub(super) fn read_sockets(value: &WrittenValue<'_>) -> Result<WrittenSockets, Mistake> {
    let DeValue::Table(table) = value.get_ref() else {
        let what = kind(value.get_ref());
        return wrong(start(value), format!("`sockets` is a table, as in {EXAMPLE}, not {what}"));
    };
    let (mut from, mut max, mut weights) = (None, DEFAULT_SOCKETS, None);
    for (key, at, value) in entries(table) {
        match key {
            "from" => from = Some((read_users("from", value)?, at)),
            "max" => max = read_max(value)?,
            "weight" => weights = Some(read_weights(value)?),
            _ => return wrong(at, format!("sockets: unknown key `{key}`; {}", meant(key, &KEYS))),
        }
    }
    match from {
        Some((from, _)) if !from.is_empty() => {
            let whole = |weight: u32| weight.to_string().parse().expect("a weight because it is positive");
            let weights = weights.unwrap_or((whole(DEFAULT_WEIGHTS.0), whole(DEFAULT_WEIGHTS.1)));
            Ok(WrittenSockets { from, max, weights })
        }
        Some((_, at)) => {
            wrong(at, "sockets: `from` names no user; name those who may ask, or leave `sockets` out")
        }
        None => wrong(
            start(value),
            format!("sockets: `from` is missing, the users who may ask for a leaf; write {EXAMPLE}"),
        ),
    }
}

fn read_max(value: &WrittenValue<'_>) -> Result<u32, Mistake> {
    let number = number_of(value).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number > 0).map_or_else(
        || {
            let what = kind(value.get_ref());
            wrong(
                start(value),
                format!("sockets: `max` is the most sockets of each user, a whole number from 1, not {what}"),
            )
        },
        Ok,
    )
}

fn read_weights(value: &WrittenValue<'_>) -> Result<(Weight, Weight), Mistake> {
    let text = text_of("weight", "the lowest and the highest weight, as in \"1..100\"", value)?;
    let range = text.value.split_once("..").and_then(|(min, max)| {
        Some((min.parse::<Weight>().ok()?, max.trim_start_matches('=').parse::<Weight>().ok()?))
    });
    match range {
        Some((min, max)) if min.to_f64() > max.to_f64() => {
            wrong(text.at, format!("sockets: the lowest weight {min} is over the highest one, {max}"))
        }
        Some((min, max)) if max.to_f64() / min.to_f64() > MAX_RATIO => wrong(
            text.at,
            format!("sockets: the highest weight is at most {MAX_RATIO} times the lowest one, {min}"),
        ),
        Some(range) => Ok(range),
        None => wrong(
            text.at,
            format!(
                "sockets: {:?} is no range of weights; write the lowest and the highest one, as in \"1..100\"",
                text.value
            ),
        ),
    }
}
