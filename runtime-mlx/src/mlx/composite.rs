//! Composites but attention, by the operations of MLX that compute in f32 what their decomposition
//! says.

use super::primitive::check_indices;
use super::{narrow, parameter, primitives, stateful, widen};
use crate::fail::Fail;
use crate::machine::Machine;
use crate::plan::{Plan, Step};
use crate::weight::Weight;
use mlxcel_ir::{Activation, Op, Pairing, rope};
use mlxcel_mlx_sys::{Array, Binary, Dtype, Stream, Unary, ops};

pub(super) fn record(plan: &Plan, step: &Step, machine: &Machine<'_>) -> Result<Array, Fail> {
    let node = &plan.graph.nodes[step.node];
    let s = machine.stream;
    let dtype = node.ty.dtype;
    let weight = |index: usize| {
        node.weights
            .get(index)
            .and_then(|id| plan.weights.get(id.0 as usize))
            .and_then(Option::as_ref)
            .ok_or_else(|| Fail(format!("weight number {index} was not loaded")))
    };
    let operand = |index: usize| machine.value(step.operands[index]);
    let wide = |index: usize| widen(operand(index)?, machine);
    let result = match &node.op {
        Op::Embedding {} => {
            let rows = plan.graph.weight(node.weights[0]).map(|w| w.shape[0]);
            let limit = rows.and_then(|rows| i32::try_from(rows).ok());
            check_indices(machine, step.operands[0], limit)?;
            embedding(weight(0)?, operand(0)?, s)?
        }
        Op::Linear {} => {
            let product = linear(&wide(0)?, weight(0)?, s)?;
            match node.weights.get(1) {
                // The decomposition rounds the product before it adds the bias.
                Some(_) => {
                    let product = narrow(product, dtype, machine)?;
                    let Weight::Dense(bias) = weight(1)? else {
                        return Err("a bias must be dense".into());
                    };
                    let bias = narrow(bias.clone(), dtype, machine)?;
                    return Ok(ops::binary(Binary::Add, &product, &bias, s)?);
                }
                None => product,
            }
        }
        Op::ExpertLinear {} => {
            let experts = plan.graph.weight(node.weights[0]).map(|w| w.shape[0]);
            let limit = experts.and_then(|experts| i32::try_from(experts).ok());
            check_indices(machine, step.operands[1], limit)?;
            let product = experts_of(&wide(0)?, operand(1)?, weight(0)?, s)?;
            let product = ops::reshape(&product, &machine.shape(&node.ty)?, s)?;
            match node.weights.get(1) {
                Some(_) => {
                    let product = narrow(product, dtype, machine)?;
                    let Weight::Dense(bias) = weight(1)? else {
                        return Err("a bias must be dense".into());
                    };
                    let bias = ops::take(bias, operand(1)?, 0, s)?;
                    let bias = narrow(bias, dtype, machine)?;
                    return Ok(ops::binary(Binary::Add, &product, &bias, s)?);
                }
                None => product,
            }
        }
        Op::RmsNorm { epsilon, offset } => {
            let weight = norm_weight(plan, step, *offset, s)?;
            ops::rms_norm(&wide(0)?, weight.as_ref(), *epsilon as f32, s)?
        }
        Op::LayerNorm { epsilon, offset } => {
            let weight = norm_weight(plan, step, *offset, s)?;
            let bias = match node.weights.len() {
                2 => Some(parameter(plan, step, 1)?),
                _ => None,
            };
            let x = wide(0)?;
            ops::layer_norm(&x, weight.as_ref(), bias.as_ref(), *epsilon as f32, s)?
        }
        Op::Rope {
            dims,
            base,
            pairing,
            scaling,
            magnitude,
        } => {
            let frequencies = rope::frequencies(*dims, *base, scaling);
            let starts = machine.starts(step.operands[1])?;
            let angles = (&frequencies[..], *magnitude);
            turn(&wide(0)?, &starts, angles, *pairing, s)?
        }
        Op::Activate { activation } => activate(&wide(0)?, *activation, s)?,
        Op::Gated { activation } => {
            let gate = activate(&wide(0)?, *activation, s)?;
            ops::binary(Binary::Multiply, &gate, &wide(1)?, s)?
        }
        Op::Softmax {} => ops::softmax(&wide(0)?, -1, s)?,
        op @ (primitives!() | stateful!()) => {
            return Err(format!("`{}` is no composite", op.info().name).into());
        }
    };
    narrow(result, dtype, machine)
}

