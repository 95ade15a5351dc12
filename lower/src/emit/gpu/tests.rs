//! Kernels for GPUs against the interpreter, executed by [`super::emulate`].

use super::{constants, emulate, executable, write};
use mlxcel_frontend::artifact::Kernel;
use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::*;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers that look random, the same in every run.
fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

#[derive(Default)]
struct Weights(HashMap<String, [Vec<u8>; 3]>);

impl WeightSource for Weights {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        let [values, scales, biases] = self.0.get(name)?;
        Some(WeightData {
            values,
            scales,
            biases,
        })
    }
}

fn floats(dtype: DType, numbers: &[f32]) -> Vec<u8> {
    match dtype {
        DType::BF16 => numbers
            .iter()
            .flat_map(|&number| half::bf16::from_f32(number).to_le_bytes())
            .collect(),
        DType::F16 => numbers
            .iter()
            .flat_map(|&number| half::f16::from_f32(number).to_le_bytes())
            .collect(),
        _ => numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect(),
    }
}

fn stored(weight: &WeightDecl, seed: u32) -> [Vec<u8>; 3] {
    let parts = weight.parts();
    let [values, scales, biases] = parts.map(|part| part.bytes());
    match weight.format {
        WeightFormat::Dense(dtype) => [
            floats(dtype, &noise(weight.elements(), seed)),
            Vec::new(),
            Vec::new(),
        ],
        WeightFormat::Affine { scale, .. } => {
            let codes = noise(values, seed);
            let sides = |bytes: usize, seed| floats(scale, &noise(bytes / scale.size(), seed));
            [
                codes
                    .iter()
                    .map(|&code| (code * 128.0) as i8 as u8)
                    .collect(),
                sides(scales, seed + 1),
                sides(biases, seed + 2),
            ]
        }
        other => panic!("no weights of {other} are made here"),
    }
}

/// What a kernel computes, for rows that start at `starts`, agrees with the interpreter.
fn check(
    name: &str,
    capacity: usize,
    starts: &[i32],
    build: &dyn Fn(&mut Builder) -> Result<(), BuildError>,
) {
    check_rotating(name, [capacity; 2], starts, build);
}

