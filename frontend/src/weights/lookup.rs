//! Finding weights by name: tensors, and weights made from them.

use super::derive::{self, Part};
use super::names::{STACKED, projection};
use super::spelling::{self, Step};
use super::{Bytes, Stored, Weights, Words};
use crate::LoadError;
use mlxcel_ir::WeightDecl;
use rayon::prelude::*;
use std::borrow::Cow;
use std::path::Path;

/// A weight and how it comes about.
pub(super) struct Found<'a> {
    pub(super) declaration: WeightDecl,
    /// A file that it is from.
    pub(super) file: &'a Path,
    origin: Origin<'a>,
}

enum Origin<'a> {
    Stored(&'a Stored),
    /// Experts, in order.
    Stacked(Vec<&'a Stored>),
    Made(Box<Found<'a>>, Step),
}

impl Weights {
    /// `name`, or `name^T` where the family's tensors of that name are stored transposed; steps that
    /// follow the tensor's name are of what is turned.
    pub(super) fn spelled<'a>(&self, name: &'a str) -> Cow<'a, str> {
        let mut base = name;
        while let Some((before, _)) = spelling::split(base) {
            base = before;
        }
        let steps = &name[base.len()..];
        match self.is_transposed(base) && !steps.starts_with("^T") {
            true => Cow::Owned(format!("{}{steps}", spelling::transposed(base))),
            false => Cow::Borrowed(name),
        }
    }

    /// The weight that `name` spells, if the files have what it is made from.
    ///
    /// # Errors
    /// That is in a form that cannot be used, or that `name` cannot be made from.
    pub(super) fn find(&self, name: &str) -> Result<Option<Found<'_>>, LoadError> {
        if let Some((file, reason)) = self.refused.get(name) {
            return Err(LoadError::Tensor {
                file: file.clone(),
                tensor: name.into(),
                reason: reason.clone(),
            });
        }
        let found = |declaration: WeightDecl, file, origin| {
            let name = name.into();
            Ok(Some(Found {
                declaration: WeightDecl {
                    name,
                    ..declaration
                },
                file,
                origin,
            }))
        };
        if let Some(stored) = self.stored.get(name) {
            return found(
                stored.declaration.clone(),
                &stored.file,
                Origin::Stored(stored),
            );
        }
        if let Some((base, step)) = spelling::split(name) {
            let Some(base) = self.find(base)? else {
                return Ok(None);
            };
            let shape =
                derive::shape(&base.declaration, &step).map_err(|reason| LoadError::Tensor {
                    file: base.file.to_path_buf(),
                    tensor: name.into(),
                    reason,
                })?;
            let declaration = WeightDecl {
                shape,
                ..base.declaration.clone()
            };
            return found(declaration, base.file, Origin::Made(Box::new(base), step));
        }
        let experts = self.experts(name)?;
        if let Some(first) = experts.first() {
            let mut declaration = first.declaration.clone();
            declaration.shape.insert(0, experts.len());
            return found(declaration, &first.file, Origin::Stacked(experts));
        }
        match projection(name) {
            Some(other) => match self.find(&other)? {
                Some(other) => found(other.declaration, other.file, other.origin),
                None => Ok(None),
            },
            None => Ok(None),
        }
    }

    /// The weights that stack to `name`, `P.experts.S` or `P.norms.S`; none if it is no such name.
    ///
    /// # Errors
    /// They differ in shape or format.
    fn experts(&self, name: &str) -> Result<Vec<&Stored>, LoadError> {
        let around = STACKED.iter().find_map(|&around| {
            let (before, after) = name.rsplit_once(around)?;
            Some((before, around, after))
        });
        let Some((before, around, after)) = around else {
            return Ok(Vec::new());
        };
        let mut experts: Vec<&Stored> = Vec::new();
        loop {
            let expert = format!("{before}{around}{}.{after}", experts.len());
            let Some(stored) = self.stored.get(&expert) else {
                return Ok(experts);
            };
            let (one, first) = (&stored.declaration, experts.first().unwrap_or(&stored));
            let first = &first.declaration;
            if (&one.shape, one.format) != (&first.shape, first.format) {
                return Err(LoadError::Tensor {
                    file: stored.file.clone(),
                    tensor: expert,
                    reason: format!(
                        "must be {} {:?} like `{}`, is {} {:?}",
                        first.format, first.shape, first.name, one.format, one.shape
                    ),
                });
            }
            experts.push(stored);
        }
    }

    /// The bytes of the weight that `name` spells: values, scales, biases.
    pub(super) fn parts(&self, name: &str) -> Option<[&[u8]; 3]> {
        if let Some(stored) = self.stored.get(name) {
            return Some(stored.parts().map(|part| self.bytes(part)));
        }
        let made = match self.made.get(name) {
            Some(made) => made,
            None => {
                let parts = self.evaluate(&self.find(name).ok()??);
                // What takes no copy stays mapped.
                if let [Part::Kept(values), Part::Kept(scales), Part::Kept(biases)] = parts {
                    return Some([values, scales, biases]);
                }
                // No lock is held while parts are made, which other threads help with: of two that
                // make the same, the first to be done is kept.
                let parts = parts.map(|part| match part {
                    Part::Kept(bytes) => Bytes::owned(bytes),
                    Part::Made(words) => Bytes::Owned(words),
                });
                self.made.insert(name.into(), Box::new(parts))
            }
        };
        Some(made.each_ref().map(|part| self.bytes(part)))
    }

    fn evaluate<'a>(&'a self, found: &Found<'a>) -> [Part<'a>; 3] {
        match &found.origin {
            Origin::Stored(stored) => stored.parts().map(|part| Part::Kept(self.bytes(part))),
            Origin::Stacked(experts) => [0, 1, 2].map(|part| {
                let experts: Vec<&Bytes> = experts.iter().map(|one| one.parts()[part]).collect();
                self.stack(&experts)
            }),
            Origin::Made(base, step) => derive::parts(&base.declaration, step, self.evaluate(base)),
        }
    }

    /// `pieces` one after the other, where they stand if they stand like that in a file.
    fn stack<'a>(&'a self, pieces: &[&'a Bytes]) -> Part<'a> {
        if let Some(Bytes::Mapped { file, range }) = pieces.first() {
            let end = pieces
                .iter()
                .try_fold(range.start, |end, piece| match piece {
                    Bytes::Mapped { file: other, range } if other == file && range.start == end => {
                        Some(range.end)
                    }
                    _ => None,
                });
            if let Some(bytes) = end.and_then(|end| self.files[*file].bytes().get(range.start..end))
            {
                return Part::Kept(bytes);
            }
        }
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| self.bytes(piece)).collect();
        let size = pieces.first().map_or(0, |piece| piece.len());
        if size == 0 {
            return Part::Kept(&[]);
        }
        let mut stacked = Words::zeros(size * pieces.len());
        stacked
            .bytes_mut()
            .par_chunks_mut(size)
            .zip(pieces)
            .for_each(|(to, from)| to.copy_from_slice(from));
        Part::Made(stacked)
    }
}

impl Stored {
    fn parts(&self) -> [&Bytes; 3] {
        [&self.values, &self.scales, &self.biases]
    }
}
