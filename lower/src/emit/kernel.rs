//! Pieces of a graph that kernels of our own compute.
//!
//! What reads weights or caches is faster as a kernel than as code that the compiler makes. On a
//! processor such a piece becomes a dispatch whose only work is to call a kernel of the runtime, and
//! [`mlxcel_frontend::artifact::Kernel`] says which pieces have one and how a module names it. On a GPU
//! the kernel is part of the module ([`super::gpu`]). What the compiler makes of the rest of the graph
//! stays around it.

use super::element::{Kind, Tensor};
use super::gpu;
use super::operations::{Emitted, Operations};
use super::weight::{Globals, quote};
use crate::targets::KernelOwner;
use melior::Context;
use melior::ir::Module;
use melior::ir::block::BlockLike;
use melior::ir::operation::OperationLike;
use mlxcel_frontend::artifact::{Kernel, parameter_names, stored};
use mlxcel_ir::{Bindings, Builder, DType, Graph, Node, Op, StateId, StatePart, ValueId, WeightId};
use std::collections::HashMap;
use std::fmt::Write;

/// The sizes of a function.
pub(super) struct Sizes<'a> {
    /// Of the graph's symbols.
    pub(super) bindings: &'a Bindings,
    /// Rows of each state, if it is a cache.
    pub(super) caches: Vec<usize>,
}

impl Sizes<'_> {
    /// Rows of a cache.
    pub(super) fn cache(&self, state: StateId) -> Option<usize> {
        self.caches.get(state.0 as usize).copied()
    }
}

/// What becomes of a node.
pub(super) enum Place {
    /// It is emitted alone.
    Alone,
    /// It is part of a piece that is emitted at another node.
    Within,
    /// The piece is emitted here.
    Kernel(Box<Piece>),
}

/// A piece of a graph that a kernel computes.
pub(super) struct Piece {
    kernel: Kernel,
    /// Values of the graph that go in.
    operands: Vec<ValueId>,
    /// Weights of the graph, in the kernel's order.
    weights: Vec<WeightId>,
    states: Vec<StateId>,
    /// Nodes of the graph whose values come out.
    pub(super) results: Vec<usize>,
}

/// The kernels that a module calls, each with the number of its executable.
pub(crate) struct Kernels {
    pub(super) owner: KernelOwner,
    known: HashMap<String, (usize, Kernel)>,
    calls: usize,
}

impl Kernels {
    pub(crate) fn new(owner: KernelOwner) -> Self {
        Self {
            owner,
            known: HashMap::new(),
            calls: 0,
        }
    }

    fn symbol(&mut self, kernel: &Kernel) -> String {
        self.calls += 1;
        let next = self.known.len();
        let entry = self.known.entry(kernel.name());
        let (number, _) = entry.or_insert_with(|| (next, kernel.clone()));
        format!("kernel_{number}")
    }

    /// How often functions call a kernel.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// The kernels by their names, in the order of their numbers.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&str, &Kernel)> {
        let mut kernels: Vec<_> = self.known.iter().collect();
        kernels.sort_by_key(|(_, (number, _))| *number);
        kernels
            .into_iter()
            .map(|(name, (_, kernel))| (name.as_str(), kernel))
    }

    /// Declares in `module` an executable for each kernel, which calls it.
    pub(crate) fn declare<'c>(&self, context: &'c Context, module: &Module<'c>) -> Emitted<()> {
        for (number, (name, kernel)) in self.in_order().enumerate() {
            let symbol = format!("kernel_{number}");
            let text = match self.owner {
                KernelOwner::Runtime => executable(name, &symbol, kernel)?,
                KernelOwner::Module { subgroup } => gpu::executable(&symbol, kernel, subgroup)?,
            };
            let parsed = Module::parse(context, &text)
                .ok_or_else(|| format!("the executable of `{name}` is no MLIR"))?;
            let mut next = parsed.body().first_operation();
            while let Some(operation) = next {
                module.body().append_operation((*operation).clone());
                next = operation.next_in_block();
            }
        }
        Ok(())
    }
}

