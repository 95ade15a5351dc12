//! What becomes of each node of a function.

use super::attention::{Scores, Sight};
use super::element::Tensor;
use super::function::kind;
use super::fusion::Fusion;
use super::kernel::{Piece, Shared, States};
use super::operations::{DotDims, Emitted, Operations};
use super::primitive::direction;
use mlxcel_ir::{Bindings, Graph, Node, Op, StateId, StatePart, Symbol, ValueId};

/// A function's body while it is built.
pub(super) struct Body<'c, 'a, 'g> {
    graph: &'g Graph,
    bindings: &'g Bindings,
    shared: &'g mut Shared,
    values: Vec<Option<Tensor<'c, 'a>>>,
    fusion: Fusion,
    states: States<'c, 'a>,
    /// What tokens see, by where their rows start: the same in all layers.
    visible: Vec<(Sight, ValueId, Tensor<'c, 'a>)>,
}

impl<'c, 'a, 'g> Body<'c, 'a, 'g> {
    /// A body that begins with the function's arguments.
    pub(super) fn new(
        graph: &'g Graph,
        bindings: &'g Bindings,
        shared: &'g mut Shared,
        inputs: &[Tensor<'c, 'a>],
        states: States<'c, 'a>,
    ) -> Self {
        let mut values: Vec<_> = inputs.iter().cloned().map(Some).collect();
        values.resize(inputs.len() + graph.nodes.len(), None);
        Self {
            graph,
            bindings,
            shared,
            values,
            fusion: Fusion::of(graph),
            states,
            visible: Vec::new(),
        }
    }

    /// Sets the value of the node `index`.
    pub(super) fn define(&mut self, index: usize, value: Tensor<'c, 'a>) {
        let place = self.graph.value_of(index).0 as usize;
        if let Some(place) = self.values.get_mut(place) {
            *place = Some(value);
        }
    }

    /// Emits a piece that a kernel computes.
    pub(super) fn kernel(&mut self, operations: &Operations<'c, 'a>, piece: &Piece) -> Emitted<()> {
        let operands = piece.operands().iter().map(|&operand| self.value(operand));
        let operands = operands.collect::<Emitted<Vec<_>>>()?;
        let nodes = piece.results.iter().map(|&node| self.graph.nodes.get(node));
        let kinds = nodes.map(|node| kind(&node.ok_or("lacks a node")?.ty, self.bindings));
        let kinds = kinds.collect::<Emitted<Vec<_>>>()?;
        let (graph, states) = (self.graph, &mut self.states);
        let made = piece.emit(operations, self.shared, graph, &operands, states, &kinds)?;
        for (&node, value) in piece.results.iter().zip(made) {
            self.define(node, value);
        }
        Ok(())
    }

    pub(super) fn value(&self, value: ValueId) -> Emitted<Tensor<'c, 'a>> {
        let found = self.values.get(value.0 as usize).cloned().flatten();
        found.ok_or_else(|| format!("uses %{} before it is defined", value.0))
    }

    pub(super) fn state(&self, state: StateId, part: StatePart) -> Emitted<Tensor<'c, 'a>> {
        let found = self.states.get(&(state, part)).cloned();
        found.ok_or_else(|| format!("no state {}", state.0))
    }

    fn append(
        &mut self,
        operations: &Operations<'c, 'a>,
        node: &Node,
        part: StatePart,
        rows: &Tensor<'c, 'a>,
        start: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let state = node.state.ok_or("needs a state")?;
        let cache = self.state(state, part)?;
        let rows = operations.convert(rows, cache.element())?;
        let cache = match self.rotates(&cache) {
            true => operations.cache_rotate(&cache, &rows, start)?,
            false => operations.cache_append(&cache, &rows, start)?,
        };
        self.states.insert((state, part), cache.clone());
        Ok(cache)
    }

