//! The oracle's levels by name, with how much each tries.

use crate::fuzz::{self, Amount};
use crate::summary::Level;
use crate::{known, mutation, sweep};

/// How much to try.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Random graphs.
    pub random: Amount,
    /// Single ops that are compiled.
    pub ops: usize,
}

impl Effort {
    /// What runs with every change.
    pub fn ci() -> Self {
        Self {
            random: Amount {
                first: 0,
                graphs: 2000,
                // Compiled random graphs find faults of IREE that are not declared yet: for `deep`.
                compiled: 0,
                batch: 50,
            },
            ops: 60,
        }
    }

    /// What runs when there is time.
    pub fn deep() -> Self {
        Self {
            random: Amount {
                first: 0,
                graphs: 20_000,
                compiled: 1000,
                batch: 50,
            },
            ops: 1000,
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
    ("limitations", limitations),
];

fn bugs(_: &Effort, _: &dyn Fn(&str)) -> Outcome {
    let (levels, table) = mutation::run();
    Outcome {
        levels,
        notes: table.lines().map(str::to_string).collect(),
    }
}

fn ops(effort: &Effort, progress: &dyn Fn(&str)) -> Outcome {
    Outcome {
        levels: sweep::run(effort.ops, effort.random.batch, progress),
        notes: vec![],
    }
}

fn numbers(_: &Effort, _: &dyn Fn(&str)) -> Outcome {
    Outcome {
        levels: sweep::exhaustive(),
        notes: vec![],
    }
}

fn limitations(_: &Effort, _: &dyn Fn(&str)) -> Outcome {
    Outcome {
        levels: vec![known::run()],
        notes: vec![],
    }
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
