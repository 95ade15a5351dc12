//! Every chip of every target can be compiled for.

use mlxcel_ir::*;
use mlxcel_lower::{FunctionSpec, Target, compile_graphs};

/// One layer of a decoder with 4-bit weights, as small as tells something: an embedding, a linear
/// layers over a norm, rotation, attention over a cache and the choice of a token. Its heads are wide
/// enough for the kernels of GPUs.
fn layer(tokens: usize) -> Result<FunctionSpec, BuildError> {
    let mut b = Builder::new("layer");
    let dims = |dims: &[Dim]| TensorType::new(DType::I32, dims.iter().copied());
    let (rows, new) = (Dim::Symbol(Symbol::B), Dim::Symbol(Symbol::T));
    let input = b.input("tokens", dims(&[rows, new]));
    let start = b.input("start", dims(&[rows]));
    let length = b.input("length", dims(&[rows]));
    let affine = |name: &str, shape: [usize; 2]| WeightDecl {
        name: name.into(),
        shape: shape.to_vec(),
        format: WeightFormat::Affine {
            bits: 4,
            group: 32,
            scale: DType::BF16,
        },
    };
    let table = b.weight(affine("table", [128, 128]));
    let queries = b.weight(affine("queries", [128, 128]));
    let keys = b.weight(affine("keys", [64, 128]));
    let norm = b.weight(WeightDecl {
        name: "norm".into(),
        shape: vec![128],
        format: WeightFormat::Dense(DType::BF16),
    });
    let state = b.state(StateDecl {
        name: "cache.0".into(),
        heads: 1,
        kind: StateKind::Cache,
        key_dim: 64,
        value_dim: 64,
        dtype: DType::F32,
    });
    let x = b.embedding(input, table)?;
    let normal = b.rms_norm(x, Some(norm), 1e-5, 0.0)?;
    let q = b.linear(normal, queries, None)?;
    let q = b.reshape(q, vec![rows, new, 2.into(), 64.into()])?;
    let q = b.rope(q, start, 64, 1e4, Pairing::Half, RopeScaling::None, 1.0)?;
    let v = b.linear(normal, keys, None)?;
    let v = b.reshape(v, vec![rows, new, 1.into(), 64.into()])?;
    let k = b.rope(v, start, 64, 1e4, Pairing::Half, RopeScaling::None, 1.0)?;
    let mixed = b.attention(
        q,
        k,
        v,
        start,
        None,
        state,
        0.125,
        Mask::Causal,
        None,
        None,
        None,
        vec![],
    )?;
    let mixed = b.reshape(mixed, vec![rows, new, 128.into()])?;
    let x = b.add(x, mixed)?;
    let logits = b.linear(x, table, None)?;
    let one = b.constant(1.0, DType::I32, vec![rows])?;
    let last = b.subtract(length, one)?;
    let logits = b.take_row(logits, last)?;
    let token = b.argmax(logits)?;
    b.output("token", token);
    Ok(FunctionSpec {
        name: format!("layer_{tokens}"),
        graph: b.finish(),
        bindings: Bindings::new()
            .with(Symbol::B, 1)
            .with(Symbol::T, tokens)
            .with(Symbol::S, 64),
    })
}

