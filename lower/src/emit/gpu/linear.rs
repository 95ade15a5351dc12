//! Linear layers over few rows.
//!
//! [`LANES`] threads compute some outputs together: each reads every 32nd run of eight numbers of their
//! rows of the weight, so that what the threads read at a time lies together, and multiplies as it
//! dequantises. Codes are summed before their scale is applied, once for a run.

use super::code::{Code, LANES, Memory, Value};
use super::rows::Norm;
use crate::emit::element::Element;
use mlxcel_ir::{Activation, DType, WeightDecl, WeightFormat};

/// Numbers that a thread reads at a time.
const RUN: usize = 8;

/// Threads of a workgroup.
pub(super) const THREADS: usize = 256;

/// The memory of a weight's stored parts.
pub(super) struct Matrix {
    pub(super) rows: usize,
    width: usize,
    values: Memory,
    coding: Option<Coding>,
}

/// How codes become numbers.
struct Coding {
    bits: u8,
    group: usize,
    scales: Memory,
    least: Least,
}

/// What a group's scaled codes are added to.
enum Least {
    /// A stored bias.
    Bias(Memory),
    /// Minus this, times the scale.
    Zero(u8),
}

/// Whether there are kernels for a matrix.
pub(super) fn is_known(weight: &WeightDecl) -> bool {
    let &[_, width] = &weight.shape[..] else {
        return false;
    };
    let known = match weight.format {
        WeightFormat::Dense(dtype) => dtype.is_float(),
        WeightFormat::Affine { bits, group, .. } | WeightFormat::ZeroPoint { bits, group, .. } => {
            matches!(bits, 4 | 8) && group.is_multiple_of(RUN)
        }
        _ => false,
    };
    known && width.is_multiple_of(RUN)
}

impl Matrix {
    /// The matrix whose stored parts are behind the next of `bindings`.
    pub(super) fn new(
        code: &mut Code,
        weight: &WeightDecl,
        bindings: &mut impl Iterator<Item = Value>,
    ) -> Option<Self> {
        let &[rows, width] = &weight.shape[..] else {
            return None;
        };
        let (element, count) = match weight.format {
            WeightFormat::Dense(dtype) => (dtype.into(), rows * width),
            WeightFormat::Affine { bits: 4, .. } | WeightFormat::ZeroPoint { bits: 4, .. } => {
                (Element::I32, rows * width / 8)
            }
            _ => (Element::I8, rows * width),
        };
        let values = code.binding(bindings.next()?, element, count);
        let coding = match weight.format {
            WeightFormat::Affine { bits, group, scale } => {
                let groups = rows * width / group;
                Some(Coding {
                    bits,
                    group,
                    scales: code.binding(bindings.next()?, scale.into(), groups),
                    least: Least::Bias(code.binding(bindings.next()?, scale.into(), groups)),
                })
            }
            WeightFormat::ZeroPoint {
                bits,
                zero,
                group,
                scale,
            } => Some(Coding {
                bits,
                group,
                scales: code.binding(bindings.next()?, scale.into(), rows * width / group),
                least: Least::Zero(zero),
            }),
            _ => None,
        };
        Some(Self {
            rows,
            width,
            values,
            coding,
        })
    }

    /// Run `at` of the matrix as `f32`: for codes, without scale and bias.
    fn run(&self, code: &mut Code, at: Value) -> Value {
        match self.coding.as_ref().map(|coding| coding.bits) {
            None => {
                let at = code.multiply(at, RUN);
                code.load_floats(&self.values, at, RUN)
            }
            Some(4) => {
                let word = code.load(&self.values, at);
                let words = code.value(format_args!(
                    "vector.broadcast {word} : i32 to vector<8xi32>"
                ));
                let shifts = code
                    .value("arith.constant dense<[0, 4, 8, 12, 16, 20, 24, 28]> : vector<8xi32>");
                let shifted = code.arith("shrui", words, shifts, "vector<8xi32>");
                let mask = code.value("arith.constant dense<15> : vector<8xi32>");
                let codes = code.arith("andi", shifted, mask, "vector<8xi32>");
                code.value(format_args!(
                    "arith.uitofp {codes} : vector<8xi32> to vector<8xf32>"
                ))
            }
            Some(_) => {
                let at = code.multiply(at, RUN);
                let codes = code.load_vector(&self.values, at, RUN);
                code.value(format_args!(
                    "arith.uitofp {codes} : vector<8xi8> to vector<8xf32>"
                ))
            }
        }
    }

