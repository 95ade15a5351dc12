//! Holding every execution of a model against the interpreter on one prompt.

use crate::budget::Budgets;
use crate::compare::{Distance, Distribution};
use crate::execution::{Execution, ExecutionError, Inputs, Observed, ReferenceExecution};
use crate::report::{ExecutionReport, Finding, Measurement, Report, Verdict};
use mlxcel_ir::{Bindings, Graph, HostTensor, Output, Symbol, WeightSource, step};
use std::sync::Arc;
use std::time::Instant;

/// Why a verification could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The prompt is empty, so there is nothing to compare.
    #[error("the prompt has no tokens; give one with at least one token")]
    EmptyPrompt,
    /// A token id does not fit the graph's i32 input.
    #[error("token {0} is not a token id")]
    Token(u32),
    /// A party failed to run at all.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
}

/// What is verified: a traced graph, the tokens it is run on, and the weights that define it.
pub struct Subject {
    /// The model's name in the report.
    pub model: String,
    /// A graph with the outputs `hidden.N` for each layer and then `logits` `[1, T, V]`.
    pub graph: Graph,
    /// The weights that the interpreter uses.
    pub weights: Arc<dyn WeightSource>,
    /// The prompt.
    pub tokens: Vec<u32>,
}

/// An execution under test and the weights it is given; a test may give it faulty ones.
pub struct Party {
    /// The execution.
    pub execution: Box<dyn Execution>,
    /// Its weights.
    pub weights: Arc<dyn WeightSource>,
}

/// Where a verification stands, for progress reports: the execution that runs now.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Runs the interpreter and every party on the subject and compares all outputs.
///
/// # Errors
/// [`VerifyError`] if a party cannot run; a party that runs and is wrong is a finding, not an error.
pub fn verify(
    subject: &Subject,
    parties: &[Party],
    progress: Progress<'_>,
) -> Result<Report, VerifyError> {
    let context = Context::new(subject)?;
    let standard = context.standard(&subject.graph, progress)?;
    let layers = subject
        .graph
        .outputs
        .iter()
        .filter(|output| output.name.starts_with("hidden."))
        .count();
    let mut executions = Vec::new();
    let mut findings = Vec::new();
    for party in parties {
        progress(party.execution.name());
        let started = Instant::now();
        let observed = context.run(&*party.execution, &subject.graph, &party.weights)?;
        let seconds = started.elapsed().as_secs_f64();
        let measurements = standard.measure(&observed);
        if let Some(first) = measurements.iter().position(|m| !m.within()) {
            progress("localising");
            findings.push(context.localise(party, first, &measurements[first])?);
        }
        executions.push(ExecutionReport {
            execution: party.execution.name().to_string(),
            distribution: standard.distribution(&observed),
            measurements,
            seconds,
        });
    }
    Ok(Report {
        model: subject.model.clone(),
        tokens: subject.tokens.len(),
        layers,
        verdict: match findings.is_empty() {
            true => Verdict::Pass,
            false => Verdict::Mismatch,
        },
        executions,
        findings,
    })
}

/// What every run of one verification shares.
struct Context<'a> {
    subject: &'a Subject,
    bindings: Bindings,
    inputs: Vec<(&'static str, HostTensor)>,
}

/// The interpreter's outputs and the budgets that follow from them.
struct Standard {
    exact: Vec<Observed>,
    budgets: Budgets,
}

impl<'a> Context<'a> {
    fn new(subject: &'a Subject) -> Result<Self, VerifyError> {
        let count = subject.tokens.len();
        if count == 0 {
            return Err(VerifyError::EmptyPrompt);
        }
        let tokens: Vec<i32> = subject
            .tokens
            .iter()
            .map(|&token| i32::try_from(token).map_err(|_| VerifyError::Token(token)))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            subject,
            bindings: Bindings::new()
                .with(Symbol::B, 1)
                .with(Symbol::T, count)
                .with(Symbol::S, count),
            inputs: vec![
                (step::TOKENS, HostTensor::i32([1, count], &tokens)),
                (step::START, HostTensor::i32([1], &[0])),
                (step::LENGTH, HostTensor::i32([1], &[count as i32])),
            ],
        })
    }

    fn run(
        &self,
        execution: &dyn Execution,
        graph: &Graph,
        weights: &Arc<dyn WeightSource>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let inputs: &Inputs<'_> = &self.inputs;
        execution.run(graph, &self.bindings, weights, inputs)
    }

    fn standard(&self, graph: &Graph, progress: Progress<'_>) -> Result<Standard, ExecutionError> {
        let weights = &self.subject.weights;
        progress(ReferenceExecution::F64.name());
        let exact = self.run(&ReferenceExecution::F64, graph, weights)?;
        progress(ReferenceExecution::F32.name());
        let rounded = self.run(&ReferenceExecution::F32, graph, weights)?;
        let budgets = Budgets::new(graph, &self.bindings, &exact, &rounded);
        Ok(Standard { exact, budgets })
    }

    /// Observes every named node between the last output within budget and the first over it.
    fn localise(
        &self,
        party: &Party,
        first: usize,
        measurement: &Measurement,
    ) -> Result<Finding, ExecutionError> {
        let graph = region(&self.subject.graph, first);
        let standard = self.standard(&graph, &|_| {})?;
        let observed = self.run(&*party.execution, &graph, &party.weights)?;
        let found = standard
            .measure(&observed)
            .into_iter()
            .find(|m| !m.within())
            .unwrap_or_else(|| measurement.clone());
        let op = graph
            .named(&found.name)
            .and_then(|value| graph.node(value))
            .map_or("output", |node| node.op.info().name);
        Ok(Finding {
            execution: party.execution.name().to_string(),
            region: self.subject.graph.outputs[first].name.clone(),
            node: found.name.clone(),
            op: op.to_string(),
            measurement: found,
        })
    }
}

/// The graph whose outputs are the named nodes after output `first - 1` up to output `first`.
fn region(graph: &Graph, first: usize) -> Graph {
    let end = graph.outputs[first].value;
    let begin = first
        .checked_sub(1)
        .map(|previous| graph.outputs[previous].value);
    let mut region = graph.clone();
    region.outputs = (0..graph.nodes.len())
        .map(|index| (graph.value_of(index), &graph.nodes[index]))
        .filter(|(value, _)| begin.is_none_or(|begin| *value > begin) && *value <= end)
        .filter_map(|(value, node)| {
            let name = node.name.clone()?;
            Some(Output { name, value })
        })
        .collect();
    region
        .nodes
        .truncate((end.0 as usize + 1).saturating_sub(graph.inputs.len()));
    region
}

impl Standard {
    fn measure(&self, observed: &[Observed]) -> Vec<Measurement> {
        self.exact
            .iter()
            .zip(observed)
            .zip(self.budgets.iter())
            .map(|((exact, observed), budget)| Measurement {
                name: exact.name.clone(),
                distance: Distance::between(&observed.values, &exact.values),
                budget,
            })
            .collect()
    }

    fn distribution(&self, observed: &[Observed]) -> Distribution {
        match (self.exact.last(), observed.last()) {
            (Some(exact), Some(observed)) => {
                let vocabulary = exact.shape.last().copied().unwrap_or(1);
                Distribution::between(&observed.values, &exact.values, vocabulary)
            }
            _ => Distribution::between(&[], &[], 1),
        }
    }
}
