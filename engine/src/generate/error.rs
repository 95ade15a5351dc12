//! What can go wrong in a generation.

use crate::sample::SampleError;
use crate::session::SessionError;

/// Why a reply was not generated, or broke off.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// Nothing to start from.
    #[error("the prompt has no tokens; write something in it")]
    EmptyPrompt,
    /// A prompt that leaves no room.
    #[error(
        "the prompt has {tokens} tokens but the context holds {context}; shorten the prompt or \
         raise the context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that the context holds.
        context: usize,
    },
    /// A runtime that did not return what a row wanted.
    #[error("the runtime returned neither a token nor logits for a step that wants them")]
    MissingOutput,
    /// What sampling said.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// What the session said.
    #[error(transparent)]
    Session(#[from] SessionError),
}