    /// The numbers of run `at`.
    pub(super) fn numbers(&self, code: &mut Code, at: Value) -> Value {
        let run = self.run(code, at);
        let Some(coding) = &self.coding else {
            return run;
        };
        let group = code.divide(at, coding.group / RUN);
        let scale = code.load_float(&coding.scales, group);
        let bias = match &coding.least {
            Least::Bias(biases) => code.load_float(biases, group),
            Least::Zero(zero) => {
                let below = code.float(-f64::from(*zero));
                code.floats("mulf", scale, below)
            }
        };
        let [scale, bias] = [scale, bias].map(|number| code.broadcast(number, RUN));
        code.fma(run, scale, bias, "vector<8xf32>")
    }

    /// `sum` plus the product of run `at` with a run of the input, whose own sum is `total`.
    fn accumulate(&self, code: &mut Code, at: Value, x: Value, total: Value, sum: Value) -> Value {
        let run = self.run(code, at);
        let products = code.arith("mulf", run, x, "vector<8xf32>");
        let product = code.sum(products, RUN);
        let Some(coding) = &self.coding else {
            return code.floats("addf", sum, product);
        };
        let group = code.divide(at, coding.group / RUN);
        let scale = code.load_float(&coding.scales, group);
        match &coding.least {
            Least::Bias(biases) => {
                let bias = code.load_float(biases, group);
                let sum = code.fma(product, scale, sum, "f32");
                code.fma(total, bias, sum, "f32")
            }
            Least::Zero(zero) => {
                let below = code.float(-f64::from(*zero));
                let product = code.fma(total, below, product, "f32");
                code.fma(product, scale, sum, "f32")
            }
        }
    }

    /// Numbers of a row.
    pub(super) fn width(&self) -> usize {
        self.width
    }
}

/// Outputs that the same threads compute: the more, the less often the input is read.
pub(super) fn outputs_together(outputs: usize) -> usize {
    match outputs {
        16_384.. => 4,
        4_096.. => 2,
        _ => 1,
    }
}

/// Workgroups for so many outputs.
pub(super) fn workgroups(outputs: usize) -> usize {
    outputs.div_ceil(outputs_together(outputs) * THREADS / LANES)
}

/// Where a workgroup's threads are.
pub(super) struct Place {
    /// The workgroup's number among those of the matrix.
    pub(super) workgroup: Value,
    pub(super) lane: Value,
    /// The number of the thread's group of lanes.
    pub(super) team: Value,
}

/// The input of linear layers.
pub(super) struct Rows<'w> {
    pub(super) numbers: &'w Memory,
    pub(super) count: usize,
    /// What is done to the rows before.
    pub(super) norm: Option<&'w Norm>,
}

