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
        let bias = b.weight(WeightDecl {
            name: "bias".into(),
            shape: vec![16],
            format: WeightFormat::Dense(DType::F32),
        });
        b.linear(X, w, Some(bias))
    }),
    ("rms_norm", |b| {
        let w = weight(b, "vector");
        b.rms_norm(X, Some(w), 1e-5, 0.0)
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
    ("silu", |b| b.activate(X, Activation::Silu)),
    ("gelu", |b| b.activate(X, Activation::Gelu)),
    ("gelu_tanh", |b| b.activate(X, Activation::GeluTanh)),
    ("relu", |b| b.activate(X, Activation::Relu)),
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

fn check(module: &Module, spec: &FunctionSpec) {
    let name = &spec.name;
    let source: Arc<dyn WeightSource> = Arc::new(Made);
    let mut states = States::<f32>::new(&spec.graph);
    let expect = Interpreter::<f32>::new(&spec.graph, source)
        .unwrap()
        .run(&spec.bindings, &inputs(), &mut states)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut arguments: Vec<_> = inputs().into_iter().map(|(_, tensor)| tensor).collect();
    for state in &spec.graph.states {
        for part in [StatePart::Key, StatePart::Value] {
            let sizes = state.buffer(part).sizes(&spec.bindings).unwrap();
            let zeros = vec![0.0; sizes.iter().product()];
            arguments.push(HostTensor::f32(sizes, &zeros));
        }
    }
    let results = module.call(name, &arguments).unwrap();
    let expect = expect[0].1.to_host();
    assert_eq!(results[0].shape, expect.shape, "{name}");
    let pairs = results[0].to_f64().into_iter().zip(expect.to_f64());
    for (index, (actual, expect)) in pairs.enumerate() {
        let close = (actual - expect).abs() <= 1e-5 * expect.abs().max(1.0);
        assert!(
            close,
            "{name}[{index}]: {actual}, the interpreter has {expect}"
        );
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
