//! Linear layers of which each token takes some of many.

use crate::input::Input;
use crate::linear::{Linear, Target, grain, prepared, product, row_range};
use crate::{Error, Matrix, Pool, error};
use std::cell::RefCell;

thread_local! {
    /// The rows of x by experts, and the products that several rows of an expert give.
    static SPACE: RefCell<[Vec<f32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// A layer for each expert.
#[derive(Clone, Copy, Debug)]
pub struct Experts<'a> {
    /// The weights of all experts, `[E, N, K]` as `[E N, K]`.
    pub matrix: Matrix<'a>,
    /// The biases `[E, N]`.
    pub bias: Option<&'a [f32]>,
    /// Experts (E).
    pub count: usize,
}

/// The rows that one expert gets.
struct Group {
    expert: usize,
    /// The first of its rows in the order of experts, and how many.
    first: usize,
    rows: usize,
    /// The first of its items of work, and rows of the weight in each.
    item: usize,
    grain: usize,
}

/// For each of the `choices` experts that a token has chosen, `out[T, choices, N] = x · weightᵀ +
/// bias` of that expert; `x` is `[T, K]`, or `[T, choices, K]`. Only the weights of chosen experts
/// are read, each once however many tokens chose it.
///
/// # Errors
/// [`Error::Index`] for an expert that is not there, [`Error::Length`] or [`Error::Parameter`] if
/// slices do not fit the matrix, [`Error::Panic`] on a bug.
pub fn expert_linear(
    pool: &Pool,
    x: &[f32],
    chosen: &[i32],
    choices: usize,
    layer: Experts<'_>,
    out: &mut [f32],
) -> Result<(), Error> {
    let Experts {
        matrix,
        bias,
        count,
    } = layer;
    let columns = matrix.columns;
    error::parameter(choices > 0, "the experts of a token", choices, "at least 1")?;
    error::parameter(
        count > 0 && matrix.rows.is_multiple_of(count),
        "the number of experts",
        count,
        "a divisor of the rows of all weights",
    )?;
    let width = matrix.rows / count;
    let shared = x.len() != chosen.len() * columns;
    let rows = if shared {
        chosen.len() / choices
    } else {
        chosen.len()
    };
    error::length("the input of expert_linear", x.len(), rows * columns)?;
    error::length(
        "the experts",
        chosen.len(),
        chosen.len() / choices * choices,
    )?;
    error::length(
        "the output of expert_linear",
        out.len(),
        chosen.len() * width,
    )?;
    if let Some(bias) = bias {
        error::length("the bias", bias.len(), matrix.rows)?;
    }
    // Places in the order of their experts.
    let (order, groups, items) = sort(pool, chosen, &layer)?;
    let [mut packed, mut products] = SPACE.take();
    packed.clear();
    for &place in &order {
        let row = if shared { place / choices } else { place };
        packed.extend_from_slice(&x[row * columns..][..columns]);
    }
    products.resize(products.len().max(order.len() * width), 0.0);
    let sizes: Vec<usize> = groups.iter().map(|group| group.rows).collect();
    let layer = Linear { matrix, bias };
    let to = Target {
        to: out.as_mut_ptr(),
        stride: width,
    };
    let space = Target {
        to: products.as_mut_ptr(),
        stride: width,
    };
    let prepared = prepared(pool, [&matrix]);
    let result = Input::with_each(prepared, &packed, &sizes, columns, |inputs| {
        pool.ranges(items, 1, |range| {
            for item in range {
                let number = groups.partition_point(|group| group.item <= item) - 1;
                let group = &groups[number];
                let part = row_range(item - group.item, group.grain, width);
                let first = group.expert * width;
                let range = first + part.start..first + part.end;
                let places = &order[group.first..][..group.rows];
                // Rows of all weights are counted through; results are those of one expert.
                let target = match places {
                    [place] => to.at(*place, 0),
                    _ => space.at(group.first, 0),
                };
                let target = Target {
                    to: target.wrapping_sub(first),
                    stride: width,
                };
                // SAFETY: the form is the pool's; the input has the matrix's columns; the output has
                // a row for each place, the space one for each row of x, and no other item has these
                // columns of them.
                unsafe {
                    product(pool, &inputs[number], &layer, range, target);
                    if group.rows > 1 {
                        for (m, &place) in places.iter().enumerate() {
                            let from = space.at(group.first + m, part.start);
                            let to = to.at(place, part.start);
                            std::ptr::copy_nonoverlapping(from, to, part.len());
                        }
                    }
                }
            }
        })
    });
    SPACE.set([packed, products]);
    result
}

/// The places of `chosen` in the order of experts, the groups of equal ones, and the number of items
/// of work.
fn sort(
    pool: &Pool,
    chosen: &[i32],
    layer: &Experts<'_>,
) -> Result<(Vec<usize>, Vec<Group>, usize), Error> {
    let width = layer.matrix.rows / layer.count;
    let expert = |place: usize| usize::try_from(chosen[place]).unwrap_or(usize::MAX);
    let mut order: Vec<usize> = (0..chosen.len()).collect();
    if let Some(&place) = order.iter().find(|&&place| expert(place) >= layer.count) {
        return Err(Error::Index {
            index: chosen[place].into(),
            rows: layer.count,
        });
    }
    order.sort_by_key(|&place| expert(place));
    let mut groups = Vec::new();
    let (mut first, mut item) = (0, 0);
    for places in order.chunk_by(|&a, &b| chosen[a] == chosen[b]) {
        let grain = grain(pool, &layer.matrix, places.len());
        groups.push(Group {
            expert: expert(places[0]),
            first,
            rows: places.len(),
            item,
            grain,
        });
        first += places.len();
        item += width.div_ceil(grain);
    }
    Ok((order, groups, item))
}
