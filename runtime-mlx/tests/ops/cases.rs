//! The cases: one or several per op.

use crate::setting::{B, S, Setting, T, n};
use mlxcel_ir::{
    Activation, BuildError, Comparison, DType, Mask, Pairing, Reduction, RopeScaling, StatePart,
    ValueId, WeightFormat,
};

type Build = fn(&mut Setting) -> Result<ValueId, BuildError>;

macro_rules! unary {
    ($low:literal .. $high:literal, $op:ident) => {
        |s| {
            let x = s.input(DType::F32, &[B, n(5), n(129)], $low, $high);
            s.builder.$op(x)
        }
    };
}

macro_rules! binary {
    ($dtype:ident, $low:literal .. $high:literal, $op:ident $(, $attribute:expr)*) => {
        |s| {
            let shape = [n(9), T, n(37)];
            let x = s.input(DType::$dtype, &shape, $low, $high);
            let y = s.input(DType::$dtype, &shape, $low, $high);
            s.builder.$op(x, y $(, $attribute)*)
        }
    };
}

macro_rules! linear {
    ($format:expr, $width:literal, $x:ident) => {
        |s| {
            let x = s.input(DType::$x, &[B, T, n($width)], -2.0, 2.0);
            let weight = s.weight(&[33, $width], $format);
            let bias = s.dense(&[33]);
            s.builder.linear(x, weight, Some(bias))
        }
    };
}

macro_rules! embedding {
    ($format:expr) => {
        |s| {
            let tokens = s.i32(&[B, T], &[0, 16, 3, 3, 7, 1]);
            let table = s.weight(&[17, 96], $format);
            s.builder.embedding(tokens, table)
        }
    };
}

macro_rules! rope {
    ($starts:expr, $width:literal, $dims:literal, $pairing:ident, $scaling:expr) => {
        |s| {
            let x = s.f32(&[B, T, n(2), n($width)]);
            let start = s.i32(&[B], &$starts);
            s.builder
                .rope(x, start, $dims, 10_000.0, Pairing::$pairing, $scaling, 1.0)
        }
    };
}

macro_rules! attention {
    ($starts:expr, $mask:ident, $window:expr, $softcap:expr) => {
        |s| {
            let q = s.f32(&[B, T, n(6), n(16)]);
            let k = s.f32(&[B, T, n(2), n(16)]);
            let v = s.f32(&[B, T, n(2), n(16)]);
            let start = s.i32(&[B], &$starts);
            let state = s.state(2, 16);
            s.builder.attention(
                q,
                k,
                v,
                start,
                None,
                state,
                0.25,
                Mask::$mask,
                $window,
                None,
                $softcap,
                vec![],
            )
        }
    };
}

macro_rules! recurrence {
    ($groups:literal of $heads:literal, $keys:literal, $width:literal, $decay:literal, $lengths:expr) => {
        |s| {
            let query = s.f32(&[B, T, n($groups), n($keys)]);
            let key = s.f32(&[B, T, n($heads), n($keys)]);
            let value = s.f32(&[B, T, n($heads), n($width)]);
            let decay = s.input(DType::F32, &[B, T, n($heads), n($decay)], 0.1, 1.0);
            let length = s.i32(&[B], &$lengths);
            let memory = s.memory($heads, $keys, $width);
            s.builder
                .recurrence(query, key, value, decay, length, memory)
        }
    };
}

macro_rules! delta_recurrence {
    ($groups:literal of $heads:literal, $keys:literal, $width:literal, $decay:literal, $lengths:expr) => {
        |s| {
            let query = s.f32(&[B, T, n($groups), n($keys)]);
            let key = s.f32(&[B, T, n($groups), n($keys)]);
            let value = s.f32(&[B, T, n($heads), n($width)]);
            let decay = s.input(DType::F32, &[B, T, n($heads), n($decay)], 0.1, 1.0);
            let erase = s.f32(&[B, T, n($groups), n($keys)]);
            let write = s.f32(&[B, T, n($heads), n($keys)]);
            let length = s.i32(&[B], &$lengths);
            let memory = s.memory($heads, $keys, $width);
            s.builder
                .delta_recurrence(query, key, value, decay, erase, write, length, memory)
        }
    };
}

