//! Primitive ops in StableHLO.

use super::element::{Element, Kind, Tensor};
use super::operations::{DotDims, Emitted, Operations};
use mlxcel_ir::{Comparison, DType, Reduction};

pub(crate) fn direction(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "EQ",
        Comparison::NotEqual => "NE",
        Comparison::Less => "LT",
        Comparison::LessEqual => "LE",
        Comparison::Greater => "GT",
        Comparison::GreaterEqual => "GE",
    }
}

impl<'c, 'a> Operations<'c, 'a> {
    /// The notation of a number as an element of a constant.
    fn number(value: f64, element: Element) -> String {
        match element {
            Element::F32 => format!("0x{:08X}", (value as f32).to_bits()),
            Element::F16 => format!("0x{:04X}", half::f16::from_f64(value).to_bits()),
            Element::BF16 => format!("0x{:04X}", half::bf16::from_f64(value).to_bits()),
            Element::I1 => (value != 0.0).to_string(),
            _ => format!("{value:.0}"),
        }
    }

    /// A tensor whose elements all equal `value`.
    pub(crate) fn splat(&self, value: f64, kind: Kind) -> Emitted<Tensor<'c, 'a>> {
        self.constant(&Self::number(value, kind.element), kind)
    }

    /// A vector of numbers.
    pub(crate) fn table(&self, values: &[f64], dtype: DType) -> Emitted<Tensor<'c, 'a>> {
        let element = Element::from(dtype);
        let numbers: Vec<String> = values
            .iter()
            .map(|&value| Self::number(value, element))
            .collect();
        let kind = Kind::new(element, [values.len()]);
        match values.is_empty() {
            true => self.constant("", kind),
            false => self.constant(&format!("[{}]", numbers.join(", ")), kind),
        }
    }

    /// Reduces one dimension, which the result keeps with size 1.
    pub(crate) fn reduce_keeping(
        &self,
        reduction: Reduction,
        x: &Tensor<'c, 'a>,
        dim: usize,
    ) -> Emitted<Tensor<'c, 'a>> {
        let bounds = match x.element() {
            Element::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
            Element::U32 => (0.0, f64::from(u32::MAX)),
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        };
        let (name, initial) = match reduction {
            Reduction::Sum => ("add", 0.0),
            Reduction::Max => ("maximum", bounds.0),
            Reduction::Min => ("minimum", bounds.1),
        };
        let mut shape = x.shape().to_vec();
        let initial = Self::number(initial, x.element());
        let reduced = self.reduce(name, &initial, x, &[dim])?;
        shape[dim] = 1;
        self.reshape(&reduced, &shape)
    }

    /// The index of the largest element along the last dimension, the first of equals.
    pub(crate) fn argmax(&self, x: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let Some((&size, rest)) = x.shape().split_last() else {
            return Err("argmax of a scalar".into());
        };
        let indices = self.iota(Kind::new(Element::I32, x.shape()), rest.len())?;
        let (number, index) = (Kind::new(x.element(), []), Kind::new(Element::I32, []));
        let lowest = self.splat(f64::NEG_INFINITY, number.clone())?;
        let last = self.splat(size as f64, index.clone())?;
        let arguments = [number.clone(), index.clone(), number, index];
        let body = self.region(&arguments, |inner, arguments| {
            let [left, left_index, right, right_index] = arguments else {
                return Err("argmax has four arguments".into());
            };
            let larger = inner.compare("GT", left, right)?;
            let equal = inner.compare("EQ", left, right)?;
            let before = inner.compare("LT", left_index, right_index)?;
            let first = inner.map("and", &[&equal, &before])?;
            let choose = inner.map("or", &[&larger, &first])?;
            let value = inner.map("select", &[&choose, left, right])?;
            let index = inner.map("select", &[&choose, left_index, right_index])?;
            inner.finish("stablehlo.return", &[&value, &index])
        })?;
        let dims = self.attribute(&format!("array<i64: {}>", rest.len()))?;
        let kinds = [Kind::new(x.element(), rest), Kind::new(Element::I32, rest)];
        let types = kinds.each_ref().map(|kind| kind.ty(self.context));
        let results = self.operation(
            "stablehlo.reduce",
            &[x.value, indices.value, lowest.value, last.value],
            &[("dimensions", dims)],
            vec![body],
            &types,
        )?;
        let [_, kind] = kinds;
        let value = *results.get(1).ok_or("argmax has two results")?;
        let found = Tensor { value, kind };
        // A row of nothing but NaN or -inf finds no element: it gives the first one.
        let none = self.splat(size as f64, found.kind.clone())?;
        let none = self.compare("EQ", &found, &none)?;
        let zero = self.splat(0.0, found.kind.clone())?;
        self.map("select", &[&none, &zero, &found])
    }

