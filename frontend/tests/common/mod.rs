//! Running a model's graph on the interpreter.

#![allow(dead_code, reason = "each test file uses a part")]

use mlxcel_frontend::{GraphOptions, Logits, Model};
use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::{Bindings, HostTensor, Symbol, step};
use std::collections::BTreeMap;

/// A model on the interpreter, with the caches of some rows.
pub(crate) struct Run {
    interpreter: Interpreter<f32>,
    states: States<f32>,
    rows: usize,
    capacity: usize,
}

impl Run {
    /// A run of `rows` sequences of at most `capacity` tokens.
    pub(crate) fn new(model: &Model, rows: usize, capacity: usize) -> Self {
        let graph = model
            .graph(&GraphOptions {
                name: "step".into(),
                logits: Logits::All,
                token: true,
                hidden: true,
            })
            .expect("a loaded model has a graph");
        Self {
            states: States::new(&graph),
            interpreter: Interpreter::new(&graph, model.weights()).expect("the graph decomposes"),
            rows,
            capacity,
        }
    }

    /// Runs the rows' new tokens, padded at the end to equal length, from the positions `start`.
    pub(crate) fn step(&mut self, rows: &[Vec<i32>], start: &[i32]) -> BTreeMap<String, Vec<f64>> {
        let longest = rows.iter().map(Vec::len).max().expect("a row");
        let length: Vec<i32> = rows.iter().map(|row| row.len() as i32).collect();
        let mut tokens = Vec::new();
        for row in rows {
            tokens.extend_from_slice(row);
            tokens.resize(tokens.len() + longest - row.len(), 0);
        }
        let bindings = Bindings::new()
            .with(Symbol::B, self.rows)
            .with(Symbol::T, longest)
            .with(Symbol::S, self.capacity);
        let inputs = [
            (step::TOKENS, HostTensor::i32([self.rows, longest], &tokens)),
            (step::START, HostTensor::i32([self.rows], start)),
            (step::LENGTH, HostTensor::i32([self.rows], &length)),
        ];
        self.interpreter
            .run(&bindings, &inputs, &mut self.states)
            .unwrap_or_else(|error| panic!("{error}"))
            .into_iter()
            .map(|(name, tensor)| (name, tensor.to_f64()))
            .collect()
    }

    /// The tokens that greedy decoding gives after the rows' prompts.
    pub(crate) fn greedy(&mut self, prompts: &[Vec<i32>], count: usize) -> Vec<Vec<i32>> {
        let mut start = vec![0; prompts.len()];
        let mut next = prompts.to_vec();
        let mut chosen = vec![Vec::new(); prompts.len()];
        for _ in 0..count {
            let outputs = self.step(&next, &start);
            for row in 0..prompts.len() {
                start[row] += next[row].len() as i32;
                let token = outputs[step::TOKEN][row] as i32;
                chosen[row].push(token);
                next[row] = vec![token];
            }
        }
        chosen
    }
}

/// The root of the mean square of the difference, relative to that of `expected`.
pub(crate) fn relative_error(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let square = |sum: f64, x: f64| sum + x * x;
    let difference = got
        .iter()
        .zip(expected)
        .map(|(got, expected)| got - expected);
    (difference.fold(0.0, square) / expected.iter().copied().fold(0.0, square)).sqrt()
}

/// The logits of a few tokens, `[T, V]`.
pub(crate) fn logits_of(model: &Model) -> Vec<f64> {
    let tokens = vec![3, 17, 250, 8, 121, 64, 5];
    Run::new(model, 1, 16)
        .step(&[tokens], &[0])
        .remove(step::LOGITS)
        .expect("logits")
}

/// `count` numbers from -1 to 1 that depend on `seed` only.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// What an encoder gives for texts of `tokens`, `length` of whose tokens count, padded to equal length.
pub(crate) fn encoded(
    model: &Model,
    tokens: &[i32],
    types: &[i32],
    length: &[i32],
) -> BTreeMap<String, Vec<f64>> {
    let graph = model
        .encoder_graph("encode", false)
        .expect("an encoder has a graph");
    let rows = length.len();
    let size = [rows, tokens.len() / rows];
    let bindings = Bindings::new()
        .with(Symbol::B, rows)
        .with(Symbol::T, size[1])
        .with(Symbol::S, size[1]);
    let inputs = [
        (step::TOKENS, HostTensor::i32(size, tokens)),
        (step::START, HostTensor::i32([rows], &vec![0; rows])),
        (step::LENGTH, HostTensor::i32([rows], length)),
        (step::TOKEN_TYPES, HostTensor::i32(size, types)),
    ];
    let mut states = States::<f32>::new(&graph);
    Interpreter::new(&graph, model.weights())
        .expect("the graph decomposes")
        .run(&bindings, &inputs, &mut states)
        .unwrap_or_else(|error| panic!("{error}"))
        .into_iter()
        .map(|(name, tensor)| (name, tensor.to_f64()))
        .collect()
}
