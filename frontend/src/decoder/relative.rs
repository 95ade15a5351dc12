//! Attention between all tokens of a text whose scores depend on how far apart they are in ways
//! that no op has: by a learned number for each distance and head, or by what queries and keys make
//! of a learned vector for each distance.

use super::{Block, Linear, Norm, Projections, Work};
use crate::LoadError;
use mlxcel_ir::{Comparison, DType, Dim, Symbol, ValueId};

/// What distances add to scores.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each layer")]
pub(crate) enum Distances {
    /// The numbers `[count, heads]` called `name`: that of the row which the distance has.
    Numbers { name: String, count: usize },
    /// Of the vectors `[count, H]` called `name`, normed: the products of queries with those made keys,
    /// and of keys with those made queries.
    Vectors {
        name: String,
        count: usize,
        norm: Option<Norm>,
        keys: Option<Linear>,
        queries: Option<Linear>,
    },
}

/// Attention whose scores depend on distances.
#[derive(Clone, Debug)]
pub(crate) struct RelativeAttention {
    pub(crate) heads: usize,
    pub(crate) width: usize,
    pub(crate) projections: Projections,
    pub(crate) output: Linear,
    pub(crate) scale: f64,
    pub(crate) distances: Distances,
    /// The row for each distance, key less query, from `-reach` to `reach`.
    pub(crate) rows: Vec<usize>,
}

const SQUARE: [Symbol; 2] = [Symbol::T, Symbol::T];

impl RelativeAttention {
    /// The row for the distance of each pair, `i32[T, T]`; `flipped`, of the reverse distance.
    fn row_of(&self, work: &mut Work<'_>, flipped: bool) -> Result<ValueId, LoadError> {
        let name: &[&str] = &["rows", if flipped { "flipped" } else { "plain" }];
        if let Some(known) = work.kept(name) {
            return Ok(known);
        }
        let shape: Vec<Dim> = SQUARE.map(Dim::from).to_vec();
        let reach = self.rows.len() / 2;
        let query = work.op(|b| b.iota(usize::from(flipped), DType::I32, shape.clone()))?;
        let key = work.op(|b| b.iota(usize::from(!flipped), DType::I32, shape))?;
        let distance = work.op(|b| b.subtract(key, query))?;
        let distance = work.clamped(distance, reach as f64)?;
        let start = work.full(distance, reach as f64)?;
        let index = work.op(|b| b.add(distance, start))?;
        let rows = self.rows.iter().map(|&row| row as f64).collect();
        let table = work.op(|b| b.table(rows, DType::F32))?;
        // A table holds numbers; these are whole and small.
        let table = work.op(|b| b.convert(table, DType::I32))?;
        let row = work.op(|b| b.gather(table, index))?;
        work.keep(name, row);
        Ok(row)
    }

    /// `x[B, T, heads, D]` against the vectors of all distances through `linear`, for each pair the one
    /// of its distance: `[B, heads, T, T]`.
    fn against(
        &self,
        work: &mut Work<'_>,
        x: ValueId,
        vectors: ValueId,
        linear: &Linear,
        flipped: bool,
    ) -> Result<ValueId, LoadError> {
        let count = work.ty(vectors).shape[0];
        let made = work.linear(vectors, linear, "distances")?;
        let sizes = vec![count, self.heads.into(), self.width.into()];
        let made = work.op(|b| b.reshape(made, sizes))?;
        // [heads, B, T, count]
        let all = work.op(|b| b.dot(x, made, vec![2], vec![1], vec![3], vec![2]))?;
        let all = work.op(|b| b.transpose(all, vec![1, 0, 2, 3]))?;
        let row = self.row_of(work, flipped)?;
        let shape = self.pairs();
        let row = work.op(|b| b.broadcast(row, shape, vec![2, 3]))?;
        work.op(|b| b.take_along(all, row))
    }

