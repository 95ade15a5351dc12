//! Random graphs: element by element.

use super::{Built, Generator};
use crate::{Comparison, DType, Op, ValueId};

impl Generator<'_> {
    pub(super) fn elementwise(&mut self) -> Built {
        match self.tape.below(8) {
            0 | 1 => {
                let x = self.float()?;
                self.unary(x)
            }
            2 | 3 => self.binary(),
            4 => {
                let comparison = self.tape.of(Comparison::ALL);
                let lhs = self.pick(|_| true)?;
                let rhs = self.twin(lhs)?;
                Some(self.builder.compare(lhs, rhs, comparison))
            }
            5 => {
                let lhs = self.pick(|ty| ty.dtype == DType::Bool)?;
                let rhs = self.twin(lhs)?;
                Some(match self.tape.below(3) {
                    0 => self.builder.and(lhs, rhs),
                    1 => self.builder.or(lhs, rhs),
                    _ => self.builder.not(lhs),
                })
            }
            6 => {
                let condition = self.pick(|ty| ty.dtype == DType::Bool)?;
                let shape = self.ty(condition).shape;
                let on_true = self.pick(|ty| ty.shape == shape)?;
                let on_false = self.twin(on_true)?;
                Some(self.builder.select(condition, on_true, on_false))
            }
            _ => {
                // A constant like a value there is, so that folding has something to fold.
                let like = self.pick(|_| true)?;
                let ty = self.ty(like);
                let values = match ty.dtype.is_float() {
                    true => &[0.0, 1.0, -0.0, 2.0, 0.1, -3.0][..],
                    false => &[0.0, 1.0],
                };
                let value = self.tape.of(values);
                Some(self.builder.constant(value, ty.dtype, ty.shape))
            }
        }
    }

    /// A function of `x`, brought to where the function is tame.
    fn unary(&mut self, x: ValueId) -> Built {
        let anywhere = [
            Op::Negate {},
            Op::Abs {},
            Op::Sin {},
            Op::Cos {},
            Op::Tanh {},
            Op::Sigmoid {},
            Op::Erf {},
            Op::Exp {},
        ];
        let positive = [Op::Log {}, Op::Log1p {}, Op::Sqrt {}, Op::Rsqrt {}];
        if self.tape.below(3) > 0 {
            let op = self.tape.of(&anywhere);
            return self.push(op, vec![x]);
        }
        let op = self.tape.of(&positive);
        let x = self.positive(x)?;
        self.push(op, vec![x])
    }

    /// `|x| + 0.5`, or `x` itself.
    fn positive(&mut self, x: ValueId) -> Option<ValueId> {
        if self.tape.once_in(4) {
            return Some(x);
        }
        let half = self.constant_like(x, 0.5)?;
        let size = self.builder.abs(x).ok()?;
        self.builder.add(size, half).ok()
    }

    fn binary(&mut self) -> Built {
        let lhs = self.pick(|ty| ty.dtype != DType::Bool)?;
        let mut rhs = self.twin(lhs)?;
        let float = self.ty(lhs).dtype.is_float();
        let op = self.tape.of(&[
            Op::Add {},
            Op::Subtract {},
            Op::Multiply {},
            Op::Divide {},
            Op::Maximum {},
            Op::Minimum {},
            Op::Power {},
        ]);
        match (&op, float) {
            (Op::Divide {}, true) => rhs = self.positive(rhs)?,
            // No integer is divided by zero, and none is raised to a power.
            (Op::Divide {}, false) => rhs = self.constant_like(lhs, 3.0)?,
            (Op::Power {}, false) => return None,
            (Op::Power {}, true) => {
                let base = self.positive(lhs)?;
                let exponent = self.builder.tanh(rhs).ok()?;
                return self.push(op, vec![base, exponent]);
            }
            _ => {}
        }
        self.push(op, vec![lhs, rhs])
    }
}
