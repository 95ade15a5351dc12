//! Random legal graphs, built from a tape of numbers so that a failing one shrinks.

use crate::common::{Step, bytes, store};
use mlxcel_ir::random::Weights;
use mlxcel_ir::{
    Activation, Bindings, BuildError, Builder, Comparison, DType, Dim, Graph, HostTensor, Mask, Op,
    Pairing, Reduction, RopeScaling, StateDecl, StateKind, StatePart, Symbol, TensorType, ValueId,
    WeightDecl, WeightFormat, WeightId,
};
use std::sync::Arc;

#[path = "generate_moves.rs"]
mod moves;

/// The sizes under which the graphs run.
pub(crate) fn sizes() -> Bindings {
    let sizes = Bindings::new().with(Symbol::B, 2);
    sizes.with(Symbol::T, 3).with(Symbol::S, 5)
}

/// Choices, one after the other; zeros when they run out.
pub(crate) struct Tape<'a>(pub(crate) &'a [u32]);

impl Tape<'_> {
    /// A number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first as usize % count.max(1)
    }

    fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// The inputs of every random graph.
fn inputs() -> Vec<(&'static str, TensorType)> {
    let (b, t) = (Dim::Symbol(Symbol::B), Dim::Symbol(Symbol::T));
    vec![
        ("x", TensorType::new(DType::F32, [b, t, Dim::Fixed(4)])),
        (
            "heads",
            TensorType::new(DType::F32, [b, t, Dim::Fixed(2), Dim::Fixed(4)]),
        ),
        ("wide", TensorType::new(DType::F32, [b, Dim::Fixed(32)])),
        ("tokens", TensorType::new(DType::I32, [b, t])),
        ("start", TensorType::new(DType::I32, [b])),
        ("a flag", TensorType::new(DType::Bool, [b, t])),
        ("scalar", TensorType::scalar(DType::F32)),
        ("length", TensorType::new(DType::I32, [b])),
    ]
}

/// The memories of every random graph: of a convolution over `x` and of two recurrences over `heads`.
const MEMORIES: [(&str, [usize; 3]); 3] = [
    ("convolution", [1, 2, 4]),
    ("recurrence", [2, 4, 4]),
    ("delta", [2, 4, 4]),
];

/// A graph of at most as many nodes as the tape is long.
pub(crate) fn graph(tape: &[u32]) -> Graph {
    let mut tape = Tape(tape);
    let mut builder = Builder::new("random");
    let count = inputs().len();
    for (name, ty) in inputs() {
        builder.input(name, ty);
    }
    for layer in 0..2 {
        builder.state(StateDecl {
            name: format!("cache.{layer}"),
            kind: StateKind::Cache,
            heads: 2,
            key_dim: 4,
            value_dim: 4,
            dtype: DType::F32,
        });
    }
    for (name, [heads, key_dim, value_dim]) in MEMORIES {
        builder.state(StateDecl {
            name: name.into(),
            kind: StateKind::Memory,
            heads,
            key_dim,
            value_dim,
            dtype: DType::F32,
        });
    }
    let mut generator = Generator {
        tape: &mut tape,
        builder,
        states: 0,
        memories: [false; 3],
    };
    while !generator.tape.0.is_empty() {
        // What does not fit is not built.
        let Some(Ok(value)) = generator.node() else {
            continue;
        };
        if generator.tape.below(3) == 0 {
            let style = generator
                .tape
                .of(&["layers.", "a \"quoted\" one ", "-", "é\n"]);
            generator.builder.name(value, format!("{style}{}", value.0));
        }
        if generator.tape.below(4) == 0 {
            generator.builder.output(format!("out.{}", value.0), value);
        }
    }
    let nodes = generator.builder.graph().nodes.len();
    if nodes > 0 {
        let last = ValueId((count + nodes - 1) as u32);
        generator.builder.output("last", last);
    }
    generator.builder.finish()
}

struct Generator<'a, 'b> {
    tape: &'a mut Tape<'b>,
    builder: Builder,
    /// Caches used so far.
    states: u32,
    /// Which memories are used.
    memories: [bool; 3],
}

type Built = Option<Result<ValueId, BuildError>>;

impl Generator<'_, '_> {
    fn ty(&self, value: ValueId) -> TensorType {
        self.builder.ty(value).clone()
    }

    /// A value whose type is as wanted and that is small enough to grow.
    fn pick(&mut self, wanted: impl Fn(&TensorType) -> bool) -> Option<ValueId> {
        let graph = self.builder.graph();
        let count = graph.inputs.len() + graph.nodes.len();
        let small = |ty: &TensorType| {
            let sizes = ty.sizes(&sizes()).unwrap_or_default();
            sizes.iter().product::<usize>() <= 400 && ty.rank() < 6
        };
        let fitting: Vec<ValueId> = (0..count as u32)
            .map(ValueId)
            .filter(|&value| graph.ty(value).is_some_and(|ty| small(ty) && wanted(ty)))
            .collect();
        (!fitting.is_empty()).then(|| self.tape.of(&fitting))
    }

    fn float(&mut self) -> Option<ValueId> {
        self.pick(|ty| ty.dtype.is_float())
    }

    /// A value of the type of `like`.
    fn twin(&mut self, like: ValueId) -> Option<ValueId> {
        let ty = self.ty(like);
        self.pick(|other| *other == ty)
    }

