//! The metamorphic level: ways to run one text that must all give the same logits.
//!
//! A text is run at once, token by token, in chunks, beside other rows, padded, forked, saved and read
//! back; a model with a copy of a table instead of the table, or with an adapter of scale 0. Each
//! result is held against the interpreter's one run of the whole text ([`crate::rows`]), so a relation
//! that two wrong ways satisfy does not hide them.

use crate::execution::{Execution, IreeExecution, MlxExecution, ReferenceExecution};
use crate::rows::{Decoder, Fault, Text, step, tokens, whole};
use crate::summary::{Failure, Level};
use crate::toy::{Head, VOCABULARY};
use mlxcel_engine::Session;
use mlxcel_ir::step::{SequenceId, Want};
use std::time::Instant;

/// Tokens of each text.
const TOKENS: usize = 48;
/// Tokens of a sequence.
const CONTEXT: usize = 64;
/// How the tokens of a text are cut into chunks.
const CHUNKS: [&[usize]; 7] = [
    &[1, 47],
    &[47, 1],
    &[8, 8, 8, 8, 8, 8],
    &[7, 9, 32],
    &[5, 1, 1, 31, 10],
    &[16, 17, 15],
    &[33, 2, 13],
];

/// Logits after the tokens of a text from a position on.
struct Seen {
    text: usize,
    position: usize,
    logits: Vec<f32>,
}

type Seens = Result<Vec<Seen>, Fault>;

/// A way to run texts in steps.
type Way = fn(&[Text], &mut dyn Session) -> Seens;

/// Every way by name.
const WAYS: [(&str, Way); 10] = [
    ("at once", |texts, session| {
        chunks(texts, session, &[TOKENS])
    }),
    ("one by one", |texts, session| {
        chunks(texts, session, &[1; TOKENS])
    }),
    ("in chunks", |texts, session| {
        let mut seen = vec![];
        for cut in CHUNKS {
            seen.extend(chunks(texts, session, cut)?);
        }
        Ok(seen)
    }),
    ("last token of chunks", last_of_chunks),
    ("rows of a batch", |texts, session| {
        batch(texts, session, &[0, 1, 2])
    }),
    ("rows of a batch, permuted", |texts, session| {
        batch(texts, session, &[2, 0, 1])
    }),
    ("prefill beside decode", mixed),
    ("forked", forked),
    ("saved and read back", saved),
    ("where another sequence was", reused),
];

/// Each text in chunks, with logits after every token.
fn chunks(texts: &[Text], session: &mut dyn Session, cut: &[usize]) -> Seens {
    let mut seen = vec![];
    for (text, Text { tokens, .. }) in texts.iter().enumerate() {
        let sequence = session.create()?;
        let mut position = 0;
        for &size in cut {
            let rows = [(sequence, &tokens[position..position + size])];
            let logits = step(session, &rows, Want::AllLogits)?.concat();
            seen.push(Seen {
                text,
                position,
                logits,
            });
            position += size;
        }
        session.release(sequence)?;
    }
    Ok(seen)
}

/// Each text in chunks, with logits after the last token of each: another graph than for all.
fn last_of_chunks(texts: &[Text], session: &mut dyn Session) -> Seens {
    let mut seen = vec![];
    for cut in CHUNKS {
        for text in 0..texts.len() {
            let sequence = session.create()?;
            let mut position = 0;
            for &size in cut {
                seen.extend(advance(
                    texts,
                    session,
                    &[(text, sequence, position, size)],
                )?);
                position += size;
            }
            session.release(sequence)?;
        }
    }
    Ok(seen)
}

/// One step: each sequence, which stands at a position of a text, by so many of the text's tokens.
fn advance(
    texts: &[Text],
    session: &mut dyn Session,
    parts: &[(usize, SequenceId, usize, usize)],
) -> Seens {
    let rows: Vec<(SequenceId, &[u32])> = parts
        .iter()
        .map(|&(text, sequence, from, count)| (sequence, &texts[text].tokens[from..from + count]))
        .collect();
    let outputs = step(session, &rows, Want::Logits)?;
    Ok(parts
        .iter()
        .zip(outputs)
        .map(|(&(text, _, from, count), logits)| Seen {
            text,
            position: from + count - 1,
            logits,
        })
        .collect())
}

