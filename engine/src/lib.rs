//! Text generation over any execution of a model, and the vectors and scores of encoders.
//!
//! A [`Session`] is the one seam between this crate and the runtimes: sequences that grow by steps.
//! A [`Generation`] drives one and turns a prompt into pieces of text.
//!
//! Invariants:
//! - Nothing above [`session`] can tell which runtime it drives, and the same tokens come out of
//!   each as long as the same logits do.
//! - The pieces of text that a generation returns, put together, are the decoding of its tokens up
//!   to the stop string, however tokens cut the characters of the text.
//! - A seed gives the same tokens on every platform for the same logits.
//! - A reply that ends, fails or is dropped leaves its sequence as if no step had run ahead.
//!
//! Start reading at [`session`], then [`generate`]; encoders are in [`encode`].

pub mod detokenize;
pub mod encode;
pub mod generate;
mod open;
pub mod sample;
pub mod session;
pub mod stop;
mod text;
pub mod thread;

pub use detokenize::{Decode, Detokenizer, TokenKind};
pub use encode::{EncodeError, Encoder, EncoderOptions, Passage};
pub use generate::{Cancel, Event, FinishReason, GenerateError, Generation, Options, Summary};
pub use open::{Backend, OpenError, OpenOptions, Opened, open};
pub use sample::{SampleError, Sampler, Sampling};
pub use session::{
    IreeSession, Limits, MlxSession, ReferenceSession, Session, SessionError, Statistics,
};
pub use stop::StopMatcher;
pub use thread::Thread;
