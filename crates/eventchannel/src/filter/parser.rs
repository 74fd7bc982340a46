//! Parses lexemes into a [`Clause`] by recursive descent, and checks the types of the values.

use super::clause::{Clause, Comparator, Operand, Predicate};
use super::lexer::{Lexeme, PlacedLexeme, words, wrong};
use super::{FilterError, MAX_FILTER};
use crate::value::{FieldValue, Numeric};
use std::sync::Arc;
use unisono_text::Position;

/// Maximum nesting depth of parentheses and `not`. Each level takes stack: with a thread's stack of 2 MiB, a
/// level may take up to 32 KiB.
const MAX_DEPTH: usize = 64;
/// Maximum number of arithmetic operations in a filter. A chain of them is evaluated by recursion as deep as
/// the chain is long: with a thread's stack of 2 MiB, an operation may take up to 8 KiB.
const MAX_CALCULATIONS: usize = 256;

pub(super) fn parse(text: &str) -> Result<Clause, FilterError> {
    if text.len() > MAX_FILTER {
        let what = format!("a filter of {} bytes; at most {MAX_FILTER}", text.len());
        return Err(wrong(Position { line: 1, column: 1 }, what));
    }
    let mut parser = FilterParser { words: words(text)?, next: 0, depth: 0, calculations: 0 };
    let at = parser.peek().at;
    if parser.peek().lexeme == Lexeme::End {
        return Err(wrong(at, "the filter ends where a condition is expected"));
    }
    let clause = parser.disjunction()?.condition(at)?;
    match &parser.peek().lexeme {
        Lexeme::End => Ok(clause),
        _ => Err(parser.expected("`and`, `or` or the end")),
    }
}

/// The kind of a parsed part of a filter.
enum FilterPart {
    Condition(Clause),
    Value(Operand),
}

impl FilterPart {
    fn condition(self, at: Position) -> Result<Clause, FilterError> {
        let found = match self {
            Self::Condition(clause) => return Ok(clause),
            Self::Value(Operand::Field(name)) => {
                return Ok(Clause::Is(Predicate::Equal(name, true.into())));
            }
            Self::Value(Operand::Literal(FieldValue::Bool(value))) => return Ok(Clause::Always(value)),
            Self::Value(Operand::Literal(FieldValue::Text(_))) => "a text",
            Self::Value(Operand::Literal(FieldValue::Number(_)) | Operand::Calculated(_)) => "a number",
        };
        Err(wrong(at, format!("expected a condition, found {found}; compare it with something")))
    }

    fn value(self, at: Position) -> Result<Operand, FilterError> {
        match self {
            Self::Value(operand) => Ok(operand),
            Self::Condition(_) => {
                Err(wrong(at, "a condition is no value; join conditions with `and` or `or`"))
            }
        }
    }
}

struct FilterParser {
    words: Vec<PlacedLexeme>,
    next: usize,
    depth: usize,
    calculations: usize,
}

impl FilterParser {
    fn peek(&self) -> &PlacedLexeme {
        // the last lexeme is the end, and the parser never goes beyond it
        &self.words[self.next.min(self.words.len() - 1)]
    }

    fn step(&mut self) -> PlacedLexeme {
        let word = self.peek().clone();
        self.next += 1;
        word
    }