macro_rules! convolution {
    ($channels:literal, $steps:literal, $bias:literal, $lengths:expr) => {
        |s| {
            let x = s.f32(&[B, T, n($channels)]);
            let length = s.i32(&[B], &$lengths);
            let weight = s.dense(&[$channels, $steps]);
            let bias = $bias.then(|| s.dense(&[$channels]));
            let memory = s.memory(1, $steps - 1, $channels);
            s.builder
                .causal_convolution(x, length, weight, bias, memory)
        }
    };
}

macro_rules! expert_linear {
    ($format:expr, $width:literal, $rows:expr, [$($dim:expr),*]) => {
        |s| {
            let x = s.f32(&[B, T $(, $dim)*, n($width)]);
            let experts = s.i32(&[B, T, n(2)], &[0, 4, 3, 3, 2, 1, 1, 4, 0, 2, 4, 0]);
            let weight = s.weight(&[5, $rows, $width], $format);
            let bias = s.dense(&[5, $rows]);
            s.builder.expert_linear(x, experts, weight, Some(bias))
        }
    };
}

macro_rules! attention_with {
    ($starts:expr, $window:expr, $chunk:expr, $softcap:expr, $slopes:expr, $sinks:literal) => {
        |s| {
            let q = s.f32(&[B, T, n(6), n(16)]);
            let k = s.f32(&[B, T, n(2), n(16)]);
            let v = s.f32(&[B, T, n(2), n(16)]);
            let start = s.i32(&[B], &$starts);
            let state = s.state(2, 16);
            let sinks = $sinks.then(|| s.dense(&[6]));
            s.builder.attention(
                q,
                k,
                v,
                start,
                sinks,
                state,
                0.25,
                Mask::Causal,
                $window,
                $chunk,
                $softcap,
                $slopes,
            )
        }
    };
}

macro_rules! mutual_attention {
    ($heads:literal of $kv_heads:literal, $window:expr, $lengths:expr) => {
        |s| {
            let q = s.f32(&[B, T, n($heads), n(16)]);
            let k = s.f32(&[B, T, n($kv_heads), n(16)]);
            let v = s.f32(&[B, T, n($kv_heads), n(16)]);
            let length = s.i32(&[B], &$lengths);
            s.builder.mutual_attention(q, k, v, length, 0.25, $window)
        }
    };
}

const SLOPES: [f64; 6] = [0.5, 0.25, 0.125, 0.0625, 0.03, 0.0];

const fn affine(bits: u8, group: usize, scale: DType) -> WeightFormat {
    WeightFormat::Affine { bits, group, scale }
}

