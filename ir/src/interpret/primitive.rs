//! The primitives, one by one.

use super::dot::dot;
use super::tensor::{Elements, Tensor, strided, strides};
use super::{Float, Interpreter, States};
use crate::{Comparison, DType, Node, Op, Reduction};
use std::cmp::Ordering;

type Result<T> = std::result::Result<T, String>;

/// Evaluates `node`, whose result has the given sizes.
pub(super) fn evaluate<F: Float>(
    interpreter: &Interpreter<F>,
    node: &Node,
    shape: Vec<usize>,
    operands: &[&Tensor<F>],
    states: &mut States<F>,
) -> Result<Tensor<F>> {
    let dtype = node.ty.dtype;
    let unary = |f: fn(F) -> F| {
        let elements = operands[0].floats()?.iter().map(|&x| f(x)).collect();
        Ok(Tensor::float(dtype, shape.clone(), elements))
    };
    // A function of 16-bit numbers is as good as its type: an execution may compute it in that type.
    let function = |f: fn(F) -> F| {
        let numbers = operands[0].floats()?.iter();
        let elements = numbers.map(|&x| f(x).rounded(dtype)).collect();
        Ok(Tensor::float(dtype, shape.clone(), elements))
    };
    let binary = |float: fn(F, F) -> F, integer: fn(i64, i64) -> Option<i64>| {
        binary(operands, dtype, &shape, float, integer)
    };
    let view = |strides: &[usize], offset: usize| {
        let elements = match &*operands[0].elements {
            Elements::Float(x) => Elements::Float(strided(x, &shape, strides, offset)),
            Elements::Integer(x) => Elements::Integer(strided(x, &shape, strides, offset)),
            Elements::Bool(x) => Elements::Bool(strided(x, &shape, strides, offset)),
        };
        Ok(Tensor::new(dtype, shape.clone(), elements))
    };
    match &node.op {
        Op::Parameter {} => interpreter.parameter(node, 0),
        Op::Constant { value, .. } => {
            let count = shape.iter().product();
            Ok(filled(dtype, shape, vec![*value; count]))
        }
        Op::Table { values, .. } => Ok(filled(dtype, shape, values.clone())),
        Op::Iota { dim, .. } => {
            let inner = strides(&shape)[*dim];
            let count: usize = shape.iter().product();
            let index = (0..count).map(|i| (i / inner % shape[*dim]) as f64);
            let index = index.collect();
            Ok(filled(dtype, shape, index))
        }
        Op::Convert { .. } => Ok(convert(operands[0], dtype)),
        Op::Negate {} => unary(|x| -x),
        Op::Abs {} => unary(F::abs),
        Op::Exp {} => function(F::exp),
        Op::Log {} => function(F::ln),
        Op::Log1p {} => function(F::ln_1p),
        Op::Rsqrt {} => function(|x| F::from_f64(1.0) / x.sqrt()),
        Op::Sqrt {} => function(F::sqrt),
        Op::Sin {} => function(F::sin),
        Op::Cos {} => function(F::cos),
        Op::Tanh {} => function(F::tanh),
        Op::Sigmoid {} => function(|x| F::from_f64(1.0) / (F::from_f64(1.0) + (-x).exp())),
        Op::Erf {} => function(F::erf),
        Op::Add {} => binary(|a, b| a + b, |a, b| a.checked_add(b)),
        Op::Subtract {} => binary(|a, b| a - b, |a, b| a.checked_sub(b)),
        Op::Multiply {} => binary(|a, b| a * b, |a, b| a.checked_mul(b)),
        Op::Divide {} => binary(|a, b| a / b, |a, b| a.checked_div(b)),
        Op::Maximum {} => binary(
            |a, b| extreme(a, b, Ordering::Greater),
            |a, b| Some(a.max(b)),
        ),
        Op::Minimum {} => binary(|a, b| extreme(a, b, Ordering::Less), |a, b| Some(a.min(b))),
        Op::Power {} => binary(F::powf, |a, b| a.checked_pow(u32::try_from(b).ok()?)),
        Op::Compare { comparison } => compare(operands, shape, *comparison),
        Op::And {} => logical(operands, shape, |a, b| a && b),
        Op::Or {} => logical(operands, shape, |a, b| a || b),
        Op::Not {} => {
            let elements = operands[0].bools()?.iter().map(|x| !x).collect();
            Ok(Tensor::new(dtype, shape, Elements::Bool(elements)))
        }
        Op::Select {} => select(operands, shape),
        Op::Reshape { .. } => {
            // Under bindings the counts agree, for the verifier holds symbols against symbols.
            let mut result = operands[0].clone();
            result.shape = shape;
            Ok(result)
        }
        Op::Transpose { permutation } => {
            let natural = strides(&operands[0].shape);
            let strides: Vec<usize> = permutation.iter().map(|&dim| natural[dim]).collect();
            view(&strides, 0)
        }
        Op::Broadcast { dims, .. } => {
            let natural = strides(&operands[0].shape);
            let mut strides = vec![0; shape.len()];
            for (from, &to) in dims.iter().enumerate() {
                if operands[0].shape[from] != 1 {
                    strides[to] = natural[from];
                }
            }
            view(&strides, 0)
        }
        Op::Slice {
            dim, start, stride, ..
        } => {
            let mut strides = strides(&operands[0].shape);
            let offset = start * strides[*dim];
            strides[*dim] *= stride;
            view(&strides, offset)
        }
        Op::Concatenate { dim } => concatenate(operands, shape, *dim),
        Op::Gather {} => {
            let rows = operands[1].integers()?;
            pick(
                operands[0],
                shape,
                rows.iter().copied(),
                operands[0].shape[0],
            )
        }
        Op::TakeAlong {} => take_along(operands, shape),
        Op::TopK { count } => top_k(operands[0], shape, *count),
        Op::CausalConvolution {} => super::memory::convolution(interpreter, node, operands, states),
        Op::Recurrence {} | Op::DeltaRecurrence {} => {
            super::memory::recurrence(node, operands, states)
        }
        Op::TakeRow {} => {
            let (x, index) = (operands[0], operands[1].integers()?);
            let tokens = x.shape[1];
            let rows: Vec<i64> = index
                .iter()
                .enumerate()
                .map(|(row, &index)| match (0..tokens as i64).contains(&index) {
                    true => Ok((row * tokens) as i64 + index),
                    false => Err(format!("index {index} is outside 0..{tokens}")),
                })
                .collect::<Result<_>>()?;
            pick(x, shape, rows.into_iter(), x.shape[0] * tokens)
        }
        Op::Dot {
            lhs_batch,
            rhs_batch,
            lhs_contract,
            rhs_contract,
        } => dot(
            operands[0],
            operands[1],
            (lhs_batch, rhs_batch),
            (lhs_contract, rhs_contract),
        ),
        Op::Reduce { reduction, dim } => reduce(operands[0], shape, *reduction, *dim),
        Op::Argmax {} => argmax(operands[0], shape),
        Op::CacheAppend { part } => {
            let state = node.state.ok_or("needs a state")?;
            let start = operands[1].integers()?;
            states.append(state, *part, operands[0], start, shape[1], dtype)
        }
        Op::Embedding {}
        | Op::Linear {}
        | Op::RmsNorm { .. }
        | Op::Rope { .. }
        | Op::Attention { .. }
        | Op::Activate { .. }
        | Op::Gated { .. }
        | Op::ExpertLinear {}
        | Op::LayerNorm { .. }
        | Op::MutualAttention { .. }
        | Op::Softmax {} => Err("was not decomposed".into()),
    }
}

