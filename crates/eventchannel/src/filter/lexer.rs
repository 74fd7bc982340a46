//! The lexer of the filter language: lexemes with their positions.

use super::FilterError;
use crate::value::{FieldValue, Numeric};
use unisono_text::Position;

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Lexeme {
    /// The name of a field or a keyword.
    Name(String),
    Literal(FieldValue),
    /// A comparison, an arithmetic or logical operator, a parenthesis or a comma.
    Sign(&'static str),
    End,
}

#[derive(Clone, Debug)]
pub(super) struct PlacedLexeme {
    pub(super) at: Position,
    pub(super) lexeme: Lexeme,
    /// The text as written, for messages.
    pub(super) text: String,
}

const SIGNS: [&str; 16] =
    ["==", "!=", "<=", ">=", "&&", "||", "<", ">", "(", ")", ",", "+", "-", "*", "/", "!"];

/// Returns all lexemes of a text; the last one is [`Lexeme::End`].
pub(super) fn words(text: &str) -> Result<Vec<PlacedLexeme>, FilterError> {
    let mut words = Vec::new();
    let (mut rest, mut at) = (text, Position { line: 1, column: 1 });
    loop {
        let blank = rest.find(|letter: char| !letter.is_whitespace()).unwrap_or(rest.len());
        advance(&mut at, &rest[..blank]);
        rest = &rest[blank..];
        let Some(first) = rest.chars().next() else {
            words.push(PlacedLexeme { at, lexeme: Lexeme::End, text: "the end".to_owned() });
            return Ok(words);
        };
        let (lexeme, length) = match first {
            '"' => text_literal(rest).ok_or_else(|| wrong(at, "a text without its closing quote"))?,
            _ if first.is_ascii_digit() => number(rest).map_err(|what| wrong(at, what))?,
            _ if first.is_alphabetic() || first == '_' => {
                let of_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.');
                let length = rest.find(|letter| !of_name(letter)).unwrap_or(rest.len());
                let name = match &rest[..length] {
                    "true" => Lexeme::Literal(true.into()),
                    "false" => Lexeme::Literal(false.into()),
                    name => Lexeme::Name(name.to_owned()),
                };
                (name, length)
            }
            _ => match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
                Some(sign) => (Lexeme::Sign(sign), sign.len()),
                None if first == '=' => return Err(wrong(at, "`=` is no comparison; write `==`")),
                None => {
                    let what = "begins nothing; quote texts, and write names of letters, digits, _ and .";
                    return Err(wrong(at, format!("`{first}` {what}")));
                }
            },
        };
        let (word, after) = rest.split_at(length);
        words.push(PlacedLexeme { at, lexeme, text: format!("`{word}`") });
        advance(&mut at, word);
        rest = after;
    }
}

pub(super) fn wrong(at: Position, what: impl Into<String>) -> FilterError {
    FilterError { at, what: what.into() }
}

fn advance(at: &mut Position, over: &str) {
    for letter in over.chars() {
        match letter {
            '\n' => (at.line, at.column) = (at.line + 1, 1),
            _ => at.column += 1,
        }
    }
}

/// Reads a quoted text at the beginning of `rest`. Returns it, and its length in bytes, quotes included.
fn text_literal(rest: &str) -> Option<(Lexeme, usize)> {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((Lexeme::Literal(text.as_str().into()), at + 1)),
            '\\' => text.push(letters.next()?.1),
            _ => text.push(letter),
        }
    }
    None
}

/// Reads a number at the beginning of `rest`. Returns it, and its length in bytes.
fn number(rest: &str) -> Result<(Lexeme, usize), String> {
    let digits = |from: usize| {
        rest[from..].find(|letter: char| !letter.is_ascii_digit()).map_or(rest.len(), |end| from + end)
    };
    let whole = digits(0);
    let mut end = whole;
    if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|letter: char| letter.is_ascii_digit()) {
        end = digits(end + 1);
    }
    let exponent = rest[end..].strip_prefix(['e', 'E']).map(|after| after.trim_start_matches(['+', '-']));
    if exponent.is_some_and(|after| after.starts_with(|letter: char| letter.is_ascii_digit())) {
        let sign = rest[end + 1..].starts_with(['+', '-']);
        end = digits(end + 1 + usize::from(sign));
    }
    let text = &rest[..end];
    let number = match end == whole {
        true => text.parse::<i64>().ok().map(Numeric::from),
        false => text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Numeric::from),
    };
    let number = number.ok_or_else(|| match end == whole {
        true => format!("`{text}` does not fit 64 bits; write it with a decimal point"),
        false => format!("`{text}` is larger than any number; the largest has 308 zeros"),
    })?;
    Ok((Lexeme::Literal(FieldValue::Number(number)), end))
}
