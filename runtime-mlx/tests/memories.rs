//! A model with every kind of state, by own kernels and by operations of MLX: steps of any sizes
//! give what the interpreter gives for all tokens at once.

use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::step::{LENGTH, LOGITS, Row, RowOutput, START, SequenceId, TOKEN, TOKENS};
use mlxcel_ir::step::{Tokens, Want};
use mlxcel_ir::{
    Activation, Bindings, Builder, DType, Dim, Graph, HostTensor, Mask, StateDecl, StateKind,
    Symbol, TensorType, WeightData, WeightDecl, WeightFormat, WeightId, WeightSource,
};
use mlxcel_runtime_mlx::{Device, Error, Graphs, Options, Runtime};
use mlxcel_test_support::relative_error;
use std::collections::HashMap;
use std::sync::Arc;

const VOCABULARY: usize = 40;
const WIDTH: usize = 32;
const HEADS: usize = 2;
const TOLERANCE: f64 = 1e-5;
const DEVICES: [Device; 2] = [Device::Cpu, Device::CpuMlx];
const PROMPT: [u32; 9] = [3, 39, 0, 7, 7, 12, 25, 1, 30];

#[derive(Default)]
struct Weights(HashMap<String, Vec<u8>>);

impl WeightSource for Weights {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        self.0.get(name).map(|values| WeightData {
            values,
            scales: &[],
            biases: &[],
        })
    }
}

/// A weight of numbers between -0.5 and 0.5, which its name decides.
fn weight(builder: &mut Builder, weights: &mut Weights, name: &str, shape: &[usize]) -> WeightId {
    let mut seed = name.bytes().fold(11u64, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let mut number = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 40) as f32 / (1u32 << 24) as f32 - 0.5
    };
    let numbers = (0..shape.iter().product()).flat_map(|_| number().to_le_bytes());
    weights.0.insert(name.into(), numbers.collect());
    builder.weight(WeightDecl {
        name: name.into(),
        shape: shape.to_vec(),
        format: WeightFormat::Dense(DType::F32),
    })
}

fn state(kind: StateKind, heads: usize, key_dim: usize, value_dim: usize) -> StateDecl {
    StateDecl {
        name: format!("{kind:?} of {key_dim}"),
        kind,
        heads,
        key_dim,
        value_dim,
        dtype: DType::F32,
    }
}

