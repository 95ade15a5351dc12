//! One function of a module: a graph for given sizes.

use super::attention::Sight;
use super::element::{Kind, Tensor};
use super::operations::{DotDims, Emitted, Operations, region};
use super::primitive::{direction, elementwise};
use super::weight::Globals;
use crate::{CompileError, FunctionSpec};
use melior::Context;
use melior::ir::attribute::{StringAttribute, TypeAttribute};
use melior::ir::block::BlockLike;
use melior::ir::operation::OperationBuilder;
use melior::ir::r#type::FunctionType;
use melior::ir::{Attribute, Identifier, Location, Module, Type};
use mlxcel_ir::{
    Bindings, BuildError, Graph, Node, Op, StateId, StatePart, TensorType, ValueId, WeightDecl,
    decompose,
};
use std::collections::HashMap;

/// The graph with every composite replaced by its decomposition, but those that have a better form
/// here.
fn legal(graph: &Graph) -> Result<Graph, BuildError> {
    decompose::decompose_except(graph, |node| match &node.op {
        Op::Embedding {} | Op::Linear {} => true,
        Op::Attention { chunk, slopes, .. } => {
            chunk.is_none() && slopes.is_empty() && node.weights.is_empty()
        }
        _ => false,
    })
}

/// The buffers of the graph's states, in the order of a function's arguments.
fn buffers(graph: &Graph) -> impl Iterator<Item = (StateId, StatePart, TensorType)> {
    graph.states.iter().enumerate().flat_map(|(index, state)| {
        let id = StateId(index as u32);
        state
            .parts()
            .iter()
            .map(move |&part| (id, part, state.buffer(part)))
    })
}

fn kind(ty: &TensorType, bindings: &Bindings) -> Emitted<Kind> {
    let sizes = ty
        .sizes(bindings)
        .map_err(|symbol| format!("the size of {} is not given", symbol.name()))?;
    Ok(Kind::new(ty.dtype, sizes))
}

/// Adds the function to `module`.
pub(crate) fn add<'c>(
    context: &'c Context,
    module: &Module<'c>,
    globals: &mut Globals,
    spec: &FunctionSpec,
) -> Result<(), CompileError> {
    let whole = |reason: String| CompileError::Emit {
        function: spec.name.clone(),
        node: "the whole".into(),
        reason,
    };
    let graph = legal(&spec.graph).map_err(|error| whole(error.to_string()))?;
    let sizes = |ty: &TensorType| kind(ty, &spec.bindings).map_err(whole);
    let inputs = graph.inputs.iter().map(|input| sizes(&input.ty));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let states = buffers(&graph).map(|(.., buffer)| sizes(&buffer));
    let states = states.collect::<Result<Vec<_>, _>>()?;
    let outputs = graph.outputs.iter().map(|output| {
        let missing = || whole(format!("the output `{}` has no value", output.name));
        sizes(graph.ty(output.value).ok_or_else(missing)?)
    });
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    let arguments = [inputs, states.clone()].concat();
    let results: Vec<Type<'c>> = outputs
        .iter()
        .chain(&states)
        .map(|kind| kind.ty(context))
        .collect();
    let types: Vec<Type<'c>> = arguments.iter().map(|kind| kind.ty(context)).collect();

    let location = Location::new(context, &spec.name, 0, 0);
    let mut failed = None;
    let body = region(context, location, &arguments, |operations, tensors| {
        let mut body = Body {
            graph: &graph,
            bindings: &spec.bindings,
            globals,
            values: tensors[..graph.inputs.len()].to_vec(),
            states: HashMap::new(),
            visible: Vec::new(),
        };
        for ((state, part, _), tensor) in buffers(&graph).zip(&tensors[graph.inputs.len()..]) {
            body.states.insert((state, part), tensor.clone());
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            let name = match &node.name {
                Some(name) => name.clone(),
                None => format!("node {index} ({})", node.op.info().name),
            };
            let place = Location::new(context, &spec.name, index + 1, 0);
            let operations = Operations {
                location: Location::name(context, &name, place),
                ..*operations
            };
            match body.node(&operations, node) {
                Ok(value) => body.values.push(value),
                Err(reason) => {
                    failed = Some((name, reason));
                    return Err(String::new());
                }
            }
        }
        let mut returned = Vec::new();
        for output in &graph.outputs {
            returned.push(body.value(output.value)?);
        }
        for (state, part, _) in buffers(&graph) {
            returned.push(body.state(state, part)?);
        }
        operations.finish("func.return", &returned.iter().collect::<Vec<_>>())
    });
    let body = body.map_err(|reason| match failed.take() {
        Some((node, reason)) => CompileError::Emit {
            function: spec.name.clone(),
            node,
            reason,
        },
        None => whole(reason),
    })?;

    let argument_attributes: Vec<String> = (0..arguments.len())
        .map(|index| match index.checked_sub(graph.inputs.len()) {
            // The buffer comes back as this result, in the same memory.
            Some(state) => format!("{{iree.abi.output = {} : index}}", outputs.len() + state),
            None => "{}".into(),
        })
        .collect();
    let argument_attributes =
        Attribute::parse(context, &format!("[{}]", argument_attributes.join(", ")))
            .ok_or_else(|| whole("attributes of the arguments".into()))?;
    let function = TypeAttribute::new(FunctionType::new(context, &types, &results).into());
    let attributes: [(&str, Attribute<'c>); 3] = [
        ("sym_name", StringAttribute::new(context, &spec.name).into()),
        ("function_type", function.into()),
        ("arg_attrs", argument_attributes),
    ];
    let operation = OperationBuilder::new("func.func", location)
        .add_attributes(&attributes.map(|(name, value)| (Identifier::new(context, name), value)))
        .add_regions([body])
        .build()
        .map_err(|error| whole(error.to_string()))?;
    module.body().append_operation(operation);
    Ok(())
}

/// A function's body while it is built.
struct Body<'c, 'a, 'g> {
    graph: &'g Graph,
    bindings: &'g Bindings,
    globals: &'g mut Globals,
    values: Vec<Tensor<'c, 'a>>,
    states: HashMap<(StateId, StatePart), Tensor<'c, 'a>>,
    /// What tokens see, by where their rows start: the same in all layers.
    visible: Vec<(Sight, ValueId, Tensor<'c, 'a>)>,
}

