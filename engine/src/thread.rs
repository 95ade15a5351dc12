//! A sequence that one conversation after the other goes on with.

use crate::session::{Session, SessionError};
use mlxcel_ir::step::SequenceId;

/// A sequence and the tokens that it holds, so that a prompt that starts like the last one costs
/// only what is new.
#[derive(Debug)]
pub struct Thread {
    sequence: SequenceId,
    held: Vec<u32>,
}

impl Thread {
    /// A thread over a new sequence of `session`.
    ///
    /// # Errors
    /// As [`Session::create`].
    pub fn new(session: &mut dyn Session) -> Result<Self, SessionError> {
        Ok(Self {
            sequence: session.create()?,
            held: Vec::new(),
        })
    }

    /// Cuts the sequence to what it shares with `prompt`, at least one token short of the whole
    /// prompt, and returns it to generate on. A sequence that cannot be cut there is emptied.
    ///
    /// # Errors
    /// As [`Session::truncate`].
    pub fn prepare(
        &mut self,
        session: &mut dyn Session,
        prompt: &[u32],
    ) -> Result<SequenceId, SessionError> {
        let same = self.held.iter().zip(prompt).take_while(|(a, b)| a == b);
        let mut keep = same.count().min(prompt.len().saturating_sub(1));
        if session.length(self.sequence)? > keep {
            match session.truncate(self.sequence, keep) {
                // What cannot be cut there begins anew.
                Err(SessionError::Indivisible { .. } | SessionError::Failed { .. }) => {
                    session.truncate(self.sequence, 0)?;
                    keep = 0;
                }
                outcome => outcome?,
            }
        }
        self.held.truncate(keep);
        Ok(self.sequence)
    }

    /// Records that a generation ran from `prompt` and gave `tokens`.
    ///
    /// # Errors
    /// As [`Session::length`].
    pub fn record(
        &mut self,
        session: &dyn Session,
        prompt: &[u32],
        tokens: &[u32],
    ) -> Result<(), SessionError> {
        let length = session.length(self.sequence)?;
        self.held = prompt.iter().chain(tokens).take(length).copied().collect();
        Ok(())
    }
}
