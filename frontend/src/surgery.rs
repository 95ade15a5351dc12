//! Surgery: operations on a model's weights that a file lists, done when the model is loaded.
//!
//! The operations and their meaning are documented in the book (`reference/surgery.md`). Invariants:
//! shapes and formats never change; every operation is checked against the model before the first
//! one changes anything; operations follow each other in the order of the file, each on what the
//! ones before made.
//!
//! Numbers are computed in f32 and rounded once to the weight's own element type. A quantised weight
//! can be scaled, made zero and replaced, which keep its codes; it cannot be mixed with another.

mod edit;
mod file;
mod prune;
mod select;
mod source;

use crate::LoadError;
use crate::weights::Weights;
use edit::Action;
use file::{Granularity, Operation, Place, Placed};
use mlxcel_ir::{Dim, Graph, Op, WeightDecl, WeightFormat};
use prune::Region;
use source::Sources;
use std::path::Path;
use std::sync::Arc;

/// The attention heads of a model; none if it has no attention.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heads {
    /// How many query heads a layer has.
    pub(crate) count: usize,
    /// Features of a head.
    pub(crate) width: usize,
}

impl Heads {
    /// Those of the first attention in `graph`.
    pub(crate) fn of(graph: &Graph) -> Self {
        let found = graph.nodes.iter().find_map(|node| {
            matches!(node.op, Op::Attention { .. } | Op::MutualAttention { .. })
                .then(|| graph.ty(*node.operands.first()?))?
        });
        match found.map(|ty| &ty.shape[..]) {
            Some(&[.., Dim::Fixed(count), Dim::Fixed(width)]) => Self { count, width },
            _ => Self::default(),
        }
    }
}

/// Does to `weights` what the surgery `file` says. Gives what its user should know of it.
///
/// # Errors
/// A file that is no surgery, or an operation that does not fit the model. Nothing is changed then.
pub(crate) fn apply(
    weights: &mut Weights,
    file: &Path,
    heads: Heads,
) -> Result<Vec<String>, LoadError> {
    let (operations, content) = file::read(file)?;
    let mut planner = Planner {
        weights,
        heads,
        sources: Sources::new(weights.rules.family()),
        actions: Vec::new(),
        notes: Vec::new(),
    };
    for Placed { operation, place } in &operations {
        planner.plan(operation, place)?;
    }
    let Planner {
        sources,
        actions,
        notes,
        ..
    } = planner;
    for (name, action) in actions {
        edit::perform(weights, &name, action);
    }
    if !operations.is_empty() {
        weights.recipe.extend(content);
        // The actions are done, so that nothing else has the sources any more.
        let sources = sources.into_opened().filter_map(Arc::into_inner);
        weights
            .ingredients
            .extend(sources.flat_map(|source| source.checkpoint.into_files()));
    }
    Ok(notes)
}

/// Turns operations into actions on single weights.
struct Planner<'a> {
    weights: &'a Weights,
    heads: Heads,
    sources: Sources,
    actions: Vec<(String, Action)>,
    notes: Vec<String>,
}

impl Planner<'_> {
    fn plan(&mut self, operation: &Operation, place: &Place) -> Result<(), LoadError> {
        let names = select::select(self.weights, operation.pattern(), place)?;
        let selected: Vec<WeightDecl> = names
            .into_iter()
            .filter_map(|name| Some(self.weights.stored.get(&name)?.declaration.clone()))
            .collect();
        match operation {
            Operation::Scale { factor, .. } => {
                for one in selected {
                    proportional(&one, place)?;
                    self.actions.push((one.name, Action::Scale(*factor as f32)));
                }
            }
            Operation::Add { source, alpha, .. } => {
                let source = self.sources.open(source, place)?;
                for one in selected {
                    dense(&one, place)?;
                    let other = source.dense(&one.name, &one.shape, place)?;
                    self.actions
                        .push((one.name, Action::Add(other, *alpha as f32)));
                }
            }
            Operation::Replace {
                pattern,
                source,
                source_key,
                ..
            } => {
                let source = self.sources.open(source, place)?;
                let captures = select::Captures::new(pattern, place)?;
                for one in selected {
                    let key = captures.fill(&one.name, source_key);
                    let parts = source.like(&key, &one, place)?;
                    self.actions.push((one.name, Action::Replace(parts)));
                }
            }
            Operation::Interpolate {
                source_a,
                source_b,
                ratio,
                method,
                ..
            } => {
                let a = self.sources.open(source_a, place)?;
                let b = self.sources.open(source_b, place)?;
                for one in selected {
                    dense(&one, place)?;
                    let sides = [
                        a.dense(&one.name, &one.shape, place)?,
                        b.dense(&one.name, &one.shape, place)?,
                    ];
                    let action = Action::Mix(sides, *ratio, *method);
                    self.actions.push((one.name, action));
                }
            }
            Operation::Prune {
                granularity,
                pattern,
                layer_ids,
                head_ids,
                channel_ids,
            } => {
                let ids = match granularity {
                    Granularity::Layer => layer_ids,
                    Granularity::AttentionHead => head_ids,
                    Granularity::MlpChannel => channel_ids,
                };
                self.prune(&selected, *granularity, ids, pattern, place)?;
            }
        }
        Ok(())
    }

    fn prune(
        &mut self,
        selected: &[WeightDecl],
        granularity: Granularity,
        ids: &[usize],
        pattern: &str,
        place: &Place,
    ) -> Result<(), LoadError> {
        let before = self.actions.len();
        let mut kept: Vec<(&str, &str)> = Vec::new();
        for one in selected {
            match prune::region(one, granularity, ids, self.heads, place)? {
                Ok(region) => {
                    if region != Region::All {
                        proportional(one, place)?;
                    }
                    self.actions.push((one.name.clone(), Action::Zero(region)));
                }
                Err(Some(reason)) => kept.push((&one.name, reason)),
                Err(None) => {}
            }
        }
        if self.actions.len() == before {
            let reason = format!("`pattern` {pattern} selects nothing that this would make zero");
            return Err(place.error(reason));
        }
        if granularity == Granularity::Layer {
            let has = |id: &usize| {
                selected
                    .iter()
                    .any(|one| prune::layer(&one.name) == Some(*id))
            };
            if let Some(id) = ids.iter().find(|id| !has(id)) {
                return Err(
                    place.error(format!("`pattern` {pattern} selects nothing of layer {id}"))
                );
            }
        }
        if let Some((name, reason)) = kept.first() {
            let count = kept.len();
            self.notes.push(format!(
                "surgery: {count} weights like `{name}` stay: {reason}"
            ));
        }
        Ok(())
    }
}

/// Requires a weight whose numbers are proportional to parts of it that are stored as numbers.
fn proportional(declaration: &WeightDecl, place: &Place) -> Result<(), LoadError> {
    match declaration.format {
        WeightFormat::Dense(_) | WeightFormat::Affine { .. } | WeightFormat::ZeroPoint { .. } => {
            Ok(())
        }
        format => {
            let name = &declaration.name;
            let reason = format!("`{name}` is stored as {format}, which this cannot be done to");
            Err(place.error(reason))
        }
    }
}

/// Requires a weight that can be mixed with another.
fn dense(declaration: &WeightDecl, place: &Place) -> Result<(), LoadError> {
    match declaration.format {
        WeightFormat::Dense(_) => Ok(()),
        format => {
            let name = &declaration.name;
            let reason =
                format!("`{name}` is quantised ({format}) and cannot be mixed with another weight");
            Err(place.error(reason))
        }
    }
}
