//! Random graphs: composites and ops with a state.

use super::{Built, Generator, VOCABULARY};
use crate::{Activation, DType, Dim, Mask, Pairing, RopeScaling, StateKind, StatePart, Symbol};

/// Sizes of weights' rows that formats with groups can have, among others.
const OUTPUTS: [usize; 8] = [1, 2, 7, 31, 32, 64, 129, 256];

impl Generator<'_> {
    pub(super) fn composite(&mut self) -> Built {
        match self.tape.below(10) {
            0 => {
                let width = self.tape.of(&[1, 4, 32, 64, 128, 256]);
                let table = self.matrix(&[VOCABULARY, width]);
                Some(self.builder.embedding(self.roles.tokens, table))
            }
            1 | 2 => {
                let (x, width) = self.row()?;
                let outputs = self.tape.of(&OUTPUTS);
                let weight = self.matrix(&[outputs, width]);
                let bias = (self.tape.below(2) == 0).then(|| self.dense(&[outputs]));
                Some(self.builder.linear(x, weight, bias))
            }
            3 => self.experts(),
            4 => {
                let (x, width) = self.row()?;
                let weight = (self.tape.below(3) > 0).then(|| self.dense(&[width]));
                let epsilon = self.tape.of(&[1e-5, 1e-6, 1e-2]);
                let offset = self.tape.of(&[0.0, 1.0]);
                Some(self.builder.rms_norm(x, weight, epsilon, offset))
            }
            5 => {
                let (x, width) = self.row()?;
                let weight = (self.tape.below(3) > 0).then(|| self.dense(&[width]));
                let bias = weight
                    .filter(|_| self.tape.below(2) == 0)
                    .map(|_| self.dense(&[width]));
                let offset = self.tape.of(&[0.0, 1.0]);
                Some(self.builder.layer_norm(x, weight, bias, 1e-5, offset))
            }
            6 => self.rope(),
            7 => {
                let x = self.float()?;
                let activation = self.tape.of(Activation::ALL);
                Some(self.builder.activate(x, activation))
            }
            8 => {
                let gate = self.float()?;
                let up = self.twin(gate)?;
                let activation = self.tape.of(Activation::ALL);
                Some(self.builder.gated(gate, up, activation))
            }
            _ => {
                let (x, _) = self.row()?;
                Some(self.builder.softmax(x))
            }
        }
    }

    fn experts(&mut self) -> Built {
        let [b, t] = [Symbol::B, Symbol::T].map(Dim::Symbol);
        let x = self.pick(|ty| {
            ty.dtype.is_float()
                && ty.rank() == 3
                && ty.shape[..2] == [b, t]
                && matches!(ty.shape[2], Dim::Fixed(1..))
        })?;
        let width = self.ty(x).shape[2].fixed()?;
        let (count, chosen) = self.tape.of(&[(2, 1), (4, 2), (7, 3)]);
        // The order of exact numbers, which no rounding changes.
        let shape = vec![b, t, Dim::Fixed(count)];
        let place = self.builder.iota(2, DType::F32, shape.clone()).ok()?;
        let token = self.builder.convert(self.roles.tokens, DType::F32).ok()?;
        let token = self.builder.broadcast(token, shape, vec![0, 1]).ok()?;
        let distance = self.builder.subtract(place, token).ok()?;
        let distance = self.builder.multiply(distance, place).ok()?;
        let experts = self.builder.top_k(distance, chosen).ok()?;
        let outputs = self.tape.of(&OUTPUTS);
        let weight = self.matrix(&[count, outputs, width]);
        let bias = (self.tape.below(2) == 0).then(|| self.dense(&[count, outputs]));
        let once = self.builder.expert_linear(x, experts, weight, bias);
        if self.tape.below(2) == 0 {
            return Some(once);
        }
        let weight = self.matrix(&[count, 4, outputs]);
        Some(
            self.builder
                .expert_linear(once.ok()?, experts, weight, None),
        )
    }

    fn rope(&mut self) -> Built {
        let b = Dim::Symbol(Symbol::B);
        let x = self.pick(|ty| {
            ty.dtype.is_float()
                && ty.rank() == 4
                && ty.shape[0] == b
                && matches!(ty.shape[3], Dim::Fixed(2..))
        })?;
        let width = self.ty(x).shape[3].fixed()?;
        let pairs = width / 2;
        let dims = 2 * self.tape.of(&[pairs, pairs, pairs.div_ceil(2)]);
        let pairing = self.tape.of(Pairing::ALL);
        let start = self.tape.of(&[self.roles.start, self.roles.far]);
        let base = self.tape.of(&[1e4, 5e5, 100.0]);
        let scaling = self.tape.of(&[
            RopeScaling::None,
            RopeScaling::Linear { factor: 4.0 },
            RopeScaling::Llama3 {
                factor: 8.0,
                low: 1.0,
                high: 4.0,
                original: 64.0,
            },
            RopeScaling::Yarn {
                factor: 8.0,
                fast: 32.0,
                slow: 1.0,
                original: 64.0,
                whole: true,
            },
            RopeScaling::Factors((0..dims / 2).map(|i| 1.0 + i as f64 / 2.0).collect()),
        ]);
        let magnitude = self.tape.of(&[1.0, 1.25]);
        Some(
            self.builder
                .rope(x, start, dims, base, pairing, scaling, magnitude),
        )
    }

    pub(super) fn cached(&mut self) -> Built {
        let (roles, sizes) = (self.roles, self.sizes);
        let heads = [sizes.kv_heads, sizes.key, sizes.value];
        let (q, k, v) = (
            self.twin(roles.query)?,
            self.twin(roles.key)?,
            self.twin(roles.value)?,
        );
        let dtype = self.ty(q).dtype;
        match self.tape.below(6) {
            0 | 1 => {
                let state = self.state(StateKind::Cache, heads, dtype);
                let mask = self.tape.of(&[Mask::Causal, Mask::Causal, Mask::Full]);
                let scale = self.tape.of(&[0.125, 0.5, 1.0]);
                let window = self.tape.of(&[None, None, Some(1), Some(2), Some(16)]);
                let chunk = self.tape.of(&[None, None, None, Some(2), Some(8)]);
                let softcap = self.tape.of(&[None, None, Some(5.0), Some(30.0)]);
                let slopes = match self.tape.once_in(4) {
                    true => (0..sizes.heads)
                        .map(|h| 0.5f64.powi(h as i32 + 1))
                        .collect(),
                    false => vec![],
                };
                let sinks = self.tape.once_in(4).then(|| self.dense(&[sizes.heads]));
                Some(self.builder.attention(
                    q,
                    k,
                    v,
                    roles.start,
                    sinks,
                    state,
                    scale,
                    mask,
                    window,
                    chunk,
                    softcap,
                    slopes,
                ))
            }
            2 => {
                let window = self.tape.of(&[None, Some(1), Some(8)]);
                let scale = self.tape.of(&[0.125, 0.5]);
                Some(
                    self.builder
                        .mutual_attention(q, k, v, roles.length, scale, window),
                )
            }
            3 => {
                let state = self.state(StateKind::Cache, heads, dtype);
                let (rows, part) = self.tape.of(&[(k, StatePart::Key), (v, StatePart::Value)]);
                Some(self.builder.cache_append(rows, roles.start, state, part))
            }
            4 => self.convolution(),
            _ => self.recurrence(),
        }
    }

    fn convolution(&mut self) -> Built {
        let [b, t] = [Symbol::B, Symbol::T].map(Dim::Symbol);
        let x = self.pick(|ty| {
            ty.dtype.is_float()
                && ty.rank() == 3
                && ty.shape[..2] == [b, t]
                && matches!(ty.shape[2], Dim::Fixed(1..))
        })?;
        let ty = self.ty(x);
        let channels = ty.shape[2].fixed()?;
        let width = self.tape.of(&[2, 3, 4]);
        let weight = self.dense(&[channels, width]);
        let bias = (self.tape.below(2) == 0).then(|| self.dense(&[channels]));
        let state = self.state(StateKind::Memory, [1, width - 1, channels], ty.dtype);
        Some(
            self.builder
                .causal_convolution(x, self.roles.length, weight, bias, state),
        )
    }

    fn recurrence(&mut self) -> Built {
        let (roles, sizes) = (self.roles, self.sizes);
        let value = self.twin(roles.value)?;
        let key = self.twin(roles.key)?;
        let query = self.twin(roles.key)?;
        let dtype = self.ty(value).dtype;
        // Decays and writes stay below one, so that no memory grows without bound.
        let key = self.builder.softmax(key).ok()?;
        let decay = match self.tape.below(2) {
            0 => {
                let whole = self.builder.slice(query, 3, 0, 1, 1).ok()?;
                self.builder.sigmoid(whole).ok()?
            }
            _ => self.builder.sigmoid(query).ok()?,
        };
        let state = self.state(
            StateKind::Memory,
            [sizes.kv_heads, sizes.key, sizes.value],
            dtype,
        );
        let length = roles.length;
        let builder = &mut self.builder;
        Some(match self.tape.below(2) {
            0 => builder.recurrence(query, key, value, decay, length, state),
            _ => builder.delta_recurrence(query, key, value, decay, key, key, length, state),
        })
    }
}
