//! What goes through the new tokens in order.
//!
//! Few tokens are straight-line code; more are a loop over chunks of them, whose counter stays on the
//! host. Wholly unrolled, the code of a prefill function would grow with its tokens. Each pass of a
//! loop copies what it hands on, the results among it, so a chunk is more than one token.

use super::element::{Element, Kind, Tensor};
use super::operations::{Emitted, Operations};

/// What a chunk of tokens gives and what it hands to the next.
pub(crate) type Stepped<'c, 'b> = (Tensor<'c, 'b>, Vec<Tensor<'c, 'b>>);

impl<'c, 'a> Operations<'c, 'a> {
    /// Calls `step` with the parts of `inputs[B, T, ...]` for at most `most` tokens, in turn, and with
    /// what the chunk before handed on, at first `carried`. Its results `[B, chunk, rest...]` come
    /// back as one, `[B, T, rest...]`.
    pub(crate) fn over_tokens(
        &self,
        most: usize,
        inputs: &[Tensor<'c, 'a>],
        carried: &[Tensor<'c, 'a>],
        rest: &[usize],
        step: impl for<'b> FnOnce(
            &Operations<'c, 'b>,
            &[Tensor<'c, 'b>],
            &[Tensor<'c, 'b>],
        ) -> Emitted<Stepped<'c, 'b>>,
    ) -> Emitted<Stepped<'c, 'a>> {
        let first = inputs.first().ok_or("no tokens to go through")?;
        let (rows, tokens) = (first.shape()[0], first.shape()[1]);
        if tokens <= most {
            return step(self, inputs, carried);
        }
        let chunk = (1..=most.max(1))
            .rev()
            .find(|size| tokens.is_multiple_of(*size));
        let chunk = chunk.unwrap_or(1);
        let whole = [&[rows, tokens], rest].concat();
        let counter = Kind::new(Element::I32, []);
        let zero = self.splat(0.0, counter.clone())?;
        let results = self.splat(0.0, Kind::new(Element::F32, whole))?;
        let initial: Vec<Tensor<'c, 'a>> = [zero, results]
            .iter()
            .chain(carried)
            .chain(inputs)
            .cloned()
            .collect();
        let kinds: Vec<Kind> = initial.iter().map(|tensor| tensor.kind.clone()).collect();
        let more = self.region(&kinds, |inner, arguments| {
            let end = inner.splat(tokens as f64, counter.clone())?;
            let more = inner.compare("LT", &arguments[0], &end)?;
            inner.finish("stablehlo.return", &[&more])
        })?;
        let body = self.region(&kinds, |inner, arguments| {
            let (token, results) = (&arguments[0], &arguments[1]);
            let (carried, inputs) = arguments[2..].split_at(carried.len());
            let zero = inner.splat(0.0, counter.clone())?;
            let place = |rank: usize| {
                let mut starts = vec![&zero; rank];
                starts[1] = token;
                starts
            };
            let parts = inputs
                .iter()
                .map(|input| {
                    let mut sizes = input.shape().to_vec();
                    sizes[1] = chunk;
                    inner.dynamic_slice(input, &place(sizes.len()), &sizes)
                })
                .collect::<Emitted<Vec<_>>>()?;
            let (result, carried) = step(inner, &parts, carried)?;
            let results = inner.update_slice(results, &result, &place(results.shape().len()))?;
            let chunk = inner.splat(chunk as f64, counter.clone())?;
            let next = inner.map("add", &[token, &chunk])?;
            let returned: Vec<&Tensor> = [&next, &results]
                .into_iter()
                .chain(&carried)
                .chain(inputs)
                .collect();
            inner.finish("stablehlo.return", &returned)
        })?;
        let values: Vec<_> = initial.iter().map(|tensor| tensor.value).collect();
        let types: Vec<_> = kinds.iter().map(|kind| kind.ty(self.context)).collect();
        let values = self.operation("stablehlo.while", &values, &[], vec![more, body], &types)?;
        let mut tensors = values
            .into_iter()
            .zip(kinds)
            .map(|(value, kind)| Tensor { value, kind })
            .skip(1);
        let results = tensors.next().ok_or("a loop has results")?;
        Ok((results, tensors.take(carried.len()).collect()))
    }
}
