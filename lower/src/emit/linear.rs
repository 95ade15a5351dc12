//! Linear layers.
//!
//! For one row of inputs the product is written as multiply and reduce, which the compiler fuses
//! with the dequantisation into one pass over the stored weight. As a dot product it would
//! transpose the weight, and so write a dequantised copy of it first. For many rows that copy pays.

use super::element::{Element, Tensor};
use super::operations::{DotDims, Emitted, Operations};
use super::weight::{Globals, Stored};
use mlxcel_ir::WeightDecl;

/// Bytes of stored matrices that a pass of a loop over tokens copies.
const EXPERT_BYTES: usize = 64 << 20;

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

    /// `x · weight[expert]ᵀ + bias[expert]` for each expert that `experts[B, T, k]` names, with `x` of
    /// `[B, T, K]` or `[B, T, k, K]`, `weight[E, N, K]` and `bias[E, N]`, accumulated in f32.
    ///
    /// Tokens go in chunks, so that only so many matrices are copied at a time.
    pub(crate) fn expert_linear(
        &self,
        globals: &mut Globals,
        [x, experts]: [&Tensor<'c, 'a>; 2],
        weight: &WeightDecl,
        bias: Option<&WeightDecl>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (&[rows, _, chosen], &[count, outputs, _]) = (experts.shape(), &weight.shape[..])
        else {
            return Err(format!("the weight `{}` is not of experts", weight.name));
        };
        let token = (weight.bytes() / count.max(1)).saturating_mul(rows * chosen);
        let most = (EXPERT_BYTES / token.max(1)).clamp(1, 8);
        let input = self.convert(x, Element::F32)?;
        let (product, _) = self.over_tokens(
            most,
            &[input, experts.clone()],
            &[],
            &[chosen, outputs],
            |inner, parts, _| {
                let product = inner.chosen_linear(globals, parts, weight, bias)?;
                Ok((product, Vec::new()))
            },
        )?;
        self.convert(&product, x.element())
    }

    /// [`Self::expert_linear`] for a chunk of the tokens.
    fn chosen_linear(
        &self,
        globals: &mut Globals,
        parts: &[Tensor<'c, 'a>],
        weight: &WeightDecl,
        bias: Option<&WeightDecl>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let ([x, experts], &[_, outputs, width]) = (parts, &weight.shape[..]) else {
            return Err("experts have an input and choices".into());
        };
        let &[rows, tokens, chosen] = experts.shape() else {
            return Err("choices have three dimensions".into());
        };
        let all = rows * tokens * chosen;
        let indices = self.reshape(experts, &[all])?;
        let numbers = self.chosen(globals, weight, &indices)?;
        let shape = [all, outputs, width];
        let dims: &[usize] = match x.shape().len() {
            3 => &[0, 1, 3],
            _ => &[0, 1, 2, 3],
        };
        let x = self.broadcast(x, &[rows, tokens, chosen, width], dims)?;
        let x = self.reshape(&x, &[all, width])?;
        let x = self.broadcast(&x, &shape, &[0, 2])?;
        let products = self.map("multiply", &[&numbers, &x])?;
        let mut product = self.reduce("add", "0.0", &products, &[2])?;
        if let Some(bias) = bias {
            let bias = self.chosen(globals, bias, &indices)?;
            product = self.map("add", &[&product, &bias])?;
        }
        self.reshape(&product, &[rows, tokens, chosen, outputs])
    }
}
