//! Batches: the rows of a step that run as one execution of a graph.

use crate::Error;
use crate::fail::Fail;
use crate::machine::{Cache, Inputs, Machine, from_host, to_host};
use crate::plan::Plan;
use crate::runtime::Runtime;
use crate::sequence::{Chosen, Sequence};
use mlxcel_ir::step::{LENGTH, Row, RowOutput, START, TOKENS, Tokens, Want};
use mlxcel_ir::{Bindings, HostTensor, Symbol};
use mlxcel_mlx_sys::{Array, Stream, async_eval, ops};
use std::sync::Arc;

/// What a row computed and the host has not read.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// Nothing, once these are computed.
    Done(Vec<Array>),
    /// Row of `i32[B]`.
    Token(Array, usize),
    /// Row of `f32[B, ...]`.
    Logits(Array, usize),
}

/// Rows, by their place in the step, that have equally many tokens.
pub(crate) struct Group {
    pub(crate) tokens: usize,
    /// Whether logits after each token are wanted.
    pub(crate) all: bool,
    pub(crate) rows: Vec<usize>,
}

fn count(tokens: &Tokens<'_>) -> usize {
    match tokens {
        Tokens::Given(tokens) => tokens.len(),
        Tokens::Chosen => 1,
    }
}

/// The rows of a step in groups that run as one batch each.
pub(crate) fn group(rows: &[Row<'_>]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let tokens = count(&row.tokens);
        let all = row.want == Want::AllLogits;
        match groups
            .iter_mut()
            .find(|group| group.tokens == tokens && group.all == all)
        {
            Some(group) => group.rows.push(index),
            None => groups.push(Group {
                tokens,
                all,
                rows: vec![index],
            }),
        }
    }
    groups
}

impl Pending {
    /// Waits for the output and copies it to the host.
    pub(crate) fn read(&self, vocabulary: usize, stream: &Stream) -> Result<RowOutput, Fail> {
        match self {
            Pending::Done(effects) => {
                effects.iter().try_for_each(Array::wait)?;
                Ok(RowOutput::Nothing)
            }
            Pending::Token(tokens, row) => {
                let bytes = row_bytes(tokens, *row, stream)?;
                let token: [u8; 4] = bytes[..]
                    .try_into()
                    .map_err(|_| Fail("a token must have 4 bytes".into()))?;
                let token = u32::from_le_bytes(token);
                match (token as usize) < vocabulary {
                    true => Ok(RowOutput::Token(token)),
                    false => Err(Fail(format!(
                        "chose token {token}, outside of the vocabulary"
                    ))),
                }
            }
            Pending::Logits(logits, row) => {
                let bytes = row_bytes(logits, *row, stream)?;
                Ok(RowOutput::Logits(bytemuck::pod_collect_to_vec(&bytes)))
            }
        }
    }
}

/// The bytes of row `row` of `array[B, ...]`.
fn row_bytes(array: &Array, row: usize, stream: &Stream) -> Result<Vec<u8>, Fail> {
    array.wait()?;
    let rows = array
        .shape()
        .first()
        .map_or(1, |&rows| rows.max(1) as usize);
    let cut = |bytes: &[u8]| {
        let size = bytes.len() / rows;
        bytes.get(row * size..(row + 1) * size).map(<[u8]>::to_vec)
    };
    let bytes = match array.is_contiguous() {
        true => cut(array.bytes()?),
        false => cut(&to_host(array, stream)?.bytes),
    };
    bytes.ok_or_else(|| Fail(format!("there is no row {row}")))
}

