//! Every golden family on every execution, against what Hugging Face transformers computed in f32.

use std::fs;
use std::path::{Path, PathBuf};

use mlxcel_engine::{Backend, OpenOptions, Session, open};
use mlxcel_frontend::{GraphOptions, Model};
use mlxcel_ir::step::{Row, RowOutput, SequenceId, Tokens, Want};
use mlxcel_test_support::{
    GOLDEN_FAMILIES, Tensors, copy_folder, demo_model, golden, relative_error,
};

use crate::program::{compile, folder};

/// What an execution is held to: the relative RMS error of logits.
fn budget(backend: Backend) -> f64 {
    match backend {
        Backend::Reference | Backend::Mlx => 1e-5,
        Backend::Iree => 1e-4,
    }
}

/// A sequence of a session, extended step by step.
struct Steps<'a> {
    session: &'a mut dyn Session,
    sequence: SequenceId,
}

impl<'a> Steps<'a> {
    fn new(session: &'a mut dyn Session) -> Self {
        let sequence = session.create().expect("there is room for a sequence");
        Self { session, sequence }
    }

    fn step(&mut self, tokens: Tokens<'_>, want: Want) -> RowOutput {
        let row = Row {
            sequence: self.sequence,
            tokens,
            want,
        };
        let ticket = self
            .session
            .submit(&[row])
            .expect("a step can be submitted");
        let mut outputs = self.session.wait(ticket).expect("a step runs");
        outputs.pop().expect("a row has an output")
    }

    fn logits(&mut self, tokens: &[u32], want: Want) -> Vec<f32> {
        match self.step(Tokens::Given(tokens), want) {
            RowOutput::Logits(logits) => logits,
            other => panic!("logits were wanted, not {other:?}"),
        }
    }

    fn token(&mut self, tokens: Tokens<'_>) -> u32 {
        match self.step(tokens, Want::Token) {
            RowOutput::Token(token) => token,
            other => panic!("a token was wanted, not {other:?}"),
        }
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        let _ = self.session.release(self.sequence);
    }
}

/// Holds `session` against the values in `expected`.
fn check(session: &mut dyn Session, expected: &Tensors, budget: f64, name: &str) {
    let hold = |values: &[f32], expect: &[f32], what: &str| {
        let error = relative_error(values, expect);
        assert!(
            error <= budget,
            "{name}: {what}: relative error {error:.2e}, budget {budget:.0e}"
        );
    };
    for length in [1, 9, 45] {
        let tokens = expected.tokens(&format!("p{length}.input_ids"));
        let logits = expected.f32(&format!("p{length}.logits"));
        let rows: Vec<&[f32]> = logits.values.chunks(logits.shape[1]).collect();
        let last = rows.last().expect("a prompt has a last token");

        let all = Steps::new(session).logits(&tokens, Want::AllLogits);
        hold(
            &all,
            &logits.values,
            &format!("{length} tokens, logits after each"),
        );
        let after = Steps::new(session).logits(&tokens, Want::Logits);
        hold(&after, last, &format!("{length} tokens as a prompt"));

        let mut steps = Steps::new(session);
        for (position, (token, row)) in tokens.iter().zip(&rows).enumerate() {
            let logits = steps.logits(&[*token], Want::Logits);
            hold(
                &logits,
                row,
                &format!("{length} tokens one by one, position {position}"),
            );
            if position + 1 == length {
                hold(
                    &logits,
                    &after,
                    &format!("{length} tokens one by one, against the prompt"),
                );
            }
        }
    }
    let expect = expected.tokens("p9.greedy");
    let greedy = greedy(session, &expected.tokens("p9.input_ids"), expect.len());
    assert_eq!(greedy, expect, "{name}: greedy tokens");
}

