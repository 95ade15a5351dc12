//! What computes with the weights of each format.

use crate::plan::Plan;
use crate::weight::Weight;
use std::collections::BTreeMap;
use std::fmt;

/// What computes with a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// Own kernels, straight from the stored form.
    Kernels,
    /// MLX's operations, straight from the stored form, with scales and biases as f32.
    Mlx,
    /// MLX's operations, from the numbers as f32: a copy of them is in memory.
    Numbers,
}

/// How the weights of one format are computed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The format, as a graph's text form names it.
    pub format: String,
    /// Whether the format is quantised.
    pub quantised: bool,
    /// What computes.
    pub by: By,
    /// Weights of the format that take this route.
    pub weights: usize,
    /// Bytes that they have in the stored form.
    pub bytes: usize,
    /// The name of one of them.
    pub example: String,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            By::Kernels => "own kernels",
            By::Mlx => "MLX",
            By::Numbers => "MLX, as f32 numbers",
        };
        let Self {
            format,
            weights,
            example,
            ..
        } = self;
        write!(f, "{format}: {by} ({weights} weights, such as `{example}`)")
    }
}

impl Plan {
    /// The routes of the graph's weights, by format.
    pub(crate) fn routes(&self) -> Vec<Route> {
        let mut routes: BTreeMap<(String, By), Route> = BTreeMap::new();
        for (index, declaration) in self.graph.weights.iter().enumerate() {
            let stored = match self.weights.get(index) {
                Some(Some(Weight::Affine { .. })) => Some(By::Mlx),
                Some(Some(Weight::Dense(_))) => Some(By::Numbers),
                _ => None,
            };
            let numbers = self.parameters.get(index).is_some_and(Option::is_some);
            let by = match stored {
                Some(by) if !numbers => by,
                None if !numbers => By::Kernels,
                _ => By::Numbers,
            };
            let format = declaration.format.to_string();
            let route = routes.entry((format.clone(), by)).or_insert_with(|| Route {
                quantised: declaration.format.coded().is_some(),
                format,
                by,
                weights: 0,
                bytes: 0,
                example: declaration.name.clone(),
            });
            route.weights += 1;
            route.bytes += declaration.bytes();
        }
        routes.into_values().collect()
    }
}