/// The products of the rows of `x` with rows of the matrices, which are of one shape: calls `finish`
/// with the number of the output, the row of the batch, and the product with each matrix.
///
/// A norm costs no pass of its own: its factors join the input, and its root, which the same threads
/// gather on their way, divides the products.
pub(super) fn products(
    code: &mut Code,
    matrices: &[&Matrix],
    x: &Rows<'_>,
    place: &Place,
    mut finish: impl FnMut(&mut Code, Value, usize, &[Value]),
) {
    let Some(first) = matrices.first() else {
        return;
    };
    let batch = x.count;
    let (outputs, width) = (first.rows, first.width);
    let together = outputs_together(outputs);
    let teams = THREADS / LANES;
    let start = code.multiply(place.workgroup, teams * together);
    let own = code.multiply(place.team, together);
    let start = code.add(start, own);
    let last = code.index(outputs - 1);
    let rows: Vec<Value> = (0..together)
        .map(|row| {
            let row = code.index(row);
            let row = code.add(start, row);
            // Threads beyond the end repeat its row, and store nothing.
            match outputs.is_multiple_of(teams * together) {
                true => row,
                false => code.arith("minui", row, last, "index"),
            }
        })
        .collect();
    let runs = width / RUN;
    let bases: Vec<Value> = rows.iter().map(|&row| code.multiply(row, runs)).collect();
    let unrolled = [4, 2, 1]
        .into_iter()
        .find(|unrolled| runs.is_multiple_of(LANES * unrolled))
        .unwrap_or(1);
    let zero = code.float(0.0);
    let products = matrices.len() * together * batch;
    let squares = if x.norm.is_some() { batch } else { 0 };
    let sums = vec![(zero, "f32"); products + squares];
    let (end, step) = (code.index(runs), code.index(LANES * unrolled));
    let sums = code.repeat([place.lane, end, step], &sums, |code, at, sums| {
        let mut sums = sums.to_vec();
        for part in 0..unrolled {
            let part = code.index(part * LANES);
            let at = code.add(at, part);
            for row in 0..batch {
                let start = code.multiply(at, RUN);
                let row_start = code.index(row * width);
                let start = code.add(start, row_start);
                let half = code.index(RUN / 2);
                let second = code.add(start, half);
                let [low, high] = [start, second].map(|at| code.load_vector(x.numbers, at, RUN / 2));
                let mut run = code.value(format_args!(
                    "vector.shuffle {low}, {high} [0, 1, 2, 3, 4, 5, 6, 7] : vector<4xf32>, vector<4xf32>"
                ));
                if let Some(norm) = x.norm {
                    let square = code.arith("mulf", run, run, "vector<8xf32>");
                    let square = code.sum(square, RUN);
                    let sum = &mut sums[products + row];
                    *sum = code.floats("addf", *sum, square);
                    let at = code.multiply(at, RUN);
                    run = norm.scaled(code, run, at, RUN);
                }
                let x = run;
                let total = code.sum(x, RUN);
                for (output, &base) in bases.iter().enumerate() {
                    let at = code.add(base, at);
                    for (which, matrix) in matrices.iter().enumerate() {
                        let sum = &mut sums[(which * together + output) * batch + row];
                        *sum = matrix.accumulate(code, at, x, total, *sum);
                    }
                }
            }
        }
        sums
    });
    let sums: Vec<Value> = sums
        .into_iter()
        .map(|sum| code.across("addf", sum, 1, LANES))
        .collect();
    let (mut sums, squares) = (sums[..products].to_vec(), &sums[products..]);
    if let Some(norm) = x.norm {
        let roots: Vec<Value> = squares
            .iter()
            .map(|&squares| norm.root(code, squares, width))
            .collect();
        for (index, sum) in sums.iter_mut().enumerate() {
            *sum = code.floats("divf", *sum, roots[index % batch]);
        }
    }
    let zero = code.index(0);
    let first_lane = code.compare("eq", place.lane, zero);
    code.when(first_lane, |code| {
        for (output, &row) in rows.iter().enumerate() {
            let step = code.index(output);
            let unclamped = code.add(start, step);
            let end = code.index(outputs);
            let inside = code.compare("ult", unclamped, end);
            code.when(inside, |code| {
                for b in 0..batch {
                    let products: Vec<Value> = (0..matrices.len())
                        .map(|which| sums[(which * together + output) * batch + b])
                        .collect();
                    finish(code, row, b, &products);
                }
            });
        }
    });
}

/// `activation(x)` of an `f32`, where [`has_activation`].
pub(super) fn activate(code: &mut Code, activation: Activation, x: Value) -> Option<Value> {
    let one = code.float(1.0);
    Some(match activation {
        Activation::Silu => {
            let negated = code.value(format_args!("arith.negf {x} : f32"));
            let exponential = code.math("exp", negated);
            let divisor = code.floats("addf", one, exponential);
            code.floats("divf", x, divisor)
        }
        Activation::Relu => {
            let zero = code.float(0.0);
            code.floats("maximumf", x, zero)
        }
        Activation::GeluTanh => {
            let cube = code.float(0.044_715);
            let square = code.floats("mulf", x, x);
            let inner = code.fma(square, cube, one, "f32");
            let inner = code.floats("mulf", inner, x);
            let factor = code.float((2.0 / std::f64::consts::PI).sqrt());
            let inner = code.floats("mulf", inner, factor);
            let bent = code.math("tanh", inner);
            let grown = code.floats("addf", bent, one);
            let half = code.float(0.5);
            let half = code.floats("mulf", x, half);
            code.floats("mulf", half, grown)
        }
        _ => return None,
    })
}

/// Whether [`activate`] knows an activation.
pub(super) fn has_activation(activation: Activation) -> bool {
    matches!(
        activation,
        Activation::Silu | Activation::Relu | Activation::GeluTanh
    )
}

/// The memory of a dense vector of the weights, for instance a bias.
pub(super) fn vector(code: &mut Code, weight: &WeightDecl, binding: Value) -> Memory {
    let element = match weight.format {
        WeightFormat::Dense(dtype) => dtype,
        _ => DType::F32,
    };
    code.binding(binding, element.into(), weight.elements())
}