pub(crate) const CASES: &[(&str, Build)] = &[
    ("parameter", |s| {
        let weight = s.dense(&[3, 5]);
        s.builder.parameter(weight)
    }),
    ("parameter bf16", |s| {
        let weight = s.weight(&[3, 5], WeightFormat::Dense(DType::BF16));
        s.builder.parameter(weight)
    }),
    ("parameter affine", |s| {
        let weight = s.weight(&[3, 64], affine(4, 32, DType::F16));
        s.builder.parameter(weight)
    }),
    ("constant", |s| {
        s.builder.constant(0.1, DType::F32, vec![B, n(2)])
    }),
    ("constant i32", |s| {
        s.builder.constant(16_777_217.0, DType::I32, vec![B, n(2)])
    }),
    ("constant bf16", |s| {
        s.builder.constant(0.1, DType::BF16, vec![])
    }),
    ("table", |s| {
        s.builder.table(vec![0.1, -2.0, 3e9], DType::F32)
    }),
    ("iota", |s| s.builder.iota(1, DType::I32, vec![B, T, n(2)])),
    ("iota f32", |s| s.builder.iota(0, DType::F32, vec![T])),
    ("convert to f16", |s| {
        let x = s.input(DType::F32, &[n(300)], -70000.0, 70000.0);
        s.builder.convert(x, DType::F16)
    }),
    ("convert to bf16", |s| {
        let x = s.f32(&[n(300)]);
        s.builder.convert(x, DType::BF16)
    }),
    ("convert to i32", |s| {
        let x = s.input(DType::F32, &[n(300)], -50.0, 50.0);
        s.builder.convert(x, DType::I32)
    }),
    ("convert from i32", |s| {
        let x = s.i32(&[n(2)], &[16_777_217, -5]);
        s.builder.convert(x, DType::F32)
    }),
    ("negate", unary!(-9.0..9.0, negate)),
    ("abs", unary!(-9.0..9.0, abs)),
    ("exp", unary!(-20.0..20.0, exp)),
    ("log", unary!(1e-3..90.0, log)),
    ("rsqrt", unary!(1e-3..90.0, rsqrt)),
    ("sqrt", unary!(0.0..90.0, sqrt)),
    ("sin", unary!(-30.0..30.0, sin)),
    ("cos", unary!(-30.0..30.0, cos)),
    ("sin far", unary!(-30000.0..30000.0, sin)),
    ("cos far", unary!(-30000.0..30000.0, cos)),
    ("tanh", unary!(-9.0..9.0, tanh)),
    ("tanh small", unary!(-1e-3..1e-3, tanh)),
    ("sigmoid", unary!(-20.0..20.0, sigmoid)),
    ("erf", unary!(-4.0..4.0, erf)),
    ("exp bf16", |s| {
        let x = s.input(DType::BF16, &[n(99)], -3.0, 3.0);
        s.builder.exp(x)
    }),
    ("add", binary!(F32, -3.0..3.0, add)),
    ("add i32", binary!(I32, -9.0..9.0, add)),
    ("add f16", binary!(F16, -3.0..3.0, add)),
    ("subtract", binary!(F32, -3.0..3.0, subtract)),
    ("multiply", binary!(F32, -3.0..3.0, multiply)),
    ("divide", binary!(F32, 0.1..3.0, divide)),
    ("divide i32", |s| {
        let x = s.i32(&[n(6)], &[7, -7, 7, -7, 6, 0]);
        let y = s.i32(&[n(6)], &[2, 2, -2, -2, -3, 5]);
        s.builder.divide(x, y)
    }),
    ("maximum", binary!(F32, -3.0..3.0, maximum)),
    ("minimum", binary!(F32, -3.0..3.0, minimum)),
    ("maximum nan", |s| {
        let x = s.floats(&[f32::NAN, 1.0, 2.0, f32::INFINITY]);
        let y = s.floats(&[1.0, f32::NAN, 1.0, 1.0]);
        s.builder.maximum(x, y)
    }),
    ("minimum nan", |s| {
        let x = s.floats(&[f32::NAN, 1.0, 2.0, f32::NEG_INFINITY]);
        let y = s.floats(&[1.0, f32::NAN, 1.0, 1.0]);
        s.builder.minimum(x, y)
    }),
    ("power", binary!(F32, 0.1..3.0, power)),
    ("eq", binary!(I32, -2.0..2.0, compare, Comparison::Equal)),
    ("ne", binary!(I32, -2.0..2.0, compare, Comparison::NotEqual)),
    ("lt", binary!(F32, -2.0..2.0, compare, Comparison::Less)),
    (
        "le",
        binary!(I32, -2.0..2.0, compare, Comparison::LessEqual),
    ),
    ("gt", binary!(F32, -2.0..2.0, compare, Comparison::Greater)),
    (
        "ge",
        binary!(I32, -2.0..2.0, compare, Comparison::GreaterEqual),
    ),
    ("and", binary!(Bool, -1.0..1.0, and)),
    ("or", binary!(Bool, -1.0..1.0, or)),
    ("not", |s| {
        let x = s.input(DType::Bool, &[n(9)], -1.0, 1.0);
        s.builder.not(x)
    }),
    ("select", |s| {
        let condition = s.input(DType::Bool, &[B, n(9)], -1.0, 1.0);
        let (x, y) = (s.f32(&[B, n(9)]), s.f32(&[B, n(9)]));
        s.builder.select(condition, x, y)
    }),
    ("reshape", |s| {
        let x = s.f32(&[B, T, n(12)]);
        s.builder.reshape(x, vec![B, T, n(3), n(4)])
    }),
    ("transpose", |s| {
        let x = s.f32(&[B, T, n(5)]);
        s.builder.transpose(x, vec![2, 0, 1])
    }),
    ("broadcast", |s| {
        let x = s.f32(&[B, n(1)]);
        s.builder.broadcast(x, vec![T, B, n(4)], vec![1, 2])
    }),
    ("slice", |s| {
        let x = s.f32(&[B, n(10)]);
        s.builder.slice(x, 1, 1, 8, 3)
    }),
    ("concatenate", |s| {
        let (x, y) = (s.f32(&[B, n(3)]), s.f32(&[B, n(4)]));
        s.builder.concatenate(x, y, 1)
    }),
    ("gather", |s| {
        let table = s.f32(&[n(7), n(5)]);
        let indices = s.i32(&[B, T], &[0, 6, 3, 3, 1, 0]);
        s.builder.gather(table, indices)
    }),
    ("take_row", |s| {
        let x = s.f32(&[B, T, n(5)]);
        let index = s.i32(&[B], &[2, 0]);
        s.builder.take_row(x, index)
    }),
    ("take_row ints", |s| {
        let x = s.input(DType::I32, &[B, T], -9.0, 9.0);
        let index = s.i32(&[B], &[1, 2]);
        s.builder.take_row(x, index)
    }),
    ("dot", |s| {
        let (x, y) = (s.f32(&[B, T, n(300)]), s.f32(&[n(31), n(300)]));
        s.builder.dot(x, y, vec![], vec![], vec![2], vec![1])
    }),
    ("dot batched", |s| {
        let x = s.f32(&[B, n(5), T, n(4), n(7)]);
        let y = s.f32(&[T, n(7), n(6), B, n(4)]);
        s.builder
            .dot(x, y, vec![0, 2], vec![3, 0], vec![4, 3], vec![1, 4])
    }),
    ("dot bf16", |s| {
        let x = s.input(DType::BF16, &[n(3), n(300)], -1.0, 1.0);
        let y = s.input(DType::BF16, &[n(5), n(300)], -1.0, 1.0);
        s.builder.dot(x, y, vec![], vec![], vec![1], vec![1])
    }),
    ("sum", |s| {
        let x = s.f32(&[B, n(1000), n(3)]);
        s.builder.reduce(x, Reduction::Sum, 1)
    }),
    ("max", |s| {
        let x = s.f32(&[B, n(1000)]);
        s.builder.reduce(x, Reduction::Max, 1)
    }),
    ("min", |s| {
        let x = s.f32(&[n(9), n(100)]);
        s.builder.reduce(x, Reduction::Min, 0)
    }),
    ("argmax", |s| {
        let x = s.f32(&[B, T, n(1000)]);
        s.builder.argmax(x)
    }),
    ("argmax of equals", |s| {
        let x = s.floats(&[1.0, 5.0, 2.0, 5.0, 5.0, -1.0]);
        s.builder.argmax(x)
    }),
    ("log1p", unary!(-0.9..9.0, log1p)),
    ("log1p small", unary!(-1e-6..1e-6, log1p)),
    ("top_k", |s| {
        let x = s.f32(&[B, T, n(60)]);
        s.builder.top_k(x, 8)
    }),
    ("top_k of all", |s| {
        let x = s.f32(&[n(5)]);
        s.builder.top_k(x, 5)
    }),
    ("top_k of equals", |s| {
        let x = s.floats(&[1.0, 5.0, 2.0, 5.0, -0.0, 0.0, 5.0, 1.0, f32::NEG_INFINITY]);
        s.builder.top_k(x, 8)
    }),
    ("top_k of little", |s| {
        let x = s.floats(&[f32::NEG_INFINITY, -3e38, f32::NEG_INFINITY, -1.0]);
        s.builder.top_k(x, 4)
    }),
    ("take_along", |s| {
        let x = s.f32(&[B, T, n(60)]);
        let indices = s.builder.top_k(x, 7)?;
        s.builder.take_along(x, indices)
    }),
    ("take_along of made", |s| {
        let x = s.f32(&[B, T, n(60)]);
        let shares = s.builder.softmax(x)?;
        let indices = s.builder.top_k(shares, 4)?;
        s.builder.take_along(shares, indices)
    }),
    ("take_along ints", |s| {
        let x = s.input(DType::I32, &[B, n(4)], -9.0, 9.0);
        let indices = s.i32(&[B, n(6)], &[0, 3, 1, 1, 2, 0, 3, 3, 2, 1, 0, 0]);
        s.builder.take_along(x, indices)
    }),
    ("causal_convolution", convolution!(50, 4, true, [3, 3])),
    (
        "causal_convolution of few",
        convolution!(3, 2, false, [0, 2]),
    ),
    ("causal_convolution long", convolution!(16, 7, true, [1, 3])),
    ("causal_convolution bf16", |s| {
        let x = s.input(DType::BF16, &[B, T, n(20)], -2.0, 2.0);
        let length = s.i32(&[B], &[3, 2]);
        let weight = s.dense(&[20, 3]);
        let memory = s.builder.state(mlxcel_ir::StateDecl {
            name: "memory".into(),
            kind: mlxcel_ir::StateKind::Memory,
            heads: 1,
            key_dim: 2,
            value_dim: 20,
            dtype: DType::BF16,
        });
        s.builder
            .causal_convolution(x, length, weight, None, memory)
    }),
    ("recurrence", recurrence!(2 of 4, 16, 80, 1, [3, 3])),
    (
        "recurrence of keys",
        recurrence!(1 of 2, 24, 33, 24, [3, 1]),
    ),
    (
        "recurrence of channels",
        recurrence!(1 of 40, 16, 1, 16, [2, 3]),
    ),
    ("recurrence of few", recurrence!(1 of 3, 5, 1, 1, [0, 3])),
    (
        "delta_recurrence",
        delta_recurrence!(2 of 4, 16, 80, 1, [3, 3]),
    ),
    (
        "delta_recurrence of keys",
        delta_recurrence!(1 of 2, 24, 33, 24, [2, 0]),
    ),
    (
        "delta_recurrence of channels",
        delta_recurrence!(3 of 3, 16, 1, 1, [1, 3]),
    ),
    (
        "expert_linear f32",
        expert_linear!(WeightFormat::Dense(DType::F32), 96, 24, []),
    ),
    (
        "expert_linear bf16 of odd rows",
        expert_linear!(WeightFormat::Dense(DType::BF16), 80, 13, []),
    ),
    (
        "expert_linear q4",
        expert_linear!(affine(4, 32, DType::F16), 96, 24, []),
    ),
    (
        "expert_linear q4 of experts",
        expert_linear!(affine(4, 64, DType::BF16), 128, 24, [n(2)]),
    ),
    (
        "expert_linear q8 of experts",
        expert_linear!(affine(8, 64, DType::F32), 64, 40, [n(2)]),
    ),
    ("expert_linear without bias", |s| {
        let x = s.f32(&[B, T, n(64)]);
        let experts = s.i32(&[B, T, n(1)], &[2, 2, 2, 2, 2, 2]);
        let weight = s.weight(&[3, 17, 64], affine(6, 16, DType::F32));
        s.builder.expert_linear(x, experts, weight, None)
    }),
    ("cache_append", |s| {
        let rows = s.f32(&[B, T, n(2), n(4)]);
        let start = s.i32(&[B], &[0, 5]);
        let state = s.state(2, 4);
        s.builder.cache_append(rows, start, state, StatePart::Key)
    }),
    ("cache_append of values", |s| {
        let rows = s.f32(&[B, T, n(2), n(4)]);
        let start = s.i32(&[B], &[2, 4]);
        let state = s.state(2, 4);
        s.builder.cache_append(rows, start, state, StatePart::Value)
    }),
    ("embedding", embedding!(WeightFormat::Dense(DType::F32))),
    (
        "embedding bf16",
        embedding!(WeightFormat::Dense(DType::BF16)),
    ),
    ("embedding q4", embedding!(affine(4, 32, DType::F16))),
    ("embedding q8 g16", embedding!(affine(8, 16, DType::F32))),
    (
        "linear f32",
        linear!(WeightFormat::Dense(DType::F32), 320, F32),
    ),
    (
        "linear f16",
        linear!(WeightFormat::Dense(DType::F16), 320, F32),
    ),
    (
        "linear bf16",
        linear!(WeightFormat::Dense(DType::BF16), 320, F32),
    ),
    (
        "linear q4 g32",
        linear!(affine(4, 32, DType::F16), 320, F32),
    ),
    (
        "linear q4 g64",
        linear!(affine(4, 64, DType::BF16), 320, F32),
    ),
    (
        "linear q8 g64",
        linear!(affine(8, 64, DType::F32), 320, F32),
    ),
    (
        "linear q8 g32",
        linear!(affine(8, 32, DType::F16), 320, F32),
    ),
    (
        "linear q6 g16",
        linear!(affine(6, 16, DType::F32), 320, F32),
    ),
    (
        "linear q2 g16",
        linear!(affine(2, 16, DType::BF16), 320, F32),
    ),
    ("embedding q2 g16", embedding!(affine(2, 16, DType::BF16))),
    ("linear q3", linear!(affine(3, 64, DType::F16), 320, F32)),
    ("linear q5", linear!(affine(5, 32, DType::F32), 320, F32)),
    ("embedding q5", embedding!(affine(5, 32, DType::F32))),
    ("linear mxfp4", linear!(WeightFormat::MxFp4, 320, F32)),
    ("embedding mxfp4", embedding!(WeightFormat::MxFp4)),
    ("linear mxfp8", linear!(WeightFormat::MxFp8, 320, F32)),
    ("embedding mxfp8", embedding!(WeightFormat::MxFp8)),
    (
        "linear float4",
        linear!(
            WeightFormat::Float {
                bits: 4,
                group: 16,
                scale: DType::F32
            },
            320,
            F32
        ),
    ),
    (
        "embedding float8",
        embedding!(WeightFormat::Float {
            bits: 8,
            group: 32,
            scale: DType::BF16
        }),
    ),
    ("linear nvfp4", linear!(WeightFormat::NvFp4, 320, F32)),
    ("embedding nvfp4", embedding!(WeightFormat::NvFp4)),
    (
        "linear fp8block",
        linear!(WeightFormat::Fp8Block { scale: DType::BF16 }, 320, F32),
    ),
    (
        "embedding fp8block",
        embedding!(WeightFormat::Fp8Block { scale: DType::BF16 }),
    ),
    ("embedding kquant6", |s| {
        let tokens = s.i32(&[B, T], &[0, 16, 3, 3, 7, 1]);
        let table = s.weight(&[17, 256], WeightFormat::KQuant { bits: 6 });
        s.builder.embedding(tokens, table)
    }),
    (
        "linear kquant2",
        linear!(WeightFormat::KQuant { bits: 2 }, 512, F32),
    ),
    (
        "linear kquant3",
        linear!(WeightFormat::KQuant { bits: 3 }, 512, F32),
    ),
    (
        "linear kquant4",
        linear!(WeightFormat::KQuant { bits: 4 }, 512, F32),
    ),
    (
        "linear kquant5",
        linear!(WeightFormat::KQuant { bits: 5 }, 512, F32),
    ),
    (
        "linear kquant6",
        linear!(WeightFormat::KQuant { bits: 6 }, 512, F32),
    ),
    (
        "linear of bf16",
        linear!(affine(4, 64, DType::BF16), 320, BF16),
    ),
    ("linear without bias", |s| {
        let x = s.f32(&[B, n(64)]);
        let weight = s.weight(&[40, 64], affine(4, 32, DType::F32));
        s.builder.linear(x, weight, None)
    }),
    ("linear group", |s| {
        let x = s.f32(&[B, T, n(64)]);
        let format = affine(4, 32, DType::F16);
        let (a, b) = (s.weight(&[24, 64], format), s.weight(&[24, 64], format));
        let c = s.weight(&[40, 64], affine(8, 32, DType::F16));
        let a = s.builder.linear(x, a, None)?;
        let b = s.builder.linear(x, b, None)?;
        let c = s.builder.linear(x, c, None)?;
        s.builder.output("c", c);
        s.builder.multiply(a, b)
    }),
    ("residual", |s| {
        let (x, residual) = (s.f32(&[B, T, n(64)]), s.f32(&[B, T, n(24)]));
        let weight = s.weight(&[24, 64], affine(4, 32, DType::F16));
        let product = s.builder.linear(x, weight, None)?;
        s.builder.add(residual, product)
    }),
    ("residual of itself", |s| {
        let x = s.f32(&[B, T, n(64)]);
        let weight = s.weight(&[64, 64], affine(4, 32, DType::F16));
        let product = s.builder.linear(x, weight, None)?;
        s.builder.add(product, product)
    }),
    ("gated linear", |s| {
        let x = s.f32(&[B, T, n(64)]);
        let format = affine(4, 32, DType::F16);
        let (gate, up) = (s.weight(&[24, 64], format), s.weight(&[24, 64], format));
        let gate = s.builder.linear(x, gate, None)?;
        let up = s.builder.linear(x, up, None)?;
        s.builder.gated(gate, up, Activation::Silu)
    }),
    ("gated linear seen", |s| {
        let x = s.f32(&[B, T, n(64)]);
        let (gate, up) = (s.dense(&[24, 64]), s.dense(&[24, 64]));
        let gate = s.builder.linear(x, gate, None)?;
        let up = s.builder.linear(x, up, None)?;
        s.builder.output("up", up);
        s.builder.gated(gate, up, Activation::GeluTanh)
    }),
    ("rms_norm", |s| {
        let x = s.f32(&[B, T, n(100)]);
        let weight = s.weight(&[100], WeightFormat::Dense(DType::BF16));
        s.builder.rms_norm(x, Some(weight), 1e-5, 0.0)
    }),
    ("rms_norm of heads", |s| {
        let x = s.f32(&[B, T, n(4), n(16)]);
        let weight = s.dense(&[16]);
        s.builder.rms_norm(x, Some(weight), 1e-6, 0.0)
    }),
    ("rms_norm bf16", |s| {
        let x = s.input(DType::BF16, &[B, T, n(64)], -2.0, 2.0);
        let weight = s.dense(&[64]);
        s.builder.rms_norm(x, Some(weight), 1e-6, 0.0)
    }),
    ("rms_norm with offset", |s| {
        let x = s.f32(&[B, T, n(100)]);
        let weight = s.weight(&[100], WeightFormat::Dense(DType::BF16));
        s.builder.rms_norm(x, Some(weight), 1e-6, 1.0)
    }),
    ("rms_norm without weight", |s| {
        let x = s.f32(&[B, T, n(4), n(33)]);
        s.builder.rms_norm(x, None, 1e-6, 0.0)
    }),
    ("layer_norm", |s| {
        let x = s.input(DType::F32, &[B, T, n(100)], 4.0, 9.0);
        let (weight, bias) = (s.dense(&[100]), s.dense(&[100]));
        s.builder.layer_norm(x, Some(weight), Some(bias), 1e-5, 0.0)
    }),
    ("layer_norm with offset", |s| {
        let x = s.f32(&[B, T, n(37)]);
        let weight = s.dense(&[37]);
        s.builder.layer_norm(x, Some(weight), None, 1e-5, 1.0)
    }),
    ("layer_norm without weight", |s| {
        let x = s.f32(&[B, T, n(64)]);
        s.builder.layer_norm(x, None, None, 1e-5, 0.0)
    }),
    ("layer_norm bf16", |s| {
        let x = s.input(DType::BF16, &[B, T, n(64)], -2.0, 2.0);
        let (weight, bias) = (s.dense(&[64]), s.dense(&[64]));
        s.builder.layer_norm(x, Some(weight), Some(bias), 1e-5, 0.0)
    }),
    ("rope", rope!([0, 40], 16, 16, Half, RopeScaling::None)),
    (
        "rope interleaved",
        rope!([5, 2], 16, 16, Interleaved, RopeScaling::None),
    ),
    ("rope part", rope!([5, 2], 16, 8, Half, RopeScaling::None)),
    (
        "rope part interleaved",
        rope!([5, 2], 16, 8, Interleaved, RopeScaling::None),
    ),
    (
        "rope linear",
        rope!([7, 900], 16, 16, Half, RopeScaling::Linear { factor: 8.0 }),
    ),
    (
        "rope llama3",
        rope!(
            [7, 900],
            16,
            16,
            Half,
            RopeScaling::Llama3 {
                factor: 8.0,
                low: 1.0,
                high: 4.0,
                original: 256.0
            }
        ),
    ),
    ("rope with magnitude", |s| {
        let x = s.f32(&[B, T, n(2), n(16)]);
        let start = s.i32(&[B], &[5, 70]);
        let scaling = RopeScaling::Yarn {
            factor: 32.0,
            fast: 32.0,
            slow: 1.0,
            original: 64.0,
            whole: true,
        };
        s.builder
            .rope(x, start, 12, 10_000.0, Pairing::Half, scaling, 1.35)
    }),
    (
        "rope of factors",
        rope!(
            [7, 900],
            8,
            8,
            Interleaved,
            RopeScaling::Factors(vec![1.0, 2.5, f64::INFINITY, 30.0])
        ),
    ),
    (
        "attention with sinks",
        attention_with!([0, 7], None, None, None, vec![], true),
    ),
    (
        "attention with sinks and window",
        attention_with!([2, 8], Some(3), None, Some(3.0), vec![], true),
    ),
    (
        "attention in chunks",
        attention_with!([2, 7], None, Some(4), None, vec![], false),
    ),
    (
        "attention with slopes",
        attention_with!([0, 7], None, None, None, SLOPES.to_vec(), false),
    ),
    (
        "attention with all",
        attention_with!([3, 7], Some(5), Some(6), Some(2.0), SLOPES.to_vec(), true),
    ),
    ("mutual_attention", mutual_attention!(6 of 2, None, [3, 3])),
    (
        "mutual_attention of some",
        mutual_attention!(4 of 4, None, [1, 2]),
    ),
    (
        "mutual_attention in a window",
        mutual_attention!(4 of 2, Some(1), [3, 2]),
    ),
    ("attention", attention!([0, 0], Causal, None, None)),
    ("attention later", attention!([4, 8], Causal, None, None)),
    (
        "attention window",
        attention!([4, 8], Causal, Some(3), None),
    ),
    (
        "attention wide window",
        attention!([0, 1], Causal, Some(50), None),
    ),
    ("attention full", attention!([0, 3], Full, None, None)),
    (
        "attention full window",
        attention!([0, 7], Full, Some(4), None),
    ),
    (
        "attention softcap",
        attention!([0, 3], Causal, None, Some(2.0)),
    ),
    (
        "attention softcap window",
        attention!([2, 5], Causal, Some(2), Some(2.0)),
    ),
    ("silu", |s| {
        let x = s.f32(&[B, n(99)]);
        s.builder.activate(x, Activation::Silu)
    }),
    ("gelu", |s| {
        let x = s.f32(&[B, n(99)]);
        s.builder.activate(x, Activation::Gelu)
    }),
    ("gelu_tanh", |s| {
        let x = s.f32(&[B, n(99)]);
        s.builder.activate(x, Activation::GeluTanh)
    }),
    ("relu", |s| {
        let x = s.f32(&[B, n(99)]);
        s.builder.activate(x, Activation::Relu)
    }),
    ("relu2", |s| {
        let x = s.f32(&[B, n(99)]);
        s.builder.activate(x, Activation::Relu2)
    }),
    ("quick_gelu", |s| {
        let x = s.f32(&[B, n(99)]);
        s.builder.activate(x, Activation::QuickGelu)
    }),
    ("tanh as activation", |s| {
        let x = s.f32(&[B, n(99)]);
        s.builder.activate(x, Activation::Tanh)
    }),
    ("sigmoid as activation", |s| {
        let x = s.f32(&[B, n(99)]);
        s.builder.activate(x, Activation::Sigmoid)
    }),
    ("softplus", |s| {
        let x = s.input(DType::F32, &[B, n(99)], -30.0, 30.0);
        s.builder.activate(x, Activation::Softplus)
    }),
    ("gated", |s| {
        let (gate, up) = (s.f32(&[B, T, n(65)]), s.f32(&[B, T, n(65)]));
        s.builder.gated(gate, up, Activation::Silu)
    }),
    ("gated bf16", |s| {
        let gate = s.input(DType::BF16, &[n(65)], -2.0, 2.0);
        let up = s.input(DType::BF16, &[n(65)], -2.0, 2.0);
        s.builder.gated(gate, up, Activation::Silu)
    }),
    ("softmax", |s| {
        let x = s.f32(&[B, T, n(77)]);
        s.builder.softmax(x)
    }),
    ("whole cache", |s| {
        let rows = s.f32(&[B, T, n(2), n(4)]);
        let start = s.i32(&[B], &[8, 0]);
        let state = s.state(2, 4);
        let all = s.builder.cache_append(rows, start, state, StatePart::Key)?;
        s.builder.reshape(all, vec![B, S, n(8)])
    }),
];

