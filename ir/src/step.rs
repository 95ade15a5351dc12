//! How the graph of a decoder is called, and the vocabulary of its steps.
//!
//! Every decoder graph has the inputs [`TOKENS`] `i32[B, T]` (new tokens of each row, padded at the
//! end), [`START`] `i32[B]` (tokens that the row's cache already holds) and [`LENGTH`] `i32[B]` (how
//! many of the T are real). Its outputs are chosen from [`LOGITS`] (`f32[B, V]` after the last real
//! token, or `f32[B, T, V]`), [`TOKEN`] (`i32[B]`, the most likely next token) and the hidden states
//! `hidden.N` `f32[B, T, H]` after layer N, `f32[S, B, T, H]` of a model with `S` residual streams.
//! Cache rows past `start + length` are never attended to and may be overwritten.
//!
//! The graph of an encoder has these inputs, of which [`START`] is all zeros, and [`TOKEN_TYPES`]; its
//! outputs are chosen from [`STATES`], [`POOLED`], [`EMBEDDING`] and [`SCORES`], and it has no states.

/// Name of the input with the new tokens.
pub const TOKENS: &str = "tokens";
/// Name of the input with the position of each row's first new token.
pub const START: &str = "start";
/// Name of the input with the number of new tokens of each row.
pub const LENGTH: &str = "length";
/// Name of an encoder's input with the kind of each token, `i32[B, T]`: 0, or 1 in the second text of
/// a pair.
pub const TOKEN_TYPES: &str = "token_types";
/// Name of an encoder's output with the states after its last layer, `f32[B, T, H]`.
pub const STATES: &str = "hidden";
/// Name of an encoder's output with what its pooler makes of the first token, `f32[B, H]`.
pub const POOLED: &str = "pooled";
/// Name of an encoder's output with one vector for each row, `f32[B, D]`.
pub const EMBEDDING: &str = "embedding";
/// Name of an encoder's output with the scores of its classifier, `f32[B, N]`.
pub const SCORES: &str = "scores";
/// Name of the output with the logits.
pub const LOGITS: &str = "logits";
/// Name of the output with the most likely token.
pub const TOKEN: &str = "token";

/// Name of the output with the hidden state after layer `layer`, before the final norm.
pub fn hidden(layer: usize) -> String {
    format!("hidden.{layer}")
}

/// A sequence held by a runtime: its cache and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(pub u32);

/// The new tokens of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens<'a> {
    /// These tokens.
    Given(&'a [u32]),
    /// The one token that the sequence's previous step chose with [`Want::Token`]. It need not have
    /// reached the host yet, so the next step can be submitted while the previous one runs.
    Chosen,
}

/// What a row of a step shall return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing: a prefill chunk that is not the last.
    Nothing,
    /// The most likely next token.
    Token,
    /// The logits `[V]` after the last token.
    Logits,
    /// The logits `[T, V]` after each token.
    AllLogits,
}

/// One sequence's part of a step: a prefill chunk or a decode row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The sequence to extend.
    pub sequence: SequenceId,
    /// By which tokens.
    pub tokens: Tokens<'a>,
    /// What to return.
    pub want: Want,
}

/// What a row of a step returned.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOutput {
    /// Nothing was wanted.
    Nothing,
    /// The most likely next token.
    Token(u32),
    /// Logits, `[V]` or `[T, V]`.
    Logits(Vec<f32>),
}

/// A submitted step whose outputs were not read yet. Tickets are waited for in order.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Ticket(pub u64);
