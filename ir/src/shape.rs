//! Shapes whose dimensions are numbers or symbols, and the tensor types made of them.

use crate::DType;
use std::fmt;

/// A dimension known only when the graph is run or specialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symbol {
    /// Rows of the batch.
    B,
    /// New tokens of each row.
    T,
    /// Capacity of the key-value cache, in tokens.
    S,
}

impl Symbol {
    /// Every symbol, in declaration order.
    pub const ALL: [Symbol; 3] = [Symbol::B, Symbol::T, Symbol::S];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Symbol::B => "B",
            Symbol::T => "T",
            Symbol::S => "S",
        }
    }
}

/// One dimension of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A number known when the graph is built.
    Fixed(usize),
    /// A number that a [`Bindings`] gives.
    Symbol(Symbol),
}

impl Dim {
    /// The number, where it is known.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Dim::Fixed(size) => Some(size),
            Dim::Symbol(_) => None,
        }
    }
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Dim::Fixed(size)
    }
}

impl From<Symbol> for Dim {
    fn from(symbol: Symbol) -> Self {
        Dim::Symbol(symbol)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Symbol(symbol) => f.write_str(symbol.name()),
        }
    }
}

/// The sizes given to the symbols of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bindings([Option<usize>; Symbol::ALL.len()]);

impl Bindings {
    /// No symbol bound.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same bindings with `symbol` bound to `size`.
    pub fn with(mut self, symbol: Symbol, size: usize) -> Self {
        self.0[symbol as usize] = Some(size);
        self
    }

    /// The size of `symbol`, where bound.
    pub fn get(&self, symbol: Symbol) -> Option<usize> {
        self.0[symbol as usize]
    }

    /// `dim` with its symbol replaced, where bound.
    pub fn apply(&self, dim: Dim) -> Dim {
        match dim {
            Dim::Symbol(symbol) => self.get(symbol).map_or(dim, Dim::Fixed),
            Dim::Fixed(_) => dim,
        }
    }
}

/// The type of a value: element type and shape, row-major.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The dimensions, outermost first; empty for a scalar.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// A type from its element type and dimensions.
    pub fn new<D: Into<Dim>>(dtype: DType, shape: impl IntoIterator<Item = D>) -> Self {
        Self {
            dtype,
            shape: shape.into_iter().map(Into::into).collect(),
        }
    }

    /// A scalar.
    pub fn scalar(dtype: DType) -> Self {
        Self {
            dtype,
            shape: Vec::new(),
        }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The shape as numbers, or the first symbol that `bindings` leaves open.
    pub fn sizes(&self, bindings: &Bindings) -> Result<Vec<usize>, Symbol> {
        self.shape
            .iter()
            .map(|&dim| match bindings.apply(dim) {
                Dim::Fixed(size) => Ok(size),
                Dim::Symbol(symbol) => Err(symbol),
            })
            .collect()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (index, dim) in self.shape.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{dim}")?;
        }
        f.write_str("]")
    }
}
