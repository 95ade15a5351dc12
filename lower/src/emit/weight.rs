//! Weights as parameters of the module, and their numbers as tensors.
//!
//! Each stored part of a weight is one `util.global` whose value is a parameter in the scope
//! [`PARAMETER_SCOPE`], named as [`parameter_names`] says. All functions of a module share them.
//! Codes stand as `[N, groups, group]` elements of 4 or 8 bits: the words that they are packed into
//! have the same bytes. Codes of other sizes are widened to these where parameters are written
//! ([`compiled_bits`]).

use super::codes::Codes;
use super::element::{Element, Kind, Tensor};
use super::operations::{Emitted, Operations};
use melior::Context;
use melior::ir::attribute::{StringAttribute, TypeAttribute};
use melior::ir::block::BlockLike;
use melior::ir::operation::OperationBuilder;
use melior::ir::{Attribute, Identifier, Location, Module};
use mlxcel_frontend::artifact::{PARAMETER_SCOPE, compiled_bits, parameter_names};
use mlxcel_ir::weight::panel::PANEL;
use mlxcel_ir::weight::{FP8_BLOCK, PartType, Sides};
use mlxcel_ir::{DType, WeightDecl, WeightFormat};
use std::collections::{BTreeMap, BTreeSet};

/// Codes of four bits in a word.
const PER_WORD: usize = 8;

/// The globals of a module by symbol, each with its parameter and type.
#[derive(Default)]
pub(crate) struct Globals(BTreeMap<String, (String, Kind)>);

impl Globals {
    /// Notes that the global `symbol` with the value of a parameter is needed.
    fn need(&mut self, symbol: &str, parameter: &str, kind: &Kind) -> Emitted<()> {
        let entry = (parameter.to_string(), kind.clone());
        match self.0.insert(symbol.to_string(), entry) {
            Some((_, known)) if known != *kind => Err(format!(
                "the weight part `{symbol}` is {} in one function and {} in another",
                known.text(),
                kind.text()
            )),
            _ => Ok(()),
        }
    }

    /// The names of the parameters.
    pub(crate) fn names(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.values().map(|(name, _)| name).collect();
        names.into_iter().cloned().collect()
    }

    /// Declares the globals in `module`.
    pub(crate) fn declare<'c>(&self, context: &'c Context, module: &Module<'c>) -> Emitted<()> {
        let location = Location::unknown(context);
        for (symbol, (name, kind)) in &self.0 {
            let quoted = quote(name);
            let text = format!(
                "#flow.parameter.named<\"{PARAMETER_SCOPE}\"::{quoted}> : {}",
                kind.text()
            );
            let value = Attribute::parse(context, &text)
                .ok_or_else(|| format!("the weight name `{name}` cannot be a parameter's"))?;
            let attributes: [(&str, Attribute<'c>); 4] = [
                ("sym_name", StringAttribute::new(context, symbol).into()),
                (
                    "sym_visibility",
                    StringAttribute::new(context, "private").into(),
                ),
                ("type", TypeAttribute::new(kind.ty(context)).into()),
                ("initial_value", value),
            ];
            let attributes =
                attributes.map(|(name, value)| (Identifier::new(context, name), value));
            let operation = OperationBuilder::new("util.global", location)
                .add_attributes(&attributes)
                .build()
                .map_err(|error| format!("`util.global`: {error}"))?;
            module.body().append_operation(operation);
        }
        Ok(())
    }
}

/// A string in MLIR's notation.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.push_str(&format!("\\{byte:02X}")),
            0x20..=0x7e => quoted.push(byte as char),
            _ => quoted.push_str(&format!("\\{byte:02X}")),
        }
    }
    quoted.push('"');
    quoted
}

