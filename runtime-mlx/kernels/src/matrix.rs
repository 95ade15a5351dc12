//! Borrowed weights, checked once so that kernels need not.

use crate::Error;
use crate::sides::Sides;
use mlxcel_ir::weight::{self, Code};
use mlxcel_ir::{DType, WeightData, WeightDecl, WeightFormat};

/// Codes that one vector step reads; every group is a multiple of it.
pub(crate) const STEP: usize = 16;
/// The most inputs that a matrix may have: bounds scratch memory.
const COLUMNS_LIMIT: usize = 1 << 24;

/// A weight `[N, K]` in its stored format: N outputs (rows), K inputs (columns).
///
/// The bytes may be unaligned. Construction checks every length, so that a kernel never reads
/// outside of the slices.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) format: Format<'a>,
}

/// The element types of dense weights, scales and biases; the last two are those of scales only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    F16,
    BF16,
    E8M0,
    E4M3,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Format<'a> {
    Dense { element: Element, values: &'a [u8] },
    Coded(Coded<'a>),
}

/// Codes of few bits, and where their scales and biases come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coded<'a> {
    /// What a code is: see [`bits`].
    pub(crate) code: usize,
    /// Numbers that share a scale and a bias: a multiple of [`STEP`] that divides the columns.
    pub(crate) group: usize,
    pub(crate) codes: &'a [u8],
    /// Whether sixteen rows stand together ([`mlxcel_ir::weight::panel`]).
    pub(crate) panels: bool,
    pub(crate) sides: Sides<'a>,
}

/// Set in a code that is a floating-point number; then there are no biases.
pub(crate) const FLOAT: usize = 64;
/// Codes of four bits that are floating-point numbers.
pub(crate) const E2M1: usize = FLOAT + 4;
/// Codes of eight bits that are floating-point numbers.
pub(crate) const E4M3: usize = FLOAT + 8;

/// Bits of a code: kernels are compiled for each `code`, which is the number of bits of an unsigned
/// integer, or a floating-point number's bits plus [`FLOAT`].
pub(crate) const fn bits(code: usize) -> usize {
    code % FLOAT
}

/// Evaluates `$body` with the constant `$name` equal to `$code`.
macro_rules! for_code {
    ($code:expr, $name:ident => $body:expr) => {
        for_code!(@ $code, $name, $body, 2, 3, 4, 5, 6, $crate::matrix::E2M1, $crate::matrix::E4M3)
    };
    (@ $code:expr, $name:ident, $body:expr, $($known:expr),*) => {
        match $code {
            $(code if code == $known => {
                const $name: usize = $known;
                $body
            })*
            _ => {
                const $name: usize = 8;
                $body
            }
        }
    };
}
pub(crate) use for_code;

impl Element {
    pub(crate) fn of(dtype: DType) -> Option<Element> {
        match dtype {
            DType::F32 => Some(Element::F32),
            DType::F16 => Some(Element::F16),
            DType::BF16 => Some(Element::BF16),
            DType::Bool | DType::I32 | DType::U32 => None,
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::F16 | Element::BF16 => 2,
            Element::E8M0 | Element::E4M3 => 1,
        }
    }
}

