//! Whole models against recorded references, by own kernels and by operations of MLX.

use mlxcel_frontend::{GraphOptions, Logits, Model};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_runtime_mlx::{Device, Error, Graphs, Options, Runtime};
use mlxcel_test_support::{
    GOLDEN_FAMILIES, Tensors, demo_model, golden, relative_error, smollm2_gguf, smollm2_prompts,
};
use std::path::Path;

/// The largest relative root mean square of the logits' error.
const TOLERANCE: f64 = 1e-5;
const DEVICES: [Device; 2] = [Device::Cpu, Device::CpuMlx];

fn runtime(path: &Path, device: Device) -> Runtime {
    let model = Model::load(path).unwrap();
    let graph = |logits, token| {
        let options = GraphOptions {
            name: format!("{logits:?}"),
            logits,
            token,
            hidden: false,
        };
        model.graph(&options).unwrap()
    };
    let graphs = Graphs {
        last: graph(Logits::Last, true),
        all: graph(Logits::All, false),
    };
    let options = Options {
        device,
        ..Options::new(model.context().min(4096))
    };
    Runtime::new(&graphs, model.weights(), options).unwrap()
}

fn step(runtime: &mut Runtime, rows: &[Row<'_>]) -> Vec<RowOutput> {
    let ticket = runtime.submit(rows).unwrap();
    runtime.wait(ticket).unwrap()
}

fn given(sequence: SequenceId, tokens: &[u32], want: Want) -> Row<'_> {
    Row {
        sequence,
        tokens: Tokens::Given(tokens),
        want,
    }
}

fn logits(runtime: &mut Runtime, sequence: SequenceId, tokens: &[u32], want: Want) -> Vec<f32> {
    match &step(runtime, &[given(sequence, tokens, want)])[..] {
        [RowOutput::Logits(logits)] => logits.clone(),
        other => panic!("{other:?}"),
    }
}

/// `count` tokens chosen one after another, each step submitted before the last one is read.
fn greedy(runtime: &mut Runtime, sequence: SequenceId, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut tickets = vec![
        runtime
            .submit(&[given(sequence, prompt, Want::Token)])
            .unwrap(),
    ];
    let mut tokens = Vec::new();
    for index in 0..count {
        if index + 1 < count {
            let row = Row {
                sequence,
                tokens: Tokens::Chosen,
                want: Want::Token,
            };
            tickets.push(runtime.submit(&[row]).unwrap());
        }
        match &runtime.wait(tickets.remove(0)).unwrap()[..] {
            [RowOutput::Token(token)] => tokens.push(*token),
            other => panic!("{other:?}"),
        }
    }
    tokens
}

fn close(name: &str, got: &[f32], expect: &[f32]) {
    let error = relative_error(got, expect);
    assert!(error <= TOLERANCE, "{name} is off by {error:e}");
}

/// Logits of a prompt in one go, as the last one's, in two chunks and token by token.
fn check_prompt(name: &str, runtime: &mut Runtime, prompt: &[u32], expect: &[f32]) {
    let vocabulary = runtime.vocabulary();
    let last = &expect[expect.len() - vocabulary..];
    let s = runtime.create().unwrap();
    close(name, &logits(runtime, s, prompt, Want::AllLogits), expect);
    assert_eq!(runtime.len(s).unwrap(), prompt.len());
    runtime.truncate(s, 0).unwrap();
    close(name, &logits(runtime, s, prompt, Want::Logits), last);
    runtime.truncate(s, 0).unwrap();
    let (head, tail) = prompt.split_at(prompt.len() / 2);
    if !head.is_empty() {
        let outputs = step(runtime, &[given(s, head, Want::Nothing)]);
        assert_eq!(outputs, [RowOutput::Nothing]);
    }
    close(name, &logits(runtime, s, tail, Want::Logits), last);
    runtime.truncate(s, 0).unwrap();
    for (token, expect) in prompt.chunks(1).zip(expect.chunks(vocabulary)) {
        close(name, &logits(runtime, s, token, Want::Logits), expect);
    }
    runtime.release(s).unwrap();
}

