//! A kernel over the bytes of its buffers.

use mlxcel_frontend::artifact::{Kernel, Pattern};
use mlxcel_ir::{Graph, Node, Op, WeightData, WeightDecl, rope, weight};
use mlxcel_kernels::{self as kernels, Linear, Matrix, Pool};
use std::sync::Arc;

/// A kernel with everything made that does not depend on a call.
pub(super) struct Compute {
    kernel: Kernel,
    pool: Arc<Pool>,
    /// Of a rotary embedding.
    frequencies: Vec<f64>,
    /// Of attention.
    slopes: Vec<f32>,
}

impl Compute {
    pub(super) fn new(kernel: Kernel, pool: Arc<Pool>) -> Result<Self, String> {
        let (mut frequencies, mut slopes) = (Vec::new(), Vec::new());
        for node in &kernel.graph.nodes {
            match &node.op {
                Op::Rope {
                    dims,
                    base,
                    scaling,
                    ..
                } => frequencies = rope::frequencies(*dims, *base, scaling),
                Op::Attention { slopes: given, .. } => {
                    slopes = given.iter().map(|&slope| slope as f32).collect();
                }
                _ => {}
            }
        }
        Ok(Self {
            kernel,
            pool,
            frequencies,
            slopes,
        })
    }

    /// Computes `written` and `states` from `read`, which has the inputs and then the parts of
    /// weights.
    pub(super) fn run(
        &self,
        read: &[&[u8]],
        states: &mut [&mut [u8]],
        written: &mut [&mut [u8]],
    ) -> Result<(), String> {
        let graph = &self.kernel.graph;
        let (inputs, parts) = read.split_at(graph.inputs.len().min(read.len()));
        let weights = weights(graph, parts);
        let call = Call {
            compute: self,
            graph,
            inputs,
            weights,
        };
        let mut outputs = written
            .iter_mut()
            .map(|bytes| bytemuck::try_cast_slice_mut(bytes).map_err(unaligned))
            .collect::<Result<Vec<&mut [f32]>, String>>()?;
        call.run(states, &mut outputs)
            .map_err(|reason| format!("{:?}: {reason}", self.kernel.pattern))
    }
}

/// The data of each weight: `parts` has the parts that are not empty.
fn weights<'a>(graph: &Graph, parts: &[&'a [u8]]) -> Vec<WeightData<'a>> {
    let mut parts = parts.iter().copied();
    let mut next = |size: usize| match size {
        0 => &[][..],
        _ => parts.next().unwrap_or_default(),
    };
    let data = |weight: &WeightDecl| {
        let [values, scales, biases] = weight.part_bytes().map(&mut next);
        WeightData {
            values,
            scales,
            biases,
        }
    };
    graph.weights.iter().map(data).collect()
}

fn unaligned(error: bytemuck::PodCastError) -> String {
    format!("a buffer is not as it should be: {error}")
}

/// A call of a kernel.
struct Call<'a> {
    compute: &'a Compute,
    graph: &'a Graph,
    inputs: &'a [&'a [u8]],
    weights: Vec<WeightData<'a>>,
}

