//! Which pass makes a graph mean something else.

use crate::case::Case;
use crate::execution::{ExecutionError, ReferenceExecution};
use crate::rewritten::same_bits;
use mlxcel_ir::{Bindings, Graph, pass};

/// A pass by name, which takes the graph and the sizes of its symbols.
pub type Step = (&'static str, Box<dyn Fn(&Graph, &Bindings) -> Graph>);

/// The passes, in the order in which they are run one after the other.
pub fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = vec![("specialise", Box::new(pass::specialise))];
    for &(name, pass) in pass::PASSES {
        steps.push((name, Box::new(move |graph, _| pass(graph))));
    }
    steps
}

/// The first of `steps`, run one after the other, after which `right` no longer holds of the graph; `None`
/// where it always does.
pub fn first(
    graph: &Graph,
    bindings: &Bindings,
    steps: &[Step],
    right: &dyn Fn(&Graph) -> bool,
) -> Option<&'static str> {
    let mut graph = graph.clone();
    for (name, step) in steps {
        graph = step(&graph, bindings);
        if !right(&graph) {
            return Some(name);
        }
    }
    None
}

/// The first of `steps` after which the interpreter in f32 no longer gives the same bits.
///
/// # Errors
/// If the case itself cannot be interpreted. A graph that a pass leaves illegal is that pass's fault.
pub fn first_wrong(case: &Case, steps: &[Step]) -> Result<Option<&'static str>, ExecutionError> {
    let before = case.run(&ReferenceExecution::F32)?;
    // Inputs and weights follow from their names, of which a pass may drop some but changes none.
    let right = |graph: &Graph| {
        let changed = Case {
            graph: graph.clone(),
            ..case.clone()
        };
        let observed = changed.run(&ReferenceExecution::F32);
        observed.is_ok_and(|after| same_bits(&before, &after))
    };
    Ok(first(&case.graph, &case.bindings, steps, &right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlxcel_ir::Op;

    /// Takes the square root for the exponential.
    fn wrong(graph: &Graph, _: &Bindings) -> Graph {
        let mut graph = graph.clone();
        for node in &mut graph.nodes {
            if matches!(node.op, Op::Exp {}) {
                node.op = Op::Sqrt {};
            }
        }
        graph
    }

    #[test]
    fn the_wrong_pass_is_named() {
        let case = Case::parse(
            "// case seed = 3, B = 1, T = 4, S = 4\n\
             func @f(%x: f32[B, T]) {\n  %1 = abs(%x) : f32[B, T]\n  %2 = exp(%1) : f32[B, T]\n  \
             %3 = exp(%1) : f32[B, T]\n  %4 = add(%2, %3) : f32[B, T]\n  return y = %4\n}\n",
        )
        .unwrap();
        assert_eq!(first_wrong(&case, &steps()).unwrap(), None);
        for place in 0..=steps().len() {
            let mut passes = steps();
            passes.insert(place, ("wrong", Box::new(wrong)));
            assert_eq!(
                first_wrong(&case, &passes).unwrap(),
                Some("wrong"),
                "{place}"
            );
        }
    }
}
