//! Graphs as StableHLO.
//!
//! A graph's composites are replaced by their decompositions, except those that have a better form
//! here: embedding, linear layers and attention. What is left maps op by op.

mod attention;
mod body;
mod codes;
mod element;
#[cfg(test)]
mod filetests;
mod function;
mod fusion;
mod gpu;
mod kernel;
mod linear;
mod memory;
mod module;
mod operations;
mod primitive;
mod rotate;
mod tokens;
mod weight;

pub(crate) use kernel::Kernels;
pub(crate) use module::module;