/// A layer of the rarer ops: a convolution and recurrences with memories, a choice of experts, and
/// attention with chunks, slopes and sinks.
fn rare(tokens: usize) -> Result<FunctionSpec, BuildError> {
    let mut b = Builder::new("rare");
    let (rows, new) = (Dim::Symbol(Symbol::B), Dim::Symbol(Symbol::T));
    let x = b.input(
        "x",
        TensorType::new(DType::F32, [rows, new, Dim::Fixed(64)]),
    );
    let start = b.input("start", TensorType::new(DType::I32, [rows]));
    let length = b.input("length", TensorType::new(DType::I32, [rows]));
    let dense = |b: &mut Builder, name: &str, shape: &[usize]| {
        b.weight(WeightDecl {
            name: name.into(),
            shape: shape.to_vec(),
            format: WeightFormat::Dense(DType::BF16),
        })
    };
    let state = |b: &mut Builder, name: &str, kind, [heads, key_dim, value_dim]: [usize; 3]| {
        b.state(StateDecl {
            name: name.into(),
            kind,
            heads,
            key_dim,
            value_dim,
            dtype: DType::F32,
        })
    };
    let (norm, taps) = (
        dense(&mut b, "norm", &[64]),
        dense(&mut b, "taps", &[64, 4]),
    );
    let normal = b.layer_norm(x, Some(norm), None, 1e-5, 0.0)?;
    let past = state(&mut b, "past", StateKind::Memory, [1, 3, 64]);
    let mixed = b.causal_convolution(normal, length, taps, None, past)?;
    let heads = b.reshape(mixed, vec![rows, new, 4.into(), 16.into()])?;
    let keys = b.slice(heads, 2, 0, 2, 1)?;
    let decay = b.sigmoid(heads)?;
    let memory = state(&mut b, "memory", StateKind::Memory, [4, 16, 16]);
    let mixed = b.recurrence(keys, keys, heads, decay, length, memory)?;
    let whole = b.slice(decay, 3, 0, 1, 1)?;
    let memory = state(&mut b, "delta", StateKind::Memory, [4, 16, 16]);
    let mixed = b.delta_recurrence(keys, keys, mixed, whole, keys, keys, length, memory)?;
    let sinks = dense(&mut b, "sinks", &[4]);
    let cache = state(&mut b, "cache", StateKind::Cache, [2, 16, 16]);
    let mixed = b.attention(
        mixed,
        keys,
        keys,
        start,
        Some(sinks),
        cache,
        0.25,
        Mask::Causal,
        None,
        Some(16),
        None,
        vec![0.5, 0.25, 0.125, 0.0625],
    )?;
    let mixed = b.reshape(mixed, vec![rows, new, 64.into()])?;
    let router = dense(&mut b, "router", &[8, 64]);
    let scores = b.linear(mixed, router, None)?;
    let chosen = b.top_k(scores, 2)?;
    let scores = b.take_along(scores, chosen)?;
    let shares = b.softmax(scores)?;
    let experts = b.weight(WeightDecl {
        name: "experts".into(),
        shape: vec![8, 64, 64],
        format: WeightFormat::Affine {
            bits: 4,
            group: 32,
            scale: DType::BF16,
        },
    });
    let each = b.expert_linear(mixed, chosen, experts, None)?;
    let y = b.dot(shares, each, vec![0, 1], vec![0, 1], vec![2], vec![2])?;
    b.output("y", y);
    Ok(FunctionSpec {
        name: format!("rare_{tokens}"),
        graph: b.finish(),
        bindings: Bindings::new()
            .with(Symbol::B, 1)
            .with(Symbol::T, tokens)
            .with(Symbol::S, 64),
    })
}

fn check_rare(target: &str) {
    let functions = [rare(1).unwrap(), rare(32).unwrap()];
    let target = Target::new(target, None).unwrap();
    let compiled = compile_graphs(&functions, &target)
        .unwrap_or_else(|error| panic!("{}: {error}", target.name()));
    println!("{}: {:?}", target.name(), compiled.time);
}

fn check(target: &str) {
    check_rare(target);
    let functions = [layer(1).unwrap(), layer(32).unwrap()];
    for (index, chip) in Target::chips(target).into_iter().enumerate() {
        // Prefill on the default chip stands for the others, to save time.
        let functions = &functions[..if index == 0 { 2 } else { 1 }];
        let target = Target::new(target, Some(chip)).unwrap();
        let compiled = compile_graphs(functions, &target)
            .unwrap_or_else(|error| panic!("{} {chip}: {error}", target.name()));
        assert!(compiled.dispatches > 0, "{} {chip}", target.name());
        assert_eq!(compiled.parameters.len(), 10, "{:?}", compiled.parameters);
    }
}

/// Every element type from every other and from counting: processors differ in which they have
/// instructions for.
fn conversions() -> Result<FunctionSpec, BuildError> {
    use DType::*;
    let mut b = Builder::new("conversions");
    let shape = [Dim::Symbol(Symbol::T), Dim::Fixed(33)];
    let types = [Bool, I32, U32, F16, BF16, F32];
    let inputs = types.map(|from| b.input(format!("x_{from}"), TensorType::new(from, shape)));
    for (from, x) in types.into_iter().zip(inputs) {
        for to in types {
            if from != to {
                let y = b.convert(x, to)?;
                b.output(format!("{from}_to_{to}"), y);
            }
        }
        if from != Bool {
            let y = b.iota(1, from, shape.to_vec())?;
            b.output(format!("count_{from}"), y);
        }
    }
    Ok(FunctionSpec {
        name: "conversions".into(),
        graph: b.finish(),
        bindings: Bindings::new().with(Symbol::T, 5),
    })
}

#[test]
fn conversions_for_every_processor() {
    let functions = [conversions().unwrap()];
    for chip in Target::chips("iree-cpu") {
        let target = Target::new("iree-cpu", Some(chip)).unwrap();
        compile_graphs(&functions, &target).unwrap_or_else(|error| panic!("{chip}: {error}"));
    }
}

#[test]
fn cpu() {
    check("iree-cpu");
}

#[test]
fn cuda() {
    check("iree-cuda");
}

#[test]
fn rocm() {
    check("iree-rocm");
}

#[test]
fn vulkan() {
    check("iree-vulkan");
}

#[test]
fn metal() {
    check("iree-metal");
}
