//! Every op, compiled for the machine at hand and run, against the interpreter.

use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::*;
use mlxcel_lower::{FunctionSpec, Target, compile_graphs};
use mlxcel_runtime_iree::{Device, Module, Parameters};
use std::collections::BTreeSet;
use std::sync::Arc;

type Build = fn(&mut Builder) -> Result<ValueId, BuildError>;

// The inputs of every function.
const X: ValueId = ValueId(0); // f32[2, 3, 8], around zero
const Y: ValueId = ValueId(1); // f32[2, 3, 8], positive
const I: ValueId = ValueId(2); // i32[2]
const P: ValueId = ValueId(3); // bool[2, 3, 8]
const Q: ValueId = ValueId(4); // f32[2, 3, 4, 8], queries
const K: ValueId = ValueId(5); // f32[2, 3, 2, 8], keys or values
const S: ValueId = ValueId(6); // i32[2], where rows start
const N: ValueId = ValueId(7); // i32[2], how many of the tokens count
const E: ValueId = ValueId(8); // i32[2, 3, 2], experts

fn ty(dtype: DType, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape.iter().copied())
}

fn inputs() -> Vec<(&'static str, HostTensor)> {
    let wave = |count: usize, offset: f32, scale: f32| -> Vec<f32> {
        let number = |i: usize| ((i * 37 % 101) as f32 / 101.0 - 0.5) * scale + offset;
        (0..count).map(number).collect()
    };
    vec![
        ("x", HostTensor::f32([2, 3, 8], &wave(48, 0.0, 4.0))),
        ("y", HostTensor::f32([2, 3, 8], &wave(48, 1.5, 2.0))),
        ("i", HostTensor::i32([2], &[1, 0])),
        (
            "p",
            HostTensor {
                dtype: DType::Bool,
                shape: vec![2, 3, 8],
                bytes: (0..48).map(|i| u8::from(i % 3 == 0)).collect(),
            },
        ),
        ("q", HostTensor::f32([2, 3, 4, 8], &wave(192, 0.1, 3.0))),
        ("k", HostTensor::f32([2, 3, 2, 8], &wave(96, -0.2, 3.0))),
        ("s", HostTensor::i32([2], &[0, 4])),
        ("n", HostTensor::i32([2], &[3, 1])),
        (
            "e",
            HostTensor::i32([2, 3, 2], &[1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1]),
        ),
    ]
}

/// Weights made up from their names.
struct Made;

impl WeightSource for Made {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        static BYTES: [[u8; 2048]; 2] = {
            let mut bytes = [[0; 2048]; 2];
            let mut index = 0;
            while index < 512 {
                let number = ((index * 53 % 97) as f32 / 97.0 - 0.5).to_le_bytes();
                let mut byte = 0;
                while byte < 4 {
                    bytes[0][index * 4 + byte] = number[byte];
                    bytes[1][index * 4 + byte] = (index * 4 + byte) as u8 ^ 0x5A;
                    byte += 1;
                }
                index += 1;
            }
            bytes
        };
        let (values, sides): (&[u8], usize) = match name {
            "vector" => (&BYTES[0][..32], 0),
            "bias" => (&BYTES[0][64..128], 0),
            "matrix" => (&BYTES[0][..512], 0),
            "taps" => (&BYTES[0][32..160], 0),
            "sinks" => (&BYTES[0][..16], 0),
            "experts" => (&BYTES[0][..512], 0),
            "expert_bias" => (&BYTES[0][64..128], 0),
            "experts_four" => (&BYTES[1][..512], 128),
            "experts_eight" => (&BYTES[1][..1024], 128),
            "half" => (&BYTES[0][..256], 0),
            "four" => (&BYTES[1][..512], 128),
            "eight" => (&BYTES[1][..1024], 128),
            _ => return None,
        };
        Some(WeightData {
            values,
            scales: &BYTES[0][..sides],
            biases: &BYTES[0][256..256 + sides],
        })
    }
}

