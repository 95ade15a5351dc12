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
use linear::{Matrix, Place};
use mlxcel_frontend::artifact::{Kernel, Pattern};
use mlxcel_ir::{Bindings, Graph, Node, Op, TensorType, WeightDecl, rope};
use rows::Turn;

/// The most rows of a step: beyond, a product of matrices is a better form than a product for each row.
const ROWS: usize = 8;

/// Whether there is a kernel here for the piece.
pub(super) fn has(kernel: &Kernel) -> bool {
    write(kernel).is_some()
}

/// Numbers that a kernel needs besides its inputs and weights.
pub(super) fn constants(kernel: &Kernel) -> Option<Vec<f64>> {
    match &kernel.graph.nodes.first()?.op {
        Op::Rope {
            dims,
            base,
            scaling,
            ..
        } if kernel.pattern == Pattern::Rope => Some(rope::frequencies(*dims, *base, scaling)),
        _ => None,
    }
}

/// The executable `symbol` with one entry point of the same name. Its bindings are the kernel's inputs, the
/// stored parts of its weights, its [`constants`], its states and its outputs.
pub(super) fn executable(symbol: &str, kernel: &Kernel) -> Emitted<String> {
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
                 workgroup_size = [{threads}, 1, 1] subgroup_size = {LANES}>
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
    bindings: Vec<Value>,
}

fn write(kernel: &Kernel) -> Option<Written> {
    let mut writer = Writer {
        kernel,
        graph: &kernel.graph,
        code: Code::default(),
        bindings: Vec::new(),
    };
    let (workgroups, threads) = match kernel.pattern {
        Pattern::Linears => writer.linears()?,
        Pattern::Residual => writer.residual()?,
        Pattern::GatedLinears(activation) => writer.gated(activation)?,
        Pattern::Embedding => writer.embedding()?,
        Pattern::RmsNorm => writer.norm()?,
        Pattern::Rope => writer.rope()?,
        Pattern::Attention => writer.attention()?,
        Pattern::Gated(activation) => writer.each(activation)?,
        Pattern::Activate(activation) => writer.each(activation)?,
        Pattern::Argmax => writer.argmax()?,
    };
    Some(Written {
        code: writer.code,
        bindings: writer.bindings,
        workgroups,
        threads,
    })
}

