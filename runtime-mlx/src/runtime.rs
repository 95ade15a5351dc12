//! Sequences of tokens over a model's graphs: the vocabulary of [`mlxcel_ir::step`].

use crate::Error;
use crate::evaluate::{device, threads};
use crate::fail::Fail;
use crate::options::{Graphs, Options, Statistics};
use crate::plan::Plan;
use crate::saved;
use crate::sequence::{Sequence, Sequences};
use crate::steps::{Group, Pending, group};
use mlxcel_ir::step::{LOGITS, Row, RowOutput, SequenceId, TOKEN, Ticket, Tokens};
use mlxcel_ir::{Graph, ValueId, WeightSource};
use mlxcel_kernels::Pool;
use mlxcel_mlx_sys::Stream;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// A model's graphs on a device, and the sequences that it holds.
///
/// [`Runtime::submit`] records a step and starts it; the device works on it while the caller does
/// other things, for instance submits the next step with [`Tokens::Chosen`].
pub struct Runtime {
    pub(crate) plans: Plans,
    pub(crate) stream: Stream,
    pub(crate) sequences: Sequences,
    outstanding: VecDeque<(u64, Vec<Running>)>,
    next_ticket: u64,
    options: Options,
    vocabulary: usize,
    fingerprint: u64,
    weight_bytes: usize,
}

/// A row of a step that was submitted.
struct Running {
    sequence: SequenceId,
    /// Tokens that the sequence held before.
    length: usize,
    output: Pending,
}

/// The plans of [`Graphs`], with the values of their outputs.
pub(crate) struct Plans {
    pub(crate) last: Plan,
    pub(crate) last_logits: usize,
    pub(crate) last_token: usize,
    pub(crate) all: Plan,
    pub(crate) all_logits: usize,
}

fn output(graph: &Graph, name: &str) -> Result<ValueId, Error> {
    let found = graph.outputs.iter().find(|output| output.name == name);
    found
        .map(|output| output.value)
        .ok_or_else(|| Error::Graph {
            graph: graph.name.clone(),
            reason: format!("has no output `{name}`"),
        })
}

impl Runtime {
    /// Plans the graphs, whose weights are in `source`.
    ///
    /// # Errors
    /// A weight that is missing or ill-formed, graphs that are not decoders, a device that is not
    /// there.
    pub fn new(
        graphs: &Graphs,
        source: Arc<dyn WeightSource>,
        options: Options,
    ) -> Result<Self, Error> {
        let Graphs { last, all } = graphs;
        let logits = output(last, LOGITS)?;
        let vocabulary = last
            .ty(logits)
            .and_then(|ty| ty.shape.last()?.fixed())
            .filter(|&size| size > 0)
            .ok_or_else(|| Error::Graph {
                graph: last.name.clone(),
                reason: "its logits have no fixed vocabulary".into(),
            })?;
        let stream = options.device.stream()?;
        let operations = options.device.operations();
        let pool = Pool::new(threads(options.threads))
            .map_err(|error| device("starting threads")(error.into()))?;
        let pool = Arc::new(pool);
        let plan = |graph: &Graph| Plan::new(graph, &source, operations, &pool, &stream);
        let planned = (plan(last)?, plan(all)?);
        // The plans' graphs have values of their own.
        let value = |plan: &Plan, name| Ok::<_, Error>(output(&plan.graph, name)?.0 as usize);
        let plans = Plans {
            last_logits: value(&planned.0, LOGITS)?,
            last_token: value(&planned.0, TOKEN)?,
            all_logits: value(&planned.1, LOGITS)?,
            last: planned.0,
            all: planned.1,
        };
        if last.states != all.states || plans.last.host_states != plans.all.host_states {
            return Err(Error::Graph {
                graph: all.name.clone(),
                reason: format!("has other states than `{}`", last.name),
            });
        }
        Ok(Self {
            fingerprint: saved::fingerprint(last, &*source),
            weight_bytes: last.weights.iter().map(|weight| weight.bytes()).sum(),
            plans,
            stream,
            sequences: Sequences::default(),
            outstanding: VecDeque::new(),
            next_ticket: 0,
            options,
            vocabulary,
        })
    }

    /// Tokens that a sequence can hold.
    pub fn context(&self) -> usize {
        self.options.context
    }

