//! A compiled artifact as a session.

use super::{Limits, Session, SessionError, Statistics};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Ticket};
use mlxcel_runtime_iree::{Artifact, Device, Error, Runtime};

/// Rows that one step may have; they run one after the other.
const ROWS: usize = 64;

/// IREE's execution of an artifact.
pub struct IreeSession {
    runtime: Runtime,
    context: usize,
    statistics: Statistics,
}

impl IreeSession {
    /// Loads `artifact` on `device`.
    ///
    /// # Errors
    /// What the runtime says, with the file or function at fault.
    pub fn new(artifact: &Artifact, device: &Device) -> Result<Self, Error> {
        let runtime = Runtime::new(artifact, device)?;
        Ok(Self {
            context: runtime.context(),
            runtime,
            statistics: Statistics::default(),
        })
    }

    /// The session with no more than `context` tokens of context.
    pub fn with_context(self, context: usize) -> Self {
        Self {
            context: context.min(self.context),
            ..self
        }
    }
}

/// What the runtime says, in the words of sessions where they have some.
fn said(error: Error) -> SessionError {
    match error {
        Error::UnknownSequence(id) => SessionError::UnknownSequence(SequenceId(id)),
        Error::RepeatedSequence(_) => SessionError::Rows { most: ROWS },
        Error::NoTokens(_) => SessionError::EmptyRow,
        Error::UnknownToken { token, vocabulary } => {
            SessionError::UnknownToken { token, vocabulary }
        }
        Error::NothingChosen(id) => SessionError::NothingChosen(SequenceId(id)),
        Error::ContextFull {
            length,
            new,
            capacity,
            ..
        } => SessionError::ContextExceeded {
            length,
            new,
            context: capacity,
        },
        Error::Truncate { length, to, .. } => SessionError::TooShort { length, to },
        Error::UnknownTicket(_) => SessionError::TicketOrder,
        other => SessionError::runtime(other),
    }
}

impl Session for IreeSession {
    fn limits(&self) -> Limits {
        Limits {
            context: self.context,
            vocabulary: self.runtime.vocabulary(),
            rows: ROWS,
        }
    }

    fn create(&mut self) -> Result<SequenceId, SessionError> {
        self.runtime.create().map_err(said)
    }

    fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, SessionError> {
        self.runtime.fork(sequence).map_err(said)
    }

    fn truncate(&mut self, sequence: SequenceId, length: usize) -> Result<(), SessionError> {
        self.runtime.truncate(sequence, length).map_err(said)
    }

    fn release(&mut self, sequence: SequenceId) -> Result<(), SessionError> {
        self.runtime.release(sequence).map_err(said)
    }

    fn length(&self, sequence: SequenceId) -> Result<usize, SessionError> {
        self.runtime.len(sequence).map_err(said)
    }

    fn save(&mut self, sequence: SequenceId) -> Result<Vec<u8>, SessionError> {
        self.runtime.save(sequence).map_err(said)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<SequenceId, SessionError> {
        self.runtime.restore(saved).map_err(said)
    }

    fn submit(&mut self, rows: &[Row<'_>]) -> Result<Ticket, SessionError> {
        if rows.is_empty() || rows.len() > ROWS {
            return Err(SessionError::Rows { most: ROWS });
        }
        let ticket = self.runtime.submit(rows).map_err(said)?;
        self.statistics.count(rows);
        Ok(ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Vec<RowOutput>, SessionError> {
        self.runtime.wait(ticket).map_err(said)
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}
