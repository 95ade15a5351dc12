//! Sequences of tokens over an artifact: the vocabulary of [`mlxcel_ir::step`].

use crate::buffer::DeviceTensor;
use crate::function_table::{Entry, FunctionTable, LogitsOf, output_for};
use crate::layout::most_tokens;
use crate::sequence::{Chosen, Seats, Sequences};
use crate::{Artifact, Device, DeviceSpec, Error, Module, chunks};
use mlxcel_ir::DType;
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Ticket, Tokens, Want};
use std::collections::{HashSet, VecDeque};

/// An artifact on a device, and the sequences that it holds.
///
/// A compiled function returns when the device is done, so a step has run when [`Runtime::submit`]
/// returns; its outputs stay on the device until [`Runtime::wait`] reads them.
pub struct Runtime {
    // Before the module, whose memory they may share.
    sequences: Sequences,
    outstanding: VecDeque<(u64, Vec<Pending>)>,
    next_ticket: u64,
    functions: FunctionTable,
    vocabulary: usize,
    in_place: bool,
    /// On a GPU, the numbers up to the context, each at a multiple of [`NUMBER_BYTES`]: copying one there
    /// in each step would take longer than the step.
    numbers: Option<DeviceTensor>,
    module: Module,
}

/// Bytes from one number to the next: as far as compiled code may expect buffers to be aligned.
const NUMBER_BYTES: usize = 64;

/// The numbers from 0 to `last` on a device, [`NUMBER_BYTES`] apart.
fn numbers(device: &Device, last: usize) -> Result<DeviceTensor, Error> {
    let mut bytes = vec![0; (last + 1) * NUMBER_BYTES];
    for (number, place) in bytes.chunks_mut(NUMBER_BYTES).enumerate() {
        place[..4].copy_from_slice(&(number as u32).to_le_bytes());
    }
    device.upload(DType::I32, &[bytes.len() / 4], &bytes)
}

/// What a row computed and the host has not read.
enum Pending {
    Nothing,
    Token(Chosen),
    /// Logits after each token that they were wanted for.
    Logits(Vec<LogitRows>),
}

/// Some rows of the logits that a call returned.
struct LogitRows {
    tensor: DeviceTensor,
    first: usize,
    count: usize,
}

/// What a runtime holds in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// The device.
    pub device: String,
    /// Bytes of the weights.
    pub weight_bytes: usize,
    /// Bytes of the caches and memories of one sequence.
    pub cache_bytes: usize,
    /// Sequences alive.
    pub sequences: usize,
    /// Bytes of all caches and memories that there are. Sequences that take steps together share buffers
    /// of as many rows as a function of the artifact has, so this can be more than the sequences need.
    pub reserved_bytes: usize,
    /// Whether every call so far updated the caches where they stand. If not, each call copies them.
    pub in_place: bool,
}

impl Runtime {
    /// Loads an artifact on a device.
    ///
    /// # Errors
    /// As [`Artifact::load`].
    pub fn new(artifact: &Artifact, device: &Device) -> Result<Self, Error> {
        let module = artifact.load(device)?;
        let manifest = artifact.manifest();
        let numbers = match device.spec() {
            DeviceSpec::Gpu { .. } => Some(numbers(device, manifest.context)?),
            DeviceSpec::LocalTask { .. } | DeviceSpec::LocalSync => None,
        };
        Ok(Self {
            sequences: Sequences::new(
                artifact.layouts().to_vec(),
                [manifest.context, most_tokens(manifest)],
                artifact.fingerprint(),
            ),
            outstanding: VecDeque::new(),
            next_ticket: 0,
            functions: FunctionTable::new(manifest, &module)?,
            vocabulary: manifest.vocabulary,
            in_place: true,
            numbers,
            module,
        })
    }

    /// Tokens that a sequence can hold.
    pub fn context(&self) -> usize {
        self.sequences.context()
    }

