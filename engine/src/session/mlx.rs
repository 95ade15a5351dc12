//! A model on MLX as a session.

use super::runtime::session_over;
use super::{Limits, Session, SessionError, Statistics};
use mlxcel_ir::WeightSource;
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Ticket};
use mlxcel_runtime_mlx::{Error, Graphs, Options, Route, Runtime};
use std::sync::Arc;

/// Rows that one step may have.
const ROWS: usize = 256;

/// MLX's execution of a model.
pub struct MlxSession {
    runtime: Runtime,
    context: usize,
    statistics: Statistics,
}

session_over!(
    MlxSession,
    mlxcel_runtime_mlx,
    ROWS,
    mlxcel_runtime_mlx::Error::Indivisible { length, to, .. } => SessionError::Indivisible { length, to },
    mlxcel_runtime_mlx::Error::FailedSequence { sequence, intact } => SessionError::Failed {
        sequence: SequenceId(sequence),
        intact,
    }
);

impl MlxSession {
    /// Plans `graphs`, whose weights are in `weights`.
    ///
    /// # Errors
    /// What the runtime says, with the node or weight at fault.
    pub fn new(
        graphs: &Graphs,
        weights: Arc<dyn WeightSource>,
        options: Options,
    ) -> Result<Self, Error> {
        let runtime = Runtime::new(graphs, weights, options)?;
        Ok(Self {
            context: runtime.context(),
            runtime,
            statistics: Statistics::default(),
        })
    }

    /// What computes with the weights, by format.
    pub fn routes(&self) -> Vec<Route> {
        self.runtime.routes()
    }
}