/// How the stored parts of a weight are declared: values, scales and biases, as far as there are any.
/// A global cannot be of an unsigned type.
fn part_kinds(weight: &WeightDecl) -> Emitted<Vec<Kind>> {
    let format = weight.format;
    let coded = match (format, format.coded()) {
        (WeightFormat::Dense(dtype), _) if dtype.is_float() => {
            return Ok(vec![Kind::new(dtype, weight.shape.as_slice())]);
        }
        (WeightFormat::Dense(dtype), _) => {
            return Err(format!("is of {dtype}; floats and codes can be compiled"));
        }
        (_, coded) => coded.ok_or_else(|| format!("of {format} has no codes"))?,
    };
    format.check(&weight.shape)?;
    let (&width, rest) = weight.shape.split_last().ok_or("is a scalar")?;
    let element = match compiled_bits(coded.code) {
        4 => Element::I4,
        _ => Element::I8,
    };
    let group = match coded.sides {
        Sides::Blocks(_) => 1 << width.trailing_zeros().min(coded.group.ilog2()),
        _ => coded.group,
    };
    if group % 8 != 0 {
        return Err(format!(
            "has {width} numbers in a row and groups of {group}; groups of a multiple of 8 can be \
             compiled"
        ));
    }
    let count: usize = rest.iter().product();
    let [_, sides @ ..] = format.parts(&weight.shape);
    let sides = sides.map(|part| {
        let element = match part.element {
            PartType::Element(dtype) => Element::from(dtype),
            PartType::U8 => Element::I8,
        };
        let shape = match (coded.sides, &part.shape[..]) {
            (Sides::Blocks(_), [outer @ .., blocks, columns]) => {
                vec![outer.iter().product(), *blocks, *columns]
            }
            (_, shape) => vec![count, shape.last().copied().unwrap_or(1)],
        };
        Kind::new(element, shape)
    });
    let codes = match coded.panels {
        true => Kind::new(Element::I32, [count / PANEL, width / PER_WORD, PANEL]),
        false => Kind::new(element, [count, width / group, group]),
    };
    let sides = sides.map(|side| match (coded.panels, side.elements()) {
        (true, 1..) => Kind::new(side.element, [count / PANEL, width / group, PANEL]),
        _ => side,
    });
    let sides = sides.into_iter().filter(|side| side.elements() > 0);
    Ok(std::iter::once(codes).chain(sides).collect())
}

/// A matrix or vector of weights whose numbers are still as stored.
pub(crate) enum Stored<'c, 'a> {
    /// Elements of a float type.
    Dense(Tensor<'c, 'a>),
    /// Codes of few bits.
    Coded(Codes<'c, 'a>),
}

impl<'c, 'a> Operations<'c, 'a> {
    /// The bytes of a parameter, for a kernel. A global of its own, which shares the mapped file.
    pub(crate) fn bytes(
        &self,
        globals: &mut Globals,
        parameter: &str,
        size: usize,
    ) -> Emitted<Tensor<'c, 'a>> {
        let kind = Kind::new(Element::I8, [size]);
        let symbol = format!("{parameter}.bytes");
        globals.need(&symbol, parameter, &kind)?;
        self.load(&symbol, kind)
    }

    /// A weight as stored.
    pub(crate) fn stored(
        &self,
        globals: &mut Globals,
        weight: &WeightDecl,
    ) -> Emitted<Stored<'c, 'a>> {
        let mut parts = self.parts(globals, weight)?.into_iter();
        let values = parts.next().ok_or("a weight has a part")?;
        let Some(coded) = weight.format.coded() else {
            return Ok(Stored::Dense(values));
        };
        if coded.panels {
            let codes = self.rows_of_words(&values)?;
            let mut sides = parts.map(|side| self.rows_of_panels(&side));
            let width = codes.shape()[1];
            let shape = [codes.shape()[0], width / coded.group, coded.group];
            return Ok(Stored::Coded(Codes {
                coded,
                codes: self.reshape(&codes, &shape)?,
                scales: sides.next().ok_or("codes have scales")??,
                biases: sides.next().transpose()?,
            }));
        }
        let unsigned = match values.element() {
            Element::I4 => Element::U4,
            _ => Element::U8,
        };
        Ok(Stored::Coded(Codes {
            coded,
            codes: self.bitcast(&values, unsigned)?,
            scales: parts.next().ok_or("codes have scales")?,
            biases: parts.next(),
        }))
    }

