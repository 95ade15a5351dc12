//! Passes: from a graph to an equal one that is cheaper to run.
//!
//! A pass takes a graph that verifies and gives one that verifies, with the same inputs, states and
//! outputs. Each output and each state is the same to the last bit in every arithmetic: a pass may
//! drop, share or precompute a node, but never reorders floating-point operations. Ops with a state
//! stay, in their order.
//!
//! A node's name survives as long as the node's value is computed at all, because executions are
//! compared by those names.

mod common;
mod dead;
mod fold;
mod rewrite;
mod specialise;

pub use common::common;
pub use dead::dead;
pub use fold::fold;
pub use specialise::specialise;

use crate::Graph;

/// A pass without parameters.
pub type Pass = fn(&Graph) -> Graph;

/// The passes without parameters by name, in the order in which [`simplify`] runs them.
pub const PASSES: &[(&str, Pass)] = &[("fold", fold), ("common", common), ("dead", dead)];

/// The graph after all of [`PASSES`].
pub fn simplify(graph: &Graph) -> Graph {
    PASSES
        .iter()
        .fold(graph.clone(), |graph, (_, pass)| pass(&graph))
}