    /// Whether a cache has fewer rows than there are positions.
    fn rotates(&self, cache: &Tensor<'c, 'a>) -> bool {
        let context = self.bindings.get(Symbol::S);
        context.is_some_and(|context| cache.shape()[1] < context)
    }

    fn visible(
        &mut self,
        operations: &Operations<'c, 'a>,
        sight: Sight,
        start: ValueId,
        q: &Tensor<'c, 'a>,
        keys: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let shape = [q.shape()[0], q.shape()[1], keys.shape()[1]];
        let known = self
            .visible
            .iter()
            .find(|(s, from, tensor)| (*s, *from) == (sight, start) && tensor.shape() == shape);
        if let Some((.., tensor)) = known {
            return Ok(tensor.clone());
        }
        let rows = self.value(start)?;
        let tensor = operations.visible(sight, &rows, shape, self.rotates(keys))?;
        self.visible.push((sight, start, tensor.clone()));
        Ok(tensor)
    }

    /// Runs `change` with the memory of `node`, which gives a result and the new memory.
    fn remember(
        &mut self,
        node: &Node,
        change: impl FnOnce(&mut Self, &Tensor<'c, 'a>) -> Emitted<[Tensor<'c, 'a>; 2]>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let state = node.state.ok_or("needs a state")?;
        let memory = self.state(state, StatePart::Whole)?;
        let [result, memory] = change(self, &memory)?;
        self.states.insert((state, StatePart::Whole), memory);
        Ok(result)
    }

