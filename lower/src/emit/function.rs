//! One function of a module: a graph for given sizes.

use super::body::Body;
use super::element::Kind;
use super::kernel::{self, Place, Shared, Sizes};
use super::operations::{Emitted, Operations, region};
use crate::{CompileError, FunctionSpec, capacity};
use melior::Context;
use melior::ir::attribute::{StringAttribute, TypeAttribute};
use melior::ir::block::BlockLike;
use melior::ir::operation::OperationBuilder;
use melior::ir::r#type::FunctionType;
use melior::ir::{Attribute, Identifier, Location, Module, Type};
use mlxcel_ir::{
    Bindings, BuildError, Graph, Node, Op, StateId, StatePart, Symbol, TensorType, decompose,
};
use std::cell::Cell;

/// The graph with every composite replaced by its decomposition, but those that have a better form
/// here, and those that `keep` names.
fn legal(graph: &Graph, keep: impl Fn(&Node) -> bool) -> Result<Graph, BuildError> {
    decompose::decompose_except(graph, |node| {
        // First, so that it is asked about every node.
        keep(node)
            || matches!(
                node.op,
                Op::Embedding {}
                    | Op::Linear {}
                    | Op::ExpertLinear {}
                    | Op::Attention { .. }
                    | Op::Softmax {}
            )
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

pub(super) fn kind(ty: &TensorType, bindings: &Bindings) -> Emitted<Kind> {
    let sizes = ty
        .sizes(bindings)
        .map_err(|symbol| format!("the size of {} is not given", symbol.name()))?;
    Ok(Kind::new(ty.dtype, sizes))
}

/// Adds the function to `module`. With `most`, the tokens that a call of the module adds at most, caches may
/// rotate.
pub(crate) fn add<'c>(
    context: &'c Context,
    module: &Module<'c>,
    shared: &mut Shared,
    spec: &FunctionSpec,
    most: Option<usize>,
) -> Result<(), CompileError> {
    let whole = |reason: String| CompileError::Emit {
        function: spec.name.clone(),
        node: "the whole".into(),
        reason,
    };
    let owner = shared.kernels.as_ref().map(|kernels| kernels.owner);
    let tokens = spec.bindings.get(Symbol::S).unwrap_or(0);
    let states = (0..spec.graph.states.len() as u32).map(StateId);
    let sized = Sizes {
        bindings: &spec.bindings,
        caches: states
            .map(|state| capacity::rows(&spec.graph, state, tokens, most))
            .collect(),
    };
    // Nodes are asked about in their order.
    let next = Cell::new(0);
    let graph = legal(&spec.graph, |_| {
        let index = next.replace(next.get() + 1);
        owner.is_some_and(|owner| kernel::computes(&spec.graph, &sized, index, owner))
    })
    .map_err(|error| whole(error.to_string()))?;
    let places = match owner {
        Some(owner) => kernel::plan(&graph, &sized, owner),
        None => Vec::new(),
    };
    let sizes = |ty: &TensorType| kind(ty, &spec.bindings).map_err(whole);
    let inputs = graph.inputs.iter().map(|input| sizes(&input.ty));
    let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
    let states = buffers(&graph).map(|(state, _, buffer)| match sized.cache(state) {
        Some(rows) => kind(&buffer, &spec.bindings.with(Symbol::S, rows)).map_err(whole),
        None => sizes(&buffer),
    });
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
        let (inputs, states) = tensors.split_at(graph.inputs.len());
        let states = buffers(&graph)
            .zip(states)
            .map(|((state, part, _), tensor)| ((state, part), tensor.clone()));
        let mut body = Body::new(&graph, &spec.bindings, shared, inputs, states.collect());
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
            let made = match places.get(index) {
                None | Some(Place::Alone) => body
                    .node(&operations, node)
                    .map(|value| body.define(index, value)),
                Some(Place::Within) => Ok(()),
                Some(Place::Kernel(piece)) => body.kernel(&operations, piece),
            };
            match made {
                Ok(()) => {}
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
