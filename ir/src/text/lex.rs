//! From characters to words, numbers, strings and punctuation.

use super::ParseError;
use crate::verify::LONGEST_NAME;
use std::fmt;

/// Where a token starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Position {
    pub(super) fn error(self, message: impl Into<String>) -> ParseError {
        ParseError {
            line: self.line,
            column: self.column,
            message: message.into(),
        }
    }
}

/// A piece of text that means something.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A bare name.
    Word(String),
    /// A name in quotes, without them.
    Quoted(String),
    /// A number as written.
    Number(String),
    /// One of `( ) [ ] { } , : = % @ $`.
    Mark(char),
    /// The end of the text.
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(text) | Token::Number(text) => write!(f, "`{text}`"),
            Token::Quoted(text) => write!(f, "the name {text:?}"),
            Token::Mark(mark) => write!(f, "`{mark}`"),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

/// Whether `name` can stand without quotes.
pub(super) fn is_bare(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && name.starts_with(is_word_start)
        && name.chars().all(is_word_character)
        // These two are numbers.
        && name != "inf"
        && name != "nan"
}

fn is_word_start(character: char) -> bool {
    character.is_ascii_alphabetic() || character == '_'
}

fn is_word_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-')
}

/// Reads tokens from a text.
pub(super) struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    position: Position,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            rest: text.chars().peekable(),
            position: Position { line: 1, column: 1 },
        }
    }

    fn advance(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        if character == '\n' {
            self.position.line += 1;
            self.position.column = 1;
        } else {
            self.position.column += 1;
        }
        Some(character)
    }

    /// The next token and where it starts.
    pub(super) fn token(&mut self) -> Result<(Token, Position), ParseError> {
        self.skip_blanks()?;
        let start = self.position;
        let token = match self.rest.peek().copied() {
            None => Token::End,
            Some('"') => Token::Quoted(self.quoted(start)?),
            Some(first) if is_word_start(first) => {
                let word = self.run(is_word_character, start)?;
                match word.as_str() {
                    "inf" | "nan" => Token::Number(word),
                    _ => Token::Word(word),
                }
            }
            Some(first) if first.is_ascii_digit() || first == '-' => {
                let accepts = |character: char| {
                    character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '+')
                };
                Token::Number(self.run(accepts, start)?)
            }
            Some(
                mark @ ('(' | ')' | '[' | ']' | '{' | '}' | ',' | ':' | '=' | '%' | '@' | '$'),
            ) => {
                self.advance();
                Token::Mark(mark)
            }
            Some(other) => return Err(start.error(format!("unexpected character {other:?}"))),
        };
        Ok((token, start))
    }

    fn skip_blanks(&mut self) -> Result<(), ParseError> {
        while let Some(&next) = self.rest.peek() {
            if next == '/' {
                let start = self.position;
                self.advance();
                if self.rest.peek() != Some(&'/') {
                    return Err(start.error("expected `//` to start a comment, found `/`"));
                }
                while self.rest.peek().is_some_and(|&next| next != '\n') {
                    self.advance();
                }
            } else if matches!(next, ' ' | '\t' | '\r' | '\n') {
                self.advance();
            } else {
                break;
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        accepts: impl Fn(char) -> bool,
        start: Position,
    ) -> Result<String, ParseError> {
        let mut text = String::new();
        while let Some(&next) = self.rest.peek() {
            if !accepts(next) {
                break;
            }
            push(&mut text, next, start)?;
            self.advance();
        }
        Ok(text)
    }

    fn quoted(&mut self, start: Position) -> Result<String, ParseError> {
        self.advance();
        let mut text = String::new();
        loop {
            let here = self.position;
            let character = match self.advance() {
                None | Some('\n') => {
                    return Err(start.error("expected a closing `\"` on this line"));
                }
                Some('"') => return Ok(text),
                Some('\\') => self.escape(here)?,
                Some(other) => other,
            };
            push(&mut text, character, start)?;
        }
    }

    fn escape(&mut self, start: Position) -> Result<char, ParseError> {
        match self.advance() {
            Some(same @ ('"' | '\\')) => Ok(same),
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('u') if self.rest.peek() == Some(&'{') => {
                self.advance();
                let digits = self.run(|next| next.is_ascii_hexdigit(), start)?;
                let character = u32::from_str_radix(&digits, 16)
                    .ok()
                    .and_then(char::from_u32);
                match (character, self.advance()) {
                    (Some(character), Some('}')) => Ok(character),
                    _ => Err(start.error("expected `\\u{...}` with the number of a character")),
                }
            }
            _ => Err(start.error("expected one of the escapes \\\" \\\\ \\n \\r \\t \\u{...}")),
        }
    }
}

fn push(text: &mut String, character: char, start: Position) -> Result<(), ParseError> {
    if text.len() >= LONGEST_NAME {
        return Err(start.error(format!("expected at most {LONGEST_NAME} bytes in one word")));
    }
    text.push(character);
    Ok(())
}
