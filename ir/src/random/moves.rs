//! Random graphs: moves, selections, contractions and reductions.

use super::{Built, Generator, VOCABULARY, WIDTHS};
use crate::{DType, Dim, Reduction, Symbol};

impl Generator<'_> {
    pub(super) fn moved(&mut self) -> Built {
        let x = self.pick(|_| true)?;
        let ty = self.ty(x);
        let dim = self.tape.below(ty.rank());
        Some(match self.tape.below(9) {
            0 => {
                let mut shape = ty.shape.clone();
                match self.tape.below(3) {
                    0 => shape.insert(self.tape.below(shape.len() + 1), Dim::Fixed(1)),
                    1 => shape = flattened(&shape),
                    _ => {
                        let size = shape.get(dim)?.fixed()?;
                        let parts: Vec<usize> = (1..=size)
                            .filter(|part| size.is_multiple_of(*part))
                            .collect();
                        let part = self.tape.of(&parts);
                        shape[dim] = Dim::Fixed(size / part);
                        shape.insert(dim + 1, Dim::Fixed(part));
                    }
                }
                self.builder.reshape(x, shape)
            }
            1 => {
                let mut order: Vec<usize> = (0..ty.rank()).collect();
                for place in (1..order.len()).rev() {
                    order.swap(place, self.tape.below(place + 1));
                }
                self.builder.transpose(x, order)
            }
            2 => {
                let mut shape = ty.shape.clone();
                for dim in &mut shape {
                    if *dim == Dim::Fixed(1) {
                        *dim = Dim::Fixed(self.tape.of(&[1, 2, 33]));
                    }
                }
                let first = self.tape.below(2);
                let leading = [self.tape.of(&[Dim::Fixed(2), Dim::Symbol(Symbol::T)])];
                let shape = leading[..first].iter().copied().chain(shape).collect();
                self.builder
                    .broadcast(x, shape, (first..first + ty.rank()).collect())
            }
            3 => {
                let size = ty.shape.get(dim)?.fixed()?;
                let limit = 1 + self.tape.below(size);
                let start = self.tape.below(limit);
                let stride = self.tape.of(&[1, 1, 2, 3]);
                self.builder.slice(x, dim, start, limit, stride)
            }
            4 => {
                let other = self.twin(x)?;
                self.builder.concatenate(x, other, dim)
            }
            5 => {
                let dtype = self.tape.of(&DType::ALL);
                self.builder.convert(x, dtype)
            }
            6 => {
                let dtype = self.tape.of(&[DType::I32, DType::F32, DType::BF16]);
                self.builder.iota(dim, dtype, ty.shape)
            }
            7 => {
                let width = self.tape.of(&WIDTHS);
                let weight = self.matrix(&[3, width]);
                self.builder.parameter(weight)
            }
            _ => {
                let values = vec![0.5, -1.25, 1e-3];
                let dtype = self.tape.of(&[DType::F32, DType::BF16]);
                self.builder.table(values, dtype)
            }
        })
    }

    /// Elements chosen by indices, and indices chosen by elements.
    pub(super) fn chosen(&mut self) -> Built {
        let (tokens, length) = (self.roles.tokens, self.roles.length);
        Some(match self.tape.below(6) {
            0 => {
                let (x, width) = self.row()?;
                let count = 1 + self.tape.below(width.min(8));
                self.builder.top_k(x, count)
            }
            1 => {
                // The order of a row's elements is in range of any row as wide.
                let (x, width) = self.row()?;
                let order = self.builder.top_k(x, width).ok()?;
                let y = self.twin(x)?;
                self.builder.take_along(y, order)
            }
            2 => {
                let (x, _) = self.row()?;
                self.builder.argmax(x)
            }
            3 => {
                let table = self.pick(|ty| {
                    let rows = ty.shape.first().and_then(|dim| dim.fixed());
                    rows.is_some_and(|rows| rows >= VOCABULARY)
                })?;
                self.builder.gather(table, tokens)
            }
            4 => {
                // A row's last token that counts.
                let b = Dim::Symbol(Symbol::B);
                let t = Dim::Symbol(Symbol::T);
                let x = self.pick(|ty| ty.rank() > 1 && ty.shape[..2] == [b, t])?;
                let one = self.constant_like(length, 1.0)?;
                let last = self.builder.subtract(length, one).ok()?;
                self.builder.take_row(x, last)
            }
            _ => {
                // Words of a row by the tokens of that row.
                let x = self.pick(|ty| {
                    let width = ty.shape.last().and_then(|dim| dim.fixed());
                    ty.rank() == 2
                        && ty.shape[0] == Dim::Symbol(Symbol::B)
                        && width.is_some_and(|width| width >= VOCABULARY)
                })?;
                self.builder.take_along(x, tokens)
            }
        })
    }

    pub(super) fn contracted(&mut self) -> Built {
        Some(match self.tape.below(5) {
            0 | 1 => {
                let x = self.pick(|ty| ty.dtype != DType::Bool && ty.rank() > 0)?;
                let dim = self.tape.below(self.ty(x).rank());
                let reduction = self.tape.of(Reduction::ALL);
                self.builder.reduce(x, reduction, dim)
            }
            2 => {
                // Rows of x with rows of y, or with those of the same batch.
                let x = self.pick(|ty| ty.dtype.is_float() && (1..4).contains(&ty.rank()))?;
                let y = self.twin(x)?;
                let last = self.ty(x).rank() - 1;
                let batch: Vec<usize> = (0..last.min(self.tape.below(3))).collect();
                self.bounded_dot(x, y, batch, vec![last], vec![last])
            }
            3 => {
                // Over the first dimension, so that neither side is in the order of its memory.
                let x = self.pick(|ty| ty.dtype.is_float() && (1..4).contains(&ty.rank()))?;
                let y = self.twin(x)?;
                self.bounded_dot(x, y, vec![], vec![0], vec![0])
            }
            _ => {
                // A matrix times a matrix of another shape.
                let (x, width) = self.row()?;
                let dtype = self.ty(x).dtype;
                let y = self.pick(|ty| {
                    ty.dtype == dtype && ty.rank() == 2 && ty.shape[1] == Dim::Fixed(width)
                })?;
                let last = self.ty(x).rank() - 1;
                self.bounded_dot(x, y, vec![], vec![last], vec![1])
            }
        })
    }

    /// A contraction whose result is no larger than other values.
    fn bounded_dot(
        &mut self,
        lhs: crate::ValueId,
        rhs: crate::ValueId,
        batch: Vec<usize>,
        left: Vec<usize>,
        right: Vec<usize>,
    ) -> Result<crate::ValueId, crate::BuildError> {
        let elements = |value, shape: &Vec<usize>, contracted: &[usize]| {
            let _ = value;
            let contracted: usize = contracted.iter().map(|&dim| shape[dim]).product();
            shape.iter().product::<usize>() / contracted.max(1)
        };
        let (a, b) = (self.shape(lhs), self.shape(rhs));
        let shared: usize = batch.iter().map(|&dim| a[dim]).product();
        let size = elements(lhs, &a, &left) * elements(rhs, &b, &right) / shared.max(1);
        match size <= 4 * super::MOST {
            true => self
                .builder
                .dot(lhs, rhs, batch.clone(), batch, left, right),
            false => self.builder.multiply(lhs, lhs),
        }
    }
}

/// The same elements in one dimension for each symbol and one for all numbers.
fn flattened(shape: &[Dim]) -> Vec<Dim> {
    let numbers = shape.iter().filter_map(|dim| dim.fixed()).product();
    let symbols = shape.iter().copied().filter(|dim| dim.fixed().is_none());
    symbols.chain([Dim::Fixed(numbers)]).collect()
}