/// Prefixes of different lengths in one step, then each further in common steps, until each has ended.
fn batch(texts: &[Text], session: &mut dyn Session, order: &[usize]) -> Seens {
    let lengths = [17, 1, 30];
    let mut rows = vec![];
    for &text in order {
        rows.push((text, session.create()?, 0, lengths[text]));
    }
    let sequences: Vec<SequenceId> = rows.iter().map(|row| row.1).collect();
    let mut seen = vec![];
    while !rows.is_empty() {
        seen.extend(advance(texts, session, &rows)?);
        for (_, _, position, count) in &mut rows {
            *position += *count;
            *count = 1;
        }
        // Rows end at different times.
        rows.retain(|&(text, _, position, _)| position < lengths[text] + 18 - 5 * text);
    }
    for sequence in sequences {
        session.release(sequence)?;
    }
    Ok(seen)
}

/// One row takes long chunks while the others take a token each.
fn mixed(texts: &[Text], session: &mut dyn Session) -> Seens {
    let sequences = [session.create()?, session.create()?, session.create()?];
    let mut at = [0; 3];
    let mut seen = vec![];
    for (turn, size) in [11, 13, 9, 8].into_iter().enumerate() {
        let parts: Vec<_> = (0..3)
            .map(|text| {
                let count = if text == turn % 3 { size } else { 1 };
                (text, sequences[text], at[text], count)
            })
            .collect();
        seen.extend(advance(texts, session, &parts)?);
        for (text, _, _, count) in parts {
            at[text] += count;
        }
    }
    for sequence in sequences {
        session.release(sequence)?;
    }
    Ok(seen)
}

/// A prefix that another sequence computed; what the copy then does must not reach the original.
fn forked(texts: &[Text], session: &mut dyn Session) -> Seens {
    let mut seen = vec![];
    for text in 0..texts.len() {
        let original = session.create()?;
        advance(texts, session, &[(text, original, 0, 20)])?;
        let copy = session.fork(original)?;
        let astray = session.fork(original)?;
        step(session, &[(astray, &tokens(9, 77))], Want::Logits)?;
        for position in 20..30 {
            seen.extend(advance(texts, session, &[(text, copy, position, 1)])?);
        }
        seen.extend(advance(texts, session, &[(text, original, 20, 15)])?);
        for sequence in [original, copy, astray] {
            session.release(sequence)?;
        }
    }
    Ok(seen)
}

/// A sequence that went through bytes.
fn saved(texts: &[Text], session: &mut dyn Session) -> Seens {
    let mut seen = vec![];
    for text in 0..texts.len() {
        let sequence = session.create()?;
        advance(texts, session, &[(text, sequence, 0, 23)])?;
        let bytes = session.save(sequence)?;
        session.release(sequence)?;
        let restored = session.restore(&bytes)?;
        seen.extend(advance(texts, session, &[(text, restored, 23, 1)])?);
        seen.extend(advance(texts, session, &[(text, restored, 24, 20)])?);
        session.release(restored)?;
    }
    Ok(seen)
}

/// A sequence that held other tokens before, and memory that was another sequence's.
fn reused(texts: &[Text], session: &mut dyn Session) -> Seens {
    let mut seen = vec![];
    for text in 0..texts.len() {
        let other = session.create()?;
        step(session, &[(other, &tokens(CONTEXT, 5))], Want::Logits)?;
        session.truncate(other, 0)?;
        seen.extend(advance(texts, session, &[(text, other, 0, 12)])?);
        seen.extend(advance(texts, session, &[(text, other, 12, 1)])?);
        session.release(other)?;
        let fresh = session.create()?;
        seen.extend(advance(texts, session, &[(text, fresh, 0, 29)])?);
        session.release(fresh)?;
    }
    Ok(seen)
}

/// The worst of what a way gave; an error where it could not be run.
fn worst(texts: &[Text], seen: &[Seen]) -> f64 {
    let shares = seen.iter().flat_map(|seen| {
        let rows = seen.logits.chunks(VOCABULARY).enumerate();
        rows.map(|(index, row)| texts[seen.text].share(seen.position + index, row))
    });
    // Nothing seen is nothing shown.
    shares.reduce(f64::max).unwrap_or(f64::INFINITY)
}

