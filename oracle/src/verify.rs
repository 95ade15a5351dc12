//! Holding every execution of a model against the interpreter on one prompt.

use crate::bisect;
use crate::budget::Budgets;
use crate::case::Case;
use crate::compare::{Distance, Positions};
use crate::execution::{Execution, ExecutionError, Inputs, Observed, ReferenceExecution};
use crate::fuzz;
use crate::localise::{Local, alone, local, watched};
use crate::report::{
    Element, ExecutionReport, Finding, Measurement, NodeReport, Report, Verdict, keep_worst,
};
use mlxcel_ir::{Bindings, Graph, HostTensor, Symbol, WeightSource, step};
use std::sync::Arc;
use std::time::Instant;

/// Seeds that are tried for numbers that show a fault.
const SEEDS: u64 = 3;

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
    /// How many tokens are run at once; without it, all.
    pub chunk: Option<usize>,
    /// Whether every named node is checked by itself, not only where an output is over its budget.
    pub nodes: bool,
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
    let size = subject.chunk.unwrap_or(subject.tokens.len());
    let texts: Vec<&[u32]> = texts(&subject.tokens, size).collect();
    let layers = subject
        .graph
        .outputs
        .iter()
        .filter(|output| output.name.starts_with("hidden."))
        .count();
    let mut states: Vec<State> = parties.iter().map(|_| State::default()).collect();
    for (number, text) in texts.iter().enumerate() {
        let say = |stage: &str| match texts.len() {
            1 => progress(stage),
            count => progress(&format!("{stage}, text {} of {count}", number + 1)),
        };
        let context = Context::new(subject, text)?;
        let standard = context.standard(&subject.graph, &say)?;
        for (party, state) in parties.iter().zip(&mut states) {
            say(party.execution.name());
            let started = Instant::now();
            let observed = context.run(&*party.execution, &subject.graph, &party.weights)?;
            state.seconds += started.elapsed().as_secs_f64();
            standard.distribution(&observed, text, &mut state.positions);
            let measurements = standard.measure(&observed);
            let first = measurements.iter().position(|m| !m.within());
            let unseen = state.finding.is_none();
            if unseen && (first.is_some() || (subject.nodes && state.nodes.is_empty())) {
                say("localising");
                let (observed, nodes) = context.nodes(party)?;
                if let Some(first) = first {
                    let mut finding = context.finding(party, &measurements[first], &nodes);
                    context.isolate(&mut finding, party, &observed, &standard);
                    state.finding = Some(finding);
                }
                state.nodes = nodes.into_iter().map(node_report).collect();
            }
            keep_worst(&mut state.measurements, measurements);
        }
    }
    let findings: Vec<Finding> = states
        .iter()
        .filter_map(|state| state.finding.clone())
        .collect();
    // A node over its bound is a fault even where the outputs hide it.
    let hidden = states
        .iter()
        .flat_map(|state| &state.nodes)
        .any(|node| node.share > 1.0);
    let executions = parties
        .iter()
        .zip(states)
        .map(|(party, state)| ExecutionReport {
            execution: party.execution.name().to_string(),
            distribution: state.positions.summary(),
            choices: None,
            measurements: state.measurements,
            nodes: state.nodes,
            seconds: state.seconds,
        })
        .collect();
    Ok(Report {
        model: subject.model.clone(),
        tokens: texts.iter().map(|text| text.len()).sum(),
        layers: Some(layers),
        verdict: match findings.is_empty() && !hidden {
            true => Verdict::Pass,
            false => Verdict::Mismatch,
        },
        executions,
        findings,
    })
}

/// The texts of `size` tokens that `tokens` are run as; what is left over is not run, unless it is all there is.
pub fn texts(tokens: &[u32], size: usize) -> impl Iterator<Item = &[u32]> {
    let size = size.clamp(1, tokens.len().max(1));
    let texts = tokens.chunks_exact(size);
    let none = texts.len() == 0;
    texts.chain(none.then_some(tokens))
}

