//! The oracle's levels, small; `cargo xtask oracle` runs them in full.

use mlxcel_ir::Op;
use mlxcel_ir::step::Want;
use mlxcel_oracle::case::Case;
use mlxcel_oracle::fuzz;
use mlxcel_oracle::known::{KNOWN, present};
use mlxcel_oracle::mutation;
use mlxcel_oracle::reduce::reduce;
use mlxcel_oracle::rows::{self, Decoder, Text};
use mlxcel_oracle::toy::Head;
use mlxcel_oracle::{relations, repeats, sweep};
use std::collections::BTreeSet;

/// Without this, a generator whose graphs are all dropped would pass everything.
#[test]
fn random_graphs_have_every_op_and_read_back() {
    let mut missing: BTreeSet<&str> = Op::TABLE.iter().map(|info| info.name).collect();
    let mut graphs = 0;
    for number in 0..400 {
        let Some(case) = fuzz::case(number) else {
            continue;
        };
        graphs += 1;
        for node in &case.graph.nodes {
            missing.remove(node.op.info().name);
        }
        let read =
            Case::parse(&case.to_string()).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(read.graph, case.graph);
        assert_eq!((read.bindings, read.seed), (case.bindings, case.seed));
    }
    assert!(missing.is_empty(), "in no graph: {missing:?}");
    assert!(
        graphs > 390,
        "only {graphs} of 400 graphs have a settled node"
    );
}

/// An op that no case ends with is not swept.
#[test]
fn every_op_is_swept() {
    let mut missing: BTreeSet<&str> = Op::TABLE.iter().map(|info| info.name).collect();
    for case in sweep::cases() {
        let last = case.graph.nodes.last();
        missing.remove(last.map_or("", |node| node.op.info().name));
    }
    assert!(missing.is_empty(), "no case ends with {missing:?}");
}

#[test]
fn a_failing_graph_gets_small() {
    let mut tried = 0;
    for number in 0..60 {
        let Some(case) = fuzz::case(number) else {
            continue;
        };
        let holds = |case: &Case| {
            let nodes = &case.graph.nodes;
            nodes.iter().any(|node| matches!(node.op, Op::Softmax {}))
                && mlxcel_ir::verify::errors(&case.graph).is_empty()
        };
        if holds(&case) {
            tried += 1;
            let small = reduce(&case, &holds);
            assert_eq!(small.graph.nodes.len(), 1, "{small}");
        }
    }
    assert!(tried > 3, "{tried}");
}

#[test]
fn random_graphs_agree() {
    let amount = fuzz::Amount {
        first: 1 << 40,
        graphs: 60,
        compiled: 4,
        batch: 4,
    };
    let (levels, _) = fuzz::run(amount, &|_| {});
    assert_eq!(levels.len(), 9);
    for level in levels {
        assert!(level.passed(), "{level}\n{:?}", level.failures);
    }
}

/// At least 40 kinds of bugs, each blamed on the side and the node that has it.
#[test]
fn injected_bugs_are_located() {
    let trials = mutation::trials().unwrap();
    assert!(trials.len() >= 40, "{}", trials.len());
    for trial in &trials {
        assert!(trial.located(), "{trial:?}");
    }
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/src/numerics/injected-bugs.md"
    );
    let table = mutation::table(&trials);
    if std::env::var_os("MLXCEL_BLESS").is_some() {
        std::fs::write(page, format!("{}\n{table}", mutation::INTRODUCTION)).unwrap();
    }
    // Magnitudes vary with the processor; kinds, nodes and verdicts do not.
    let page = std::fs::read_to_string(page).unwrap();
    for trial in &trials {
        let row = format!(
            "| {} | {} | `{}` | yes | yes |",
            trial.kind, trial.execution, trial.node
        );
        assert!(
            page.contains(&row),
            "the book lacks {row}; MLXCEL_BLESS=1 writes it"
        );
    }
}

/// A limitation that is gone needs no declaration.
#[test]
fn declared_limitations_are_there() {
    for known in KNOWN {
        assert_eq!(present(known), Ok(true), "{}: {}", known.name, known.cause);
    }
}

/// Ways to run a text, lengths and repetitions, small; the program runs them in full.
#[test]
fn ways_to_run_a_text_agree() {
    for level in relations::run().into_iter().chain(repeats::run()) {
        assert!(level.passed(), "{level}\n{:?}", level.failures);
    }
}

/// A step that forgets a token is seen: without this, a level that compares nothing would pass.
#[test]
fn a_text_of_another_token_is_another_text() {
    let decoder = Decoder::new(Head::Own, false).unwrap();
    let text = Text::new(&decoder, 20, 1).unwrap();
    let (_, mut session) = decoder.sessions(32).unwrap().remove(2);
    let mut wrong = text.tokens.clone();
    wrong[3] = (wrong[3] + 1) % 7;
    for (tokens, right) in [(&text.tokens, true), (&wrong, false)] {
        let sequence = session.create().unwrap();
        let rows = [(sequence, &tokens[..])];
        let logits = rows::step(&mut *session, &rows, Want::Logits).unwrap();
        let share = text.share(19, &logits[0]);
        assert_eq!(share <= 1.0, right, "{share}");
    }
}
