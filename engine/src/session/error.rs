//! What can go wrong in a session.

use mlxcel_ir::step::SequenceId;

/// Why a session refused a request or failed in it.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The sequence was never created, or was released.
    #[error("there is no sequence {}; it was released or belongs to another session", .0.0)]
    UnknownSequence(SequenceId),
    /// A sequence would outgrow the context.
    #[error(
        "a sequence of {length} tokens cannot take {new} more: the context holds {context} tokens"
    )]
    ContextExceeded {
        /// Tokens that the sequence holds.
        length: usize,
        /// Tokens to append.
        new: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// A sequence cannot be cut to more than it holds.
    #[error("a sequence of {length} tokens cannot be cut to {to}")]
    TooShort {
        /// Tokens that the sequence holds.
        length: usize,
        /// Tokens to keep.
        to: usize,
    },
    /// A sequence of a model with memories, which know nothing of earlier tokens.
    #[error(
        "a sequence of {length} tokens cannot be cut to {to}: this model's memories, or its caches of the latest \
         tokens, can only be kept whole or emptied"
    )]
    Indivisible {
        /// Tokens that the sequence holds.
        length: usize,
        /// Tokens to keep.
        to: usize,
    },
    /// A sequence of which a step failed.
    #[error("a step of sequence {} failed: cut it to at most {intact} tokens, or release it", .sequence.0)]
    Failed {
        /// The sequence.
        sequence: SequenceId,
        /// Tokens that are certain.
        intact: usize,
    },
    /// A token id the model has no embedding for.
    #[error("token {token} is outside the model's vocabulary of {vocabulary} entries")]
    UnknownToken {
        /// The id.
        token: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// A row without tokens.
    #[error("a row of a step needs at least one token")]
    EmptyRow,
    /// A step with two rows for one sequence, or with more rows than the session takes.
    #[error("a step takes at least one row, at most {most}, each of another sequence")]
    Rows {
        /// The most rows of a step.
        most: usize,
    },
    /// A row continues by a token that no step has chosen.
    #[error("the last step of sequence {} chose no token to continue with", .0.0)]
    NothingChosen(SequenceId),
    /// A ticket that is not the oldest one.
    #[error("steps are waited for in the order of their submission")]
    TicketOrder,
    /// What the runtime said.
    #[error(transparent)]
    Runtime(Box<dyn std::error::Error + Send + Sync>),
}

impl SessionError {
    /// An error of a runtime.
    pub fn runtime(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Runtime(error.into())
    }
}
