//! The small parts that decoders and encoders are made of: linear layers, norms, embeddings, heads.

use super::{Streams, Work};
use crate::LoadError;
use mlxcel_ir::{ValueId, WeightId};
use std::ops::Range;

/// A linear layer: the names of its weight `[to, from]` and bias `[to]`, which may be derived ones
/// (see [`crate::weights`]).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Linear {
    pub(crate) weight: String,
    pub(crate) bias: Option<String>,
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The bias that must not be there, as the configuration says that there is none.
    absent: Option<String>,
    /// Two layers, one after the other, that change what it gives.
    change: Option<Box<[Linear; 2]>>,
}

impl Linear {
    /// The layer `module`, with a bias or without.
    pub(crate) fn new(module: impl AsRef<str>, from: usize, to: usize, bias: bool) -> Self {
        let module = module.as_ref();
        let name = format!("{module}.bias");
        let (bias, absent) = if bias {
            (Some(name), None)
        } else {
            (None, Some(name))
        };
        Self {
            weight: format!("{module}.weight"),
            bias,
            from,
            to,
            absent,
            change: None,
        }
    }

    /// The same with what the first and then the second layer of `change` make of its input added.
    pub(crate) fn changed(self, change: [Self; 2]) -> Self {
        Self {
            change: Some(Box::new(change)),
            ..self
        }
    }

    /// The rows `rows` of the layer as one of its own.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        let part = |name: &String| format!("{name}[{}..{}]", rows.start, rows.end);
        Self {
            weight: part(&self.weight),
            bias: self.bias.as_ref().map(part),
            from: self.from,
            to: rows.len(),
            absent: self.absent.clone(),
            change: None,
        }
    }

    /// Of the rows `rows`, the first `block` of every `stride`, as a layer of its own.
    pub(crate) fn blocks(&self, rows: Range<usize>, stride: usize, block: usize) -> Self {
        let part = |name: &String| format!("{name}[{}..{}:{stride}:{block}]", rows.start, rows.end);
        let count = rows.len().div_ceil(stride) * block;
        Self {
            weight: part(&self.weight),
            bias: self.bias.as_ref().map(part),
            from: self.from,
            to: count,
            absent: self.absent.clone(),
            change: None,
        }
    }

    pub(super) fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let declared = work.declared(&self.weight, &[self.to, self.from])?;
        let low_rank = work.weights.low_rank(&declared.name)?;
        let weight = work.builder.weight(declared);
        let bias = match &self.bias {
            Some(name) => Some(work.weight(name, &[self.to])?),
            None => None,
        };
        // A bias left out would give wrong numbers without a sign of it.
        if let Some(name) = self.absent.as_ref().filter(|name| work.weights.has(name)) {
            return Err(LoadError::Tensor {
                file: work.weights.path.clone(),
                tensor: name.clone(),
                reason: "is there, but the configuration says that this layer has no bias".into(),
            });
        }
        let mut y = work.op(|b| b.linear(x, weight, bias))?;
        if let Some([down, up]) = self.change.as_deref() {
            let narrow = down.build(work, x)?;
            let change = up.build(work, narrow)?;
            y = work.op(|b| b.add(y, change))?;
        }
        let Some(change) = low_rank else {
            return Ok(y);
        };
        // An adapter's change `[A, B]`: `y + B A x`.
        let mut change_of = x;
        for part in change {
            let part = work.builder.weight(part);
            change_of = work.op(|b| b.linear(change_of, part, None))?;
        }
        work.op(|b| b.add(y, change_of))
    }
}

/// What a norm divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// The root of the mean square.
    Rms,
    /// The standard deviation, after the mean is taken away.
    Layer,
}

/// A norm along the last dimension.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Norm {
    pub(crate) kind: NormKind,
    /// The name of its weight `[width]`; `None` for a norm that has none.
    pub(crate) weight: Option<String>,
    /// The name of its bias `[width]`.
    pub(crate) bias: Option<String>,
    pub(crate) width: usize,
    pub(crate) epsilon: f64,
    /// Added to the weight.
    pub(crate) offset: f64,
}

impl Norm {
    /// The RMS norm `module`.
    pub(crate) fn rms(module: impl AsRef<str>, width: usize, epsilon: f64) -> Self {
        Self {
            kind: NormKind::Rms,
            weight: Some(format!("{}.weight", module.as_ref())),
            bias: None,
            width,
            epsilon,
            offset: 0.0,
        }
    }

