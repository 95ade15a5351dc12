//! From a text to its graph.

use super::lex::{Lexer, Position, Token};
use super::{LONGEST_TEXT, ParseError};
use crate::verify::HIGHEST_RANK;
use crate::{DType, Dim, Graph, Symbol, TensorType};
use std::collections::HashMap;

/// Reads the text form of a graph.
///
/// # Errors
/// The first place where the text is not a graph: its line and column, what was expected and what
/// is there. A node whose stated type is not the type that its op gives is such a place.
pub fn parse(text: &str) -> Result<Graph, ParseError> {
    if text.len() > LONGEST_TEXT {
        let start = Position { line: 1, column: 1 };
        return Err(start.error(format!("expected at most {LONGEST_TEXT} bytes of text")));
    }
    let mut parser = Parser::new(text)?;
    parser.header()?;
    while parser.statement()? {}
    parser.expect(&Token::End)?;
    Ok(parser.graph)
}

pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token, not consumed yet.
    pub(super) next: Token,
    /// Where it starts.
    pub(super) here: Position,
    pub(super) graph: Graph,
    pub(super) inputs: HashMap<String, u32>,
    pub(super) weights: HashMap<String, u32>,
    pub(super) states: HashMap<String, u32>,
}

pub(super) type Parsed<T> = Result<T, ParseError>;

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parsed<Self> {
        let mut lexer = Lexer::new(text);
        let (next, here) = lexer.token()?;
        Ok(Self {
            lexer,
            next,
            here,
            graph: Graph::default(),
            inputs: HashMap::new(),
            weights: HashMap::new(),
            states: HashMap::new(),
        })
    }

    /// Consumes the next token.
    pub(super) fn take(&mut self) -> Parsed<Token> {
        let (next, here) = self.lexer.token()?;
        self.here = here;
        Ok(std::mem::replace(&mut self.next, next))
    }

    pub(super) fn unexpected<T>(&self, expected: &str) -> Parsed<T> {
        let found = &self.next;
        Err(self
            .here
            .error(format!("expected {expected}, found {found}")))
    }

    /// Whether the next token is `mark`, which is then consumed.
    pub(super) fn accept(&mut self, mark: char) -> Parsed<bool> {
        let found = self.next == Token::Mark(mark);
        if found {
            self.take()?;
        }
        Ok(found)
    }

    pub(super) fn expect(&mut self, token: &Token) -> Parsed<()> {
        if self.next != *token {
            return self.unexpected(&token.to_string());
        }
        // The end stays the end.
        if *token != Token::End {
            self.take()?;
        }
        Ok(())
    }

    pub(super) fn mark(&mut self, mark: char) -> Parsed<()> {
        self.expect(&Token::Mark(mark))
    }

    pub(super) fn keyword(&mut self, word: &str) -> Parsed<()> {
        self.expect(&Token::Word(word.into()))
    }

    pub(super) fn word(&mut self, expected: &str) -> Parsed<String> {
        match self.next {
            Token::Word(_) => match self.take()? {
                Token::Word(word) => Ok(word),
                _ => self.unexpected(expected),
            },
            _ => self.unexpected(expected),
        }
    }

    /// A name, bare or in quotes.
    pub(super) fn name(&mut self, expected: &str) -> Parsed<String> {
        match self.next {
            Token::Word(_) | Token::Quoted(_) => match self.take()? {
                Token::Word(name) | Token::Quoted(name) => Ok(name),
                _ => self.unexpected(expected),
            },
            _ => self.unexpected(expected),
        }
    }

    pub(super) fn size(&mut self, expected: &str) -> Parsed<usize> {
        let size = match &self.next {
            Token::Number(number) => number.parse::<i64>().ok(),
            _ => None,
        };
        match size.and_then(|size| usize::try_from(size).ok()) {
            Some(size) => {
                self.take()?;
                Ok(size)
            }
            None => self.unexpected(expected),
        }
    }

    pub(super) fn dtype(&mut self) -> Parsed<DType> {
        let dtype = match &self.next {
            Token::Word(word) => word.parse::<DType>().ok(),
            _ => None,
        };
        match dtype {
            Some(dtype) => {
                self.take()?;
                Ok(dtype)
            }
            None => self.unexpected("an element type"),
        }
    }

    /// `open item, item close`, with at least the marks.
    pub(super) fn list<T>(
        &mut self,
        open: char,
        close: char,
        item: impl Fn(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.mark(open)?;
        let mut items = Vec::new();
        if self.accept(close)? {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.accept(close)? {
                return Ok(items);
            }
            if !self.accept(',')? {
                return self.unexpected(&format!("`,` or `{close}`"));
            }
        }
    }

    pub(super) fn ty(&mut self) -> Parsed<TensorType> {
        let dtype = self.dtype()?;
        let start = self.here;
        let shape = self.list('[', ']', Self::dim)?;
        if shape.len() > HIGHEST_RANK {
            return Err(start.error(format!("expected at most {HIGHEST_RANK} dimensions")));
        }
        Ok(TensorType { dtype, shape })
    }

    fn dim(&mut self) -> Parsed<Dim> {
        let symbol = match &self.next {
            Token::Word(word) => Symbol::ALL.into_iter().find(|s| s.name() == word),
            _ => None,
        };
        match symbol {
            Some(symbol) => {
                self.take()?;
                Ok(Dim::Symbol(symbol))
            }
            None => self
                .size("a dimension (a whole number, `B`, `T` or `S`)")
                .map(Dim::Fixed),
        }
    }

    pub(super) fn shape(&mut self) -> Parsed<Vec<usize>> {
        let start = self.here;
        let shape = self.list('[', ']', |parser| parser.size("a whole number"))?;
        if shape.len() > HIGHEST_RANK {
            return Err(start.error(format!("expected at most {HIGHEST_RANK} dimensions")));
        }
        Ok(shape)
    }
}
