//! Parsing of a function's head: inputs, weights and states.

use super::lex::{Position, Token};
use super::parse::{Parsed, Parser};
use crate::attribute::{Attribute, AttributeValue};
use crate::{Input, StateDecl, StateKind, WeightDecl, WeightFormat};
use std::collections::HashMap;

impl Parser<'_> {
    /// `func @name(%input: type, ...)`, then weights and states up to `{`.
    pub(super) fn header(&mut self) -> Parsed<()> {
        self.keyword("func")?;
        self.mark('@')?;
        self.graph.name = self.name("the function's name")?;
        let inputs = self.list('(', ')', |parser| {
            parser.mark('%')?;
            let here = parser.here;
            let name = parser.name("the input's name")?;
            parser.mark(':')?;
            let ty = parser.ty()?;
            Ok((here, Input { name, ty }))
        })?;
        for (here, input) in inputs {
            let index = self.graph.inputs.len() as u32;
            declare(&mut self.inputs, here, &input.name, "input", index)?;
            self.graph.inputs.push(input);
        }
        loop {
            match &self.next {
                Token::Word(word) if word == "weight" => self.weight()?,
                Token::Word(word) if word == "state" => self.state()?,
                Token::Mark('{') => break,
                _ => return self.unexpected("`weight`, `state` or `{`"),
            }
        }
        self.mark('{')
    }

    fn weight(&mut self) -> Parsed<()> {
        self.keyword("weight")?;
        self.mark('@')?;
        let here = self.here;
        let name = self.name("the weight's name")?;
        self.mark(':')?;
        let format = self.format()?;
        let shape = self.shape()?;
        let index = self.graph.weights.len() as u32;
        declare(&mut self.weights, here, &name, "weight", index)?;
        self.graph.weights.push(WeightDecl {
            name,
            shape,
            format,
        });
        Ok(())
    }

    /// `f32`, or a quantised format such as `affine4(group = 64, scale = bf16)`.
    fn format(&mut self) -> Parsed<WeightFormat> {
        let here = self.here;
        let word = self.word("a weight format")?;
        if let Ok(dtype) = word.parse() {
            return Ok(WeightFormat::Dense(dtype));
        }
        let parameters = match self.next {
            Token::Mark('(') => self.list('(', ')', Self::attribute)?,
            _ => Vec::new(),
        };
        let bits = |prefix| word.strip_prefix(prefix).map(str::parse);
        if let Some(Ok(bits)) = bits("float") {
            return Ok(WeightFormat::Float {
                bits,
                group: parameter(here, &word, &parameters, "group")?,
                scale: parameter(here, &word, &parameters, "scale")?,
            });
        }
        if let Some(Ok(bits)) = bits("zeropoint") {
            return Ok(WeightFormat::ZeroPoint {
                bits,
                zero: parameter(here, &word, &parameters, "zero")?,
                group: parameter(here, &word, &parameters, "group")?,
                scale: parameter(here, &word, &parameters, "scale")?,
            });
        }
        if word == "panels4" {
            let zero = parameters.iter().any(|(name, _)| name == "zero");
            let zero = zero.then(|| parameter(here, &word, &parameters, "zero"));
            return Ok(WeightFormat::Panels {
                zero: zero.transpose()?,
                group: parameter(here, &word, &parameters, "group")?,
                scale: parameter(here, &word, &parameters, "scale")?,
            });
        }
        Ok(match (word.as_str(), bits("affine"), bits("kquant")) {
            ("mxfp4", ..) => WeightFormat::MxFp4,
            ("mxfp8", ..) => WeightFormat::MxFp8,
            ("nvfp4", ..) => WeightFormat::NvFp4,
            ("fp8block", ..) => WeightFormat::Fp8Block {
                scale: parameter(here, &word, &parameters, "scale")?,
            },
            (_, Some(Ok(bits)), _) => WeightFormat::Affine {
                bits,
                group: parameter(here, &word, &parameters, "group")?,
                scale: parameter(here, &word, &parameters, "scale")?,
            },
            (_, _, Some(Ok(bits))) => WeightFormat::KQuant { bits },
            _ => {
                return Err(here.error(format!(
                    "expected an element type, affine4(group = 64, scale = bf16), \
                     zeropoint4(zero = 8, group = 32, scale = f16), panels4(zero = 8, group = 32, scale = f16), float8(group = 64, scale = f32), fp8block(scale = f32), mxfp4, mxfp8, nvfp4 or kquant4, found `{word}`"
                )));
            }
        })
    }

    fn state(&mut self) -> Parsed<()> {
        self.keyword("state")?;
        self.mark('$')?;
        let place = self.here;
        let name = self.name("the state's name")?;
        self.mark(':')?;
        let dtype = self.dtype()?;
        let here = self.here;
        let kind = AttributeValue::Word(self.word("`cache` or `memory`")?);
        let kind = StateKind::from_value(Some(&kind))
            .map_err(|expected| here.error(format!("expected {expected}")))?;
        let mut part = |word: &str| {
            self.keyword(word)?;
            self.size("a whole number")
        };
        let declaration = StateDecl {
            heads: part("heads")?,
            key_dim: part("key")?,
            value_dim: part("value")?,
            kind,
            name,
            dtype,
        };
        let index = self.graph.states.len() as u32;
        declare(&mut self.states, place, &declaration.name, "state", index)?;
        self.graph.states.push(declaration);
        Ok(())
    }

    /// `name = value`.
    pub(super) fn attribute(&mut self) -> Parsed<(String, AttributeValue)> {
        let name = self.word("an attribute's name")?;
        self.mark('=')?;
        Ok((name, self.value(0)?))
    }

    fn value(&mut self, depth: usize) -> Parsed<AttributeValue> {
        // No attribute nests deeper; unbounded nesting would exhaust the stack.
        if depth > 8 {
            return self.unexpected("a value that is not nested this deeply");
        }
        match &self.next {
            Token::Number(number) => {
                let value = match number.parse() {
                    Ok(integer) => Some(AttributeValue::Integer(integer)),
                    Err(_) => number.parse().ok().map(AttributeValue::Float),
                };
                let Some(value) = value else {
                    return self.unexpected("a number");
                };
                self.take()?;
                Ok(value)
            }
            Token::Word(_) => {
                let word = self.word("a value")?;
                Ok(match self.next {
                    Token::Mark('(') => AttributeValue::Call(word, self.values('(', ')', depth)?),
                    _ => AttributeValue::Word(word),
                })
            }
            Token::Mark('[') => Ok(AttributeValue::List(self.values('[', ']', depth)?)),
            _ => self.unexpected("a value"),
        }
    }

    fn values(&mut self, open: char, close: char, depth: usize) -> Parsed<Vec<AttributeValue>> {
        self.list(open, close, |parser| parser.value(depth + 1))
    }
}

/// The parameter `name` of the weight format `format`.
fn parameter<A: Attribute>(
    here: Position,
    format: &str,
    parameters: &[(String, AttributeValue)],
    name: &str,
) -> Parsed<A> {
    let found = parameters.iter().find(|(other, _)| other == name);
    A::from_value(found.map(|(_, value)| value))
        .map_err(|expected| here.error(format!("expected {expected} as `{name}` of `{format}`")))
}

fn declare(
    names: &mut HashMap<String, u32>,
    here: Position,
    name: &str,
    kind: &str,
    index: u32,
) -> Parsed<()> {
    match names.insert(name.to_string(), index) {
        None => Ok(()),
        Some(_) => Err(here.error(format!(
            "expected a new name, found a second {kind} {name:?}"
        ))),
    }
}
