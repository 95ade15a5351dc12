//! What a verification found, for people and for scripts.

use crate::case::Case;
use crate::compare::{Distance, Distribution, Divergence};
use crate::greedy::Choices;
use serde::Serialize;
use std::fmt;

/// The outcome of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every observed tensor of every execution is within its budget.
    Pass,
    /// At least one is not.
    Mismatch,
}

/// One observed tensor of one execution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// The output's name.
    pub name: String,
    /// Its distance from the f64 interpreter.
    pub distance: Distance,
    /// The largest relative RMS error that rounding explains.
    pub budget: f64,
}

impl Measurement {
    /// The error as a share of the budget.
    pub fn share(&self) -> f64 {
        self.distance.relative_rms / self.budget
    }

    /// Whether the error is within the budget.
    pub fn within(&self) -> bool {
        self.distance.relative_rms <= self.budget
    }
}

/// Keeps the worst measurement of each output.
pub(crate) fn keep_worst(kept: &mut Vec<Measurement>, measurements: Vec<Measurement>) {
    if kept.is_empty() {
        *kept = measurements;
        return;
    }
    for (kept, new) in kept.iter_mut().zip(measurements) {
        if new.share() > kept.share() {
            *kept = new;
        }
    }
}

/// One execution held against the interpreter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExecutionReport {
    /// The execution, for instance `mlx-cpu`.
    pub execution: String,
    /// The hidden state after each layer and the logits, in graph order.
    pub measurements: Vec<Measurement>,
    /// The next-token distributions.
    pub distribution: Distribution,
    /// The tokens of a greedy text after the prompt, if one was asked for.
    pub choices: Option<Choices>,
    /// Every named node by itself, in graph order, if that was asked for or something is wrong.
    pub nodes: Vec<NodeReport>,
    /// Seconds that loading (or compiling) and running took.
    pub seconds: f64,
}

/// One named node of one execution, computed again from the execution's own values before it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReport {
    /// The node's name.
    pub name: String,
    /// Its op.
    pub op: String,
    /// The largest error of an element as a share of its bound.
    pub share: f64,
}

/// Where an execution goes wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The side that computed it wrongly.
    pub execution: String,
    /// The first output over its budget.
    pub region: String,
    /// The first node that is wrong by itself, given what this side computed before it; where there is
    /// none, the output.
    pub node: String,
    /// The node's op.
    pub op: String,
    /// Whether the node itself is at fault. If not, its error was inherited: no single node is over its
    /// own bound, only all together.
    pub local: bool,
    /// The worst element of the node: its flat index, what was found, what it should be given the values
    /// before, and how far from that rounding may take it.
    pub element: Option<Element>,
    /// Whether the node is wrong too when nothing else is executed, from the same numbers and the model's own
    /// weights. If it is not, the weights that this side was given differ, or what stands around the node.
    pub alone: Option<bool>,
    /// The first pass after which the graph means something else to the interpreter, if one does.
    pub pass: Option<String>,
    /// The node as a case, where it is wrong alone.
    #[serde(skip)]
    pub case: Option<Box<Case>>,
    /// The command that runs the case again, where it was written to a file.
    pub again: Option<String>,
    /// The error and budget of the output.
    pub measurement: Measurement,
}

/// One element of a tensor against what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Element {
    /// Its flat index.
    pub index: usize,
    /// What was computed.
    pub found: f64,
    /// What it should be.
    pub expected: f64,
    /// How far from that it may be.
    pub bound: f64,
}

/// The result of a verification.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model's name.
    pub model: String,
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Layers of the model, where that is known: an artifact does not tell.
    pub layers: Option<usize>,
    /// The outcome.
    pub verdict: Verdict,
    /// One entry per execution.
    pub executions: Vec<ExecutionReport>,
    /// The first node at fault of each execution that is over budget.
    pub findings: Vec<Finding>,
}

impl Finding {
    /// What else is known of it, a sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let alone = match (self.alone, &self.again) {
            (Some(true), Some(command)) => Some(format!(
                "the node alone is wrong too, on the same numbers; again: {command}"
            )),
            (Some(true), None) => Some(
                "the node alone is wrong too, on the same numbers; --repro FOLDER keeps it".into(),
            ),
            (Some(false), _) => Some(format!(
                "the node alone is right, on the same numbers and the model's weights: {} was given other weights, or \
                 does otherwise because of what stands around the node",
                self.execution
            )),
            (None, _) => None,
        };
        let pass = self.pass.as_ref();
        let pass = pass.map(|pass| format!("the pass `{pass}` changes what the graph means"));
        alone.into_iter().chain(pass).collect()
    }
}