fn filled<F: Float>(dtype: DType, shape: Vec<usize>, values: Vec<f64>) -> Tensor<F> {
    let elements = match dtype {
        DType::Bool => Elements::Bool(values.iter().map(|&x| x != 0.0).collect()),
        DType::I32 | DType::U32 => Elements::Integer(values.iter().map(|&x| x as i64).collect()),
        DType::F16 | DType::BF16 | DType::F32 => {
            let floats = values.iter().map(|&x| F::from_f64(x)).collect();
            return Tensor::float(dtype, shape, floats);
        }
    };
    Tensor::new(dtype, shape, elements)
}

fn convert<F: Float>(x: &Tensor<F>, dtype: DType) -> Tensor<F> {
    let elements = match (&*x.elements, dtype) {
        (Elements::Float(x), DType::I32) => {
            Elements::Integer(x.iter().map(|x| i64::from(x.to_f64() as i32)).collect())
        }
        (Elements::Float(x), DType::U32) => {
            Elements::Integer(x.iter().map(|x| i64::from(x.to_f64() as u32)).collect())
        }
        (Elements::Integer(x), DType::I32) => {
            Elements::Integer(x.iter().map(|&x| i64::from(x as i32)).collect())
        }
        (Elements::Integer(x), DType::U32) => {
            Elements::Integer(x.iter().map(|&x| i64::from(x as u32)).collect())
        }
        (Elements::Float(numbers), _) if dtype.is_float() => {
            return Tensor::float(dtype, x.shape.clone(), numbers.clone());
        }
        _ => return filled(dtype, x.shape.clone(), x.to_f64()),
    };
    Tensor::new(dtype, x.shape.clone(), elements)
}