/// A layer with a convolution, both recurrences and attention. With `cut`, tokens from 30 on name a
/// place that is not there in one of the look-ups.
fn graph(all: bool, cut: bool, weights: &mut Weights) -> Graph {
    let (b, t) = (Dim::Symbol(Symbol::B), Dim::Symbol(Symbol::T));
    let n = Dim::Fixed;
    let mut g = Builder::new(if all { "all" } else { "last" });
    let tokens = g.input(TOKENS, TensorType::new(DType::I32, [b, t]));
    let start = g.input(START, TensorType::new(DType::I32, [b]));
    let length = g.input(LENGTH, TensorType::new(DType::I32, [b]));
    let states = [
        state(StateKind::Memory, 1, 3, WIDTH),
        state(StateKind::Memory, HEADS, 16, 16),
        state(StateKind::Memory, HEADS, 8, 16),
        state(StateKind::Cache, HEADS, 16, 16),
    ]
    .map(|declaration| g.state(declaration));
    let mut w = |g: &mut Builder, name: &str, shape: &[usize]| weight(g, weights, name, shape);
    let embed = w(&mut g, "embed", &[VOCABULARY, WIDTH]);
    let embedded = g.embedding(tokens, embed).unwrap();
    let taps = w(&mut g, "taps", &[WIDTH, 4]);
    let convolved = g
        .causal_convolution(embedded, length, taps, None, states[0])
        .unwrap();
    let x = g.activate(convolved, Activation::Silu).unwrap();
    let project = |g: &mut Builder, id: WeightId, groups: usize, width: usize| {
        let y = g.linear(x, id, None).unwrap();
        g.reshape(y, vec![b, t, n(groups), n(width)]).unwrap()
    };
    let ids: Vec<WeightId> = [
        ("q", 16),
        ("k", 16),
        ("v", 32),
        ("decay", 2),
        ("qh", 32),
        ("kh", 32),
    ]
    .into_iter()
    .map(|(name, rows)| w(&mut g, name, &[rows, WIDTH]))
    .collect();
    let (q, k) = (
        project(&mut g, ids[0], 1, 16),
        project(&mut g, ids[1], 1, 16),
    );
    let v = project(&mut g, ids[2], HEADS, 16);
    let decay = project(&mut g, ids[3], HEADS, 1);
    let decay = g.sigmoid(decay).unwrap();
    let one = g.recurrence(q, k, v, decay, length, states[1]).unwrap();
    let (qd, kd) = (
        g.reshape(q, vec![b, t, n(2), n(8)]).unwrap(),
        g.reshape(k, vec![b, t, n(2), n(8)]).unwrap(),
    );
    let two = g
        .delta_recurrence(qd, kd, v, decay, kd, kd, length, states[2])
        .unwrap();
    let qh = project(&mut g, ids[4], HEADS, 16);
    let kh = project(&mut g, ids[5], HEADS, 16);
    let three = g
        .attention(
            qh,
            kh,
            v,
            start,
            None,
            states[3],
            0.25,
            Mask::Causal,
            None,
            None,
            None,
            vec![],
        )
        .unwrap();
    let sum = g.add(one, two).unwrap();
    let sum = g.add(sum, three).unwrap();
    let mut y = g.reshape(sum, vec![b, t, n(WIDTH)]).unwrap();
    if cut {
        // The token itself as a place among 30.
        let place = g.reshape(tokens, vec![b, t, n(1)]).unwrap();
        let few = g.slice(y, 2, 0, 30, 1).unwrap();
        let few = g.softmax(few).unwrap();
        let one = g.take_along(few, place).unwrap();
        let one = g
            .broadcast(one, vec![b, t, n(WIDTH)], vec![0, 1, 2])
            .unwrap();
        y = g.add(y, one).unwrap();
    }
    let head = w(&mut g, "head", &[VOCABULARY, WIDTH]);
    if !all {
        let ones = g.constant(1.0, DType::I32, vec![b]).unwrap();
        let last = g.subtract(length, ones).unwrap();
        y = g.take_row(y, last).unwrap();
    }
    let logits = g.linear(y, head, None).unwrap();
    g.output(LOGITS, logits);
    if !all {
        let token = g.argmax(logits).unwrap();
        g.output(TOKEN, token);
    }
    g.finish()
}

fn model(cut: bool) -> (Graphs, Arc<dyn WeightSource>) {
    let mut weights = Weights::default();
    let graphs = Graphs {
        last: graph(false, cut, &mut weights),
        all: graph(true, cut, &mut weights),
    };
    (graphs, Arc::new(weights))
}

fn runtime(cut: bool, device: Device) -> Runtime {
    let (graphs, weights) = model(cut);
    let options = Options {
        device,
        ..Options::new(64)
    };
    Runtime::new(&graphs, weights, options).unwrap()
}

/// Logits after each token, by the interpreter.
fn expect(tokens: &[u32]) -> Vec<f32> {
    let (graphs, weights) = model(false);
    let mut states = States::<f64>::new(&graphs.all);
    let bindings = Bindings::new()
        .with(Symbol::B, 1)
        .with(Symbol::T, tokens.len())
        .with(Symbol::S, tokens.len());
    let ids: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
    let inputs = [
        (TOKENS, HostTensor::i32([1, ids.len()], &ids)),
        (START, HostTensor::i32([1], &[0])),
        (LENGTH, HostTensor::i32([1], &[ids.len() as i32])),
    ];
    let interpreter = Interpreter::<f64>::new(&graphs.all, weights).unwrap();
    let outputs = interpreter.run(&bindings, &inputs, &mut states).unwrap();
    outputs[0].1.to_f64().iter().map(|&x| x as f32).collect()
}

fn given(sequence: SequenceId, tokens: &[u32], want: Want) -> Row<'_> {
    Row {
        sequence,
        tokens: Tokens::Given(tokens),
        want,
    }
}

fn logits(runtime: &mut Runtime, sequence: SequenceId, tokens: &[u32]) -> Vec<f32> {
    let row = given(sequence, tokens, Want::Logits);
    let ticket = runtime.submit(&[row]).unwrap();
    match &runtime.wait(ticket).unwrap()[..] {
        [RowOutput::Logits(logits)] => logits.clone(),
        other => panic!("{other:?}"),
    }
}

