//! The level of lengths: prompts of every length up to 300, and around powers of two.
//!
//! Kernels treat blocks, remainders, windows and chunks apart, and a fault of one shows at the lengths
//! that meet it alone. The decoder's window is 5, its chunk 8 and the original context of its rotary
//! embedding 16, so that all of them are crossed.

use crate::rows::{Decoder, Fault, Text, step};
use crate::summary::{Failure, Level};
use crate::toy::Head;
use mlxcel_ir::step::Want;
use std::time::Instant;

/// Every length up to this one.
const EVERY: usize = 300;

/// The length at which an engine of the field failed, with a window of 512 (mlx-lm#58).
const FAILED: usize = 1067;

/// The lengths up to `longest`, which is a power of two: every one up to 300, and from two before each
/// power of two to two after it; [`FAILED`] with two to each side beyond 1024.
pub fn lengths(longest: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(512), |power| Some(power * 2));
    let around = powers
        .take_while(|&power| power <= longest)
        .chain((longest >= 1024).then_some(FAILED))
        .flat_map(|power| power - 2..=power + 2);
    (1..=EVERY).chain(around).collect()
}

/// Runs the level: a prompt of each length and one token after it.
pub fn run(longest: usize) -> Vec<Level> {
    sweep(longest).unwrap_or_else(|error| {
        let mut level = Level::new("lengths");
        level.fail(Failure {
            execution: "oracle".into(),
            reason: crate::known::full(&*error),
            case: String::new(),
        });
        vec![level]
    })
}

fn sweep(longest: usize) -> Result<Vec<Level>, Fault> {
    let decoder = Decoder::new(Head::Own, false)?;
    let lengths = lengths(longest);
    let most = lengths.iter().copied().max().unwrap_or(0) + 1;
    let text = Text::new(&decoder, most, 4)?;
    let mut levels = vec![];
    for (name, mut session) in decoder.sessions(most)? {
        let mut level = Level::new(format!("lengths, {name}"));
        let begin = Instant::now();
        for &length in &lengths {
            let sequence = session.create()?;
            let (prompt, rest) = text.tokens.split_at(length);
            let parts = [(prompt, length - 1), (&rest[..1], length)];
            for (tokens, position) in parts {
                let logits = step(&mut *session, &[(sequence, tokens)], Want::Logits)?.concat();
                let share = text.share(position, &logits);
                match share <= 1.0 {
                    true => level.pass(share, || format!("length {length}")),
                    false => level.fail(Failure {
                        execution: name.into(),
                        reason: format!(
                            "after token {position}, prompt of {length}: {share:.3} of the budget"
                        ),
                        case: String::new(),
                    }),
                }
            }
            session.release(sequence)?;
        }
        level.seconds = begin.elapsed().as_secs_f64();
        levels.push(level);
    }
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use super::lengths;

    #[test]
    fn powers_of_two_are_surrounded() {
        let found = lengths(1024);
        assert_eq!(&found[..3], [1, 2, 3]);
        assert_eq!(
            &found[299..],
            [
                300, 510, 511, 512, 513, 514, 1022, 1023, 1024, 1025, 1026, 1065, 1066, 1067, 1068,
                1069
            ]
        );
    }
}