/// An executable with one entry point of its own name, of one workgroup, over the kernel's buffers.
fn executable(name: &str, symbol: &str, kernel: &Kernel) -> Emitted<String> {
    let buffers = kernel.buffers().ok_or("a kernel has open sizes")?;
    let list = |each: &dyn Fn(usize) -> String| {
        let parts: Vec<String> = (0..buffers.len()).map(each).collect();
        parts.join(", ")
    };
    let types = list(&|_| "memref<i8>, index".into());
    let name = quote(name);
    let mut views = String::new();
    for (index, buffer) in buffers.iter().enumerate() {
        // With a layout that says less, the compiler takes the offset of a binding for 0.
        let ty = format!("memref<{}xi8, strided<[1], offset: ?>>", buffer.bytes);
        let _ = writeln!(
            views,
            "%m{index} = stream.binding.subspan %b{index}[%zero] : !stream.binding -> {ty}\n\
             %p{index}, %o{index}, %s{index}, %t{index} = memref.extract_strided_metadata \
             %m{index} : {ty} -> memref<i8>, index, index, index"
        );
    }
    Ok(format!(
        "stream.executable private @{symbol} {{
           stream.executable.export public @{symbol} workgroups() -> (index, index, index) {{
             %one = arith.constant 1 : index
             stream.return %one, %one, %one : index, index, index
           }}
           builtin.module {{
             func.func private @{name}({types}) attributes {{llvm.bareptr = true}}
             func.func @{symbol}({bindings}) {{
               %zero = arith.constant 0 : index
               {views}
               func.call @{name}({arguments}) : ({types}) -> ()
               return
             }}
           }}
         }}",
        bindings = list(&|index| format!("%b{index}: !stream.binding")),
        arguments = list(&|index| format!("%p{index}, %o{index}")),
    ))
}

/// Whether a kernel computes the node `index` alone, so that it is not to be decomposed.
pub(super) fn computes(graph: &Graph, sizes: &Sizes<'_>, index: usize, owner: KernelOwner) -> bool {
    cut(graph, sizes, owner, &[index], &[index]).is_some()
}

/// Where each node of `graph` is emitted, if the kernels of `owner` may compute what they can.
pub(super) fn plan(graph: &Graph, sizes: &Sizes<'_>, owner: KernelOwner) -> Vec<Place> {
    let mut planner = Planner {
        graph,
        sizes,
        owner,
        uses: uses(graph),
        places: graph.nodes.iter().map(|_| None).collect(),
    };
    planner.fuse();
    for node in 0..graph.nodes.len() {
        planner.take(node, &[node], &[node]);
    }
    let places = planner.places.into_iter();
    places.map(|place| place.unwrap_or(Place::Alone)).collect()
}

/// How often each value is read.
fn uses(graph: &Graph) -> Vec<usize> {
    let mut uses = vec![0; graph.inputs.len() + graph.nodes.len()];
    let operands = graph.nodes.iter().flat_map(|node| &node.operands);
    for value in operands.chain(graph.outputs.iter().map(|output| &output.value)) {
        if let Some(uses) = uses.get_mut(value.0 as usize) {
            *uses += 1;
        }
    }
    uses
}

struct Planner<'g> {
    graph: &'g Graph,
    sizes: &'g Sizes<'g>,
    owner: KernelOwner,
    uses: Vec<usize>,
    /// By node; `None` is not decided.
    places: Vec<Option<Place>>,
}