    /// The value of `node`. Every op has its arm, so that a new one without a lowering does not
    /// compile.
    pub(super) fn node(
        &mut self,
        operations: &Operations<'c, 'a>,
        node: &Node,
    ) -> Emitted<Tensor<'c, 'a>> {
        let operands = node
            .operands
            .iter()
            .map(|&operand| {
                let value = self.value(operand)?;
                match self.fusion.misleads(node, operand, &value) {
                    true => operations.barrier(&value),
                    false => Ok(value),
                }
            })
            .collect::<Emitted<Vec<_>>>()?;
        let operands: Vec<&Tensor> = operands.iter().collect();
        let operand = |index: usize| {
            let found = operands.get(index).copied();
            found.ok_or_else(|| format!("lacks operand {index}"))
        };
        let graph = self.graph;
        let weight = |index: usize| {
            let id = node.weights.get(index)?;
            graph.weight(*id)
        };
        let first_weight = || weight(0).ok_or("lacks a weight");
        let result = kind(&node.ty, self.bindings)?;
        let map = |name: &str| operations.map(name, &operands);
        match &node.op {
            Op::Parameter {} => operations.parameter(&mut self.shared.globals, first_weight()?),
            Op::Constant { value, .. } => operations.splat(*value, result),
            Op::Table { values, dtype } => operations.table(values, *dtype),
            Op::Iota { dim, .. } => operations.iota(result, *dim),
            Op::Convert { dtype } => operations.convert(operand(0)?, *dtype),
            Op::Negate {} => map("negate"),
            Op::Abs {} => map("abs"),
            Op::Log1p {} => map("log_plus_one"),
            Op::Exp {} => map("exponential"),
            Op::Log {} => map("log"),
            Op::Rsqrt {} => map("rsqrt"),
            Op::Sqrt {} => map("sqrt"),
            Op::Sin {} => map("sine"),
            Op::Cos {} => map("cosine"),
            Op::Tanh {} => map("tanh"),
            Op::Sigmoid {} => map("logistic"),
            Op::Erf {} => map("erf"),
            Op::Add {} => map("add"),
            Op::Subtract {} => map("subtract"),
            Op::Multiply {} => map("multiply"),
            Op::Divide {} => map("divide"),
            Op::Maximum {} => map("maximum"),
            Op::Minimum {} => map("minimum"),
            Op::Power {} => map("power"),
            Op::And {} => map("and"),
            Op::Or {} => map("or"),
            Op::Not {} => map("not"),
            Op::Select {} => map("select"),
            Op::Compare { comparison } => {
                operations.compare(direction(*comparison), operand(0)?, operand(1)?)
            }
            Op::Reshape { .. } => operations.reshape(operand(0)?, &result.shape),
            Op::Transpose { permutation } => operations.transpose(operand(0)?, permutation),
            Op::Broadcast { dims, .. } => operations.broadcast(operand(0)?, &result.shape, dims),
            Op::Slice {
                dim,
                start,
                limit,
                stride,
            } => operations.slice(operand(0)?, *dim, [*start, *limit, *stride]),
            Op::Concatenate { dim } => operations.concatenate(&operands, *dim),
            Op::Gather {} => operations.gather(operand(0)?, operand(1)?),
            Op::TakeAlong {} => operations.take_along(operand(0)?, operand(1)?),
            Op::TakeRow {} => operations.take_row(operand(0)?, operand(1)?),
            Op::Dot {
                lhs_batch,
                rhs_batch,
                lhs_contract,
                rhs_contract,
            } => {
                let dims = DotDims {
                    lhs_batch,
                    rhs_batch,
                    lhs_contract,
                    rhs_contract,
                };
                operations.dot_like(operand(0)?, operand(1)?, &dims)
            }
            Op::Reduce { reduction, dim } => {
                operations.reduce_keeping(*reduction, operand(0)?, *dim)
            }
            Op::Argmax {} => operations.argmax(operand(0)?),
            Op::TopK { count } => operations.top_k(operand(0)?, *count),
            Op::CacheAppend { part } => {
                self.append(operations, node, *part, operand(0)?, operand(1)?)
            }
            Op::CausalConvolution {} => self.remember(node, |body, memory| {
                let weights = [weight(0), weight(1)].map(|weight| {
                    weight
                        .map(|weight| operations.parameter(&mut body.shared.globals, weight))
                        .transpose()
                });
                let [weight, bias] = weights;
                operations.convolution(operand(0)?, operand(1)?, [weight?, bias?], memory)
            }),
            Op::Recurrence {} | Op::DeltaRecurrence {} => self.remember(node, |_, memory| {
                let (length, vectors) = operands.split_last().ok_or("lacks operands")?;
                operations.recurrence(vectors, length, memory)
            }),
            Op::Embedding {} => {
                operations.embedding(&mut self.shared.globals, first_weight()?, operand(0)?)
            }
            Op::Linear {} => operations.linear(
                &mut self.shared.globals,
                operand(0)?,
                first_weight()?,
                weight(1),
            ),
            Op::ExpertLinear {} => operations.expert_linear(
                &mut self.shared.globals,
                [operand(0)?, operand(1)?],
                first_weight()?,
                weight(1),
            ),
            Op::Attention {
                scale,
                mask,
                window,
                chunk,
                softcap,
                slopes,
            } => {
                let [q, k, v, start] = operands[..] else {
                    return Err("takes q, k, v and start".into());
                };
                let keys = self.append(operations, node, StatePart::Key, k, start)?;
                let values = self.append(operations, node, StatePart::Value, v, start)?;
                let sight = Sight {
                    mask: *mask,
                    window: *window,
                    chunk: *chunk,
                };
                let visible = self.visible(operations, sight, node.operands[3], q, &keys)?;
                let sinks =
                    weight(0).map(|sinks| operations.parameter(&mut self.shared.globals, sinks));
                let how = Scores {
                    scale: *scale,
                    softcap: *softcap,
                    slopes,
                    sinks: sinks.transpose()?,
                };
                operations.attention(&how, q, [&keys, &values], &visible)
            }
            // IREE 3.13 fails where a softmax has two readers of which one sums over its rows.
            Op::Softmax {} => operations.barrier(&operations.softmax(operand(0)?, None)?),
            Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Rope { .. }
            | Op::MutualAttention { .. }
            | Op::Activate { .. }
            | Op::Gated { .. } => Err(format!("`{}` was not decomposed", node.op.info().name)),
        }
    }
}
