//! Kernels for GPUs, made with the module.
//!
//! What decides how fast a token is decoded on a GPU is how often weights are read and how many dispatches
//! there are, and the compiler's own form of a step has many small ones. So the pieces that
//! [`mlxcel_frontend::artifact::Kernel`] describes, where they are of few rows, are dispatches written here,
//! in the dialects that the compiler translates for every kind of GPU: one text for CUDA and ROCm. They
//! read the same globals as what the compiler makes of longer prompts.

mod attention;
mod code;
#[cfg(test)]
mod emulate;
mod linear;
mod rows;
#[cfg(test)]
mod tests;

use super::element::Element;
use super::operations::Emitted;
use code::{Code, LANES, Memory, Value, list};
use linear::{Matrix, Place, Rows};
use mlxcel_frontend::artifact::{Kernel, Pattern};
use mlxcel_ir::{Bindings, Graph, Node, Op, TensorType, ValueId, WeightDecl, rope};
use rows::{Norm, Turn};

/// The most rows of a step: beyond, a product of matrices is a better form than a product for each row.
const ROWS: usize = 8;

/// Whether there is a kernel here for the piece.
pub(super) fn has(kernel: &Kernel) -> bool {
    write(kernel).is_some()
}

/// Numbers that a kernel needs besides its inputs and weights.
pub(super) fn constants(kernel: &Kernel) -> Option<Vec<f64>> {
    kernel.graph.nodes.iter().find_map(|node| match &node.op {
        Op::Rope {
            dims,
            base,
            scaling,
            ..
        } => Some(rope::frequencies(*dims, *base, scaling)),
        _ => None,
    })
}

/// The executable `symbol` with one entry point of the same name. Its bindings are the kernel's inputs, the
/// stored parts of its weights, its [`constants`], its states and its outputs. A GPU's subgroups have
/// `subgroup` threads, a multiple of [`LANES`].
pub(super) fn executable(symbol: &str, kernel: &Kernel, subgroup: usize) -> Emitted<String> {
    let Written {
        code,
        bindings,
        workgroups,
        threads,
    } = write(kernel).ok_or("there is no such kernel for GPUs")?;
    let bindings = list(
        bindings
            .iter()
            .map(|binding| format!("{binding}: !stream.binding")),
    );
    Ok(format!(
        "stream.executable private @{symbol} {{
           stream.executable.export public @{symbol} workgroups() -> (index, index, index) {{
             %count = arith.constant {workgroups} : index
             %one = arith.constant 1 : index
             stream.return %count, %one, %one : index, index, index
           }}
           builtin.module {{
             func.func @{symbol}({bindings}) attributes {{
               translation_info = #iree_codegen.translation_info<
                 pipeline = #iree_codegen.pass_pipeline<\"\">
                 workgroup_size = [{threads}, 1, 1] subgroup_size = {subgroup}>
             }} {{
               {body}
               return
             }}
           }}
         }}",
        body = code.text(),
    ))
}

/// A kernel's text and how it is started.
struct Written {
    code: Code,
    bindings: Vec<Value>,
    workgroups: usize,
    threads: usize,
}

/// The parts of a kernel while its text is written.
struct Writer<'k> {
    kernel: &'k Kernel,
    graph: &'k Graph,
    code: Code,
    inputs: Vec<Value>,
    /// By weight, the parts that are stored.
    weights: Vec<Vec<Value>>,
    constants: Option<Value>,
    /// The parts of all states.
    states: Vec<Value>,
    outputs: Vec<Value>,
}

fn write(kernel: &Kernel) -> Option<Written> {
    let graph = &kernel.graph;
    let mut code = Code::default();
    let mut some = |count: usize| -> Vec<Value> { (0..count).map(|_| code.fresh()).collect() };
    let inputs = some(graph.inputs.len());
    let stored = |weight: &WeightDecl| weight.part_bytes().iter().filter(|&&size| size > 0).count();
    let weights: Vec<_> = graph
        .weights
        .iter()
        .map(|weight| some(stored(weight)))
        .collect();
    let constants = constants(kernel).map(|_| some(1)[0]);
    let states = some(graph.states.iter().map(|state| state.parts().len()).sum());
    let outputs = some(graph.outputs.len());
    let mut bindings = inputs.clone();
    bindings.extend(weights.iter().flatten());
    bindings.extend(constants);
    bindings.extend(&states);
    bindings.extend(&outputs);
    let mut writer = Writer {
        kernel,
        graph,
        code,
        inputs,
        weights,
        constants,
        states,
        outputs,
    };
    let (workgroups, threads) = match kernel.pattern {
        Pattern::Linears | Pattern::NormedLinears => writer.linears()?,
        Pattern::Residual => writer.residual()?,
        Pattern::GatedLinears(activation) | Pattern::NormedGatedLinears(activation) => {
            writer.gated(activation)?
        }
        Pattern::Embedding => writer.embedding()?,
        Pattern::RmsNorm => writer.norm()?,
        Pattern::Rope => writer.rope()?,
        Pattern::Attention | Pattern::TurnedAttention => writer.attention()?,
        Pattern::Gated(activation) => writer.each(activation)?,
        Pattern::Activate(activation) => writer.each(activation)?,
        Pattern::Argmax => writer.argmax()?,
    };
    Some(Written {
        code: writer.code,
        bindings,
        workgroups,
        threads,
    })
}