impl Call<'_> {
    fn floats(&self, input: usize) -> Result<&[f32], String> {
        let bytes = self.inputs.get(input).ok_or("an input is missing")?;
        bytemuck::try_cast_slice(bytes).map_err(unaligned)
    }

    fn integers(&self, input: usize) -> Result<&[i32], String> {
        let bytes = self.inputs.get(input).ok_or("an input is missing")?;
        bytemuck::try_cast_slice(bytes).map_err(unaligned)
    }

    fn node(&self, index: usize) -> Result<&Node, String> {
        self.graph
            .nodes
            .get(index)
            .ok_or("a node is missing".into())
    }

    /// Weight `index` of a node with its data.
    fn weight(&self, node: &Node, index: usize) -> Option<(&WeightDecl, WeightData<'_>)> {
        let id = node.weights.get(index)?;
        let data = self.weights.get(id.0 as usize)?;
        Some((self.graph.weight(*id)?, *data))
    }

    fn matrix(&self, node: &Node) -> Result<Matrix<'_>, String> {
        let (weight, data) = self.weight(node, 0).ok_or("a weight is missing")?;
        Matrix::new(weight, data).map_err(|error| error.to_string())
    }

    /// The numbers of weight `index` of a node, if it has one.
    fn vector(&self, node: &Node, index: usize) -> Result<Option<Vec<f32>>, String> {
        match self.weight(node, index) {
            Some((declaration, data)) => weight::dequantize(declaration, data)
                .map(Some)
                .map_err(|error| error.to_string()),
            None => Ok(None),
        }
    }

    fn width(&self) -> Result<usize, String> {
        let shape = self.graph.inputs.first().map(|input| &input.ty.shape);
        let width = shape.and_then(|shape| shape.last()?.fixed());
        width.ok_or("rows of an open size".into())
    }

    fn run(&self, states: &mut [&mut [u8]], outputs: &mut [&mut [f32]]) -> Result<(), String> {
        let pool = &*self.compute.pool;
        let pattern = self.compute.kernel.pattern;
        let nodes = &self.graph.nodes[..];
        if pattern == Pattern::Linears {
            let biases = nodes.iter().map(|node| self.vector(node, 1));
            let biases = biases.collect::<Result<Vec<_>, _>>()?;
            let layers = nodes
                .iter()
                .zip(&biases)
                .map(|(node, bias)| {
                    Ok(Linear {
                        matrix: self.matrix(node)?,
                        bias: bias.as_deref(),
                    })
                })
                .collect::<Result<Vec<_>, String>>()?;
            let done = kernels::linear_group(pool, self.floats(0)?, &layers, outputs);
            return done.map_err(|error| error.to_string());
        }
        let [out] = outputs else {
            return Err("one output is expected".into());
        };
        let x = || self.floats(0);
        match pattern {
            Pattern::Linears => Ok(()),
            Pattern::Residual => {
                let bias = self.vector(self.node(0)?, 1)?;
                let layer = Linear {
                    matrix: self.matrix(self.node(0)?)?,
                    bias: bias.as_deref(),
                };
                kernels::linear(pool, x()?, layer, Some(self.floats(1)?), out)
            }
            Pattern::GatedLinears(activation) => {
                let biases = [
                    self.vector(self.node(0)?, 1)?,
                    self.vector(self.node(1)?, 1)?,
                ];
                let layer = |index: usize| {
                    Ok::<_, String>(Linear {
                        matrix: self.matrix(self.node(index)?)?,
                        bias: biases[index].as_deref(),
                    })
                };
                kernels::gated_linear(pool, x()?, layer(0)?, layer(1)?, activation, out)
            }
            Pattern::Embedding => {
                let table = self.matrix(self.node(0)?)?;
                kernels::embedding_rows(pool, &table, self.integers(0)?, out)
            }
            Pattern::RmsNorm => {
                let node = self.node(0)?;
                let Op::RmsNorm { epsilon, offset } = node.op else {
                    return Err("is no norm".into());
                };
                let factors = match self.vector(node, 0)? {
                    Some(mut weight) => {
                        weight
                            .iter_mut()
                            .for_each(|weight| *weight += offset as f32);
                        weight
                    }
                    None => vec![1.0; self.width()?],
                };
                kernels::rms_norm(pool, x()?, &factors, epsilon as f32, out)
            }
            Pattern::Rope => {
                let &Op::Rope {
                    dims,
                    pairing,
                    magnitude,
                    ..
                } = &self.node(0)?.op
                else {
                    return Err("is no rope".into());
                };
                let (heads, dim) = self.heads(0)?;
                let rope = kernels::Rope {
                    heads,
                    dim,
                    dims,
                    pairing,
                    frequencies: &self.compute.frequencies,
                    magnitude,
                };
                kernels::rope(pool, &rope, x()?, self.integers(1)?, out)
            }
            Pattern::Attention => return self.attention(states, out),
            Pattern::Gated(activation) => {
                kernels::gated(pool, activation, x()?, self.floats(1)?, out)
            }
            Pattern::Activate(activation) => kernels::activate(pool, activation, x()?, out),
            Pattern::NormedLinears | Pattern::NormedGatedLinears(_) | Pattern::TurnedAttention => {
                return Err("is no kernel of a runtime".into());
            }
            Pattern::Argmax => {
                kernels::argmax(pool, x()?, self.width()?, bytemuck::cast_slice_mut(out))
            }
        }
        .map_err(|error| error.to_string())
    }

    /// Heads and their width of input `index`, `[B, T, heads, width]`.
    fn heads(&self, index: usize) -> Result<(usize, usize), String> {
        let size = |dim: usize| self.graph.inputs.get(index)?.ty.shape.get(dim)?.fixed();
        size(2).zip(size(3)).ok_or("heads of an open size".into())
    }

    fn attention(&self, states: &mut [&mut [u8]], out: &mut [f32]) -> Result<(), String> {
        let node = self.node(0)?;
        let &Op::Attention {
            scale,
            mask,
            window,
            chunk,
            softcap,
            ..
        } = &node.op
        else {
            return Err("is no attention".into());
        };
        let [keys, values] = states else {
            return Err("a cache has two buffers".into());
        };
        let (heads, dim) = self.heads(0)?;
        let (kv_heads, _) = self.heads(1)?;
        let sinks = self.vector(node, 0)?.unwrap_or_default();
        let layer = kernels::Attention {
            heads,
            kv_heads,
            dim,
            scale: scale as f32,
            mask,
            window,
            chunk,
            softcap: softcap.map(|cap| cap as f32),
            slopes: &self.compute.slopes,
            sinks: &sinks,
        };
        let (query, starts) = (self.floats(0)?, self.integers(3)?);
        let capacity = self.compute.kernel.capacity;
        let dtype = self.graph.states.first().ok_or("a state is missing")?.dtype;
        let (rows, token) = (starts.len().max(1), kv_heads * dim);
        let mut ends = Vec::with_capacity(rows);
        let each = capacity * token * dtype.size();
        for (index, cache) in [&mut **keys, &mut **values].into_iter().enumerate() {
            let new = self.floats(1 + index)?;
            let size = new.len() / rows;
            let caches = cache.chunks_exact_mut(each.max(1));
            for ((row, &start), new) in caches.zip(starts).zip(new.chunks_exact(size.max(1))) {
                let start = usize::try_from(start).map_err(|_| format!("start is {start}"))?;
                let end = start + size / token;
                let outside = || format!("{start}..{end} is outside a cache of {capacity}");
                let rotates = window.is_some() || chunk.is_some();
                if end - start > capacity || (end > capacity && !rotates) {
                    return Err(outside());
                }
                // Up to the end of the cache, and the rest from its beginning.
                let first = start % capacity;
                let (tail, head) = new.split_at(new.len().min((capacity - first) * token));
                for (first, part) in [(first, tail), (0, head)] {
                    let first = first * token * dtype.size();
                    let place = row.get_mut(first..first + part.len() * dtype.size());
                    kernels::narrow(dtype, part, place.ok_or_else(outside)?)
                        .map_err(|error| error.to_string())?;
                }
                if index == 0 {
                    ends.push((start, end));
                }
            }
        }
        let (keys, values) = (&**keys, &**values);
        let sequences: Vec<_> = query
            .chunks_exact((query.len() / rows).max(1))
            .zip(&ends)
            .enumerate()
            .map(|(row, (query, &(start, length)))| kernels::Sequence {
                query,
                start,
                length,
                dtype,
                keys: &keys[row * each..(row + 1) * each],
                values: &values[row * each..(row + 1) * each],
                rows: capacity,
                position_stride: token,
                head_stride: dim,
            })
            .collect();
        let size = (out.len() / rows).max(1);
        let mut outs: Vec<&mut [f32]> = out.chunks_exact_mut(size).collect();
        kernels::attention(&self.compute.pool, &layer, &sequences, &mut outs)
            .map_err(|error| error.to_string())
    }
}
