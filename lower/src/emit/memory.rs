//! The ops that change a memory: convolutions and recurrences over time.

use super::element::{Element, Kind, Tensor};
use super::operations::{Emitted, Operations};

impl<'c, 'a> Operations<'c, 'a> {
    /// The convolution of `x[B, T, C]` with `weight[C, W]` over time, and the new memory. What comes
    /// before is `memory[B, 1, W - 1, C]`. Computed in f32.
    pub(crate) fn convolution(
        &self,
        x: &Tensor<'c, 'a>,
        length: &Tensor<'c, 'a>,
        [weight, bias]: [Option<Tensor<'c, 'a>>; 2],
        memory: &Tensor<'c, 'a>,
    ) -> Emitted<[Tensor<'c, 'a>; 2]> {
        let weight = weight.ok_or("a convolution has a weight")?;
        let (&[rows, tokens, channels], &[_, width]) = (x.shape(), weight.shape()) else {
            return Err("a convolution is of [B, T, C] with [C, W]".into());
        };
        let past = width - 1;
        let before = self.reshape(memory, &[rows, past, channels])?;
        let before = self.convert(&before, Element::F32)?;
        let input = self.convert(x, Element::F32)?;
        let line = self.concatenate(&[&before, &input], 1)?;
        let mut sum = None;
        for tap in 0..width {
            let factor = self.slice(&weight, 1, [tap, tap + 1, 1])?;
            let factor = self.reshape(&factor, &[channels])?;
            let factor = self.broadcast(&factor, x.shape(), &[2])?;
            let seen = self.slice(&line, 1, [tap, tap + tokens, 1])?;
            let product = self.map("multiply", &[&seen, &factor])?;
            sum = Some(match sum {
                Some(sum) => self.map("add", &[&sum, &product])?,
                None => product,
            });
        }
        let mut result = sum.ok_or("a convolution has a tap")?;
        if let Some(bias) = bias {
            let bias = self.broadcast(&bias, x.shape(), &[2])?;
            result = self.map("add", &[&result, &bias])?;
        }
        // Row b keeps the inputs from place length[b] of the line on.
        let kind = Kind::new(Element::I32, [rows, past]);
        let row = self.iota(kind.clone(), 0)?;
        let stride = self.splat((past + tokens) as f64, kind.clone())?;
        let row = self.map("multiply", &[&row, &stride])?;
        let first = self.broadcast(length, &kind.shape, &[0])?;
        let place = self.iota(kind, 1)?;
        let place = self.map("add", &[&place, &first])?;
        let place = self.map("add", &[&place, &row])?;
        let flat = self.reshape(&line, &[rows * (past + tokens), channels])?;
        let kept = self.gather(&flat, &place)?;
        let kept = self.convert(&kept, memory.element())?;
        Ok([
            self.convert(&result, x.element())?,
            self.reshape(&kept, memory.shape())?,
        ])
    }

    /// A recurrence over `query`, `key`, `value`, `decay` and, for a delta rule, `erase` and `write`,
    /// and the new memory. Computed in f32.
    pub(crate) fn recurrence(
        &self,
        vectors: &[&Tensor<'c, 'a>],
        length: &Tensor<'c, 'a>,
        memory: &Tensor<'c, 'a>,
    ) -> Emitted<[Tensor<'c, 'a>; 2]> {
        let (Some(value), &[_, heads, _, width]) = (vectors.get(2), memory.shape()) else {
            return Err("a recurrence has a value and a memory of four dimensions".into());
        };
        let element = value.element();
        // A token that does not count decays nothing, writes nothing and reads nothing.
        let inputs = vectors
            .iter()
            .enumerate()
            .map(|(which, vector)| {
                let neutral = if which == DECAY { 1.0 } else { 0.0 };
                let vector = self.convert(vector, Element::F32)?;
                let real = self.real(length, vector.shape())?;
                let neutral = self.splat(neutral, vector.kind.clone())?;
                self.map("select", &[&real, &vector, &neutral])
            })
            .collect::<Emitted<Vec<_>>>()?;
        let carried = self.convert(memory, Element::F32)?;
        let (result, carried) = self.over_tokens(
            UNROLLED,
            &inputs,
            &[carried],
            &[heads, width],
            |inner, vectors, memory| {
                let (result, memory) = inner.recur_in_turn(vectors, &memory[0])?;
                Ok((result, vec![memory]))
            },
        )?;
        let carried = carried.first().ok_or("a recurrence hands on its memory")?;
        Ok([
            self.convert(&result, element)?,
            self.convert(carried, memory.element())?,
        ])
    }

