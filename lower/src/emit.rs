//! Graphs as StableHLO.
//!
//! A graph's composites are replaced by their decompositions, except those that have a better form
//! here: embedding, linear and attention. What is left maps op by op.

mod attention;
mod codes;
mod element;
mod function;
mod linear;
mod module;
mod operations;
mod primitive;
mod weight;

pub(crate) use module::module;