/// The operand that stands in the order to the other, or NaN if either is.
fn extreme<F: Float>(a: F, b: F, order: Ordering) -> F {
    match a.partial_cmp(&b) {
        Some(found) if found == order => a.preferred_to(b),
        Some(_) => b.preferred_to(a),
        None => a + b,
    }
}

fn binary<F: Float>(
    operands: &[&Tensor<F>],
    dtype: DType,
    shape: &[usize],
    float: fn(F, F) -> F,
    integer: fn(i64, i64) -> Option<i64>,
) -> Result<Tensor<F>> {
    if dtype.is_float() {
        let pairs = operands[0].floats()?.iter().zip(operands[1].floats()?);
        let elements = pairs.map(|(&a, &b)| float(a, b)).collect();
        return Ok(Tensor::float(dtype, shape.to_vec(), elements));
    }
    let pairs = operands[0].integers()?.iter().zip(operands[1].integers()?);
    let elements = pairs
        .map(|(&a, &b)| {
            let value = integer(a, b)
                .ok_or_else(|| format!("{a} and {b} have no result of type {dtype}"))?;
            Ok(match dtype {
                DType::I32 => i64::from(value as i32),
                _ => i64::from(value as u32),
            })
        })
        .collect::<Result<_>>()?;
    Ok(Tensor::new(
        dtype,
        shape.to_vec(),
        Elements::Integer(elements),
    ))
}

fn compare<F: Float>(
    operands: &[&Tensor<F>],
    shape: Vec<usize>,
    comparison: Comparison,
) -> Result<Tensor<F>> {
    let holds = |order: Option<Ordering>| match (comparison, order) {
        (Comparison::NotEqual, None) => true,
        (_, None) => false,
        (Comparison::Equal, Some(order)) => order.is_eq(),
        (Comparison::NotEqual, Some(order)) => order.is_ne(),
        (Comparison::Less, Some(order)) => order.is_lt(),
        (Comparison::LessEqual, Some(order)) => order.is_le(),
        (Comparison::Greater, Some(order)) => order.is_gt(),
        (Comparison::GreaterEqual, Some(order)) => order.is_ge(),
    };
    fn orders<T: PartialOrd>(
        a: &[T],
        b: &[T],
        holds: impl Fn(Option<Ordering>) -> bool,
    ) -> Vec<bool> {
        a.iter()
            .zip(b)
            .map(|(a, b)| holds(a.partial_cmp(b)))
            .collect()
    }
    let elements = match (&*operands[0].elements, &*operands[1].elements) {
        (Elements::Float(a), Elements::Float(b)) => orders(a, b, holds),
        (Elements::Integer(a), Elements::Integer(b)) => orders(a, b, holds),
        (Elements::Bool(a), Elements::Bool(b)) => orders(a, b, holds),
        _ => return Err("operands have different element types".into()),
    };
    Ok(Tensor::new(DType::Bool, shape, Elements::Bool(elements)))
}