impl<'k> Writer<'k> {
    fn memory(&mut self, binding: Value, ty: &TensorType) -> Option<Memory> {
        let element = Element::from(ty.dtype);
        let size = ty.sizes(&Bindings::new()).ok()?.iter().product();
        Some(self.code.binding(binding, element, size))
    }

    fn input(&mut self, index: usize) -> Option<Memory> {
        let binding = *self.inputs.get(index)?;
        self.memory(binding, &self.graph.inputs.get(index)?.ty)
    }

    fn output(&mut self, index: usize) -> Option<Memory> {
        let binding = *self.outputs.get(index)?;
        let output = self.graph.outputs.get(index)?;
        self.memory(binding, self.graph.ty(output.value)?)
    }

    /// The radians per position of each pair that turns.
    fn frequencies(&mut self) -> Option<Memory> {
        let count = constants(self.kernel)?.len();
        Some(self.code.binding(self.constants?, Element::F32, count))
    }

    /// The sizes of an input, and how many rows of its last dimension it has.
    fn rows(&self, input: usize) -> Option<(Vec<usize>, usize)> {
        let sizes = self.graph.inputs.get(input)?.ty.sizes(&Bindings::new());
        let sizes = sizes.ok()?;
        let (_, outer) = sizes.split_last()?;
        let rows = outer.iter().product();
        Some((sizes, rows))
    }

    /// The rows of an input to linear layers, if they are few.
    fn few(&self) -> Option<usize> {
        let (_, rows) = self.rows(0)?;
        (1..=ROWS).contains(&rows).then_some(rows)
    }

    fn matrix(&mut self, node: &Node) -> Option<Matrix> {
        let &id = node.weights.first()?;
        let weight = self.graph.weight(id)?;
        let parts = self.weights.get(id.0 as usize)?.clone();
        if !linear::is_known(weight) {
            return None;
        }
        Matrix::new(&mut self.code, weight, &mut parts.into_iter())
    }

    /// Weight `index` of a node, a vector, if it has one.
    fn vector(&mut self, node: &Node, index: usize) -> Option<Memory> {
        let &id = node.weights.get(index)?;
        let weight = self.graph.weight(id)?;
        let binding = *self.weights.get(id.0 as usize)?.first()?;
        Some(linear::vector(&mut self.code, weight, binding))
    }

    fn layer(&mut self, node: &Node) -> Option<(Matrix, Option<Memory>)> {
        let matrix = self.matrix(node)?;
        Some((matrix, self.vector(node, 1)))
    }

    /// The norm of a node, if it is one.
    fn norm_of(&mut self, node: &Node) -> Option<Norm> {
        match node.op {
            Op::RmsNorm { epsilon, offset } => Some(Norm {
                epsilon,
                offset,
                weight: self.vector(node, 0),
            }),
            _ => None,
        }
    }

    /// The norm before linear layers, if there is one, and the nodes after it.
    fn after_norm(&mut self) -> (Option<Norm>, &'k [Node]) {
        let graph = self.graph;
        match graph.nodes.split_first() {
            Some((first, rest)) => match self.norm_of(first) {
                Some(norm) => (Some(norm), rest),
                None => (None, &graph.nodes),
            },
            None => (None, &[]),
        }
    }

    fn place(&mut self, workgroup: Value) -> Place {
        let thread = self.code.thread();
        Place {
            workgroup,
            lane: self.code.remainder(thread, LANES),
            team: self.code.divide(thread, LANES),
        }
    }

    fn linears(&mut self) -> Option<(usize, usize)> {
        let batch = self.few()?;
        let x = self.input(0)?;
        let (norm, nodes) = self.after_norm();
        let layers: Vec<_> = nodes
            .iter()
            .map(|node| self.layer(node))
            .collect::<Option<_>>()?;
        let outputs: Vec<_> = (0..nodes.len())
            .map(|index| self.output(index))
            .collect::<Option<_>>()?;
        let workgroup = self.code.workgroup();
        let mut first = 0;
        for ((matrix, bias), out) in layers.iter().zip(&outputs) {
            let count = linear::workgroups(matrix.rows);
            let [start, end] = [first, first + count].map(|at| self.code.index(at));
            let after = self.code.compare("uge", workgroup, start);
            let before = self.code.compare("ult", workgroup, end);
            let own = self.code.arith("andi", after, before, "i1");
            let number = self.code.arith("subi", workgroup, start, "index");
            let place = self.place(number);
            self.code.when(own, |code| {
                let x = Rows {
                    numbers: &x,
                    count: batch,
                    norm: norm.as_ref(),
                };
                linear::products(code, &[matrix], &x, &place, |code, output, row, sums| {
                    let sum = biased(code, sums[0], bias.as_ref(), output);
                    let at = code.index(row * matrix.rows);
                    let at = code.add(at, output);
                    code.store(sum, out, at);
                });
            });
            first += count;
        }
        Some((first, linear::THREADS))
    }

