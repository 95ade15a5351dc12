//! A compiled artifact as a session.

use super::runtime::session_over;
use super::{Limits, Session, SessionError, Statistics};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Ticket};
use mlxcel_runtime_iree::{Artifact, Device, Error, Runtime};

/// Rows that one step may have; the runtime makes as few calls of them as the artifact's functions allow.
const ROWS: usize = 64;

/// IREE's execution of an artifact.
pub struct IreeSession {
    runtime: Runtime,
    context: usize,
    statistics: Statistics,
}

session_over!(
    IreeSession,
    mlxcel_runtime_iree,
    ROWS,
    mlxcel_runtime_iree::Error::TruncateMemory { length, to, .. }
    | mlxcel_runtime_iree::Error::TruncateWindow { length, to, .. } => SessionError::Indivisible {
        length,
        to,
    }
);

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