fn logical<F: Float>(
    operands: &[&Tensor<F>],
    shape: Vec<usize>,
    f: fn(bool, bool) -> bool,
) -> Result<Tensor<F>> {
    let pairs = operands[0].bools()?.iter().zip(operands[1].bools()?);
    let elements = pairs.map(|(&a, &b)| f(a, b)).collect();
    Ok(Tensor::new(DType::Bool, shape, Elements::Bool(elements)))
}

fn select<F: Float>(operands: &[&Tensor<F>], shape: Vec<usize>) -> Result<Tensor<F>> {
    fn choose<T: Copy>(condition: &[bool], a: &[T], b: &[T]) -> Vec<T> {
        let choices = a.iter().zip(b);
        let choices = condition.iter().zip(choices);
        choices
            .map(|(&first, (&a, &b))| if first { a } else { b })
            .collect()
    }
    let condition = operands[0].bools()?;
    let elements = match (&*operands[1].elements, &*operands[2].elements) {
        (Elements::Float(a), Elements::Float(b)) => Elements::Float(choose(condition, a, b)),
        (Elements::Integer(a), Elements::Integer(b)) => Elements::Integer(choose(condition, a, b)),
        (Elements::Bool(a), Elements::Bool(b)) => Elements::Bool(choose(condition, a, b)),
        _ => return Err("choices have different element types".into()),
    };
    Ok(Tensor::new(operands[1].dtype, shape, elements))
}

fn concatenate<F: Float>(
    operands: &[&Tensor<F>],
    shape: Vec<usize>,
    dim: usize,
) -> Result<Tensor<F>> {
    fn join<T: Copy>(a: &[T], b: &[T], left: usize, right: usize, outer: usize) -> Vec<T> {
        (0..outer)
            .flat_map(|i| a[i * left..][..left].iter().chain(&b[i * right..][..right]))
            .copied()
            .collect()
    }
    let size = |tensor: &Tensor<F>| tensor.shape[dim..].iter().product();
    let (left, right) = (size(operands[0]), size(operands[1]));
    let outer = shape[..dim].iter().product();
    let elements = match (&*operands[0].elements, &*operands[1].elements) {
        (Elements::Float(a), Elements::Float(b)) => Elements::Float(join(a, b, left, right, outer)),
        (Elements::Integer(a), Elements::Integer(b)) => {
            Elements::Integer(join(a, b, left, right, outer))
        }
        (Elements::Bool(a), Elements::Bool(b)) => Elements::Bool(join(a, b, left, right, outer)),
        _ => return Err("operands have different element types".into()),
    };
    Ok(Tensor::new(operands[0].dtype, shape, elements))
}

/// Chosen rows of `x`, seen as `count` rows of equal width.
fn pick<F: Float>(
    x: &Tensor<F>,
    shape: Vec<usize>,
    rows: impl Iterator<Item = i64>,
    count: usize,
) -> Result<Tensor<F>> {
    fn take<T: Copy>(x: &[T], rows: &[usize], width: usize) -> Vec<T> {
        rows.iter()
            .flat_map(|&row| &x[row * width..][..width])
            .copied()
            .collect()
    }
    let rows: Vec<usize> = rows
        .map(|row| match usize::try_from(row) {
            Ok(row) if row < count => Ok(row),
            _ => Err(format!("index {row} is outside 0..{count}")),
        })
        .collect::<Result<_>>()?;
    let width = x
        .shape
        .iter()
        .product::<usize>()
        .checked_div(count)
        .unwrap_or(0);
    let elements = match &*x.elements {
        Elements::Float(x) => Elements::Float(take(x, &rows, width)),
        Elements::Integer(x) => Elements::Integer(take(x, &rows, width)),
        Elements::Bool(x) => Elements::Bool(take(x, &rows, width)),
    };
    Ok(Tensor::new(x.dtype, shape, elements))
}