fn weight(b: &mut Builder, name: &str) -> WeightId {
    let affine = |bits| WeightFormat::Affine {
        bits,
        group: 32,
        scale: DType::F32,
    };
    let (shape, format) = match name {
        "vector" => (vec![8], WeightFormat::Dense(DType::F32)),
        "bias" => (vec![16], WeightFormat::Dense(DType::F32)),
        "taps" => (vec![8, 4], WeightFormat::Dense(DType::F32)),
        "sinks" => (vec![4], WeightFormat::Dense(DType::F32)),
        "experts" => (vec![2, 8, 8], WeightFormat::Dense(DType::F32)),
        "expert_bias" => (vec![2, 8], WeightFormat::Dense(DType::F32)),
        "experts_four" => (vec![2, 8, 64], affine(4)),
        "experts_eight" => (vec![2, 8, 64], affine(8)),
        "matrix" => (vec![16, 8], WeightFormat::Dense(DType::F32)),
        "half" => (vec![16, 8], WeightFormat::Dense(DType::BF16)),
        "four" => (vec![16, 64], affine(4)),
        _ => (vec![16, 64], affine(8)),
    };
    b.weight(WeightDecl {
        name: name.into(),
        shape,
        format,
    })
}

fn cache(b: &mut Builder) -> StateId {
    b.state(StateDecl {
        name: "cache".into(),
        heads: 2,
        kind: StateKind::Cache,
        key_dim: 8,
        value_dim: 8,
        dtype: DType::F32,
    })
}

fn memory(b: &mut Builder, [heads, key_dim, value_dim]: [usize; 3]) -> StateId {
    b.state(StateDecl {
        name: "memory".into(),
        kind: StateKind::Memory,
        heads,
        key_dim,
        value_dim,
        dtype: DType::F32,
    })
}

/// The first token of each row of every one of `values`.
fn first<const COUNT: usize>(
    b: &mut Builder,
    values: [ValueId; COUNT],
) -> Result<[ValueId; COUNT], BuildError> {
    let mut cut = values;
    for value in &mut cut {
        *value = b.slice(*value, 1, 0, 1, 1)?;
    }
    Ok(cut)
}

/// Every one of `values` four times in a row, twelve tokens: more than stand without a loop.
fn long<const COUNT: usize>(
    b: &mut Builder,
    values: [ValueId; COUNT],
) -> Result<[ValueId; COUNT], BuildError> {
    let mut grown = values;
    for value in &mut grown {
        let twice = b.concatenate(*value, *value, 1)?;
        *value = b.concatenate(twice, twice, 1)?;
    }
    Ok(grown)
}

/// How many of twelve tokens count: 11 of row 0, 3 of row 1.
fn long_length(b: &mut Builder) -> Result<ValueId, BuildError> {
    let four = b.constant(4.0, DType::I32, vec![2.into()])?;
    let one = b.constant(1.0, DType::I32, vec![2.into()])?;
    let length = b.multiply(N, four)?;
    b.subtract(length, one)
}

/// How many tokens of a recurrence there are.
#[derive(Clone, Copy)]
enum Tokens {
    One,
    Three,
    Twelve,
}

/// How many of one token count: that of row 0, none of row 1.
fn one_length(b: &mut Builder) -> Result<ValueId, BuildError> {
    let two = b.constant(2.0, DType::I32, vec![2.into()])?;
    b.divide(N, two)
}

/// A recurrence of four heads, whose queries and keys are shared by two each. `whole` decays all of a
/// head alike, `delta` erases.
fn recur(b: &mut Builder, tokens: Tokens, whole: bool, delta: bool) -> Result<ValueId, BuildError> {
    let decay = b.sigmoid(Q)?;
    let decay = match whole {
        true => b.slice(decay, 3, 2, 3, 1)?,
        false => decay,
    };
    let (erase, write) = (b.sin(K)?, b.cos(K)?);
    let half = b.constant(0.25, DType::F32, [2, 3, 2, 8].map(Dim::from).to_vec())?;
    let write = b.multiply(write, half)?;
    let query = b.tanh(K)?;
    let mut operands = [query, K, Q, decay, erase, write];
    let mut length = N;
    match tokens {
        Tokens::One => (operands, length) = (first(b, operands)?, one_length(b)?),
        Tokens::Three => {}
        Tokens::Twelve => (operands, length) = (long(b, operands)?, long_length(b)?),
    }
    let [query, key, value, decay, erase, write] = operands;
    let state = memory(b, [4, 8, 8]);
    match delta {
        true => b.delta_recurrence(query, key, value, decay, erase, write, length, state),
        false => b.recurrence(query, key, value, decay, length, state),
    }
}

