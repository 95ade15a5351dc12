//! Pieces of a graph that an artifact for a processor leaves to the kernels of whoever runs it.
//!
//! A compiled module calls such a kernel by a name, and the name is the piece itself: the capacity of
//! caches, then the graph in its text form. So a kernel is described once, by what it means, and a
//! runtime that has none for a piece says so when the module is loaded. `lower` cuts pieces that
//! [`Kernel::new`] knows; `runtime-iree` reads the names with [`Kernel::parse`].
//!
//! A kernel takes the address and the offset in bytes of each of its [`Kernel::buffers`], in order.

use super::compiled_bits;
use mlxcel_ir::{
    Activation, Bindings, DType, Dim, Graph, Node, Op, StateKind, Symbol, TensorType, ValueId,
    WeightDecl, WeightFormat, text, weight::Sides,
};

/// What every name starts with.
const PREFIX: &str = "mlxcel ";

/// The longest name that is read: a hundred times what a piece of a layer needs.
const LIMIT: usize = 1 << 20;

/// A piece of a graph, of fixed sizes but for the capacity of its caches.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The piece. Its weights have the formats that they are stored in.
    pub graph: Graph,
    /// Rows of a cache. Where attention has a window, position `p` stands in row `p % capacity`.
    pub capacity: usize,
    /// Which kernel computes it.
    pub pattern: Pattern,
}

/// The kernels that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Linear layers over the one input.
    Linears,
    /// A linear layer over the first input, plus the second.
    Residual,
    /// `activation(first(x)) * second(x)` of two linear layers.
    GatedLinears(Activation),
    /// [`Op::Embedding`].
    Embedding,
    /// [`Op::RmsNorm`].
    RmsNorm,
    /// [`Op::Rope`].
    Rope,
    /// [`Op::Attention`] over a cache that it appends to.
    Attention,
    /// [`Op::Gated`].
    Gated(Activation),
    /// [`Op::Activate`].
    Activate(Activation),
    /// [`Op::Argmax`].
    Argmax,
    /// [`Pattern::Linears`] over the norm of the input.
    NormedLinears,
    /// [`Pattern::GatedLinears`] over the norm of the input.
    NormedGatedLinears(Activation),
    /// [`Pattern::Attention`] whose queries and keys are turned, perhaps after a norm of each head.
    TurnedAttention,
}

impl Pattern {
    /// Whether those who run a module have the kernel. The others are only written into modules, for
    /// GPUs, where the start of a kernel costs more than its work.
    pub fn is_of_runtime(self) -> bool {
        !matches!(
            self,
            Pattern::NormedLinears | Pattern::NormedGatedLinears(_) | Pattern::TurnedAttention
        )
    }
}

/// What a buffer of a kernel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read: an input or a part of a weight.
    Input,
    /// Read and written: a state.
    State,
    /// Written.
    Output,
}

/// A buffer of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelBuffer {
    /// What it is for.
    pub role: Role,
    /// Its size.
    pub bytes: usize,
}

impl Kernel {
    /// The kernel for a piece, if there is one.
    pub fn new(graph: Graph, capacity: usize) -> Option<Self> {
        let pattern = pattern(&graph)?;
        let kernel = Self {
            graph,
            capacity,
            pattern,
        };
        kernel.buffers().is_some().then_some(kernel)
    }

    /// The name that a module calls the kernel by.
    pub fn name(&self) -> String {
        format!("{PREFIX}{}\n{}", self.capacity, text::print(&self.graph))
    }

    /// The kernel of a name.
    ///
    /// # Errors
    /// What is wrong with the name, or that no kernel computes the piece.
    pub fn parse(name: &str) -> Result<Self, String> {
        if name.len() > LIMIT {
            return Err(format!("a name of {} bytes is too long", name.len()));
        }
        let (capacity, graph) = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('\n'))
            .ok_or("is not the name of a kernel")?;
        let capacity = capacity
            .parse()
            .ok()
            .filter(|&capacity: &usize| capacity <= i32::MAX as usize)
            .ok_or_else(|| format!("the capacity `{capacity}` is no size"))?;
        let graph = text::parse(graph).map_err(|error| error.to_string())?;
        Self::new(graph, capacity)
            .filter(|kernel| kernel.pattern.is_of_runtime())
            .ok_or_else(|| "this build has no such kernel".to_string())
    }

    /// The buffers in order: inputs, the parts of each weight, the parts of each state, outputs.
    /// `None` if a size is open or too large.
    pub fn buffers(&self) -> Option<Vec<KernelBuffer>> {
        let rows = self.graph.nodes.first()?.ty.shape.first()?.fixed()?;
        let bindings = Bindings::new()
            .with(Symbol::B, rows)
            .with(Symbol::S, self.capacity);
        let mut buffers = Vec::new();
        let mut add = |role, bytes: Option<usize>| {
            buffers.push(KernelBuffer {
                role,
                bytes: bytes?,
            });
            Some(())
        };
        for input in &self.graph.inputs {
            add(Role::Input, bytes(&input.ty, &Bindings::new()))?;
        }
        for weight in &self.graph.weights {
            for size in weight.part_bytes().into_iter().filter(|&size| size > 0) {
                add(Role::Input, Some(size))?;
            }
        }
        for state in &self.graph.states {
            for &part in state.parts() {
                add(Role::State, bytes(&state.buffer(part), &bindings))?;
            }
        }
        for output in &self.graph.outputs {
            let ty = self.graph.ty(output.value)?;
            add(Role::Output, bytes(ty, &Bindings::new()))?;
        }
        Some(buffers)
    }
}

