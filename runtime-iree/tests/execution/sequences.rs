//! Sequences over an artifact.

use crate::toy::{self, CONTEXT, State, VOCABULARY};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_runtime_iree::{Artifact, Device, Error, Runtime};

fn runtime() -> Option<Runtime> {
    runtime_with(State::Cache)
}

fn runtime_with(state: State) -> Option<Runtime> {
    let folder = toy::artifact_with(state)?;
    let artifact = Artifact::open(folder.path()).unwrap();
    let device = Device::open("local-task".parse().unwrap()).unwrap();
    Some(Runtime::new(&artifact, &device).unwrap())
}

fn row(sequence: SequenceId, tokens: &[u32], want: Want) -> Row<'_> {
    Row {
        sequence,
        tokens: Tokens::Given(tokens),
        want,
    }
}

fn step(runtime: &mut Runtime, row: Row<'_>) -> RowOutput {
    let ticket = runtime.submit(&[row]).unwrap();
    runtime.wait(ticket).unwrap().remove(0)
}

/// The logits after the last of `tokens`.
fn last(tokens: &[u32]) -> RowOutput {
    let all = toy::logits(tokens);
    RowOutput::Logits(all[all.len() - VOCABULARY..].to_vec())
}

const PROMPT: [u32; 11] = [3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 0];

#[test]
fn prompts_of_every_length_give_their_logits() {
    for state in [State::Cache, State::Memory] {
        prompts_give_their_logits(state);
    }
}

fn prompts_give_their_logits(state: State) {
    let Some(mut runtime) = runtime_with(state) else {
        return;
    };
    let tokens: Vec<u32> = PROMPT.iter().copied().cycle().take(CONTEXT).collect();
    for length in 1..=CONTEXT {
        let prompt = &tokens[..length];
        let check = |runtime: &mut Runtime, want, expect: RowOutput| {
            let sequence = runtime.create().unwrap();
            let output = step(runtime, row(sequence, prompt, want));
            assert_eq!(output, expect, "{length} tokens, {want:?}");
            assert_eq!(runtime.len(sequence), Ok(length));
            runtime.release(sequence).unwrap();
        };
        check(&mut runtime, Want::Nothing, RowOutput::Nothing);
        check(
            &mut runtime,
            Want::Token,
            RowOutput::Token(toy::choice(prompt)),
        );
        check(&mut runtime, Want::Logits, last(prompt));
        check(
            &mut runtime,
            Want::AllLogits,
            RowOutput::Logits(toy::logits(prompt)),
        );
    }
    assert_eq!(runtime.statistics().sequences, 0);
}

#[test]
fn chosen_tokens_need_not_be_read_before_the_next_step() {
    let Some(mut runtime) = runtime() else { return };
    let sequence = runtime.create().unwrap();
    let mut tickets = vec![
        runtime
            .submit(&[row(sequence, &PROMPT[..5], Want::Token)])
            .unwrap(),
    ];
    for _ in 0..6 {
        let chosen = Row {
            sequence,
            tokens: Tokens::Chosen,
            want: Want::Token,
        };
        tickets.push(runtime.submit(&[chosen]).unwrap());
    }
    let mut tokens = PROMPT[..5].to_vec();
    for ticket in tickets {
        let choice = toy::choice(&tokens);
        assert_eq!(runtime.wait(ticket).unwrap(), [RowOutput::Token(choice)]);
        tokens.push(choice);
    }
    assert_eq!(runtime.len(sequence), Ok(11));
    assert!(runtime.statistics().in_place, "caches were copied");
}

#[test]
fn one_step_extends_several_sequences() {
    let Some(mut runtime) = runtime() else { return };
    let [first, second] = [(); 2].map(|()| runtime.create().unwrap());
    let rows = [
        row(first, &PROMPT[..7], Want::Logits),
        row(second, &PROMPT[7..], Want::Token),
    ];
    let ticket = runtime.submit(&rows).unwrap();
    let expect = [
        last(&PROMPT[..7]),
        RowOutput::Token(toy::choice(&PROMPT[7..])),
    ];
    assert_eq!(runtime.wait(ticket).unwrap(), expect);
}