fn embedding(table: &Weight, tokens: &Array, s: &Stream) -> Result<Array, Fail> {
    Ok(match table {
        Weight::Dense(table) => ops::take(table, tokens, 0, s)?,
        Weight::Affine {
            codes,
            scales,
            biases,
            group,
            bits,
        } => {
            let row = |part| ops::take(part, tokens, 0, s);
            ops::dequantize(&row(codes)?, &row(scales)?, &row(biases)?, *group, *bits, s)?
        }
    })
}

fn linear(x: &Array, weight: &Weight, s: &Stream) -> Result<Array, Fail> {
    Ok(match weight {
        Weight::Dense(weight) => {
            let transposed = ops::transpose(weight, &[1, 0], s)?;
            ops::matmul(x, &transposed, s)?
        }
        Weight::Affine {
            codes,
            scales,
            biases,
            group,
            bits,
        } => ops::quantized_matmul(x, codes, scales, biases, *group, *bits, s)?,
    })
}

/// `x[B, T, K]` or `x[B, T, k, K]` times the transposes of the matrices that `chosen[B, T, k]` names.
fn experts_of(x: &Array, chosen: &Array, weight: &Weight, s: &Stream) -> Result<Array, Fail> {
    let rows = match *x.shape() {
        [rows, tokens, width] => ops::reshape(x, &[rows, tokens, 1, 1, width], s)?,
        [rows, tokens, each, width] => ops::reshape(x, &[rows, tokens, each, 1, width], s)?,
        _ => return Err("takes 3 or 4 dimensions".into()),
    };
    Ok(match weight {
        Weight::Dense(weights) => ops::gather_mm(&rows, weights, chosen, s)?,
        Weight::Affine {
            codes,
            scales,
            biases,
            group,
            bits,
        } => ops::gather_qmm(&rows, codes, scales, biases, chosen, *group, *bits, s)?,
    })
}

/// The factors of a norm: `offset + weight`, or nothing without a weight.
fn norm_weight(plan: &Plan, step: &Step, offset: f64, s: &Stream) -> Result<Option<Array>, Fail> {
    if plan.graph.nodes[step.node].weights.is_empty() {
        return Ok(None);
    }
    let weight = parameter(plan, step, 0)?;
    Ok(Some(match offset == 0.0 {
        true => weight,
        false => ops::binary(Binary::Add, &weight, &scalar(offset, s)?, s)?,
    }))
}

