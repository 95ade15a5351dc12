//! What an encoder consists of, as a family reads it from a configuration, and the graph of it: from
//! the tokens of whole texts to their states, one vector for each text, or scores.

mod causal;
mod modules;
mod pooling;
mod prompts;

pub(crate) use causal::{Causal, classifies};
pub(crate) use modules::{Modules, PREFIX, has_modules, longest};
pub use pooling::{Pooling, Reduce};
pub use prompts::Prompts;

use crate::decoder::{Layer, Linear, Norm, Positions, Work};
use crate::{LoadError, weights::Weights};
use mlxcel_ir::{
    Activation, Comparison, DType, Dim, Graph, Reduction, Symbol, TensorType, ValueId, step,
};

/// An encoder.
#[derive(Debug)]
pub(crate) struct Encoder {
    pub(crate) embedding: Tokens,
    pub(crate) layers: Vec<Layer>,
    /// The norm after the last layer.
    pub(crate) norm: Option<Norm>,
    /// A layer on the first token's state, and its nonlinearity.
    pub(crate) pooler: Option<(Linear, Activation)>,
    pub(crate) classifier: Option<Classifier>,
    /// Tokens of the longest text.
    pub(crate) context: usize,
}

/// From tokens to states.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    /// The table of words.
    pub(crate) words: String,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// The table of the kinds of tokens and its rows.
    pub(crate) types: Option<(String, usize)>,
    pub(crate) positions: Option<Positions>,
    pub(crate) norm: Option<Norm>,
    /// From this width to that of the layers, after the norm, where they differ.
    pub(crate) projection: Option<Linear>,
}

/// From states to scores.
#[derive(Clone, Debug)]
pub(crate) struct Classifier {
    /// What of a text's states counts.
    pub(crate) of: Reduce,
    pub(crate) dense: Option<(Linear, Activation)>,
    pub(crate) norm: Option<Norm>,
    pub(crate) output: Linear,
}

impl Encoder {
    /// The graph, with every output that the model has; the vector of each row as `modules` say.
    /// With `hidden` it gives the state after each layer too.
    ///
    /// # Errors
    /// A tensor that is missing or of the wrong shape.
    pub(crate) fn graph(
        &self,
        [name, model_type]: [&str; 2],
        weights: &Weights,
        modules: &Modules,
        hidden: bool,
    ) -> Result<Graph, LoadError> {
        let mut work = Work::new(name, model_type, weights);
        let ty = TensorType::new(DType::I32, [Symbol::B, Symbol::T]);
        let types = work.builder.input(step::TOKEN_TYPES, ty);
        let mut x = self.embedding.build(&mut work, types)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = layer.build(&mut work, x, index)?;
            if hidden {
                work.builder.output(step::hidden(index), x);
            }
        }
        work.leave();
        if let Some(norm) = &self.norm {
            x = work.norm(x, norm, "norm")?;
        }
        work.builder.output(step::STATES, x);
        if let Some((linear, activation)) = &self.pooler {
            let first = reduced(&mut work, x, Reduce::First)?;
            let pooled = dense(&mut work, first, linear, *activation, "pooler")?;
            work.builder.output(step::POOLED, pooled);
        }
        results(&mut work, x, modules, self.classifier.as_ref())?;
        Ok(work.builder.finish())
    }
}

impl Tokens {
    fn build(&self, work: &mut Work<'_>, types: ValueId) -> Result<ValueId, LoadError> {
        let tokens = work.tokens;
        let mut look_up = |module: &str, rows, indices| {
            let table = work.weight(&format!("{module}.weight"), &[rows, self.width])?;
            work.op(|b| b.embedding(indices, table))
        };
        let mut x = look_up(&self.words, self.rows, tokens)?;
        if let Some((module, rows)) = &self.types {
            let added = look_up(module, *rows, types)?;
            x = work.op(|b| b.add(x, added))?;
        }
        if let Some(positions) = &self.positions {
            let places = work.positions(positions.offset)?;
            let name = format!("{}.weight", positions.module);
            let table = work.weight(&name, &[positions.rows, self.width])?;
            let added = work.op(|b| b.embedding(places, table))?;
            x = work.op(|b| b.add(x, added))?;
        }
        if let Some(norm) = &self.norm {
            x = work.norm(x, norm, "embedding_norm")?;
        }
        if let Some(projection) = &self.projection {
            x = work.linear(x, projection, "embedding_in")?;
        }
        work.named(x, "embedding");
        Ok(x)
    }
}