    /// `x[panels, columns, rows]` as `[N, columns]`.
    fn rows_of_panels(&self, x: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let &[panels, columns, rows] = x.shape() else {
            return Err("panels have three dimensions".into());
        };
        let turned = self.transpose(x, &[0, 2, 1])?;
        self.reshape(&turned, &[panels * rows, columns])
    }

    /// The codes `u32[N, K]` in the words of panels ([`mlxcel_ir::weight::panel`]).
    fn rows_of_words(&self, words: &Tensor<'c, 'a>) -> Emitted<Tensor<'c, 'a>> {
        let words = self.bitcast(&self.rows_of_panels(words)?, Element::U32)?;
        let &[rows, columns] = words.shape() else {
            return Err("rows have two dimensions".into());
        };
        let kind = Kind::new(Element::U32, [rows, columns, PER_WORD]);
        let shifts = self.table(&[0.0, 8.0, 16.0, 24.0, 4.0, 12.0, 20.0, 28.0], DType::U32)?;
        let shifts = self.broadcast(&shifts, &kind.shape, &[2])?;
        let words = self.broadcast(&words, &kind.shape, &[0, 1])?;
        let shifted = self.map("shift_right_logical", &[&words, &shifts])?;
        let codes = self.map("and", &[&shifted, &self.splat(15.0, kind)?])?;
        self.reshape(&codes, &[rows, columns * PER_WORD])
    }

    /// The stored parts of a weight: values, scales and biases, as far as there are any.
    pub(crate) fn parts(
        &self,
        globals: &mut Globals,
        weight: &WeightDecl,
    ) -> Emitted<Vec<Tensor<'c, 'a>>> {
        let kinds = part_kinds(weight)
            .map_err(|reason| format!("the weight `{}` {reason}", weight.name))?;
        parameter_names(&weight.name)
            .iter()
            .zip(kinds)
            .map(|(name, kind)| {
                globals.need(name, name, &kind)?;
                self.load(name, kind)
            })
            .collect()
    }

    /// The numbers of a weight in f32, in its logical shape.
    pub(crate) fn parameter(
        &self,
        globals: &mut Globals,
        weight: &WeightDecl,
    ) -> Emitted<Tensor<'c, 'a>> {
        match self.stored(globals, weight)? {
            Stored::Dense(values) => self.convert(&values, Element::F32),
            Stored::Coded(codes) => {
                let numbers = self.dequantise(&codes)?;
                self.reshape(&numbers, &weight.shape)
            }
        }
    }

    /// The rows of a weight `[V, H]` chosen by `tokens`, in f32: only they are dequantised.
    pub(crate) fn embedding(
        &self,
        globals: &mut Globals,
        table: &WeightDecl,
        tokens: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let flat = self.reshape(tokens, &[tokens.kind.elements()])?;
        let rows = self.chosen(globals, table, &flat)?;
        let rows = self.reshape(&rows, &[tokens.shape(), &table.shape[1..]].concat())?;
        self.barrier(&rows)
    }