/// The declaration of a weight as artifacts store it, if a kernel can read that.
pub fn stored(weight: &WeightDecl) -> Option<WeightDecl> {
    let format = match (weight.format, weight.format.coded()) {
        (WeightFormat::Dense(dtype), _) => dtype.is_float().then_some(weight.format)?,
        (_, Some(coded)) if coded.code.bits() == compiled_bits(coded.code) => weight.format,
        (WeightFormat::Affine { group, scale, .. }, Some(coded)) => WeightFormat::Affine {
            bits: compiled_bits(coded.code) as u8,
            group,
            scale,
        },
        (
            WeightFormat::ZeroPoint {
                zero, group, scale, ..
            },
            Some(coded),
        ) => WeightFormat::ZeroPoint {
            bits: compiled_bits(coded.code) as u8,
            zero,
            group,
            scale,
        },
        _ => return None,
    };
    Some(WeightDecl {
        format,
        ..weight.clone()
    })
}

fn bytes(ty: &TensorType, bindings: &Bindings) -> Option<usize> {
    let sizes = ty.sizes(bindings).ok()?;
    let elements = sizes
        .iter()
        .try_fold(1_usize, |product, &size| product.checked_mul(size))?;
    elements
        .checked_mul(ty.dtype.size())
        .filter(|&bytes| bytes <= isize::MAX as usize)
}

/// The kernel that computes `graph`.
fn pattern(graph: &Graph) -> Option<Pattern> {
    let is = |value: ValueId, dtype: DType| graph.ty(value).is_some_and(|ty| ty.dtype == dtype);
    let floats = |values: &[ValueId]| values.iter().all(|&value| is(value, DType::F32));
    let made: Vec<ValueId> = (0..graph.nodes.len())
        .map(|index| graph.value_of(index))
        .collect();
    let outputs: Vec<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
    let inputs: Vec<ValueId> = (0..graph.inputs.len() as u32).map(ValueId).collect();
    let nodes = &graph.nodes[..];
    let ends = outputs == made.last().copied().as_slice();
    if let ([norm, rest @ ..], &[x]) = (nodes, &inputs[..])
        && matches!(norm.op, Op::RmsNorm { .. })
        && norm.operands == [x]
        && floats(&[x, made[0]])
        && vectors(graph, norm)
        && !rest.is_empty()
    {
        return match layers(graph, rest, &made[1..], &outputs, made[0])? {
            Pattern::Linears => Some(Pattern::NormedLinears),
            Pattern::GatedLinears(activation) => Some(Pattern::NormedGatedLinears(activation)),
            _ => None,
        };
    }
    match (nodes, &inputs[..]) {
        ([node], _) if ends && node.operands == inputs && !matches!(node.op, Op::Linear {}) => {
            alone(graph, node)
        }
        (_, &[x]) if floats(&[x]) => layers(graph, nodes, &made, &outputs, x),
        ([first, sum], &[x, residual])
            if ends
                && matches!(sum.op, Op::Add {})
                && linear(graph, first, x)
                && floats(&[x, residual, made[1]])
                && [[made[0], residual], [residual, made[0]]]
                    .contains(&[*sum.operands.first()?, *sum.operands.get(1)?]) =>
        {
            Some(Pattern::Residual)
        }
        (_, _) if ends => turned(graph),
        _ => None,
    }
}

/// Whether a node is a linear layer over `x`.
fn linear(graph: &Graph, node: &Node, x: ValueId) -> bool {
    matches!(node.op, Op::Linear {}) && node.operands == [x] && weights_fit(graph, node)
}

/// The kernel of `nodes`, which make `made`, if they are linear layers over `x`.
fn layers(
    graph: &Graph,
    nodes: &[Node],
    made: &[ValueId],
    outputs: &[ValueId],
    x: ValueId,
) -> Option<Pattern> {
    let is_float = |&value: &ValueId| graph.ty(value).is_some_and(|ty| ty.dtype == DType::F32);
    if !outputs.iter().all(is_float) {
        return None;
    }
    if outputs == made && !nodes.is_empty() && nodes.iter().all(|node| linear(graph, node, x)) {
        return Some(Pattern::Linears);
    }
    let ([gate, up, last], &[first, second, end]) = (nodes, made) else {
        return None;
    };
    let fits = outputs == [end]
        && linear(graph, gate, x)
        && linear(graph, up, x)
        && last.operands == [first, second];
    match last.op {
        Op::Gated { activation } if fits => Some(Pattern::GatedLinears(activation)),
        _ => None,
    }
}

