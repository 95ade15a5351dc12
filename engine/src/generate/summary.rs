//! What a finished reply was.

use std::fmt;
use std::time::Duration;

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token or a stop string came.
    Stop,
    /// The most tokens allowed were generated.
    Length,
    /// The context is full.
    Context,
    /// It was called off.
    Cancelled,
}

impl FinishReason {
    /// The reason in one word, as scripts read it.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Context => "context",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// A finished reply in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Why it ended.
    pub reason: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of those the cache held already.
    pub cached_tokens: usize,
    /// The generated tokens, an end token included.
    pub tokens: Vec<u32>,
    /// From the start to the first generated token on the host.
    pub time_to_first_token: Duration,
    /// From the start to the end.
    pub time: Duration,
}

impl Summary {
    /// Tokens of the prompt processed per second, up to the first generated token.
    pub fn prefill_speed(&self) -> f64 {
        let tokens = self.prompt_tokens - self.cached_tokens;
        speed(tokens, self.time_to_first_token)
    }

    /// Tokens generated per second after the first, which the prompt's time already counts.
    pub fn decode_speed(&self) -> f64 {
        let tokens = self.tokens.len().saturating_sub(1);
        speed(tokens, self.time.saturating_sub(self.time_to_first_token))
    }
}

/// Tokens per second; 0 where there was no token or no time.
fn speed(tokens: usize, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if tokens == 0 || seconds == 0.0 {
        0.0
    } else {
        tokens as f64 / seconds
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} prompt tokens", self.prompt_tokens)?;
        if self.cached_tokens > 0 {
            write!(f, " ({} from cache)", self.cached_tokens)?;
        }
        write!(f, " at {:.1} tok/s, ", self.prefill_speed())?;
        write!(
            f,
            "first token after {:.2} s, ",
            self.time_to_first_token.as_secs_f64()
        )?;
        write!(
            f,
            "{} tokens at {:.1} tok/s, ",
            self.tokens.len(),
            self.decode_speed()
        )?;
        write!(f, "ended by {}", self.reason.name())
    }
}