/// Holds the logits of a step against those after `count` tokens of the prompt.
fn close(name: &str, got: &[f32], expect: &[f32], count: usize) {
    let expect = &expect[(count - 1) * VOCABULARY..][..VOCABULARY];
    let error = relative_error(got, expect);
    assert!(
        error <= TOLERANCE,
        "{name} after {count} is off by {error:e}"
    );
}

#[test]
fn steps_of_any_sizes_continue() {
    let expect = expect(&PROMPT);
    for device in DEVICES {
        let mut runtime = runtime(false, device);
        for sizes in [&[9][..], &[1; 9], &[4, 1, 4], &[1, 8], &[2, 3, 1, 3]] {
            let name = format!("{sizes:?} on {device:?}");
            let s = runtime.create().unwrap();
            let mut end = 0;
            for &size in sizes {
                let tokens = &PROMPT[end..end + size];
                end += size;
                close(&name, &logits(&mut runtime, s, tokens), &expect, end);
            }
        }
        // Two sequences in one batch, and one of them alone in between.
        let (s, r) = (runtime.create().unwrap(), runtime.create().unwrap());
        let rows = [
            given(s, &PROMPT[..3], Want::Nothing),
            given(r, &PROMPT[..3], Want::Nothing),
        ];
        let ticket = runtime.submit(&rows).unwrap();
        runtime.wait(ticket).unwrap();
        close("one", &logits(&mut runtime, r, &PROMPT[3..5]), &expect, 5);
        close("other", &logits(&mut runtime, s, &PROMPT[3..9]), &expect, 9);
        close("one", &logits(&mut runtime, r, &PROMPT[5..]), &expect, 9);
    }
}

#[test]
fn memories_fork_and_are_saved_but_not_cut() {
    let expect = expect(&PROMPT);
    for device in DEVICES {
        let mut runtime = runtime(false, device);
        let s = runtime.create().unwrap();
        logits(&mut runtime, s, &PROMPT[..4]);
        let fork = runtime.fork(s).unwrap();
        let saved = runtime.save(s).unwrap();
        logits(&mut runtime, s, &[9, 9]);
        close(
            "fork",
            &logits(&mut runtime, fork, &PROMPT[4..6]),
            &expect,
            6,
        );
        let back = runtime.restore(&saved).unwrap();
        close(
            "saved",
            &logits(&mut runtime, back, &PROMPT[4..]),
            &expect,
            9,
        );
        close(
            "fork",
            &logits(&mut runtime, fork, &PROMPT[6..]),
            &expect,
            9,
        );
        assert!(runtime.restore(&saved[..saved.len() - 4]).is_err());
        assert_eq!(runtime.truncate(fork, 9), Ok(()));
        assert_eq!(
            runtime.truncate(fork, 8),
            Err(Error::Indivisible {
                sequence: fork.0,
                length: 9,
                to: 8
            })
        );
        runtime.truncate(fork, 0).unwrap();
        close("emptied", &logits(&mut runtime, fork, &PROMPT), &expect, 9);
        let empty = runtime.create().unwrap();
        let saved = runtime.save(empty).unwrap();
        let back = runtime.restore(&saved).unwrap();
        close("empty", &logits(&mut runtime, back, &PROMPT), &expect, 9);
    }
}

#[test]
fn a_sequence_of_a_failed_step_must_be_emptied() {
    let mut runtime = runtime(true, Device::Cpu);
    let s = runtime.create().unwrap();
    let before = logits(&mut runtime, s, &[1, 2]);
    for want in [Want::Logits, Want::Token] {
        // It may have failed before all of the step is submitted.
        let submitted = runtime.submit(&[given(s, &[35], want)]);
        let error = submitted
            .and_then(|ticket| runtime.wait(ticket))
            .unwrap_err();
        assert!(error.to_string().contains("take_along"), "{error}");
        let failed = Error::FailedSequence {
            sequence: s.0,
            intact: 0,
        };
        assert_eq!(runtime.submit(&[given(s, &[1], want)]), Err(failed.clone()));
        assert_eq!(runtime.fork(s), Err(failed.clone()));
        assert_eq!(runtime.save(s), Err(failed.clone()));
        assert_eq!(runtime.truncate(s, 2), Err(failed));
        runtime.truncate(s, 0).unwrap();
        assert_eq!(logits(&mut runtime, s, &[1, 2]), before);
    }
}