/// Rotary embedding of `x[B, T, heads, D]`. The angles are computed on the host in f64, so they are
/// right at any position.
fn turn(
    x: &Array,
    starts: &[usize],
    (frequencies, magnitude): (&[f64], f64),
    pairing: Pairing,
    s: &Stream,
) -> Result<Array, Fail> {
    let &[rows, tokens, heads, width] = x.shape() else {
        return Err("rope takes 4 dimensions".into());
    };
    if starts.len() != rows as usize {
        return Err(format!("{} starts for {rows} rows", starts.len()).into());
    }
    let pairs = i32::try_from(frequencies.len()).map_err(|_| "too many pairs")?;
    let angles = starts.iter().flat_map(|&start| {
        (0..tokens as usize).flat_map(move |token| {
            frequencies
                .iter()
                .map(move |frequency| (start + token) as f64 * frequency)
        })
    });
    let (sines, cosines): (Vec<f32>, Vec<f32>) = angles
        .map(|angle| {
            let (sine, cosine) = angle.sin_cos();
            ((sine * magnitude) as f32, (cosine * magnitude) as f32)
        })
        .unzip();
    let table = |numbers: &[f32]| {
        let bytes = bytemuck::cast_slice(numbers);
        Array::from_bytes(bytes, &[rows, tokens, 1, pairs], Dtype::F32)
    };
    let (sine, cosine) = (table(&sines)?, table(&cosines)?);
    let part = |from, to, by| {
        let (start, stop) = ([0, 0, 0, from], [rows, tokens, heads, to]);
        ops::slice(x, &start, &stop, &[1, 1, 1, by], s)
    };
    let (first, second) = match pairing {
        Pairing::Half => (part(0, pairs, 1)?, part(pairs, 2 * pairs, 1)?),
        Pairing::Interleaved => (part(0, 2 * pairs, 2)?, part(1, 2 * pairs, 2)?),
    };
    let times = |x: &Array, y: &Array| ops::binary(Binary::Multiply, x, y, s);
    let turned_first = ops::binary(
        Binary::Subtract,
        &times(&first, &cosine)?,
        &times(&second, &sine)?,
        s,
    )?;
    let turned_second = ops::binary(
        Binary::Add,
        &times(&second, &cosine)?,
        &times(&first, &sine)?,
        s,
    )?;
    let turned = match pairing {
        Pairing::Half => ops::concatenate([&turned_first, &turned_second], 3, s)?,
        Pairing::Interleaved => {
            let column = [rows, tokens, heads, pairs, 1];
            let left = ops::reshape(&turned_first, &column, s)?;
            let right = ops::reshape(&turned_second, &column, s)?;
            let both = ops::concatenate([&left, &right], 4, s)?;
            ops::reshape(&both, &[rows, tokens, heads, 2 * pairs], s)?
        }
    };
    if 2 * pairs == width {
        return Ok(turned);
    }
    let rest = part(2 * pairs, width, 1)?;
    Ok(ops::concatenate([&turned, &rest], 3, s)?)
}

fn scalar(value: f64, s: &Stream) -> Result<Array, Fail> {
    Ok(ops::full(value, &[], Dtype::F32, s)?)
}

fn activate(x: &Array, activation: Activation, s: &Stream) -> Result<Array, Fail> {
    let times = |x: &Array, y: &Array| ops::binary(Binary::Multiply, x, y, s);
    let half_of = |y: &Array| -> Result<Array, Fail> {
        let shifted = ops::binary(Binary::Add, y, &scalar(1.0, s)?, s)?;
        Ok(times(&times(x, &scalar(0.5, s)?)?, &shifted)?)
    };
    match activation {
        Activation::Silu => Ok(times(x, &ops::unary(Unary::Sigmoid, x, s)?)?),
        Activation::Relu => Ok(ops::binary(Binary::Maximum, x, &scalar(0.0, s)?, s)?),
        Activation::Gelu => {
            let scaled = times(x, &scalar(std::f64::consts::FRAC_1_SQRT_2, s)?)?;
            half_of(&ops::unary(Unary::Erf, &scaled, s)?)
        }
        Activation::GeluTanh => {
            let cube = times(&times(x, x)?, x)?;
            let cubic = times(&cube, &scalar(0.044715, s)?)?;
            let inner = ops::binary(Binary::Add, x, &cubic, s)?;
            let factor = scalar((2.0 / std::f64::consts::PI).sqrt(), s)?;
            half_of(&ops::unary(Unary::Tanh, &times(&inner, &factor)?, s)?)
        }
        Activation::Relu2 => {
            let positive = ops::binary(Binary::Maximum, x, &scalar(0.0, s)?, s)?;
            Ok(times(&positive, &positive)?)
        }
        Activation::QuickGelu => {
            let scaled = times(x, &scalar(1.702, s)?)?;
            Ok(times(x, &ops::unary(Unary::Sigmoid, &scaled, s)?)?)
        }
        Activation::Tanh => Ok(ops::unary(Unary::Tanh, x, s)?),
        Activation::Sigmoid => Ok(ops::unary(Unary::Sigmoid, x, s)?),
        Activation::Softplus => {
            let positive = ops::binary(Binary::Maximum, x, &scalar(0.0, s)?, s)?;
            let size = ops::unary(Unary::Negate, &ops::unary(Unary::Abs, x, s)?, s)?;
            let small = ops::unary(Unary::Log1p, &ops::unary(Unary::Exp, &size, s)?, s)?;
            Ok(ops::binary(Binary::Add, &positive, &small, s)?)
        }
    }
}
