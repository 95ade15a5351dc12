//! What a graph's outputs are, and how far from it each element of an honest execution may be.

use crate::execution::{ExecutionError, Inputs, Observed, failed};
use mlxcel_ir::interpret::{Bounded, Elements, Interpreter, States, Tensor};
use mlxcel_ir::{Bindings, DType, Graph, WeightSource};
use std::sync::Arc;

/// The outputs of a graph in numbers that know their bounds, in declaration order.
#[derive(Clone, Debug)]
pub struct Standard(pub Vec<(String, Tensor<Bounded>)>);

/// The element of an output that is furthest from the standard, as a share of its bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// The output.
    pub output: String,
    /// The flat index of the element; 0 where the shapes differ.
    pub index: usize,
    /// What the execution computed.
    pub found: f64,
    /// What it should be.
    pub expected: f64,
    /// How far from that it may be.
    pub bound: f64,
    /// The distance as a share of the bound: 0 if there is none, above 1 if the execution is wrong.
    pub share: f64,
}

impl Deviation {
    /// Whether rounding explains it.
    pub fn within(&self) -> bool {
        self.share <= 1.0
    }
}

impl std::fmt::Display for Deviation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`{}` element {}: {} instead of {}, which is {:.3} of the bound {:.3e}",
            self.output, self.index, self.found, self.expected, self.share, self.bound
        )
    }
}

impl Standard {
    /// Interprets `graph` from empty states.
    ///
    /// # Errors
    /// If the graph cannot be interpreted.
    pub fn new(
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Self, ExecutionError> {
        let interpreter = Interpreter::<Bounded>::new(graph, weights.clone())
            .map_err(failed("reference-bounded", graph))?;
        let outputs = interpreter
            .run(bindings, inputs, &mut States::new(graph))
            .map_err(failed("reference-bounded", graph))?;
        Ok(Self(outputs))
    }

    /// The worst element of each output that `observed` has, in order.
    pub fn deviations<'a>(
        &'a self,
        observed: &'a [Observed],
    ) -> impl Iterator<Item = Deviation> + 'a {
        self.0
            .iter()
            .zip(observed)
            .map(|((name, tensor), observed)| deviation(name, tensor, observed))
    }

    /// The worst element of all; `None` for a graph without outputs.
    pub fn worst(&self, observed: &[Observed]) -> Option<Deviation> {
        self.deviations(observed)
            .max_by(|a, b| a.share.total_cmp(&b.share))
    }
}

/// From which size on numbers of a type may be infinite.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f64::from(half::f16::MAX),
        DType::BF16 => f64::from(half::bf16::MAX),
        _ => f64::from(f32::MAX),
    }
}

/// The worst element of one output.
pub fn deviation(name: &str, tensor: &Tensor<Bounded>, observed: &Observed) -> Deviation {
    let mut worst = Deviation {
        output: name.to_string(),
        index: 0,
        found: 0.0,
        expected: 0.0,
        bound: 0.0,
        share: 0.0,
    };
    if tensor.shape != observed.shape
        || observed.values.len() != tensor.shape.iter().product::<usize>()
    {
        worst.share = f64::INFINITY;
        return worst;
    }
    let limit = limit(tensor.dtype);
    let exact = Bounded::exact;
    let mut check = |index: usize, expected: Bounded, found: f64| {
        let share = share(expected, found, limit);
        if share > worst.share || (index == 0 && share == worst.share) {
            (worst.index, worst.found, worst.share) = (index, found, share);
            (worst.expected, worst.bound) = (expected.value, expected.error);
        }
    };
    let observed = observed.values.iter().copied().enumerate();
    match &*tensor.elements {
        Elements::Float(numbers) => observed
            .zip(numbers)
            .for_each(|((index, found), &number)| check(index, number, found)),
        Elements::Integer(numbers) => observed
            .zip(numbers)
            .for_each(|((index, found), &number)| check(index, exact(number as f64), found)),
        Elements::Bool(truths) => observed
            .zip(truths)
            .for_each(|((index, found), &truth)| check(index, exact(f64::from(truth)), found)),
    }
    worst
}

/// The distance of `found` from `expected` as a share of the bound.
fn share(expected: Bounded, found: f64, limit: f64) -> f64 {
    let Bounded { value, error, .. } = expected;
    let same = found == value || (found.is_nan() && value.is_nan());
    if same || error.is_infinite() {
        return 0.0;
    }
    // What may be too large for the type may be infinite.
    let overflows = found.is_infinite() && value.abs() + error >= limit;
    if overflows && found.is_sign_positive() == value.is_sign_positive() {
        return 0.0;
    }
    if value.abs() > limit && found.abs() >= limit {
        return 0.0;
    }
    match (found - value).abs() / error {
        share if share.is_nan() => f64::INFINITY,
        share => share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let check = |value: f64, error: f64, found: f64, expect: f64| {
            let expected = Bounded {
                value,
                error,
                ..Bounded::default()
            };
            let found = share(expected, found, 65504.0);
            assert_eq!(found, expect, "{value} {error}");
        };
        check(1.0, 0.5, 1.25, 0.5);
        check(1.0, 0.5, 2.0, 2.0);
        check(1.0, 0.0, 1.0, 0.0);
        check(1.0, 0.0, 1.5, f64::INFINITY);
        check(1.0, 0.5, f64::NAN, f64::INFINITY);
        check(f64::NAN, 0.0, f64::NAN, 0.0);
        check(f64::NAN, 0.0, 1.0, f64::INFINITY);
        check(65500.0, 32.0, f64::INFINITY, 0.0);
        check(65500.0, 32.0, f64::NEG_INFINITY, f64::INFINITY);
        check(f64::NEG_INFINITY, 0.0, f64::NEG_INFINITY, 0.0);
        check(f64::NEG_INFINITY, 0.0, 3.0, f64::INFINITY);
    }
}