#[test]
fn golden_families_give_the_recorded_logits_and_tokens() {
    for family in GOLDEN_FAMILIES {
        let folder = golden(family);
        let expect = Tensors::read(&folder.join("expected.safetensors"));
        for device in DEVICES {
            let mut runtime = runtime(&folder, device);
            for length in [1, 9, 45] {
                let name = format!("{family} on {device:?}, prompt of {length}");
                let prompt = expect.tokens(&format!("p{length}.input_ids"));
                let logits = expect.f32(&format!("p{length}.logits"));
                check_prompt(&name, &mut runtime, &prompt, &logits.values);
            }
            let s = runtime.create().unwrap();
            let prompt = expect.tokens("p9.input_ids");
            let tokens = greedy(&mut runtime, s, &prompt, 24);
            assert_eq!(tokens, expect.tokens("p9.greedy"), "{family} on {device:?}");
        }
    }
}

#[test]
fn the_demo_model_gives_the_recorded_logits_and_tokens() {
    let folder = demo_model();
    let expect = Tensors::read(&folder.join("expected.safetensors"));
    let mut runtime = runtime(&folder, Device::Cpu);
    let prompt = expect.tokens("logits.input_ids");
    check_prompt("demo", &mut runtime, &prompt, &expect.f32("logits").values);
    for index in 0..3 {
        let s = runtime.create().unwrap();
        let prompt = expect.tokens(&format!("greedy{index}.input_ids"));
        let wanted = expect.tokens(&format!("greedy{index}.output_ids"));
        let tokens = greedy(&mut runtime, s, &prompt, wanted.len());
        assert_eq!(tokens, wanted, "prompt {index}");
    }
}

#[test]
fn sequences_of_a_batch_do_not_see_each_other() {
    for device in DEVICES {
        let folder = golden("llama-mlx-q4-g64");
        let expect = Tensors::read(&folder.join("expected.safetensors"));
        let mut runtime = runtime(&folder, device);
        let prompt = expect.tokens("p45.input_ids");
        let alone: Vec<Vec<u32>> = [3, 9, 45]
            .iter()
            .map(|&length| {
                let s = runtime.create().unwrap();
                greedy(&mut runtime, s, &prompt[..length], 6)
            })
            .collect();
        // Three prompts in one step, then five decode steps of all three, the middle one with its
        // token given by the host.
        let s: Vec<_> = (0..3).map(|_| runtime.create().unwrap()).collect();
        let rows = [3, 9, 45].map(|length| &prompt[..length]);
        let rows: Vec<_> = s
            .iter()
            .zip(rows)
            .map(|(&s, prompt)| given(s, prompt, Want::Token))
            .collect();
        let mut together: Vec<Vec<u32>> = vec![Vec::new(); 3];
        let mut outputs = step(&mut runtime, &rows);
        for round in 0.. {
            for (tokens, output) in together.iter_mut().zip(&outputs) {
                let RowOutput::Token(token) = output else {
                    panic!("{output:?}");
                };
                tokens.push(*token);
            }
            if round == 5 {
                break;
            }
            let middle = [together[1][round]];
            let mut rows: Vec<_> = s
                .iter()
                .map(|&sequence| Row {
                    sequence,
                    tokens: Tokens::Chosen,
                    want: Want::Token,
                })
                .collect();
            rows[1].tokens = Tokens::Given(&middle);
            outputs = step(&mut runtime, &rows);
        }
        assert_eq!(together, alone, "{device:?}");
    }
}