    /// Entries of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// What computes with the weights, by format.
    pub fn routes(&self) -> Vec<crate::Route> {
        self.plans.last.routes()
    }

    /// What is in memory.
    pub fn statistics(&self) -> Statistics {
        let caches = self.sequences.all().flat_map(|sequence| &sequence.caches);
        Statistics {
            device: if self.stream.is_gpu() { "gpu" } else { "cpu" }.into(),
            weight_bytes: self.weight_bytes,
            cache_bytes: caches.map(|cache| cache.bytes()).sum(),
            sequences: self.sequences.count(),
        }
    }

    /// A new, empty sequence.
    ///
    /// # Errors
    /// None at present; memory is taken as tokens come.
    pub fn create(&mut self) -> Result<SequenceId, Error> {
        let caches = self.plans.last.empty_caches();
        Ok(self.sequences.add(Sequence::new(caches, 0)))
    }

    /// A new sequence with the same tokens. Waits for outstanding steps.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::FailedSequence`]; what an outstanding step failed with.
    pub fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, Error> {
        let original = self.sequences.sound(sequence)?;
        self.settle()?;
        let caches = original.caches.iter();
        let caches = caches.map(|cache| cache.copy(original.length));
        let copy = Sequence {
            chosen: original.chosen.clone(),
            ..Sequence::new(caches.collect(), original.length)
        };
        Ok(self.sequences.add(copy))
    }

    /// Forgets all tokens of a sequence but the first `length`. After a failed step this mends the
    /// sequence, if `length` is no more than what is certain.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::Truncate`], [`Error::FailedSequence`], and
    /// [`Error::Indivisible`] if the model has memories and `length` is neither all nor 0.
    pub fn truncate(&mut self, sequence: SequenceId, length: usize) -> Result<(), Error> {
        let kept = self.sequences.get_mut(sequence)?;
        if length > kept.length {
            return Err(Error::Truncate {
                sequence: sequence.0,
                length: kept.length,
                to: length,
            });
        }
        if let Some(intact) = kept.intact.filter(|&intact| intact < length) {
            return Err(Error::FailedSequence {
                sequence: sequence.0,
                intact,
            });
        }
        if length == kept.length && kept.intact.is_none() {
            return Ok(());
        }
        if self.plans.last.has_memories() {
            if length > 0 {
                return Err(Error::Indivisible {
                    sequence: sequence.0,
                    length: kept.length,
                    to: length,
                });
            }
            // What is on its way keeps writing to the old ones.
            kept.caches = self.plans.last.empty_caches();
        }
        kept.length = length;
        kept.chosen = None;
        kept.intact = None;
        Ok(())
    }

