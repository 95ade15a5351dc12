//! Random graphs that every execution must agree on, for differential tests.
//!
//! [`graph`] builds a legal graph from a tape of numbers, with every op, element type and weight
//! format, and sizes around those at which kernels change their ways. A shorter tape gives a smaller
//! graph, so that a failing one can be reduced. [`Data`] gives inputs and weights to any graph from
//! a seed. [`settle()`] drops the nodes whose result rounding may change at will: what is left has one
//! meaning, and each of its elements a bound ([`crate::interpret::Bounded`]).

mod composite;
mod data;
mod elementwise;
mod moves;
mod settle;

pub use data::{Data, Weights};
pub use settle::{Settled, settle};

use crate::{
    Bindings, BuildError, Builder, DType, Dim, Graph, Op, StateDecl, StateId, StateKind, Symbol,
    TensorType, ValueId, WeightDecl, WeightFormat, WeightId,
};

/// Sizes around the widths of vectors, groups and blocks.
const WIDTHS: [usize; 16] = [
    1, 2, 3, 4, 8, 16, 31, 32, 33, 64, 96, 127, 128, 129, 256, 512,
];
/// New tokens of a row.
const TOKENS: [usize; 9] = [1, 1, 2, 3, 4, 7, 31, 32, 33];
/// The most elements of a value that a node may read.
const MOST: usize = 5000;

/// Choices, one after the other; zeros when they run out.
#[derive(Clone, Copy, Debug)]
pub struct Tape<'a>(pub &'a [u32]);

impl Tape<'_> {
    /// A number below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first as usize % count.max(1)
    }

    /// One of `items`.
    pub fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Whether something of one chance in `count` happens.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 1
    }
}

/// A graph with the sizes of its symbols.
#[derive(Clone, Debug, PartialEq)]
pub struct Random {
    /// The graph.
    pub graph: Graph,
    /// The sizes.
    pub bindings: Bindings,
}

/// The sizes that one graph is built from.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: usize,
    tokens: usize,
    capacity: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    key: usize,
    value: usize,
}

/// The inputs that ops of states and positions read.
#[derive(Clone, Copy, Debug)]
struct Roles {
    tokens: ValueId,
    start: ValueId,
    far: ValueId,
    length: ValueId,
    query: ValueId,
    key: ValueId,
    value: ValueId,
}

/// Rows of the tables that tokens index: as many as token ids there are.
pub(crate) const VOCABULARY: usize = 7;

/// A legal graph of at most about as many nodes as the tape is long.
pub fn graph(tape: &[u32]) -> Random {
    let mut tape = Tape(tape);
    let (sizes, float) = sizes(&mut tape);
    let mut builder = Builder::new("random");
    let (b, t) = (Dim::Symbol(Symbol::B), Dim::Symbol(Symbol::T));
    let [width, heads, kv_heads, key, value] = [
        sizes.width,
        sizes.heads,
        sizes.kv_heads,
        sizes.key,
        sizes.value,
    ]
    .map(Dim::Fixed);
    let mut input = |name: &str, dtype, shape: &[Dim]| {
        builder.input(name, TensorType::new(dtype, shape.iter().copied()))
    };
    input("x", float, &[b, t, width]);
    input("y", float, &[b, t, width]);
    let roles = Roles {
        query: input("query", float, &[b, t, heads, key]),
        key: input("key", float, &[b, t, kv_heads, key]),
        value: input("value", float, &[b, t, kv_heads, value]),
        tokens: input("tokens", DType::I32, &[b, t]),
        start: input("start", DType::I32, &[b]),
        far: input("far", DType::I32, &[b]),
        length: input("length", DType::I32, &[b]),
    };
    input("flag", DType::Bool, &[b, t, width]);
    input("count", DType::U32, &[b, t]);
    input("matrix", float, &[Dim::Fixed(VOCABULARY), width]);
    input("scalar", float, &[]);
    let bindings = Bindings::new()
        .with(Symbol::B, sizes.rows)
        .with(Symbol::T, sizes.tokens)
        .with(Symbol::S, sizes.capacity);
    let mut generator = Generator {
        tape,
        builder,
        bindings,
        sizes,
        roles,
    };
    while !generator.tape.0.is_empty() {
        // What does not fit is not built.
        let Some(Ok(value)) = generator.node() else {
            continue;
        };
        if generator.tape.once_in(3) {
            generator.builder.name(value, format!("node.{}", value.0));
        }
        if generator.tape.once_in(4) {
            generator.builder.output(format!("out.{}", value.0), value);
        }
    }
    let graph = generator.builder.graph();
    if !graph.nodes.is_empty() {
        let last = graph.value_of(graph.nodes.len() - 1);
        generator.builder.output("last", last);
    }
    Random {
        graph: generator.builder.finish(),
        bindings,
    }
}

fn sizes(tape: &mut Tape<'_>) -> (Sizes, DType) {
    let float = tape.of(&[
        DType::F32,
        DType::F32,
        DType::F32,
        DType::F32,
        DType::BF16,
        DType::F16,
    ]);
    let rows = tape.of(&[1, 2, 3]);
    let tokens = tape.of(&TOKENS);
    let small: Vec<usize> = WIDTHS
        .into_iter()
        .filter(|width| rows * tokens * width <= MOST)
        .collect();
    let width = tape.of(&small);
    let kv_heads = tape.of(&[1, 2, 3]);
    let group = tape.of(&[1, 2, 4]);
    let narrow: Vec<usize> = [2, 4, 5, 8, 16, 32, 33, 64]
        .into_iter()
        .filter(|width| rows * tokens * kv_heads * group * width <= MOST)
        .collect();
    let key = tape.of(&narrow);
    let value = if tape.once_in(3) {
        tape.of(&narrow)
    } else {
        key
    };
    let sizes = Sizes {
        rows,
        tokens,
        capacity: tokens + tape.of(&[0, 1, 5, 32]),
        width,
        heads: kv_heads * group,
        kv_heads,
        key,
        value,
    };
    (sizes, float)
}

