//! How a reply is generated, and how it is called off.

use crate::sample::Sampling;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a reply is generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Strings that end the reply and are not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the reply and are not part of its text.
    pub end_tokens: Vec<u32>,
}

impl Default for Options {
    /// Greedy, until an end token or a full context.
    fn default() -> Self {
        Self {
            max_tokens: usize::MAX,
            sampling: Sampling::default(),
            stop: Vec::new(),
            end_tokens: Vec::new(),
        }
    }
}

/// A flag that ends a reply within one step. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Calls the reply off.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Makes the flag ready for another reply.
    pub fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether the reply was called off.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