/// The `count` most likely tokens after `prompt`, each chosen by the runtime.
fn greedy(session: &mut dyn Session, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut steps = Steps::new(session);
    let mut tokens = vec![steps.token(Tokens::Given(prompt))];
    tokens.extend((1..count).map(|_| steps.token(Tokens::Chosen)));
    tokens
}

/// The family's folder with the configuration in `spelling`, in a folder of its own.
fn variant(family: &str, spelling: &str, folder: &Path) -> PathBuf {
    let copy = folder.join(spelling);
    copy_folder(&golden(family), &copy);
    let config = fs::read(copy.join(spelling)).expect("the golden has this spelling");
    fs::write(copy.join("config.json"), config).expect("the configuration can be written");
    copy
}

/// Opens `model` on `backend`, compiling it first where that is needed.
fn session(model: &Path, backend: Backend) -> Box<dyn Session> {
    let artifact = model.join("artifact");
    let path = match backend {
        Backend::Iree => {
            compile(model, &artifact);
            &artifact
        }
        Backend::Mlx | Backend::Reference => model,
    };
    let options = OpenOptions {
        backend: Some(backend),
        ..OpenOptions::default()
    };
    match open(path, &options) {
        Ok(opened) => opened.session,
        Err(error) => panic!("{} on {backend}: {error}", path.display()),
    }
}

const BACKENDS: [Backend; 3] = [Backend::Reference, Backend::Mlx, Backend::Iree];

/// Checks a family in both spellings of its configuration on every execution.
fn check_family(family: &str) {
    let folder = folder(&format!("golden-{family}"));
    let models = ["config.json", "config.v4.json"].map(|name| variant(family, name, &folder));
    let graphs = models.each_ref().map(|model| {
        let model = Model::load(model).expect("a golden loads");
        let graph = model.graph(&GraphOptions::default());
        graph.expect("a golden has a graph")
    });
    // Compiling takes long; what is compiled is the graph, so once is enough for both.
    assert_eq!(
        graphs[0], graphs[1],
        "{family}: the spellings give one graph"
    );
    for (model, backends) in models.iter().zip([&BACKENDS[..], &BACKENDS[..2]]) {
        let expected = Tensors::read(&model.join("expected.safetensors"));
        for &backend in backends {
            let name = format!("{}, {backend}", model.display());
            check(
                &mut *session(model, backend),
                &expected,
                budget(backend),
                &name,
            );
        }
    }
}

/// A test for each family, so that they run side by side.
macro_rules! families {
    ($($test:ident = $family:literal),*) => {
        $(
            #[test]
            fn $test() {
                check_family($family);
            }
        )*

        #[test]
        fn every_family_has_a_test() {
            assert_eq!([$($family),*], GOLDEN_FAMILIES);
        }
    };
}

families!(
    llama = "llama",
    llama3_rope = "llama3-rope",
    llama_quantised = "llama-mlx-q4-g64",
    qwen3 = "qwen3",
    qwen3_quantised = "qwen3-mlx-q4-g64-bf16"
);

#[test]
fn the_demo_model() {
    let folder = folder("golden-demo").join("demo");
    copy_folder(&demo_model(), &folder);
    let expected = Tensors::read(&folder.join("expected.safetensors"));
    let tokens = expected.tokens("logits.input_ids");
    let logits = expected.f32("logits");
    for backend in BACKENDS {
        let mut session = session(&folder, backend);
        let budget = budget(backend);
        let error = relative_error(
            &Steps::new(&mut *session).logits(&tokens, Want::AllLogits),
            &logits.values,
        );
        assert!(
            error <= budget,
            "{backend}: relative error {error:.2e}, budget {budget:.0e}"
        );
        for number in 0..3 {
            let prompt = expected.tokens(&format!("greedy{number}.input_ids"));
            let expect = expected.tokens(&format!("greedy{number}.output_ids"));
            let greedy = greedy(&mut *session, &prompt, expect.len());
            assert_eq!(greedy, expect, "{backend}: prompt {number}");
        }
    }
}
