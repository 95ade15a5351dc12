//! The seam between generation and execution: sequences that grow by tokens.
//!
//! A session owns a model's weights and the caches of its sequences. Everything above it (sampling,
//! stop strings, chats) sees token ids and logits only, and cannot tell which runtime it drives.

mod error;
mod iree;
mod mlx;
mod reference;
mod runtime;

pub use error::SessionError;
pub use iree::IreeSession;
pub use mlx::MlxSession;
pub use reference::ReferenceSession;

use mlxcel_ir::step::{Row, RowOutput, SequenceId, Ticket, Tokens};

/// What a session can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens that the cache of one sequence holds.
    pub context: usize,
    /// Entries of the vocabulary: the length of a row of logits.
    pub vocabulary: usize,
    /// Rows that one step may have.
    pub rows: usize,
}

/// What a session has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Steps submitted.
    pub steps: u64,
    /// Tokens processed in those steps.
    pub tokens: u64,
}

impl Statistics {
    /// Counts a step that was submitted.
    fn count(&mut self, rows: &[Row<'_>]) {
        let tokens = |row: &Row<'_>| match row.tokens {
            Tokens::Given(tokens) => tokens.len() as u64,
            Tokens::Chosen => 1,
        };
        self.steps += 1;
        self.tokens += rows.iter().map(tokens).sum::<u64>();
    }
}

/// A model being executed: sequences are created, extended by steps, forked, cut short and released.
///
/// A step appends the tokens of each [`Row`] to its sequence and returns what the row wants. Steps
/// run in the order in which they are submitted, and their tickets are waited for in that order;
/// a second step may be submitted before the first was waited for, which hides the host's work.
pub trait Session: Send {
    /// What the session can hold.
    fn limits(&self) -> Limits;

    /// Makes an empty sequence.
    ///
    /// # Errors
    /// If the runtime has no room for another sequence.
    fn create(&mut self) -> Result<SequenceId, SessionError>;

    /// Makes a sequence that starts with the tokens of `sequence`; both then grow independently.
    ///
    /// # Errors
    /// If there is no such sequence, or no room for another.
    fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, SessionError>;

    /// Drops the tokens of `sequence` after the first `length`.
    ///
    /// # Errors
    /// If there is no such sequence, or it is shorter than `length`; [`SessionError::Indivisible`] if
    /// the model has memories and `length` is neither all nor 0; [`SessionError::Failed`] if a step
    /// failed before `length`.
    fn truncate(&mut self, sequence: SequenceId, length: usize) -> Result<(), SessionError>;

    /// Frees `sequence`.
    ///
    /// # Errors
    /// If there is no such sequence.
    fn release(&mut self, sequence: SequenceId) -> Result<(), SessionError>;

    /// Tokens that `sequence` holds, submitted steps included.
    ///
    /// # Errors
    /// If there is no such sequence.
    fn length(&self, sequence: SequenceId) -> Result<usize, SessionError>;

    /// The cache of `sequence` as bytes that [`Session::restore`] of a session over the same model
    /// and runtime understands.
    ///
    /// # Errors
    /// If there is no such sequence, or a submitted step failed.
    fn save(&mut self, sequence: SequenceId) -> Result<Vec<u8>, SessionError>;

    /// Makes a sequence from what [`Session::save`] returned.
    ///
    /// # Errors
    /// If the bytes are not a saved sequence of this model.
    fn restore(&mut self, saved: &[u8]) -> Result<SequenceId, SessionError>;

    /// Starts a step over `rows`, at most one row for each sequence.
    ///
    /// # Errors
    /// If a row cannot be run; then no sequence has changed.
    fn submit(&mut self, rows: &[Row<'_>]) -> Result<Ticket, SessionError>;

    /// Waits for the oldest submitted step, whose ticket is `ticket`: one output for each row.
    ///
    /// # Errors
    /// If the step failed, or `ticket` is not the oldest.
    fn wait(&mut self, ticket: Ticket) -> Result<Vec<RowOutput>, SessionError>;

    /// What the session has done so far.
    fn statistics(&self) -> Statistics;
}