    /// The layer norm `module`, with a bias or without.
    pub(crate) fn layer(module: impl AsRef<str>, width: usize, epsilon: f64, bias: bool) -> Self {
        Self {
            kind: NormKind::Layer,
            bias: bias.then(|| format!("{}.bias", module.as_ref())),
            ..Self::rms(module, width, epsilon)
        }
    }

    /// The same with 1 added to its weight.
    pub(crate) fn about_one(mut self) -> Self {
        self.offset = 1.0;
        self
    }

    /// The same without weight and bias.
    pub(crate) fn plain(mut self) -> Self {
        (self.weight, self.bias) = (None, None);
        self
    }

    pub(super) fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let mut vector = |name: &Option<String>| match name {
            Some(name) => work.weight(name, &[self.width]).map(Some),
            None => Ok(None),
        };
        let (weight, bias) = (vector(&self.weight)?, vector(&self.bias)?);
        let (epsilon, offset) = (self.epsilon, self.offset);
        match self.kind {
            NormKind::Rms => work.op(|b| b.rms_norm(x, weight, epsilon, offset)),
            NormKind::Layer => work.op(|b| b.layer_norm(x, weight, bias, epsilon, offset)),
        }
    }
}

/// Learned embeddings of positions.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    pub(crate) module: String,
    /// Rows of the table.
    pub(crate) rows: usize,
    /// The row of position 0.
    pub(crate) offset: usize,
}

/// The name that the residual stream before the first layer is kept under.
pub(super) const EMBEDDED: &str = "embedded";

/// From tokens to the residual stream.
#[derive(Clone, Debug)]
pub(crate) struct Embedding {
    pub(crate) module: String,
    /// Rows of the table (V).
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// Factor of the embedding.
    pub(crate) scale: f64,
    pub(crate) positions: Option<Positions>,
    pub(crate) norm: Option<Norm>,
    /// From the embedding's width to the residual stream's, where they differ.
    pub(crate) projection: Option<Linear>,
    /// The streams that layers work on, where there are several.
    pub(crate) streams: Option<Streams>,
}

impl Embedding {
    /// The table `module`, `[rows, width]`, and nothing else.
    pub(crate) fn new(module: impl Into<String>, rows: usize, width: usize) -> Self {
        Self {
            module: module.into(),
            rows,
            width,
            scale: 1.0,
            positions: None,
            norm: None,
            projection: None,
            streams: None,
        }
    }

    /// The residual stream, and the table for a tied head.
    pub(super) fn build(&self, work: &mut Work<'_>) -> Result<(ValueId, WeightId), LoadError> {
        let table = work.weight(&format!("{}.weight", self.module), &[self.rows, self.width])?;
        let tokens = work.tokens;
        let mut x = work.op(|b| b.embedding(tokens, table))?;
        x = work.scaled(x, self.scale)?;
        if let Some(projection) = &self.projection {
            x = work.linear(x, projection, "embedding_in")?;
        }
        if let Some(positions) = &self.positions {
            let width = self.projection.as_ref().map_or(self.width, |p| p.to);
            let name = format!("{}.weight", positions.module);
            let table = work.weight(&name, &[positions.rows, width])?;
            let places = work.positions(positions.offset)?;
            let added = work.op(|b| b.embedding(places, table))?;
            x = work.op(|b| b.add(x, added))?;
        }
        if let Some(norm) = &self.norm {
            x = work.norm(x, norm, "embedding_norm")?;
        }
        work.keep(&[EMBEDDED], x);
        work.builder.name(x, "embedding");
        if let Some(streams) = &self.streams {
            x = streams.part(work, x)?;
        }
        Ok((x, table))
    }
}

/// From the residual stream to logits.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The layer, where the head is not the embedding.
    pub(crate) linear: Option<Linear>,
    /// The name of a bias of a head that is the embedding.
    pub(crate) bias: Option<String>,
    /// The streams that are joined before the last norm, where there are several.
    pub(crate) streams: Option<Streams>,
    /// From the residual stream's width to the embedding's, where they differ.
    pub(crate) projection: Option<Linear>,
    /// Factor of the logits.
    pub(crate) scale: f64,
    /// Bound of the logits: `c * tanh(logit / c)`.
    pub(crate) softcap: Option<f64>,
}

impl Head {
    /// `linear`, or the embedding where there is none.
    pub(crate) fn new(linear: Option<Linear>) -> Self {
        Self {
            linear,
            bias: None,
            streams: None,
            projection: None,
            scale: 1.0,
            softcap: None,
        }
    }
}
