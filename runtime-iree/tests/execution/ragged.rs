//! Steps of several sequences of different lengths, in any order with everything else that can happen to a
//! sequence, against the model by hand.

use crate::toy::{self, CONTEXT, State, VOCABULARY};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_runtime_iree::{Artifact, Device, Error, Runtime};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Something that happens; places are modulo the number of sequences.
#[derive(Clone, Debug)]
enum Event {
    Create,
    Fork(usize),
    Release(usize),
    Truncate(usize, usize),
    SaveAndRestore(usize),
    /// For each sequence that takes part, how many tokens, 0 for the chosen one, and what is wanted.
    Step(Vec<(usize, usize, usize)>),
}

const WANTS: [Want; 4] = [Want::Token, Want::Logits, Want::AllLogits, Want::Nothing];

fn event() -> impl Strategy<Value = Event> {
    let place = 0usize..64;
    let row = (place.clone(), 0usize..7, 0usize..12);
    prop_oneof![
        3 => Just(Event::Create),
        1 => place.clone().prop_map(Event::Fork),
        1 => place.clone().prop_map(Event::Release),
        1 => (place.clone(), 0usize..CONTEXT).prop_map(|(at, to)| Event::Truncate(at, to)),
        1 => place.prop_map(Event::SaveAndRestore),
        12 => prop::collection::vec(row, 1..8).prop_map(Event::Step),
    ]
}

/// A sequence as it should be.
#[derive(Clone)]
struct Expected {
    id: SequenceId,
    tokens: Vec<u32>,
    chosen: bool,
}

fn outputs(tokens: &[u32], new: usize, want: Want) -> RowOutput {
    match want {
        Want::Nothing => RowOutput::Nothing,
        Want::Token => RowOutput::Token(toy::choice(tokens)),
        Want::Logits | Want::AllLogits => {
            let all = toy::logits(tokens);
            let count = if want == Want::Logits { 1 } else { new };
            RowOutput::Logits(all[all.len() - count * VOCABULARY..].to_vec())
        }
    }
}

fn step(
    runtime: &mut Runtime,
    expected: &mut [Expected],
    wanted: &[(usize, usize, usize)],
    salt: u32,
) {
    let count = expected.len();
    let mut plans: Vec<(usize, Vec<u32>, bool, Want)> = Vec::new();
    for (number, &(at, new, want)) in wanted.iter().enumerate() {
        let at = at % count;
        let sequence = &expected[at];
        let room = CONTEXT - sequence.tokens.len();
        if room == 0 || plans.iter().any(|(other, ..)| *other == at) {
            continue;
        }
        // Most rows decode, as rows do.
        let want = WANTS[want.saturating_sub(8)];
        let chosen = new == 0 && sequence.chosen;
        let tokens = match chosen {
            true => vec![toy::choice(&sequence.tokens)],
            false => (0..new.clamp(1, room) as u32)
                .map(|index| (index * 3 + salt + number as u32) % VOCABULARY as u32)
                .collect(),
        };
        plans.push((at, tokens, chosen, want));
    }
    let rows: Vec<Row<'_>> = plans
        .iter()
        .map(|(at, tokens, chosen, want)| Row {
            sequence: expected[*at].id,
            tokens: match chosen {
                true => Tokens::Chosen,
                false => Tokens::Given(tokens),
            },
            want: *want,
        })
        .collect();
    let ticket = runtime.submit(&rows).unwrap();
    let actual = runtime.wait(ticket).unwrap();
    for ((at, new, _, want), output) in plans.iter().zip(actual) {
        let sequence = &mut expected[*at];
        sequence.tokens.extend(new);
        sequence.chosen = *want == Want::Token;
        let expect = outputs(&sequence.tokens, new.len(), *want);
        assert_eq!(output, expect, "sequence {:?}, {want:?}", sequence.id);
    }
}

fn play(runtime: &mut Runtime, state: State, events: &[Event]) {
    let mut expected: Vec<Expected> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let pick = |at: usize| at.checked_rem(expected.len());
        match event {
            Event::Create => expected.push(Expected {
                id: runtime.create().unwrap(),
                tokens: Vec::new(),
                chosen: false,
            }),
            Event::Fork(at) => {
                let Some(at) = pick(*at) else { continue };
                let id = runtime.fork(expected[at].id).unwrap();
                expected.push(Expected {
                    id,
                    ..expected[at].clone()
                });
            }
            Event::Release(at) => {
                let Some(at) = pick(*at) else { continue };
                runtime.release(expected.remove(at).id).unwrap();
            }
            Event::Truncate(at, to) => {
                let Some(at) = pick(*at) else { continue };
                let sequence = &mut expected[at];
                let to = match state {
                    State::Cache => *to.min(&sequence.tokens.len()),
                    State::Memory => 0,
                };
                sequence.chosen &= to == sequence.tokens.len();
                sequence.tokens.truncate(to);
                runtime.truncate(sequence.id, to).unwrap();
            }
            Event::SaveAndRestore(at) => {
                let Some(at) = pick(*at) else { continue };
                let saved = runtime.save(expected[at].id).unwrap();
                expected.push(Expected {
                    id: runtime.restore(&saved).unwrap(),
                    tokens: expected[at].tokens.clone(),
                    chosen: false,
                });
            }
            Event::Step(rows) if !expected.is_empty() => {
                step(runtime, &mut expected, rows, number as u32);
            }
            Event::Step(_) => {}
        }
    }
    for sequence in expected {
        assert_eq!(runtime.len(sequence.id), Ok(sequence.tokens.len()));
        runtime.release(sequence.id).unwrap();
    }
    assert_eq!(runtime.statistics().reserved_bytes, 0);
}