/// As [`check`], with a cache of so many rows where the interpreter has one of `capacity` tokens.
fn check_rotating(
    name: &str,
    [capacity, places]: [usize; 2],
    starts: &[i32],
    build: &dyn Fn(&mut Builder) -> Result<(), BuildError>,
) {
    let mut builder = Builder::new(name);
    build(&mut builder).unwrap();
    let graph = builder.finish();
    let rows = starts.len();
    let bindings = Bindings::new()
        .with(Symbol::B, rows)
        .with(Symbol::S, capacity);
    let kernel = Kernel::new(graph.clone(), places).unwrap_or_else(|| panic!("{name}: no piece"));
    let written = write(&kernel).unwrap_or_else(|| panic!("{name}: no kernel"));
    assert!(
        executable("kernel", &kernel, 32)
            .unwrap()
            .contains("@kernel")
    );

    let mut weights = Weights::default();
    for (index, weight) in graph.weights.iter().enumerate() {
        let made = stored(weight, 100 * (index as u32 + 1));
        weights.0.insert(weight.name.clone(), made);
    }
    let inputs: Vec<(&str, HostTensor)> = graph
        .inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let sizes = input.ty.sizes(&bindings).unwrap();
            let count = sizes.iter().product();
            let tensor = match input.ty.dtype {
                DType::I32 => HostTensor::i32(sizes, starts),
                _ => HostTensor::f32(sizes, &noise(count, index as u32 + 1)),
            };
            (input.name.as_str(), tensor)
        })
        .collect();

    // The caches hold noise before, to see what is read and what is written.
    let mut buffers: Vec<Vec<u8>> = inputs
        .iter()
        .map(|(_, tensor)| tensor.bytes.clone())
        .collect();
    for weight in &graph.weights {
        let parts = &weights.0[&weight.name];
        buffers.extend(parts.iter().filter(|part| !part.is_empty()).cloned());
    }
    if let Some(numbers) = constants(&kernel) {
        let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
        buffers.push(floats(DType::F32, &numbers));
    }
    let mut states = States::new(&graph);
    let first_state = buffers.len();
    let (mut cached, mut before) = (Vec::new(), Vec::new());
    for state in &graph.states {
        for &part in state.parts() {
            let sizes = state.buffer(part).sizes(&bindings).unwrap();
            let numbers = noise(sizes.iter().product(), 7 + cached.len() as u32);
            let numbers = floats_of(state.dtype, &floats(state.dtype, &numbers));
            let width = numbers.len() / rows / capacity;
            // Each place has the latest position before the row's start that is its.
            let mut placed = vec![0.0; rows * places * width];
            for (row, &start) in starts.iter().enumerate() {
                for position in 0..if places == capacity {
                    capacity
                } else {
                    start as usize
                } {
                    let from = (row * capacity + position) * width;
                    let to = (row * places + position % places) * width;
                    placed[to..to + width].copy_from_slice(&numbers[from..from + width]);
                }
            }
            buffers.push(floats(state.dtype, &placed));
            cached.push(numbers);
            before.push(placed);
        }
    }
    let first_output = buffers.len();
    for output in &graph.outputs {
        let sizes = graph.ty(output.value).unwrap().sizes(&bindings).unwrap();
        buffers.push(vec![0xFF; 4 * sizes.iter().product::<usize>()]);
    }
    let source = Arc::new(weights);
    if !cached.is_empty() {
        fill(&mut states, &graph, &cached, [rows, capacity], starts);
    }
    let expect = Interpreter::<f64>::new(&graph, source.clone())
        .unwrap()
        .run(&bindings, &inputs, &mut states)
        .unwrap_or_else(|error| panic!("{name}: {error}"));

    let names: Vec<String> = written.bindings.iter().map(ToString::to_string).collect();
    assert_eq!(names.len(), buffers.len(), "{name}: bindings");
    let sizes = [written.workgroups, written.threads];
    emulate::run(written.code.text(), &names, &mut buffers, sizes);
    for ((output, (_, expect)), bytes) in graph
        .outputs
        .iter()
        .zip(&expect)
        .zip(&buffers[first_output..])
    {
        let ty = graph.ty(output.value).unwrap();
        let numbers: Vec<f64> = bytes
            .chunks(4)
            .map(|four| match ty.dtype {
                DType::I32 => f64::from(i32::from_le_bytes(four.try_into().unwrap())),
                _ => f64::from(f32::from_le_bytes(four.try_into().unwrap())),
            })
            .collect();
        let expect = expect.to_f64();
        let largest = expect
            .iter()
            .fold(1.0_f64, |most, number| most.max(number.abs()));
        for (at, (actual, expect)) in numbers.iter().zip(&expect).enumerate() {
            assert!(
                (actual - expect).abs() <= 2e-5 * largest,
                "{name}, {}[{at}]: {actual}, the interpreter has {expect}",
                output.name
            );
        }
    }
    let Some(node) = graph.nodes.last() else {
        return;
    };
    // The new rows, and only these, are in the caches.
    for (part, before) in before.iter().enumerate() {
        let dtype = graph.states[0].dtype;
        let after = floats_of(dtype, &buffers[first_state + part]);
        let width = before.len() / rows / places;
        let (value, turned) = (node.operands[1 + part], part == 0 && graph.nodes.len() > 1);
        let new: Vec<f32> = match turned {
            // The definition of what is appended: the same piece without its end.
            true => keys(&graph, &source, &bindings, &inputs),
            false => floats_of(DType::F32, &inputs[value.0 as usize].1.bytes),
        };
        let new = floats_of(dtype, &floats(dtype, &new));
        for (row, &start) in starts.iter().enumerate() {
            for place in 0..places {
                let at = (row * places + place) * width;
                let found = &after[at..at + width];
                let is_new = place == start as usize % places;
                let expect = match is_new {
                    true => &new[row * width..(row + 1) * width],
                    false => &before[at..at + width],
                };
                // Turned keys are computed; everything else is copied.
                let rounding = match dtype {
                    DType::F32 => 1e-5,
                    DType::F16 => 1.0 / 1024.0,
                    _ => 1.0 / 128.0,
                };
                let allowed = if turned && is_new { rounding } else { 0.0 };
                for (found, expect) in found.iter().zip(expect) {
                    let size = expect.abs().max(1.0);
                    assert!(
                        (found - expect).abs() <= allowed * size,
                        "{name}: the cache at {place} has {found}, not {expect}"
                    );
                }
            }
        }
    }
}