impl Report {
    /// Adds the tokens that the execution `index` chose, which may be wrong.
    pub fn choose(&mut self, index: usize, choices: Choices) {
        if choices.fault.is_some() {
            self.verdict = Verdict::Mismatch;
        }
        if let Some(execution) = self.executions.get_mut(index) {
            execution.choices = Some(choices);
        }
    }

    /// What was run, in words.
    pub(crate) fn size(&self) -> String {
        match self.layers {
            Some(layers) => format!("{} tokens, {layers} layers", self.tokens),
            None => format!("{} tokens", self.tokens),
        }
    }

    /// Tells of greedy texts.
    fn tell_choices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut heading = Some(());
        for ExecutionReport {
            execution, choices, ..
        } in &self.executions
        {
            let Some(choices) = choices else { continue };
            if heading.take().is_some() {
                let [tokens, ties] = ["tokens", "near ties"];
                writeln!(f, "{:<14} {tokens:>8} {ties:>10}", "greedy text")?;
            }
            let Choices {
                tokens,
                near_ties,
                first,
                fault,
                ..
            } = choices;
            writeln!(f, "{execution:<14} {tokens:>8} {near_ties:>10}")?;
            if let Some(first) = first
                && *fault != Some(*first)
            {
                writeln!(f, "  near tie: {first}")?;
            }
            if let Some(fault) = fault {
                writeln!(f, "fault: {execution} chose {fault}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "another most likely token first at position {}, where the interpreter's is ahead by {:.1e} and the error \
             is {:.1e}",
            self.position, self.margin, self.error
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}, against the interpreter in f64",
            self.model,
            self.size()
        )?;
        writeln!(
            f,
            "{:<14} {:>13} {:>12} {:>12} {:>8}",
            "execution", "logits error", "worst share", "at", "seconds"
        )?;
        for execution in &self.executions {
            let logits = execution.measurements.last();
            let worst = execution
                .measurements
                .iter()
                .max_by(|a, b| a.share().total_cmp(&b.share()));
            writeln!(
                f,
                "{:<14} {:>13.2e} {:>11.1}% {:>12} {:>8.1}",
                execution.execution,
                logits.map_or(f64::NAN, |m| m.distance.relative_rms),
                worst.map_or(f64::NAN, Measurement::share) * 100.0,
                worst.map_or("", |m| &m.name),
                execution.seconds,
            )?;
        }
        writeln!(
            f,
            "{:<14} {:>8} {:>8} {:>8} {:>9} {:>9} {:>11} {:>19} {:>12}",
            "next tokens",
            "KL mean",
            "KL p99",
            "KL max",
            "same top",
            "same five",
            "perplexity",
            "95% of such texts",
            "ratio, 1 ±"
        )?;
        for execution in &self.executions {
            let next = &execution.distribution;
            let [low, high] = next.perplexity_interval;
            writeln!(
                f,
                "{:<14} {:>8.1e} {:>8.1e} {:>8.1e} {:>8.2}% {:>8.2}% {:>11.4} {:>19} {:>12.1e}",
                execution.execution,
                next.mean_divergence,
                next.p99_divergence,
                next.max_divergence,
                next.same_top * 100.0,
                next.top5_overlap * 100.0,
                next.perplexity,
                format!("{low:.2} to {high:.2}"),
                next.ratio_interval,
            )?;
            if let Some(divergence) = next.divergence {
                writeln!(f, "  {divergence}")?;
            }
        }
        self.tell_choices(f)?;
        for finding in &self.findings {
            let Measurement {
                distance, budget, ..
            } = finding.measurement;
            writeln!(
                f,
                "fault: {} is wrong at {}: relative error {:.2e}, budget {:.2e}",
                finding.execution, finding.region, distance.relative_rms, budget
            )?;
            match &finding.element {
                Some(element) if finding.local => writeln!(
                    f,
                    "  the fault is in node `{}` ({}): element {} is {} and not {} ± {:.1e}, given what {} itself \
                     computed before",
                    finding.node,
                    finding.op,
                    element.index,
                    element.found,
                    element.expected,
                    element.bound,
                    finding.execution
                )?,
                _ => writeln!(
                    f,
                    "  no node is wrong by itself: the error is inherited, node by node"
                )?,
            }
            for line in finding.remarks() {
                writeln!(f, "  {line}")?;
            }
        }
        match self.verdict {
            Verdict::Pass => write!(f, "verdict: pass"),
            Verdict::Mismatch => write!(f, "verdict: mismatch"),
        }
    }
}
