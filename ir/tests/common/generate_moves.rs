//! Random graphs: moves, contractions and composites.

use super::*;

impl Generator<'_, '_> {
    pub(super) fn moved(&mut self) -> Built {
        let x = self.pick(|_| true)?;
        let ty = self.ty(x);
        let dim = self.tape.below(ty.rank());
        let mut order: Vec<usize> = (0..ty.rank()).collect();
        order.rotate_left(dim);
        Some(match self.tape.below(9) {
            0 => {
                let mut shape: Vec<Dim> = order.iter().map(|&dim| ty.shape[dim]).collect();
                shape.insert(self.tape.below(shape.len() + 1), Dim::Fixed(1));
                self.builder.reshape(x, shape)
            }
            1 => self.builder.transpose(x, order),
            2 => {
                let mut shape = ty.shape.clone();
                for dim in &mut shape {
                    if *dim == Dim::Fixed(1) {
                        *dim = Dim::Fixed(2);
                    }
                }
                let first = self.tape.below(2);
                let leading = [Dim::Fixed(2), Dim::Symbol(Symbol::T)];
                let shape = leading[..first].iter().copied().chain(shape).collect();
                self.builder
                    .broadcast(x, shape, (first..first + ty.rank()).collect())
            }
            3 => {
                let size = ty.shape.get(dim)?.fixed()?;
                let limit = self.tape.below(size + 1);
                let start = self.tape.below(limit + 1);
                let stride = 1 + self.tape.below(2);
                self.builder.slice(x, dim, start, limit, stride)
            }
            4 => self.builder.concatenate(x, x, dim),
            5 => {
                let dtype = self.tape.of(&DType::ALL);
                self.builder.convert(x, dtype)
            }
            6 => {
                let dtype = self.tape.of(&[DType::I32, DType::F32, DType::BF16]);
                self.builder.iota(dim, dtype, ty.shape)
            }
            7 => {
                let weight = self.weight(vec![2, 32]);
                self.builder.parameter(weight)
            }
            _ => {
                let values = vec![0.5, -1.25, 1e-3];
                self.builder.table(values, DType::F32)
            }
        })
    }

    pub(super) fn contracted(&mut self) -> Built {
        let (tokens, start) = (ValueId(3), ValueId(4));
        Some(match self.tape.below(8) {
            5 => {
                let x = self.pick(|ty| ty.dtype.is_float() && ty.rank() > 0)?;
                let width = self.ty(x).shape.last()?.fixed()?;
                let count = 1 + self.tape.below(width);
                self.builder.top_k(x, count)
            }
            6 => {
                // The order of a row's elements is in range of any row as wide.
                let x = self.pick(|ty| ty.dtype.is_float() && ty.rank() > 0)?;
                let width = self.ty(x).shape.last()?.fixed()?;
                let order = self.builder.top_k(x, width.max(1)).ok()?;
                self.builder.take_along(x, order)
            }
            7 => {
                let x = ValueId(0);
                let length = ValueId(7);
                if std::mem::replace(&mut self.memories[0], true) {
                    return None;
                }
                let weight = self.weight(vec![4, 3]);
                let bias = (self.tape.below(2) == 0).then(|| self.weight(vec![4]));
                let state = mlxcel_ir::StateId(2);
                self.builder
                    .causal_convolution(x, length, weight, bias, state)
            }
            0 => {
                let x = self.pick(|ty| ty.dtype != DType::Bool && ty.rank() > 0)?;
                let dim = self.tape.below(self.ty(x).rank());
                let reduction = self.tape.of(Reduction::ALL);
                self.builder.reduce(x, reduction, dim)
            }
            1 => {
                let x = self.pick(|ty| ty.dtype.is_float() && ty.rank() > 0)?;
                self.builder.argmax(x)
            }
            2 => {
                let x = self.pick(|ty| ty.dtype.is_float() && (1..4).contains(&ty.rank()))?;
                let last = self.ty(x).rank() - 1;
                let batch: Vec<usize> = (0..last.min(self.tape.below(2))).collect();
                self.builder
                    .dot(x, x, batch.clone(), batch, vec![last], vec![last])
            }
            3 => {
                // Tokens are below 4.
                let table = self.pick(|ty| {
                    let rows = ty.shape.first().and_then(|dim| dim.fixed());
                    rows.is_some_and(|rows| rows >= 4)
                })?;
                self.builder.gather(table, tokens)
            }
            _ => {
                let b = Dim::Symbol(Symbol::B);
                let x = self.pick(|ty| ty.rank() > 1 && ty.shape[0] == b)?;
                self.builder.take_row(x, start)
            }
        })
    }