fn floats_of(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let number = |bytes: &[u8]| match dtype {
        DType::BF16 => half::bf16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
        DType::F16 => half::f16::from_le_bytes(bytes.try_into().unwrap()).to_f32(),
        _ => f32::from_le_bytes(bytes.try_into().unwrap()),
    };
    bytes.chunks(dtype.size()).map(number).collect()
}

/// The keys that the attention at the end of `graph` appends.
fn keys(
    graph: &Graph,
    source: &Arc<Weights>,
    bindings: &Bindings,
    inputs: &[(&str, HostTensor)],
) -> Vec<f32> {
    let mut graph = graph.clone();
    let attention = graph.nodes.pop().unwrap();
    graph.states.clear();
    graph.outputs[0].value = attention.operands[1];
    let mut states = States::new(&graph);
    let outputs = Interpreter::<f64>::new(&graph, source.clone())
        .unwrap()
        .run(bindings, inputs, &mut states)
        .unwrap();
    outputs[0]
        .1
        .to_f64()
        .iter()
        .map(|&number| number as f32)
        .collect()
}

/// Puts `cached`, as `[B, S, heads, width]`, into the states, by a graph that appends it row by row.
fn fill(
    states: &mut States<f64>,
    graph: &Graph,
    cached: &[Vec<f32>],
    [rows, capacity]: [usize; 2],
    starts: &[i32],
) {
    let state = &graph.states[0];
    let longest = starts.iter().copied().max().unwrap_or(0).max(0) as usize;
    if longest == 0 {
        return;
    }
    let mut builder = Builder::new("fill");
    let new = Dim::Fixed(longest);
    let ty = TensorType::new(
        DType::F32,
        [rows.into(), new, state.heads.into(), state.key_dim.into()],
    );
    let [k, v] = ["k", "v"].map(|name| builder.input(name, ty.clone()));
    let start = builder.input("start", TensorType::new(DType::I32, [Dim::Fixed(rows)]));
    let id = builder.state(state.clone());
    for (name, value, part) in [("a", k, StatePart::Key), ("b", v, StatePart::Value)] {
        let value = match state.dtype {
            DType::F32 => value,
            dtype => builder.convert(value, dtype).unwrap(),
        };
        let appended = builder.cache_append(value, start, id, part).unwrap();
        builder.output(name, appended);
    }
    let width = state.heads * state.key_dim;
    let first = |numbers: &[f32]| -> Vec<f32> {
        let row = |row: usize| &numbers[row * capacity * width..][..longest * width];
        (0..rows).flat_map(row).copied().collect()
    };
    let shape = [rows, longest, state.heads, state.key_dim];
    let inputs = [
        ("k", HostTensor::f32(shape, &first(&cached[0]))),
        ("v", HostTensor::f32(shape, &first(&cached[1]))),
        ("start", HostTensor::i32([rows], &vec![0; rows])),
    ];
    let graph = builder.finish();
    let bindings = Bindings::new()
        .with(Symbol::B, rows)
        .with(Symbol::S, capacity);
    Interpreter::<f64>::new(&graph, Arc::new(Weights::default()))
        .unwrap()
        .run(&bindings, &inputs, states)
        .unwrap();
}

fn input(b: &mut Builder, name: &str, shape: &[usize]) -> ValueId {
    b.input(name, TensorType::new(DType::F32, shape.iter().copied()))
}

fn weight(b: &mut Builder, name: &str, shape: &[usize], format: WeightFormat) -> WeightId {
    b.weight(WeightDecl {
        name: name.into(),
        shape: shape.to_vec(),
        format,
    })
}

const F32: WeightFormat = WeightFormat::Dense(DType::F32);

fn affine(bits: u8, group: usize, scale: DType) -> WeightFormat {
    WeightFormat::Affine { bits, group, scale }
}

