//! Kernels of the eager CPU path: linear layers over quantised weights, attention, and the small
//! operations between them, on plain slices.
//!
//! Activations are `f32` and products accumulate in `f32` over several lanes; weights are
//! dequantised in registers, exactly as [`mlxcel_ir::WeightFormat`] defines them. Each kernel is
//! written once over the vector operations in `simd` and compiled in three [`Form`]s, of which a [`Pool`] holds the one to
//! run; all give the same values up to rounding.
//!
//! Every public function checks its arguments and returns an [`Error`] for slices of the wrong
//! length; none panics, and a panic on a thread of the pool becomes an error too. `unsafe` lies in
//! `simd` and in the kernels' inner loops, whose bounds the checked arguments give.
//!
//! Start reading at [`linear()`], whose rows are computed by `gemv` for few inputs and by `gemm`
//! for many.

#![allow(
    clippy::needless_range_loop,
    reason = "loops over arrays of vectors have constant bounds and index several arrays at once"
)]

mod activation;
mod attend;
mod attention;
mod cache;
mod convolution;
mod digits;
mod dot;
mod error;
mod experts;
mod form;
mod gemm;
mod gemv;
mod input;
mod layer_norm;
mod linear;
mod matrix;
mod panel;
mod pool;
mod recurrence;
mod rope;
mod rows;
mod sides;
mod simd;
mod widen;

pub use activation::{activate, gated};
pub use attention::{Attention, Sequence, attention};
pub use cache::{narrow, widen};
pub use convolution::{Convolution, causal_convolution};
pub use error::Error;
pub use experts::{Experts, expert_linear};
pub use form::Form;
pub use layer_norm::layer_norm;
pub use linear::{Linear, gated_linear, linear, linear_group};
pub use matrix::Matrix;
pub use pool::Pool;
pub use recurrence::{Recurrence, recurrence};
pub use rope::{Rope, rope};
pub use rows::{argmax, embedding_rows, rms_norm, softmax, take_along, top_k};