impl<'c, 'a> Body<'c, 'a, '_> {
    fn value(&self, value: ValueId) -> Emitted<Tensor<'c, 'a>> {
        let found = self.values.get(value.0 as usize).cloned();
        found.ok_or_else(|| format!("uses %{} before it is defined", value.0))
    }

    fn state(&self, state: StateId, part: StatePart) -> Emitted<Tensor<'c, 'a>> {
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
        let cache = operations.cache_append(&cache, rows, start)?;
        self.states.insert((state, part), cache.clone());
        Ok(cache)
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
        let tensor = operations.visible(sight, &rows, shape)?;
        self.visible.push((sight, start, tensor.clone()));
        Ok(tensor)
    }

    fn node(&mut self, operations: &Operations<'c, 'a>, node: &Node) -> Emitted<Tensor<'c, 'a>> {
        let operands = node
            .operands
            .iter()
            .map(|&operand| self.value(operand))
            .collect::<Emitted<Vec<_>>>()?;
        let graph = self.graph;
        let weights: Vec<&WeightDecl> = node
            .weights
            .iter()
            .filter_map(|&weight| graph.weight(weight))
            .collect();
        let result = kind(&node.ty, self.bindings)?;
        match (&node.op, operands.as_slice(), weights.as_slice()) {
            (Op::Parameter {}, [], [weight]) => operations.parameter(self.globals, weight),
            (Op::Constant { value, .. }, [], []) => operations.splat(*value, result),
            (Op::Table { values, dtype }, [], []) => operations.table(values, *dtype),
            (Op::Iota { dim, .. }, [], []) => operations.iota(result, *dim),
            (Op::Convert { dtype }, [x], []) => operations.convert(x, *dtype),
            (Op::Compare { comparison }, [lhs, rhs], []) => {
                operations.compare(direction(*comparison), lhs, rhs)
            }
            (Op::Reshape { .. }, [x], []) => operations.reshape(x, &result.shape),
            (Op::Transpose { permutation }, [x], []) => operations.transpose(x, permutation),
            (Op::Broadcast { dims, .. }, [x], []) => operations.broadcast(x, &result.shape, dims),
            (
                Op::Slice {
                    dim,
                    start,
                    limit,
                    stride,
                },
                [x],
                [],
            ) => operations.slice(x, *dim, [*start, *limit, *stride]),
            (Op::Concatenate { dim }, [lhs, rhs], []) => operations.concatenate(&[lhs, rhs], *dim),
            (Op::Gather {}, [table, indices], []) => operations.gather(table, indices),
            (Op::TakeRow {}, [x, index], []) => operations.take_row(x, index),
            (
                Op::Dot {
                    lhs_batch,
                    rhs_batch,
                    lhs_contract,
                    rhs_contract,
                },
                [lhs, rhs],
                [],
            ) => operations.dot_like(
                lhs,
                rhs,
                &DotDims {
                    lhs_batch,
                    rhs_batch,
                    lhs_contract,
                    rhs_contract,
                },
            ),
            (Op::Reduce { reduction, dim }, [x], []) => {
                operations.reduce_keeping(*reduction, x, *dim)
            }
            (Op::Argmax {}, [x], []) => operations.argmax(x),
            (Op::CacheAppend { part }, [rows, start], []) => {
                self.append(operations, node, *part, rows, start)
            }
            (Op::Embedding {}, [tokens], [table]) => {
                operations.embedding(self.globals, table, tokens)
            }
            (Op::Linear {}, [x], [weight, bias @ ..]) => {
                operations.linear(self.globals, x, weight, bias.first().copied())
            }
            (
                &Op::Attention {
                    scale,
                    mask,
                    window,
                    softcap,
                    ..
                },
                [q, k, v, start],
                [],
            ) => {
                let keys = self.append(operations, node, StatePart::Key, k, start)?;
                let values = self.append(operations, node, StatePart::Value, v, start)?;
                let sight = Sight { mask, window };
                let visible = self.visible(operations, sight, node.operands[3], q, &keys)?;
                operations.attention(scale, softcap, q, [&keys, &values], &visible)
            }
            (op, operands, []) => match elementwise(op.info().name) {
                Some(name) => operations.map(name, &operands.iter().collect::<Vec<_>>()),
                None => Err(format!("no lowering for the op `{}`", op.info().name)),
            },
            (op, ..) => Err(format!("no lowering for the op `{}`", op.info().name)),
        }
    }
}
