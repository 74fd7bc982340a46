//! Reads the table `disk`: each class's purpose in using the disk, and the users of its requests.

use super::super::error::{Mistake, meant, wrong};
use super::super::units;
use super::{Placed, WrittenValue, entries, read_users, start, text_of, word_of};
use crate::cello::Purpose;
use toml::de::DeValue;
use unisono_time::Duration;

const KEYS: [&str; 3] = ["purpose", "deadline", "users"];

/// One class of the table.
#[derive(Debug)]
pub(in super::super) struct WrittenDisk {
    pub(in super::super) name: Placed<String>,
    pub(in super::super) purpose: Purpose,
    pub(in super::super) deadline: Option<Duration>,
    pub(in super::super) users: Option<Vec<String>>,
}

pub(super) fn read_disk(value: &WrittenValue<'_>) -> Result<Vec<WrittenDisk>, Mistake> {
    let DeValue::Table(table) = value.get_ref() else {
        return wrong(
            start(value),
            "`disk` is a table of classes, as in [disk.video] with purpose = \"interactive\"",
        );
    };
    entries(table).into_iter().map(|(name, at, value)| read_class(name, at, value)).collect()
}

fn read_class(name: &str, at: usize, value: &WrittenValue<'_>) -> Result<WrittenDisk, Mistake> {
    let DeValue::Table(table) = value.get_ref() else {
        return wrong(
            at,
            format!("disk: `{name}` is a table, as in [disk.{name}] with purpose = \"interactive\""),
        );
    };
    let (mut purpose, mut deadline, mut users) = (None, None, None);
    for (key, at, value) in entries(table) {
        match key {
            "purpose" => purpose = Some(read_purpose(value)?),
            "deadline" => deadline = Some(Placed { value: read_deadline(value)?, at }),
            "users" => users = Some(read_users("users", value)?),
            _ => return wrong(at, format!("disk: unknown key `{key}`; {}", meant(key, &KEYS))),
        }
    }
    if let (Some(_), Some(deadline)) = (&purpose, &deadline) {
        return wrong(
            deadline.at,
            "a class with a `deadline` is served by it, so it has no `purpose`; take one of them out",
        );
    }
    let purpose = match &deadline {
        Some(_) => Purpose::RealTime,
        None => purpose.unwrap_or_default(),
    };
    let name = Placed { value: name.to_owned(), at };
    Ok(WrittenDisk { name, purpose, deadline: deadline.map(|deadline| deadline.value), users })
}

fn read_purpose(value: &WrittenValue<'_>) -> Result<Purpose, Mistake> {
    const WORDS: [(&str, Purpose); 2] =
        [("interactive", Purpose::Interactive), ("throughput", Purpose::Throughput)];
    word_of("purpose", &WORDS, value).map(|purpose| purpose.value)
}

fn read_deadline(value: &WrittenValue<'_>) -> Result<Duration, Mistake> {
    let text = text_of("deadline", "a duration such as \"10ms\"", value)?;
    match units::duration(&text.value).filter(|duration| !duration.is_zero()) {
        Some(deadline) => Ok(deadline),
        None => wrong(
            text.at,
            format!(
                "deadline: {:?} is no duration; write a positive number and its unit: us, ms or s, as in \"10ms\"",
                text.value
            ),
        ),
    }
}