    pub(super) fn composite(&mut self) -> Built {
        let (heads, tokens, start) = (self.ty(ValueId(1)), ValueId(3), ValueId(4));
        let activation = self.tape.of(Activation::ALL);
        match self.tape.below(13) {
            9 => {
                let x = self.float()?;
                let width = self.ty(x).shape.last()?.fixed()?;
                let weight = (self.tape.below(3) > 0).then(|| self.weight(vec![width]));
                let bias = weight.map(|_| self.weight(vec![width]));
                let offset = self.tape.of(&[0.0, 1.0]);
                Some(self.builder.layer_norm(x, weight, bias, 1e-5, offset))
            }
            10 => {
                let x = self.pick(|ty| *ty == type_of_x())?;
                let gate = self.weight(vec![4, 4]);
                let scores = self.builder.linear(x, gate, None).ok()?;
                let experts = self.builder.top_k(scores, 2).ok()?;
                let weight = self.weight(vec![4, 4, 4]);
                let once = self.builder.expert_linear(x, experts, weight, None).ok()?;
                let bias = self.weight(vec![4, 4]);
                Some(
                    self.builder
                        .expert_linear(once, experts, weight, Some(bias)),
                )
            }
            11 => {
                let q = self.pick(|ty| *ty == heads)?;
                let (k, v) = (self.twin(q)?, self.twin(q)?);
                let window = self.tape.of(&[None, Some(1)]);
                Some(
                    self.builder
                        .mutual_attention(q, k, v, ValueId(7), 0.5, window),
                )
            }
            12 => {
                let which = 1 + self.tape.below(2);
                if std::mem::replace(&mut self.memories[which], true) {
                    return None;
                }
                let query = self.pick(|ty| *ty == heads)?;
                let (key, value, decay) = (self.twin(query)?, self.twin(query)?, self.twin(query)?);
                let decay = self.builder.sigmoid(decay).ok()?;
                let (length, state) = (ValueId(7), mlxcel_ir::StateId(2 + which as u32));
                Some(match which {
                    1 => self
                        .builder
                        .recurrence(query, key, value, decay, length, state),
                    _ => {
                        let key = self.builder.sigmoid(key).ok()?;
                        let b = &mut self.builder;
                        b.delta_recurrence(query, key, value, decay, key, key, length, state)
                    }
                })
            }
            0 => {
                let width = self.tape.of(&[4, 32]);
                let table = self.weight(vec![4, width]);
                Some(self.builder.embedding(tokens, table))
            }
            1 => {
                let x = self.float()?;
                let width = self.ty(x).shape.last()?.fixed()?;
                let outputs = self.tape.of(&[4, 32]);
                let weight = self.weight(vec![outputs, width]);
                let bias = (self.tape.below(2) == 0).then(|| self.weight(vec![outputs]));
                Some(self.builder.linear(x, weight, bias))
            }
            2 => {
                let x = self.float()?;
                let width = self.ty(x).shape.last()?.fixed()?;
                let weight = self.weight(vec![width]);
                Some(self.builder.rms_norm(x, Some(weight), 1e-5, 0.0))
            }
            3 => {
                let x = self.pick(|ty| *ty == heads)?;
                let pairing = self.tape.of(Pairing::ALL);
                let dims = self.tape.of(&[2, 4]);
                let scaling = self.tape.of(&[
                    RopeScaling::None,
                    RopeScaling::Linear { factor: 2.0 },
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
                ]);
                Some(
                    self.builder
                        .rope(x, start, dims, 1e4, pairing, scaling, 1.0),
                )
            }
            4 => {
                let q = self.pick(|ty| *ty == heads)?;
                let (k, v) = (self.twin(q)?, self.twin(q)?);
                let state = self.fresh_state()?;
                let mask = self.tape.of(Mask::ALL);
                let window = self.tape.of(&[None, Some(2)]);
                let softcap = self.tape.of(&[None, Some(5.0)]);
                let chunk = self.tape.of(&[None, Some(2)]);
                let slopes = self.tape.of(&[vec![], vec![0.5, 0.25]]);
                let sinks = (self.tape.below(2) == 0).then(|| self.weight(vec![2]));
                let built = self.builder.attention(
                    q, k, v, start, sinks, state, 0.5, mask, window, chunk, softcap, slopes,
                );
                Some(built)
            }
            5 => {
                let rows = self.pick(|ty| *ty == heads)?;
                let state = self.fresh_state()?;
                let part = self.tape.of(StatePart::ALL);
                Some(self.builder.cache_append(rows, start, state, part))
            }
            6 => {
                let x = self.float()?;
                Some(self.builder.activate(x, activation))
            }
            7 => {
                let gate = self.float()?;
                let up = self.twin(gate)?;
                Some(self.builder.gated(gate, up, activation))
            }
            _ => {
                let x = self.float()?;
                Some(self.builder.softmax(x))
            }
        }
    }

    fn fresh_state(&mut self) -> Option<mlxcel_ir::StateId> {
        let state = mlxcel_ir::StateId(self.states);
        self.states += 1;
        (self.states <= 2).then_some(state)
    }
}

/// The type of the input `x`.
fn type_of_x() -> TensorType {
    inputs()[0].1.clone()
}
