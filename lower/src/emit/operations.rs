//! StableHLO operations with their result types, one method each.
//!
//! The callers know that shapes fit, since the graph was verified; MLIR's verifier has the last word
//! over the finished module.

use super::element::{Element, Kind, Tensor};
use melior::Context;
use melior::ir::attribute::{DenseI64ArrayAttribute, FlatSymbolRefAttribute, IntegerAttribute};
use melior::ir::block::BlockLike;
use melior::ir::operation::{OperationBuilder, OperationLike};
use melior::ir::r#type::IntegerType;
use melior::ir::{Attribute, Block, Identifier, Location, Region, RegionLike, Type, Value};

/// Why an operation could not be built, in words.
pub(crate) type Emitted<T> = Result<T, String>;

/// Appends operations to a block.
#[derive(Clone, Copy)]
pub(crate) struct Operations<'c, 'a> {
    pub(crate) context: &'c Context,
    pub(crate) block: &'a Block<'c>,
    pub(crate) location: Location<'c>,
}

/// Dimensions of the operands of a dot product.
pub(crate) struct DotDims<'d> {
    pub(crate) lhs_batch: &'d [usize],
    pub(crate) rhs_batch: &'d [usize],
    pub(crate) lhs_contract: &'d [usize],
    pub(crate) rhs_contract: &'d [usize],
}