impl<'a> Matrix<'a> {
    /// The matrix that `declaration` describes, over the bytes of `data`. The last dimension is K,
    /// those before it make N together. Groups are of a multiple of 16 numbers, and blocks of 128
    /// need K to be a multiple of 16.
    ///
    /// # Errors
    /// [`Error::Weight`], naming the weight, if the format is not supported or a part has the wrong
    /// length.
    pub fn new(declaration: &WeightDecl, data: WeightData<'a>) -> Result<Matrix<'a>, Error> {
        let fail = |detail: String| Error::Weight {
            name: declaration.name.clone(),
            detail,
        };
        let Some((&columns, outer)) = declaration.shape.split_last() else {
            return Err(fail("a matrix needs at least one dimension".into()));
        };
        let rows = outer
            .iter()
            .try_fold(1usize, |rows, &size| rows.checked_mul(size))
            .ok_or_else(|| fail(format!("shape {:?} overflows", declaration.shape)))?;
        let made = match declaration.format {
            WeightFormat::Dense(dtype) => Matrix::dense(rows, columns, dtype, data.values),
            format => Matrix::coded(format, &declaration.shape, rows, columns, data),
        };
        made.map_err(|error| match error {
            Error::Weight { detail, .. } => fail(detail),
            other => other,
        })
    }

    /// A dense matrix of `f32`, `f16` or `bf16` elements in row-major order.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn dense(
        rows: usize,
        columns: usize,
        dtype: DType,
        values: &'a [u8],
    ) -> Result<Matrix<'a>, Error> {
        let element = Element::of(dtype)
            .ok_or_else(|| fail(format!("elements are {dtype}; use f32, f16 or bf16")))?;
        shape(rows, columns)?;
        part("values", values, rows, columns, element.size() * 8)?;
        Ok(Matrix {
            rows,
            columns,
            format: Format::Dense { element, values },
        })
    }

    /// A matrix of codes, which `shape` declares: `rows` times `columns`.
    fn coded(
        format: WeightFormat,
        declared: &[usize],
        rows: usize,
        columns: usize,
        data: WeightData<'a>,
    ) -> Result<Matrix<'a>, Error> {
        shape(rows, columns)?;
        format.check(declared).map_err(fail)?;
        let coded = format
            .coded()
            .ok_or_else(|| fail(format!("{format} has no codes")))?;
        let parts = format.parts(declared).map(|part| part.bytes());
        let found = [data.values, data.scales, data.biases].map(<[u8]>::len);
        if parts != found {
            return Err(fail(format!(
                "{format}{declared:?} takes {parts:?} bytes (values, scales, biases), has {found:?}"
            )));
        }
        let group = match coded.sides {
            // The largest power of two that divides both.
            weight::Sides::Blocks(_) => 1 << columns.trailing_zeros().min(coded.group.ilog2()),
            _ => coded.group,
        };
        if !group.is_multiple_of(STEP) {
            return Err(fail(format!(
                "groups of {group} numbers do not fit {columns} columns; kernels take multiples \
                 of {STEP}"
            )));
        }
        let code = match coded.code {
            Code::Unsigned(bits) => bits.into(),
            Code::E2M1 => E2M1,
            Code::E4M3 => E4M3,
        };
        Ok(Matrix {
            rows,
            columns,
            format: Format::Coded(Coded {
                code,
                group,
                codes: data.values,
                panels: coded.panels,
                sides: Sides::new(&coded, group, declared, data)?,
            }),
        })
    }

    /// Outputs of the matrix (N).
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of the matrix (K).
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes of all stored parts.
    pub fn bytes(&self) -> usize {
        match self.format {
            Format::Dense { values, .. } => values.len(),
            Format::Coded(coded) => coded.codes.len() + coded.sides.bytes(),
        }
    }
}

pub(crate) fn fail(detail: String) -> Error {
    Error::Weight {
        name: String::new(),
        detail,
    }
}

fn shape(rows: usize, columns: usize) -> Result<(), Error> {
    if rows == 0 || columns == 0 || columns > COLUMNS_LIMIT {
        return Err(fail(format!(
            "the shape [{rows}, {columns}] is empty or has more than {COLUMNS_LIMIT} columns"
        )));
    }
    Ok(())
}

fn part(what: &str, bytes: &[u8], rows: usize, columns: usize, bits: usize) -> Result<(), Error> {
    let expected = rows
        .checked_mul(columns)
        .and_then(|elements| elements.checked_mul(bits))
        .map(|bits| bits / 8);
    if expected == Some(bytes.len()) {
        return Ok(());
    }
    Err(fail(format!(
        "{what} hold {} bytes, but [{rows}, {columns}] of {bits} bits each needs {}",
        bytes.len(),
        expected.map_or("more than memory".into(), |bytes| bytes.to_string()),
    )))
}
