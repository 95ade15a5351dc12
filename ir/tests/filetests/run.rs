//! Files of kind `run`: a graph with its weights, inputs and outputs in comments.
//!
//! ```text
//! // weight w = [1, 2, 3]
//! // weight q codes = [0, 15] scales = [0.5] biases = [-1]
//! // bind B = 1, T = 2
//! // input x = [1.5, -2]
//! // output y = [3, -4]
//! ```
//!
//! `// step` begins a further call on the same states. Values are computed by hand or from the
//! textbook formula, never by this crate. Results in f64 hold to 1e-12, in f32 to 1e-6, both
//! relative to the larger of 1 and the number. The passes must not change any of the results.

use crate::common::{Outputs, Step, Weights, bytes, execute};
use mlxcel_ir::interpret::Float;
use mlxcel_ir::{Bindings, Graph, HostTensor, pass};
use std::sync::Arc;

pub(crate) fn check(graph: &Graph, directives: &[(String, String)]) -> Result<(), String> {
    let mut weights = Weights::default();
    let mut steps: Vec<(Step, Outputs)> = vec![Default::default()];
    for (key, rest) in directives {
        let step = steps.last_mut().ok_or("there is always a step")?;
        match key.as_str() {
            "weight" => weight(graph, &mut weights, rest)?,
            "bind" => step.0.0 = crate::bindings(rest)?,
            "step" => steps.push(Default::default()),
            "input" => {
                let (name, numbers) = assignment(rest)?;
                let tensor = input(graph, &step.0.0, name, &numbers)?;
                step.0.1.push((name.to_string(), tensor));
            }
            "output" => {
                let (name, numbers) = assignment(rest)?;
                step.1.push((name.to_string(), numbers));
            }
            _ => {}
        }
    }
    let (steps, expected): (Vec<Step>, Vec<Outputs>) = steps.into_iter().unzip();
    let weights = Arc::new(weights);
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

/// Reads `w = [1, 2]` or `w codes = [..] scales = [..] biases = [..]`.
fn weight(graph: &Graph, weights: &mut Weights, text: &str) -> Result<(), String> {
    let name = text.split_whitespace().next().unwrap_or("");
    let declared = graph.weights.iter().find(|weight| weight.name == name);
    let declared = declared.ok_or_else(|| format!("the graph has no weight {name:?}"))?;
    let mut parts = Vec::new();
    for part in text.split_inclusive(']') {
        parts.push(assignment(part)?.1);
    }
    let part = |index: usize| parts.get(index).map_or(&[][..], |part| part);
    weights.insert(declared, [part(0), part(1), part(2)]);
    Ok(())
}

/// Reads `name = [1, 2.5]`.
fn assignment(text: &str) -> Result<(&str, Vec<f64>), String> {
    let (name, list) = text
        .split_once('=')
        .ok_or_else(|| format!("expected `=` in {text:?}"))?;
    let list = list
        .trim()
        .strip_prefix('[')
        .and_then(|list| list.strip_suffix(']'));
    let list = list.ok_or_else(|| format!("expected a list in {text:?}"))?;
    let items = list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    let numbers = items.map(|item| item.parse().map_err(|_| format!("{item:?} is no number")));
    Ok((name.trim(), numbers.collect::<Result<_, _>>()?))
}

fn input(
    graph: &Graph,
    bindings: &Bindings,
    name: &str,
    numbers: &[f64],
) -> Result<HostTensor, String> {
    let declared = graph.inputs.iter().find(|input| input.name == name);
    let ty = &declared
        .ok_or_else(|| format!("the graph has no input {name:?}"))?
        .ty;
    let shape = ty.sizes(bindings);
    let shape = shape.map_err(|symbol| format!("{} is not bound", symbol.name()))?;
    if shape.iter().product::<usize>() != numbers.len() {
        return Err(format!(
            "input {name:?} does not have {} elements",
            numbers.len()
        ));
    }
    Ok(HostTensor {
        dtype: ty.dtype,
        shape,
        bytes: bytes(ty.dtype, numbers),
    })
}