    /// Entries of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The module, to call its functions directly.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// What is in memory.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            device: self.module.device().spec().to_string(),
            weight_bytes: self.module.weight_bytes(),
            cache_bytes: self.sequences.cache_bytes(),
            sequences: self.sequences.count(),
            reserved_bytes: self.sequences.reserved_bytes(),
            in_place: self.in_place,
        }
    }

    /// A new, empty sequence.
    ///
    /// # Errors
    /// [`Error::Memory`] if the device has no room for its cache.
    pub fn create(&mut self) -> Result<SequenceId, Error> {
        self.sequences.create(self.module.device())
    }

    /// A new sequence with the same tokens.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::HalfDone`], [`Error::Memory`].
    pub fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, Error> {
        self.sequences.fork(self.module.device(), sequence)
    }

    /// Forgets all tokens of a sequence but the first `length`. Where the model keeps memories, that is
    /// all of them or none; where it keeps a window of the latest tokens, only a few at the end.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::Truncate`], [`Error::TruncateMemory`], [`Error::TruncateWindow`],
    /// [`Error::Memory`].
    pub fn truncate(&mut self, sequence: SequenceId, length: usize) -> Result<(), Error> {
        self.sequences
            .truncate(self.module.device(), sequence, length)
    }

    /// Forgets a sequence. Outputs of it that were not waited for stay readable.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn release(&mut self, sequence: SequenceId) -> Result<(), Error> {
        self.sequences.release(sequence)
    }

    /// Tokens in a sequence.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`].
    pub fn len(&self, sequence: SequenceId) -> Result<usize, Error> {
        Ok(self.sequences.get(sequence)?.length)
    }

    /// The sequence as bytes, for [`Runtime::restore`] of the same artifact in any process.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::HalfDone`], [`Error::Memory`].
    pub fn save(&self, sequence: SequenceId) -> Result<Vec<u8>, Error> {
        self.sequences.save(self.module.device(), sequence)
    }

    /// A new sequence from the bytes that [`Runtime::save`] gave.
    ///
    /// # Errors
    /// [`Error::Saved`] if the bytes are not from this artifact, [`Error::Memory`].
    pub fn restore(&mut self, saved: &[u8]) -> Result<SequenceId, Error> {
        self.sequences.restore(self.module.device(), saved)
    }

    /// Extends sequences by tokens. Rows that need functions of the same size go into one call, if the
    /// artifact has functions for several rows. Nothing changes if the rows are not valid.
    ///
    /// # Errors
    /// What is wrong with the rows: [`Error::UnknownSequence`], [`Error::RepeatedSequence`],
    /// [`Error::NoTokens`], [`Error::UnknownToken`], [`Error::NothingChosen`],
    /// [`Error::ContextFull`], [`Error::NoFunction`], [`Error::HalfDone`]. [`Error::Call`] or
    /// [`Error::Memory`] if the device failed; all sequences are then unchanged, except that those with
    /// memories that were in a call are [`Error::HalfDone`] from then on.
    pub fn submit(&mut self, rows: &[Row<'_>]) -> Result<Ticket, Error> {
        self.check(rows)?;
        let works = rows.iter().map(|row| self.plan(row));
        let mut works = works.collect::<Result<Vec<_>, _>>()?;
        if let Err(error) = self.run(&mut works) {
            for work in &works {
                self.undo(work)?;
            }
            return Err(error);
        }
        let mut outputs = Vec::with_capacity(works.len());
        for work in works {
            let chosen = match &work.outcome {
                Pending::Token(chosen) => Some(chosen.clone()),
                _ => None,
            };
            self.sequences.get_mut(work.row.sequence)?.chosen = chosen;
            outputs.push(work.outcome);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.outstanding.push_back((ticket, outputs));
        Ok(Ticket(ticket))
    }

    /// The outputs of a step, one per row.
    ///
    /// # Errors
    /// [`Error::UnknownTicket`], [`Error::Memory`].
    pub fn wait(&mut self, ticket: Ticket) -> Result<Vec<RowOutput>, Error> {
        match self.outstanding.pop_front() {
            Some((oldest, outputs)) if oldest == ticket.0 => {
                outputs.iter().map(|output| self.read(output)).collect()
            }
            other => {
                self.outstanding.extend(other);
                self.outstanding.rotate_right(1);
                Err(Error::UnknownTicket(ticket.0))
            }
        }
    }

    fn check(&self, rows: &[Row<'_>]) -> Result<(), Error> {
        let mut seen = HashSet::new();
        for row in rows {
            let id = row.sequence;
            let sequence = self.sequences.whole(id)?;
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
            if new > capacity - sequence.length {
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

    /// What is to be done for a row.
    fn plan<'r>(&self, row: &Row<'r>) -> Result<Work<'r>, Error> {
        let start = self.sequences.get(row.sequence)?.length;
        let new = match row.tokens {
            Tokens::Given(tokens) => tokens.len(),
            Tokens::Chosen => 1,
        };
        let sizes = self.functions.sizes(row.want);
        let calls = chunks::plan(new, start, self.context(), &sizes)
            .ok_or_else(|| no_function(row.want))?;
        Ok(Work {
            row: *row,
            start,
            new,
            done: 0,
            touched: false,
            calls: calls.into(),
            outcome: Pending::Nothing,
        })
    }

    /// Makes the calls of all rows, as many rows at a time as there are functions for.
    fn run(&mut self, works: &mut [Work<'_>]) -> Result<(), Error> {
        while let Some((size, want)) = works.iter().find_map(Work::next) {
            let alike = |work: &&mut Work<'_>| work.next() == Some((size, want));
            let mut together: Vec<_> = works.iter_mut().filter(alike).collect();
            let function = self.functions.best(together.len(), size, want);
            let function = function.ok_or_else(|| no_function(want))?.clone();
            together.truncate(function.rows);
            self.call(&function, &mut together, want)?;
        }
        Ok(())
    }

    /// One call of a function for several rows. The cache rows that it writes count only once the
    /// sequences' lengths say so, which makes a failed call harmless where there is no memory.
    fn call(
        &mut self,
        function: &Entry,
        works: &mut [&mut Work<'_>],
        want: Want,
    ) -> Result<(), Error> {
        let ids: Vec<SequenceId> = works.iter().map(|work| work.row.sequence).collect();
        let device = self.module.device();
        let (rows, size) = (function.rows, function.tokens);
        let seats = self.sequences.gather(device, &ids, rows, size)?;
        let seat = |id: SequenceId| seats.rows.iter().position(|row| *row == Some(id));
        let mut starts = vec![0; rows];
        // A row that no one has computes one token, of which nothing is kept; so do those of sequences
        // that are not in this call, past what they hold.
        let mut lengths = vec![1; rows];
        for (row, id) in seats.rows.iter().enumerate() {
            if let Some(id) = id {
                starts[row] = self.sequences.get(*id)?.length;
            }
        }
        for work in works.iter() {
            let row = seat(work.row.sequence).ok_or_else(|| no_function(want))?;
            lengths[row] = work.count(size);
        }
        let numbers = self.numbers.as_ref();
        let integers = |values: &[usize]| {
            if let (Some(numbers), &[value]) = (numbers, values) {
                return numbers.part(value * NUMBER_BYTES, 4, &[1]);
            }
            let bytes: Vec<u8> = values
                .iter()
                .flat_map(|&value| (value as u32).to_le_bytes())
                .collect();
            device.upload(DType::I32, &[rows], &bytes)
        };
        let mut arguments = vec![
            self.tokens(&seats, works, size)?,
            integers(&starts)?,
            integers(&lengths)?,
        ];
        arguments.extend(seats.tensors.iter().cloned());
        works.iter_mut().for_each(|work| work.touched = true);
        self.sequences.touch(&seats, size);
        let mut results = self
            .module
            .call_on_device(&function.name, arguments.iter())?;

        let caches = results.split_off(function.outputs.len().min(results.len()));
        self.in_place &= self.sequences.keep(&seats, caches)?;
        let output = match want {
            Want::Nothing => None,
            _ => {
                let index = function.position(want).filter(|&at| at < results.len());
                let index = index.ok_or_else(|| no_function(want))?;
                Some(results.swap_remove(index))
            }
        };
        for work in works {
            let row = seat(work.row.sequence).ok_or_else(|| no_function(want))?;
            let count = work.count(size);
            if let Some(tensor) = &output {
                work.add(match want {
                    Want::Token => Pending::Token(Chosen {
                        tokens: tensor.clone(),
                        row,
                    }),
                    _ => Pending::Logits(vec![logits(function, tensor, row, want, count)]),
                });
            }
            work.done += count;
            work.calls.pop_front();
            self.sequences.get_mut(work.row.sequence)?.length = work.start + work.done;
        }
        Ok(())
    }

    /// The tokens of a call, `i32[B, T]`.
    fn tokens(
        &self,
        seats: &Seats,
        works: &[&mut Work<'_>],
        size: usize,
    ) -> Result<DeviceTensor, Error> {
        let device = self.module.device();
        let rows = seats.rows.len();
        let mut tokens = vec![0u32; rows * size];
        let mut chosen = Vec::new();
        for work in works {
            let id = work.row.sequence;
            let row = seats.rows.iter().position(|row| *row == Some(id));
            let row = row.ok_or_else(|| no_function(work.row.want))?;
            match work.row.tokens {
                Tokens::Given(given) => {
                    let given = &given[work.done..work.done + work.count(size)];
                    tokens[row * size..row * size + given.len()].copy_from_slice(given);
                }
                Tokens::Chosen => {
                    let choice = self.sequences.get(id)?.chosen.as_ref();
                    chosen.push((row, choice.ok_or(Error::NothingChosen(id.0))?));
                }
            }
        }
        // All rows where the call before put them: they need not come to the host.
        if let [(_, first), ..] = chosen[..]
            && chosen.len() == works.len()
            && size == 1
            && first.tokens.shape() == [rows]
            && chosen
                .iter()
                .all(|(row, choice)| choice.row == *row && choice.tokens.same_memory(&first.tokens))
        {
            return first.tokens.reshape(&[rows, 1]);
        }
        for (row, choice) in chosen {
            tokens[row * size] = read_chosen(device, choice)?;
        }
        let bytes: Vec<u8> = tokens.into_iter().flat_map(u32::to_le_bytes).collect();
        device.upload(DType::I32, &[rows, size], &bytes)
    }

    /// Takes back what a failed step did to a sequence.
    fn undo(&mut self, work: &Work<'_>) -> Result<(), Error> {
        let half_done = work.touched && self.sequences.have_memories();
        let sequence = self.sequences.get_mut(work.row.sequence)?;
        sequence.length = work.start;
        sequence.half_done |= half_done;
        Ok(())
    }

    fn read(&self, output: &Pending) -> Result<RowOutput, Error> {
        let device = self.module.device();
        match output {
            Pending::Nothing => Ok(RowOutput::Nothing),
            Pending::Token(chosen) => Ok(RowOutput::Token(read_chosen(device, chosen)?)),
            Pending::Logits(parts) => {
                let rows: usize = parts.iter().map(|part| part.count).sum();
                let mut logits = vec![0f32; rows * self.vocabulary];
                let mut rest = logits.as_mut_slice();
                for part in parts {
                    let (target, after) = rest.split_at_mut(part.count * self.vocabulary);
                    let offset = part.first * self.vocabulary * size_of::<f32>();
                    device.read(&part.tensor, offset, bytemuck::cast_slice_mut(target))?;
                    rest = after;
                }
                Ok(RowOutput::Logits(logits))
            }
        }
    }
}

/// What a step does for one row.
struct Work<'r> {
    row: Row<'r>,
    /// Tokens that the sequence held before.
    start: usize,
    /// Tokens to add.
    new: usize,
    /// Those that have been added.
    done: usize,
    /// Whether a call was given its buffers.
    touched: bool,
    /// The sizes of the calls that are left.
    calls: VecDeque<usize>,
    outcome: Pending,
}

impl Work<'_> {
    /// The size of the next call, and what it shall return.
    fn next(&self) -> Option<(usize, Want)> {
        let &size = self.calls.front()?;
        Some(match (self.row.want, self.calls.len()) {
            (Want::AllLogits, _) => (size, Want::AllLogits),
            (want, 1) => (size, want),
            _ => (size, Want::Nothing),
        })
    }

    /// Tokens that a call of this size adds.
    fn count(&self, size: usize) -> usize {
        size.min(self.new - self.done)
    }

    /// Adds what a call returned.
    fn add(&mut self, output: Pending) {
        match (&mut self.outcome, output) {
            (Pending::Logits(before), Pending::Logits(after)) => before.extend(after),
            (outcome, output) => *outcome = output,
        }
    }
}

/// Where the logits of a row are in what a function returned for `count` tokens of it.
fn logits(
    function: &Entry,
    tensor: &DeviceTensor,
    row: usize,
    want: Want,
    count: usize,
) -> LogitRows {
    let (first, count) = match (function.logits, want) {
        (Some(LogitsOf::Every), Want::AllLogits) => (row * function.tokens, count),
        (Some(LogitsOf::Every), _) => (row * function.tokens + count.saturating_sub(1), 1),
        _ => (row, 1),
    };
    LogitRows {
        tensor: tensor.clone(),
        first,
        count,
    }
}

fn read_chosen(device: &Device, chosen: &Chosen) -> Result<u32, Error> {
    let mut bytes = [0; 4];
    device.read(&chosen.tokens, chosen.row * bytes.len(), &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn no_function(want: Want) -> Error {
    Error::NoFunction {
        output: output_for(want).unwrap_or("the caches"),
    }
}