    fn residual(&mut self) -> Option<(usize, usize)> {
        let batch = self.few()?;
        let (x, residual) = (self.input(0)?, self.input(1)?);
        let (matrix, bias) = self.layer(self.graph.nodes.first()?)?;
        let out = self.output(0)?;
        let workgroup = self.code.workgroup();
        let place = self.place(workgroup);
        let x = Rows {
            numbers: &x,
            count: batch,
            norm: None,
        };
        linear::products(
            &mut self.code,
            &[&matrix],
            &x,
            &place,
            |code, output, row, sums| {
                let sum = biased(code, sums[0], bias.as_ref(), output);
                let at = code.index(row * matrix.rows);
                let at = code.add(at, output);
                let before = code.load(&residual, at);
                let sum = code.floats("addf", sum, before);
                code.store(sum, &out, at);
            },
        );
        Some((linear::workgroups(matrix.rows), linear::THREADS))
    }

    fn gated(&mut self, activation: mlxcel_ir::Activation) -> Option<(usize, usize)> {
        let batch = self.few()?;
        if !linear::has_activation(activation) {
            return None;
        }
        let x = self.input(0)?;
        let (norm, nodes) = self.after_norm();
        let (gate, gate_bias) = self.layer(nodes.first()?)?;
        let (up, up_bias) = self.layer(nodes.get(1)?)?;
        let out = self.output(0)?;
        if gate.rows != up.rows {
            return None;
        }
        let workgroup = self.code.workgroup();
        let place = self.place(workgroup);
        let x = Rows {
            numbers: &x,
            count: batch,
            norm: norm.as_ref(),
        };
        linear::products(
            &mut self.code,
            &[&gate, &up],
            &x,
            &place,
            |code, output, row, sums| {
                let gated = biased(code, sums[0], gate_bias.as_ref(), output);
                let up = biased(code, sums[1], up_bias.as_ref(), output);
                let gated = linear::activate(code, activation, gated).unwrap_or(gated);
                let product = code.floats("mulf", gated, up);
                let at = code.index(row * gate.rows);
                let at = code.add(at, output);
                code.store(product, &out, at);
            },
        );
        Some((linear::workgroups(gate.rows), linear::THREADS))
    }

    /// The activation of each number, times that of a second input where there is one.
    fn each(&mut self, activation: mlxcel_ir::Activation) -> Option<(usize, usize)> {
        let rows = self.few()?;
        if !linear::has_activation(activation) {
            return None;
        }
        let width = *self.rows(0)?.0.last()?;
        let x = self.input(0)?;
        let factor = self.input(1);
        let out = self.output(0)?;
        rows::each(&mut self.code, rows * width, |code, at| {
            let number = code.load(&x, at);
            let number = linear::activate(code, activation, number).unwrap_or(number);
            let number = match &factor {
                Some(factor) => {
                    let factor = code.load(factor, at);
                    code.floats("mulf", number, factor)
                }
                None => number,
            };
            code.store(number, &out, at);
        });
        Some((
            (rows * width).div_ceil(rows::EACH_THREADS),
            rows::EACH_THREADS,
        ))
    }

    fn argmax(&mut self) -> Option<(usize, usize)> {
        let rows = self.few()?;
        let width = *self.rows(0)?.0.last()?;
        let x = self.input(0)?;
        let out = self.output(0)?;
        rows::argmax(&mut self.code, width, &x, &out);
        Some((rows, rows::ARGMAX_THREADS))
    }

    fn embedding(&mut self) -> Option<(usize, usize)> {
        let (sizes, _) = self.rows(0)?;
        let tokens: usize = sizes.iter().product();
        if !(1..=ROWS).contains(&tokens) {
            return None;
        }
        let input = self.input(0)?;
        let table = self.matrix(self.graph.nodes.first()?)?;
        let out = self.output(0)?;
        rows::embedding(&mut self.code, &table, &input, &out);
        Some((tokens, rows::COPY_THREADS))
    }