impl Writer<'_> {
    fn bind(&mut self) -> Value {
        let binding = self.code.fresh();
        self.bindings.push(binding);
        binding
    }

    fn memory(&mut self, ty: &TensorType) -> Option<Memory> {
        let binding = self.bind();
        let element = Element::from(ty.dtype);
        let size = ty.sizes(&Bindings::new()).ok()?.iter().product();
        Some(self.code.binding(binding, element, size))
    }

    fn input(&mut self, index: usize) -> Option<Memory> {
        let ty = &self.graph.inputs.get(index)?.ty;
        self.memory(ty)
    }

    fn output(&mut self, index: usize) -> Option<Memory> {
        let output = self.graph.outputs.get(index)?;
        let ty = self.graph.ty(output.value)?;
        self.memory(ty)
    }

    fn node(&self, index: usize) -> Option<&Node> {
        self.graph.nodes.get(index)
    }

    fn weight(&self, node: &Node, index: usize) -> Option<&WeightDecl> {
        self.graph.weight(*node.weights.get(index)?)
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

    fn matrix(&mut self, node: usize) -> Option<Matrix> {
        let graph = self.graph;
        let weight = graph.weight(*graph.nodes.get(node)?.weights.first()?)?;
        if !linear::is_known(weight) {
            return None;
        }
        let parts = weight.part_bytes().iter().filter(|&&size| size > 0).count();
        let bindings: Vec<Value> = (0..parts).map(|_| self.bind()).collect();
        Matrix::new(&mut self.code, weight, &mut bindings.into_iter())
    }

    /// Weight `index` of a node, a vector, if it has one.
    fn vector(&mut self, node: usize, index: usize) -> Option<Memory> {
        let graph = self.graph;
        let weight = graph.weight(*graph.nodes.get(node)?.weights.get(index)?)?;
        let binding = self.bind();
        Some(linear::vector(&mut self.code, weight, binding))
    }

    fn layer(&mut self, node: usize) -> Option<(Matrix, Option<Memory>)> {
        let matrix = self.matrix(node)?;
        Some((matrix, self.vector(node, 1)))
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
        let nodes = self.graph.nodes.len();
        let layers: Vec<_> = (0..nodes)
            .map(|node| self.layer(node))
            .collect::<Option<_>>()?;
        let outputs: Vec<_> = (0..nodes)
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
                linear::products(code, &[matrix], &x, batch, &place, |code, output, row, sums| {
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
        let (matrix, bias) = self.layer(0)?;
        let out = self.output(0)?;
        let workgroup = self.code.workgroup();
        let place = self.place(workgroup);
        linear::products(
            &mut self.code,
            &[&matrix],
            &x,
            batch,
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
        let (gate, gate_bias) = self.layer(0)?;
        let (up, up_bias) = self.layer(1)?;
        let out = self.output(0)?;
        if gate.rows != up.rows {
            return None;
        }
        let workgroup = self.code.workgroup();
        let place = self.place(workgroup);
        linear::products(
            &mut self.code,
            &[&gate, &up],
            &x,
            batch,
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
        Some(((rows * width).div_ceil(rows::EACH_THREADS), rows::EACH_THREADS))
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
        let table = self.matrix(0)?;
        let out = self.output(0)?;
        rows::embedding(&mut self.code, &table, &input, &out);
        Some((tokens, rows::COPY_THREADS))
    }

    fn norm(&mut self) -> Option<(usize, usize)> {
        let (sizes, rows) = self.rows(0)?;
        // `[B, T, .., width]` or `[B, width]`.
        let tokens = sizes.iter().take((sizes.len() - 1).min(2)).product::<usize>();
        let &width = sizes.last()?;
        let Op::RmsNorm { epsilon, offset } = self.node(0)?.op else {
            return None;
        };
        if width == 0 || tokens > ROWS {
            return None;
        }
        let x = self.input(0)?;
        let weight = self.vector(0, 0);
        let out = self.output(0)?;
        let numbers = [epsilon, offset];
        rows::rms_norm(&mut self.code, width, numbers, &x, weight.as_ref(), &out);
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
        } = self.node(0)?.op
        else {
            return None;
        };
        let (x, start) = (self.input(0)?, self.input(1)?);
        let binding = self.bind();
        let count = constants(self.kernel)?.len();
        let frequencies = self.code.binding(binding, Element::F32, count);
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
        let (sizes, rows) = self.rows(0)?;
        let &[batch, 1, heads, width] = &sizes[..] else {
            return None;
        };
        let node = self.node(0)?.clone();
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
        let state = self.graph.states.first()?;
        let kv_heads = state.heads;
        let fits = slopes.is_empty()
            && width.is_multiple_of(attention::STRIPE)
            && width <= attention::WIDEST
            && batch <= ROWS
            && kv_heads > 0
            && heads.is_multiple_of(kv_heads);
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
        };
        let [q, k, v, start] = [0, 1, 2, 3].map(|index| self.input(index));
        let sinks = match self.weight(&node, 0) {
            Some(_) => Some(self.vector(0, 0)?),
            None => None,
        };
        let size = shape.rows * shape.capacity * kv_heads * width;
        let [keys, values] = [(); 2].map(|()| {
            let binding = self.bind();
            self.code.binding(binding, attention::ELEMENT, size)
        });
        let buffers = attention::Buffers {
            q: q?,
            k: k?,
            v: v?,
            start: start?,
            sinks,
            keys,
            values,
            out: self.output(0)?,
        };
        attention::write(&mut self.code, &shape, &buffers);
        Some((rows, attention::THREADS))
    }
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