#[test]
fn forks_and_truncations_do_not_disturb_each_other() {
    let Some(mut runtime) = runtime() else { return };
    let first = runtime.create().unwrap();
    step(&mut runtime, row(first, &PROMPT[..6], Want::Token));
    let fork = runtime.fork(first).unwrap();
    assert_eq!(runtime.len(fork), Ok(6));
    // The fork knows the token that was chosen before it.
    let chosen = Row {
        sequence: fork,
        tokens: Tokens::Chosen,
        want: Want::Logits,
    };
    let mut forked = PROMPT[..6].to_vec();
    forked.push(toy::choice(&forked));
    assert_eq!(step(&mut runtime, chosen), last(&forked));
    assert_eq!(step(&mut runtime, row(first, &[7], Want::Logits)), {
        let tokens = [&PROMPT[..6], &[7]].concat();
        last(&tokens)
    });
    runtime.truncate(fork, 2).unwrap();
    let tokens = [PROMPT[0], PROMPT[1], 6];
    assert_eq!(
        step(&mut runtime, row(fork, &[6], Want::Logits)),
        last(&tokens)
    );
    assert_eq!(runtime.truncate(fork, 4), {
        Err(Error::Truncate {
            sequence: fork.0,
            length: 3,
            to: 4,
        })
    });
    runtime.release(first).unwrap();
    assert_eq!(runtime.release(first), Err(Error::UnknownSequence(first.0)));
    assert_eq!(runtime.len(fork), Ok(3));
    assert_eq!(runtime.statistics().sequences, 1);
}

#[test]
fn saved_sequences_come_back_in_another_runtime() {
    let (Some(mut runtime), Some(mut other)) = (runtime(), runtime()) else {
        return;
    };
    let sequence = runtime.create().unwrap();
    step(&mut runtime, row(sequence, &PROMPT[..7], Want::Nothing));
    let saved = runtime.save(sequence).unwrap();
    let restored = other.restore(&saved).unwrap();
    assert_eq!(other.len(restored), Ok(7));
    assert_eq!(
        step(&mut other, row(restored, &PROMPT[7..8], Want::Logits)),
        last(&PROMPT[..8])
    );

    let mut check = |saved: &[u8], expect: &str| {
        let error = other.restore(saved).unwrap_err();
        assert!(
            matches!(&error, Error::Saved(text) if text.contains(expect)),
            "{error}"
        );
    };
    check(&[], "too short");
    check(&saved[..saved.len() - 1], "bytes, and 7 tokens take");
    check(&vec![0; saved.len()], "not in this form");
    let edited = |at: usize| {
        let mut bytes = saved.clone();
        bytes[at] ^= 0x40;
        bytes
    };
    check(&edited(10), "another artifact");
    check(&edited(40), "exceed the context of 16");
    check(&edited(47), "exceed the context of 16");
    assert_eq!(other.statistics().sequences, 1);
}

#[test]
fn refuses_steps_that_cannot_be_and_stays_usable() {
    let Some(mut runtime) = runtime() else { return };
    let sequence = runtime.create().unwrap();
    step(&mut runtime, row(sequence, &PROMPT, Want::Logits));
    let absent = SequenceId(77);
    let refuse = |runtime: &mut Runtime, rows: &[Row<'_>], expect: Error| {
        assert_eq!(runtime.submit(rows).unwrap_err(), expect);
        assert_eq!(runtime.len(sequence), Ok(PROMPT.len()));
    };
    let good = row(sequence, &[1], Want::Token);
    refuse(
        &mut runtime,
        &[good, row(absent, &[1], Want::Token)],
        Error::UnknownSequence(77),
    );
    refuse(
        &mut runtime,
        &[good, good],
        Error::RepeatedSequence(sequence.0),
    );
    refuse(
        &mut runtime,
        &[row(sequence, &[], Want::Token)],
        Error::NoTokens(sequence.0),
    );
    refuse(
        &mut runtime,
        &[row(sequence, &[8], Want::Token)],
        Error::UnknownToken {
            token: 8,
            vocabulary: VOCABULARY,
        },
    );
    refuse(
        &mut runtime,
        &[row(sequence, &[0; 6], Want::Token)],
        Error::ContextFull {
            sequence: sequence.0,
            length: 11,
            new: 6,
            capacity: CONTEXT,
        },
    );
    let chosen = Row {
        sequence,
        tokens: Tokens::Chosen,
        want: Want::Token,
    };
    refuse(&mut runtime, &[chosen], Error::NothingChosen(sequence.0));
    let tokens = [&PROMPT[..], &[1]].concat();
    let output = step(&mut runtime, good);
    assert_eq!(output, RowOutput::Token(toy::choice(&tokens)));
}