/// What was found of one party so far.
#[derive(Default)]
struct State {
    measurements: Vec<Measurement>,
    positions: Positions,
    nodes: Vec<NodeReport>,
    finding: Option<Finding>,
    seconds: f64,
}

fn node_report(node: Local) -> NodeReport {
    NodeReport {
        name: node.deviation.output,
        op: node.op.to_string(),
        share: node.deviation.share,
    }
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
    fn new(subject: &'a Subject, text: &[u32]) -> Result<Self, VerifyError> {
        let count = text.len();
        if count == 0 {
            return Err(VerifyError::EmptyPrompt);
        }
        let tokens: Vec<i32> = text
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

    /// Every named node of a party: what it computed, and what of that is wrong by itself.
    fn nodes(&self, party: &Party) -> Result<(Vec<Observed>, Vec<Local>), ExecutionError> {
        let graph = &self.subject.graph;
        let observed = self.run(&*party.execution, &watched(graph), &party.weights)?;
        let inputs: &Inputs<'_> = &self.inputs;
        let weights = &self.subject.weights;
        let nodes = local(graph, &self.bindings, weights, inputs, &observed)?;
        Ok((observed, nodes))
    }

    /// Tells whether the node at fault is wrong alone too; if it is not, whether a pass is to blame.
    fn isolate(
        &self,
        finding: &mut Finding,
        party: &Party,
        observed: &[Observed],
        standard: &Standard,
    ) {
        let (graph, bindings) = (&self.subject.graph, &self.bindings);
        let weights = &self.subject.weights;
        if finding.local {
            let inputs: &Inputs<'_> = &self.inputs;
            let case = alone(graph, bindings, weights, inputs, observed, &finding.node);
            finding.case = case.and_then(|case| smallest(case, &*party.execution).map(Box::new));
            finding.alone = Some(finding.case.is_some());
        }
        if finding.alone != Some(true) {
            let right = |graph: &Graph| {
                let observed = self.run(&ReferenceExecution::F32, graph, weights);
                let within =
                    |found: Vec<Observed>| standard.measure(&found).iter().all(Measurement::within);
                observed.is_ok_and(within)
            };
            finding.pass = bisect::first(graph, bindings, &bisect::steps(), &right).map(Into::into);
        }
    }

    /// Blames a node for an output over its budget.
    fn finding(&self, party: &Party, measurement: &Measurement, nodes: &[Local]) -> Finding {
        let fault = nodes.iter().find(|node| !node.deviation.within());
        let output = || measurement.name.clone();
        Finding {
            execution: party.execution.name().to_string(),
            region: output(),
            node: fault.map_or_else(output, |node| node.deviation.output.clone()),
            op: fault.map_or("output", |node| node.op).to_string(),
            local: fault.is_some(),
            element: fault.map(|Local { deviation, .. }| Element {
                index: deviation.index,
                found: deviation.found,
                expected: deviation.expected,
                bound: deviation.bound,
            }),
            alone: None,
            pass: None,
            case: None,
            again: None,
            measurement: measurement.clone(),
        }
    }
}

/// The case, or a smaller one, if the execution is wrong about it. Numbers that follow from a seed are smaller
/// than any that stand in a file.
fn smallest(case: Case, execution: &dyn Execution) -> Option<Case> {
    if !fuzz::wrong(&case, execution) {
        return None;
    }
    let seeded = (1..=SEEDS).map(|seed| Case {
        given: None,
        seed,
        ..case.clone()
    });
    let seeded = seeded.into_iter().find(|case| fuzz::wrong(case, execution));
    Some(seeded.map_or(case, |seeded| fuzz::smallest(&seeded, execution)))
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

    fn distribution(&self, observed: &[Observed], text: &[u32], positions: &mut Positions) {
        if let (Some(exact), Some(observed)) = (self.exact.last(), observed.last()) {
            let vocabulary = exact.shape.last().copied().unwrap_or(1);
            positions.add(&observed.values, &exact.values, vocabulary, text);
        }
    }
}
