//! Greedy texts: an execution that computes something else is told by the tokens it chooses, one that falls to
//! the other side of a tie is not.

use mlxcel_frontend::Model;
use mlxcel_ir::step::LOGITS;
use mlxcel_ir::{Activation, Bindings, Graph, Op, WeightData, WeightSource};
use mlxcel_oracle::execution::{ExecutionError, Inputs, MlxExecution, Observed};
use mlxcel_oracle::greedy::{Choices, Judge, Other, by_recomputing, by_steps};
use mlxcel_oracle::rows::{Decoder, tokens as some_tokens};
use mlxcel_oracle::toy::{Head, TABLE};
use mlxcel_oracle::{Backend, Execution, Fault, Verdict, VerifyOptions, tokens, verify_model};
use std::sync::Arc;

const PROMPT: usize = 9;
const CHOSEN: usize = 24;

#[test]
fn honest_executions_choose_what_the_interpreter_would() {
    for level in tokens::run(3) {
        assert!(level.passed(), "{level}\n{:?}", level.failures);
    }
}

/// Prompts that are tried: a fault is seen in the text where it turns a choice.
const PROMPTS: u64 = 12;

/// What is chosen by steps over the decoder after `change`, held against the decoder as it was.
fn chosen(change: fn(&mut Op)) -> Vec<Choices> {
    let decoder = Decoder::new(Head::Own, false).unwrap();
    let mut changed = decoder.clone();
    for graph in [&mut changed.last, &mut changed.all] {
        graph.nodes.iter_mut().for_each(|node| change(&mut node.op));
    }
    let mut judge = Judge::new(&decoder.all, &decoder.weights);
    let sessions = changed.sessions(PROMPT + CHOSEN).unwrap();
    let (name, mut session) = sessions.into_iter().nth(2).unwrap();
    let mut choices = |seed| {
        let prompt = some_tokens(PROMPT, seed);
        let text = by_steps(name, &mut *session, &prompt, CHOSEN).unwrap();
        judge.hold(&text, PROMPT).unwrap()
    };
    (0..PROMPTS).map(&mut choices).collect()
}

#[test]
fn a_wrong_execution_is_told_by_what_it_chooses() {
    let check = |name: &str, wrong: bool, change: fn(&mut Op)| {
        let texts = chosen(change);
        assert!(texts.iter().all(|choices| choices.tokens == CHOSEN));
        let faults: Vec<Other> = texts.iter().filter_map(|choices| choices.fault).collect();
        assert_eq!(!faults.is_empty(), wrong, "{name}: {texts:?}");
        for fault in faults {
            assert!((PROMPT..PROMPT + CHOSEN).contains(&fault.position));
            assert!(fault.token != fault.expected && fault.behind > fault.bound);
            assert!(fault.behind >= fault.margin, "{fault}");
        }
    };
    check("nothing", false, |_| {});
    check("a window off by one", true, |op| {
        if let Op::Attention { window, .. } = op {
            *window = window.map(|window| window + 1);
        }
    });
    check("another scale of scores", true, |op| {
        if let Op::Attention { scale, .. } = op {
            *scale *= 0.5;
        }
    });
    check("another base of rotations", true, |op| {
        if let Op::Rope { base, .. } = op {
            *base = 10.0;
        }
    });
    check("another activation", true, |op| {
        if let Op::Gated { activation } = op {
            *activation = Activation::Relu;
        }
    });
}

/// Weights whose table has each row twice, so that logits are equal in pairs.
struct Twins(Arc<dyn WeightSource>, Vec<u8>);

impl WeightSource for Twins {
    fn get(&self, name: &str) -> Option<WeightData<'_>> {
        let found = self.0.get(name)?;
        Some(match name == TABLE {
            true => WeightData {
                values: &self.1,
                ..found
            },
            false => found,
        })
    }
}

/// An execution whose logits are too large, by this times the token.
struct Leaning(f64);

impl Execution for Leaning {
    fn name(&self) -> &'static str {
        "leaning"
    }

    fn run(
        &self,
        graph: &Graph,
        bindings: &Bindings,
        weights: &Arc<dyn WeightSource>,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Observed>, ExecutionError> {
        let mut outputs = MlxExecution::Operations.run(graph, bindings, weights, inputs)?;
        for output in outputs.iter_mut().filter(|output| output.name == LOGITS) {
            let width = *output.shape.last().unwrap();
            for (index, logit) in output.values.iter_mut().enumerate() {
                *logit += self.0 * (index % width) as f64;
            }
        }
        Ok(outputs)
    }
}

#[test]
fn the_other_side_of_a_tie_is_no_fault() {
    let decoder = Decoder::new(Head::Tied, false).unwrap();
    let table = decoder.weights.get(TABLE).unwrap().values.to_vec();
    let row = table.len() / 7;
    let twice: Vec<u8> = (0..7)
        .flat_map(|token| table[token / 2 * row..][..row].to_vec())
        .collect();
    let weights: Arc<dyn WeightSource> = Arc::new(Twins(decoder.weights.clone(), twice));
    let prompt = some_tokens(PROMPT, 5);
    let mut judge = Judge::new(&decoder.all, &weights);
    let mut choose = |lean: f64| {
        let text = by_recomputing(&Leaning(lean), &decoder.all, &weights, &prompt, CHOSEN);
        judge.hold(&text.unwrap(), PROMPT).unwrap()
    };
    // Of equals, the interpreter takes the first and this one the last.
    let tie = choose(1e-7);
    assert!(tie.near_ties > 0 && tie.fault.is_none(), "{tie:?}");
    let first = tie.first.unwrap();
    assert_eq!((first.margin, first.behind), (0.0, 0.0), "{tie:?}");
    assert_eq!(first.token, first.expected + 1, "{tie:?}");
    // Further than rounding explains, no tie is an excuse.
    let wrong = choose(1.0);
    assert!(wrong.fault.is_some(), "{wrong:?}");
}

#[test]
fn a_model_is_held_by_what_it_chooses() {
    let model = Model::load(&mlxcel_test_support::golden("llama-mlx-q4-g64")).unwrap();
    let report = |fault: Option<Fault>| {
        let options = VerifyOptions {
            tokens: Some(vec![1, 5, 9, 2, 7, 7, 3, 11, 4]),
            choose: Some(12),
            fault,
            ..VerifyOptions::default()
        };
        verify_model(&model, &options, &|_| {}).unwrap()
    };
    let good = report(None);
    assert_eq!(good.verdict, Verdict::Pass, "{good}");
    for execution in &good.executions {
        let choices = execution.choices.as_ref().unwrap();
        assert_eq!((choices.tokens, &choices.fault), (12, &None), "{good}");
    }
    let bad = report(Some(Fault {
        backend: Backend::Kernels,
        weight: "model.layers.0.mlp.up_proj.weight".into(),
    }));
    for execution in &bad.executions {
        let choices = execution.choices.as_ref().unwrap();
        let wrong = execution.execution == "kernels";
        assert_eq!(choices.fault.is_some(), wrong, "{bad}");
    }
    assert!(bad.to_string().contains("fault: kernels chose"), "{bad}");
}
