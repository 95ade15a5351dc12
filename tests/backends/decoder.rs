//! Checks of decoders.

use std::path::Path;
use std::process::{Command, Stdio};

use libtest_mimic::Failed;
use mlxcel_engine::{Backend, OpenOptions, Session, open};
use mlxcel_frontend::{GraphOptions, Logits, Model};
use mlxcel_ir::step::{self, Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_ir::{Bindings, HostTensor, Symbol};
use mlxcel_oracle::Execution;
use mlxcel_oracle::execution::{IreeExecution, MlxExecution, ReferenceExecution};
use mlxcel_test_support::Tensors;

use crate::Faults;

/// Recorded prompts and the logits after each of their tokens.
const PROMPTS: [(&str, &str); 4] = [
    ("p1.input_ids", "p1.logits"),
    ("p9.input_ids", "p9.logits"),
    ("p45.input_ids", "p45.logits"),
    ("logits.input_ids", "logits"),
];

/// Recorded prompts and the most likely tokens after them.
const GREEDY: [(&str, &str); 4] = [
    ("p9.input_ids", "p9.greedy"),
    ("greedy0.input_ids", "greedy0.output_ids"),
    ("greedy1.input_ids", "greedy1.output_ids"),
    ("greedy2.input_ids", "greedy2.output_ids"),
];

/// The prompt whose hidden states are recorded.
const HIDDEN: &str = "p9.input_ids";

/// Those pairs of which both are recorded.
fn present<'a>(
    expected: &Tensors,
    pairs: &'a [(&'a str, &'a str)],
) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
    let names = expected.names();
    let has = move |wanted: &str| names.iter().any(|name| name == wanted);
    let pairs = pairs.iter().copied();
    pairs.filter(move |(first, second)| has(first) && has(second))
}

/// Prompts of different lengths and the most likely tokens after each, if they are recorded.
fn batch(expected: &Tensors) -> Option<[Vec<Vec<u32>>; 2]> {
    present(expected, &[("batch.input_ids", "batch.greedy")]).next()?;
    let rows = |name: &str| -> Vec<Vec<u32>> {
        let width = expected.shape(name)[1];
        let tokens = expected.tokens(name);
        tokens.chunks(width).map(<[u32]>::to_vec).collect()
    };
    // Recorded with padding, at the start.
    let masks = rows("batch.attention_mask");
    let prompts = rows("batch.input_ids").into_iter().zip(masks);
    let prompts = prompts.map(|(row, mask)| {
        let kept = row.iter().zip(mask).filter(|(_, mask)| *mask == 1);
        kept.map(|(&token, _)| token).collect()
    });
    Some([prompts.collect(), rows("batch.greedy")])
}

/// The `count` most likely tokens after each prompt, all rows in one step, chosen by the runtime.
fn greedy(
    session: &mut dyn Session,
    prompts: &[Vec<u32>],
    count: usize,
) -> Result<Vec<Vec<u32>>, Failed> {
    let sequences = prompts.iter().map(|_| session.create());
    let sequences: Vec<SequenceId> = sequences.collect::<Result<_, _>>()?;
    let mut greedy = vec![Vec::with_capacity(count); prompts.len()];
    for index in 0..count {
        let rows: Vec<Row<'_>> = sequences
            .iter()
            .zip(prompts)
            .map(|(&sequence, prompt)| Row {
                sequence,
                tokens: match index {
                    0 => Tokens::Given(prompt),
                    _ => Tokens::Chosen,
                },
                want: Want::Token,
            })
            .collect();
        let ticket = session.submit(&rows)?;
        for (row, output) in greedy.iter_mut().zip(session.wait(ticket)?) {
            match output {
                RowOutput::Token(token) => row.push(token),
                other => return Err(format!("a token was wanted, not {other:?}").into()),
            }
        }
    }
    for sequence in sequences {
        session.release(sequence)?;
    }
    Ok(greedy)
}

/// A sequence of a session, extended step by step.
struct Steps<'a> {
    session: &'a mut dyn Session,
    sequence: SequenceId,
}

impl<'a> Steps<'a> {
    fn new(session: &'a mut dyn Session) -> Result<Self, Failed> {
        let sequence = session.create()?;
        Ok(Self { session, sequence })
    }

    fn step(&mut self, tokens: Tokens<'_>, want: Want) -> Result<RowOutput, Failed> {
        let row = Row {
            sequence: self.sequence,
            tokens,
            want,
        };
        let ticket = self.session.submit(&[row])?;
        let mut outputs = self.session.wait(ticket)?;
        outputs.pop().ok_or_else(|| "a row has no output".into())
    }

    fn logits(&mut self, tokens: &[u32], want: Want) -> Result<Vec<f32>, Failed> {
        match self.step(Tokens::Given(tokens), want)? {
            RowOutput::Logits(logits) => Ok(logits),
            other => Err(format!("logits were wanted, not {other:?}").into()),
        }
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        let _ = self.session.release(self.sequence);
    }
}

