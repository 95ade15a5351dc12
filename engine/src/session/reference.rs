//! The interpreter as a session: slow, and what the other sessions are held against.

use super::{Limits, Session, SessionError, Statistics};
use mlxcel_ir::interpret::{Interpreter, States};
use mlxcel_ir::step::{self, Row, RowOutput, SequenceId, Ticket, Tokens, Want};
use mlxcel_ir::{Bindings, Graph, HostTensor, StateKind, Symbol, WeightSource};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

/// Caches grow by this many tokens at a time.
const BLOCK: usize = 64;
/// Rows that one step may have.
const ROWS: usize = 64;

/// A graph interpreted in f32, one row after the other. A step has run when `submit` returns.
pub struct ReferenceSession {
    interpreter: Interpreter<f32>,
    graph: Graph,
    limits: Limits,
    sequences: BTreeMap<SequenceId, Sequence>,
    next_sequence: u32,
    outstanding: VecDeque<(u64, Vec<RowOutput>)>,
    statistics: Statistics,
}

#[derive(Clone)]
struct Sequence {
    states: States<f32>,
    length: usize,
    /// Tokens that the caches have room for.
    capacity: usize,
    /// What the last step chose.
    chosen: Option<u32>,
}

impl ReferenceSession {
    /// A session over `graph`, whose only output is `logits` `[B, T, V]`; its weights are in `weights`.
    ///
    /// # Errors
    /// If the graph is not well formed.
    pub fn new(
        graph: &Graph,
        weights: Arc<dyn WeightSource>,
        context: usize,
        vocabulary: usize,
    ) -> Result<Self, SessionError> {
        Ok(Self {
            interpreter: Interpreter::new(graph, weights).map_err(SessionError::runtime)?,
            graph: graph.clone(),
            limits: Limits {
                context,
                vocabulary,
                rows: ROWS,
            },
            sequences: BTreeMap::new(),
            next_sequence: 0,
            outstanding: VecDeque::new(),
            statistics: Statistics::default(),
        })
    }

    fn get(&self, id: SequenceId) -> Result<&Sequence, SessionError> {
        let sequence = self.sequences.get(&id);
        sequence.ok_or(SessionError::UnknownSequence(id))
    }

    fn has_memories(&self) -> bool {
        let mut states = self.graph.states.iter();
        states.any(|state| state.kind == StateKind::Memory)
    }

    fn add(&mut self, sequence: Sequence) -> SequenceId {
        let id = SequenceId(self.next_sequence);
        self.next_sequence += 1;
        self.sequences.insert(id, sequence);
        id
    }

    /// The tokens of a row that can be run.
    fn tokens(&self, row: &Row<'_>) -> Result<Vec<u32>, SessionError> {
        let Limits {
            context,
            vocabulary,
            ..
        } = self.limits;
        let sequence = self.get(row.sequence)?;
        let tokens = match row.tokens {
            Tokens::Given(tokens) => tokens.to_vec(),
            Tokens::Chosen => match sequence.chosen {
                Some(token) => vec![token],
                None => return Err(SessionError::NothingChosen(row.sequence)),
            },
        };
        let unknown = tokens.iter().find(|&&token| token as usize >= vocabulary);
        if let Some(&token) = unknown {
            return Err(SessionError::UnknownToken { token, vocabulary });
        }
        let (length, new) = (sequence.length, tokens.len());
        match new {
            0 => Err(SessionError::EmptyRow),
            _ if new > context - length => Err(SessionError::ContextExceeded {
                length,
                new,
                context,
            }),
            _ => Ok(tokens),
        }
    }

    /// Runs `tokens` after the first `start` of a sequence; returns the logits `[T, V]` after each of
    /// them.
    fn run(
        &mut self,
        id: SequenceId,
        start: usize,
        tokens: &[u32],
    ) -> Result<Vec<f32>, SessionError> {
        let sequence = self.sequences.get_mut(&id);
        let sequence = sequence.ok_or(SessionError::UnknownSequence(id))?;
        let needed = (start + tokens.len()).next_multiple_of(BLOCK);
        sequence.capacity = sequence.capacity.max(needed.min(self.limits.context));
        let bindings = Bindings::new()
            .with(Symbol::B, 1)
            .with(Symbol::T, tokens.len())
            .with(Symbol::S, sequence.capacity);
        let ids: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
        let inputs = [
            (step::TOKENS, HostTensor::i32([1, ids.len()], &ids)),
            (step::START, HostTensor::i32([1], &[start as i32])),
            (step::LENGTH, HostTensor::i32([1], &[ids.len() as i32])),
        ];
        let outputs = self
            .interpreter
            .run(&bindings, &inputs, &mut sequence.states)
            .map_err(SessionError::runtime)?;
        let logits = outputs.iter().find(|(name, _)| name == step::LOGITS);
        let (_, logits) =
            logits.ok_or_else(|| SessionError::runtime("the graph has no output `logits`"))?;
        Ok(logits.to_f32())
    }