    /// The shape of scores.
    fn pairs(&self) -> Vec<Dim> {
        vec![
            Symbol::B.into(),
            self.heads.into(),
            Symbol::T.into(),
            Symbol::T.into(),
        ]
    }

    /// What distances add to the scores, before they are scaled, or after it.
    fn added(&self, work: &mut Work<'_>, q: ValueId, k: ValueId) -> Result<ValueId, LoadError> {
        match &self.distances {
            Distances::Numbers { name, count } => {
                let table = work.parameter(name, &[*count, self.heads])?;
                let row = self.row_of(work, false)?;
                let numbers = work.op(|b| b.gather(table, row))?;
                let numbers = work.op(|b| b.transpose(numbers, vec![2, 0, 1]))?;
                let shape = self.pairs();
                let numbers = work.op(|b| b.broadcast(numbers, shape, vec![1, 2, 3]))?;
                // These are not scaled.
                work.scaled(numbers, 1.0 / self.scale)
            }
            Distances::Vectors {
                name,
                count,
                norm,
                keys,
                queries,
            } => {
                let mut vectors = work.parameter(name, &[*count, self.projections.q.from])?;
                if let Some(norm) = norm {
                    vectors = work.norm(vectors, norm, "distance_norm")?;
                }
                let mut sum = None;
                if let Some(keys) = keys {
                    sum = Some(self.against(work, q, vectors, keys, false)?);
                }
                if let Some(queries) = queries {
                    let products = self.against(work, k, vectors, queries, true)?;
                    let products = work.op(|b| b.transpose(products, vec![0, 1, 3, 2]))?;
                    sum = Some(match sum {
                        None => products,
                        Some(sum) => work.op(|b| b.add(sum, products))?,
                    });
                }
                match sum {
                    Some(sum) => Ok(sum),
                    None => {
                        let shape = self.pairs();
                        work.op(|b| b.constant(0.0, DType::F32, shape))
                    }
                }
            }
        }
    }

    /// Whether the key of each pair is a token of the text, or the query itself.
    fn visible(&self, work: &mut Work<'_>) -> Result<ValueId, LoadError> {
        let (shape, length) = (self.pairs(), work.length);
        let key = work.op(|b| b.iota(3, DType::I32, shape.clone()))?;
        let query = work.op(|b| b.iota(2, DType::I32, shape.clone()))?;
        let end = work.op(|b| b.broadcast(length, shape, vec![0]))?;
        let counts = work.op(|b| b.compare(key, end, Comparison::Less))?;
        let own = work.op(|b| b.compare(key, query, Comparison::Equal))?;
        work.op(|b| b.or(counts, own))
    }
}

impl Block for RelativeAttention {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let heads = |work: &mut Work<'_>, linear: &Linear, part: &str| {
            let y = work.linear(x, linear, part)?;
            work.split(y, &[self.heads, self.width])
        };
        let q = heads(work, &self.projections.q, "q")?;
        let k = heads(work, &self.projections.k, "k")?;
        let v = heads(work, &self.projections.v, "v")?;
        let scores = work.op(|b| b.dot(q, k, vec![0, 2], vec![0, 2], vec![3], vec![3]))?;
        let added = self.added(work, q, k)?;
        let scores = work.op(|b| b.add(scores, added))?;
        let scores = work.scaled(scores, self.scale)?;
        let visible = self.visible(work)?;
        let hidden = work.full(scores, -1e30)?;
        let scores = work.op(|b| b.select(visible, scores, hidden))?;
        let shares = work.op(|b| b.softmax(scores))?;
        let mixed = work.op(|b| b.dot(shares, v, vec![0, 1], vec![0, 2], vec![3], vec![1]))?;
        let mixed = work.op(|b| b.transpose(mixed, vec![0, 2, 1, 3]))?;
        work.named(mixed, "attention");
        let joined = work.split(mixed, &[self.heads * self.width])?;
        work.linear(joined, &self.output, "attention_out")
    }
}
