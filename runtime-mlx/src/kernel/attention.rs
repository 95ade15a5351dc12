//! Attention over caches that are appended to in place, for rows of different sequences.

use super::body::{floats, integers, kernel, only};
use super::{Compute, HostCache, Step};
use crate::fail::Fail;
use crate::machine::{Cache, Machine};
use mlxcel_ir::{DType, Graph, Mask, Node, Op, Symbol};
use mlxcel_kernels::{self as kernels, Pool};
use std::sync::Arc;

/// The step of an attention node. Its operands are q, k, v and start.
pub(super) struct Attention {
    pub(super) pool: Arc<Pool>,
    pub(super) label: Arc<str>,
    pub(super) layer: Arc<Layer>,
    /// Number of the state.
    pub(super) state: usize,
}

/// What an attention node says.
pub(super) struct Layer {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    scale: f32,
    mask: Mask,
    window: Option<usize>,
    chunk: Option<usize>,
    softcap: Option<f32>,
    slopes: Vec<f32>,
    /// Added when the plan is made.
    pub(super) sinks: Vec<f32>,
}

impl Layer {
    /// The kernel's form of an attention node, but for its sinks.
    pub(super) fn new(graph: &Graph, node: &Node) -> Option<Self> {
        let Op::Attention {
            scale,
            mask,
            window,
            chunk,
            softcap,
            ref slopes,
        } = node.op
        else {
            return None;
        };
        let state = graph.state(node.state?)?;
        let q = graph.ty(*node.operands.first()?)?;
        let fits = q.dtype == DType::F32
            && node.ty.dtype == DType::F32
            && state.key_dim == state.value_dim
            && q.shape.get(3)?.fixed()? == state.key_dim;
        fits.then_some(Self {
            heads: q.shape.get(2)?.fixed()?,
            kv_heads: state.heads,
            dim: state.key_dim,
            scale: scale as f32,
            mask,
            window,
            chunk,
            softcap: softcap.map(|cap| cap as f32),
            slopes: slopes.iter().map(|&slope| slope as f32).collect(),
            sinks: Vec::new(),
        })
    }

    fn view(&self) -> kernels::Attention<'_> {
        kernels::Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            dim: self.dim,
            scale: self.scale,
            mask: self.mask,
            window: self.window,
            chunk: self.chunk,
            softcap: self.softcap,
            slopes: &self.slopes,
            sinks: &self.sinks,
        }
    }
}

impl Step for Attention {
    fn prepare(&self, machine: &Machine<'_>) -> Result<Arc<dyn Compute>, Fail> {
        let caches: Vec<Arc<HostCache>> = machine
            .rows
            .iter()
            .map(|row| match row.get(self.state) {
                Some(Cache::Host(cache)) => Ok(cache.clone()),
                _ => Err(Fail(format!("no cache {} for kernels", self.state))),
            })
            .collect::<Result<_, _>>()?;
        let capacity = machine.bindings.get(Symbol::S).unwrap_or(usize::MAX);
        let (pool, layer) = (self.pool.clone(), self.layer.clone());
        Ok(kernel(self.label.clone(), move |inputs, outputs| {
            let [q, k, v] = [floats(inputs, 0)?, floats(inputs, 1)?, floats(inputs, 2)?];
            let starts = integers(inputs, 3)?;
            let sequences = Sequences {
                caches: &caches,
                starts,
                capacity,
            };
            attend(&pool, &layer.view(), &sequences, [q, k, v], only(outputs)?)
        }))
    }
}

/// The rows of a call.
struct Sequences<'a> {
    caches: &'a [Arc<HostCache>],
    starts: &'a [i32],
    /// Tokens that a cache may hold.
    capacity: usize,
}

fn attend(
    pool: &Pool,
    layer: &kernels::Attention<'_>,
    sequences: &Sequences<'_>,
    [q, k, v]: [&[f32]; 3],
    out: &mut [f32],
) -> Result<(), Fail> {
    let Sequences {
        caches,
        starts,
        capacity,
    } = *sequences;
    let rows = caches.len();
    if starts.len() != rows || rows == 0 {
        return Err(format!("{} starts for {rows} caches", starts.len()).into());
    }
    let (query, new) = (q.len() / rows, k.len() / rows);
    if query == 0 || new == 0 {
        return Ok(());
    }
    let mut held = Vec::with_capacity(rows);
    for (index, (cache, &start)) in caches.iter().zip(starts).enumerate() {
        let start = usize::try_from(start).map_err(|_| format!("start {start} is negative"))?;
        let end = start.saturating_add(new / cache.row().max(1));
        if end > capacity {
            return Err(
                format!("positions {start}..{end} do not fit a cache of {capacity}").into(),
            );
        }
        let mut parts = cache.lock();
        let range = index * new..(index + 1) * new;
        let rows = [
            k.get(range.clone()).ok_or("keys are missing")?,
            v.get(range).ok_or("values are missing")?,
        ];
        cache.append(&mut parts, start, rows)?;
        held.push((start, end, cache, parts));
    }
    let sequences: Vec<kernels::Sequence<'_>> = held
        .iter()
        .zip(q.chunks_exact(query))
        .map(|((start, length, cache, parts), query)| kernels::Sequence {
            query,
            start: *start,
            length: *length,
            dtype: cache.dtype(),
            keys: &parts[0],
            values: &parts[1],
            rows: usize::MAX,
            position_stride: cache.row(),
            head_stride: layer.dim,
        })
        .collect();
    let mut outs: Vec<&mut [f32]> = out.chunks_exact_mut(query).collect();
    Ok(kernels::attention(pool, layer, &sequences, &mut outs)?)
}