    fn run_row(
        &mut self,
        id: SequenceId,
        tokens: &[u32],
        want: Want,
    ) -> Result<RowOutput, SessionError> {
        let start = self.get(id)?.length;
        let mut logits = self.run(id, start, tokens)?;
        if want != Want::AllLogits {
            let before = logits.len().saturating_sub(self.limits.vocabulary);
            logits.drain(..before);
        }
        Ok(match want {
            Want::Nothing => RowOutput::Nothing,
            Want::Token => RowOutput::Token(first_maximum(&logits)),
            Want::Logits | Want::AllLogits => RowOutput::Logits(logits),
        })
    }
}

/// The position of the largest number, the first of equals, as the op `argmax` says.
fn first_maximum(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    best as u32
}

impl Session for ReferenceSession {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn create(&mut self) -> Result<SequenceId, SessionError> {
        Ok(self.add(Sequence {
            states: States::new(&self.graph),
            length: 0,
            capacity: 0,
            chosen: None,
        }))
    }

    fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, SessionError> {
        let copy = self.get(sequence)?.clone();
        Ok(self.add(copy))
    }

    fn truncate(&mut self, sequence: SequenceId, to: usize) -> Result<(), SessionError> {
        let length = self.get(sequence)?.length;
        if to > length {
            return Err(SessionError::TooShort { length, to });
        }
        let memories = to < length && self.has_memories();
        if memories && to > 0 {
            return Err(SessionError::Indivisible { length, to });
        }
        if let Some(sequence) = self.sequences.get_mut(&sequence) {
            if memories {
                sequence.states = States::new(&self.graph);
                sequence.capacity = 0;
            }
            sequence.length = to;
            sequence.chosen = None;
        }
        Ok(())
    }

    fn release(&mut self, sequence: SequenceId) -> Result<(), SessionError> {
        self.get(sequence)?;
        self.sequences.remove(&sequence);
        Ok(())
    }

    fn length(&self, sequence: SequenceId) -> Result<usize, SessionError> {
        Ok(self.get(sequence)?.length)
    }

    fn save(&mut self, sequence: SequenceId) -> Result<Vec<u8>, SessionError> {
        let sequence = self.get(sequence)?;
        let mut saved = (sequence.length as u64).to_le_bytes().to_vec();
        saved.extend(sequence.states.save(&self.graph, sequence.length));
        Ok(saved)
    }

    fn restore(&mut self, saved: &[u8]) -> Result<SequenceId, SessionError> {
        let (header, states) = saved
            .split_first_chunk()
            .ok_or_else(|| SessionError::runtime("the saved sequence has no header"))?;
        let length = u64::from_le_bytes(*header) as usize;
        // The caches were saved at the sequence's length, which they state first of rows and tokens.
        let tokens = states.get(8..16);
        if length > self.limits.context || tokens != Some(&header[..]) && length > 0 {
            return Err(SessionError::runtime(
                "the saved sequence is of another model",
            ));
        }
        let states = States::restore(&self.graph, states).map_err(SessionError::runtime)?;
        Ok(self.add(Sequence {
            states,
            length,
            capacity: length,
            chosen: None,
        }))
    }

    fn submit(&mut self, rows: &[Row<'_>]) -> Result<Ticket, SessionError> {
        let mut seen = HashSet::new();
        let distinct = rows.iter().all(|row| seen.insert(row.sequence));
        if rows.is_empty() || rows.len() > ROWS || !distinct {
            return Err(SessionError::Rows { most: ROWS });
        }
        let tokens: Vec<Vec<u32>> = rows
            .iter()
            .map(|row| self.tokens(row))
            .collect::<Result<_, _>>()?;
        // What a failed row did to memories is undone; caches past the length mean nothing anyway.
        let before: Vec<(SequenceId, States<f32>)> = match self.has_memories() {
            true => rows
                .iter()
                .map(|row| Ok((row.sequence, self.get(row.sequence)?.states.clone())))
                .collect::<Result<_, SessionError>>()?,
            false => Vec::new(),
        };
        let outputs = rows
            .iter()
            .zip(&tokens)
            .map(|(row, tokens)| self.run_row(row.sequence, tokens, row.want))
            .collect::<Result<Vec<RowOutput>, _>>();
        let outputs = match outputs {
            Ok(outputs) => outputs,
            Err(error) => {
                for (id, states) in before {
                    if let Some(sequence) = self.sequences.get_mut(&id) {
                        sequence.states = states;
                    }
                }
                return Err(error);
            }
        };
        for ((row, tokens), output) in rows.iter().zip(&tokens).zip(&outputs) {
            if let Some(sequence) = self.sequences.get_mut(&row.sequence) {
                sequence.length += tokens.len();
                sequence.chosen = match output {
                    RowOutput::Token(token) => Some(*token),
                    _ => None,
                };
            }
        }
        self.statistics.count(rows);
        self.outstanding.push_back((self.statistics.steps, outputs));
        Ok(Ticket(self.statistics.steps))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Vec<RowOutput>, SessionError> {
        match self.outstanding.front() {
            Some((oldest, _)) if *oldest == ticket.0 => {
                let (_, outputs) = self.outstanding.pop_front().unwrap_or_default();
                Ok(outputs)
            }
            _ => Err(SessionError::TicketOrder),
        }
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}