/// A delta rule with heads of 64 by 64, which the compiler cuts into several workgroups: none may read
/// what another has written already. `tokens` are 1 or 3.
fn recur_wide(b: &mut Builder, tokens: usize) -> Result<ValueId, BuildError> {
    let small = b.constant(0.125, DType::F32, [2, 3, 2, 8].map(Dim::from).to_vec())?;
    let key = b.multiply(K, small)?;
    let (query, write, decay) = (b.tanh(key)?, b.sin(key)?, b.sigmoid(Q)?);
    let mut wide = [query, key, Q, decay, write];
    for value in &mut wide {
        for _ in 0..3 {
            *value = b.concatenate(*value, *value, 3)?;
        }
    }
    let mut length = N;
    if tokens == 1 {
        wide = first(b, wide)?;
        length = one_length(b)?;
    }
    let [query, key, value, decay, write] = wide;
    let state = memory(b, [4, 64, 64]);
    b.delta_recurrence(query, key, value, decay, key, write, length, state)
}

/// Attention with what few models have: chunks, slopes and sinks.
fn attend_oddly(b: &mut Builder, one: bool) -> Result<ValueId, BuildError> {
    let state = cache(b);
    let sinks = weight(b, "sinks");
    let [q, k] = match one {
        true => first(b, [Q, K])?,
        false => [Q, K],
    };
    b.attention(
        q,
        k,
        k,
        S,
        Some(sinks),
        state,
        0.35,
        Mask::Causal,
        None,
        Some(3),
        Some(2.0),
        vec![0.5, 0.25, 0.125, 0.0625],
    )
}

/// Tokens as wide as the quantised experts take them, `[2, 3, 64]`.
fn wide_tokens(b: &mut Builder) -> Result<ValueId, BuildError> {
    let flat = b.reshape(Q, vec![2.into(), 3.into(), 32.into()])?;
    b.concatenate(flat, flat, 2)
}

/// `x` as rows of 64 for the quantised weights.
fn wide(b: &mut Builder, rows: usize) -> Result<ValueId, BuildError> {
    let flat = b.reshape(Q, vec![1.into(), 192.into()])?;
    let part = b.slice(flat, 1, 0, rows * 64, 1)?;
    b.reshape(part, vec![rows.into(), 64.into()])
}

fn attend(
    b: &mut Builder,
    window: Option<usize>,
    softcap: Option<f64>,
) -> Result<ValueId, BuildError> {
    let state = cache(b);
    b.attention(
        Q,
        K,
        K,
        S,
        None,
        state,
        0.35,
        Mask::Causal,
        window,
        None,
        softcap,
        vec![],
    )
}

/// Attention of one token per row.
fn attend_one(b: &mut Builder, mask: Mask) -> Result<ValueId, BuildError> {
    let state = cache(b);
    let q = b.slice(Q, 1, 0, 1, 1)?;
    let k = b.slice(K, 1, 0, 1, 1)?;
    b.attention(
        q,
        k,
        k,
        S,
        None,
        state,
        0.35,
        mask,
        None,
        None,
        None,
        vec![],
    )
}

