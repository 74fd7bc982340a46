//! The lexer for DOT: tokens, each with its byte offset.

use crate::format::ReadError;
use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A name, a number, or a text in quotes or in `<>`. Only a bare name, without quotes or `<>`, can be a
    /// keyword.
    Name {
        text: String,
        bare: bool,
    },
    Open,
    Close,
    OpenList,
    CloseList,
    Equals,
    Colon,
    /// `--` or `->`.
    Edge,
    /// `;` or `,`.
    Separator,
    End,
}

impl Token {
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Name { text, bare: true } if text.eq_ignore_ascii_case(word))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name { text, .. } => return write!(f, "{text:?}"),
            Self::Open => "{",
            Self::Close => "}",
            Self::OpenList => "[",
            Self::CloseList => "]",
            Self::Equals => "=",
            Self::Colon => ":",
            Self::Edge => "an edge",
            Self::Separator => "; or ,",
            Self::End => "the end of the file",
        })
    }
}

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// A token that was read ahead but not consumed, and its byte offset.
    ahead: Option<(usize, Token)>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Self { text, at, ahead: None }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the byte offset of the next token, or of white space before it.
    pub(super) fn at(&self) -> usize {
        self.ahead.as_ref().map_or(self.at, |(at, _)| *at)
    }

    pub(super) fn peek(&mut self) -> Result<(usize, Token), ReadError> {
        if self.ahead.is_none() {
            self.ahead = Some(self.read()?);
        }
        Ok(self.ahead.clone().unwrap_or((self.at, Token::End)))
    }

    pub(super) fn next(&mut self) -> Result<(usize, Token), ReadError> {
        match self.ahead.take() {
            Some(token) => Ok(token),
            None => self.read(),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn read(&mut self) -> Result<(usize, Token), ReadError> {
        self.space()?;
        let at = self.at;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok((at, Token::End)) };
        let token = match first {
            '{' => Token::Open,
            '}' => Token::Close,
            '[' => Token::OpenList,
            ']' => Token::CloseList,
            '=' => Token::Equals,
            ':' => Token::Colon,
            ';' | ',' => Token::Separator,
            '-' if rest.starts_with("--") || rest.starts_with("->") => {
                self.at += 2;
                return Ok((at, Token::Edge));
            }
            '"' => return Ok((at, self.quoted()?)),
            '<' => return Ok((at, self.html()?)),
            c if c.is_alphanumeric() || matches!(c, '_' | '.' | '-') => return Ok((at, self.bare()?)),
            c => {
                let problem = format!("{c:?} means nothing here; put names with it in quotes");
                return Err(ReadError::at(self.text, at, "", problem));
            }
        };
        self.at += 1;
        Ok((at, token))
    }

    /// Skips white space, `// ...`, `/* ... */`, and lines that begin with `#`.
    fn space(&mut self) -> Result<(), ReadError> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let line_start =
                self.text[..self.at].trim_end_matches([' ', '\t']).ends_with('\n') || self.at == 0;
            if trimmed.starts_with("//") || trimmed.starts_with('#') && line_start {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                let Some(end) = comment.find("*/") else {
                    return Err(ReadError::at(self.text, self.at, "", "the comment does not end"));
                };
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn bare(&mut self) -> Result<Token, ReadError> {
        let rest = self.rest();
        let number = rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
        let mut end = 0;
        for (at, c) in rest.char_indices() {
            let part = if number {
                c.is_ascii_digit() || c == '.' || c == '-' && at == 0
            } else {
                c.is_alphanumeric() || c == '_'
            };
            if !part {
                break;
            }
            end = at + c.len_utf8();
        }
        let text = &rest[..end];
        if number && text.parse::<f64>().is_err() {
            let problem = format!("{text:?} is no number; put names like it in quotes");
            return Err(ReadError::at(self.text, self.at, "", problem));
        }
        if number && rest[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            let problem = format!("a name that begins with a digit, as {text:?} here, needs quotes");
            return Err(ReadError::at(self.text, self.at, "", problem));
        }
        self.at += end;
        Ok(Token::Name { text: text.to_owned(), bare: true })
    }

    /// Reads `"..."`, with `\"` and line continuations, or several such texts that `+` joins.
    fn quoted(&mut self) -> Result<Token, ReadError> {
        let start = self.at;
        let mut text = String::new();
        loop {
            self.at += 1;
            let mut end = None;
            let mut chars = self.rest().char_indices();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        end = Some(at);
                        break;
                    }
                    '\\' => match chars.next() {
                        Some((_, '"')) => text.push('"'),
                        Some((_, '\n')) => {}
                        Some((_, other)) => text.extend(['\\', other]),
                        None => {}
                    },
                    c => text.push(c),
                }
            }
            let Some(end) = end else {
                return Err(ReadError::at(self.text, start, "", "the quotes do not end"));
            };
            self.at += end + 1;
            let after = self.at;
            self.space()?;
            if self.rest().starts_with('+') {
                self.at += 1;
                self.space()?;
                if self.rest().starts_with('"') {
                    continue;
                }
                return Err(ReadError::at(self.text, self.at, "", "expected text in quotes after +"));
            }
            self.at = after;
            return Ok(Token::Name { text, bare: false });
        }
    }

    /// Reads `<...>` with pairs of `<` and `>` inside.
    fn html(&mut self) -> Result<Token, ReadError> {
        let rest = self.rest();
        let mut depth = 0_usize;
        for (at, c) in rest.char_indices() {
            match c {
                '<' => depth += 1,
                '>' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.at += at + 1;
                return Ok(Token::Name { text: rest[..=at].to_owned(), bare: false });
            }
        }
        Err(ReadError::at(self.text, self.at, "", "the < does not end"))
    }
}