    fn norm(&mut self) -> Option<(usize, usize)> {
        let (sizes, rows) = self.rows(0)?;
        // `[B, T, .., width]` or `[B, width]`.
        let tokens = sizes
            .iter()
            .take((sizes.len() - 1).min(2))
            .product::<usize>();
        let &width = sizes.last()?;
        if width == 0 || tokens > ROWS {
            return None;
        }
        let norm = self.norm_of(self.graph.nodes.first()?)?;
        let x = self.input(0)?;
        let out = self.output(0)?;
        rows::rms_norm(&mut self.code, width, &norm, &x, &out);
        Some((rows, rows::norm_threads(width)))
    }

    fn rope(&mut self) -> Option<(usize, usize)> {
        let (sizes, rows) = self.rows(0)?;
        let &[_, 1, heads, width] = &sizes[..] else {
            return None;
        };
        let Op::Rope {
            dims,
            pairing,
            magnitude,
            ..
        } = self.graph.nodes.first()?.op
        else {
            return None;
        };
        let (x, start) = (self.input(0)?, self.input(1)?);
        let frequencies = self.frequencies()?;
        let out = self.output(0)?;
        let turn = Turn {
            heads,
            width,
            dims,
            pairing,
            magnitude,
        };
        rows::rope(&mut self.code, &turn, [&x, &start, &frequencies, &out]);
        Some((rows, LANES))
    }

    fn attention(&mut self) -> Option<(usize, usize)> {
        let graph = self.graph;
        let node = graph.nodes.last()?;
        let Op::Attention {
            scale,
            window,
            chunk,
            softcap,
            ref slopes,
            ..
        } = node.op
        else {
            return None;
        };
        let &[q, k, v, start] = &node.operands[..] else {
            return None;
        };
        let sizes = graph.ty(q)?.sizes(&Bindings::new()).ok()?;
        let &[batch, 1, heads, width] = &sizes[..] else {
            return None;
        };
        let state = graph.states.first()?;
        let (kv_heads, element) = (state.heads, Element::from(state.dtype));
        let (q, k) = (self.source(q)?, self.source(k)?);
        let fits = slopes.is_empty()
            && width.is_multiple_of(attention::STRIPE)
            && width <= attention::WIDEST
            && batch <= ROWS
            && kv_heads > 0
            && heads.is_multiple_of(kv_heads)
            && q.turn == k.turn
            && q.turn.is_none_or(attention::turns);
        if !fits {
            return None;
        }
        let shape = attention::Shape {
            heads,
            kv_heads,
            width,
            capacity: self.kernel.capacity,
            rows: batch,
            scale,
            window,
            chunk,
            softcap,
            turn: q.turn,
        };
        let sinks = match node.weights.is_empty() {
            false => Some(self.vector(node, 0)?),
            true => None,
        };
        let size = shape.rows * shape.capacity * kv_heads * width;
        let &[keys, values] = &self.states[..] else {
            return None;
        };
        let [keys, values] =
            [keys, values].map(|binding| self.code.binding(binding, element, size));
        let frequencies = match shape.turn {
            Some(_) => Some(self.frequencies()?),
            None => None,
        };
        let buffers = attention::Buffers {
            q: self.input(q.input)?,
            k: self.input(k.input)?,
            v: self.input(v.0 as usize)?,
            q_norm: q.norm,
            k_norm: k.norm,
            start: self.input(start.0 as usize)?,
            frequencies,
            sinks,
            keys,
            values,
            out: self.output(0)?,
        };
        attention::write(&mut self.code, &shape, &buffers);
        Some((batch * heads, attention::THREADS))
    }

    /// Where the heads of `value` come from: an input that is normed, or turned, or both, or neither.
    fn source(&mut self, value: ValueId) -> Option<Source> {
        let graph = self.graph;
        let made = |value: ValueId| {
            let index = (value.0 as usize).checked_sub(graph.inputs.len())?;
            graph.nodes.get(index)
        };
        let mut source = Source {
            input: 0,
            norm: None,
            turn: None,
        };
        let mut value = value;
        if let Some(node) = made(value)
            && let Op::Rope {
                dims,
                pairing,
                magnitude,
                ..
            } = node.op
        {
            source.turn = Some(attention::Turn {
                dims,
                pairing,
                magnitude,
            });
            value = *node.operands.first()?;
        }
        if let Some(node) = made(value) {
            source.norm = Some(self.norm_of(node)?);
            value = *node.operands.first()?;
        }
        source.input = value.0 as usize;
        (source.input < graph.inputs.len()).then_some(source)
    }
}

/// Where heads come from.
struct Source {
    input: usize,
    norm: Option<Norm>,
    turn: Option<attention::Turn>,
}

/// `sum` plus the bias of an output.
fn biased(code: &mut Code, sum: Value, bias: Option<&Memory>, output: Value) -> Value {
    match bias {
        Some(bias) => {
            let bias = code.load_float(bias, output);
            code.floats("addf", sum, bias)
        }
        None => sum,
    }
}
