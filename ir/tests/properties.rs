//! What holds for every graph: random legal graphs, random damage, random text.

mod common;
#[path = "common/generate.rs"]
mod generate;
#[path = "common/mutate.rs"]
mod mutate;

use common::execute;
use mlxcel_ir::decompose::decompose;
use mlxcel_ir::{Graph, cost, op::Layer, pass, text, verify};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

fn tape() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 0..160)
}

/// Reads back, to the last bit of every attribute.
fn round_trip(graph: &Graph) -> TestCaseResult {
    let printed = text::print(graph);
    let read = text::parse(&printed);
    let read = read.map_err(|error| TestCaseError::fail(format!("{error}\n{printed}")))?;
    prop_assert_eq!(format!("{graph:?}"), format!("{read:?}"));
    Ok(())
}

fn legal(graph: &Graph) -> TestCaseResult {
    let errors = verify::errors(graph);
    prop_assert!(errors.is_empty(), "{errors:?}\n{graph}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_are_legal_and_read_back(tape in tape()) {
        let graph = generate::graph(&tape);
        legal(&graph)?;
        round_trip(&graph)?;
    }

    #[test]
    fn passes_keep_every_output(tape in tape()) {
        let graph = generate::graph(&tape);
        let (weights, steps) = (generate::weights(&graph), [generate::step(&graph)]);
        let specialise: pass::Pass = |graph| pass::specialise(graph, &generate::sizes());
        let passes = pass::PASSES.iter().copied();
        for (name, pass) in passes.chain([("simplify", pass::simplify as _), ("specialise", specialise)]) {
            let changed = pass(&graph);
            legal(&changed)?;
            round_trip(&changed)?;
            // A division of integers by zero has no result; a pass may drop it.
            if let Ok(before) = execute::<f32>(&graph, &weights, &steps) {
                let after = execute::<f32>(&changed, &weights, &steps);
                let after = after.map_err(TestCaseError::fail)?;
                prop_assert_eq!(
                    format!("{before:?}"), format!("{after:?}"),
                    "{} of\n{}gives\n{}", name, graph, changed
                );
            }
        }
    }

    #[test]
    fn decompositions_keep_types_and_names(tape in tape()) {
        let graph = generate::graph(&tape);
        let primitives = decompose(&graph).map_err(|error| TestCaseError::fail(error.to_string()))?;
        legal(&primitives)?;
        round_trip(&primitives)?;
        prop_assert!(primitives.nodes.iter().all(|node| node.op.info().layer == Layer::Primitive));
        for (output, decomposed) in graph.outputs.iter().zip(&primitives.outputs) {
            prop_assert_eq!(graph.ty(output.value), primitives.ty(decomposed.value));
        }
        for node in &graph.nodes {
            let Some(name) = &node.name else { continue };
            let value = primitives.named(name);
            prop_assert_eq!(value.and_then(|value| primitives.ty(value)), Some(&node.ty));
        }
    }

    #[test]
    fn costs_are_sums_of_parts(tape in tape()) {
        let graph = generate::graph(&tape);
        let cost = cost::cost(&graph, &generate::sizes()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let sum: cost::NodeCost = cost.nodes.iter().copied().sum();
        prop_assert_eq!(sum, cost.total);
        prop_assert!(cost.total.floor_bytes() <= cost.total.bytes());
    }

    #[test]
    fn damage_is_found(tape in tape(), choices in prop::collection::vec(any::<u32>(), 4)) {
        let graph = generate::graph(&tape);
        for (name, damage, expected) in mutate::MUTATIONS {
            let mut graph = graph.clone();
            if damage(&mut graph, &mut generate::Tape(&choices)).is_none() {
                continue;
            }
            let errors = verify::errors(&graph);
            let found = errors.iter().any(|error| error.reason.contains(expected));
            prop_assert!(found, "{name}: expected {expected:?}, found {errors:?}\n{graph}");
            // Neither the printer nor a pass gives up on it.
            let _ = (text::print(&graph), pass::simplify(&graph), cost::cost(&graph, &generate::sizes()));
            let _ = decompose(&graph);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,80}|[-a-z0-9%@$(){}\\[\\],:=\"/. \\n]{0,120}") {
        if let Ok(graph) = text::parse(&text) {
            let _ = verify::verify(&graph);
        }
    }

    #[test]
    fn damaged_text_is_read_or_refused(
        tape in tape(),
        edits in prop::collection::vec((any::<u32>(), 0..6usize, "[-a-z0-9%@$(){}\\[\\],:=\"/. \\n]{0,4}"), 1..4),
    ) {
        let mut text: Vec<char> = text::print(&generate::graph(&tape)).chars().collect();
        for (place, cut, insert) in edits {
            let place = place as usize % (text.len() + 1);
            let end = (place + cut).min(text.len());
            text.splice(place..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        match text::parse(&text) {
            Ok(graph) if verify::verify(&graph).is_ok() => {
                round_trip(&graph)?;
                legal(&pass::simplify(&graph))?;
                // Sizes may be anything by now; errors are fine, panics are not.
                let _ = (decompose(&graph), cost::cost(&graph, &generate::sizes()));
                let _ = pass::specialise(&graph, &generate::sizes());
            }
            Ok(_) => {}
            Err(error) => prop_assert!(error.line <= text.lines().count() + 1, "{error}"),
        }
    }
}

/// Without this, a generator that builds next to nothing would pass every property.
#[test]
fn random_graphs_have_every_op_and_run() {
    let mut missing: std::collections::BTreeSet<&str> =
        mlxcel_ir::Op::TABLE.iter().map(|info| info.name).collect();
    let mut damaged: std::collections::BTreeSet<&str> =
        mutate::MUTATIONS.iter().map(|(name, ..)| *name).collect();
    let (mut number, mut ran) = (1u32, 0);
    for _ in 0..200 {
        let tape: Vec<u32> = (0..160)
            .map(|_| {
                // A linear congruential generator; its high bits are random enough.
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                number >> 8
            })
            .collect();
        let graph = generate::graph(&tape);
        for node in &graph.nodes {
            missing.remove(node.op.info().name);
        }
        for (name, damage, _) in mutate::MUTATIONS {
            if damage(&mut graph.clone(), &mut generate::Tape(&tape)).is_some() {
                damaged.remove(name);
            }
        }
        let (weights, steps) = (generate::weights(&graph), [generate::step(&graph)]);
        ran += usize::from(execute::<f32>(&graph, &weights, &steps).is_ok());
    }
    assert!(missing.is_empty(), "never generated: {missing:?}");
    assert!(damaged.is_empty(), "never damaged: {damaged:?}");
    assert!(ran > 100, "only {ran} of 200 graphs ran");
}
