//! How a prompt is cut into calls of the compiled functions.

/// What a call costs beyond its tokens, in tokens: reading all weights once and starting the
/// dispatches takes about as long as computing this many tokens.
const CALL_COST: usize = 8;

/// Cuts `new` tokens that follow `start` cached ones into calls: the sizes of the functions to call,
/// in order. Their sum is at least `new`; only the last call may be padded.
///
/// A call of size T writes T cache rows, so none reaches past `capacity`. Of the ways that are left
/// it takes the one with the lowest total of tokens computed and [`CALL_COST`] per call. `None` if
/// there is no way.
pub(crate) fn plan(
    new: usize,
    start: usize,
    capacity: usize,
    sizes: &[usize],
) -> Option<Vec<usize>> {
    // best[r]: the cheapest way to finish when r tokens remain, as (cost, size of the next call).
    let mut best: Vec<Option<(usize, usize)>> = vec![Some((0, 0))];
    for remaining in 1..=new {
        let position = start + (new - remaining);
        let way = sizes
            .iter()
            .filter(|&&size| size > 0 && position + size <= capacity)
            .filter_map(|&size| {
                let (rest, _) = best[remaining.saturating_sub(size)]?;
                Some((rest + size + CALL_COST, size))
            })
            .min_by_key(|&(cost, size)| (cost, std::cmp::Reverse(size)));
        best.push(way);
    }
    let mut calls = Vec::new();
    let mut remaining = new;
    while remaining > 0 {
        let (_, size) = best[remaining]?;
        calls.push(size);
        remaining = remaining.saturating_sub(size);
    }
    Some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn takes_the_cheapest_calls() {
        let check = |new, start, capacity, expect: Option<&[usize]>| {
            let actual = plan(new, start, capacity, &[1, 32, 128]);
            assert_eq!(actual.as_deref(), expect, "{new} at {start} of {capacity}");
        };
        check(1, 0, 1024, Some(&[1]));
        check(4, 0, 1024, Some(&[1, 1, 1, 1]));
        check(9, 0, 1024, Some(&[32]));
        check(45, 0, 1024, Some(&[32, 32]));
        check(128, 0, 1024, Some(&[128]));
        check(129, 0, 1024, Some(&[128, 1]));
        // Padding would reach past the cache.
        check(5, 1019, 1024, Some(&[1, 1, 1, 1, 1]));
        check(33, 991, 1024, Some(&[32, 1]));
        check(2, 1023, 1024, None);
        check(0, 0, 1024, Some(&[]));
    }

    proptest! {
        #[test]
        fn calls_cover_the_tokens_and_stay_inside(
            new in 0usize..300,
            start in 0usize..300,
            capacity in 0usize..600,
            others in prop::collection::vec(1usize..200, 0..4),
        ) {
            let sizes: Vec<usize> = std::iter::once(1).chain(others).collect();
            let calls = plan(new, start, capacity, &sizes);
            prop_assert_eq!(calls.is_some(), start + new <= capacity || new == 0);
            let mut position = start;
            let calls = calls.unwrap_or_default();
            for (index, size) in calls.iter().enumerate() {
                prop_assert!(sizes.contains(size) && position + size <= capacity);
                prop_assert!(index + 1 == calls.len() || position + size < start + new);
                position += size;
            }
            prop_assert!(calls.is_empty() || position >= start + new);
        }
    }
}
