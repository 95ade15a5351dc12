//! Element types and tensor types as MLIR has them.

use melior::Context;
use melior::ir::r#type::{IntegerType, RankedTensorType};
use melior::ir::{Type, Value};
use mlxcel_ir::DType;

/// An element type. Integers without a sign are signed where StableHLO must choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    I1,
    I4,
    I8,
    I32,
    U4,
    U8,
    U32,
    F16,
    BF16,
    F32,
}

impl From<DType> for Element {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Element::I1,
            DType::I32 => Element::I32,
            DType::U32 => Element::U32,
            DType::F16 => Element::F16,
            DType::BF16 => Element::BF16,
            DType::F32 => Element::F32,
        }
    }
}

impl Element {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Element::I1 => "i1",
            Element::I4 => "i4",
            Element::I8 => "i8",
            Element::I32 => "i32",
            Element::U4 => "ui4",
            Element::U8 => "ui8",
            Element::U32 => "ui32",
            Element::F16 => "f16",
            Element::BF16 => "bf16",
            Element::F32 => "f32",
        }
    }

    /// Whether its values are whole numbers, or truth values.
    pub(crate) fn is_integer(self) -> bool {
        !matches!(self, Element::F16 | Element::BF16 | Element::F32)
    }

    pub(crate) fn ty(self, context: &Context) -> Type<'_> {
        match self {
            Element::I1 => IntegerType::new(context, 1).into(),
            Element::I4 => IntegerType::new(context, 4).into(),
            Element::I8 => IntegerType::new(context, 8).into(),
            Element::I32 => IntegerType::new(context, 32).into(),
            Element::U4 => IntegerType::unsigned(context, 4).into(),
            Element::U8 => IntegerType::unsigned(context, 8).into(),
            Element::U32 => IntegerType::unsigned(context, 32).into(),
            Element::F16 => Type::float16(context),
            Element::BF16 => Type::bfloat16(context),
            Element::F32 => Type::float32(context),
        }
    }
}

/// The type of a tensor whose sizes are all known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) element: Element,
    pub(crate) shape: Vec<usize>,
}

impl Kind {
    pub(crate) fn new(element: impl Into<Element>, shape: impl Into<Vec<usize>>) -> Self {
        Self {
            element: element.into(),
            shape: shape.into(),
        }
    }

    pub(crate) fn ty<'c>(&self, context: &'c Context) -> Type<'c> {
        let sizes: Vec<u64> = self.shape.iter().map(|&size| size as u64).collect();
        RankedTensorType::new(&sizes, self.element.ty(context), None).into()
    }

    /// In MLIR's notation, for instance `tensor<2x3xf32>`.
    pub(crate) fn text(&self) -> String {
        let sizes: String = self.shape.iter().map(|size| format!("{size}x")).collect();
        format!("tensor<{sizes}{}>", self.element.name())
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A value of the function being built, with its type.
#[derive(Clone, Debug)]
pub(crate) struct Tensor<'c, 'a> {
    pub(crate) value: Value<'c, 'a>,
    pub(crate) kind: Kind,
}

impl Tensor<'_, '_> {
    pub(crate) fn shape(&self) -> &[usize] {
        &self.kind.shape
    }

    pub(crate) fn element(&self) -> Element {
        self.kind.element
    }
}
