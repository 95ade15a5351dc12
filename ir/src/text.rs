//! The text form of a graph, which reads back to the same graph.
//!
//! ```text
//! func @decode(%tokens: i32[B, T], %start: i32[B], %length: i32[B])
//!   weight @model.embed_tokens.weight: affine4(group = 64, scale = bf16)[49152, 576]
//!   state $cache.0: f32 cache heads 3 key 64 value 64
//! {
//!   %3 = embedding(%tokens) @model.embed_tokens.weight : f32[B, T, 576]  "embedding"
//!   %4 = take_row(%3, %length) : f32[B, 576]
//!   return hidden.0 = %3, last = %4
//! }
//! ```
//!
//! A value is an input by its name or a node by its number; numbers go on from the inputs. After the
//! operands of an op come its weights, its state, its attributes in braces, the type of its result
//! and the name of the node in quotes. A name that is not a letter or `_` followed by letters,
//! digits, `_`, `.` and `-` stands in quotes, with the escapes `\"`, `\\`, `\n`, `\r`, `\t` and
//! `\u{...}`. `//` starts a comment.
//!
//! [`parse`] checks the type of each node against [`crate::infer`]; what else makes a graph legal is
//! the concern of [`crate::verify`]. For every graph that verifies, `parse(&print(graph))` gives
//! an equal graph.

mod body;
mod declare;
mod lex;
mod parse;
mod print;

pub use parse::parse;
pub use print::print;

use crate::Graph;
use std::fmt;
use std::str::FromStr;

/// The longest text that [`parse`] reads, in bytes.
pub const LONGEST_TEXT: usize = 64 << 20;

/// Where and why a text is not a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What was expected and what is there.
    pub message: String,
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

impl FromStr for Graph {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text)
    }
}
