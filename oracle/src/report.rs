//! What a verification found, for people and for scripts.

use crate::compare::{Distance, Distribution};
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

/// One execution held against the interpreter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExecutionReport {
    /// The execution, for instance `mlx-cpu`.
    pub execution: String,
    /// The hidden state after each layer and the logits, in graph order.
    pub measurements: Vec<Measurement>,
    /// The next-token distributions.
    pub distribution: Distribution,
    /// Seconds that loading (or compiling) and running took.
    pub seconds: f64,
}

/// The first node at fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The side that computed it wrongly.
    pub execution: String,
    /// The layer whose output is the first over budget, or `logits`.
    pub region: String,
    /// The first node over budget within the region.
    pub node: String,
    /// The node's op.
    pub op: String,
    /// Its error and budget.
    pub measurement: Measurement,
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The model's name.
    pub model: String,
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Layers of the model.
    pub layers: usize,
    /// The outcome.
    pub verdict: Verdict,
    /// One entry per execution.
    pub executions: Vec<ExecutionReport>,
    /// The first node at fault of each execution that is over budget.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} tokens, {} layers, against the interpreter in f64",
            self.model, self.tokens, self.layers
        )?;
        writeln!(
            f,
            "{:<14} {:>13} {:>12} {:>12} {:>10} {:>9} {:>8}",
            "execution", "logits error", "worst share", "at", "KL max", "same top", "seconds"
        )?;
        for execution in &self.executions {
            let logits = execution.measurements.last();
            let worst = execution
                .measurements
                .iter()
                .max_by(|a, b| a.share().total_cmp(&b.share()));
            writeln!(
                f,
                "{:<14} {:>13.2e} {:>11.1}% {:>12} {:>10.1e} {:>8.1}% {:>8.1}",
                execution.execution,
                logits.map_or(f64::NAN, |m| m.distance.relative_rms),
                worst.map_or(f64::NAN, Measurement::share) * 100.0,
                worst.map_or("", |m| &m.name),
                execution.distribution.max_divergence,
                execution.distribution.same_top * 100.0,
                execution.seconds,
            )?;
        }
        for finding in &self.findings {
            let Measurement {
                distance, budget, ..
            } = finding.measurement;
            writeln!(
                f,
                "fault: {} computes node `{}` ({}) of {} wrongly: relative error {:.2e}, budget {:.2e}",
                finding.execution,
                finding.node,
                finding.op,
                finding.region,
                distance.relative_rms,
                budget
            )?;
        }
        match self.verdict {
            Verdict::Pass => write!(f, "verdict: pass"),
            Verdict::Mismatch => write!(f, "verdict: mismatch"),
        }
    }
}
