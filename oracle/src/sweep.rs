//! The level of single ops: every op at the sizes where kernels change their ways, in every element
//! type and weight format; every 16-bit number through every function of one number.

mod memory;

use crate::case::Case;
use crate::execution::{Execution, IreeExecution, MlxExecution, Observed};
use crate::known;
use crate::standard::Standard;
use crate::summary::{Failure, Level};
use mlxcel_ir::random::{Weights, formats};
use mlxcel_ir::{
    Activation, Bindings, BuildError, Builder, Comparison, DType, HostTensor, Mask, Op, Pairing,
    Reduction, RopeScaling, StateDecl, StateKind, TensorType, ValueId, WeightDecl, WeightFormat,
    WeightId, WeightSource,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Sizes of the last dimension.
const SIZES: [usize; 10] = [1, 2, 31, 32, 33, 127, 128, 129, 1040, 4099];
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Functions of one number.
const FUNCTIONS: [Op; 12] = [
    Op::Negate {},
    Op::Abs {},
    Op::Exp {},
    Op::Log {},
    Op::Log1p {},
    Op::Sqrt {},
    Op::Rsqrt {},
    Op::Sin {},
    Op::Cos {},
    Op::Tanh {},
    Op::Sigmoid {},
    Op::Erf {},
];

/// Cases as they are made.
struct Cases(Vec<Case>);

type Built = Result<ValueId, BuildError>;

impl Cases {
    /// Adds the graph that `build` makes of inputs, if it is legal.
    fn add(
        &mut self,
        inputs: &[(&str, DType, &[usize])],
        build: impl FnOnce(&mut Builder, &[ValueId]) -> Built,
    ) {
        let mut builder = Builder::new("op");
        let values: Vec<ValueId> = inputs
            .iter()
            .map(|(name, dtype, shape)| {
                builder.input(*name, TensorType::new(*dtype, shape.iter().copied()))
            })
            .collect();
        if let Ok(value) = build(&mut builder, &values) {
            builder.output("y", value);
            self.0.push(Case {
                graph: builder.finish(),
                bindings: Bindings::new()
                    .with(mlxcel_ir::Symbol::B, 1)
                    .with(mlxcel_ir::Symbol::T, 33)
                    .with(mlxcel_ir::Symbol::S, 40),
                seed: 1,
                given: None,
            });
        }
    }
}

fn weight(builder: &mut Builder, shape: &[usize], format: WeightFormat) -> WeightId {
    let name = format!("w.{}", builder.graph().weights.len());
    builder.weight(WeightDecl {
        name,
        shape: shape.to_vec(),
        format,
    })
}

fn push(builder: &mut Builder, op: &Op, operands: &[ValueId]) -> Built {
    builder.push(op.clone(), operands.to_vec(), vec![], None)
}

/// A positive number of the type of `x`.
fn positive(builder: &mut Builder, x: ValueId) -> Built {
    let ty = builder.ty(x).clone();
    let half = builder.constant(0.5, ty.dtype, ty.shape)?;
    let size = builder.abs(x)?;
    builder.add(size, half)
}

/// Every case.
pub fn cases() -> Vec<Case> {
    let mut cases = Cases(vec![]);
    elementwise(&mut cases);
    rows(&mut cases);
    matrices(&mut cases);
    heads(&mut cases);
    memory::places(&mut cases);
    memory::states(&mut cases);
    memory::scores(&mut cases);
    cases.0
}

fn elementwise(cases: &mut Cases) {
    let binary = [
        Op::Add {},
        Op::Subtract {},
        Op::Multiply {},
        Op::Divide {},
        Op::Maximum {},
        Op::Minimum {},
        Op::Power {},
    ];
    for size in SIZES {
        for dtype in FLOATS {
            for op in &FUNCTIONS {
                let tame = !matches!(op, Op::Log {} | Op::Log1p {} | Op::Sqrt {} | Op::Rsqrt {});
                cases.add(&[("x", dtype, &[size])], |b, x| {
                    let x = if tame { x[0] } else { positive(b, x[0])? };
                    push(b, op, &[x])
                });
            }
            for op in &binary {
                // Neighbouring memory, a transposed side, a side of stride 0, a side of stride 2.
                cases.add(&[("x", dtype, &[size]), ("y", dtype, &[size])], |b, x| {
                    let (x, y) = (positive(b, x[0])?, positive(b, x[1])?);
                    push(b, op, &[x, y])
                });
                if size > 129 {
                    continue;
                }
                cases.add(
                    &[("x", dtype, &[3, size]), ("y", dtype, &[size, 3])],
                    |b, x| {
                        let y = b.transpose(x[1], vec![1, 0])?;
                        let (x, y) = (positive(b, x[0])?, positive(b, y)?);
                        push(b, op, &[x, y])
                    },
                );
                cases.add(
                    &[("x", dtype, &[2, size]), ("y", dtype, &[1, size])],
                    |b, x| {
                        let y = b.broadcast(x[1], vec![2.into(), size.into()], vec![0, 1])?;
                        let (x, y) = (positive(b, x[0])?, positive(b, y)?);
                        push(b, op, &[x, y])
                    },
                );
                cases.add(
                    &[("x", dtype, &[size]), ("y", dtype, &[2 * size])],
                    |b, x| {
                        let y = b.slice(x[1], 0, 0, 2 * size, 2)?;
                        let (x, y) = (positive(b, x[0])?, positive(b, y)?);
                        push(b, op, &[x, y])
                    },
                );
            }
            for &activation in Activation::ALL {
                cases.add(&[("x", dtype, &[size])], |b, x| {
                    b.activate(x[0], activation)
                });
                cases.add(
                    &[("x", dtype, &[2, size]), ("y", dtype, &[2, size])],
                    |b, x| b.gated(x[0], x[1], activation),
                );
            }
        }
        for dtype in DType::ALL {
            for &comparison in Comparison::ALL {
                cases.add(&[("x", dtype, &[size]), ("y", dtype, &[size])], |b, x| {
                    b.compare(x[0], x[1], comparison)
                });
            }
            cases.add(
                &[
                    ("c", DType::Bool, &[size]),
                    ("x", dtype, &[size]),
                    ("y", dtype, &[size]),
                ],
                |b, x| b.select(x[0], x[1], x[2]),
            );
            cases.add(&[("x", DType::F32, &[size])], |b, x| {
                let x = positive(b, x[0])?;
                b.convert(x, dtype)
            });
            cases.add(&[("x", DType::I32, &[size])], |b, x| b.convert(x[0], dtype));
            cases.add(
                &[("x", dtype, &[3, size]), ("y", dtype, &[2, size])],
                |b, x| b.concatenate(x[0], x[1], 0),
            );
            cases.add(&[("x", dtype, &[3, size])], |b, x| {
                b.transpose(x[0], vec![1, 0])
            });
            cases.add(&[("x", dtype, &[3, size])], |b, x| {
                b.slice(x[0], 0, 1, 3, 2)
            });
            cases.add(
                &[("x", dtype, &[9, size]), ("i", DType::I32, &[5])],
                |b, x| b.gather(x[0], x[1]),
            );
            cases.add(
                &[("x", dtype, &[2, 7]), ("i", DType::I32, &[2, size])],
                |b, x| b.take_along(x[0], x[1]),
            );
            for (index, op) in binary[..6].iter().enumerate() {
                if !dtype.is_float() && dtype != DType::Bool && index != 3 {
                    cases.add(&[("x", dtype, &[size]), ("y", dtype, &[size])], |b, x| {
                        push(b, op, &[x[0], x[1]])
                    });
                }
            }
        }
        cases.add(
            &[("x", DType::Bool, &[size]), ("y", DType::Bool, &[size])],
            |b, x| b.and(x[0], x[1]),
        );
        cases.add(
            &[("x", DType::Bool, &[size]), ("y", DType::Bool, &[size])],
            |b, x| b.or(x[0], x[1]),
        );
        cases.add(&[("x", DType::Bool, &[size])], |b, x| b.not(x[0]));
    }
}

fn rows(cases: &mut Cases) {
    for size in SIZES {
        for dtype in FLOATS {
            for &reduction in Reduction::ALL {
                cases.add(&[("x", dtype, &[3, size])], |b, x| {
                    b.reduce(x[0], reduction, 1)
                });
                cases.add(&[("x", dtype, &[size, 3])], |b, x| {
                    b.reduce(x[0], reduction, 0)
                });
            }
            cases.add(&[("x", dtype, &[3, size])], |b, x| b.softmax(x[0]));
            for offset in [0.0, 1.0] {
                for format in FLOATS.map(WeightFormat::Dense) {
                    cases.add(&[("x", dtype, &[3, size])], |b, x| {
                        let w = weight(b, &[size], format);
                        b.rms_norm(x[0], Some(w), 1e-6, offset)
                    });
                    cases.add(&[("x", dtype, &[3, size])], |b, x| {
                        let (w, bias) = (weight(b, &[size], format), weight(b, &[size], format));
                        b.layer_norm(x[0], Some(w), Some(bias), 1e-5, offset)
                    });
                }
            }
            cases.add(&[("x", dtype, &[3, size])], |b, x| {
                b.rms_norm(x[0], None, 1e-6, 0.0)
            });
            cases.add(&[("x", dtype, &[3, size])], |b, x| {
                b.layer_norm(x[0], None, None, 1e-5, 0.0)
            });
            cases.add(
                &[("x", dtype, &[3, size]), ("y", dtype, &[5, size])],
                |b, x| b.dot(x[0], x[1], vec![], vec![], vec![1], vec![1]),
            );
            cases.add(
                &[("x", dtype, &[size, 3]), ("y", dtype, &[size, 5])],
                |b, x| b.dot(x[0], x[1], vec![], vec![], vec![0], vec![0]),
            );
            cases.add(
                &[("x", dtype, &[2, 3, size]), ("y", dtype, &[2, size, 5])],
                |b, x| b.dot(x[0], x[1], vec![0], vec![0], vec![2], vec![1]),
            );
            cases.add(
                &[("x", dtype, &[1, 33, size]), ("length", DType::I32, &[1])],
                |b, x| {
                    let w = weight(b, &[size, 4], WeightFormat::Dense(dtype));
                    let state = b.state(StateDecl {
                        name: "memory".into(),
                        kind: StateKind::Memory,
                        heads: 1,
                        key_dim: 3,
                        value_dim: size,
                        dtype,
                    });
                    b.causal_convolution(x[0], x[1], w, None, state)
                },
            );
        }
    }
}

fn matrices(cases: &mut Cases) {
    for width in [1, 32, 33, 64, 127, 128, 256, 512, 1024] {
        let mut known = formats(&[7, width]);
        known.dedup();
        for format in known {
            for dtype in [DType::F32, DType::BF16] {
                let panels = format.in_panels(&[32, width]).into_iter();
                for (format, rows) in panels.flat_map(|format| [1, 3, 7].map(|rows| (format, rows)))
                {
                    cases.add(&[("x", dtype, &[1, rows, width])], |b, x| {
                        let w = weight(b, &[32, width], format);
                        b.linear(x[0], w, None)
                    });
                }
                for rows in [1, 2, 7, 33] {
                    for (outputs, bias) in [(7, false), (32, true)] {
                        cases.add(&[("x", dtype, &[1, rows, width])], |b, x| {
                            let w = weight(b, &[outputs, width], format);
                            let dense = WeightFormat::Dense(DType::F32);
                            let bias = bias.then(|| weight(b, &[outputs], dense));
                            b.linear(x[0], w, bias)
                        });
                    }
                }
                cases.add(
                    &[("x", dtype, &[1, 5, width]), ("i", DType::I32, &[1, 5, 2])],
                    |b, x| {
                        let w = weight(b, &[7, 32, width], format);
                        b.expert_linear(x[0], x[1], w, None)
                    },
                );
            }
            cases.add(&[("i", DType::I32, &[1, 5])], |b, x| {
                let w = weight(b, &[7, width], format);
                b.embedding(x[0], w)
            });
            cases.add(&[], |b, _| {
                let w = weight(b, &[7, width], format);
                b.parameter(w)
            });
        }
    }
}

fn heads(cases: &mut Cases) {
    for width in [2, 4, 32, 64, 128] {
        for dtype in FLOATS {
            for &pairing in Pairing::ALL {
                for dims in [2, width / 2 / 2 * 2, width] {
                    for scaling in [RopeScaling::None, RopeScaling::Linear { factor: 4.0 }] {
                        for start in ["start", "far"] {
                            cases.add(
                                &[("x", dtype, &[1, 4, 3, width]), (start, DType::I32, &[1])],
                                |b, x| b.rope(x[0], x[1], dims, 1e4, pairing, scaling.clone(), 1.0),
                            );
                        }
                    }
                }
            }
            for (heads, kv_heads) in [(1, 1), (4, 2), (6, 1)] {
                for &mask in Mask::ALL {
                    for window in [None, Some(1), Some(3)] {
                        for tokens in [1, 4, 33] {
                            cases.add(
                                &[
                                    ("q", dtype, &[1, tokens, heads, width]),
                                    ("k", dtype, &[1, tokens, kv_heads, width]),
                                    ("v", dtype, &[1, tokens, kv_heads, width]),
                                    ("start", DType::I32, &[1]),
                                ],
                                |b, x| {
                                    let state = b.state(StateDecl {
                                        name: "cache".into(),
                                        kind: StateKind::Cache,
                                        heads: kv_heads,
                                        key_dim: width,
                                        value_dim: width,
                                        dtype,
                                    });
                                    b.attention(
                                        x[0],
                                        x[1],
                                        x[2],
                                        x[3],
                                        None,
                                        state,
                                        0.25,
                                        mask,
                                        window,
                                        None,
                                        None,
                                        vec![],
                                    )
                                },
                            );
                        }
                    }
                }
                cases.add(
                    &[
                        ("q", dtype, &[1, 5, heads, width]),
                        ("k", dtype, &[1, 5, kv_heads, width]),
                        ("v", dtype, &[1, 5, kv_heads, width]),
                        ("length", DType::I32, &[1]),
                    ],
                    |b, x| b.mutual_attention(x[0], x[1], x[2], x[3], 0.25, None),
                );
            }
        }
    }
}

/// From how many terms on a sum is a class of its own: the more terms, the further an honest error stays below
/// the bound for any order.
const LONG: usize = 512;

/// The worst share of its bound that each class of bounds reached, and on which execution. A class is an op, the
/// type of its result and whether it sums many terms.
pub type Classes = BTreeMap<String, (f64, &'static str)>;

/// The class of a case: that of its last node.
fn class(case: &Case) -> Option<String> {
    let node = case.graph.nodes.last()?;
    let sums = matches!(
        node.op,
        Op::Dot { .. }
            | Op::Linear {}
            | Op::ExpertLinear {}
            | Op::Reduce { .. }
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Softmax {}
    );
    let ty = node.operands.first().and_then(|&x| case.graph.ty(x));
    let longest = ty.and_then(|ty| ty.shape.iter().filter_map(|dim| dim.fixed()).max());
    let long = match sums && longest.is_some_and(|longest| longest >= LONG) {
        true => ", long",
        false => "",
    };
    Some(format!("{} {}{long}", node.op.info().name, node.ty.dtype))
}

/// Keeps the worst of a class.
fn judge(classes: &mut Classes, case: &Case, execution: &dyn Execution, share: f64) {
    if let Some(class) = class(case) {
        let worst = classes.entry(class).or_insert((0.0, "none"));
        if share > worst.0 && share.is_finite() {
            *worst = (share, execution.name());
        }
    }
}

/// Runs every case on MLX and kernels, and `compiled` of them, spread evenly, on IREE.
pub fn run(compiled: usize, batch: usize, progress: &dyn Fn(&str)) -> (Vec<Level>, Classes) {
    let mut classes = Classes::new();
    let cases = cases();
    progress(&format!("{} ops", cases.len()));
    let executions: [&dyn Execution; 2] = [&MlxExecution::Operations, &MlxExecution::Kernels];
    let mut levels: Vec<Level> = executions
        .iter()
        .map(|execution| Level::new(format!("single ops, {}", execution.name())))
        .collect();
    let mut iree = Level::new("single ops, iree-cpu");
    let stride = cases
        .len()
        .checked_div(compiled)
        .unwrap_or(usize::MAX)
        .max(1);
    let mut waiting: Vec<(&Case, Standard)> = vec![];
    for (index, case) in cases.iter().enumerate() {
        let standard = match case.standard() {
            Ok(standard) => standard,
            Err(error) => {
                levels[0].fail(Failure::new("interpreter", case, known::full(&error)));
                continue;
            }
        };
        for (execution, level) in executions.iter().zip(&mut levels) {
            let begin = Instant::now();
            let outcome = case.run(*execution);
            level.seconds += begin.elapsed().as_secs_f64();
            if let Ok(Some(worst)) = outcome.as_ref().map(|found| standard.worst(found)) {
                judge(&mut classes, case, *execution, worst.share);
            }
            level.record(case, *execution, &standard, outcome);
        }
        if compiled > 0 && index % stride == 0 {
            match known::expected(case, &IreeExecution) {
                Ok(standard) => waiting.push((case, standard)),
                Err(error) => iree.fail(Failure::new("interpreter", case, known::full(&error))),
            }
        }
        if waiting.len() >= batch {
            flush(&mut iree, &mut waiting, &mut classes);
        }
    }
    flush(&mut iree, &mut waiting, &mut classes);
    if compiled > 0 {
        levels.push(iree);
    }
    (levels, classes)
}

fn flush(level: &mut Level, waiting: &mut Vec<(&Case, Standard)>, classes: &mut Classes) {
    let begin = Instant::now();
    let cases: Vec<&Case> = waiting.iter().map(|(case, _)| *case).collect();
    let outcomes = IreeExecution.run_batch(&cases);
    level.seconds += begin.elapsed().as_secs_f64();
    for ((case, standard), outcome) in waiting.drain(..).zip(outcomes) {
        if let Ok(Some(worst)) = outcome.as_ref().map(|found| standard.worst(found)) {
            judge(classes, case, &IreeExecution, worst.share);
        }
        level.record(case, &IreeExecution, &standard, outcome);
    }
}

/// Where a declared limitation ([`known::KNOWN`]) makes a function wrong: the execution, the function, the
/// element type, and the numbers from and to which it does.
const DECLARED: [(&str, &str, DType, f64, f64); 16] = [
    ("mlx", "sigmoid", DType::F16, f64::NEG_INFINITY, -11.08),
    ("mlx", "exp", DType::BF16, 88.37, 88.73),
    // Three roundings to f16, of which the first may overflow.
    ("iree-cpu", "sigmoid", DType::F16, f64::NEG_INFINITY, -7.0),
    // Numbers below the smallest normal one count as zero.
    ("iree-cpu", "log", DType::BF16, -SMALLEST, SMALLEST),
    ("iree-cpu", "sqrt", DType::BF16, -SMALLEST, SMALLEST),
    ("iree-cpu", "rsqrt", DType::BF16, -SMALLEST, SMALLEST),
    // An error of 2e-7, which is much of a small sine.
    ("iree-cpu", "sin", DType::F16, -1e-3, 1e-3),
    ("iree-cpu", "sin", DType::BF16, -1e-3, 1e-3),
    // Angles that no model has.
    ("iree-cpu", "sin", DType::F16, 32768.0, f64::INFINITY),
    ("iree-cpu", "sin", DType::F16, f64::NEG_INFINITY, -32768.0),
    ("iree-cpu", "cos", DType::F16, 32768.0, f64::INFINITY),
    ("iree-cpu", "cos", DType::F16, f64::NEG_INFINITY, -32768.0),
    ("iree-cpu", "sin", DType::BF16, 32768.0, f64::INFINITY),
    ("iree-cpu", "sin", DType::BF16, f64::NEG_INFINITY, -32768.0),
    ("iree-cpu", "cos", DType::BF16, 32768.0, f64::INFINITY),
    ("iree-cpu", "cos", DType::BF16, f64::NEG_INFINITY, -32768.0),
];

/// The smallest normal number of f32 and bf16.
const SMALLEST: f64 = f32::MIN_POSITIVE as f64;

/// Takes the numbers with a declared limitation out of a comparison; whether there are any.
fn excuse(
    execution: &str,
    dtype: DType,
    numbers: &[f64],
    standard: &Standard,
    observed: &mut [Observed],
) -> usize {
    let mut excused = 0;
    for (name, op, of, from, to) in DECLARED {
        for ((output, tensor), observed) in standard.0.iter().zip(observed.iter_mut()) {
            if (execution, dtype, output.as_str()) != (name, of, op) {
                continue;
            }
            excused += 1;
            let expected = tensor.to_f64();
            let places = numbers.iter().zip(&mut observed.values).zip(expected);
            for ((&number, value), expected) in places {
                if (from..=to).contains(&number) {
                    *value = expected;
                }
            }
        }
    }
    excused
}

/// Every 16-bit number through every function of one number.
pub fn exhaustive() -> Vec<Level> {
    let executions: [&dyn Execution; 2] = [&MlxExecution::Operations, &IreeExecution];
    let weights: Arc<dyn WeightSource> = Arc::new(Weights::default());
    executions
        .iter()
        .map(|execution| {
            let mut level = Level::new(format!("every 16-bit number, {}", execution.name()));
            for dtype in [DType::F16, DType::BF16] {
                let mut builder = Builder::new("functions");
                let x = builder.input("x", TensorType::new(dtype, [1usize << 16]));
                for op in &FUNCTIONS {
                    if let Ok(value) = push(&mut builder, op, &[x]) {
                        builder.output(op.info().name, value);
                    }
                }
                let graph = builder.finish();
                let bytes = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
                let tensor = HostTensor {
                    dtype,
                    shape: vec![1 << 16],
                    bytes,
                };
                let numbers = tensor.to_f64();
                let inputs = [("x", tensor)];
                let bindings = Bindings::new();
                let begin = Instant::now();
                let standard = Standard::new(&graph, &bindings, &weights, &inputs);
                let observed: Result<Vec<Observed>, _> =
                    execution.run(&graph, &bindings, &weights, &inputs);
                level.seconds += begin.elapsed().as_secs_f64();
                match (standard, observed) {
                    (Ok(standard), Ok(mut observed)) => {
                        let name = execution.name();
                        for _ in 0..excuse(name, dtype, &numbers, &standard, &mut observed) {
                            level.declare();
                        }
                        for deviation in standard.deviations(&observed) {
                            let place = format!("{} of {dtype}", deviation.output);
                            match deviation.within() {
                                true => level.pass(deviation.share, || place),
                                false => level.fail(Failure {
                                    execution: execution.name().into(),
                                    reason: format!(
                                        "{place}, of number {:#06x}: {deviation}",
                                        deviation.index
                                    ),
                                    case: String::new(),
                                }),
                            }
                        }
                    }
                    (Err(error), _) | (_, Err(error)) => level.fail(Failure {
                        execution: execution.name().into(),
                        reason: known::full(&error),
                        case: String::new(),
                    }),
                }
            }
            level
        })
        .collect()
}
