//! What can go wrong, each with the name of the thing that is wrong.

/// An error of the runtime. After any of them the runtime stays usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A node that cannot be executed.
    #[error("node {node} ({op}) of function `{graph}`: {reason}")]
    Node {
        /// The function.
        graph: String,
        /// The node's name in backticks, or its number.
        node: String,
        /// The op's name in the text form.
        op: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A weight that is missing or does not fit its declaration.
    #[error("weight `{weight}` of function `{graph}`: {reason}")]
    Weight {
        /// The function.
        graph: String,
        /// The weight.
        weight: String,
        /// What is wrong.
        reason: String,
    },
    /// An input that was not given, or has another type than declared.
    #[error("input `{input}` of function `{graph}` must be {expected}, is {got}")]
    Input {
        /// The function.
        graph: String,
        /// The input.
        input: String,
        /// The declared type.
        expected: String,
        /// What was given.
        got: String,
    },
    /// A graph that is not as this runtime calls it.
    #[error("function `{graph}`: {reason}")]
    Graph {
        /// The function.
        graph: String,
        /// What is missing or wrong.
        reason: String,
    },
    /// MLX, or a kernel that it ran, failed.
    #[error("function `{graph}` failed: {reason}")]
    Execution {
        /// The function.
        graph: String,
        /// The reason, which names the node if a kernel failed.
        reason: String,
    },
    /// An operation outside of a function failed.
    #[error("{operation}: {reason}")]
    Device {
        /// What was tried.
        operation: &'static str,
        /// The reason.
        reason: String,
    },
    /// A sequence that was never created, or was released.
    #[error("sequence {0} does not exist")]
    UnknownSequence(u32),
    /// A sequence that stands twice in one step.
    #[error("sequence {0} stands twice in one step")]
    RepeatedSequence(u32),
    /// A row without new tokens.
    #[error("sequence {0} was given no tokens")]
    NoTokens(u32),
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocabulary} entries")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// The chosen token was asked for where the previous step chose none.
    #[error("sequence {0} has no chosen token: its previous step did not ask for one")]
    NothingChosen(u32),
    /// More tokens than the context holds.
    #[error(
        "the context of {capacity} tokens is full: sequence {sequence} holds {length} and was \
         given {new} more"
    )]
    ContextFull {
        /// The sequence.
        sequence: u32,
        /// Tokens that it holds.
        length: usize,
        /// Tokens that it was given.
        new: usize,
        /// Tokens that it may hold.
        capacity: usize,
    },
    /// A truncation to more tokens than there are.
    #[error("sequence {sequence} holds {length} tokens and cannot be truncated to {to}")]
    Truncate {
        /// The sequence.
        sequence: u32,
        /// Tokens that it holds.
        length: usize,
        /// Tokens that it should keep.
        to: usize,
    },
    /// A truncation of a sequence with memories, which know nothing of earlier tokens.
    #[error(
        "sequence {sequence} of {length} tokens cannot be truncated to {to}: the model's memories \
         can only be kept whole or emptied; truncate to 0 and process the tokens again"
    )]
    Indivisible {
        /// The sequence.
        sequence: u32,
        /// Tokens that it holds.
        length: usize,
        /// Tokens that it should keep.
        to: usize,
    },
    /// A sequence of which a step failed.
    #[error(
        "a step of sequence {sequence} failed: truncate it to at most {intact} tokens, or release it"
    )]
    FailedSequence {
        /// The sequence.
        sequence: u32,
        /// Tokens that are certain.
        intact: usize,
    },
    /// A ticket waited for twice, or before an older one.
    #[error("ticket {0} is not the oldest one outstanding: wait for tickets in order, once each")]
    UnknownTicket(u64),
    /// A saved sequence that this runtime cannot take back.
    #[error("the saved sequence cannot be restored: {0}")]
    Saved(String),
}