const FUNCTIONS: &[(&str, Build)] = &[
    ("parameter_dense", |b| {
        let w = weight(b, "matrix");
        b.parameter(w)
    }),
    ("parameter_affine", |b| {
        let w = weight(b, "four");
        b.parameter(w)
    }),
    ("constant", |b| b.constant(-2.5, DType::F32, vec![3.into()])),
    ("constant_i32", |b| {
        b.constant(-7.0, DType::I32, vec![3.into()])
    }),
    ("table", |b| b.table(vec![0.5, -1.0, 3.25], DType::F32)),
    ("iota", |b| b.iota(1, DType::I32, vec![2.into(), 5.into()])),
    ("convert", |b| {
        let h = b.convert(X, DType::BF16)?;
        b.convert(h, DType::F32)
    }),
    ("convert_i32", |b| b.convert(I, DType::F32)),
    ("negate", |b| b.negate(X)),
    ("abs", |b| b.abs(X)),
    ("log1p", |b| {
        let s = b.sigmoid(X)?;
        b.log1p(s)
    }),
    ("log1p_small", |b| {
        let tiny = b.constant(1e-4, DType::F32, [2, 3, 8].map(Dim::from).to_vec())?;
        let x = b.multiply(X, tiny)?;
        let y = b.log1p(x)?;
        // As large as the rest, so that its relative error counts.
        b.divide(y, tiny)
    }),
    ("exp", |b| b.exp(X)),
    ("log", |b| b.log(Y)),
    ("rsqrt", |b| b.rsqrt(Y)),
    ("sqrt", |b| b.sqrt(Y)),
    ("sin", |b| b.sin(X)),
    ("cos", |b| b.cos(X)),
    ("tanh", |b| b.tanh(X)),
    ("sigmoid", |b| b.sigmoid(X)),
    ("erf", |b| b.erf(X)),
    ("add", |b| b.add(X, Y)),
    ("subtract", |b| b.subtract(X, Y)),
    ("multiply", |b| b.multiply(X, Y)),
    ("divide", |b| b.divide(X, Y)),
    ("divide_i32", |b| {
        let t = b.constant(-2.0, DType::I32, vec![2.into()])?;
        let u = b.constant(7.0, DType::I32, vec![2.into()])?;
        b.divide(u, t)
    }),
    ("maximum", |b| b.maximum(X, Y)),
    ("minimum", |b| b.minimum(X, Y)),
    ("power", |b| b.power(Y, X)),
    ("compare", |b| b.compare(X, Y, Comparison::Less)),
    ("and", |b| {
        let c = b.compare(X, Y, Comparison::GreaterEqual)?;
        b.and(c, P)
    }),
    ("or", |b| {
        let c = b.compare(X, Y, Comparison::NotEqual)?;
        b.or(c, P)
    }),
    ("not", |b| b.not(P)),
    ("select", |b| b.select(P, X, Y)),
    ("reshape", |b| b.reshape(X, vec![6.into(), 8.into()])),
    ("transpose", |b| b.transpose(X, vec![2, 0, 1])),
    ("broadcast", |b| {
        let s = b.slice(X, 1, 0, 1, 1)?;
        b.broadcast(
            s,
            vec![2.into(), 4.into(), 3.into(), 8.into()],
            vec![0, 2, 3],
        )
    }),
    ("slice", |b| b.slice(X, 2, 1, 8, 3)),
    ("concatenate", |b| b.concatenate(X, Y, 1)),
    ("gather", |b| b.gather(X, I)),
    ("take_row", |b| b.take_row(X, I)),
    ("take_along", |b| {
        let i = b.top_k(X, 3)?;
        b.take_along(X, i)
    }),
    ("top_k", |b| b.top_k(X, 5)),
    ("top_k_equal", |b| {
        let c = b.constant(1.0, DType::F32, vec![2.into(), 70.into()])?;
        b.top_k(c, 4)
    }),
    ("causal_convolution", |b| {
        let (taps, bias) = (weight(b, "taps"), weight(b, "vector"));
        let state = memory(b, [1, 3, 8]);
        b.causal_convolution(X, N, taps, Some(bias), state)
    }),
    ("causal_convolution_one", |b| {
        let taps = weight(b, "taps");
        let state = memory(b, [1, 3, 8]);
        let [x] = first(b, [X])?;
        let length = one_length(b)?;
        b.causal_convolution(x, length, taps, None, state)
    }),
    ("recurrence", |b| recur(b, Tokens::Three, false, false)),
    ("recurrence_one", |b| recur(b, Tokens::One, false, false)),
    ("recurrence_whole", |b| recur(b, Tokens::Three, true, false)),
    ("recurrence_twelve", |b| {
        recur(b, Tokens::Twelve, false, false)
    }),
    ("delta_recurrence", |b| recur(b, Tokens::Three, false, true)),
    ("delta_recurrence_one", |b| {
        recur(b, Tokens::One, true, true)
    }),
    ("delta_recurrence_twelve", |b| {
        recur(b, Tokens::Twelve, true, true)
    }),
    ("delta_recurrence_wide", |b| recur_wide(b, 3)),
    ("delta_recurrence_wide_one", |b| recur_wide(b, 1)),
    ("expert_linear", |b| {
        let (w, bias) = (weight(b, "experts"), weight(b, "expert_bias"));
        b.expert_linear(X, E, w, Some(bias))
    }),
    ("expert_linear_own", |b| {
        let w = weight(b, "experts");
        let x = b.slice(Q, 2, 1, 3, 1)?;
        b.expert_linear(x, E, w, None)
    }),
    ("expert_linear_four", |b| {
        let (w, x) = (weight(b, "experts_four"), wide_tokens(b)?);
        b.expert_linear(x, E, w, None)
    }),
    ("expert_linear_four_twelve", |b| {
        let (w, x) = (weight(b, "experts_four"), wide_tokens(b)?);
        let [x, e] = long(b, [x, E])?;
        b.expert_linear(x, e, w, None)
    }),
    ("expert_linear_four_one", |b| {
        let (w, x) = (weight(b, "experts_four"), wide_tokens(b)?);
        let [x, e] = first(b, [x, E])?;
        b.expert_linear(x, e, w, None)
    }),
    ("expert_linear_eight_one", |b| {
        let (w, x) = (weight(b, "experts_eight"), wide_tokens(b)?);
        let [x, e] = first(b, [x, E])?;
        b.expert_linear(x, e, w, None)
    }),
    ("dot", |b| b.dot(X, Y, vec![0], vec![0], vec![2], vec![2])),
    ("dot_two", |b| {
        b.dot(X, Y, vec![], vec![], vec![0, 2], vec![0, 2])
    }),
    ("reduce_sum", |b| b.reduce(X, Reduction::Sum, 2)),
    ("reduce_max", |b| b.reduce(X, Reduction::Max, 1)),
    ("reduce_min", |b| b.reduce(I, Reduction::Min, 0)),
    ("argmax", |b| b.argmax(X)),
    ("argmax_equal", |b| {
        let c = b.constant(1.0, DType::F32, vec![2.into(), 70.into()])?;
        b.argmax(c)
    }),
    ("cache_append", |b| {
        let state = cache(b);
        b.cache_append(K, S, state, StatePart::Value)
    }),
    ("embedding", |b| {
        let w = weight(b, "half");
        b.embedding(I, w)
    }),
    ("embedding_four", |b| {
        let w = weight(b, "four");
        b.embedding(I, w)
    }),
    ("embedding_eight", |b| {
        let w = weight(b, "eight");
        b.embedding(I, w)
    }),
    ("linear", |b| {
        let w = weight(b, "matrix");
        b.linear(X, w, None)
    }),
    ("linear_half", |b| {
        let w = weight(b, "half");
        b.linear(X, w, None)
    }),
    ("linear_half_one", |b| {
        let w = weight(b, "half");
        let x = b.slice(X, 0, 0, 1, 1)?;
        let x = b.slice(x, 1, 0, 1, 1)?;
        b.linear(x, w, None)
    }),
    ("linear_four_one", |b| {
        let w = weight(b, "four");
        let x = wide(b, 1)?;
        b.linear(x, w, None)
    }),
    ("linear_four", |b| {
        let w = weight(b, "four");
        let x = wide(b, 3)?;
        b.linear(x, w, None)
    }),
    ("linear_eight_one", |b| {
        let w = weight(b, "eight");
        let x = wide(b, 1)?;
        b.linear(x, w, None)
    }),
    ("linear_eight", |b| {
        let w = weight(b, "eight");
        let x = wide(b, 3)?;
        b.linear(x, w, None)
    }),
    ("linear_bias", |b| {
        let w = weight(b, "matrix");
        let bias = weight(b, "bias");
        b.linear(X, w, Some(bias))
    }),
    ("rms_norm", |b| {
        let w = weight(b, "vector");
        b.rms_norm(X, Some(w), 1e-5, 0.0)
    }),
    ("rms_norm_offset", |b| {
        let w = weight(b, "vector");
        b.rms_norm(X, Some(w), 1e-5, 1.0)
    }),
    ("layer_norm", |b| {
        let w = weight(b, "vector");
        b.layer_norm(X, Some(w), Some(w), 1e-5, 0.0)
    }),
    ("rope_yarn", |b| {
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            fast: 32.0,
            slow: 1.0,
            original: 64.0,
            whole: true,
        };
        b.rope(Q, S, 8, 10000.0, Pairing::Half, scaling, 1.1)
    }),
    ("rope_factors", |b| {
        let scaling = RopeScaling::Factors(vec![1.0, 2.0, 0.5, f64::INFINITY]);
        b.rope(Q, S, 8, 10000.0, Pairing::Half, scaling, 1.0)
    }),
    ("rope_half", |b| {
        b.rope(Q, S, 8, 10000.0, Pairing::Half, RopeScaling::None, 1.0)
    }),
    ("rope_interleaved", |b| {
        b.rope(
            Q,
            S,
            4,
            10000.0,
            Pairing::Interleaved,
            RopeScaling::Linear { factor: 2.0 },
            1.0,
        )
    }),
    ("attention", |b| attend(b, None, None)),
    ("attention_window", |b| attend(b, Some(2), Some(3.0))),
    ("attention_one", |b| attend_one(b, Mask::Causal)),
    ("attention_full", |b| attend_one(b, Mask::Full)),
    ("attention_odd", |b| attend_oddly(b, false)),
    ("attention_odd_one", |b| attend_oddly(b, true)),
    ("mutual_attention", |b| {
        b.mutual_attention(Q, K, K, N, 0.35, None)
    }),
    ("mutual_attention_window", |b| {
        b.mutual_attention(Q, K, K, N, 0.35, Some(1))
    }),
    ("silu", |b| b.activate(X, Activation::Silu)),
    ("gelu", |b| b.activate(X, Activation::Gelu)),
    ("gelu_tanh", |b| b.activate(X, Activation::GeluTanh)),
    ("relu", |b| b.activate(X, Activation::Relu)),
    ("relu2", |b| b.activate(X, Activation::Relu2)),
    ("quick_gelu", |b| b.activate(X, Activation::QuickGelu)),
    ("tanh_gate", |b| b.activate(X, Activation::Tanh)),
    ("sigmoid_gate", |b| b.activate(X, Activation::Sigmoid)),
    ("softplus", |b| b.activate(X, Activation::Softplus)),
    ("gated", |b| b.gated(X, Y, Activation::Silu)),
    ("softmax", |b| b.softmax(X)),
];

