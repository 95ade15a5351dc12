//! The end of a decoder: the final norm, the head, and what is wanted of them.

use super::{Decoder, Work};
use crate::LoadError;
use crate::model::{GraphOptions, Logits};
use mlxcel_ir::{DType, Symbol, ValueId, WeightId, step};

/// Adds the outputs that `options` want of the residual stream `x` after the last layer.
pub(super) fn build(
    decoder: &Decoder,
    work: &mut Work<'_>,
    x: ValueId,
    table: WeightId,
    options: &GraphOptions,
) -> Result<(), LoadError> {
    if options.logits == Logits::None && !options.token {
        return Ok(());
    }
    let all = options.logits == Logits::All;
    // The norm and the head, the largest layer of small models, run on one row where one counts.
    let x = match all {
        true => x,
        false => last(work, x)?,
    };
    let x = decoder.ended(work, x)?;
    let head = &decoder.head;
    let mut logits = match &head.linear {
        Some(linear) => work.linear(x, linear, "head")?,
        None => {
            let bias = match &head.bias {
                Some(name) => Some(work.weight(name, &[decoder.embedding.rows])?),
                None => None,
            };
            work.op(|b| b.linear(x, table, bias))?
        }
    };
    logits = work.scaled(logits, head.scale)?;
    if let Some(cap) = head.softcap {
        let share = work.scaled(logits, 1.0 / cap)?;
        let bent = work.op(|b| b.tanh(share))?;
        logits = work.scaled(bent, cap)?;
    }
    work.named(logits, "logits");
    if options.logits != Logits::None {
        work.builder.output(step::LOGITS, logits);
    }
    if options.token {
        let last = match all {
            true => last(work, logits)?,
            false => logits,
        };
        let token = work.op(|b| b.argmax(last))?;
        work.named(token, "token");
        work.builder.output(step::TOKEN, token);
    }
    Ok(())
}

impl Decoder {
    /// What the head reads of the residual stream `x` after the last layer.
    pub(crate) fn ended(&self, work: &mut Work<'_>, mut x: ValueId) -> Result<ValueId, LoadError> {
        if let Some(streams) = &self.head.streams {
            x = streams.join(work, x)?;
        }
        if let Some(norm) = &self.norm {
            x = work.norm(x, norm, "norm")?;
        }
        match &self.head.projection {
            Some(projection) => work.linear(x, projection, "head_in"),
            None => Ok(x),
        }
    }
}

/// The row of each `x[B, T, ...]` at position `length - 1`.
fn last(work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
    let length = work.length;
    let one = work.op(|b| b.constant(1.0, DType::I32, vec![Symbol::B.into()]))?;
    let index = work.op(|b| b.subtract(length, one))?;
    let row = work.op(|b| b.take_row(x, index))?;
    work.named(row, "last");
    Ok(row)
}