/// Attention as the last node, if what comes before turns its queries and keys.
fn turned(graph: &Graph) -> Option<Pattern> {
    let (last, before) = graph.nodes.split_last()?;
    let &[q, k, v, start] = &last.operands[..] else {
        return None;
    };
    let made = |value: ValueId| {
        let index = (value.0 as usize).checked_sub(graph.inputs.len())?;
        before.get(index)
    };
    let mut used = 0;
    let mut ropes = Vec::new();
    for value in [q, k] {
        let rope = made(value)?;
        let &[x, position] = &rope.operands[..] else {
            return None;
        };
        if !matches!(rope.op, Op::Rope { .. }) || position != start {
            return None;
        }
        ropes.push(&rope.op);
        used += 1;
        if let Some(norm) = made(x) {
            let fits = matches!(norm.op, Op::RmsNorm { .. })
                && vectors(graph, norm)
                && norm.operands.iter().all(|&value| made(value).is_none());
            if !fits {
                return None;
            }
            used += 1;
        }
    }
    let whole = used == before.len() && ropes[0] == ropes[1];
    let inputs = made(v).is_none() && made(start).is_none();
    (whole && inputs && alone(graph, last)? == Pattern::Attention)
        .then_some(Pattern::TurnedAttention)
}

/// Whether the weights of a node are dense vectors.
fn vectors(graph: &Graph, node: &Node) -> bool {
    node.weights.iter().all(|&weight| {
        graph.weight(weight).is_some_and(|weight| {
            weight.shape.len() == 1 && matches!(weight.format, WeightFormat::Dense(_))
        })
    })
}

/// The kernel of one node over all inputs.
fn alone(graph: &Graph, node: &Node) -> Option<Pattern> {
    let dtype = |index: usize| Some(graph.ty(*node.operands.get(index)?)?.dtype);
    let floats = dtype(0) == Some(DType::F32);
    let made = node.ty.dtype == DType::F32;
    let vectors = vectors(graph, node);
    match node.op {
        Op::Embedding {} if dtype(0) == Some(DType::I32) && made && weights_fit(graph, node) => {
            Some(Pattern::Embedding)
        }
        Op::RmsNorm { .. } if floats && made && vectors => Some(Pattern::RmsNorm),
        Op::Rope { .. } if floats && made && dtype(1) == Some(DType::I32) => Some(Pattern::Rope),
        Op::Attention { .. }
            if floats
                && made
                && vectors
                && dtype(1) == Some(DType::F32)
                && dtype(2) == Some(DType::F32)
                && dtype(3) == Some(DType::I32) =>
        {
            let state = graph.state(node.state?)?;
            let q = graph.ty(*node.operands.first()?)?;
            let fits = graph.states.len() == 1
                && state.kind == StateKind::Cache
                && state.dtype.is_float()
                && state.key_dim == state.value_dim
                && q.shape.get(3) == Some(&Dim::Fixed(state.key_dim));
            fits.then_some(Pattern::Attention)
        }
        Op::Gated { activation } if floats && made => Some(Pattern::Gated(activation)),
        Op::Activate { activation } if floats && made => Some(Pattern::Activate(activation)),
        Op::Argmax {} if floats => Some(Pattern::Argmax),
        _ => None,
    }
}

/// Whether the kernels read the weights of a node: rows of numbers in groups of whole vectors, and
/// a dense bias.
fn weights_fit(graph: &Graph, node: &Node) -> bool {
    let mut weights = node.weights.iter().map(|&weight| graph.weight(weight));
    let Some(Some(matrix)) = weights.next() else {
        return false;
    };
    let Some(&width) = matrix.shape.last() else {
        return false;
    };
    let group = match matrix.format.coded() {
        // The largest power of two that divides both.
        Some(coded) if matches!(coded.sides, Sides::Blocks(_)) => {
            1 << width.trailing_zeros().min(coded.group.ilog2())
        }
        Some(coded) => coded.group,
        None => STEP,
    };
    matrix.shape.len() == 2
        && group.is_multiple_of(STEP)
        && matrix.format.check(&matrix.shape).is_ok()
        && (1..=COLUMNS).contains(&width)
        && weights.all(|bias| {
            bias.is_some_and(|bias| {
                bias.shape.len() == 1 && matches!(bias.format, WeightFormat::Dense(_))
            })
        })
}

/// The kernels' step along a row of codes.
const STEP: usize = 16;

/// The most columns of a kernel's matrix.
const COLUMNS: usize = 1 << 24;
