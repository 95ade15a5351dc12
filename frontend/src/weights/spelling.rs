//! The spelling of weights that are made from a checkpoint's tensors, as `weights.rs` describes it.
#![allow(dead_code, reason = "families spell what their checkpoints need")]

use std::fmt::{self, Write};
use std::ops::Range;

/// One step from a weight to a weight made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// `^T`: the last two dimensions are swapped.
    Transpose,
    /// `(d0,d1,..)`: the same numbers in the same order, in another shape.
    Reshape(Vec<usize>),
    /// `[a..b]`, `[:,a..b:stride:block]`: a part of one dimension.
    Slice(Slice),
}

/// Some indices of one dimension: of `range`, the first `block` of each `stride`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The dimension.
    pub(crate) axis: usize,
    /// The first index and the one after the last.
    pub(crate) range: Range<usize>,
    /// Indices from the start of a block to that of the next one.
    pub(crate) stride: usize,
    /// Indices of a block.
    pub(crate) block: usize,
}

/// The name of `name` with its last two dimensions swapped.
pub(crate) fn transposed(name: &str) -> String {
    format!("{name}{}", Step::Transpose)
}

/// The name of `name` in the shape `shape`, the numbers in the same order.
pub(crate) fn reshaped(name: &str, shape: &[usize]) -> String {
    format!("{name}{}", Step::Reshape(shape.to_vec()))
}

/// The name of the indices `range` of dimension `axis` of `name`.
pub(crate) fn part(name: &str, axis: usize, range: Range<usize>) -> String {
    format!("{name}{}", Step::Slice(Slice::range(axis, range)))
}

/// The name of the first `block` of each `stride` indices in `range` of dimension `axis` of `name`.
pub(crate) fn blocks(
    name: &str,
    axis: usize,
    range: Range<usize>,
    [stride, block]: [usize; 2],
) -> String {
    format!(
        "{name}{}",
        Step::Slice(Slice::blocks(axis, range, stride, block))
    )
}

/// Dimensions that a weight may have.
const RANK: usize = 8;

impl Slice {
    /// The indices `range` of dimension `axis`.
    pub(crate) fn range(axis: usize, range: Range<usize>) -> Self {
        Self {
            axis,
            range,
            stride: 1,
            block: 1,
        }
    }

    /// Of `range` of dimension `axis`, the first `block` of each `stride` indices.
    pub(crate) fn blocks(axis: usize, range: Range<usize>, stride: usize, block: usize) -> Self {
        Self {
            axis,
            range,
            stride,
            block,
        }
    }

    /// Whether the indices follow each other without a gap.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.stride == self.block
    }

    /// How many indices there are.
    pub(crate) fn count(&self) -> usize {
        let length = self.range.len();
        length / self.stride * self.block + (length % self.stride).min(self.block)
    }

    /// The runs of indices, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let (step, block) = match self.is_contiguous() {
            true => (self.range.len().max(1), self.range.len()),
            false => (self.stride, self.block),
        };
        let end = self.range.end;
        self.range
            .clone()
            .step_by(step)
            .map(move |start| start..end.min(start + block))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Transpose => f.write_str("^T"),
            Step::Reshape(shape) => {
                for (index, dim) in shape.iter().enumerate() {
                    f.write_char(if index == 0 { '(' } else { ',' })?;
                    write!(f, "{dim}")?;
                }
                f.write_char(')')
            }
            Step::Slice(slice) => {
                f.write_char('[')?;
                for _ in 0..slice.axis {
                    f.write_str(":,")?;
                }
                write!(f, "{}..{}", slice.range.start, slice.range.end)?;
                if !slice.is_contiguous() {
                    write!(f, ":{}", slice.stride)?;
                    if slice.block != 1 {
                        write!(f, ":{}", slice.block)?;
                    }
                }
                f.write_char(']')
            }
        }
    }
}

/// The last step of `name` and the weight that it is made from, or `None` if `name` ends in none.
pub(crate) fn split(name: &str) -> Option<(&str, Step)> {
    if let Some(base) = name.strip_suffix("^T") {
        return Some((base, Step::Transpose));
    }
    if let Some(rest) = name.strip_suffix(')') {
        let (base, inner) = rest.rsplit_once('(')?;
        let shape: Option<Vec<usize>> = inner.split(',').map(number).collect();
        let shape = shape.filter(|shape| shape.len() <= RANK)?;
        return Some((base, Step::Reshape(shape)));
    }
    let (base, inner) = name.strip_suffix(']')?.rsplit_once('[')?;
    let mut axis = 0;
    let mut inner = inner;
    while let Some(rest) = inner.strip_prefix(":,") {
        (axis, inner) = (axis + 1, rest);
    }
    let mut parts = inner.split(':');
    let (start, end) = parts.next()?.split_once("..")?;
    let range = number(start)?..number(end)?;
    let stride = parts.next().map_or(Some(1), number)?;
    let block = parts.next().map_or(Some(1), number)?;
    let slice = Slice {
        axis,
        range,
        stride,
        block,
    };
    let sound = axis < RANK && slice.range.start < slice.range.end;
    let sound = sound && (1..=stride).contains(&block) && parts.next().is_none();
    sound.then_some((base, Step::Slice(slice)))
}

/// A number in decimal digits. No dimension is as large as the bound, so that sums and products of
/// two cannot overflow.
fn number(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse::<u32>().ok())??;
    Some(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step() -> impl Strategy<Value = Step> {
        let slice = (
            0..4usize,
            0..1000usize,
            1..1000usize,
            1..50usize,
            1..50usize,
        );
        prop_oneof![
            Just(Step::Transpose),
            prop::collection::vec(0..5000usize, 1..5).prop_map(Step::Reshape),
            slice.prop_map(|(axis, start, length, block, gap)| {
                Step::Slice(Slice::blocks(
                    axis,
                    start..start + length,
                    block + gap,
                    block,
                ))
            }),
            (0..4usize, 0..1000usize, 1..1000usize).prop_map(|(axis, start, length)| Step::Slice(
                Slice::range(axis, start..start + length)
            )),
        ]
    }

    proptest! {
        #[test]
        fn what_is_spelled_is_read(base in "[a-z0-9._]{1,20}", step in step()) {
            let name = format!("{base}{step}");
            prop_assert_eq!(split(&name), Some((base.as_str(), step)));
        }

        #[test]
        fn a_slice_counts_its_runs(
            start in 0..100usize, length in 1..100usize, block in 1..9usize, gap in 0..9usize,
        ) {
            let slice = Slice::blocks(0, start..start + length, block + gap, block);
            let picked: Vec<usize> = slice.runs().flatten().collect();
            let wanted: Vec<usize> = (start..start + length)
                .filter(|index| (index - start) % (block + gap) < block)
                .collect();
            prop_assert_eq!(picked.len(), slice.count());
            prop_assert_eq!(picked, wanted);
        }

        #[test]
        fn nothing_panics(name in "[a^T\\[\\]():,.0-9]{0,30}") {
            let _ = split(&name);
        }
    }

    #[test]
    fn other_names_have_no_step() {
        for name in [
            "a.weight",
            "",
            "]",
            "a[]",
            "a[3..2]",
            "a[0..4:1:2]",
            "a[0..4:0]",
            "a()",
            "a(x)",
            "a[+1..2]",
            "a[0..99999999999]",
            "a[0..1:1:1:1]",
        ] {
            assert_eq!(split(name), None, "{name}");
        }
    }
}
