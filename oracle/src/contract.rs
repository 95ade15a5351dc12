//! What a compiled artifact must compute, and whether it does.
//!
//! The reference is the interpreter's logits in f64 after each of a few tokens, with the budget that
//! [`crate::budget`] gives them. It comes from the checkpoint, or was stored in the artifact when it was
//! compiled ([`mlxcel_frontend::artifact::Contract`]), so that an artifact can be verified where no
//! checkpoint is.

use crate::budget::Budgets;
use crate::compare::{Distance, Positions};
use crate::execution::{Execution, ExecutionError, Inputs, ReferenceExecution};
use crate::model::default_tokens;
use crate::report::{ExecutionReport, Measurement, Report, Verdict, keep_worst};
use mlxcel_frontend::{GraphOptions, LoadError, Logits, Model, TextError};
use mlxcel_ir::step::{self, Row, RowOutput, Tokens, Want};
use mlxcel_ir::{Bindings, DType, HostTensor, Symbol};
use mlxcel_runtime_iree::{Contract, Error, Runtime};
use std::time::Instant;

/// The most tokens of a contract that nobody chose the tokens of: the interpreter takes each weight once for
/// every token.
const TOKENS: usize = 8;

/// Why there is no reference.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// The model has a flaw of its own.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No tokens, or one that is none.
    #[error("the tokens of a contract must be at least one, each below {vocabulary}")]
    Tokens {
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// The interpreter failed.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
}

/// The tokens of a contract that nobody chose any for.
///
/// # Errors
/// What the tokenizer says.
pub fn tokens(model: &Model) -> Result<Vec<u32>, TextError> {
    let mut tokens = default_tokens(model)?;
    tokens.truncate(TOKENS.min(model.context()));
    Ok(tokens)
}

/// What every execution of `model` with caches of `kv` must give for `tokens`.
///
/// # Errors
/// [`ContractError`].
pub fn reference(model: &Model, tokens: &[u32], kv: DType) -> Result<Contract, ContractError> {
    let (count, vocabulary) = (tokens.len(), model.vocabulary());
    let ids: Vec<i32> = tokens
        .iter()
        .filter(|&&token| (token as usize) < vocabulary)
        .filter_map(|&token| i32::try_from(token).ok())
        .collect();
    if count == 0 || ids.len() < count {
        return Err(ContractError::Tokens { vocabulary });
    }
    let mut graph = model.graph(&GraphOptions {
        name: "contract".into(),
        logits: Logits::All,
        token: false,
        hidden: false,
    })?;
    graph.keep_caches_in(kv);
    let bindings = Bindings::new()
        .with(Symbol::B, 1)
        .with(Symbol::T, count)
        .with(Symbol::S, count);
    let inputs: &Inputs<'_> = &[
        (step::TOKENS, HostTensor::i32([1, count], &ids)),
        (step::START, HostTensor::i32([1], &[0])),
        (step::LENGTH, HostTensor::i32([1], &[count as i32])),
    ];
    let weights = model.weights();
    let run = |execution: ReferenceExecution| execution.run(&graph, &bindings, &weights, inputs);
    let (exact, rounded) = (run(ReferenceExecution::F64)?, run(ReferenceExecution::F32)?);
    let budget = Budgets::new(&graph, &bindings, &exact, &rounded);
    let logits = exact.last().map_or(&[][..], |logits| &logits.values);
    Ok(Contract {
        tokens: tokens.to_vec(),
        logits: logits.iter().map(|&logit| logit as f32).collect(),
        budget: three_digits(budget.iter().last().unwrap_or(0.0)),
    })
}

/// The number, rounded up to three digits.
fn three_digits(number: f64) -> f64 {
    let exponent = number.log10().floor() as i32 - 2;
    let digits = (number / 10f64.powi(exponent)).ceil();
    // Read as people and JSON do.
    format!("{digits}e{exponent}").parse().unwrap_or(number)
}

/// Holds an artifact of `model`, called `name` in the report, against `contracts`, each in new sequences: all
/// tokens at once and one by one. `layers` are the model's, if its checkpoint is at hand.
///
/// # Errors
/// What the runtime said. A wrong number is in the report, not an error.
pub fn hold(
    [model, name]: [&str; 2],
    layers: Option<usize>,
    runtime: &mut Runtime,
    contracts: &[Contract],
) -> Result<Report, Error> {
    let started = Instant::now();
    let vocabulary = runtime.vocabulary();
    let mut positions = Positions::default();
    let mut measurements: Vec<Measurement> = Vec::new();
    for contract in contracts {
        let exact: Vec<f64> = contract.logits.iter().map(|&logit| logit.into()).collect();
        let last = &exact[exact.len().saturating_sub(vocabulary)..];
        let all = &contract.tokens[..];
        let at_once = logits(runtime, &[all])?;
        let one_by_one: Vec<&[u32]> = all.chunks(1).collect();
        let stepped = logits(runtime, &one_by_one)?;
        positions.add(&stepped, &exact, vocabulary, all);
        let measured = [
            ("at once", &at_once[..], last),
            ("one by one", &stepped[..], &exact[..]),
        ];
        let measured = measured.map(|(name, found, expected)| Measurement {
            name: name.to_string(),
            distance: Distance::between(found, expected),
            budget: contract.budget,
        });
        keep_worst(&mut measurements, measured.into());
    }
    // Where an artifact goes wrong inside cannot be seen from outside, so there is nothing to blame.
    let good = measurements.iter().all(Measurement::within);
    Ok(Report {
        model: model.to_string(),
        tokens: contracts.iter().map(|contract| contract.tokens.len()).sum(),
        layers,
        verdict: match good {
            true => Verdict::Pass,
            false => Verdict::Mismatch,
        },
        executions: vec![ExecutionReport {
            execution: name.to_string(),
            measurements,
            distribution: positions.summary(),
            choices: None,
            nodes: Vec::new(),
            seconds: started.elapsed().as_secs_f64(),
        }],
        findings: Vec::new(),
    })
}

/// The logits after each of `steps` of a new sequence.
fn logits(runtime: &mut Runtime, steps: &[&[u32]]) -> Result<Vec<f64>, Error> {
    let sequence = runtime.create()?;
    let mut all = Vec::new();
    for tokens in steps {
        let row = Row {
            sequence,
            tokens: Tokens::Given(tokens),
            want: Want::Logits,
        };
        let ticket = runtime.submit(&[row])?;
        for output in runtime.wait(ticket)? {
            if let RowOutput::Logits(logits) = output {
                all.extend(logits.into_iter().map(f64::from));
            }
        }
    }
    runtime.release(sequence)?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::three_digits;

    #[test]
    fn budgets_are_numbers_that_json_brings_back() {
        for number in [3.272_5e-5, 1.0, 0.999_9, 5.1e-13, 1e-300] {
            let rounded = three_digits(number);
            assert!(
                rounded >= number && rounded <= number * 1.011,
                "{number}: {rounded}"
            );
            let text = serde_json::to_string(&rounded).unwrap();
            assert_eq!(
                serde_json::from_str::<f64>(&text).unwrap(),
                rounded,
                "{text}"
            );
        }
    }
}
