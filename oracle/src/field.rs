//! Faults that were found in the field, as cases that no execution may have.
//!
//! Each is a graph that meets the shapes at which a library was once wrong without a word. Where a
//! pinned library still is, the fault is declared in [`crate::known`], whose cases must fail.

use crate::case::Case;
use crate::execution::{Execution, IreeExecution, MlxExecution};
use crate::known;
use crate::summary::{Failure, Level};
use mlxcel_ir::{
    Bindings, BuildError, Builder, DType, Dim, Mask, StateDecl, StateKind, Symbol, TensorType,
    ValueId, WeightDecl, WeightFormat,
};
use std::time::Instant;

type Built = Result<ValueId, BuildError>;
/// Inputs: name, type, sizes.
type Inputs = &'static [(&'static str, DType, &'static [usize])];

/// A fault of the field.
pub struct FieldFault {
    /// What goes wrong, and where it was reported.
    pub name: &'static str,
    inputs: Inputs,
    build: fn(&mut Builder, &[ValueId]) -> Built,
}

/// Tokens that a cache holds: more than 16 bits with a sign can count.
const LONG: usize = 32_800;
const GROUPED: WeightFormat = affine(4, 32);
/// Queries, keys and values of two tokens.
const HEADS: Inputs = &[
    ("q", DType::F32, &[1, 2, 4, 8]),
    ("k", DType::F32, &[1, 2, 2, 8]),
    ("v", DType::F32, &[1, 2, 2, 8]),
];

/// Every fault.
pub const FIELD: &[FieldFault] = &[
    FieldFault {
        name: "quantised matmul, batch of stride 0 (mlx#3480)",
        inputs: &[("x", DType::F32, &[1, 3, 64])],
        build: |b, x| {
            let x = b.broadcast(x[0], fixed(&[8, 3, 64]), vec![0, 1, 2])?;
            linear(b, x, [32, 64], GROUPED)
        },
    },
    FieldFault {
        name: "nvfp4, K = 48, one row (mlx#3912)",
        inputs: &[("x", DType::F32, &[1, 1, 48])],
        build: |b, x| linear(b, x[0], [32, 48], WeightFormat::NvFp4),
    },
    FieldFault {
        name: "nvfp4, K = 48, many rows (mlx#3912)",
        inputs: &[("x", DType::F32, &[1, 512, 48])],
        build: |b, x| linear(b, x[0], [32, 48], WeightFormat::NvFp4),
    },
    FieldFault {
        name: "quantised matmul, M = 32770 (mflux#489)",
        inputs: &[("x", DType::F32, &[1, 32_770, 32])],
        build: |b, x| linear(b, x[0], [8, 32], GROUPED),
    },
    FieldFault {
        name: "attention past 32768 tokens, all of them (mlx#3360)",
        inputs: HEADS,
        // Without slopes all that is not new would have the same score, and the errors of summing equal
        // numbers are not independent, as the bound of a sum assumes (see the limitations).
        build: |b, x| attention(b, "cache", x, None, vec![1e-4, 2e-4, 3e-4, 4e-4]),
    },
    FieldFault {
        name: "attention past 32768 tokens, a window (mlx#3360)",
        inputs: HEADS,
        build: |b, x| attention(b, "cache", x, Some(3), vec![]),
    },
    FieldFault {
        name: "6 bits, M = 720, K = 2048 (mlx#3586)",
        inputs: &[("x", DType::F32, &[1, 720, 2048])],
        build: |b, x| linear(b, x[0], [64, 2048], affine(6, 64)),
    },
    FieldFault {
        // A product of numbers with 10 bits is off by 5e-4 of each term.
        name: "f32 matmul in TF32 (MLX on CUDA)",
        inputs: &[("x", DType::F32, &[1, 40, 512])],
        build: |b, x| linear(b, x[0], [48, 512], WeightFormat::Dense(DType::F32)),
    },
    FieldFault {
        name: "bf16 activations in a quantised matmul on a CPU",
        inputs: &[("x", DType::BF16, &[1, 5, 2048])],
        build: |b, x| linear(b, x[0], [16, 2048], GROUPED),
    },
    FieldFault {
        name: "8-bit matmul, K = 2048 (iree#8491)",
        inputs: &[("x", DType::F32, &[1, 9, 2048])],
        build: |b, x| linear(b, x[0], [24, 2048], affine(8, 64)),
    },
    FieldFault {
        name: "fp8 weights, bf16 activations (iree#19859)",
        inputs: &[("x", DType::BF16, &[1, 9, 256])],
        build: |b, x| linear(b, x[0], [24, 256], WeightFormat::MxFp8),
    },
    FieldFault {
        name: "bf16 matmul, K = 2048 (iree#19859)",
        inputs: &[("x", DType::BF16, &[1, 9, 2048])],
        build: |b, x| linear(b, x[0], [24, 2048], WeightFormat::Dense(DType::BF16)),
    },
    FieldFault {
        name: "equal mutable globals merged (IREE)",
        inputs: HEADS,
        build: |b, x| {
            let first = attention(b, "first", x, Some(3), vec![])?;
            // Other keys and values in a state of the same type.
            let second = attention(b, "second", &[x[0], x[2], x[1]], Some(3), vec![])?;
            b.subtract(first, second)
        },
    },
    FieldFault {
        // The appended rows must not be written over the input that is read after it.
        name: "an input is overwritten where it stands (IREE)",
        inputs: HEADS,
        build: |b, x| {
            let mixed = attention(b, "cache", x, Some(9), vec![])?;
            let half = b.slice(mixed, 2, 0, 2, 1)?;
            let sum = b.add(half, x[1])?;
            b.add(sum, x[2])
        },
    },
];

