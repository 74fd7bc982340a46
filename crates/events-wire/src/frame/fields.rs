//! Keys and fields of events in frames.
//!
//! ```text
//!   2 bytes: length of the key, 2 bytes: number of fields, the key
//!   each field, ascending by name:   length of the name (1), the name, kind (1), value
//!   kind 0: whole number (8)   1: decimal, IEEE 754 (8)   2: false   3: true   4: text after its length (2)
//! ```
//! A decimal with an integral value of 64 bits is encoded as a whole number, and NaN has a single bit
//! pattern, so that each value has one form.

use super::MAX_KEY;
use super::reader::{Bad, FrameReader};
use unisono_eventchannel::{FieldSet, FieldValue, Numeric};

/// Checks that a frame can hold a key and fields. The error names the part that is too long.
#[inline]
pub fn check(key: &str, fields: &FieldSet) -> Result<(), String> {
    let too_long =
        |what: &str, bytes: usize, most: usize| Err(format!("{what} of {bytes} bytes; at most {most}"));
    if key.len() > MAX_KEY {
        return too_long("a key", key.len(), MAX_KEY);
    }
    for (name, value) in fields.iter() {
        if name.len() > usize::from(u8::MAX) {
            return too_long("the name of a field", name.len(), usize::from(u8::MAX));
        }
        if let FieldValue::Text(text) = value
            && text.len() > usize::from(u16::MAX)
        {
            return too_long(&format!("the field `{name}`"), text.len(), usize::from(u16::MAX));
        }
    }
    Ok(())
}

/// Appends lengths, key and fields. A length that does not fit is written as the largest possible one, so
/// that the reader refuses the frame.
#[inline]
pub fn write(bytes: &mut Vec<u8>, key: &str, fields: &FieldSet) {
    let short = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes();
    let ([a, b], [c, d]) = (short(key.len()), short(fields.len()));
    bytes.extend_from_slice(&[a, b, c, d]);
    bytes.extend_from_slice(key.as_bytes());
    for (name, value) in fields.iter() {
        bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        bytes.extend(name.as_bytes());
        match value {
            FieldValue::Number(number) => match number.to_whole() {
                Some(whole) => {
                    bytes.push(0);
                    bytes.extend(whole.to_le_bytes());
                }
                None => {
                    bytes.push(1);
                    bytes.extend(number.to_f64().to_le_bytes());
                }
            },
            FieldValue::Bool(value) => bytes.push(2 + u8::from(*value)),
            FieldValue::Text(text) => {
                bytes.push(4);
                bytes.extend(short(text.len()));
                bytes.extend(text.as_bytes());
            }
        }
    }
}

impl<'a> FrameReader<'a> {
    /// Reads a key after its length, and fields after their count.
    #[inline]
    pub fn key_and_fields(&mut self) -> Result<(&'a str, FieldSet), Bad> {
        let (length, count) = (usize::from(self.short()?), self.short()?);
        if length > MAX_KEY {
            return Err(self.bad("a key longer than 1024 bytes"));
        }
        Ok((self.text_of(length)?, read(self, count)?))
    }
}

#[inline]
fn read(reader: &mut FrameReader<'_>, count: u16) -> Result<FieldSet, Bad> {
    let mut fields = FieldSet::new();
    let mut last: Option<&str> = None;
    for _ in 0..count {
        let [length] = reader.array()?;
        let name = reader.text_of(usize::from(length))?;
        if last.is_some_and(|last| last >= name) {
            return Err(reader.bad("fields that do not ascend by name"));
        }
        last = Some(name);
        let [kind] = reader.array()?;
        let value = match kind {
            0 => FieldValue::from(i64::from_le_bytes(reader.array()?)),
            1 => {
                let decimal = f64::from_le_bytes(reader.array()?);
                let number = Numeric::from(decimal);
                if number.to_whole().is_some() || number.to_f64().to_bits() != decimal.to_bits() {
                    return Err(reader.bad("a decimal that is written otherwise"));
                }
                FieldValue::Number(number)
            }
            2 | 3 => FieldValue::Bool(kind == 3),
            4 => {
                let length = reader.short()?;
                FieldValue::from(reader.text_of(usize::from(length))?)
            }
            _ => return Err(reader.bad("a field of an unknown kind")),
        };
        fields.set(name, value);
    }
    Ok(fields)
}
