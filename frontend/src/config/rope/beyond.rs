//! Rotary embedding of texts longer than those of training, where it is another one.

use crate::LoadError;
use crate::decoder::Work;
use mlxcel_ir::{Comparison, DType, Dim, Pairing, RopeScaling, Symbol, ValueId};

/// How a text of more tokens than `original` turns: all of it, from its first token on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beyond {
    /// Tokens of the longest text that turns by the plain settings.
    pub(crate) original: usize,
    pub(crate) change: Change,
}

/// What is different.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// Other frequencies (LongRoPE).
    Frequencies(RopeScaling),
    /// With `n` tokens the base is multiplied by `(factor n / original - (factor - 1))` to the power of
    /// `turning / (turning - 2)`, where `turning` elements turn (dynamic NTK).
    Base { factor: f64, turning: usize },
}

/// The plain settings.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    pub(super) dims: usize,
    pub(super) base: f64,
    pub(super) pairing: Pairing,
    pub(super) magnitude: f64,
}

impl Beyond {
    /// The turning of `x[B, T, heads, D]` whose rows start at `start`, where `turn` turns by the
    /// frequencies of a scaling. Rows of texts that are not longer than `original` turn by `short`.
    pub(super) fn build(
        &self,
        work: &mut Work<'_>,
        [x, start]: [ValueId; 2],
        plain: Plain,
        turn: impl Fn(&mut Work<'_>, &RopeScaling) -> Result<ValueId, LoadError>,
        short: &RopeScaling,
    ) -> Result<ValueId, LoadError> {
        match &self.change {
            Change::Frequencies(long) => {
                let (short, long) = (turn(work, short)?, turn(work, long)?);
                let is_long = self.is_long(work, start)?;
                let shape = work.ty(x).shape;
                let is_long = work.op(|b| b.broadcast(is_long, shape, vec![0]))?;
                work.op(|b| b.select(is_long, long, short))
            }
            &Change::Base { factor, turning } => {
                let angle = self.angles(work, start, plain, [factor, turning as f64])?;
                turned(work, x, angle, plain)
            }
        }
    }

    /// The tokens of each row's text with those of this step, `i32[B]`.
    fn total(work: &mut Work<'_>, start: ValueId) -> Result<ValueId, LoadError> {
        let length = work.length;
        work.op(|b| b.add(start, length))
    }

    /// Which rows are longer than `original`, `bool[B]`.
    fn is_long(&self, work: &mut Work<'_>, start: ValueId) -> Result<ValueId, LoadError> {
        let name = ["long text", &self.original.to_string()];
        if let Some(known) = work.kept(&name) {
            return Ok(known);
        }
        let total = Self::total(work, start)?;
        let original = work.full(total, self.original as f64)?;
        let is_long = work.op(|b| b.compare(total, original, Comparison::Greater))?;
        work.keep(&name, is_long);
        Ok(is_long)
    }

    /// The angles `[B, T, dims / 2]` with the base that each row's length calls for. A base multiplied
    /// by `g` to that power divides the frequency of pair `i` by `g` to the power of
    /// `2 i / (turning - 2)`.
    fn angles(
        &self,
        work: &mut Work<'_>,
        start: ValueId,
        plain: Plain,
        [factor, turning]: [f64; 2],
    ) -> Result<ValueId, LoadError> {
        let (original, pairs) = (self.original as f64, plain.dims / 2);
        let name = ["angles", &format!("{self:?} {} {}", plain.dims, plain.base)];
        if let Some(known) = work.kept(&name) {
            return Ok(known);
        }
        let total = Self::total(work, start)?;
        let total = work.op(|b| b.convert(total, DType::F32))?;
        // What exceeds the original length, so that nothing is left of it for shorter texts.
        let length = work.full(total, original)?;
        let more = work.op(|b| b.subtract(total, length))?;
        let none = work.full(more, 0.0)?;
        let more = work.op(|b| b.maximum(more, none))?;
        let more = work.scaled(more, factor / original)?;
        let growth = work.op(|b| b.log1p(more))?;
        let rows = vec![Dim::from(Symbol::B), pairs.into()];
        let growth = work.op(|b| b.broadcast(growth, rows.clone(), vec![0]))?;
        let table = |work: &mut Work<'_>, values: Vec<f64>| {
            let values = work.op(|b| b.table(values, DType::F32))?;
            work.op(|b| b.broadcast(values, rows.clone(), vec![1]))
        };
        let share = |pair: usize| -2.0 * pair as f64 / (turning - 2.0);
        let share = table(work, (0..pairs).map(share).collect())?;
        let change = work.op(|b| b.multiply(growth, share))?;
        let change = work.op(|b| b.exp(change))?;
        let frequencies = mlxcel_ir::rope::frequencies(plain.dims, plain.base, &RopeScaling::None);
        let frequencies = table(work, frequencies)?;
        let frequencies = work.op(|b| b.multiply(frequencies, change))?;
        let shape = work.with_tail(&[pairs]);
        let frequencies = work.op(|b| b.broadcast(frequencies, shape.clone(), vec![0, 2]))?;
        let position = work.positions(0)?;
        let position = work.op(|b| b.convert(position, DType::F32))?;
        let position = work.op(|b| b.broadcast(position, shape, vec![0, 1]))?;
        let angles = work.op(|b| b.multiply(position, frequencies))?;
        work.keep(&name, angles);
        Ok(angles)
    }
}