    /// Whether the token counts that an element of `shape`, `[B, T, ...]`, belongs to.
    fn real(&self, length: &Tensor<'c, 'a>, shape: &[usize]) -> Emitted<Tensor<'c, 'a>> {
        let tokens = &shape[..2];
        let token = self.iota(Kind::new(Element::I32, tokens), 1)?;
        let length = self.broadcast(length, tokens, &[0])?;
        let real = self.compare("LT", &token, &length)?;
        // Else the compiler would find out each element's token where it uses it, by divisions.
        self.broadcast(&self.barrier(&real)?, shape, &[0, 1])
    }

    /// The tokens of a chunk one after the other.
    fn recur_in_turn(
        &self,
        vectors: &[Tensor<'c, 'a>],
        memory: &Tensor<'c, 'a>,
    ) -> Emitted<(Tensor<'c, 'a>, Tensor<'c, 'a>)> {
        let &[rows, heads, _, width] = memory.shape() else {
            return Err("a memory has four dimensions".into());
        };
        let tokens = vectors.first().map_or(0, |vector| vector.shape()[1]);
        let mut memory = memory.clone();
        let mut results = Vec::with_capacity(tokens);
        for token in 0..tokens {
            let parts = vectors
                .iter()
                .map(|vector| {
                    let part = self.slice(vector, 1, [token, token + 1, 1])?;
                    let mut shape = part.shape().to_vec();
                    shape.remove(1);
                    self.reshape(&part, &shape)
                })
                .collect::<Emitted<Vec<_>>>()?;
            let (result, next) = self.recur(&parts, &memory)?;
            results.push(self.reshape(&result, &[rows, 1, heads, width])?);
            memory = next;
        }
        let results: Vec<&Tensor> = results.iter().collect();
        Ok((self.concatenate(&results, 1)?, memory))
    }

    /// One token: `query · m` and the memory `m[B, H, K, V]` after it.
    fn recur(
        &self,
        vectors: &[Tensor<'c, 'a>],
        memory: &Tensor<'c, 'a>,
    ) -> Emitted<(Tensor<'c, 'a>, Tensor<'c, 'a>)> {
        let shape = memory.shape().to_vec();
        let (&[rows, heads, keys, values], [query, key, value, decay, rest @ ..]) =
            (&shape[..], vectors)
        else {
            return Err("a recurrence has at least four vectors".into());
        };
        // [B, G, K] as [B, H, K, V].
        let spread = |vector: &Tensor<'c, 'a>| {
            let groups = vector.shape()[1];
            // Without a reshape the compiler has no index to divide by, in vectors that it finds too
            // large where the memory is.
            if groups == 1 {
                let vector = self.reshape(vector, &[rows, keys])?;
                return self.broadcast(&vector, &shape, &[0, 2]);
            }
            if groups == heads {
                return self.broadcast(vector, &shape, &[0, 1, 2]);
            }
            let each = [rows, groups, heads / groups, keys];
            let each = self.broadcast(vector, &each, &[0, 1, 3])?;
            let each = self.reshape(&each, &[rows, heads, keys])?;
            self.broadcast(&each, &shape, &[0, 1, 2])
        };
        let decay = match decay.shape()[2] == keys {
            true => self.broadcast(decay, &shape, &[0, 1, 2])?,
            false => {
                let decay = self.reshape(decay, &[rows, heads])?;
                self.broadcast(&decay, &shape, &[0, 1])?
            }
        };
        // IREE 3.13 gives wrong numbers where it fuses a sum over keys with one that reads it, if keys or
        // values are more than a few vectors, the last one not full. In a loop it does not compile
        // with a barrier, so other sizes, which are those of models, have none.
        let odd = [keys, values]
            .iter()
            .any(|&size| size > 32 && size % 8 != 0);
        let alone = |sum: Tensor<'c, 'a>| match odd {
            true => self.barrier(&sum),
            false => Ok(sum),
        };
        let mut memory = self.map("multiply", &[&decay, memory])?;
        if let [erase, write] = rest {
            let read = self.map("multiply", &[&spread(erase)?, &memory])?;
            let read = self.reduce("add", "0.0", &read, &[2])?;
            let read = self.broadcast(&alone(read)?, &shape, &[0, 1, 3])?;
            let erased = self.map("multiply", &[&spread(write)?, &read])?;
            memory = self.map("subtract", &[&memory, &erased])?;
        }
        let value = self.broadcast(value, &shape, &[0, 1, 3])?;
        let written = self.map("multiply", &[&spread(key)?, &value])?;
        memory = self.map("add", &[&memory, &written])?;
        let read = self.map("multiply", &[&spread(query)?, &memory])?;
        let read = self.reduce("add", "0.0", &read, &[2])?;
        Ok((alone(read)?, memory))
    }
}

/// Tokens of a recurrence in one pass of a loop.
const UNROLLED: usize = 8;

/// The place of the decay among the vectors of a recurrence.
const DECAY: usize = 3;
