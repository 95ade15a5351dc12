//! The graph that defines a model, and what it means.
//!
//! A model is one [`Graph`]: SSA, one block, typed tensors, one result per node. Every other crate
//! either builds such a graph (`frontend`) or executes it (`runtime-mlx`, `lower` + `runtime-iree`).
//! This crate says which graphs are legal and what number each node has.
//!
//! Invariants:
//! - No native library and no file access: a graph comes in as values or text, weights come in
//!   through [`WeightSource`].
//! - Every op is declared once, in the table of [`op`]. The enum, the builder methods, the text form
//!   and the reference page come from that table.
//! - A composite op has exactly one decomposition into primitives ([`decompose`]). The interpreter
//!   runs the decomposition, so a fused kernel elsewhere always has a definition to be held against.
//! - Operands are defined before use; a node's position in the list is its place in the execution
//!   order, which is what orders the effects on states.
//!
//! Start reading at [`op`], then [`graph`], then [`interpret`]. [`text`] prints and reads graphs,
//! [`verify`] says which are legal, [`pass`] makes cheaper ones, [`cost`] counts what they move.

pub mod attribute;
pub mod builder;
pub mod cost;
pub mod decompose;
pub mod dtype;
pub mod graph;
pub mod infer;
pub mod interpret;
pub mod op;
pub mod pass;
pub mod random;
pub mod rope;
pub mod shape;
pub mod step;
pub mod tensor;
pub mod text;
pub mod verify;
pub mod weight;

pub use attribute::{
    Activation, Comparison, Mask, Pairing, Reduction, RopeScaling, StateKind, StatePart,
};
pub use builder::{BuildError, Builder};
pub use dtype::DType;
pub use graph::{Graph, Input, Node, Output, StateDecl, StateId, ValueId, WeightId};
pub use op::Op;
pub use shape::{Bindings, Dim, Symbol, TensorType};
pub use tensor::HostTensor;
pub use weight::{WeightData, WeightDecl, WeightFormat, WeightSource};
