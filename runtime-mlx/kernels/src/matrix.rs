//! Borrowed weights, checked once so that kernels need not.

use crate::Error;
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

/// The element types of dense weights, scales and biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    F16,
    BF16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Format<'a> {
    Dense {
        element: Element,
        values: &'a [u8],
    },
    Affine {
        bits: usize,
        group: usize,
        element: Element,
        codes: &'a [u8],
        scales: &'a [u8],
        biases: &'a [u8],
    },
}

impl Element {
    fn of(dtype: DType) -> Option<Element> {
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
        }
    }
}

impl<'a> Matrix<'a> {
    /// The matrix that `declaration` describes, over the bytes of `data`. The last dimension is K,
    /// those before it make N together. Affine weights have 2, 3, 4, 6 or 8 bits and groups of a
    /// multiple of 16 that divides K.
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
            WeightFormat::Affine { bits, group, scale } => {
                Matrix::affine(rows, columns, bits, group, scale, data)
            }
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

    /// An affine quantised matrix; see [`WeightFormat::Affine`] for the layout.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn affine(
        rows: usize,
        columns: usize,
        bits: u8,
        group: usize,
        scale: DType,
        data: WeightData<'a>,
    ) -> Result<Matrix<'a>, Error> {
        let element = Element::of(scale)
            .ok_or_else(|| fail(format!("scales are {scale}; use f32, f16 or bf16")))?;
        if !matches!(bits, 2 | 3 | 4 | 6 | 8) {
            return Err(fail(format!("codes have {bits} bits; use 2, 3, 4, 6 or 8")));
        }
        shape(rows, columns)?;
        if group == 0 || !group.is_multiple_of(STEP) || !columns.is_multiple_of(group) {
            return Err(fail(format!(
                "groups of {group} do not fit {columns} columns; use a multiple of {STEP} that divides them"
            )));
        }
        part("codes", data.values, rows, columns, usize::from(bits))?;
        let groups = columns / group;
        part("scales", data.scales, rows, groups, element.size() * 8)?;
        part("biases", data.biases, rows, groups, element.size() * 8)?;
        Ok(Matrix {
            rows,
            columns,
            format: Format::Affine {
                bits: bits.into(),
                group,
                element,
                codes: data.values,
                scales: data.scales,
                biases: data.biases,
            },
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
            Format::Affine {
                codes,
                scales,
                biases,
                ..
            } => codes.len() + scales.len() + biases.len(),
        }
    }
}

fn fail(detail: String) -> Error {
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