/// The pairs of the first `dims` elements of `x[B, T, heads, D]`, turned by `angle[B, T, dims / 2]`.
fn turned(
    work: &mut Work<'_>,
    x: ValueId,
    angle: ValueId,
    plain: Plain,
) -> Result<ValueId, LoadError> {
    let (dims, pairs) = (plain.dims, plain.dims / 2);
    let shape = work.ty(x).shape;
    let width = shape[3].fixed().unwrap_or(dims);
    let halves = match plain.pairing {
        Pairing::Half => [(0, pairs, 1), (pairs, dims, 1)],
        Pairing::Interleaved => [(0, dims, 2), (1, dims, 2)],
    };
    let part = |work: &mut Work<'_>, (from, to, step)| work.op(|b| b.slice(x, 3, from, to, step));
    let (first, second) = (part(work, halves[0])?, part(work, halves[1])?);
    let sine = work.op(|b| b.sin(angle))?;
    let cosine = work.op(|b| b.cos(angle))?;
    let half = work.ty(first).shape;
    let wide = |work: &mut Work<'_>, value: ValueId| {
        let value = work.scaled(value, plain.magnitude)?;
        let half = half.clone();
        work.op(|b| b.broadcast(value, half, vec![0, 1, 3]))
    };
    let (sine, cosine) = (wide(work, sine)?, wide(work, cosine)?);
    let product = |work: &mut Work<'_>, a, c| work.op(|b| b.multiply(a, c));
    let (a, c) = (product(work, first, cosine)?, product(work, second, sine)?);
    let low = work.op(|b| b.subtract(a, c))?;
    let (a, c) = (product(work, second, cosine)?, product(work, first, sine)?);
    let high = work.op(|b| b.add(a, c))?;
    let mut all = match plain.pairing {
        Pairing::Half => work.op(|b| b.concatenate(low, high, 3))?,
        Pairing::Interleaved => {
            // Pairs `[..., pairs, 1]` beside each other.
            let heads = shape[2].fixed().unwrap_or(1);
            let column = |work: &mut Work<'_>, value| work.split(value, &[heads, pairs, 1]);
            let (low, high) = (column(work, low)?, column(work, high)?);
            let both = work.op(|b| b.concatenate(low, high, 4))?;
            work.split(both, &[heads, dims])?
        }
    };
    if width > dims {
        let rest = work.part(x, dims..width)?;
        all = work.op(|b| b.concatenate(all, rest, 3))?;
    }
    Ok(all)
}