fn reduce<F: Float>(
    x: &Tensor<F>,
    shape: Vec<usize>,
    reduction: Reduction,
    dim: usize,
) -> Result<Tensor<F>> {
    /// What `f` makes of each line along a dimension.
    fn lines<T: Copy>(x: &[T], shape: &[usize], dim: usize, f: impl Fn(&[T]) -> T) -> Vec<T> {
        let (size, inner) = (shape[dim], shape[dim + 1..].iter().product::<usize>());
        let outer: usize = shape[..dim].iter().product();
        let mut line = Vec::with_capacity(size);
        let mut result = Vec::with_capacity(outer * inner);
        for i in 0..outer * inner {
            let first = i / inner * size * inner + i % inner;
            line.clear();
            line.extend((0..size).map(|j| x[first + j * inner]));
            result.push(f(&line));
        }
        result
    }
    Ok(match &*x.elements {
        Elements::Float(elements) => {
            let outermost = |line: &[F], empty: f64, order: Ordering| {
                let best = line.iter().copied().reduce(|a, b| extreme(a, b, order));
                best.unwrap_or(F::from_f64(empty))
            };
            let result = lines(elements, &x.shape, dim, |line| match reduction {
                Reduction::Sum => F::total(line),
                Reduction::Max => outermost(line, f64::NEG_INFINITY, Ordering::Greater),
                Reduction::Min => outermost(line, f64::INFINITY, Ordering::Less),
            });
            Tensor::float(x.dtype, shape, result)
        }
        Elements::Integer(elements) => {
            let (lowest, highest) = match x.dtype {
                DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                _ => (0, i64::from(u32::MAX)),
            };
            let wrapped = |sum: i64| match x.dtype {
                DType::I32 => i64::from(sum as i32),
                _ => i64::from(sum as u32),
            };
            let result = lines(elements, &x.shape, dim, |line| {
                let line = line.iter().copied();
                match reduction {
                    Reduction::Sum => line.fold(0, |a, b| wrapped(a + b)),
                    Reduction::Max => line.max().unwrap_or(lowest),
                    Reduction::Min => line.min().unwrap_or(highest),
                }
            });
            Tensor::new(x.dtype, shape, Elements::Integer(result))
        }
        Elements::Bool(_) => return Err("cannot reduce truth values".into()),
    })
}

fn argmax<F: Float>(x: &Tensor<F>, shape: Vec<usize>) -> Result<Tensor<F>> {
    let width = x.shape.last().copied().unwrap_or(0).max(1);
    let best = x.floats()?.chunks_exact(width).map(|row| {
        let mut best = 0;
        for (index, value) in row.iter().enumerate() {
            if *value > row[best] {
                best = index;
            }
        }
        best as i64
    });
    let elements = Elements::Integer(best.collect());
    Ok(Tensor::new(DType::I32, shape, elements))
}

/// The order of `numbers` from the largest, the first of equals first.
fn top_k<F: Float>(x: &Tensor<F>, shape: Vec<usize>, count: usize) -> Result<Tensor<F>> {
    let width = x.shape.last().copied().unwrap_or(0).max(1);
    let mut chosen = Vec::with_capacity(shape.iter().product());
    for row in x.floats()?.chunks_exact(width) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        // The sort is stable, so equals keep their order; what is no number comes last.
        let order_of = |index: usize| match row[index].to_f64() {
            number if number.is_nan() => f64::NEG_INFINITY,
            number => number,
        };
        order.sort_by(|&a, &b| {
            let order = order_of(b).partial_cmp(&order_of(a));
            order.unwrap_or(Ordering::Equal)
        });
        chosen.extend(order[..count].iter().map(|&index| index as i64));
    }
    Ok(Tensor::new(DType::I32, shape, Elements::Integer(chosen)))
}

fn take_along<F: Float>(operands: &[&Tensor<F>], shape: Vec<usize>) -> Result<Tensor<F>> {
    let (x, indices) = (operands[0], operands[1].integers()?);
    let width = x.shape.last().copied().unwrap_or(0);
    let count = shape.last().copied().unwrap_or(0).max(1);
    let places = indices.iter().enumerate().map(|(place, &index)| {
        match (0..width as i64).contains(&index) {
            true => Ok((place / count * width) as i64 + index),
            false => Err(format!("index {index} is outside 0..{width}")),
        }
    });
    let places: Vec<i64> = places.collect::<Result<_>>()?;
    let elements: usize = x.shape.iter().product();
    pick(x, shape, places.into_iter(), elements)
}