#[test]
fn linear_layers() {
    let formats = [
        F32,
        WeightFormat::Dense(DType::BF16),
        WeightFormat::Dense(DType::F16),
        affine(4, 32, DType::F32),
        affine(4, 64, DType::BF16),
        affine(8, 32, DType::F16),
    ];
    for (number, format) in formats.into_iter().enumerate() {
        for (rows, outputs, width) in [(1, 24, 64), (3, 40, 192), (1, 17, 1024), (8, 8, 256)] {
            let name = format!("linears of {format}, {rows} x {outputs} x {width}");
            let starts = vec![0; rows];
            check(&name, 1, &starts, &|b| {
                let x = input(b, "x", &[rows, 1, width]);
                let first = weight(b, "first", &[outputs, width], format);
                let second = weight(b, "second", &[8, width], format);
                let bias = weight(b, "bias", &[outputs], F32);
                let bias = (number % 2 == 0).then_some(bias);
                let y = b.linear(x, first, bias)?;
                let z = b.linear(x, second, None)?;
                b.output("y", y);
                b.output("z", z);
                Ok(())
            });
        }
    }
}

#[test]
fn layers_with_what_follows_them() {
    let format = affine(4, 64, DType::BF16);
    for outputs in [64, 4_100] {
        check("residual", 1, &[0], &|b| {
            let x = input(b, "x", &[1, 1, 128]);
            let before = input(b, "before", &[1, 1, outputs]);
            let down = weight(b, "down", &[outputs, 128], format);
            let y = b.linear(x, down, None)?;
            let y = b.add(before, y)?;
            b.output("y", y);
            Ok(())
        });
    }
    for activation in [Activation::Silu, Activation::GeluTanh, Activation::Relu] {
        check("gated", 1, &[0, 0], &|b| {
            let x = input(b, "x", &[2, 1, 128]);
            let gate = weight(b, "gate", &[96, 128], format);
            let up = weight(b, "up", &[96, 128], format);
            let gate = b.linear(x, gate, None)?;
            let up = b.linear(x, up, None)?;
            let y = b.gated(gate, up, activation)?;
            b.output("y", y);
            Ok(())
        });
        check("each", 1, &[0], &|b| {
            let x = input(b, "x", &[1, 1, 200]);
            let y = b.activate(x, activation)?;
            b.output("y", y);
            Ok(())
        });
    }
}

#[test]
fn layers_over_a_norm() {
    for (rows, width, format) in [(1, 576, affine(4, 32, DType::F16)), (3, 128, F32)] {
        check("normed linears", 1, &vec![0; rows], &|b| {
            let x = input(b, "x", &[rows, 1, width]);
            let factor = weight(b, "norm", &[width], WeightFormat::Dense(DType::BF16));
            let first = weight(b, "first", &[40, width], format);
            let second = weight(b, "second", &[17, width], format);
            let x = b.rms_norm(x, Some(factor), 1e-5, 1.0)?;
            let y = b.linear(x, first, None)?;
            let z = b.linear(x, second, None)?;
            b.output("y", y);
            b.output("z", z);
            Ok(())
        });
        check("normed gated", 1, &vec![0; rows], &|b| {
            let x = input(b, "x", &[rows, 1, width]);
            let gate = weight(b, "gate", &[96, width], format);
            let up = weight(b, "up", &[96, width], format);
            let x = b.rms_norm(x, None, 1e-2, 0.0)?;
            let gate = b.linear(x, gate, None)?;
            let up = b.linear(x, up, None)?;
            let y = b.gated(gate, up, Activation::Silu)?;
            b.output("y", y);
            Ok(())
        });
    }
}

#[test]
fn rows() {
    for (rows, width) in [(1, 64), (8, 576), (2, 5_000)] {
        check("norm", 1, &vec![0; rows], &|b| {
            let x = input(b, "x", &[rows, width]);
            let factor = weight(b, "w", &[width], WeightFormat::Dense(DType::BF16));
            let y = b.rms_norm(x, Some(factor), 1e-5, 1.0)?;
            b.output("y", y);
            Ok(())
        });
    }
    check("norm of heads", 1, &[0], &|b| {
        let x = input(b, "x", &[1, 1, 12, 128]);
        let y = b.rms_norm(x, None, 1e-5, 0.0)?;
        b.output("y", y);
        Ok(())
    });
    check("argmax", 1, &[0, 0], &|b| {
        let x = input(b, "x", &[2, 3_001]);
        let y = b.argmax(x)?;
        b.output("y", y);
        Ok(())
    });
    for format in [F32, affine(4, 32, DType::F16), affine(8, 64, DType::BF16)] {
        check("embedding", 1, &[5, 0, 30], &|b| {
            let tokens = b.input("tokens", TensorType::new(DType::I32, [3, 1]));
            let table = weight(b, "table", &[31, 128], format);
            let y = b.embedding(tokens, table)?;
            b.output("y", y);
            Ok(())
        });
    }
}

