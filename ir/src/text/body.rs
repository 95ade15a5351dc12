//! Parsing of a function's body: nodes and outputs.

use super::lex::Token;
use super::parse::{Parsed, Parser};
use crate::attribute::AttributeValue;
use crate::infer::Site;
use crate::{Node, Op, Output, StateId, ValueId, WeightId};
use std::collections::{HashMap, HashSet};

impl Parser<'_> {
    /// One node, or the outputs and the closing brace; then there is no further statement.
    pub(super) fn statement(&mut self) -> Parsed<bool> {
        match &self.next {
            Token::Mark('%') => {
                let node = self.node()?;
                self.graph.nodes.push(node);
                Ok(true)
            }
            Token::Word(word) if word == "return" => {
                self.outputs()?;
                Ok(false)
            }
            _ => self.unexpected("a node (`%`) or `return`"),
        }
    }

    /// `%4 = op(%3, %start) @weight $state {attribute = value} : type "name"`.
    fn node(&mut self) -> Parsed<Node> {
        let number = self.graph.inputs.len() + self.graph.nodes.len();
        self.mark('%')?;
        self.expect(&Token::Number(number.to_string()))?;
        self.mark('=')?;
        let op_here = self.here;
        let name = self.word("an op")?;
        if !Op::TABLE.iter().any(|info| info.name == name) {
            return Err(op_here.error(format!("expected an op, found `{name}`")));
        }
        let operands = self.list('(', ')', Self::operand)?;
        let mut weights = Vec::new();
        while self.accept('@')? {
            let index = Self::look_up(&self.weights, self, "a declared weight")?;
            weights.push(WeightId(index));
            self.take()?;
        }
        let mut state = None;
        if self.accept('$')? {
            state = Some(StateId(Self::look_up(
                &self.states,
                self,
                "a declared state",
            )?));
            self.take()?;
        }
        let attributes = match self.next {
            Token::Mark('{') => self.list('{', '}', Self::attribute)?,
            _ => Vec::new(),
        };
        if let Some(twice) = repeated(&attributes) {
            return Err(op_here.error(format!("expected attribute `{twice}` once")));
        }
        let op = Op::from_text(&name, &attributes).map_err(|reason| op_here.error(reason))?;
        let inferred = Site::of(&self.graph, &op, &operands, &weights, state)
            .and_then(|site| op.infer(&site))
            .map_err(|reason| op_here.error(format!("`{name}`: {reason}")))?;
        if self.next != Token::Mark(':') {
            return self.unexpected("`:` and the type of the result");
        }
        self.take()?;
        let ty_here = self.here;
        let ty = self.ty()?;
        if ty != inferred {
            return Err(ty_here.error(format!("expected {inferred} as `{name}` gives, found {ty}")));
        }
        let name = match self.next {
            Token::Quoted(_) => Some(self.name("the node's name")?),
            _ => None,
        };
        Ok(Node {
            op,
            operands,
            weights,
            state,
            ty,
            name,
        })
    }

    /// `%3` or `%input`, defined already.
    fn operand(&mut self) -> Parsed<ValueId> {
        self.mark('%')?;
        let value = match &self.next {
            Token::Number(number) => {
                let index = number.parse::<u32>().ok();
                let first = self.graph.inputs.len();
                let nodes = first..first + self.graph.nodes.len();
                let Some(index) = index.filter(|&index| nodes.contains(&(index as usize))) else {
                    return self.unexpected("the number of a node above");
                };
                index
            }
            _ => Self::look_up(&self.inputs, self, "the number of a node above or an input")?,
        };
        self.take()?;
        Ok(ValueId(value))
    }

    /// The number of the thing whose name comes next; the name is not consumed.
    fn look_up(names: &HashMap<String, u32>, parser: &Self, expected: &str) -> Parsed<u32> {
        match &parser.next {
            Token::Word(name) | Token::Quoted(name) => names.get(name).copied(),
            _ => None,
        }
        .map_or_else(|| parser.unexpected(expected), Ok)
    }

    /// `return name = %3, other = %4` and `}`.
    fn outputs(&mut self) -> Parsed<()> {
        self.keyword("return")?;
        if self.accept('}')? {
            return Ok(());
        }
        loop {
            let name = self.name("the output's name")?;
            self.mark('=')?;
            let value = self.operand()?;
            self.graph.outputs.push(Output { name, value });
            if self.accept('}')? {
                return Ok(());
            }
            if !self.accept(',')? {
                return self.unexpected("`,` or `}`");
            }
        }
    }
}

/// The name of an attribute that is there more than once.
fn repeated(attributes: &[(String, AttributeValue)]) -> Option<&str> {
    let mut seen = HashSet::new();
    let mut names = attributes.iter().map(|(name, _)| name.as_str());
    names.find(|name| !seen.insert(*name))
}
