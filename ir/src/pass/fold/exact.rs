//! Arithmetic that gives a result only where it is exact.

use crate::{Comparison, DType, Op};

/// Whether `value` is a finite number of type `dtype`.
pub(super) fn holds(dtype: DType, value: f64) -> bool {
    value.is_finite()
        && match dtype {
            DType::Bool => value == 0.0 || value == 1.0,
            DType::I32 => f64::from(value as i32) == value,
            DType::U32 => f64::from(value as u32) == value,
            DType::F16 => half::f16::from_f64(value).to_f64() == value,
            DType::BF16 => half::bf16::from_f64(value).to_f64() == value,
            DType::F32 => f64::from(value as f32) == value,
        }
}

/// `op(x)` where it is exact.
pub(super) fn unary(op: &Op, dtype: DType, x: f64) -> Option<f64> {
    let result = match op {
        Op::Negate {} => -x,
        Op::Abs {} => x.abs(),
        Op::Sqrt {} => {
            let root = x.sqrt();
            (root.mul_add(root, -x) == 0.0).then_some(root)?
        }
        Op::Not {} => f64::from(x == 0.0),
        _ => return None,
    };
    (holds(dtype, x) && holds(dtype, result)).then_some(result)
}

/// `op(lhs, rhs)` for operands of type `dtype`, where it is exact.
pub(super) fn binary(op: &Op, dtype: DType, lhs: f64, rhs: f64) -> Option<f64> {
    if !holds(dtype, lhs) || !holds(dtype, rhs) {
        return None;
    }
    let result = match op {
        Op::Add {} => sum(lhs, rhs)?,
        Op::Subtract {} => sum(lhs, -rhs)?,
        Op::Multiply {} => {
            let product = lhs * rhs;
            (lhs.mul_add(rhs, -product) == 0.0).then_some(product)?
        }
        Op::Divide {} if rhs == 0.0 => return None,
        Op::Divide {} if dtype.is_integer() => (lhs / rhs).trunc(),
        Op::Divide {} => {
            let quotient = lhs / rhs;
            (quotient.mul_add(rhs, -lhs) == 0.0).then_some(quotient)?
        }
        // Which zero is the larger one is for the executions to say.
        Op::Maximum {} | Op::Minimum {} if lhs == rhs && lhs.to_bits() != rhs.to_bits() => {
            return None;
        }
        Op::Maximum {} => lhs.max(rhs),
        Op::Minimum {} => lhs.min(rhs),
        Op::And {} => lhs * rhs,
        Op::Or {} => lhs.max(rhs),
        Op::Compare { comparison } => {
            return Some(f64::from(match comparison {
                Comparison::Equal => lhs == rhs,
                Comparison::NotEqual => lhs != rhs,
                Comparison::Less => lhs < rhs,
                Comparison::LessEqual => lhs <= rhs,
                Comparison::Greater => lhs > rhs,
                Comparison::GreaterEqual => lhs >= rhs,
            }));
        }
        _ => return None,
    };
    // Integers have one zero.
    let result = match dtype.is_float() {
        true => result,
        false => result + 0.0,
    };
    holds(dtype, result).then_some(result)
}

fn sum(lhs: f64, rhs: f64) -> Option<f64> {
    let sum = lhs + rhs;
    let from_rhs = sum - lhs;
    let lost = (lhs - (sum - from_rhs)) + (rhs - from_rhs);
    (lost == 0.0).then_some(sum)
}
