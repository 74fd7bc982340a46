//! Events, notices and counters in words and in JSON.

use crate::columns::{self, Column};
use crate::machine_output;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use unisono_events_client::{
    ConsumerStatistics, FieldSet, FieldValue, ReceivedEvent, Reception, Statistics, now,
};
use unisono_text::counted;

/// The origin of an event that was published before its subscription began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PastEvent {
    /// Its topic keeps it for late subscribers.
    Retained,
    /// The log has it.
    Logged,
}

/// Returns one line for a received event or notice. In words, control characters are escaped, because a
/// publisher could otherwise control the reader's terminal with them; JSON has its own escapes.
pub(super) fn line(reception: &Reception, as_json: bool, past: PastEvent) -> serde_json::Result<String> {
    match as_json {
        true => machine_output::json("unisono-events-received-1", &received_as_json(reception)?),
        false => Ok(escaped(received_in_words(reception, past))),
    }
}

fn escaped(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

fn received_as_json(reception: &Reception) -> serde_json::Result<Value> {
    Ok(match reception {
        Reception::Event(event) => event_as_json(event),
        Reception::Notice { topic, notice, .. } => {
            let mut object = serde_json::to_value(notice)?;
            if let (Some(topic), Value::Object(object)) = (topic, &mut object) {
                object.insert("topic".to_owned(), (**topic).into());
            }
            object
        }
        Reception::Rejected { reason, .. } => json!({ "rejected": reason }),
        Reception::Reconnected { away } => {
            let away = u64::try_from(away.as_micros()).unwrap_or(u64::MAX);
            json!({ "notice": "reconnected", "away_us": away })
        }
        _ => json!({}),
    })
}

fn received_in_words(reception: &Reception, past: PastEvent) -> String {
    match reception {
        Reception::Event(event) => event_in_words(event, past),
        Reception::Notice { topic, notice, .. } => {
            format!("({}{notice})", topic.as_ref().map(|topic| format!("{topic}: ")).unwrap_or_default())
        }
        Reception::Rejected { reason, .. } => format!("(refused: {reason})"),
        Reception::Reconnected { away } => {
            format!("(connected again after {away:.1?}; only who resumes has missed nothing)")
        }
        _ => String::new(),
    }
}

fn event_in_words(event: &ReceivedEvent, past: PastEvent) -> String {
    let mut text = format!("{} #{}", event.topic, event.sequence);
    if let Some(key) = &event.key {
        let _ = write!(text, " [{key}]");
    }
    for (name, value) in event.fields.iter() {
        let _ = write!(text, " {name}={}", value_as_json(value));
    }
    let past = if past == PastEvent::Logged { "logged" } else { "retained" };
    for (is, word) in [(event.late, "late"), (event.retained, past), (event.repeated > 0, "repeated")] {
        if is {
            let _ = write!(text, " {word}");
        }
    }
    let payload = event.payload.bytes();
    match std::str::from_utf8(&payload) {
        Ok(payload) => drop(write!(text, ": {payload}")),
        Err(_) => drop(write!(text, ": {} bytes", payload.len())),
    }
    text
}

fn event_as_json(event: &ReceivedEvent) -> Value {
    let payload = event.payload.bytes();
    let mut object = json!({
        "topic": &*event.topic, "key": event.key, "fields": fields_as_json(&event.fields),
        "supplier": event.supplier, "sequence": event.sequence, "criticality": event.criticality,
        "bytes": payload.len(), "age_us": (now() - event.published).as_micros(),
        "late": event.late, "retained": event.retained, "repeated": event.repeated,
        "delivery": event.delivery,
    });
    if let Value::Object(object) = &mut object {
        match std::str::from_utf8(&payload) {
            Ok(text) => object.insert("payload".to_owned(), text.into()),
            Err(_) => {
                let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
                object.insert("payload_hex".to_owned(), hex.into())
            }
        };
        if let Some(deadline) = event.deadline {
            let left = i128::from(deadline.as_nanos()) - i128::from(now().as_nanos());
            object.insert("due_in_us".to_owned(), json!(left / 1000));
        }
        if !event.with.is_empty() {
            object.insert("with".to_owned(), event.with.iter().map(event_as_json).collect());
        }
    }
    object
}

fn fields_as_json(fields: &FieldSet) -> Value {
    Value::Object(
        fields.iter().map(|(name, value)| (name.to_string(), value_as_json(value))).collect::<Map<_, _>>(),
    )
}

pub(super) fn value_as_json(value: &FieldValue) -> Value {
    match value {
        FieldValue::Number(number) => {
            number.to_whole().map_or_else(|| json!(number.to_f64()), |whole| json!(whole))
        }
        FieldValue::Bool(value) => json!(value),
        FieldValue::Text(text) => json!(&**text),
    }
}

/// Returns the name of a consumer; for a group, with the number of its programs.
pub(super) fn consumer(of: &ConsumerStatistics) -> String {
    match (&*of.name, &of.programs) {
        (name, Some(_)) => format!("{name} x{}", of.members),
        ("", None) => "-".to_owned(),
        (name, None) => name.to_owned(),
    }
}

/// Returns the numbers of refusals by reason, in brackets.
pub(super) fn refusals(statistics: &Statistics) -> String {
    match statistics.refusals.is_empty() {
        true => String::new(),
        false => {
            let each = statistics.refusals.iter().map(|(kind, count)| format!("{kind} {count}"));
            format!(" ({})", each.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Returns the topics with the most missed deadlines, one line each.
pub(super) fn missed_topics(statistics: &Statistics) -> String {
    let mut missed: Vec<_> = statistics.missed_by_topic.iter().collect();
    missed.sort_by(|(_, one), (_, other)| other.cmp(one));
    let mut text = String::new();
    for (place, (topic, missed)) in missed.into_iter().take(10).enumerate() {
        if place == 0 {
            text.push_str("\nmissed deadlines by topic:");
        }
        let _ = write!(text, "\n{topic:<46} {missed:>12}");
    }
    text
}

/// Returns the counters of all consumers as a table with lines of at most `width` characters.
pub(super) fn counters(statistics: &Statistics, width: usize) -> String {
    let departed =
        (statistics.departed.matched > 0).then_some(("(departed)".to_owned(), &statistics.departed));
    let consumers = statistics.consumers.iter().map(|of| (consumer(of), of));
    let (names, rows): (Vec<String>, Vec<&ConsumerStatistics>) = consumers.chain(departed).unzip();
    let column = |rank, width, head, cell: fn(&ConsumerStatistics) -> u64| Column {
        rank,
        width,
        head,
        cells: rows.iter().map(|row| cell(row).to_string()).collect(),
    };
    let columns = vec![
        column(1, 10, "matched", |row| row.matched),
        column(0, 10, "delivered", |row| row.delivered),
        column(4, 7, "full", |row| row.dropped_full),
        column(5, 7, "late", |row| row.dropped_late),
        column(2, 7, "lost", |row| row.lost),
        column(3, 7, "missed", |row| row.missed),
        column(6, 7, "waiting", |row| row.waiting),
    ];
    let mut text = columns::lines("consumer", &names, columns, width) + "\n";
    let _ = writeln!(
        text,
        "{}, {} refused{}, {} sent away{}",
        counted(statistics.clients, "program"),
        statistics.refused,
        refusals(statistics),
        counted(statistics.sent_away, "program"),
        missed_topics(statistics)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_all_others_are_as_they_came() {
        let text = "a\u{1b}[31m\tb\n\u{9b}\u{7f}\\ \u{fc} \u{4e2d}".to_owned();
        assert_eq!(escaped(text), "a\\u{1b}[31m\\tb\\n\\u{9b}\\u{7f}\\ \u{fc} \u{4e2d}");
        assert_eq!(escaped("plain \\".to_owned()), "plain \\");
    }
}
