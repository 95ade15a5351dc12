//! Execution of a small compiled module: calls, artifacts, sequences. Where no compiler is
//! installed the tests say so and pass.

mod artifact;
mod corruption;
mod module;
mod ragged;
mod sequences;
mod toy;