struct Generator<'a> {
    tape: Tape<'a>,
    builder: Builder,
    bindings: Bindings,
    sizes: Sizes,
    roles: Roles,
}

type Built = Option<Result<ValueId, BuildError>>;

impl Generator<'_> {
    fn node(&mut self) -> Built {
        match self.tape.below(8) {
            0 | 1 => self.elementwise(),
            2 => self.moved(),
            3 => self.contracted(),
            4 => self.chosen(),
            5 => self.cached(),
            _ => self.composite(),
        }
    }

    fn ty(&self, value: ValueId) -> TensorType {
        self.builder.ty(value).clone()
    }

    /// The sizes of a value.
    fn shape(&self, value: ValueId) -> Vec<usize> {
        self.ty(value).sizes(&self.bindings).unwrap_or_default()
    }

    /// A value whose type is as wanted and that is small enough to grow; later ones more often.
    fn pick(&mut self, wanted: impl Fn(&TensorType) -> bool) -> Option<ValueId> {
        let graph = self.builder.graph();
        let count = graph.inputs.len() + graph.nodes.len();
        let small = |ty: &TensorType| {
            let sizes = ty.sizes(&self.bindings).unwrap_or_default();
            sizes.iter().product::<usize>() <= MOST && ty.rank() < 6
        };
        let fitting: Vec<ValueId> = (0..count as u32)
            .map(ValueId)
            .filter(|&value| graph.ty(value).is_some_and(|ty| small(ty) && wanted(ty)))
            .collect();
        if fitting.is_empty() {
            return None;
        }
        let recent = fitting.len().saturating_sub(3);
        Some(match self.tape.below(2) {
            0 => self.tape.of(&fitting),
            _ => self.tape.of(&fitting[recent..]),
        })
    }

    fn float(&mut self) -> Option<ValueId> {
        self.pick(|ty| ty.dtype.is_float())
    }

    /// A value of floats with dimensions, whose last is a number.
    fn row(&mut self) -> Option<(ValueId, usize)> {
        let x = self
            .pick(|ty| ty.dtype.is_float() && matches!(ty.shape.last(), Some(Dim::Fixed(1..))))?;
        let width = self.ty(x).shape.last()?.fixed()?;
        Some((x, width))
    }

    /// A value of the type of `like`.
    fn twin(&mut self, like: ValueId) -> Option<ValueId> {
        let ty = self.ty(like);
        self.pick(|other| *other == ty)
    }

    /// A constant of the type of `like`.
    fn constant_like(&mut self, like: ValueId, value: f64) -> Option<ValueId> {
        let ty = self.ty(like);
        self.builder.constant(value, ty.dtype, ty.shape).ok()
    }

    /// A dense weight.
    fn dense(&mut self, shape: &[usize]) -> WeightId {
        let dtype = self.tape.of(&[DType::F32, DType::F16, DType::BF16]);
        self.declare(shape, WeightFormat::Dense(dtype))
    }

    /// A matrix, or a stack of them, in any format that its shape can have.
    fn matrix(&mut self, shape: &[usize]) -> WeightId {
        let format = self.tape.of(&formats(shape));
        self.declare(shape, format)
    }

    fn declare(&mut self, shape: &[usize], format: WeightFormat) -> WeightId {
        let name = format!("w.{}", self.builder.graph().weights.len());
        self.builder.weight(WeightDecl {
            name,
            shape: shape.to_vec(),
            format,
        })
    }

    fn state(&mut self, kind: StateKind, [heads, key, value]: [usize; 3], dtype: DType) -> StateId {
        let name = format!("state.{}", self.builder.graph().states.len());
        self.builder.state(StateDecl {
            name,
            kind,
            heads,
            key_dim: key,
            value_dim: value,
            dtype,
        })
    }

    fn push(&mut self, op: Op, operands: Vec<ValueId>) -> Built {
        Some(self.builder.push(op, operands, vec![], None))
    }
}

/// The formats that a weight of this shape may be stored in; dense ones several times, so that they
/// are not rare among the many others.
pub fn formats(shape: &[usize]) -> Vec<WeightFormat> {
    let mut formats = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        formats.extend([WeightFormat::Dense(dtype); 2]);
        formats.push(WeightFormat::Fp8Block { scale: dtype });
        let scale = dtype;
        formats.extend([(4, 16), (8, 32)].map(|(bits, group)| WeightFormat::Float {
            bits,
            group,
            scale,
        }));
        for bits in [2, 3, 4, 5, 6, 8] {
            formats.extend([32, 64, 128].map(|group| WeightFormat::Affine {
                bits,
                group,
                scale: dtype,
            }));
        }
        formats.extend([(2, 1), (4, 8), (5, 16), (8, 128)].map(|(bits, zero)| {
            WeightFormat::ZeroPoint {
                bits,
                zero,
                group: 32,
                scale: dtype,
            }
        }));
    }
    formats.extend([None, Some(8)].map(|zero| WeightFormat::Panels {
        zero,
        group: 32,
        scale: DType::F16,
    }));
    formats.extend([
        WeightFormat::MxFp4,
        WeightFormat::MxFp8,
        WeightFormat::NvFp4,
    ]);
    formats.extend((2..=6).map(|bits| WeightFormat::KQuant { bits }));
    formats.retain(|format| format.check(shape).is_ok());
    formats
}