    /// The indices of the `count` largest elements along the last dimension, the largest first, the
    /// first one of equals.
    ///
    /// An element's place is the number of those before it, all counted at once: repeated reductions
    /// would be several dispatches for each, and sorting is slow here.
    pub(crate) fn top_k(&self, x: &Tensor<'c, 'a>, count: usize) -> Emitted<Tensor<'c, 'a>> {
        let Some((&size, outer)) = x.shape().split_last() else {
            return Err("top_k of a scalar".into());
        };
        if size == 1 {
            return self.splat(0.0, Kind::new(Element::I32, x.shape()));
        }
        let rows = outer.iter().product();
        let x = self.convert(x, Element::F32)?;
        let x = self.reshape(&x, &[rows, size])?;
        // What is no number comes last.
        let number = self.compare("EQ", &x, &x)?;
        let lowest = self.splat(f64::NEG_INFINITY, x.kind.clone())?;
        let x = self.map("select", &[&number, &x, &lowest])?;
        let pairs = [rows, size, size];
        let (own, other) = (
            self.broadcast(&x, &pairs, &[0, 1])?,
            self.broadcast(&x, &pairs, &[0, 2])?,
        );
        let kind = Kind::new(Element::I32, pairs);
        let (own_index, other_index) = (self.iota(kind.clone(), 1)?, self.iota(kind, 2)?);
        let larger = self.compare("GT", &other, &own)?;
        let equal = self.compare("EQ", &other, &own)?;
        let earlier = self.compare("LT", &other_index, &own_index)?;
        let earlier = self.map("and", &[&equal, &earlier])?;
        let before = self.map("or", &[&larger, &earlier])?;
        let place = self.sum_where(&before, None)?;
        let kind = Kind::new(Element::I32, [rows, count, size]);
        let place = self.broadcast(&place, &kind.shape, &[0, 2])?;
        let wanted = self.iota(kind.clone(), 1)?;
        let found = self.compare("EQ", &place, &wanted)?;
        let index = self.iota(kind, 2)?;
        let chosen = self.sum_where(&found, Some(&index))?;
        self.reshape(&chosen, &[outer, &[count]].concat())
    }

    /// The sum along the last dimension of the elements of `x`, or of ones, where `condition` holds.
    fn sum_where(
        &self,
        condition: &Tensor<'c, 'a>,
        x: Option<&Tensor<'c, 'a>>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let kind = Kind::new(Element::I32, condition.shape());
        let x = match x {
            Some(x) => x.clone(),
            None => self.splat(1.0, kind.clone())?,
        };
        let zero = self.splat(0.0, kind)?;
        let counted = self.map("select", &[condition, &x, &zero])?;
        self.reduce("add", "0", &counted, &[condition.shape().len() - 1])
    }

    /// The elements of each row of `x` that the same row of `indices` names.
    pub(crate) fn take_along(
        &self,
        x: &Tensor<'c, 'a>,
        indices: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (Some(&size), Some(&count)) = (x.shape().last(), indices.shape().last()) else {
            return Err("take_along of a scalar".into());
        };
        let rows = indices.shape()[..indices.shape().len() - 1]
            .iter()
            .product();
        let kind = Kind::new(Element::I32, [rows, count]);
        let row = self.iota(kind.clone(), 0)?;
        let width = self.splat(size as f64, kind.clone())?;
        let first = self.map("multiply", &[&row, &width])?;
        let place = self.reshape(indices, &kind.shape)?;
        let place = self.map("add", &[&first, &place])?;
        let flat = self.reshape(x, &[rows * size])?;
        let taken = self.gather(&flat, &place)?;
        self.reshape(&taken, indices.shape())
    }

    /// Elements of `table` along its first dimension, `[indices..., rest of table...]`.
    pub(crate) fn gather(
        &self,
        table: &Tensor<'c, 'a>,
        indices: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let width = table.shape()[1..].iter().product();
        let shape = [indices.shape(), &table.shape()[1..]].concat();
        let flat = self.reshape(table, &[table.shape()[0], width])?;
        let flat_indices = self.reshape(indices, &[indices.kind.elements()])?;
        let rows = self.gather_rows(&flat, &flat_indices)?;
        self.reshape(&rows, &shape)
    }

    /// From each row `b` of `x[B, T, ...]` the element `index[b]` along T.
    pub(crate) fn take_row(
        &self,
        x: &Tensor<'c, 'a>,
        index: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (rows, tokens) = (x.shape()[0], x.shape()[1]);
        let shape = [&x.shape()[..1], &x.shape()[2..]].concat();
        if tokens == 1 {
            return self.reshape(x, &shape);
        }
        let kind = Kind::new(Element::I32, [rows]);
        let row = self.iota(kind.clone(), 0)?;
        let width = self.splat(tokens as f64, kind)?;
        let first = self.map("multiply", &[&row, &width])?;
        let flat_index = self.map("add", &[&first, index])?;
        let flat = self.reshape(x, &[&[rows * tokens], &x.shape()[2..]].concat())?;
        let taken = self.gather(&flat, &flat_index)?;
        self.reshape(&taken, &shape)
    }

    /// Writes `rows[B, T, heads, dim]` into `cache[B, S, heads, dim]` at the positions `start[b]`.
    pub(crate) fn cache_append(
        &self,
        cache: &Tensor<'c, 'a>,
        rows: &Tensor<'c, 'a>,
        start: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let scalar = Kind::new(Element::I32, []);
        let zero = self.splat(0.0, scalar)?;
        let mut cache = cache.clone();
        for row in 0..rows.shape()[0] {
            let range = [row, row + 1, 1];
            let update = self.slice_if_many(rows, range)?;
            let position = self.slice_if_many(start, range)?;
            let position = self.reshape(&position, &[])?;
            let row = self.splat(row as f64, zero.kind.clone())?;
            cache = self.update_slice(&cache, &update, &[&row, &position, &zero, &zero])?;
        }
        Ok(cache)
    }

    fn slice_if_many(&self, x: &Tensor<'c, 'a>, range: [usize; 3]) -> Emitted<Tensor<'c, 'a>> {
        match x.shape()[0] {
            1 => Ok(x.clone()),
            _ => self.slice(x, 0, range),
        }
    }

    /// A dot product accumulated in f32.
    pub(crate) fn dot_like(
        &self,
        lhs: &Tensor<'c, 'a>,
        rhs: &Tensor<'c, 'a>,
        dims: &DotDims<'_>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let element = lhs.element();
        let product = self.dot(lhs, rhs, dims, Element::F32)?;
        self.convert(&product, element)
    }
}
