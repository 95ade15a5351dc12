//! The primitives that change a memory token by token.

use super::tensor::Tensor;
use super::{Float, Interpreter, States};
use crate::Node;

type Result<T> = std::result::Result<T, String>;

/// How many tokens of row `row` count.
fn count<F: Float>(length: &Tensor<F>, row: usize, tokens: usize) -> Result<usize> {
    let length = length.integers()?.get(row).copied().unwrap_or(0);
    match usize::try_from(length) {
        Ok(length) if length <= tokens => Ok(length),
        _ => Err(format!("length {length} is outside 0..={tokens}")),
    }
}

/// `x[B, T, C]` with each channel's past, see [`crate::Op::CausalConvolution`].
pub(super) fn convolution<F: Float>(
    interpreter: &Interpreter<F>,
    node: &Node,
    operands: &[&Tensor<F>],
    states: &mut States<F>,
) -> Result<Tensor<F>> {
    let &[rows, tokens, channels] = &operands[0].shape[..] else {
        return Err("x must have 3 dimensions".into());
    };
    let weight = interpreter.parameter(node, 0)?;
    let width = weight.shape[1];
    let weight: Vec<F> = rounded(weight.floats()?, node);
    let bias = match node.weights.len() {
        1 => vec![F::default(); channels],
        _ => rounded(interpreter.parameter(node, 1)?.floats()?, node),
    };
    let x = operands[0].floats()?;
    let memory = states.memory(node.state.ok_or("needs a state")?, rows)?;
    let past = (width - 1) * channels;
    let mut result = Vec::with_capacity(x.len());
    for row in 0..rows {
        let memory = &mut memory[row * past..][..past];
        // What came before, then the step: token t sees the W inputs from place t on.
        let mut line = memory.to_vec();
        line.extend_from_slice(&x[row * tokens * channels..][..tokens * channels]);
        for token in 0..tokens {
            for channel in 0..channels {
                let products = (0..width)
                    .map(|j| weight[channel * width + j] * line[(token + j) * channels + channel]);
                let terms: Vec<F> = products.chain([bias[channel]]).collect();
                result.push(F::total(&terms));
            }
        }
        let seen = count(operands[1], row, tokens)? * channels;
        memory.copy_from_slice(&line[seen..][..past]);
    }
    Ok(Tensor::float(
        node.ty.dtype,
        operands[0].shape.clone(),
        result,
    ))
}

fn rounded<F: Float>(numbers: &[F], node: &Node) -> Vec<F> {
    numbers.iter().map(|x| x.rounded(node.ty.dtype)).collect()
}

/// See [`crate::Op::Recurrence`] and [`crate::Op::DeltaRecurrence`]. The memory is kept in the
/// interpreter's numbers whatever the element type of the operands.
pub(super) fn recurrence<F: Float>(
    node: &Node,
    operands: &[&Tensor<F>],
    states: &mut States<F>,
) -> Result<Tensor<F>> {
    let (length, vectors) = operands.split_last().ok_or("takes operands")?;
    let &[rows, tokens, heads, width] = &vectors[2].shape[..] else {
        return Err("value must have 4 dimensions".into());
    };
    let keys = vectors[1].shape[3];
    let numbers = vectors
        .iter()
        .map(|tensor| tensor.floats())
        .collect::<Result<Vec<_>>>()?;
    // The part of operand `which` for one head of one token.
    let part = |which: usize, place: usize, head: usize| {
        let shape = &vectors[which].shape;
        let (groups, size) = (shape[2], shape[3]);
        &numbers[which][(place * groups + head * groups / heads) * size..][..size]
    };
    let memory = states.memory(node.state.ok_or("needs a state")?, rows)?;
    let mut result = vec![F::default(); rows * tokens * heads * width];
    for row in 0..rows {
        let seen = count(length, row, tokens)?;
        for head in 0..heads {
            let memory = &mut memory[(row * heads + head) * keys * width..][..keys * width];
            for token in 0..seen {
                let place = row * tokens + token;
                let (query, key, value) = (
                    part(0, place, head),
                    part(1, place, head),
                    part(2, place, head),
                );
                let decay = part(3, place, head);
                for (line, key) in memory.chunks_exact_mut(width).zip(0..) {
                    let decay = decay[key.min(decay.len() - 1)];
                    line.iter_mut().for_each(|m| *m = *m * decay);
                }
                if vectors.len() > 4 {
                    let (erase, write) = (part(4, place, head), part(5, place, head));
                    let mut seen = vec![F::default(); width];
                    for (line, &erase) in memory.chunks_exact(width).zip(erase) {
                        seen.iter_mut()
                            .zip(line)
                            .for_each(|(s, &m)| *s = *s + erase * m);
                    }
                    for (line, &write) in memory.chunks_exact_mut(width).zip(write) {
                        line.iter_mut()
                            .zip(&seen)
                            .for_each(|(m, &s)| *m = *m - write * s);
                    }
                }
                let result = &mut result[(place * heads + head) * width..][..width];
                for ((line, &key), &query) in memory.chunks_exact_mut(width).zip(key).zip(query) {
                    for ((m, &value), y) in line.iter_mut().zip(value).zip(&mut *result) {
                        *m = *m + key * value;
                        *y = *y + query * *m;
                    }
                }
            }
        }
    }
    Ok(Tensor::float(
        node.ty.dtype,
        vectors[2].shape.clone(),
        result,
    ))
}
