//! Graphs that are changed first, as executions: what a pass or a decomposition makes of a graph, run.

use crate::bisect::{Step, steps};
use crate::execution::{
    Execution, ExecutionError, Inputs, MlxExecution, Observed, ReferenceExecution, failed,
};
use mlxcel_ir::decompose::decompose;
use mlxcel_ir::{Bindings, Graph, WeightSource};
use std::sync::Arc;

/// Passes: the interpreter in f32 on what they make of a graph, which must give every bit that it gives
/// without them.
pub struct Passes {
    name: &'static str,
    steps: Vec<Step>,
}

impl Passes {
    /// Each pass alone, under its name.
    pub fn alone() -> Vec<Self> {
        let of = |step: Step| Self {
            name: step.0,
            steps: vec![step],
        };
        steps().into_iter().map(of).collect()
    }

    /// All of them, one after the other.
    pub fn together() -> Self {
        Self {
            name: "passes",
            steps: steps(),
        }
    }
}

impl Execution for Passes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let changed = self.steps.iter();
        let changed = changed.fold(graph.clone(), |graph, (_, step)| step(&graph, bindings));
        let run = |graph| ReferenceExecution::F32.run(graph, bindings, weights, inputs);
        let (before, after) = (run(graph)?, run(&changed)?);
        match same_bits(&before, &after) {
            true => Ok(after),
            false => Err(failed(self.name, graph)("it changes bits of an output")),
        }
    }
}

/// Whether two executions gave the same outputs, to the last bit.
pub(crate) fn same_bits(before: &[Observed], after: &[Observed]) -> bool {
    let bits = |number: &f64| number.to_bits();
    before.len() == after.len()
        && before.iter().zip(after).all(|(before, after)| {
            before.name == after.name
                && before.shape == after.shape
                && before
                    .values
                    .iter()
                    .map(bits)
                    .eq(after.values.iter().map(bits))
        })
}

/// Decompositions: the operations of MLX on a graph in primitives. Elsewhere only the interpreter runs whole
/// decompositions, and it has nothing else to be held against.
pub struct Decomposed;

impl Execution for Decomposed {
    fn name(&self) -> &'static str {
        "decomposed"
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let primitives = decompose(graph).map_err(failed(self.name(), graph))?;
        MlxExecution::Operations.run(&primitives, bindings, weights, inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;

    /// Multiplies in another order, which rounding explains and a pass must not do.
    fn reordered(graph: &Graph, _: &Bindings) -> Graph {
        let mut graph = graph.clone();
        let [first, second] = &mut graph.nodes[..] else {
            return graph;
        };
        std::mem::swap(&mut first.operands[0], &mut second.operands[1]);
        graph
    }

    #[test]
    fn a_pass_that_changes_a_bit_is_caught() {
        let case = Case::parse(
            "// case seed = 3, B = 1, T = 4, S = 4\n\
             func @f(%x: f32[B, T], %y: f32[B, T], %z: f32[B, T]) {\n  \
             %3 = multiply(%x, %y) : f32[B, T]\n  %4 = multiply(%3, %z) : f32[B, T]\n  return p = %4\n}\n",
        )
        .unwrap();
        let check = |steps: Vec<Step>, right: bool| {
            let passes = Passes {
                name: "under test",
                steps,
            };
            assert_eq!(case.run(&passes).is_ok(), right);
        };
        check(steps(), true);
        check(vec![("reordered", Box::new(reordered))], false);
        let changed = Case {
            graph: reordered(&case.graph, &case.bindings),
            ..case.clone()
        };
        let observed = changed.run(&ReferenceExecution::F32).unwrap();
        assert!(case.standard().unwrap().worst(&observed).unwrap().within());
    }
}