#[test]
fn sequences_do_not_disturb_each_other() {
    for state in [State::Cache, State::Memory] {
        let Some(folder) = toy::artifact_with(state) else {
            return;
        };
        let artifact = Artifact::open(folder.path()).unwrap();
        let device = Device::open("local-sync".parse().unwrap()).unwrap();
        let mut runner = TestRunner::new(Config {
            cases: 100,
            failure_persistence: None,
            ..Config::default()
        });
        let events = prop::collection::vec(event(), 1..40);
        runner
            .run(&events, |events| {
                let mut runtime = Runtime::new(&artifact, &device).unwrap();
                play(&mut runtime, state, &events);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn rows_share_buffers_of_the_functions_size() {
    let Some(folder) = toy::artifact() else {
        return;
    };
    let artifact = Artifact::open(folder.path()).unwrap();
    let device = Device::open("local-sync".parse().unwrap()).unwrap();
    let mut runtime = Runtime::new(&artifact, &device).unwrap();
    let row = runtime.statistics().cache_bytes;
    let mut expected: Vec<Expected> = (0..3)
        .map(|_| Expected {
            id: runtime.create().unwrap(),
            tokens: Vec::new(),
            chosen: false,
        })
        .collect();
    let mut check = |runtime: &mut Runtime, rows: &[(usize, usize, usize)], expect: usize| {
        step(runtime, &mut expected, rows, 1);
        assert_eq!(
            runtime.statistics().reserved_bytes,
            expect * row,
            "{rows:?}"
        );
    };
    // Alone, three together in four rows, one of them alone where it is, two of them in two rows.
    check(&mut runtime, &[(0, 3, 0)], 3);
    check(&mut runtime, &[(0, 1, 0), (1, 1, 0), (2, 1, 0)], 4);
    check(&mut runtime, &[(1, 1, 0)], 4);
    check(&mut runtime, &[(0, 0, 0), (1, 0, 0), (2, 0, 0)], 4);
    check(&mut runtime, &[(0, 1, 0), (2, 1, 0)], 6);
}

#[test]
fn a_step_that_fails_changes_no_sequence() {
    for state in [State::Cache, State::Memory] {
        let Some(folder) = toy::artifact_of(state, true) else {
            return;
        };
        let artifact = Artifact::open(folder.path()).unwrap();
        let device = Device::open("local-sync".parse().unwrap()).unwrap();
        let mut runtime = Runtime::new(&artifact, &device).unwrap();
        let prompts: [&[u32]; 3] = [&[1, 2, 3], &[4], &[5, 6, 7, 0, 1]];
        let sequences = prompts.map(|_| runtime.create().unwrap());
        let row = |index: usize, tokens| Row {
            sequence: sequences[index],
            tokens: Tokens::Given(tokens),
            want: Want::Logits,
        };
        for (index, tokens) in prompts.into_iter().enumerate() {
            let ticket = runtime.submit(&[row(index, tokens)]).unwrap();
            runtime.wait(ticket).unwrap();
        }
        // The third row alone is a prompt, so that it is computed before or after the two that fail.
        let rows = [row(0, &[4]), row(1, &[4]), row(2, &[1, 1, 1, 1])];
        let error = runtime.submit(&rows).unwrap_err();
        assert!(
            matches!(&error, Error::Call { function, message }
                if function.contains("faulty") && message.contains("it is faulty")),
            "{error}"
        );
        for (sequence, tokens) in sequences.into_iter().zip(prompts) {
            assert_eq!(runtime.len(sequence), Ok(tokens.len()));
        }
        let alone = runtime.submit(&rows[..1]);
        match state {
            State::Cache => {
                let expect = outputs(&[1, 2, 3, 4], 1, Want::Logits);
                assert_eq!(runtime.wait(alone.unwrap()), Ok(vec![expect]));
            }
            State::Memory => {
                assert_eq!(alone.unwrap_err(), Error::HalfDone(sequences[0].0));
                runtime.truncate(sequences[0], 0).unwrap();
                let ticket = runtime.submit(&rows[..1]).unwrap();
                let expect = outputs(&[4], 1, Want::Logits);
                assert_eq!(runtime.wait(ticket), Ok(vec![expect]));
            }
        }
    }
}