#[test]
fn sequences_are_forked_cut_saved_and_restored() {
    for device in DEVICES {
        let folder = golden("qwen3");
        let expect = Tensors::read(&folder.join("expected.safetensors"));
        let mut runtime = runtime(&folder, device);
        let prompt = expect.tokens("p45.input_ids");
        let expect = expect.f32("p45.logits").values;
        let vocabulary = runtime.vocabulary();
        let row = |position: usize| &expect[position * vocabulary..][..vocabulary];

        let s = runtime.create().unwrap();
        step(&mut runtime, &[given(s, &prompt[..30], Want::Token)]);
        let fork = runtime.fork(s).unwrap();
        let saved = runtime.save(s).unwrap();
        // The original goes another way.
        step(&mut runtime, &[given(s, &[7, 7, 7, 7], Want::Nothing)]);
        for (name, s) in [
            ("fork", fork),
            ("restored", runtime.restore(&saved).unwrap()),
        ] {
            assert_eq!(runtime.len(s).unwrap(), 30);
            let got = logits(&mut runtime, s, &prompt[30..40], Want::Logits);
            close(name, &got, row(39));
        }
        runtime.truncate(s, 20).unwrap();
        let got = logits(&mut runtime, s, &prompt[20..25], Want::Logits);
        close("truncated", &got, row(24));
        assert_eq!(
            runtime.save(s).unwrap().len(),
            24 + (saved.len() - 24) / 30 * 25
        );
        runtime.release(s).unwrap();
        assert_eq!(runtime.len(s), Err(Error::UnknownSequence(s.0)));

        for (bytes, reason) in [
            (&saved[..10], "too short"),
            (&saved[..saved.len() - 1], "bytes"),
            (&[1; 99][..], "this program"),
        ] {
            let error = runtime.restore(bytes).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}

#[test]
fn rows_that_are_not_valid_change_nothing() {
    let mut runtime = runtime(&golden("llama"), Device::Cpu);
    let s = runtime.create().unwrap();
    let ghost = SequenceId(99);
    let vocabulary = runtime.vocabulary();
    let long = vec![1; runtime.context() + 1];
    let unknown = [1, vocabulary as u32];
    let chosen = Row {
        sequence: s,
        tokens: Tokens::Chosen,
        want: Want::Token,
    };
    let cases: [(&[Row<'_>], Error); 6] = [
        (
            &[given(ghost, &[1], Want::Token)],
            Error::UnknownSequence(99),
        ),
        (&[given(s, &[], Want::Token)], Error::NoTokens(s.0)),
        (&[chosen], Error::NothingChosen(s.0)),
        (
            &[given(s, &[1], Want::Token), given(s, &[1], Want::Token)],
            Error::RepeatedSequence(s.0),
        ),
        (
            &[given(s, &unknown, Want::Token)],
            Error::UnknownToken {
                token: vocabulary as u32,
                vocabulary,
            },
        ),
        (
            &[given(s, &long, Want::Token)],
            Error::ContextFull {
                sequence: s.0,
                length: 0,
                new: long.len(),
                capacity: long.len() - 1,
            },
        ),
    ];
    for (rows, expect) in cases {
        assert_eq!(runtime.submit(rows), Err(expect));
        assert_eq!(runtime.len(s), Ok(0));
    }
    let ticket = runtime.submit(&[given(s, &[1, 2], Want::Token)]).unwrap();
    let again = mlxcel_ir::step::Ticket(ticket.0);
    assert!(runtime.wait(ticket).is_ok());
    let error = Error::UnknownTicket(again.0);
    assert_eq!(runtime.wait(again), Err(error));
    assert!(runtime.truncate(s, 3).is_err());
}

#[test]
fn smollm2_gives_the_recorded_tokens() {
    let mut runtime = runtime(&smollm2_gguf(), Device::Cpu);
    for recorded in smollm2_prompts() {
        let s = runtime.create().unwrap();
        let tokens = greedy(&mut runtime, s, &recorded.ids, recorded.greedy.len());
        assert_eq!(tokens, recorded.greedy, "{}", recorded.prompt);
    }
}