/// Counts one relation.
fn count(level: &mut Level, name: &str, execution: &str, share: Result<f64, Fault>) {
    match share {
        Ok(share) if share <= 1.0 => level.pass(share, || name.to_string()),
        Ok(share) => level.fail(Failure {
            execution: execution.into(),
            reason: format!("{name}: {share:.3} of the budget"),
            case: String::new(),
        }),
        Err(error) => level.fail(Failure {
            execution: execution.into(),
            reason: format!("{name}: {}", crate::known::full(&*error)),
            case: String::new(),
        }),
    }
}

/// Runs the level: steps on every session, whole graphs on every execution.
pub fn run() -> Vec<Level> {
    let prepared = || -> Result<_, Fault> {
        let decoder = Decoder::new(Head::Own, false)?;
        let texts = [1, 2, 3].map(|seed| Text::new(&decoder, TOKENS, seed));
        Ok((decoder, texts.into_iter().collect::<Result<Vec<_>, _>>()?))
    };
    let outcome = prepared().and_then(|(decoder, texts)| {
        let mut levels = steps(&decoder, &texts)?;
        levels.extend(graphs(&decoder, &texts)?);
        Ok(levels)
    });
    outcome.unwrap_or_else(|error| {
        let mut level = Level::new("relations");
        count(&mut level, "the decoder", "oracle", Err(error));
        vec![level]
    })
}

fn steps(decoder: &Decoder, texts: &[Text]) -> Result<Vec<Level>, Fault> {
    let sessions = decoder.sessions(CONTEXT)?;
    Ok(sessions
        .into_iter()
        .map(|(name, mut session)| {
            let begin = Instant::now();
            let mut level = Level::new(format!("relations of steps, {name}"));
            for (relation, way) in WAYS {
                let share = way(texts, &mut *session).map(|seen| worst(texts, &seen));
                count(&mut level, relation, name, share);
            }
            level.seconds = begin.elapsed().as_secs_f64();
            level
        })
        .collect())
}

/// A relation's name, the decoder, its texts, how many tokens of each are rows, and the width that these
/// are padded to.
type Relation<'a> = (&'a str, &'a Decoder, &'a [Text], &'a [usize], usize);

/// Relations of one call of a whole graph.
fn graphs(decoder: &Decoder, texts: &[Text]) -> Result<Vec<Level>, Fault> {
    let tied = Decoder::new(Head::Tied, false)?;
    let tied_text = [Text::new(&tied, TOKENS, 1)?];
    let copied = Decoder::new(Head::Copied, false)?;
    let adapted = Decoder::new(Head::Own, true)?;
    let relations: [Relation<'_>; 5] = [
        ("padded", decoder, texts, &[19], 33),
        ("rows of one call", decoder, texts, &[16, 1, 9], 16),
        ("tied", &tied, &tied_text, &[16], 16),
        ("a copy of the table", &copied, &tied_text, &[16], 16),
        ("an adapter of scale 0", &adapted, texts, &[16], 16),
    ];
    let executions: [&dyn Execution; 4] = [
        &ReferenceExecution::F32,
        &MlxExecution::Operations,
        &MlxExecution::Kernels,
        &IreeExecution,
    ];
    Ok(executions
        .into_iter()
        .map(|execution| {
            let begin = Instant::now();
            let name = execution.name();
            let mut level = Level::new(format!("relations of graphs, {name}"));
            for (relation, decoder, texts, lengths, width) in relations {
                let share = call(decoder, texts, lengths, width, execution);
                count(
                    &mut level,
                    relation,
                    name,
                    share.map(|seen| worst(texts, &seen)),
                );
            }
            level.seconds = begin.elapsed().as_secs_f64();
            level
        })
        .collect())
}

/// One call on the first tokens of texts, so many of each.
fn call(
    decoder: &Decoder,
    texts: &[Text],
    lengths: &[usize],
    width: usize,
    execution: &dyn Execution,
) -> Seens {
    let rows: Vec<&[u32]> = texts
        .iter()
        .zip(lengths)
        .map(|(text, &length)| &text.tokens[..length])
        .collect();
    let (bindings, inputs) = whole(&rows, width)?;
    let outputs = execution.run(&decoder.all, &bindings, &decoder.weights, &inputs)?;
    let logits = outputs.first().ok_or("the graph has no output")?;
    let rows = logits.values.chunks(width * VOCABULARY).zip(lengths);
    Ok(rows
        .enumerate()
        .map(|(text, (row, &length))| Seen {
            text,
            position: 0,
            logits: row[..length * VOCABULARY]
                .iter()
                .map(|&x| x as f32)
                .collect(),
        })
        .collect())
}
