//! Linear layers.
//!
//! For one row of inputs the product is written as multiply and reduce, which the compiler fuses
//! with the dequantisation into one pass over the stored weight. As a dot product it would
//! transpose the weight, and so write a dequantised copy of it first. For many rows that copy pays.

use super::element::{Element, Tensor};
use super::operations::{DotDims, Emitted, Operations};
use super::weight::{Globals, Stored};
use mlxcel_ir::WeightDecl;

impl<'c, 'a> Operations<'c, 'a> {
    /// `x · weightᵀ + bias` for `x[..., K]`, `weight[N, K]` and `bias[N]`, accumulated in f32.
    pub(crate) fn linear(
        &self,
        globals: &mut Globals,
        x: &Tensor<'c, 'a>,
        weight: &WeightDecl,
        bias: Option<&WeightDecl>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (Some((&width, outer)), &[outputs, _]) = (x.shape().split_last(), &weight.shape[..])
        else {
            return Err(format!("the weight `{}` is no matrix", weight.name));
        };
        let rows: usize = outer.iter().product();
        let element = x.element();
        let input = self.convert(x, Element::F32)?;
        let input = self.reshape(&input, &[rows, width])?;
        let stored = self.stored(globals, weight)?;
        let product = match rows {
            1 => self.row_times(&input, stored)?,
            _ => {
                let numbers = match stored {
                    Stored::Dense(values) => self.convert(&values, Element::F32)?,
                    Stored::Coded(codes) => {
                        let numbers = self.dequantise(&codes)?;
                        self.reshape(&numbers, &[outputs, width])?
                    }
                };
                let dims = DotDims {
                    lhs_batch: &[],
                    rhs_batch: &[],
                    lhs_contract: &[1],
                    rhs_contract: &[1],
                };
                self.dot(&input, &numbers, &dims, Element::F32)?
            }
        };
        let product = match bias {
            Some(bias) => {
                let bias = self.parameter(globals, bias)?;
                let bias = self.broadcast(&bias, &[rows, outputs], &[1])?;
                self.map("add", &[&product, &bias])?
            }
            None => product,
        };
        let product = self.convert(&product, element)?;
        self.reshape(&product, &[outer, &[outputs]].concat())
    }

    /// The product of one row `[1, K]` with a weight `[N, K]`, `[1, N]`.
    fn row_times(&self, row: &Tensor<'c, 'a>, weight: Stored<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let numbers = match weight {
            Stored::Dense(values) => self.convert(&values, Element::F32)?,
            Stored::Coded(codes) => self.dequantise(&codes)?,
        };
        let shape = numbers.shape().to_vec();
        let dims: Vec<usize> = (1..shape.len()).collect();
        let row = self.reshape(row, &shape[1..])?;
        let row = self.broadcast(&row, &shape, &dims)?;
        let products = self.map("multiply", &[&numbers, &row])?;
        let sums = self.reduce("add", "0.0", &products, &dims)?;
        self.reshape(&sums, &[1, shape[0]])
    }
}