impl Classifier {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let mut x = reduced(work, x, self.of)?;
        if let Some((linear, activation)) = &self.dense {
            x = dense(work, x, linear, *activation, "classifier_in")?;
        }
        if let Some(norm) = &self.norm {
            x = work.norm(x, norm, "classifier_norm")?;
        }
        work.linear(x, &self.output, "scores")
    }
}

/// Adds what is told of each text, from its states `x[B, T, H]`: one vector, and scores if there is a
/// classifier.
fn results(
    work: &mut Work<'_>,
    x: ValueId,
    modules: &Modules,
    classifier: Option<&Classifier>,
) -> Result<(), LoadError> {
    let mut vector = reduced(work, x, modules.pooling.reduce)?;
    for (index, layer) in modules.layers.iter().enumerate() {
        vector = work.linear(vector, &layer.linear, &format!("dense.{index}"))?;
        if let Some(activation) = layer.activation {
            vector = work.op(|b| b.activate(vector, activation))?;
        }
    }
    if modules.pooling.normalize {
        vector = unit(work, vector)?;
    }
    work.named(vector, "embedding_out");
    work.builder.output(step::EMBEDDING, vector);
    if let Some(classifier) = classifier {
        let scores = classifier.build(work, x)?;
        work.builder.output(step::SCORES, scores);
    }
    Ok(())
}

fn dense(
    work: &mut Work<'_>,
    x: ValueId,
    linear: &Linear,
    activation: Activation,
    part: &str,
) -> Result<ValueId, LoadError> {
    let x = work.linear(x, linear, part)?;
    work.op(|b| b.activate(x, activation))
}

/// One vector `[B, H]` for the states `x[B, T, H]` of each text.
fn reduced(work: &mut Work<'_>, x: ValueId, reduce: Reduce) -> Result<ValueId, LoadError> {
    let rows = vec![Dim::from(Symbol::B)];
    let length = work.length;
    let at = match reduce {
        Reduce::First => work.op(|b| b.constant(0.0, DType::I32, rows))?,
        Reduce::Last => {
            let one = work.op(|b| b.constant(1.0, DType::I32, rows))?;
            work.op(|b| b.subtract(length, one))?
        }
        Reduce::Mean => return mean(work, x),
    };
    work.op(|b| b.take_row(x, at))
}

/// The mean of the first `length` states of each text.
fn mean(work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
    let (length, shape) = (work.length, work.ty(x).shape);
    let index = work.op(|b| b.iota(1, DType::I32, shape.clone()))?;
    let end = work.op(|b| b.broadcast(length, shape.clone(), vec![0]))?;
    let counts = work.op(|b| b.compare(index, end, Comparison::Less))?;
    let zero = work.full(x, 0.0)?;
    let kept = work.op(|b| b.select(counts, x, zero))?;
    let sum = work.op(|b| b.reduce(kept, Reduction::Sum, 1))?;
    let rows = vec![shape[0], shape[2]];
    let sum = work.op(|b| b.reshape(sum, rows.clone()))?;
    let count = work.op(|b| b.convert(length, DType::F32))?;
    let count = work.op(|b| b.broadcast(count, rows, vec![0]))?;
    work.op(|b| b.divide(sum, count))
}

/// `x[B, H]` divided by the root of the sum of its squares.
fn unit(work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
    let square = work.op(|b| b.multiply(x, x))?;
    let sum = work.op(|b| b.reduce(square, Reduction::Sum, 1))?;
    // A vector of zeros stays one.
    let least = work.full(sum, 1e-24)?;
    let sum = work.op(|b| b.maximum(sum, least))?;
    let scale = work.op(|b| b.rsqrt(sum))?;
    let scale = work.spread(scale, x)?;
    work.op(|b| b.multiply(x, scale))
}