const fn affine(bits: u8, group: usize) -> WeightFormat {
    WeightFormat::Affine {
        bits,
        group,
        scale: DType::F32,
    }
}

fn fixed(shape: &[usize]) -> Vec<Dim> {
    shape.iter().copied().map(Dim::Fixed).collect()
}

fn linear(builder: &mut Builder, x: ValueId, shape: [usize; 2], format: WeightFormat) -> Built {
    let w = builder.weight(WeightDecl {
        name: "w".into(),
        shape: shape.to_vec(),
        format,
    });
    builder.linear(x, w, None)
}

/// Two tokens near the end of a long cache.
fn attention(
    builder: &mut Builder,
    name: &str,
    x: &[ValueId],
    window: Option<usize>,
    slopes: Vec<f64>,
) -> Built {
    let start = builder.constant((LONG - 10) as f64, DType::I32, fixed(&[1]))?;
    let state = builder.state(StateDecl {
        name: name.into(),
        kind: StateKind::Cache,
        heads: 2,
        key_dim: 8,
        value_dim: 8,
        dtype: DType::F32,
    });
    builder.attention(
        x[0],
        x[1],
        x[2],
        start,
        None,
        state,
        0.5,
        Mask::Causal,
        window,
        None,
        None,
        slopes,
    )
}

impl FieldFault {
    /// The case that meets it.
    ///
    /// # Errors
    /// If the graph is not legal, which is a fault of this file.
    pub fn case(&self) -> Result<Case, BuildError> {
        let mut builder = Builder::new("field");
        let inputs: Vec<ValueId> = self
            .inputs
            .iter()
            .map(|(name, dtype, shape)| {
                builder.input(*name, TensorType::new(*dtype, shape.iter().copied()))
            })
            .collect();
        let value = (self.build)(&mut builder, &inputs)?;
        builder.output("y", value);
        Ok(Case {
            graph: builder.finish(),
            bindings: Bindings::new()
                .with(Symbol::B, 1)
                .with(Symbol::T, 2)
                .with(Symbol::S, LONG),
            seed: 3,
            given: None,
        })
    }
}

/// Runs every case on every execution.
pub fn run() -> Vec<Level> {
    let executions: [&dyn Execution; 3] = [
        &MlxExecution::Operations,
        &MlxExecution::Kernels,
        &IreeExecution,
    ];
    let mut levels: Vec<Level> = executions
        .iter()
        .map(|execution| Level::new(format!("faults of the field, {}", execution.name())))
        .collect();
    for fault in FIELD {
        let prepared = fault.case().map_err(|error| error.to_string());
        let prepared = prepared.and_then(|case| {
            let standard = case.standard().map_err(|error| known::full(&error))?;
            Ok((case, standard))
        });
        for (execution, level) in executions.iter().zip(&mut levels) {
            let begin = Instant::now();
            let before = level.failures.len();
            match &prepared {
                Ok((case, standard)) => {
                    level.record(case, *execution, standard, case.run(*execution));
                }
                Err(reason) => level.fail(Failure {
                    execution: "oracle".into(),
                    reason: reason.clone(),
                    case: String::new(),
                }),
            }
            for failure in &mut level.failures[before..] {
                failure.reason = format!("{}: {}", fault.name, failure.reason);
            }
            level.seconds += begin.elapsed().as_secs_f64();
        }
    }
    levels
}