impl<'c, 'a> Operations<'c, 'a> {
    pub(crate) fn attribute(&self, text: &str) -> Emitted<Attribute<'c>> {
        Attribute::parse(self.context, text).ok_or_else(|| format!("attribute `{text}`"))
    }

    fn integers(&self, values: &[usize]) -> Attribute<'c> {
        let values: Vec<i64> = values.iter().map(|&value| value as i64).collect();
        DenseI64ArrayAttribute::new(self.context, &values).into()
    }

    /// Appends any operation and returns its results.
    pub(crate) fn operation(
        &self,
        name: &str,
        operands: &[Value<'c, 'a>],
        attributes: &[(&str, Attribute<'c>)],
        regions: Vec<Region<'c>>,
        results: &[Type<'c>],
    ) -> Emitted<Vec<Value<'c, 'a>>> {
        let attributes: Vec<_> = attributes
            .iter()
            .map(|(name, value)| (Identifier::new(self.context, name), *value))
            .collect();
        let operation = OperationBuilder::new(name, self.location)
            .add_operands(operands)
            .add_attributes(&attributes)
            .add_regions_vec(regions)
            .add_results(results)
            .build()
            .map_err(|error| format!("`{name}`: {error}"))?;
        let operation = self.block.append_operation(operation);
        (0..operation.result_count())
            .map(|index| operation.result(index).map(Into::into))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("`{name}`: {error}"))
    }

    /// Appends an operation with one result.
    pub(crate) fn one(
        &self,
        name: &str,
        operands: &[&Tensor<'c, 'a>],
        attributes: &[(&str, Attribute<'c>)],
        regions: Vec<Region<'c>>,
        kind: Kind,
    ) -> Emitted<Tensor<'c, 'a>> {
        let operands: Vec<_> = operands.iter().map(|operand| operand.value).collect();
        let ty = kind.ty(self.context);
        match self.operation(name, &operands, attributes, regions, &[ty])?[..] {
            [value] => Ok(Tensor { value, kind }),
            ref values => Err(format!("`{name}`: {} results", values.len())),
        }
    }

    /// An operation element by element, `name` without its dialect.
    pub(crate) fn map(&self, name: &str, operands: &[&Tensor<'c, 'a>]) -> Emitted<Tensor<'c, 'a>> {
        let kind = operands.last().ok_or("no operand")?.kind.clone();
        let dialect = if name == "erf" { "chlo" } else { "stablehlo" };
        self.one(&format!("{dialect}.{name}"), operands, &[], vec![], kind)
    }

    pub(crate) fn compare(
        &self,
        direction: &str,
        lhs: &Tensor<'c, 'a>,
        rhs: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let direction = self.attribute(&format!("#stablehlo<comparison_direction {direction}>"))?;
        let kind = Kind::new(Element::I1, lhs.shape());
        let attributes = [("comparison_direction", direction)];
        self.one("stablehlo.compare", &[lhs, rhs], &attributes, vec![], kind)
    }

    pub(crate) fn convert(
        &self,
        x: &Tensor<'c, 'a>,
        element: impl Into<Element>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let element = element.into();
        if x.element() == element {
            return Ok(x.clone());
        }
        if element == Element::BF16 && x.element().is_integer() {
            // Processors without instructions for bf16 have none from integers to it, and IREE links
            // no function that does so. Rounded in f32, the compiler does not join the two steps.
            let wide = self.convert(x, Element::F32)?;
            let format = [
                ("exponent_bits", self.integer(8, 32)),
                ("mantissa_bits", self.integer(7, 32)),
            ];
            let kind = wide.kind.clone();
            let rounded = self.one(
                "stablehlo.reduce_precision",
                &[&wide],
                &format,
                vec![],
                kind,
            )?;
            return self.convert(&rounded, Element::BF16);
        }
        let kind = Kind::new(element, x.shape());
        self.one("stablehlo.convert", &[x], &[], vec![], kind)
    }

    /// The same bits as elements of another type of the same width.
    pub(crate) fn bitcast(&self, x: &Tensor<'c, 'a>, element: Element) -> Emitted<Tensor<'c, 'a>> {
        let kind = Kind::new(element, x.shape());
        self.one("stablehlo.bitcast_convert", &[x], &[], vec![], kind)
    }

    pub(crate) fn reshape(&self, x: &Tensor<'c, 'a>, shape: &[usize]) -> Emitted<Tensor<'c, 'a>> {
        if x.shape() == shape {
            return Ok(x.clone());
        }
        let kind = Kind::new(x.element(), shape);
        self.one("stablehlo.reshape", &[x], &[], vec![], kind)
    }

    pub(crate) fn transpose(
        &self,
        x: &Tensor<'c, 'a>,
        permutation: &[usize],
    ) -> Emitted<Tensor<'c, 'a>> {
        let shape: Vec<usize> = permutation.iter().map(|&dim| x.shape()[dim]).collect();
        let attributes = [("permutation", self.integers(permutation))];
        let kind = Kind::new(x.element(), shape);
        self.one("stablehlo.transpose", &[x], &attributes, vec![], kind)
    }

    /// Dimension `i` of `x` becomes dimension `dims[i]` of the result.
    pub(crate) fn broadcast(
        &self,
        x: &Tensor<'c, 'a>,
        shape: &[usize],
        dims: &[usize],
    ) -> Emitted<Tensor<'c, 'a>> {
        if x.shape() == shape {
            return Ok(x.clone());
        }
        let attributes = [("broadcast_dimensions", self.integers(dims))];
        let kind = Kind::new(x.element(), shape);
        self.one(
            "stablehlo.broadcast_in_dim",
            &[x],
            &attributes,
            vec![],
            kind,
        )
    }

    pub(crate) fn slice(
        &self,
        x: &Tensor<'c, 'a>,
        dim: usize,
        [start, limit, stride]: [usize; 3],
    ) -> Emitted<Tensor<'c, 'a>> {
        let mut shape = x.shape().to_vec();
        let (mut starts, mut limits, mut strides) =
            (vec![0; shape.len()], shape.clone(), vec![1; shape.len()]);
        shape[dim] = (limit - start).div_ceil(stride);
        // IREE 3.13 cannot read a single element with a stride.
        (starts[dim], limits[dim], strides[dim]) = match shape[dim] {
            1 => (start, start + 1, 1),
            _ => (start, limit, stride),
        };
        let attributes = [
            ("start_indices", self.integers(&starts)),
            ("limit_indices", self.integers(&limits)),
            ("strides", self.integers(&strides)),
        ];
        let kind = Kind::new(x.element(), shape);
        self.one("stablehlo.slice", &[x], &attributes, vec![], kind)
    }

    pub(crate) fn concatenate(
        &self,
        parts: &[&Tensor<'c, 'a>],
        dim: usize,
    ) -> Emitted<Tensor<'c, 'a>> {
        let first = parts.first().ok_or("nothing to concatenate")?;
        let mut kind = first.kind.clone();
        kind.shape[dim] = parts.iter().map(|part| part.shape()[dim]).sum();
        let attributes = [("dimension", self.index(dim))];
        self.one("stablehlo.concatenate", parts, &attributes, vec![], kind)
    }

    pub(crate) fn iota(&self, kind: Kind, dim: usize) -> Emitted<Tensor<'c, 'a>> {
        if kind.element == Element::BF16 {
            let counted = self.iota(Kind::new(Element::I32, kind.shape), dim)?;
            return self.convert(&counted, Element::BF16);
        }
        let attributes = [("iota_dimension", self.index(dim))];
        self.one("stablehlo.iota", &[], &attributes, vec![], kind)
    }

    fn index(&self, value: usize) -> Attribute<'c> {
        self.integer(value, 64)
    }

    fn integer(&self, value: usize, bits: u32) -> Attribute<'c> {
        let ty = IntegerType::new(self.context, bits).into();
        IntegerAttribute::new(ty, value as i64).into()
    }

    /// A constant from the notation of its elements, for instance `0.0`.
    pub(crate) fn constant(&self, elements: &str, kind: Kind) -> Emitted<Tensor<'c, 'a>> {
        let value = self.attribute(&format!("dense<{elements}> : {}", kind.text()))?;
        self.one("stablehlo.constant", &[], &[("value", value)], vec![], kind)
    }

    /// What the compiler must not look through.
    pub(crate) fn barrier(&self, x: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let kind = x.kind.clone();
        self.one("stablehlo.optimization_barrier", &[x], &[], vec![], kind)
    }

    /// The value of the module's global `name`.
    pub(crate) fn load(&self, name: &str, kind: Kind) -> Emitted<Tensor<'c, 'a>> {
        let global = FlatSymbolRefAttribute::new(self.context, name).into();
        self.one("util.global.load", &[], &[("global", global)], vec![], kind)
    }

    /// The rows `indices[n]` of `table[R, M]`: `[n, M]`.
    pub(crate) fn gather_rows(
        &self,
        table: &Tensor<'c, 'a>,
        indices: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let (count, width) = (indices.shape()[0], table.shape()[1]);
        let indices = self.reshape(indices, &[count, 1])?;
        let dims = "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], \
                    start_index_map = [0], index_vector_dim = 1>";
        let attributes = [
            ("dimension_numbers", self.attribute(dims)?),
            ("slice_sizes", self.integers(&[1, width])),
            ("indices_are_sorted", self.attribute("false")?),
        ];
        let kind = Kind::new(table.element(), [count, width]);
        self.one(
            "stablehlo.gather",
            &[table, &indices],
            &attributes,
            vec![],
            kind,
        )
    }

    pub(crate) fn dot(
        &self,
        lhs: &Tensor<'c, 'a>,
        rhs: &Tensor<'c, 'a>,
        dims: &DotDims<'_>,
        element: Element,
    ) -> Emitted<Tensor<'c, 'a>> {
        let numbers = self.attribute(&format!(
            "#stablehlo.dot<lhs_batching_dimensions = {:?}, rhs_batching_dimensions = {:?}, \
             lhs_contracting_dimensions = {:?}, rhs_contracting_dimensions = {:?}>",
            dims.lhs_batch, dims.rhs_batch, dims.lhs_contract, dims.rhs_contract
        ))?;
        let free = |x: &Tensor<'_, '_>, batch: &[usize], contract: &[usize]| -> Vec<usize> {
            (0..x.shape().len())
                .filter(|dim| !batch.contains(dim) && !contract.contains(dim))
                .map(|dim| x.shape()[dim])
                .collect()
        };
        let mut shape: Vec<usize> = dims.lhs_batch.iter().map(|&dim| lhs.shape()[dim]).collect();
        shape.extend(free(lhs, dims.lhs_batch, dims.lhs_contract));
        shape.extend(free(rhs, dims.rhs_batch, dims.rhs_contract));
        let precision =
            self.attribute("[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]")?;
        let attributes = [
            ("dot_dimension_numbers", numbers),
            ("precision_config", precision),
        ];
        let kind = Kind::new(element, shape);
        self.one(
            "stablehlo.dot_general",
            &[lhs, rhs],
            &attributes,
            vec![],
            kind,
        )
    }

    /// Writes `update` into `x` at the indices `starts`, scalars of i32, one per dimension.
    pub(crate) fn update_slice(
        &self,
        x: &Tensor<'c, 'a>,
        update: &Tensor<'c, 'a>,
        starts: &[&Tensor<'c, 'a>],
    ) -> Emitted<Tensor<'c, 'a>> {
        let operands: Vec<_> = [x, update]
            .into_iter()
            .chain(starts.iter().copied())
            .collect();
        let name = "stablehlo.dynamic_update_slice";
        self.one(name, &operands, &[], vec![], x.kind.clone())
    }

    /// The part of `x` of the given sizes at the indices `starts`, scalars of i32, one per dimension.
    pub(crate) fn dynamic_slice(
        &self,
        x: &Tensor<'c, 'a>,
        starts: &[&Tensor<'c, 'a>],
        sizes: &[usize],
    ) -> Emitted<Tensor<'c, 'a>> {
        let operands: Vec<_> = [x].into_iter().chain(starts.iter().copied()).collect();
        let attributes = [("slice_sizes", self.integers(sizes))];
        let kind = Kind::new(x.element(), sizes);
        self.one(
            "stablehlo.dynamic_slice",
            &operands,
            &attributes,
            vec![],
            kind,
        )
    }

    /// Reduces the dimensions `dims`, which the result drops, with the operation `name`. Sums of 16-bit
    /// numbers are accumulated in f32.
    pub(crate) fn reduce(
        &self,
        name: &str,
        initial: &str,
        x: &Tensor<'c, 'a>,
        dims: &[usize],
    ) -> Emitted<Tensor<'c, 'a>> {
        if name == "add" && matches!(x.element(), Element::F16 | Element::BF16) {
            let wide = self.convert(x, Element::F32)?;
            let sum = self.reduce(name, initial, &wide, dims)?;
            return self.convert(&sum, x.element());
        }
        let shape: Vec<usize> = (0..x.shape().len())
            .filter(|dim| !dims.contains(dim))
            .map(|dim| x.shape()[dim])
            .collect();
        let scalar = Kind::new(x.element(), []);
        let initial = self.constant(initial, scalar.clone())?;
        let body = self.region(&[scalar.clone(), scalar], |inner, arguments| {
            let [left, right] = arguments else {
                return Err("a reduction has two arguments".into());
            };
            let result = inner.map(name, &[left, right])?;
            inner.finish("stablehlo.return", &[&result])
        })?;
        let attributes = [("dimensions", self.integers(dims))];
        let kind = Kind::new(x.element(), shape);
        self.one(
            "stablehlo.reduce",
            &[x, &initial],
            &attributes,
            vec![body],
            kind,
        )
    }

    /// Ends the block.
    pub(crate) fn finish(&self, name: &str, values: &[&Tensor<'c, 'a>]) -> Emitted<()> {
        let values: Vec<_> = values.iter().map(|value| value.value).collect();
        self.operation(name, &values, &[], vec![], &[]).map(drop)
    }

    /// A region of one block over arguments of the given types.
    pub(crate) fn region(
        &self,
        arguments: &[Kind],
        build: impl for<'b> FnOnce(&Operations<'c, 'b>, &[Tensor<'c, 'b>]) -> Emitted<()>,
    ) -> Emitted<Region<'c>> {
        region(self.context, self.location, arguments, build)
    }
}

/// A region of one block over arguments of the given types.
pub(crate) fn region<'c>(
    context: &'c Context,
    location: Location<'c>,
    arguments: &[Kind],
    build: impl for<'b> FnOnce(&Operations<'c, 'b>, &[Tensor<'c, 'b>]) -> Emitted<()>,
) -> Emitted<Region<'c>> {
    let types: Vec<_> = arguments
        .iter()
        .map(|kind| (kind.ty(context), location))
        .collect();
    let block = Block::new(&types);
    {
        let inner = Operations {
            context,
            block: &block,
            location,
        };
        let tensors = arguments
            .iter()
            .enumerate()
            .map(|(index, kind)| {
                let value = block.argument(index).map_err(|error| error.to_string())?;
                Ok(Tensor {
                    value: value.into(),
                    kind: kind.clone(),
                })
            })
            .collect::<Emitted<Vec<_>>>()?;
        build(&inner, &tensors)?;
    }
    let region = Region::new();
    region.append_block(block);
    Ok(region)
}
