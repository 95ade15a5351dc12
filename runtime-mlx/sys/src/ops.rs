//! Operations of MLX. Each records one operation on a stream and returns its result, which is
//! computed when it is evaluated. Errors are what MLX says about the operands' shapes and types.

use crate::array::list;
use crate::bridge::ffi::{self, Binary, Dtype, Reduction, Unary};
use crate::{Array, Error, Stream};

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident($($argument:ident : $type:ty),*) => $($value:expr),*;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// What MLX says.
        #[allow(clippy::too_many_arguments, reason = "as many as the operation of MLX takes")]
        pub fn $name($($argument: $type,)* stream: &Stream) -> Result<Array, Error> {
            Ok(Array::new(ffi::$name($($value,)* stream.raw())?))
        }
    )*};
}

operations! {
    /// A tensor whose elements all equal `value`, rounded to `dtype`.
    full(value: f64, shape: &[i32], dtype: Dtype) => value, shape, dtype;
    /// The numbers `0 .. count`.
    arange(count: i32, dtype: Dtype) => count, dtype;
    /// The same numbers in another element type.
    astype(x: &Array, dtype: Dtype) => x.raw(), dtype;
    /// An operation element by element.
    unary(kind: Unary, x: &Array) => kind, x.raw();
    /// An operation on two tensors element by element, with broadcasting.
    binary(kind: Binary, lhs: &Array, rhs: &Array) => kind, lhs.raw(), rhs.raw();
    /// `on_true` where `condition` holds, else `on_false`.
    select(condition: &Array, on_true: &Array, on_false: &Array) =>
        condition.raw(), on_true.raw(), on_false.raw();
    /// The same elements in another shape.
    reshape(x: &Array, shape: &[i32]) => x.raw(), shape;
    /// Dimension `i` of the result is dimension `permutation[i]` of `x`.
    transpose(x: &Array, permutation: &[i32]) => x.raw(), permutation;
    /// Repeats dimensions of size 1, aligned at the last dimension.
    broadcast(x: &Array, shape: &[i32]) => x.raw(), shape;
    /// Elements `start .. stop` in steps of `stride` of each dimension.
    slice(x: &Array, start: &[i32], stop: &[i32], stride: &[i32]) => x.raw(), start, stop, stride;
    /// `x` with `start .. stop` of each dimension replaced; in place if nothing else holds `x`.
    slice_update(x: &Array, update: &Array, start: &[i32], stop: &[i32]) =>
        x.raw(), update.raw(), start, stop;
    /// Slices of `x` along `axis` chosen by `indices`.
    take(x: &Array, indices: &Array, axis: i32) => x.raw(), indices.raw(), axis;
    /// Elements of `x` along `axis` chosen by `indices`, which has the rank of `x`.
    take_along(x: &Array, indices: &Array, axis: i32) => x.raw(), indices.raw(), axis;
    /// The product of matrices, batched over leading dimensions.
    matmul(lhs: &Array, rhs: &Array) => lhs.raw(), rhs.raw();
    /// A reduction of `axis`, which stays with size 1.
    reduce(kind: Reduction, x: &Array, axis: i32) => kind, x.raw(), axis;
    /// The u32 index of the largest element along `axis`, which is dropped.
    argmax(x: &Array, axis: i32) => x.raw(), axis;
    /// The same elements, row-major without gaps.
    contiguous(x: &Array) => x.raw();
    /// `e^x` divided by its sum along `axis`.
    softmax(x: &Array, axis: i32) => x.raw(), axis;
    /// The numbers of an affine-quantised matrix, in the scales' element type.
    dequantize(codes: &Array, scales: &Array, biases: &Array, group: i32, bits: i32) =>
        codes.raw(), scales.raw(), biases.raw(), group, bits;
    /// `x` times the transpose of an affine-quantised matrix. On the CPU inexact with 16-bit `x`.
    quantized_matmul(
        x: &Array, codes: &Array, scales: &Array, biases: &Array, group: i32, bits: i32
    ) => x.raw(), codes.raw(), scales.raw(), biases.raw(), group, bits;
    /// For each index of `chosen`, rows of `x[..., M, K]` times the transpose of that one of the
    /// matrices `weights[E, N, K]`: the leading dimensions of x are those of `chosen`, or 1.
    gather_mm(x: &Array, weights: &Array, chosen: &Array) => x.raw(), weights.raw(), chosen.raw();
    /// The same with affine-quantised matrices.
    gather_qmm(
        x: &Array, codes: &Array, scales: &Array, biases: &Array, chosen: &Array, group: i32,
        bits: i32
    ) => x.raw(), codes.raw(), scales.raw(), biases.raw(), chosen.raw(), group, bits;
    /// `x / sqrt(mean(x²) + epsilon) * weight` along the last dimension.
    rms_norm(x: &Array, weight: Option<&Array>, epsilon: f32) => x.raw(), &list(weight), epsilon;
    /// `(x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias` along the last dimension.
    layer_norm(x: &Array, weight: Option<&Array>, bias: Option<&Array>, epsilon: f32) =>
        x.raw(), &list(weight), &list(bias), epsilon;
    /// Rotary embedding of `x[B, heads, T, D]`: positions from `offset` (a scalar or `[B]`),
    /// `periods[dims / 2]` are the reciprocals of the angles per position.
    rope(x: &Array, dims: i32, interleaved: bool, offset: &Array, periods: &Array) =>
        x.raw(), dims, interleaved, offset.raw(), periods.raw();
}

/// Tensors one after another along `axis`.
///
/// # Errors
/// What MLX says.
pub fn concatenate<'a>(
    tensors: impl IntoIterator<Item = &'a Array>,
    axis: i32,
    stream: &Stream,
) -> Result<Array, Error> {
    let tensors = list(tensors);
    Ok(Array::new(ffi::concatenate(&tensors, axis, stream.raw())?))
}

/// Which keys a query of [`attention`] sees.
#[derive(Clone, Copy, Debug)]
pub enum AttentionMask<'a> {
    /// All.
    None,
    /// With T queries and S keys, query `t` sees keys `0 ..= S - T + t`.
    Causal,
    /// Those where the bool tensor, broadcast to `[B, heads, T, S]`, holds.
    Given(&'a Array),
}

/// `softmax(scale * q · kᵀ) · v` for `q[B, heads, T, D]`, `k` and `v[B, kv_heads, S, D]`. With
/// `sinks[heads]`, each softmax has one more score, whose share is dropped.
///
/// # Errors
/// What MLX says.
pub fn attention(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    mask: AttentionMask<'_>,
    sinks: Option<&Array>,
    stream: &Stream,
) -> Result<Array, Error> {
    let causal = matches!(mask, AttentionMask::Causal);
    let given = match mask {
        AttentionMask::Given(mask) => Some(mask),
        _ => None,
    };
    let given = list(given);
    Ok(Array::new(ffi::attention(
        q.raw(),
        k.raw(),
        v.raw(),
        scale,
        causal,
        &given,
        &list(sinks),
        stream.raw(),
    )?))
}