    /// The parts `indices[n]` of a weight along its first dimension, in f32: rows of a matrix, or
    /// matrices of several. Only they are dequantised.
    ///
    /// A gather fused into what reads it fails on some GPUs and is slow elsewhere, so the compiler must
    /// not look through it.
    pub(crate) fn chosen(
        &self,
        globals: &mut Globals,
        table: &WeightDecl,
        indices: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        let gather = |part: &Tensor<'c, 'a>, indices: &Tensor<'c, 'a>| {
            self.barrier(&self.gather(part, indices)?)
        };
        let numbers = match self.stored(globals, table)? {
            Stored::Dense(values) => self.convert(&gather(&values, indices)?, Element::F32)?,
            Stored::Coded(codes) => {
                let inner = table.shape.get(1..table.shape.len().saturating_sub(1));
                let height = inner.unwrap_or_default().iter().product();
                let rows = self.rows_of(indices, height)?;
                let scales = match (codes.coded.sides, codes.scales.shape()) {
                    (Sides::Blocks(_), &[1, blocks, columns]) if height == 1 => {
                        let block = self.splat(FP8_BLOCK as f64, indices.kind.clone())?;
                        let row = self.map("divide", &[indices, &block])?;
                        gather(&self.reshape(&codes.scales, &[blocks, columns])?, &row)?
                    }
                    (Sides::Blocks(_), _) => gather(&codes.scales, indices)?,
                    _ => gather(&codes.scales, &rows)?,
                };
                let biases = codes.biases.as_ref().map(|part| gather(part, &rows));
                self.dequantise(&Codes {
                    coded: codes.coded,
                    codes: self.gather_codes(globals, table, &codes, &rows)?,
                    scales,
                    biases: biases.transpose()?,
                })?
            }
        };
        let shape = [indices.shape(), &table.shape[1..]].concat();
        self.reshape(&numbers, &shape)
    }

    /// The rows of the matrices `indices[n]` of `height` rows each.
    fn rows_of(&self, indices: &Tensor<'c, 'a>, height: usize) -> Emitted<Tensor<'c, 'a>> {
        if height == 1 {
            return Ok(indices.clone());
        }
        let kind = Kind::new(Element::I32, [indices.shape()[0], height]);
        let first = self.broadcast(indices, &kind.shape, &[0])?;
        let factor = self.splat(height as f64, kind.clone())?;
        let first = self.map("multiply", &[&first, &factor])?;
        let rows = self.map("add", &[&first, &self.iota(kind.clone(), 1)?])?;
        self.reshape(&rows, &[kind.elements()])
    }

    /// The codes of the rows `indices`, `u32[n, groups, group]`.
    ///
    /// GPUs cannot gather elements smaller than a byte, so whole words are gathered. They are a
    /// global of their own: made from that of the codes, they would be a copy of it on the processor
    /// too, where two globals share the mapped file.
    fn gather_codes(
        &self,
        globals: &mut Globals,
        table: &WeightDecl,
        stored: &Codes<'c, 'a>,
        indices: &Tensor<'c, 'a>,
    ) -> Emitted<Tensor<'c, 'a>> {
        if stored.coded.panels {
            return self.barrier(&self.gather(&stored.codes, indices)?);
        }
        let bits = match stored.codes.element() {
            Element::U4 => 4,
            _ => 8,
        };
        let &[count, groups, group] = stored.codes.shape() else {
            return Err("codes have three dimensions".into());
        };
        let (per_word, rows) = (32 / bits, indices.shape()[0]);
        let words = groups * group / per_word;
        let kind = Kind::new(Element::I32, [count, words]);
        let symbol = format!("{}.words", table.name);
        globals.need(&symbol, &table.name, &kind)?;
        let table = self.load(&symbol, kind)?;
        let taken = self.barrier(&self.gather_rows(&table, indices)?)?;
        let taken = self.bitcast(&taken, Element::U32)?;
        let kind = Kind::new(Element::U32, [rows, words, per_word]);
        let taken = self.broadcast(&taken, &kind.shape, &[0, 1])?;
        let place = self.iota(kind.clone(), 2)?;
        let width = self.splat(bits as f64, kind.clone())?;
        let shift = self.map("multiply", &[&place, &width])?;
        let shifted = self.map("shift_right_logical", &[&taken, &shift])?;
        let mask = self.splat(f64::from((1u32 << bits) - 1), kind)?;
        let codes = self.map("and", &[&shifted, &mask])?;
        self.reshape(&codes, &[rows, groups, group])
    }
}
