//! What every session keeps, whatever executes it: sequences are their tokens, however they came to
//! hold them.

use mlxcel_engine::{Backend, OpenOptions, Session, SessionError, open};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Ticket, Tokens, Want};
use mlxcel_test_support::golden;

/// Relative to the largest logit: what chunks of another size may change by rounding.
const ROUNDING: f32 = 1e-5;

fn row<'a>(sequence: SequenceId, tokens: &'a [u32], want: Want) -> Row<'a> {
    Row {
        sequence,
        tokens: Tokens::Given(tokens),
        want,
    }
}

fn step(session: &mut dyn Session, row: Row<'_>) -> RowOutput {
    let ticket = session.submit(&[row]).expect("a valid step");
    session.wait(ticket).expect("a step runs").remove(0)
}

fn logits(session: &mut dyn Session, sequence: SequenceId, tokens: &[u32]) -> Vec<f32> {
    match step(session, row(sequence, tokens, Want::Logits)) {
        RowOutput::Logits(logits) => logits,
        other => panic!("logits were wanted, not {other:?}"),
    }
}

#[track_caller]
fn close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    let largest = b.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let error = a
        .iter()
        .zip(b)
        .fold(0f32, |error, (a, b)| error.max((a - b).abs()));
    assert!(error <= ROUNDING * largest, "{error} of {largest}");
}

const PROMPT: [u32; 7] = [3, 1, 4, 1, 5, 9, 2];

/// The logits of `tokens` in a sequence of their own.
fn fresh(session: &mut dyn Session, tokens: &[u32]) -> Vec<f32> {
    let sequence = session.create().expect("room");
    let logits = logits(session, sequence, tokens);
    session.release(sequence).expect("it exists");
    logits
}

fn sequences_are_their_tokens(session: &mut dyn Session) {
    let expect = fresh(session, &PROMPT);
    let sequence = session.create().expect("room");
    let want_nothing = row(sequence, &PROMPT[..4], Want::Nothing);
    assert_eq!(step(session, want_nothing), RowOutput::Nothing);
    assert_eq!(session.length(sequence).unwrap(), 4);

    // A fork goes its own way.
    let fork = session.fork(sequence).expect("room");
    let other = logits(session, fork, &[8, 8]);
    close(&logits(session, sequence, &PROMPT[4..]), &expect);
    close(&other, &fresh(session, &[3, 1, 4, 1, 8, 8]));

    // What was cut off is forgotten.
    session.truncate(fork, 4).expect("it is longer");
    close(&logits(session, fork, &PROMPT[4..]), &expect);

    // What was saved comes back.
    session.truncate(fork, 5).expect("it is longer");
    let saved = session.save(fork).expect("it exists");
    session.release(fork).expect("it exists");
    let restored = session.restore(&saved).expect("it is of this session");
    assert_eq!(session.length(restored).unwrap(), 5);
    close(&logits(session, restored, &PROMPT[5..]), &expect);
    assert!(session.restore(&saved[..saved.len() / 2]).is_err());
    assert!(session.restore(b"nonsense").is_err());
    session.release(restored).expect("it exists");
    session.release(sequence).expect("it exists");
}

fn chosen_tokens_go_on(session: &mut dyn Session) {
    let best = |logits: &[f32]| {
        let mut best = 0;
        for (index, logit) in logits.iter().enumerate() {
            if *logit > logits[best] {
                best = index;
            }
        }
        best as u32
    };
    let mut tokens = PROMPT.to_vec();
    for _ in 0..4 {
        let next = best(&fresh(session, &tokens));
        tokens.push(next);
    }
    // Two steps in flight, as generation has them.
    let sequence = session.create().expect("room");
    let mut tickets: Vec<Ticket> = Vec::new();
    tickets.push(
        session
            .submit(&[row(sequence, &PROMPT, Want::Token)])
            .unwrap(),
    );
    let chosen = Row {
        sequence,
        tokens: Tokens::Chosen,
        want: Want::Token,
    };
    let mut outputs = Vec::new();
    for _ in 0..3 {
        tickets.push(session.submit(&[chosen]).unwrap());
        outputs.extend(session.wait(tickets.remove(0)).unwrap());
    }
    outputs.extend(session.wait(tickets.remove(0)).unwrap());
    let expect: Vec<RowOutput> = tokens[PROMPT.len()..]
        .iter()
        .map(|&token| RowOutput::Token(token))
        .collect();
    assert_eq!(outputs, expect);
    assert_eq!(session.length(sequence).unwrap(), PROMPT.len() + 3);
    session.release(sequence).expect("it exists");
}