/// Graphs that cannot be evaluated, and what the error must say.
pub(crate) const FAULTS: &[(&str, Build, &str)] = &[
    (
        "token out of range",
        |s| {
            let tokens = s.i32(&[B, T], &[0, 17, 3, 3, 7, 1]);
            let table = s.dense(&[17, 32]);
            let value = s.builder.embedding(tokens, table)?;
            s.builder.name(value, "embed");
            Ok(value)
        },
        "node `embed` (embedding)",
    ),
    (
        "token out of range",
        |s| {
            let tokens = s.i32(&[B, T], &[0, 17, 3, 3, 7, 1]);
            let table = s.dense(&[17, 32]);
            s.builder.embedding(tokens, table)
        },
        "index 17 is outside",
    ),
    (
        "negative index",
        |s| {
            let table = s.f32(&[n(7), n(5)]);
            let indices = s.i32(&[n(1)], &[-1]);
            s.builder.gather(table, indices)
        },
        "index -1 is outside 0..7",
    ),
    (
        "full cache",
        attention!([0, 9], Causal, None, None),
        "do not fit a cache of 11",
    ),
    (
        "negative start",
        attention!([0, -1], Causal, None, None),
        "start -1 is negative",
    ),
    (
        "missing weight",
        |s| {
            let x = s.f32(&[B, n(32)]);
            let weight = s.dense(&[8, 32]);
            s.weights = Default::default();
            s.builder.linear(x, weight, None)
        },
        "weight `w0`",
    ),
];