impl Planner<'_> {
    /// Pieces of several nodes, the largest first.
    fn fuse(&mut self) {
        let graph = self.graph;
        let normed = self.owner.is_module();
        for (index, node) in graph.nodes.iter().enumerate() {
            if let Op::Attention { .. } = node.op
                && normed
            {
                self.turned(index, node);
            }
            let linears: Vec<usize> = node
                .operands
                .iter()
                .filter_map(|&operand| self.linear(operand))
                .collect();
            match (&node.op, &linears[..]) {
                (Op::Gated { .. }, &[gate, up]) if gate != up => {
                    let mut nodes = [gate, up, index];
                    // The piece has the gate first, whichever the graph has.
                    nodes[..2].sort_unstable();
                    if nodes[0] == gate && !self.take_normed(index, &nodes, &[index]) {
                        self.take(index, &nodes, &[index]);
                    }
                }
                (Op::Add {}, &[.., first]) => {
                    if !self.take(index, &[first, index], &[index])
                        && let &[first, _] = &linears[..]
                    {
                        self.take(index, &[first, index], &[index]);
                    }
                }
                _ => {}
            }
        }
        let mut groups: Vec<(ValueId, Vec<usize>)> = Vec::new();
        for (index, node) in graph.nodes.iter().enumerate() {
            if let (Op::Linear {}, &[x], None) = (&node.op, &node.operands[..], &self.places[index])
            {
                match groups.iter_mut().find(|(known, _)| *known == x) {
                    Some((_, group)) => group.push(index),
                    None => groups.push((x, vec![index])),
                }
            }
        }
        for (_, group) in groups {
            // All of the group are known where the first is.
            if !self.take_normed(group[0], &group, &group) {
                self.take(group[0], &group, &group);
            }
        }
    }

    /// Attention at the node `index` with what turns its queries and keys.
    fn turned(&mut self, index: usize, node: &Node) {
        let mut nodes = vec![index];
        for &value in node.operands.iter().take(2) {
            let Some(rope) = self.only(value) else {
                return;
            };
            nodes.push(rope);
            let x = self.graph.nodes[rope].operands.first();
            if let Some(norm) = x.and_then(|&x| self.only(x))
                && matches!(self.graph.nodes[norm].op, Op::RmsNorm { .. })
            {
                nodes.push(norm);
            }
        }
        nodes.sort_unstable();
        self.take(index, &nodes, &[index]);
    }

    /// [`Self::take`] with the norm that `nodes` begin with, if nothing else reads it.
    fn take_normed(&mut self, at: usize, nodes: &[usize], results: &[usize]) -> bool {
        if !self.owner.is_module() {
            return false;
        }
        let reads = |value: ValueId| {
            let operands = nodes
                .iter()
                .flat_map(|&node| &self.graph.nodes[node].operands);
            operands.filter(|&&operand| operand == value).count()
        };
        let first = nodes
            .first()
            .and_then(|&node| self.graph.nodes[node].operands.first());
        let Some((&value, norm)) = first.and_then(|value| Some((value, self.made(*value)?))) else {
            return false;
        };
        if !matches!(self.graph.nodes[norm].op, Op::RmsNorm { .. })
            || self.uses[value.0 as usize] != reads(value)
        {
            return false;
        }
        self.take(at, &[&[norm], nodes].concat(), results)
    }

    /// The node that makes `value`.
    fn made(&self, value: ValueId) -> Option<usize> {
        let index = (value.0 as usize).checked_sub(self.graph.inputs.len())?;
        (index < self.graph.nodes.len()).then_some(index)
    }

    /// The node that makes `value`, if it is read once.
    fn only(&self, value: ValueId) -> Option<usize> {
        let index = self.made(value)?;
        (self.uses[value.0 as usize] == 1).then_some(index)
    }

    /// The node that makes `value`, if it is a linear layer that nothing else reads.
    fn linear(&self, value: ValueId) -> Option<usize> {
        let index = self.only(value)?;
        let alone = self.places[index].is_none();
        (alone && matches!(self.graph.nodes[index].op, Op::Linear {})).then_some(index)
    }

    /// Makes `nodes` one piece at the node `at`, if none is in another and there is a kernel.
    fn take(&mut self, at: usize, nodes: &[usize], results: &[usize]) -> bool {
        if nodes.iter().any(|&node| self.places[node].is_some()) {
            return false;
        }
        let Some(piece) = cut(self.graph, self.sizes, self.owner, nodes, results) else {
            return false;
        };
        for &node in nodes {
            self.places[node] = Some(Place::Within);
        }
        self.places[at] = Some(Place::Kernel(Box::new(piece)));
        true
    }
}

/// The nodes as a piece, if there is a kernel for it.
fn cut(
    graph: &Graph,
    sizes: &Sizes<'_>,
    owner: KernelOwner,
    nodes: &[usize],
    results: &[usize],
) -> Option<Piece> {
    let bindings = sizes.bindings;
    let mut operands: Vec<ValueId> = Vec::new();
    let (mut weights, mut states) = (Vec::new(), Vec::new());
    for &index in nodes {
        let node = graph.nodes.get(index)?;
        for &operand in &node.operands {
            let inside = nodes.iter().any(|&node| graph.value_of(node) == operand);
            if !inside && !operands.contains(&operand) {
                operands.push(operand);
            }
        }
        weights.extend(node.weights.iter().copied());
        states.extend(node.state);
    }
    let distinct = |index: usize| !weights[..index].contains(&weights[index]);
    // One buffer cannot be two of a kernel's weights.
    if !(0..weights.len()).all(distinct) {
        return None;
    }
    let mut builder = Builder::new("kernel");
    let mut known: HashMap<ValueId, ValueId> = HashMap::new();
    for (index, &operand) in operands.iter().enumerate() {
        let mut ty = graph.ty(operand)?.clone();
        for dim in &mut ty.shape {
            *dim = bindings.apply(*dim);
        }
        known.insert(operand, builder.input(format!("x{index}"), ty));
    }
    let mut places = HashMap::new();
    for (index, &weight) in weights.iter().enumerate() {
        let mut declaration = stored(graph.weight(weight)?)?;
        declaration.name = format!("w{index}");
        places.insert(weight, builder.weight(declaration));
    }
    let mut kept = HashMap::new();
    for &state in &states {
        let mut declaration = graph.state(state)?.clone();
        declaration.name = "state".into();
        kept.insert(state, builder.state(declaration));
    }
    for &index in nodes {
        let node = graph.nodes.get(index)?;
        let operands = node
            .operands
            .iter()
            .map(|operand| known.get(operand).copied());
        let weights = node
            .weights
            .iter()
            .map(|weight| places.get(weight).copied());
        let value = builder.push(
            node.op.bind(bindings),
            operands.collect::<Option<_>>()?,
            weights.collect::<Option<_>>()?,
            node.state.and_then(|state| kept.get(&state).copied()),
        );
        known.insert(graph.value_of(index), value.ok()?);
    }
    for (number, &result) in results.iter().enumerate() {
        builder.output(format!("y{number}"), *known.get(&graph.value_of(result))?);
    }
    let capacity = match states.first() {
        None => 0,
        Some(&state) => sizes.cache(state)?,
    };
    let kernel = Kernel::new(builder.finish(), capacity)?;
    if owner.is_module() && !gpu::has(&kernel) {
        return None;
    }
    Some(Piece {
        kernel,
        operands,
        weights,
        states,
        results: results.to_vec(),
    })
}