fn spec(name: &str, build: Build) -> FunctionSpec {
    let mut builder = Builder::new(name);
    for (name, tensor) in inputs() {
        builder.input(name, ty(tensor.dtype, &tensor.shape));
    }
    let value = build(&mut builder).unwrap();
    builder.output("out", value);
    FunctionSpec {
        name: name.into(),
        graph: builder.finish(),
        bindings: Bindings::new()
            .with(Symbol::B, 2)
            .with(Symbol::T, 3)
            .with(Symbol::S, 12),
    }
}

/// Calls the function twice, the second time on what the first left in its states.
fn check(module: &Module, spec: &FunctionSpec) {
    let name = &spec.name;
    let source: Arc<dyn WeightSource> = Arc::new(Made);
    let mut states = States::<f32>::new(&spec.graph);
    let mut arguments: Vec<_> = inputs().into_iter().map(|(_, tensor)| tensor).collect();
    let given = arguments.len();
    for state in &spec.graph.states {
        for &part in state.parts() {
            let sizes = state.buffer(part).sizes(&spec.bindings).unwrap();
            let zeros = vec![0.0; sizes.iter().product()];
            arguments.push(HostTensor::f32(sizes, &zeros));
        }
    }
    let calls = if spec.graph.states.is_empty() { 1 } else { 2 };
    for call in 0..calls {
        let expect = Interpreter::<f32>::new(&spec.graph, source.clone())
            .unwrap()
            .run(&spec.bindings, &inputs(), &mut states)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut results = module.call(name, &arguments).unwrap();
        let expect = expect[0].1.to_host();
        assert_eq!(results[0].shape, expect.shape, "{name}");
        let pairs = results[0].to_f64().into_iter().zip(expect.to_f64());
        for (index, (actual, expect)) in pairs.enumerate() {
            let close = (actual - expect).abs() <= 1e-5 * expect.abs().max(1.0);
            assert!(
                close,
                "{name}, call {call}[{index}]: {actual}, the interpreter has {expect}"
            );
        }
        arguments.truncate(given);
        arguments.extend(results.drain(1..));
    }
}

#[test]
fn ops_agree_with_the_interpreter() {
    let functions: Vec<_> = FUNCTIONS
        .iter()
        .map(|(name, build)| spec(name, *build))
        .collect();
    let covered: BTreeSet<_> = functions
        .iter()
        .flat_map(|function| &function.graph.nodes)
        .map(|node| node.op.info().name)
        .collect();
    for info in Op::TABLE {
        assert!(covered.contains(info.name), "no function for {}", info.name);
    }
    let compiled = compile_graphs(&functions, &Target::host()).unwrap();
    assert!(compiled.dispatches > 0);
    let source: Arc<dyn WeightSource> = Arc::new(Made);
    let mut names = BTreeSet::new();
    let declared: Vec<_> = functions
        .iter()
        .flat_map(|function| &function.graph.weights)
        .filter(|weight| names.insert(&weight.name))
        .collect();
    let parameters = Parameters::from_source(&source, declared).unwrap();
    let module = Module::load(&Device::host().unwrap(), &compiled.vmfb, &parameters).unwrap();
    for function in &functions {
        check(&module, function);
    }
}