#[test]
fn tickets_are_waited_for_in_order_and_once() {
    let Some(mut runtime) = runtime() else { return };
    let sequence = runtime.create().unwrap();
    let first = runtime.submit(&[row(sequence, &[1], Want::Token)]).unwrap();
    let second = runtime.submit(&[row(sequence, &[2], Want::Token)]).unwrap();
    let (number, later) = (first.0, second.0);
    assert_eq!(runtime.wait(second), Err(Error::UnknownTicket(later)));
    assert!(runtime.wait(first).is_ok());
    assert_eq!(
        runtime.wait(mlxcel_ir::step::Ticket(number)),
        Err(Error::UnknownTicket(number))
    );
    // Released sequences leave their outputs readable.
    runtime.release(sequence).unwrap();
    let output = runtime.wait(mlxcel_ir::step::Ticket(later)).unwrap();
    assert_eq!(output, [RowOutput::Token(toy::choice(&[1, 2]))]);
}

#[test]
fn memories_are_forked_saved_and_cleared_but_never_cut() {
    let Some(mut runtime) = runtime_with(State::Memory) else {
        return;
    };
    let first = runtime.create().unwrap();
    // Six tokens are a full call and a padded one, or two of one token: all leave the same memory.
    step(&mut runtime, row(first, &PROMPT[..6], Want::Nothing));
    let fork = runtime.fork(first).unwrap();
    let saved = runtime.save(first).unwrap();
    step(&mut runtime, row(first, &[7, 7], Want::Nothing));
    let restored = runtime.restore(&saved).unwrap();
    for sequence in [fork, restored] {
        let expect = last(&PROMPT[..7]);
        let output = step(&mut runtime, row(sequence, &PROMPT[6..7], Want::Logits));
        assert_eq!(output, expect);
        assert_eq!(runtime.len(sequence), Ok(7));
    }
    let cut = |sequence: SequenceId, to| Error::TruncateMemory {
        sequence: sequence.0,
        length: 7,
        to,
    };
    assert_eq!(runtime.truncate(fork, 3), Err(cut(fork, 3)));
    assert_eq!(runtime.truncate(fork, 6), Err(cut(fork, 6)));
    assert_eq!(runtime.truncate(fork, 7), Ok(()));
    let output = step(&mut runtime, row(fork, &PROMPT[7..8], Want::Logits));
    assert_eq!(output, last(&PROMPT[..8]));
    assert_eq!(runtime.truncate(fork, 0), Ok(()));
    assert_eq!(runtime.len(fork), Ok(0));
    let output = step(&mut runtime, row(fork, &PROMPT[3..5], Want::Logits));
    assert_eq!(output, last(&PROMPT[3..5]));
}

#[test]
fn the_saved_memory_of_no_tokens_is_blank() {
    let Some(mut runtime) = runtime_with(State::Memory) else {
        return;
    };
    let empty = runtime.create().unwrap();
    let saved = runtime.save(empty).unwrap();
    let restored = runtime.restore(&saved).unwrap();
    let output = step(&mut runtime, row(restored, &PROMPT[..3], Want::Logits));
    assert_eq!(output, last(&PROMPT[..3]));
    let short = runtime.restore(&saved[..saved.len() - 1]);
    assert!(matches!(short, Err(Error::Saved(_))), "{short:?}");
}