impl Runtime {
    /// Runs the rows `members` of a step as one batch and returns what each will give.
    pub(crate) fn run_batch(
        &mut self,
        rows: &[Row<'_>],
        tokens: usize,
        all: bool,
        members: &[usize],
    ) -> Result<Vec<(usize, Pending)>, Error> {
        let mut taken: Vec<(usize, Sequence)> = Vec::with_capacity(members.len());
        for &index in members {
            taken.push((index, self.sequences.take(rows[index].sequence)?));
        }
        let outcome = self.run_taken(rows, members, tokens, all, &mut taken);
        for (index, sequence) in taken {
            self.sequences.put_back(rows[index].sequence, sequence);
        }
        outcome
    }

    fn run_taken(
        &self,
        rows: &[Row<'_>],
        members: &[usize],
        tokens: usize,
        all: bool,
        taken: &mut [(usize, Sequence)],
    ) -> Result<Vec<(usize, Pending)>, Error> {
        let plan = match all {
            true => &self.plans.all,
            false => &self.plans.last,
        };
        let fail = |Fail(reason)| Error::Execution {
            graph: plan.graph.name.clone(),
            reason,
        };
        let (host, values) = self.inputs(plan, rows, tokens, taken).map_err(fail)?;
        let mut machine = Machine {
            stream: &self.stream,
            bindings: Bindings::new()
                .with(Symbol::B, taken.len())
                .with(Symbol::T, tokens)
                .with(Symbol::S, self.context()),
            rows: taken.iter_mut().map(|(_, s)| &mut s.caches).collect(),
            host,
            checked: false,
            values,
        };
        // Recording replaces memories of MLX, which are values, one by one; caches are written past
        // their length, where nothing counts.
        let before: Vec<Vec<Cache>> = machine
            .rows
            .iter()
            .map(|row| {
                row.iter()
                    .filter(|cache| cache.is_memory())
                    .cloned()
                    .collect()
            })
            .collect();
        if let Err(error) = plan.record(&mut machine) {
            for (row, before) in machine.rows.into_iter().zip(before) {
                let memories = row.iter_mut().filter(|cache| cache.is_memory());
                for (memory, before) in memories.zip(before) {
                    *memory = before;
                }
            }
            return Err(error);
        }
        let wants: Vec<Want> = members.iter().map(|&index| rows[index].want).collect();
        let value = |value: usize| machine.value(value).cloned();
        let wanted = |want: Want, output: usize| match wants.contains(&want) {
            true => value(output).map(Some),
            false => Ok(None),
        };
        let logits = match all {
            true => value(self.plans.all_logits).map(Some),
            false => wanted(Want::Logits, self.plans.last_logits),
        };
        let logits = logits.map_err(fail)?;
        let chosen = match all {
            true => None,
            false => wanted(Want::Token, self.plans.last_token).map_err(fail)?,
        };
        let mut started: Vec<&Array> = logits.iter().chain(&chosen).collect();
        let effects = plan.effects.iter().map(|&effect| value(effect));
        let effects: Vec<Array> = effects.collect::<Result<_, Fail>>().map_err(fail)?;
        started.extend(effects.iter());
        let outcome = async_eval(started).map_err(|error| fail(error.into()));
        drop(machine);
        if let Err(error) = outcome {
            // How far it came is not known.
            for (_, sequence) in taken.iter_mut() {
                sequence.fail(sequence.length, plan.has_memories());
            }
            return Err(error);
        }
        let batch = Arc::new(());
        let mut outputs = Vec::with_capacity(members.len());
        for (place, (index, sequence)) in taken.iter_mut().enumerate() {
            sequence.length += tokens;
            sequence.chosen = None;
            let pending = match (wants[place], &logits, &chosen) {
                (Want::Logits | Want::AllLogits, Some(logits), _) => {
                    Pending::Logits(logits.clone(), place)
                }
                (Want::Token, _, Some(chosen)) => {
                    sequence.chosen = Some(Chosen {
                        tokens: chosen.clone(),
                        batch: batch.clone(),
                        row: place,
                    });
                    Pending::Token(chosen.clone(), place)
                }
                _ => Pending::Done(effects.clone()),
            };
            outputs.push((*index, pending));
        }
        Ok(outputs)
    }

    /// The graph's inputs for a batch: as the host knows them, and as arrays.
    fn inputs(
        &self,
        plan: &Plan,
        rows: &[Row<'_>],
        tokens: usize,
        taken: &[(usize, Sequence)],
    ) -> Result<Inputs, Fail> {
        let batch = taken.len();
        let start: Vec<i32> = taken
            .iter()
            .map(|(_, sequence)| sequence.length as i32)
            .collect();
        let inputs = &plan.graph.inputs;
        let mut host = Vec::with_capacity(inputs.len());
        let mut values = Vec::with_capacity(inputs.len() + plan.graph.nodes.len());
        for input in inputs {
            let known = match input.name.as_str() {
                START => Some(HostTensor::i32([batch], &start)),
                LENGTH => Some(HostTensor::i32([batch], &vec![tokens as i32; batch])),
                TOKENS => None,
                name => return Err(Fail(format!("an input `{name}` that no step has"))),
            };
            values.push(Some(match &known {
                Some(tensor) => from_host(tensor)?,
                None => self.tokens(rows, tokens, taken)?,
            }));
            host.push(known);
        }
        values.resize(inputs.len() + plan.graph.nodes.len(), None);
        Ok((host, values))
    }

    /// The tokens `i32[B, T]` of a batch. Chosen ones are not waited for.
    fn tokens(
        &self,
        rows: &[Row<'_>],
        tokens: usize,
        taken: &[(usize, Sequence)],
    ) -> Result<Array, Fail> {
        let stream = &self.stream;
        let shape = crate::weight::dims(&[taken.len(), tokens])?;
        let mut given = Vec::with_capacity(taken.len() * tokens);
        let mut chosen = Vec::new();
        for (index, sequence) in taken {
            match rows[*index].tokens {
                Tokens::Given(tokens) => given.extend(tokens.iter().map(|&token| token as i32)),
                Tokens::Chosen => chosen.extend(&sequence.chosen),
            }
        }
        if chosen.is_empty() {
            let bytes = bytemuck::cast_slice(&given);
            return Ok(Array::from_bytes(
                bytes,
                &shape,
                mlxcel_mlx_sys::Dtype::I32,
            )?);
        }
        // The usual case: the same rows as in the step before.
        if let [first, ..] = chosen[..]
            && chosen.len() == taken.len()
            && first.tokens.shape() == [taken.len() as i32]
            && chosen.iter().enumerate().all(|(place, chosen)| {
                chosen.row == place && Arc::ptr_eq(&chosen.batch, &first.batch)
            })
        {
            return Ok(ops::reshape(&first.tokens, &shape, stream)?);
        }
        let parts: Vec<Array> = taken
            .iter()
            .map(
                |(index, sequence)| match (rows[*index].tokens, &sequence.chosen) {
                    (Tokens::Given(tokens), _) => {
                        let tokens: Vec<i32> = tokens.iter().map(|&token| token as i32).collect();
                        let bytes = bytemuck::cast_slice(&tokens);
                        Ok(Array::from_bytes(
                            bytes,
                            &[1, 1],
                            mlxcel_mlx_sys::Dtype::I32,
                        )?)
                    }
                    (Tokens::Chosen, Some(chosen)) => {
                        let row = chosen.row as i32;
                        let token = ops::slice(&chosen.tokens, &[row], &[row + 1], &[1], stream)?;
                        Ok(ops::reshape(&token, &[1, 1], stream)?)
                    }
                    (Tokens::Chosen, None) => Err(Fail("no token was chosen".into())),
                },
            )
            .collect::<Result<_, Fail>>()?;
        Ok(ops::concatenate(&parts, 0, stream)?)
    }
}