/// Holds `model` on `backend` against what is recorded.
pub(crate) fn check(
    model: &Path,
    backend: Backend,
    budget: f64,
    faults: &mut Faults,
) -> Result<(), Failed> {
    let expected = &Tensors::read(&model.join("expected.safetensors"));
    let mut session = session(model, backend)?;
    let session = &mut *session;
    for (ids, name) in present(expected, &PROMPTS) {
        let tokens = expected.tokens(ids);
        let logits = expected.f32(name);
        let rows: Vec<&[f32]> = logits.values.chunks(logits.shape[1]).collect();
        let last = rows.last().ok_or("a prompt has no token")?;

        let all = Steps::new(session)?.logits(&tokens, Want::AllLogits)?;
        faults.near(
            &all,
            &logits.values,
            budget,
            &format!("{name} after each token"),
        );
        let after = Steps::new(session)?.logits(&tokens, Want::Logits)?;
        faults.near(&after, last, budget, &format!("{name} of a prompt"));

        let mut steps = Steps::new(session)?;
        let mut stepped = Vec::with_capacity(logits.values.len());
        for &token in &tokens {
            stepped.extend(steps.logits(&[token], Want::Logits)?);
        }
        faults.near(
            &stepped,
            &logits.values,
            budget,
            &format!("{name} one by one"),
        );
    }
    for (ids, name) in present(expected, &GREEDY) {
        let expect = vec![expected.tokens(name)];
        let got = greedy(session, &[expected.tokens(ids)], expect[0].len())?;
        faults.equal(got, expect, name);
    }
    if let Some([prompts, expect]) = batch(expected) {
        let got = greedy(session, &prompts, expect[0].len())?;
        faults.equal(got, expect, "batch.greedy");
    }
    check_hidden(model, backend, expected, budget, faults)
}

/// Holds `model` on `backend` against the few logits that are recorded, those at some places of a prompt,
/// and its steps against the prompt at once.
pub(crate) fn check_case(
    model: &Path,
    (ids, places, logits): (&[u32], [usize; 2], &[f32]),
    backend: Backend,
    budget: f64,
    faults: &mut Faults,
) -> Result<(), Failed> {
    let mut session = session(model, backend)?;
    let session = &mut *session;
    let all = Steps::new(session)?.logits(ids, Want::AllLogits)?;
    let width = all.len() / ids.len();
    let recorded = |all: &[f32]| {
        places
            .map(|row| all[row * width..(row + 1) * width].to_vec())
            .concat()
    };
    faults.near(&recorded(&all), logits, budget, "recorded logits");
    let mut steps = Steps::new(session)?;
    let mut stepped = Vec::with_capacity(all.len());
    for &token in ids {
        stepped.extend(steps.logits(&[token], Want::Logits)?);
    }
    faults.near(
        &recorded(&stepped),
        logits,
        budget,
        "recorded logits, one by one",
    );
    // Both may be a budget away from what is right, and in opposite directions.
    faults.near(&stepped, &all, 2.0 * budget, "one by one");
    Ok(())
}

/// The hidden states after each layer.
fn check_hidden(
    model: &Path,
    backend: Backend,
    expected: &Tensors,
    budget: f64,
    faults: &mut Faults,
) -> Result<(), Failed> {
    let model = Model::load(model)?;
    let options = GraphOptions {
        hidden: true,
        logits: Logits::All,
        ..GraphOptions::default()
    };
    let graph = model.graph(&options)?;
    let execution: &dyn Execution = match backend {
        Backend::Reference => &ReferenceExecution::F32,
        Backend::Mlx => &MlxExecution::Operations,
        Backend::Iree => &IreeExecution,
    };
    let length = 9;
    let Some((ids, _)) = present(expected, &[(HIDDEN, HIDDEN)]).next() else {
        return Ok(());
    };
    let tokens = expected.tokens(ids);
    let tokens = tokens.into_iter().map(i32::try_from);
    let tokens = tokens.collect::<Result<Vec<_>, _>>()?;
    let bindings = Bindings::new()
        .with(Symbol::B, 1)
        .with(Symbol::T, length)
        .with(Symbol::S, length);
    let inputs = [
        (step::TOKENS, HostTensor::i32([1, length], &tokens)),
        (step::START, HostTensor::i32([1], &[0])),
        (step::LENGTH, HostTensor::i32([1], &[length as i32])),
    ];
    let names = expected.names();
    for observed in execution.run(&graph, &bindings, &model.weights(), &inputs)? {
        let name = match observed.name.strip_prefix("hidden.") {
            Some(layer) => format!("p9.layer.{layer}"),
            None => format!("p9.{}", observed.name),
        };
        // Of some families the last layer's state is recorded after the norm only.
        if !names.contains(&name) {
            continue;
        }
        let values: Vec<f32> = observed.values.iter().map(|&value| value as f32).collect();
        faults.near(&values, &expected.f32(&name).values, budget, &name);
    }
    Ok(())
}

/// Opens `model` on `backend`, compiling it first where that is needed.
fn session(model: &Path, backend: Backend) -> Result<Box<dyn Session>, Failed> {
    let artifact = model.join("artifact");
    let path = match backend {
        Backend::Iree => {
            compile(model, &artifact)?;
            &artifact
        }
        Backend::Mlx | Backend::Reference => model,
    };
    let options = OpenOptions {
        backend: Some(backend),
        ..OpenOptions::default()
    };
    Ok(open(path, &options)?.session)
}

/// Compiles as users do, for a context that all recorded prompts fit.
fn compile(model: &Path, artifact: &Path) -> Result<(), Failed> {
    let context = Model::load(model)?.context().min(64).to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("compile")
        .arg(model)
        .args(["--target", "iree-cpu", "--context", &context, "-o"])
        .arg(artifact)
        .stdin(Stdio::null())
        .output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}
