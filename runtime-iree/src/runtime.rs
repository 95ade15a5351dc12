//! Sequences of tokens over an artifact: the vocabulary of [`mlxcel_ir::step`].

use crate::buffer::DeviceTensor;
use crate::function_table::{FunctionTable, LogitsOf, output_for};
use crate::sequence::Sequences;
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
    Token(DeviceTensor),
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
                manifest.context,
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
    /// all of them or none.
    ///
    /// # Errors
    /// [`Error::UnknownSequence`], [`Error::Truncate`], [`Error::TruncateMemory`], [`Error::Memory`].
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

    /// Extends sequences by tokens. Nothing changes if the rows are not valid.
    ///
    /// # Errors
    /// What is wrong with the rows: [`Error::UnknownSequence`], [`Error::RepeatedSequence`],
    /// [`Error::NoTokens`], [`Error::UnknownToken`], [`Error::NothingChosen`],
    /// [`Error::ContextFull`], [`Error::NoFunction`], [`Error::HalfDone`]. [`Error::Call`] or
    /// [`Error::Memory`] if the device failed; the row's sequence and those after it are then
    /// unchanged, except that a sequence with memories is [`Error::HalfDone`] from then on.
    pub fn submit(&mut self, rows: &[Row<'_>]) -> Result<Ticket, Error> {
        self.check(rows)?;
        let outputs = rows
            .iter()
            .map(|row| self.run_row(row))
            .collect::<Result<Vec<_>, _>>()?;
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

    fn run_row(&mut self, row: &Row<'_>) -> Result<Pending, Error> {
        let start = self.sequences.get(row.sequence)?.length;
        let new = match row.tokens {
            Tokens::Given(tokens) => tokens.len(),
            Tokens::Chosen => 1,
        };
        let sizes = self.functions.sizes(row.want);
        let calls = chunks::plan(new, start, self.context(), &sizes)
            .ok_or_else(|| no_function(row.want))?;
        let mut outcome = Pending::Nothing;
        let mut done = 0;
        for (index, &size) in calls.iter().enumerate() {
            let count = size.min(new - done);
            let want = match row.want {
                Want::AllLogits => Want::AllLogits,
                _ if index + 1 < calls.len() => Want::Nothing,
                want => want,
            };
            let tokens = match row.tokens {
                Tokens::Given(tokens) => {
                    let given = tokens.get(done..done + count).unwrap_or_default();
                    Input::Host(given)
                }
                Tokens::Chosen => Input::Chosen,
            };
            let output = match self.run_call(row.sequence, tokens, start + done, size, want) {
                Ok(output) => output,
                Err(error) => {
                    let memories = self.sequences.have_memories();
                    self.sequences.get_mut(row.sequence)?.half_done = memories;
                    return Err(error);
                }
            };
            outcome = match (outcome, output) {
                (Pending::Logits(mut before), Pending::Logits(after)) => {
                    before.extend(after);
                    Pending::Logits(before)
                }
                (_, output) => output,
            };
            done += count;
        }
        let sequence = self.sequences.get_mut(row.sequence)?;
        sequence.length = start + new;
        sequence.chosen = match &outcome {
            Pending::Token(token) => Some(token.clone()),
            _ => None,
        };
        Ok(outcome)
    }

    /// One call of the function for `size` tokens. The cache rows that it writes count only once the
    /// sequence's length says so, which makes a failed call harmless where there is no memory.
    fn run_call(
        &mut self,
        id: SequenceId,
        tokens: Input<'_>,
        start: usize,
        size: usize,
        want: Want,
    ) -> Result<Pending, Error> {
        let function = self
            .functions
            .find(size, want)
            .ok_or_else(|| no_function(want))?;
        let device = self.module.device();
        let sequence = self.sequences.get_mut(id)?;
        let (tokens, count) = match tokens {
            Input::Host(tokens) => {
                let padded: Vec<u8> = tokens
                    .iter()
                    .copied()
                    .chain(std::iter::repeat(0))
                    .take(size)
                    .flat_map(u32::to_le_bytes)
                    .collect();
                let tensor = device.upload(DType::I32, &[1, size], &padded)?;
                (tensor, tokens.len())
            }
            Input::Chosen => {
                let chosen = sequence.chosen.as_ref();
                let chosen = chosen.ok_or(Error::NothingChosen(id.0))?;
                (chosen.reshape(&[1, 1])?, 1)
            }
        };
        let numbers = self.numbers.as_ref();
        let scalar = |value: usize| match numbers {
            Some(numbers) => numbers.element(value * NUMBER_BYTES),
            None => device.upload(DType::I32, &[1], &(value as u32).to_le_bytes()),
        };
        let mut arguments = vec![tokens, scalar(start)?, scalar(count)?];
        arguments.extend(sequence.cache.iter().cloned());
        let mut results = self
            .module
            .call_on_device(&function.name, arguments.iter())?;

        let caches = results.split_off(function.outputs.len().min(results.len()));
        self.in_place &= sequence
            .cache
            .iter()
            .zip(&caches)
            .all(|(before, after)| before.same_memory(after));
        sequence.cache = caches;
        if want == Want::Nothing {
            return Ok(Pending::Nothing);
        }
        let tensor = function
            .position(want)
            .filter(|&index| index < results.len())
            .map(|index| results.swap_remove(index))
            .ok_or_else(|| no_function(want))?;
        if want == Want::Token {
            return Ok(Pending::Token(tensor));
        }
        let every = function.logits == Some(LogitsOf::Every);
        let (first, count) = match (every, want) {
            (true, Want::AllLogits) => (0, count),
            (true, _) => (count.saturating_sub(1), 1),
            (false, _) => (0, 1),
        };
        Ok(Pending::Logits(vec![LogitRows {
            tensor,
            first,
            count,
        }]))
    }

    fn read(&self, output: &Pending) -> Result<RowOutput, Error> {
        let device = self.module.device();
        match output {
            Pending::Nothing => Ok(RowOutput::Nothing),
            Pending::Token(token) => {
                let mut bytes = [0; 4];
                device.read(token, 0, &mut bytes)?;
                Ok(RowOutput::Token(u32::from_le_bytes(bytes)))
            }
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

/// Tokens of a call.
enum Input<'a> {
    /// From the host.
    Host(&'a [u32]),
    /// The one that the last step chose, wherever it is.
    Chosen,
}

fn no_function(want: Want) -> Error {
    Error::NoFunction {
        output: output_for(want).unwrap_or("the caches"),
    }
}