#[test]
fn heads_turn() {
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        for (dims, width) in [(64, 64), (32, 80)] {
            check("rope", 1, &[0, 77], &|b| {
                let x = input(b, "x", &[2, 1, 3, width]);
                let start = b.input("start", TensorType::new(DType::I32, [2]));
                let y = b.rope(x, start, dims, 1e4, pairing, RopeScaling::None, 1.25)?;
                b.output("y", y);
                Ok(())
            });
        }
    }
}

#[test]
fn attention() {
    struct Case {
        heads: [usize; 2],
        width: usize,
        window: Option<usize>,
        chunk: Option<usize>,
        softcap: Option<f64>,
        sinks: bool,
        /// How many numbers of a head turn, how, and whether heads are normed before.
        turn: Option<(usize, Pairing, bool)>,
        dtype: DType,
        /// Rows of the cache.
        places: usize,
    }
    let case = |heads, width| Case {
        heads,
        width,
        window: None,
        chunk: None,
        softcap: None,
        sinks: false,
        turn: None,
        dtype: DType::F32,
        places: 150,
    };
    let cases = [
        case([4, 2], 64),
        case([3, 3], 128),
        Case {
            window: Some(40),
            softcap: Some(2.0),
            ..case([2, 1], 32)
        },
        Case {
            window: Some(40),
            places: 41,
            ..case([2, 1], 32)
        },
        Case {
            chunk: Some(16),
            places: 16,
            dtype: DType::F16,
            ..case([2, 2], 32)
        },
        Case {
            turn: Some((64, Pairing::Half, true)),
            dtype: DType::BF16,
            ..case([4, 2], 64)
        },
        Case {
            chunk: Some(16),
            sinks: true,
            ..case([4, 1], 96)
        },
        Case {
            turn: Some((128, Pairing::Half, true)),
            ..case([4, 2], 128)
        },
        Case {
            turn: Some((64, Pairing::Half, false)),
            ..case([2, 2], 96)
        },
        Case {
            turn: Some((32, Pairing::Interleaved, true)),
            window: Some(33),
            ..case([3, 1], 64)
        },
    ];
    for (number, case) in cases.iter().enumerate() {
        for starts in [&[0][..], &[1], &[70, 0, 130]] {
            let name = format!("attention {number} at {starts:?}");
            let rows = starts.len();
            check_rotating(&name, [150, case.places], starts, &|b| {
                let [heads, kv_heads] = case.heads;
                let width = case.width;
                let q = input(b, "q", &[rows, 1, heads, width]);
                let k = input(b, "k", &[rows, 1, kv_heads, width]);
                let v = input(b, "v", &[rows, 1, kv_heads, width]);
                let start = b.input("start", TensorType::new(DType::I32, [rows]));
                let sinks = case.sinks.then(|| weight(b, "sinks", &[heads], F32));
                let cache = b.state(StateDecl {
                    name: "cache".into(),
                    kind: StateKind::Cache,
                    heads: kv_heads,
                    key_dim: width,
                    value_dim: width,
                    dtype: case.dtype,
                });
                let (mut q, mut k) = (q, k);
                if let Some((dims, pairing, normed)) = case.turn {
                    if normed {
                        let format = WeightFormat::Dense(DType::BF16);
                        let factor = weight(b, "k_norm", &[width], format);
                        k = b.rms_norm(k, Some(factor), 1e-5, 0.0)?;
                        let factor = weight(b, "q_norm", &[width], F32);
                        q = b.rms_norm(q, Some(factor), 1e-5, 1.0)?;
                    }
                    k = b.rope(k, start, dims, 1e4, pairing, RopeScaling::None, 1.25)?;
                    q = b.rope(q, start, dims, 1e4, pairing, RopeScaling::None, 1.25)?;
                }
                let y = b.attention(
                    q,
                    k,
                    v,
                    start,
                    sinks,
                    cache,
                    0.3,
                    Mask::Causal,
                    case.window,
                    case.chunk,
                    case.softcap,
                    Vec::new(),
                )?;
                b.output("y", y);
                Ok(())
            });
        }
    }
}
