//! The oracle's levels by name, with how much each tries.

use crate::fuzz::{self, Amount};
use crate::summary::Level;
use crate::{field, known, lengths, mutation, relations, repeats, sweep, tokens};

/// How much to try.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Random graphs.
    pub random: Amount,
    /// Bugs that are put into what IREE compiles.
    pub bugs: usize,
    /// Single ops that are compiled.
    pub ops: usize,
    /// The power of two up to which prompts of lengths around powers of two are tried.
    pub longest: usize,
    /// Greedy texts of each execution.
    pub texts: usize,
}

impl Effort {
    /// What runs with every change.
    pub fn ci() -> Self {
        Self {
            random: Amount {
                first: 0,
                graphs: 2000,
                compiled: 50,
                batch: 50,
            },
            bugs: 7,
            ops: 60,
            longest: 1024,
            texts: 24,
        }
    }

    /// What runs when there is time.
    pub fn deep() -> Self {
        Self {
            random: Amount {
                first: 0,
                graphs: 20_100,
                compiled: 1005,
                batch: 50,
            },
            bugs: usize::MAX,
            ops: 1000,
            longest: 4096,
            texts: 240,
        }
    }
}

/// What a level gives.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Lines of the summary.
    pub levels: Vec<Level>,
    /// What else is to be told.
    pub notes: Vec<String>,
}

/// A level.
pub type Run = fn(&Effort, &dyn Fn(&str)) -> Outcome;

/// Every level by name, in the order in which they run.
pub const LEVELS: &[(&str, Run)] = &[
    ("bugs", bugs),
    ("ops", ops),
    ("numbers", numbers),
    ("random", random),
    ("relations", |_, _| lines(relations::run())),
    ("lengths", |effort, _| lines(lengths::run(effort.longest))),
    ("tokens", |effort, _| lines(tokens::run(effort.texts))),
    ("determinism", |_, _| lines(repeats::run())),
    ("field", |_, _| lines(field::run())),
    ("limitations", limitations),
];

fn lines(levels: Vec<Level>) -> Outcome {
    Outcome {
        levels,
        notes: vec![],
    }
}

fn bugs(effort: &Effort, _: &dyn Fn(&str)) -> Outcome {
    let (levels, table) = mutation::run(effort.bugs);
    Outcome {
        levels,
        notes: table.lines().map(str::to_string).collect(),
    }
}

fn ops(effort: &Effort, progress: &dyn Fn(&str)) -> Outcome {
    let (levels, classes) = sweep::run(effort.ops, effort.random.batch, progress);
    let mut notes = vec![
        "| class of bounds | worst share | on |".to_string(),
        "| --- | --- | --- |".to_string(),
    ];
    // A bound of zero has no share.
    let inexact = classes.iter().filter(|(_, (share, _))| *share > 0.0);
    notes.extend(inexact.map(|(class, (share, execution))| {
        format!("| `{class}` | {:.1}% | {execution} |", share * 100.0)
    }));
    Outcome { levels, notes }
}

fn numbers(_: &Effort, _: &dyn Fn(&str)) -> Outcome {
    lines(sweep::exhaustive())
}

fn limitations(_: &Effort, _: &dyn Fn(&str)) -> Outcome {
    lines(vec![known::run()])
}

fn random(effort: &Effort, progress: &dyn Fn(&str)) -> Outcome {
    let (levels, coverage) = fuzz::run(effort.random, progress);
    let graphs = levels.first().map_or(1, |level| level.cases).max(1);
    let shares = coverage
        .iter()
        .map(|(op, count)| format!("{op} {:.1}%", *count as f64 * 100.0 / graphs as f64));
    let missing: Vec<&str> = coverage
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(op, _)| *op)
        .collect();
    let mut notes = vec![format!(
        "graphs with each op: {}",
        shares.collect::<Vec<_>>().join(", ")
    )];
    if !missing.is_empty() {
        notes.push(format!("ops in no graph: {}", missing.join(", ")));
    }
    Outcome { levels, notes }
}
