//! What `prune` makes zero of each weight.

use super::Heads;
use super::file::{Granularity, Place};
use crate::LoadError;
use mlxcel_ir::WeightDecl;
use std::ops::Range;

/// The part of a weight that becomes zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Region {
    All,
    /// Ranges of the outputs: of the rows of a matrix, of all of a bias.
    Rows(Vec<Range<usize>>),
    /// Ranges of the inputs: of the columns of a matrix.
    Columns(Vec<Range<usize>>),
}

/// What a weight has to do with heads or channels.
enum Role {
    /// Its rows are heads or channels.
    Rows,
    /// Its columns are.
    Columns,
    /// Nothing is made zero, for this reason.
    Kept(&'static str),
    /// It cannot be pruned so, for this reason.
    Refused(&'static str),
    /// It has nothing to do with them.
    Other,
}

const SHARED: &str = "keys and values are shared between heads";

/// What modules have to do with attention heads.
const HEADS: &[(&str, Role)] = &[
    ("q_proj", Role::Rows),
    ("o_proj", Role::Columns),
    ("k_proj", Role::Kept(SHARED)),
    ("v_proj", Role::Kept(SHARED)),
    (
        "qkv_proj",
        Role::Refused("holds queries, keys and values in one"),
    ),
    ("q_norm", Role::Kept("norms are shared between heads")),
    ("k_norm", Role::Kept("norms are shared between heads")),
];

/// What modules have to do with channels of feed-forward parts.
const CHANNELS: &[(&str, Role)] = &[
    ("gate_proj", Role::Rows),
    ("up_proj", Role::Rows),
    ("down_proj", Role::Columns),
    (
        "gate_up_proj",
        Role::Refused("holds two projections in one"),
    ),
];

/// What of the selected weight `declaration` becomes zero: a region, nothing, or nothing for a
/// reason to be told.
pub(super) fn region(
    declaration: &WeightDecl,
    granularity: Granularity,
    ids: &[usize],
    heads: Heads,
    place: &Place,
) -> Result<Result<Region, Option<&'static str>>, LoadError> {
    let name = &declaration.name;
    let (roles, unit) = match granularity {
        Granularity::Layer => {
            let pruned = layer(name).is_some_and(|layer| ids.contains(&layer));
            return Ok(if pruned { Ok(Region::All) } else { Err(None) });
        }
        Granularity::AttentionHead => (HEADS, heads.width),
        Granularity::MlpChannel => (CHANNELS, 1),
    };
    let module = name.rsplit('.').nth(1).unwrap_or("");
    let is_bias = name.ends_with(".bias");
    let role = roles.iter().find(|(known, _)| *known == module);
    let shape = &declaration.shape;
    let (rows, columns) = match (is_bias, &shape[..]) {
        (false, [.., rows, columns]) => (*rows, *columns),
        (_, [.., rows]) => (*rows, 0),
        (_, []) => (0, 0),
    };
    let size = match role.map_or(&Role::Other, |(_, role)| role) {
        Role::Rows => rows,
        // The bias of a layer is added once, whatever its inputs are.
        Role::Columns if is_bias => return Ok(Err(None)),
        Role::Columns => columns,
        Role::Kept(reason) => return Ok(Err(Some(*reason))),
        Role::Refused(reason) => return Err(place.error(format!("`{name}` {reason}"))),
        Role::Other => return Ok(Err(None)),
    };
    if granularity == Granularity::AttentionHead && size != heads.count * heads.width {
        let reason = format!(
            "`{name}` has {size} features, not those of {} heads of {}",
            heads.count, heads.width
        );
        return Err(place.error(reason));
    }
    let count = size / unit.max(1);
    if let Some(id) = ids.iter().find(|id| **id >= count) {
        return Err(place.error(format!(
            "`{name}` has no number {id}, only 0 to {}",
            count - 1
        )));
    }
    let ranges = merge(ids, unit);
    match role {
        Some((_, Role::Columns)) => {
            if let Some(group) = declaration.format.coded().map(|coded| coded.group)
                && ranges
                    .iter()
                    .any(|range| range.start % group != 0 || range.end % group != 0)
            {
                let reason = format!(
                    "`{name}` is quantised in groups of {group} columns, and only whole groups can \
                     be made zero"
                );
                return Err(place.error(reason));
            }
            Ok(Ok(Region::Columns(ranges)))
        }
        _ => Ok(Ok(Region::Rows(ranges))),
    }
}

/// The number of the layer that `name` belongs to.
pub(super) fn layer(name: &str) -> Option<usize> {
    let mut parts = name.split('.');
    parts.find(|part| matches!(*part, "layers" | "h" | "blocks" | "layer"))?;
    parts.next()?.parse().ok()
}

/// The ranges of `unit` features that `ids` number, neighbours joined.
fn merge(ids: &[usize], unit: usize) -> Vec<Range<usize>> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for id in ids {
        let (start, end) = (id * unit, (id + 1) * unit);
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(merge(&[3, 1, 2, 7, 7], 4), [4..16, 28..32]);
    }

    #[test]
    fn names_tell_their_layer() {
        let check = |name, expect| assert_eq!(layer(name), expect, "{name}");
        check("model.layers.11.mlp.up_proj.weight", Some(11));
        check("transformer.h.3.attn.c_attn.weight", Some(3));
        check("model.norm.weight", None);
        check("model.layers.x.weight", None);
        check("model.layers", None);
    }
}