    fn takes_sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        let Lexeme::Sign(sign) = self.peek().lexeme else { return None };
        signs.contains(&sign).then(|| {
            self.next += 1;
            sign
        })
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is = matches!(&self.peek().lexeme, Lexeme::Name(name) if name == word);
        self.next += usize::from(is);
        is
    }

    fn expected(&self, what: &str) -> FilterError {
        let PlacedLexeme { at, text, .. } = self.peek();
        wrong(*at, format!("expected {what}, found {text}"))
    }

    fn deeper<T>(
        &mut self,
        then: impl FnOnce(&mut Self) -> Result<T, FilterError>,
    ) -> Result<T, FilterError> {
        if self.depth == MAX_DEPTH {
            return Err(wrong(self.peek().at, format!("nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let done = then(self);
        self.depth -= 1;
        done
    }

    fn disjunction(&mut self) -> Result<FilterPart, FilterError> {
        self.joined(Self::conjunction, "or", "||", Clause::any)
    }

    fn conjunction(&mut self) -> Result<FilterPart, FilterError> {
        self.joined(Self::negation, "and", "&&", Clause::all)
    }

    fn joined(
        &mut self,
        part: impl Fn(&mut Self) -> Result<FilterPart, FilterError>,
        word: &str,
        sign: &'static str,
        join: impl Fn(Vec<Clause>) -> Clause,
    ) -> Result<FilterPart, FilterError> {
        let at = self.peek().at;
        let first = part(self)?;
        let mut clauses = Vec::new();
        let mut first = Some(first);
        loop {
            if !self.takes_word(word) && self.takes_sign(&[sign]).is_none() {
                return match first {
                    Some(alone) => Ok(alone),
                    None => Ok(FilterPart::Condition(join(clauses))),
                };
            }
            if let Some(first) = first.take() {
                clauses.push(first.condition(at)?);
            }
            let at = self.peek().at;
            clauses.push(part(self)?.condition(at)?);
        }
    }

    fn negation(&mut self) -> Result<FilterPart, FilterError> {
        if self.takes_word("not") || self.takes_sign(&["!"]).is_some() {
            let at = self.peek().at;
            let clause = self.deeper(Self::negation)?.condition(at)?;
            return Ok(FilterPart::Condition(clause.negated()));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<FilterPart, FilterError> {
        if self.takes_word("exists") {
            let word = self.peek().clone();
            let Lexeme::Name(name) = word.lexeme else { return Err(self.expected("the name of a field")) };
            self.next += 1;
            return Ok(FilterPart::Condition(Clause::Is(Predicate::Exists(name.into()))));
        }
        let left_at = self.peek().at;
        let left = self.sum()?;
        let at = self.peek().at;
        if let Some(sign) = self.takes_sign(&["==", "!=", "<=", ">=", "<", ">"]) {
            let left = left.value(left_at)?;
            let right_at = self.peek().at;
            let right = self.sum()?.value(right_at)?;
            return compare(at, left, Comparator::from_sign(sign), right);
        }
        let negated = matches!(&self.words.get(self.next + 1), Some(PlacedLexeme { lexeme: Lexeme::Name(name), .. }) if name == "in")
            && self.takes_word("not");
        if self.takes_word("in") {
            let name = field(left, left_at, "in")?;
            let values = self.list()?;
            let one_of = Clause::Is(Predicate::one_of(Arc::clone(&name), values));
            return Ok(FilterPart::Condition(match negated {
                true => Clause::all(vec![Clause::Is(Predicate::Exists(name)), one_of.negated()]),
                false => one_of,
            }));
        }
        if self.takes_word("starts_with") {
            let name = field(left, left_at, "starts_with")?;
            let Lexeme::Literal(FieldValue::Text(prefix)) = self.peek().lexeme.clone() else {
                return Err(self.expected("a text in double quotes"));
            };
            self.next += 1;
            return Ok(FilterPart::Condition(Clause::Is(Predicate::Starts(name, prefix))));
        }
        Ok(left)
    }

    fn list(&mut self) -> Result<Vec<FieldValue>, FilterError> {
        if self.takes_sign(&["("]).is_none() {
            return Err(self.expected("`(`"));
        }
        let mut values = Vec::new();
        loop {
            let minus = self.takes_sign(&["-"]).is_some();
            let literal = match self.peek().lexeme.clone() {
                Lexeme::Literal(FieldValue::Number(number)) if minus => {
                    FieldValue::Number(Numeric::from(0).calculate('-', number))
                }
                Lexeme::Literal(literal) if !minus => literal,
                _ => return Err(self.expected("a number, a text, true or false")),
            };
            self.next += 1;
            values.push(literal);
            if self.takes_sign(&[")"]).is_some() {
                return Ok(values);
            }
            if self.takes_sign(&[","]).is_none() {
                return Err(self.expected("`,` or `)`"));
            }
        }
    }

    fn sum(&mut self) -> Result<FilterPart, FilterError> {
        self.calculated(Self::product, &["+", "-"])
    }

    fn product(&mut self) -> Result<FilterPart, FilterError> {
        self.calculated(Self::factor, &["*", "/"])
    }

    fn calculated(
        &mut self,
        part: impl Fn(&mut Self) -> Result<FilterPart, FilterError>,
        signs: &[&'static str],
    ) -> Result<FilterPart, FilterError> {
        let at = self.peek().at;
        let mut left = part(self)?;
        while let Some(sign) = self.takes_sign(signs) {
            self.calculations += 1;
            if self.calculations > MAX_CALCULATIONS {
                return Err(wrong(at, format!("more than {MAX_CALCULATIONS} calculations in one filter")));
            }
            let one = left.value(at)?;
            let right_at = self.peek().at;
            let other = part(self)?.value(right_at)?;
            left = FilterPart::Value(
                Operand::calculated(one, sign, other)
                    .ok_or_else(|| wrong(at, format!("`{sign}` needs numbers")))?,
            );
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<FilterPart, FilterError> {
        if self.takes_sign(&["-"]).is_some() {
            let at = self.peek().at;
            let operand = self.deeper(Self::factor)?.value(at)?;
            let zero = Operand::Literal(0.into());
            let negative = Operand::calculated(zero, "-", operand);
            return negative.map(FilterPart::Value).ok_or_else(|| wrong(at, "`-` needs numbers"));
        }
        if self.takes_sign(&["("]).is_some() {
            let inner = self.deeper(Self::disjunction)?;
            return match self.takes_sign(&[")"]) {
                Some(_) => Ok(inner),
                None => Err(self.expected("`)`")),
            };
        }
        const WORDS: [&str; 6] = ["and", "or", "not", "in", "exists", "starts_with"];
        match &self.peek().lexeme {
            Lexeme::Name(name) if !WORDS.contains(&name.as_str()) => {
                let name = name.as_str().into();
                self.next += 1;
                Ok(FilterPart::Value(Operand::Field(name)))
            }
            Lexeme::Literal(_) => match self.step().lexeme {
                Lexeme::Literal(value) => Ok(FilterPart::Value(Operand::Literal(value))),
                _ => Err(self.expected("a value")),
            },
            _ => Err(self.expected("a field, a number, a text or `(`")),
        }
    }
}

fn field(part: FilterPart, at: Position, before: &str) -> Result<Arc<str>, FilterError> {
    match part {
        FilterPart::Value(Operand::Field(name)) => Ok(name),
        _ => Err(wrong(at, format!("expected a field before `{before}`"))),
    }
}

fn compare(at: Position, left: Operand, how: Comparator, right: Operand) -> Result<FilterPart, FilterError> {
    if how.orders() {
        for side in [&left, &right] {
            match side {
                Operand::Literal(FieldValue::Text(_)) => {
                    return Err(wrong(at, "texts compare with ==, !=, in and starts_with only"));
                }
                Operand::Literal(FieldValue::Bool(_)) => {
                    return Err(wrong(at, "truth values compare with == and != only"));
                }
                _ => {}
            }
        }
    }
    Ok(FilterPart::Condition(Clause::compared(left, how, right)))
}
