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
//! its inputs and weights follow from ([`Data`]). Where they follow from none, as those of a model, the
//! line has `data = NAME` instead, and the safetensors file of that name beside it has them.

use crate::data;
use crate::execution::{
    Execution, ExecutionError, IreeExecution, MlxExecution, Observed, ReferenceExecution,
};
use crate::known;
use crate::standard::{Deviation, Standard};
use mlxcel_ir::random::Data;
use mlxcel_ir::{Bindings, Graph, Symbol, WeightSource, text, verify};
use std::path::Path;
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
    /// Inputs and weights that follow from no seed.
    pub given: Option<Data>,
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
    /// The case is in a file, and has its numbers in another.
    #[error("its numbers are in {0:?}, so it must be read from its file")]
    Apart(String),
    /// A file cannot be read or written, or holds something else.
    #[error("{file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl CaseError {
    /// What is wrong with a file.
    pub(crate) fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File {
            file: path.display().to_string(),
            reason: reason.to_string(),
        }
    }
}

/// What an execution makes of a case.
pub struct Trial {
    /// The execution.
    pub execution: &'static str,
    /// The worst element of each output, or why there is none.
    pub outcome: Result<Vec<Deviation>, String>,
}

/// The exit code of a program that ran these: 0 if all are within their bounds, 1 if one is not, 3 if one
/// could not run.
pub fn code(trials: &[Trial]) -> u8 {
    let code = |trial: &Trial| match &trial.outcome {
        Err(_) => 3,
        Ok(deviations) => u8::from(!deviations.iter().all(Deviation::within)),
    };
    trials.iter().map(code).max().unwrap_or(0)
}

impl Case {
    /// Reads a case whose numbers follow from a seed.
    ///
    /// # Errors
    /// [`CaseError`], with the line.
    pub fn parse(source: &str) -> Result<Self, CaseError> {
        match Self::apart(source)? {
            (case, None) => Ok(case),
            (_, Some(data)) => Err(CaseError::Apart(data)),
        }
    }

    /// Reads a case from its file, and its numbers from the file beside it where it has one.
    ///
    /// # Errors
    /// [`CaseError`].
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let text = std::fs::read_to_string(path).map_err(|error| CaseError::file(path, error))?;
        let (mut case, beside) =
            Self::apart(&text).map_err(|error| CaseError::file(path, error))?;
        if let Some(name) = beside {
            if Path::new(&name).file_name() != Some(name.as_ref()) {
                return Err(CaseError::file(
                    path,
                    format!("{name:?} is no name of a file"),
                ));
            }
            case.given = Some(data::read(&path.with_file_name(name), &case)?);
        }
        Ok(case)
    }

    /// Writes the case to a file, and its numbers to one beside it where they follow from no seed.
    ///
    /// # Errors
    /// [`CaseError::File`].
    pub fn write(&self, path: &Path) -> Result<(), CaseError> {
        let mut text = self.to_string();
        if let Some(given) = &self.given {
            let beside = path.with_extension("safetensors");
            data::write(&beside, given, &self.graph)?;
            let name = beside.file_name().unwrap_or_default().to_string_lossy();
            text = text.replacen(
                &format!("seed = {}", self.seed),
                &format!("data = {name}"),
                1,
            );
        }
        std::fs::write(path, text).map_err(|error| CaseError::file(path, error))
    }

    /// The case, without its numbers where they are in another file, whose name is given then.
    fn apart(source: &str) -> Result<(Self, Option<String>), CaseError> {
        let line = source.lines().next().unwrap_or("");
        let fields = line
            .strip_prefix("// case ")
            .ok_or_else(|| CaseError::Header(format!("it is {line:?}")))?;
        let (mut seed, mut bindings, mut beside) = (0, Bindings::new(), None);
        for field in fields.split(',') {
            let unknown = || CaseError::Header(format!("{field:?} is none of these"));
            let (name, number) = field.split_once('=').ok_or_else(unknown)?;
            if name.trim() == "data" {
                beside = Some(number.trim().to_string());
                continue;
            }
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
        let case = Self {
            graph,
            bindings,
            seed,
            given: None,
        };
        Ok((case, beside))
    }

    /// The inputs and weights.
    pub fn data(&self) -> Data {
        match &self.given {
            Some(data) => data.clone(),
            None => Data::new(&self.graph, &self.bindings, self.seed),
        }
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

    /// Every execution on this machine's processor.
    ///
    /// # Errors
    /// If the graph cannot be interpreted.
    pub fn trials(&self) -> Result<Vec<Trial>, ExecutionError> {
        let executions: [&dyn Execution; 4] = [
            &ReferenceExecution::F32,
            &MlxExecution::Operations,
            &MlxExecution::Kernels,
            &IreeExecution,
        ];
        let trial = |execution: &&dyn Execution| {
            let standard = known::expected(self, *execution)?;
            let observed = self.run(*execution);
            Ok(Trial {
                execution: execution.name(),
                outcome: observed
                    .map(|observed| standard.deviations(&observed).collect())
                    .map_err(|error| known::full(&error)),
            })
        };
        executions.iter().map(trial).collect()
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

impl std::fmt::Display for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.outcome {
            Err(reason) => write!(f, "{:<14} could not run: {reason}", self.execution),
            Ok(deviations) => {
                for (index, deviation) in deviations.iter().enumerate() {
                    let verdict = if deviation.within() {
                        "within"
                    } else {
                        "WRONG"
                    };
                    let line = if index > 0 { "\n" } else { "" };
                    write!(f, "{line}{:<14} {verdict:<7} {deviation}", self.execution)?;
                }
                Ok(())
            }
        }
    }
}
