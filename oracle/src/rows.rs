//! A small decoder on a text: what its logits are after each token, whichever way the text is run.
//!
//! A decoder's logits after a token depend on the tokens up to it and on nothing else: not on how the
//! text was cut into steps, what else was in the batch, or what stood in memory before. So one run of
//! the interpreter over the whole text says what every way to run it must give.

use crate::budget::Budgets;
use crate::compare::Distance;
use crate::execution::{Execution, Inputs, Observed, ReferenceExecution};
use crate::toy::{self, Form, Head};
use mlxcel_engine::{MlxSession, ReferenceSession, Session, SessionError};
use mlxcel_ir::random::{Data, Weights};
use mlxcel_ir::step::{self, Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_ir::{Bindings, Graph, HostTensor, Symbol, WeightSource};
use mlxcel_runtime_mlx::{Device, Graphs, Options};
use std::sync::Arc;

/// What goes wrong where nothing of ours may.
pub type Fault = Box<dyn std::error::Error>;

/// A session and the name of what executes it.
pub type Named = (&'static str, Box<dyn Session>);

/// The weights' seed.
const SEED: u64 = 11;

/// A decoder that can be run step by step.
#[derive(Clone)]
pub struct Decoder {
    /// With the logits and the most likely token after the last token.
    pub last: Graph,
    /// With logits after each token.
    pub all: Graph,
    /// The weights of every [`Form`].
    pub weights: Arc<dyn WeightSource>,
}

impl Decoder {
    /// The decoder of a head, with or without an adapter of scale 0.
    ///
    /// # Errors
    /// If the graph cannot be built.
    pub fn new(head: Head, adapter: bool) -> Result<Self, Fault> {
        let form = Form {
            head,
            adapter,
            ..Form::default()
        };
        let last = toy::graph(form)?;
        let all = toy::graph(Form { all: true, ..form })?;
        let data = Data::new(&all, &Bindings::new(), SEED);
        let mut weights = Weights::clone(&data.weights);
        let table = weights.get_mut(toy::TABLE).cloned();
        if let (Some(copy), Some(table)) = (weights.get_mut(toy::COPY), table) {
            *copy = table;
        }
        Ok(Self {
            last,
            all,
            weights: Arc::new(weights),
        })
    }

    /// Every session over the decoder, by the name of its execution.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn sessions(&self, context: usize) -> Result<Vec<Named>, Fault> {
        let graphs = Graphs {
            last: self.last.clone(),
            all: self.all.clone(),
        };
        let mlx = |device| -> Result<Box<dyn Session>, Fault> {
            let options = Options {
                device,
                ..Options::new(context)
            };
            Ok(Box::new(MlxSession::new(
                &graphs,
                self.weights.clone(),
                options,
            )?))
        };
        let weights = self.weights.clone();
        let reference = ReferenceSession::new(&self.all, weights, context, toy::VOCABULARY)?;
        Ok(vec![
            ("reference-f32", Box::new(reference)),
            ("mlx", mlx(Device::CpuMlx)?),
            ("kernels", mlx(Device::Cpu)?),
        ])
    }
}

/// A text with what the logits after each of its tokens are.
pub struct Text {
    /// The tokens.
    pub tokens: Vec<u32>,
    exact: Observed,
    budgets: Vec<f64>,
}

impl Text {
    /// A text of `count` tokens, which follow from `seed`.
    ///
    /// # Errors
    /// If the interpreter cannot run.
    pub fn new(decoder: &Decoder, count: usize, seed: u64) -> Result<Self, Fault> {
        let tokens = tokens(count, seed);
        let (bindings, inputs) = whole(&[&tokens], count)?;
        let run = |execution: ReferenceExecution| {
            let inputs: &Inputs<'_> = &inputs;
            let outputs = execution.run(&decoder.all, &bindings, &decoder.weights, inputs)?;
            let logits = outputs
                .into_iter()
                .next()
                .ok_or("the graph has no output")?;
            Ok::<_, Fault>(logits)
        };
        let (exact, rounded) = (run(ReferenceExecution::F64)?, run(ReferenceExecution::F32)?);
        let budgets = Budgets::by_row(&decoder.all, &bindings, &exact, &rounded);
        Ok(Self {
            tokens,
            exact,
            budgets,
        })
    }

    /// How far `logits` after the token at `position` are from what they should be, as a share of what
    /// rounding explains.
    pub fn share(&self, position: usize, logits: &[f32]) -> f64 {
        match (self.exact.row(position), self.budgets.get(position)) {
            (Some(exact), Some(budget)) => {
                let found: Vec<f64> = logits.iter().map(|&x| x.into()).collect();
                Distance::between(&found, exact).relative_rms / budget
            }
            _ => f64::INFINITY,
        }
    }
}

/// `count` tokens of the small vocabulary.
pub fn tokens(count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % toy::VOCABULARY as u32
    };
    (0..count).map(next).collect()
}

/// Sizes and inputs.
pub type Given = (Bindings, Vec<(&'static str, HostTensor)>);

/// A call of the whole graph on rows of tokens from empty states, each padded at its end to `width` by
/// tokens that mean nothing.
///
/// # Errors
/// If a token or a length is no i32.
pub fn whole(rows: &[&[u32]], width: usize) -> Result<Given, Fault> {
    let batch = rows.len();
    let bindings = Bindings::new()
        .with(Symbol::B, batch)
        .with(Symbol::T, width)
        .with(Symbol::S, width);
    let mut padded = vec![];
    let mut lengths = vec![];
    for row in rows {
        let garbage = tokens(width.saturating_sub(row.len()), 99);
        for &token in row.iter().chain(&garbage) {
            padded.push(i32::try_from(token)?);
        }
        lengths.push(i32::try_from(row.len())?);
    }
    let inputs = vec![
        (step::TOKENS, HostTensor::i32([batch, width], &padded)),
        (step::START, HostTensor::i32([batch], &vec![0; batch])),
        (step::LENGTH, HostTensor::i32([batch], &lengths)),
    ];
    Ok((bindings, inputs))
}

/// Extends sequences by tokens in one step; what each row returned.
///
/// # Errors
/// What the session says.
pub fn step(
    session: &mut dyn Session,
    rows: &[(SequenceId, &[u32])],
    want: Want,
) -> Result<Vec<Vec<f32>>, SessionError> {
    let rows: Vec<Row<'_>> = rows
        .iter()
        .map(|&(sequence, tokens)| Row {
            sequence,
            tokens: Tokens::Given(tokens),
            want,
        })
        .collect();
    let ticket = session.submit(&rows)?;
    let outputs = session.wait(ticket)?;
    Ok(outputs
        .into_iter()
        .map(|output| match output {
            RowOutput::Logits(logits) => logits,
            _ => vec![],
        })
        .collect())
}