    fn weight(&mut self, shape: Vec<usize>) -> WeightId {
        let dense = [DType::F32, DType::F16, DType::BF16];
        let kind = match shape.last() {
            Some(&32) => self.tape.below(4),
            _ => 3,
        };
        let format = match kind {
            0 => WeightFormat::Affine {
                bits: self.tape.of(&[2, 3, 4, 5, 6, 8]),
                group: self.tape.of(&[16, 32]),
                scale: self.tape.of(&dense),
            },
            1 => WeightFormat::ZeroPoint {
                bits: self.tape.of(&[2, 3, 4, 5, 6, 8]),
                zero: self.tape.of(&[0, 1, 2, 3]),
                group: self.tape.of(&[16, 32]),
                scale: self.tape.of(&dense),
            },
            _ => WeightFormat::Dense(self.tape.of(&dense)),
        };
        let name = format!("w.{}", self.builder.graph().weights.len());
        self.builder.weight(WeightDecl {
            name,
            shape,
            format,
        })
    }

    fn node(&mut self) -> Built {
        match self.tape.below(6) {
            0 | 1 => self.elementwise(),
            2 | 3 => self.moved(),
            4 => self.contracted(),
            _ => self.composite(),
        }
    }

    fn push(&mut self, op: Op, operands: Vec<ValueId>) -> Built {
        Some(self.builder.push(op, operands, vec![], None))
    }

    fn elementwise(&mut self) -> Built {
        let unary = [
            Op::Negate {},
            Op::Abs {},
            Op::Exp {},
            Op::Log {},
            Op::Log1p {},
            Op::Rsqrt {},
            Op::Sqrt {},
            Op::Sin {},
            Op::Cos {},
            Op::Tanh {},
            Op::Sigmoid {},
            Op::Erf {},
        ];
        let binary = [
            Op::Add {},
            Op::Subtract {},
            Op::Multiply {},
            Op::Divide {},
            Op::Maximum {},
            Op::Minimum {},
            Op::Power {},
        ];
        match self.tape.below(7) {
            0 => {
                let op = unary[self.tape.below(unary.len())].clone();
                let x = self.float()?;
                self.push(op, vec![x])
            }
            1 | 2 => {
                let op = binary[self.tape.below(binary.len())].clone();
                let lhs = self.pick(|ty| ty.dtype != DType::Bool)?;
                let rhs = self.twin(lhs)?;
                self.push(op, vec![lhs, rhs])
            }
            3 => {
                let comparison = self.tape.of(Comparison::ALL);
                let lhs = self.pick(|_| true)?;
                let rhs = self.twin(lhs)?;
                Some(self.builder.compare(lhs, rhs, comparison))
            }
            4 => {
                let lhs = self.pick(|ty| ty.dtype == DType::Bool)?;
                let rhs = self.twin(lhs)?;
                Some(match self.tape.below(3) {
                    0 => self.builder.and(lhs, rhs),
                    1 => self.builder.or(lhs, rhs),
                    _ => self.builder.not(lhs),
                })
            }
            5 => {
                let condition = self.pick(|ty| ty.dtype == DType::Bool)?;
                let shape = self.ty(condition).shape;
                let on_true = self.pick(|ty| ty.shape == shape)?;
                let on_false = self.twin(on_true)?;
                Some(self.builder.select(condition, on_true, on_false))
            }
            _ => {
                // A constant like a value there is, so that folding has something to fold.
                let like = self.pick(|_| true)?;
                let ty = self.ty(like);
                let value = self
                    .tape
                    .of(&[0.0, 1.0, -0.0, 2.0, 0.1, -3.0, f64::INFINITY]);
                Some(self.builder.constant(value, ty.dtype, ty.shape))
            }
        }
    }
}

/// Weights for a random graph.
pub(crate) fn weights(graph: &Graph) -> Arc<Weights> {
    let mut weights = Weights::default();
    for declaration in &graph.weights {
        let numbers = |count: usize, scale: f64| -> Vec<f64> {
            let spread = |index: usize| ((index * 7 + 3) % 11) as f64 - 5.0;
            (0..count).map(|index| spread(index) * scale).collect()
        };
        let elements = declaration.elements();
        match declaration.format {
            WeightFormat::Affine { bits, group, .. } => {
                let codes: Vec<f64> = (0..elements)
                    .map(|index| ((index * 5 + 1) % (1 << bits)) as f64)
                    .collect();
                let groups = numbers(elements / group, 0.125);
                store(&mut weights, declaration, [&codes, &groups, &groups]);
            }
            _ => store(
                &mut weights,
                declaration,
                [&numbers(elements, 0.25)[..], &[], &[]],
            ),
        }
    }
    Arc::new(weights)
}

/// One call of a random graph.
pub(crate) fn step(graph: &Graph) -> Step {
    let given = graph.inputs.iter().map(|input| {
        let shape = input.ty.sizes(&sizes()).expect("all symbols are bound");
        let count: usize = shape.iter().product();
        let numbers: Vec<f64> = match (input.name.as_str(), input.ty.dtype) {
            ("start", _) => vec![0.0, 1.0],
            (_, DType::F32) => (0..count)
                .map(|i| ((i * 5) % 13) as f64 / 4.0 - 1.0)
                .collect(),
            (_, DType::Bool) => (0..count).map(|i| (i % 2) as f64).collect(),
            _ => (0..count).map(|i| (i % 4) as f64).collect(),
        };
        let tensor = HostTensor {
            dtype: input.ty.dtype,
            shape,
            bytes: bytes(input.ty.dtype, &numbers),
        };
        (input.name.clone(), tensor)
    });
    (sizes(), given.collect())
}
