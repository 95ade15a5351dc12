//! Files of kind `run` on the interpreter.
//!
//! Results in f64 hold to 1e-12, in f32 to 1e-6, both relative to the larger of 1 and the number. The
//! passes must not change any of the results.

use crate::common::{Outputs, Step, execute};
use crate::language::Case;
use mlxcel_ir::interpret::Float;
use mlxcel_ir::random::Weights;
use mlxcel_ir::{Graph, pass};
use std::sync::Arc;

pub(crate) fn check(case: &Case) -> Result<(), String> {
    let (graph, weights, calls) = case.calls()?;
    let graph = &graph;
    let (steps, expected): (Vec<Step>, Vec<Outputs>) = calls
        .into_iter()
        .map(|call| ((call.bindings, call.inputs), call.outputs))
        .unzip();
    compare::<f64>(graph, &weights, &steps, &expected, 1e-12)?;
    compare::<f32>(graph, &weights, &steps, &expected, 1e-6)?;
    let before = execute::<f32>(graph, &weights, &steps)?;
    for (name, pass) in pass::PASSES
        .iter()
        .chain([&("simplify", pass::simplify as _)])
    {
        let after = execute::<f32>(&pass(graph), &weights, &steps)?;
        if format!("{before:?}") != format!("{after:?}") {
            return Err(format!("the pass {name} changes {before:?} to {after:?}"));
        }
    }
    Ok(())
}

fn compare<F: Float>(
    graph: &Graph,
    weights: &Arc<Weights>,
    steps: &[Step],
    expected: &[Outputs],
    tolerance: f64,
) -> Result<(), String> {
    let found = execute::<F>(graph, weights, steps)?;
    let close = |a: f64, b: f64| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0)
    };
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = found.len() == expected.len()
            && found
                .iter()
                .zip(expected)
                .all(|((name, found), (wanted, expected))| {
                    name == wanted
                        && found.len() == expected.len()
                        && found.iter().zip(expected).all(|(&a, &b)| close(a, b))
                });
        if !same {
            let kind = std::any::type_name::<F>();
            return Err(format!(
                "step {step} in {kind}: expected\n  {expected:?}\nfound\n  {found:?}"
            ));
        }
    }
    Ok(())
}