    /// Forgets a sequence. Outputs of it that were not waited for stay readable.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn release(&mut self, sequence: SequenceId) -> Result<(), Error> {
        self.sequences.remove(sequence)
    }

    /// Tokens in a sequence.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn len(&self, sequence: SequenceId) -> Result<usize, Error> {
        Ok(self.sequences.get(sequence)?.length)
    }

    /// The sequence as bytes, for [`Runtime::restore`] of the same model in any process. Waits for
    /// outstanding steps.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::FailedSequence`]; what an outstanding step failed with.
    pub fn save(&self, sequence: SequenceId) -> Result<Vec<u8>, Error> {
        let sequence = self.sequences.sound(sequence)?;
        self.settle()?;
        let states = &self.plans.last.graph.states;
        let parts = sequence
            .caches
            .iter()
            .zip(states)
            .map(|(cache, state)| cache.read(state, sequence.length, &self.stream))
            .collect::<Result<Vec<_>, Fail>>()
            .map_err(device("reading a cache"))?;
        Ok(saved::write(self.fingerprint, sequence.length, &parts))
    }

    /// A new sequence from the bytes that [`Runtime::save`] gave.
    ///
    /// # Errors
    /// [`Error::Saved`] if the bytes are not from this model.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<SequenceId, Error> {
        let states = &self.plans.last.graph.states;
        let (length, parts) = saved::read(bytes, self.fingerprint, self.context(), states)?;
        let empty = self.plans.last.empty_caches();
        let caches = empty
            .iter()
            .zip(states)
            .zip(&parts)
            .map(|((cache, state), parts)| cache.filled(state, parts, length))
            .collect::<Result<_, Fail>>()
            .map_err(device("filling a cache"))?;
        Ok(self.sequences.add(Sequence::new(caches, length)))
    }

    /// Extends sequences by tokens. Nothing changes if the rows are not valid. Rows with equally
    /// many tokens run as one batch.
    ///
    /// # Errors
    /// What is wrong with the rows: [`Error::UnknownSequence`], [`Error::RepeatedSequence`],
    /// [`Error::NoTokens`], [`Error::UnknownToken`], [`Error::NothingChosen`],
    /// [`Error::ContextFull`], [`Error::FailedSequence`]. Or what MLX says; sequences of batches that
    /// were not started are then unchanged.
    pub fn submit(&mut self, rows: &[Row<'_>]) -> Result<Ticket, Error> {
        self.check(rows)?;
        let running = |row: &Row<'_>| {
            Ok(Running {
                sequence: row.sequence,
                length: self.sequences.get(row.sequence)?.length,
                output: Pending::Done(Vec::new()),
            })
        };
        let mut outputs: Vec<Running> = rows.iter().map(running).collect::<Result<_, Error>>()?;
        for Group {
            tokens,
            all,
            rows: members,
        } in group(rows)
        {
            for (index, pending) in self.run_batch(rows, tokens, all, &members)? {
                outputs[index].output = pending;
            }
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.outstanding.push_back((ticket, outputs));
        Ok(Ticket(ticket))
    }

    /// The outputs of a step, one per row.
    ///
    /// # Errors
    /// [`Error::UnknownTicket`]; what the step failed with. Its sequences are then not usable before
    /// they are truncated to what was certain, see [`Error::FailedSequence`].
    pub fn wait(&mut self, ticket: Ticket) -> Result<Vec<RowOutput>, Error> {
        match self.outstanding.front() {
            Some((oldest, _)) if *oldest == ticket.0 => {}
            _ => return Err(Error::UnknownTicket(ticket.0)),
        }
        let (_, rows) = self.outstanding.pop_front().unwrap_or_default();
        let mut outputs = Ok(Vec::with_capacity(rows.len()));
        for row in rows {
            match (row.output.read(self.vocabulary, &self.stream), &mut outputs) {
                (Ok(output), Ok(outputs)) => outputs.push(output),
                (Ok(_), Err(_)) => {}
                (Err(Fail(reason)), _) => {
                    // It may have been released meanwhile, or cut to before the step.
                    if let Ok(sequence) = self.sequences.get_mut(row.sequence)
                        && sequence.length > row.length
                    {
                        sequence.fail(row.length, self.plans.last.has_memories());
                    }
                    outputs = outputs.and(Err(Error::Execution {
                        graph: self.plans.last.graph.name.clone(),
                        reason,
                    }));
                }
            }
        }
        outputs
    }

    /// Waits until no step is running.
    fn settle(&self) -> Result<(), Error> {
        self.stream
            .synchronize()
            .map_err(|error| device("waiting for outstanding steps")(error.into()))
    }

    fn check(&self, rows: &[Row<'_>]) -> Result<(), Error> {
        let mut seen = HashSet::new();
        for row in rows {
            let id = row.sequence;
            let sequence = self.sequences.sound(id)?;
            if !seen.insert(id) {
                return Err(Error::RepeatedSequence(id.0));
            }
            let new = match row.tokens {
                Tokens::Chosen if sequence.chosen.is_none() => {
                    return Err(Error::NothingChosen(id.0));
                }
                Tokens::Chosen => 1,
                Tokens::Given(tokens) => {
                    let vocabulary = self.vocabulary;
                    let unknown = tokens.iter().find(|&&token| token as usize >= vocabulary);
                    if let Some(&token) = unknown {
                        return Err(Error::UnknownToken { token, vocabulary });
                    }
                    tokens.len()
                }
            };
            if new == 0 {
                return Err(Error::NoTokens(id.0));
            }
            let capacity = self.context();
            if new > capacity.saturating_sub(sequence.length) {
                return Err(Error::ContextFull {
                    sequence: id.0,
                    length: sequence.length,
                    new,
                    capacity,
                });
            }
        }
        Ok(())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Kernels of outstanding steps read weights and caches; they hold what they read, so this
        // only keeps the threads of the pool from ending under a running step.
        let _ = self.stream.synchronize();
    }
}
