//! A graph with the numbers it runs on, and its form in a file that runs it again.
//!
//! ```text
//! // case seed = 7, B = 2, T = 3, S = 5
//! func @random(%x: f32[B, T, 4])
//! {
//!   ...
//! }
//! ```
//!
//! The first line gives what the graph itself does not say: the sizes of its symbols, and the seed that
//! its inputs and weights follow from ([`Data`]).

use crate::execution::{Execution, ExecutionError, Observed};
use crate::standard::{Deviation, Standard};
use mlxcel_ir::random::Data;
use mlxcel_ir::{Bindings, Graph, Symbol, WeightSource, text, verify};
use std::sync::Arc;

/// A graph with all that it needs to run.
#[derive(Clone, Debug)]
pub struct Case {
    /// The graph.
    pub graph: Graph,
    /// The sizes of its symbols.
    pub bindings: Bindings,
    /// What its inputs and weights follow from.
    pub seed: u64,
}

/// Why a text is not a case.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The first line is not as it should be.
    #[error("line 1 must be `// case seed = NUMBER, B = SIZE, ...`: {0}")]
    Header(String),
    /// The graph is not well formed.
    #[error(transparent)]
    Parse(#[from] text::ParseError),
    /// The graph is not legal.
    #[error(transparent)]
    Verify(#[from] verify::VerifyError),
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// [`CaseError`], with the line.
    pub fn parse(source: &str) -> Result<Self, CaseError> {
        let line = source.lines().next().unwrap_or("");
        let fields = line
            .strip_prefix("// case ")
            .ok_or_else(|| CaseError::Header(format!("it is {line:?}")))?;
        let (mut seed, mut bindings) = (0, Bindings::new());
        for field in fields.split(',') {
            let unknown = || CaseError::Header(format!("{field:?} is none of these"));
            let (name, number) = field.split_once('=').ok_or_else(unknown)?;
            let number: u64 = number.trim().parse().map_err(|_| unknown())?;
            let mut symbols = Symbol::ALL.into_iter();
            match symbols.find(|symbol| symbol.name() == name.trim()) {
                Some(symbol) => bindings = bindings.with(symbol, number as usize),
                None if name.trim() == "seed" => seed = number,
                None => return Err(unknown()),
            }
        }
        let graph = text::parse(source)?;
        verify::verify(&graph)?;
        Ok(Self {
            graph,
            bindings,
            seed,
        })
    }

    /// The inputs and weights.
    pub fn data(&self) -> Data {
        Data::new(&self.graph, &self.bindings, self.seed)
    }

    /// What the graph's outputs should be.
    ///
    /// # Errors
    /// If the graph cannot be interpreted.
    pub fn standard(&self) -> Result<Standard, ExecutionError> {
        let data = self.data();
        let weights: Arc<dyn WeightSource> = data.weights.clone();
        Standard::new(&self.graph, &self.bindings, &weights, &data.named())
    }

    /// What an execution makes of the graph.
    ///
    /// # Errors
    /// What the execution says.
    pub fn run(&self, execution: &dyn Execution) -> Result<Vec<Observed>, ExecutionError> {
        let data = self.data();
        let weights: Arc<dyn WeightSource> = data.weights.clone();
        execution.run(&self.graph, &self.bindings, &weights, &data.named())
    }

    /// The worst element of an execution, or why it cannot run.
    ///
    /// # Errors
    /// If the graph cannot be interpreted or executed.
    pub fn check(&self, execution: &dyn Execution) -> Result<Option<Deviation>, ExecutionError> {
        Ok(self.standard()?.worst(&self.run(execution)?))
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "// case seed = {}", self.seed)?;
        for symbol in Symbol::ALL {
            if let Some(size) = self.bindings.get(symbol) {
                write!(f, ", {} = {size}", symbol.name())?;
            }
        }
        write!(f, "\n{}", self.graph)
    }
}