/// The parts of states, by state and part.
pub(super) type States<'c, 'a> = HashMap<(StateId, StatePart), Tensor<'c, 'a>>;

/// What of a module the functions share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) globals: Globals,
    /// The kernels that are called; `None` if all code is the compiler's.
    pub(crate) kernels: Option<Kernels>,
}

impl Piece {
    /// Emits the call over the values of `operands`. Gives the values of the results, which are of
    /// the types `results`, and puts the new states into `states`.
    pub(super) fn emit<'c, 'a>(
        &self,
        operations: &Operations<'c, 'a>,
        shared: &mut Shared,
        graph: &Graph,
        operands: &[Tensor<'c, 'a>],
        states: &mut States<'c, 'a>,
        results: &[Kind],
    ) -> Emitted<Vec<Tensor<'c, 'a>>> {
        let kernels = shared.kernels.as_mut().ok_or("no kernels are wanted")?;
        let symbol = kernels.symbol(&self.kernel);
        let mut inputs = operands.to_vec();
        for &weight in &self.weights {
            let declaration = graph.weight(weight).ok_or("lacks a weight")?;
            if kernels.owner.is_module() {
                // A global that all functions share, since on a GPU two would be two copies.
                inputs.extend(operations.parts(&mut shared.globals, declaration)?);
                continue;
            }
            let declaration = stored(declaration).ok_or("no kernel reads the weight")?;
            let sizes = declaration.part_bytes();
            for (name, size) in parameter_names(&declaration.name).iter().zip(sizes) {
                if size > 0 {
                    inputs.push(operations.bytes(&mut shared.globals, name, size)?);
                }
            }
        }
        if kernels.owner.is_module()
            && let Some(constants) = gpu::constants(&self.kernel)
        {
            inputs.push(operations.table(&constants, DType::F32)?);
        }
        let first_state = inputs.len();
        let mut kept = Vec::new();
        for &state in &self.states {
            let parts = graph.state(state).ok_or("lacks a state")?.parts();
            kept.extend(parts.iter().map(|&part| (state, part)));
        }
        for key in &kept {
            inputs.push(states.get(key).cloned().ok_or("lacks a buffer")?);
        }
        // The states first: their results stand in the memory of the operands.
        let ties = (0..kept.len() + results.len())
            .map(|index| match index < kept.len() {
                true => format!("{} : index", first_state + index),
                false => "-1 : index".into(),
            })
            .collect::<Vec<_>>();
        let attributes = [
            (
                "entry_points",
                operations.attribute(&format!("[@{symbol}::@{symbol}]"))?,
            ),
            (
                "operandSegmentSizes",
                operations.attribute(&format!("array<i32: 0, {}, 0, 0>", inputs.len()))?,
            ),
            (
                "tied_operands",
                operations.attribute(&format!("[{}]", ties.join(", ")))?,
            ),
        ];
        let kinds: Vec<Kind> = inputs[first_state..]
            .iter()
            .map(|state| state.kind.clone())
            .chain(results.iter().cloned())
            .collect();
        let types: Vec<_> = kinds
            .iter()
            .map(|kind| kind.ty(operations.context))
            .collect();
        let values: Vec<_> = inputs.iter().map(|input| input.value).collect();
        let made = operations.operation("flow.dispatch", &values, &attributes, vec![], &types)?;
        let mut made = made
            .into_iter()
            .zip(kinds)
            .map(|(value, kind)| Tensor { value, kind });
        for (key, state) in kept.into_iter().zip(made.by_ref()) {
            states.insert(key, state);
        }
        Ok(made.collect())
    }

    /// The values that go in.
    pub(super) fn operands(&self) -> &[ValueId] {
        &self.operands
    }
}
