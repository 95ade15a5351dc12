//! The level of random graphs: interpreter, MLX, kernels and IREE on graphs that nobody wrote.

use crate::bisect::{first_wrong, steps};
use crate::case::Case;
use crate::execution::{Execution, ExecutionError, IreeExecution, MlxExecution, Observed};
use crate::known;
use crate::reduce::{reduce, tidy};
use crate::rewritten::{Decomposed, Passes};
use crate::standard::Standard;
use crate::summary::{Failure, Level};
use mlxcel_ir::Op;
use mlxcel_ir::random::{self, Data};
use std::collections::BTreeMap;
use std::time::Instant;

/// How much to try.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// The first graph's number; others follow.
    pub first: u64,
    /// Graphs for the interpreter, MLX and kernels.
    pub graphs: u64,
    /// How many of them, spread evenly, are compiled by IREE as well.
    pub compiled: u64,
    /// Graphs that one run of the compiler takes.
    pub batch: usize,
}

/// The graph of a number, settled, or `None` where nothing of it is.
pub fn case(number: u64) -> Option<Case> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = || {
        // Xorshift; its high bits are random enough.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    let length = 20 + next() % 140;
    let tape: Vec<u32> = (0..length).map(|_| next()).collect();
    let random = random::graph(&tape);
    let data = Data::new(&random.graph, &random.bindings, number);
    let settled = random::settle(&random.graph, &random.bindings, &data).ok()?;
    let graph = tidy(&settled.graph);
    (!graph.nodes.is_empty()).then_some(Case {
        graph,
        bindings: random.bindings,
        seed: number,
        given: None,
    })
}

/// Checks an execution on a case; `None` where all is well.
fn fault(case: &Case, execution: &dyn Execution) -> Option<String> {
    let checked = known::expected(case, execution)
        .and_then(|standard| Ok(standard.worst(&case.run(execution)?)));
    match checked {
        Ok(Some(deviation)) if !deviation.within() => Some(deviation.to_string()),
        Ok(_) => None,
        Err(error) => {
            let message = known::full(&error);
            known::explains(execution, &message)
                .is_none()
                .then_some(message)
        }
    }
}

/// Whether a smaller case still has one meaning.
fn settled(case: &Case) -> bool {
    let outputs = case.graph.outputs.len();
    !case.graph.nodes.is_empty()
        && mlxcel_ir::verify::errors(&case.graph).is_empty()
        && random::settle(&case.graph, &case.bindings, &case.data()).is_ok_and(|settled| {
            settled.graph.nodes.len() == case.graph.nodes.len() && settled.outputs.len() == outputs
        })
}

/// A smaller case on which the execution is at fault too.
pub fn smallest(found: &Case, execution: &dyn Execution) -> Case {
    reduce(found, &|case| {
        settled(case) && fault(case, execution).is_some()
    })
}

/// Whether an execution runs a case, and what it computes is not within the bounds.
pub(crate) fn wrong(case: &Case, execution: &dyn Execution) -> bool {
    let expected = known::expected(case, execution);
    let worst = expected.and_then(|standard| Ok(standard.worst(&case.run(execution)?)));
    worst.is_ok_and(|worst| worst.is_some_and(|worst| !worst.within()))
}

/// Runs the level; one line for each execution, and the share of graphs that have each op.
pub fn run(amount: Amount, progress: &dyn Fn(&str)) -> (Vec<Level>, BTreeMap<&'static str, u64>) {
    let mut coverage: BTreeMap<&'static str, u64> =
        Op::TABLE.iter().map(|info| (info.name, 0)).collect();
    let (alone, together) = (Passes::alone(), Passes::together());
    let mut executions: Vec<&dyn Execution> = alone.iter().map(|pass| pass as _).collect();
    executions.extend::<[&dyn Execution; 4]>([
        &together,
        &Decomposed,
        &MlxExecution::Operations,
        &MlxExecution::Kernels,
    ]);
    let mut levels: Vec<Level> = executions
        .iter()
        .map(|execution| Level::new(format!("random graphs, {}", execution.name())))
        .collect();
    let mut compiled = Level::new("random graphs, iree-cpu");
    let mut waiting: Vec<(Case, Standard)> = vec![];
    let stride = amount
        .graphs
        .checked_div(amount.compiled)
        .unwrap_or(u64::MAX);
    for index in 0..amount.graphs {
        let number = amount.first + index;
        let Some(case) = case(number) else { continue };
        let standard = match case.standard() {
            Ok(standard) => standard,
            Err(error) => {
                levels[0].fail(Failure::new("interpreter", &case, error.to_string()));
                continue;
            }
        };
        let mut seen: Vec<&str> = case.graph.nodes.iter().map(|n| n.op.info().name).collect();
        seen.sort_unstable();
        seen.dedup();
        for op in seen {
            *coverage.entry(op).or_default() += 1;
        }
        for (&execution, level) in executions.iter().zip(&mut levels) {
            let begin = Instant::now();
            let outcome = case.run(execution);
            level.seconds += begin.elapsed().as_secs_f64();
            record(level, &case, execution, &standard, outcome);
        }
        if index % stride == 0 && amount.compiled > 0 {
            match known::expected(&case, &IreeExecution) {
                Ok(standard) => waiting.push((case, standard)),
                Err(error) => compiled.fail(Failure::new("interpreter", &case, error.to_string())),
            }
        }
        if waiting.len() >= amount.batch {
            flush(&mut compiled, &mut waiting);
        }
        if index % 500 == 499 {
            progress(&format!("{} random graphs", index + 1));
        }
    }
    flush(&mut compiled, &mut waiting);
    if amount.compiled > 0 {
        levels.push(compiled);
    }
    (levels, coverage)
}

fn flush(level: &mut Level, waiting: &mut Vec<(Case, Standard)>) {
    let begin = Instant::now();
    let cases: Vec<&Case> = waiting.iter().map(|(case, _)| case).collect();
    let outcomes = IreeExecution.run_batch(&cases);
    level.seconds += begin.elapsed().as_secs_f64();
    for ((case, standard), outcome) in waiting.iter().zip(outcomes) {
        record(level, case, &IreeExecution, standard, outcome);
    }
    waiting.clear();
}

/// Counts what an execution made of a case; a failing one is made smaller first.
fn record(
    level: &mut Level,
    case: &Case,
    execution: &dyn Execution,
    standard: &Standard,
    outcome: Result<Vec<Observed>, ExecutionError>,
) {
    let failed = level.failures.len();
    level.record(case, execution, standard, outcome);
    // Making one smaller takes many runs, and with IREE as many compilations; the first few tell enough.
    let most = match execution.name() == IreeExecution.name() {
        true => 2,
        false => 8,
    };
    if level.failures.len() > failed && level.failures.len() <= most {
        let small = smallest(case, execution);
        if let (Some(mut reason), Some(last)) =
            (fault(&small, execution), level.failures.last_mut())
        {
            let passes = execution.name() == Passes::together().name();
            if let Some(pass) = passes
                .then(|| first_wrong(&small, &steps()).ok().flatten())
                .flatten()
            {
                reason.push_str(&format!("; the first pass that changes it is `{pass}`"));
            }
            *last = Failure::new(execution.name(), &small, reason);
        }
    }
}