fn rows_of_a_step_are_independent(session: &mut dyn Session) {
    let [a, b] = [(); 2].map(|()| session.create().expect("room"));
    let vocabulary = session.limits().vocabulary;
    let rows = [
        row(a, &PROMPT, Want::Logits),
        row(b, &PROMPT[..3], Want::AllLogits),
    ];
    let ticket = session.submit(&rows).expect("a valid step");
    let outputs = session.wait(ticket).expect("a step runs");
    let [RowOutput::Logits(whole), RowOutput::Logits(each)] = &outputs[..] else {
        panic!("logits were wanted, not {outputs:?}");
    };
    close(whole, &fresh(session, &PROMPT));
    for (length, logits) in (1..).zip(each.chunks(vocabulary)) {
        close(logits, &fresh(session, &PROMPT[..length]));
    }
    session.release(a).expect("it exists");
    session.release(b).expect("it exists");
}

fn wrong_requests_change_nothing(session: &mut dyn Session) {
    let sequence = session.create().expect("room");
    let gone = session.create().expect("room");
    session.release(gone).expect("it exists");
    let context = session.limits().context;
    let vocabulary = session.limits().vocabulary as u32;
    let long = vec![1; context + 1];
    let nothing = Want::Nothing;
    let chosen = Row {
        sequence,
        tokens: Tokens::Chosen,
        want: Want::Token,
    };
    let twice = [row(sequence, &[1], nothing), row(sequence, &[2], nothing)];
    let check = |session: &mut dyn Session, rows: &[Row<'_>], expect: fn(&SessionError) -> bool| {
        let error = session.submit(rows).expect_err("a wrong step");
        assert!(expect(&error), "{error:?}");
        assert_eq!(session.length(sequence).unwrap(), 0);
    };
    use SessionError as E;
    check(session, &[], |e| matches!(e, E::Rows { .. }));
    check(session, &twice, |e| matches!(e, E::Rows { .. }));
    check(session, &[row(sequence, &[], nothing)], |e| {
        matches!(e, E::EmptyRow)
    });
    check(session, &[chosen], |e| matches!(e, E::NothingChosen(_)));
    check(session, &[row(gone, &[1], nothing)], |e| {
        matches!(e, E::UnknownSequence(_))
    });
    check(session, &[row(sequence, &[vocabulary], nothing)], |e| {
        matches!(e, E::UnknownToken { .. })
    });
    check(session, &[row(sequence, &long, nothing)], |e| {
        matches!(e, E::ContextExceeded { .. })
    });
    assert!(matches!(
        session.truncate(sequence, 1),
        Err(E::TooShort { length: 0, to: 1 })
    ));
    assert!(matches!(session.release(gone), Err(E::UnknownSequence(_))));
    assert!(matches!(session.fork(gone), Err(E::UnknownSequence(_))));

    let first = session
        .submit(&[row(sequence, &[1], Want::Token)])
        .expect("a valid step");
    let second = session.submit(&[chosen]).expect("a valid step");
    let early = Ticket(second.0);
    assert!(matches!(session.wait(early), Err(E::TicketOrder)));
    session.wait(first).expect("a step runs");
    session.wait(second).expect("a step runs");
    // A token cut off is not chosen any more.
    session.truncate(sequence, 1).expect("it is longer");
    let error = session.submit(&[chosen]).expect_err("nothing is chosen");
    assert!(matches!(error, E::NothingChosen(_)));
    session.release(sequence).expect("it exists");
}

fn check(backend: Backend) {
    let options = OpenOptions {
        backend: Some(backend),
        ..OpenOptions::default()
    };
    for family in ["llama", "qwen3-mlx-q4-g64-bf16"] {
        let mut session = open(&golden(family), &options).expect("it opens").session;
        sequences_are_their_tokens(&mut *session);
        chosen_tokens_go_on(&mut *session);
        rows_of_a_step_are_independent(&mut *session);
        wrong_requests_change_nothing(&mut *session);
        let statistics = session.statistics();
        assert!(statistics.steps > 10 && statistics.tokens > statistics.steps);
    }
}

#[test]
fn the_interpreter() {
    check(Backend::Reference);
}

#[test]
fn mlx() {
    check(Backend::Mlx);
}
