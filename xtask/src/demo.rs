//! `cargo xtask demo`: a published model, run, compiled, run from its artifact, and verified.

use anyhow::{Context, Result, ensure};

use crate::mlxcel::{Backend, Program, Reply, Request, Verdict};
use crate::setup;
use crate::table;
use crate::workspace::Workspace;

const QUESTION: &str = "What is the capital of France?";

/// The reply ends by itself long before.
const MOST_TOKENS: usize = 128;

/// Each step needs the one before it; the first that fails ends the demo with its message.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::run(workspace, &setup::Options::with_model())?;
    // The development profile is optimised too, and `cargo xtask test` uses the same build.
    let program = Program::build(workspace, &[])?;
    let model = setup::model_file(workspace);
    let artifact = workspace.deps("demo-artifact");

    let ask = |model, backend| {
        let reply = program.generate(&Request {
            model,
            backend,
            prompt: QUESTION,
            tokens: MOST_TOKENS,
            raw: false,
        })?;
        ensure!(!reply.text.trim().is_empty(), "the model gave no answer");
        println!("> {QUESTION}\n{}\n", reply.text.trim());
        Ok(reply)
    };
    println!("== eager, on MLX");
    let eager = ask(&model, Backend::Mlx).context("the eager path failed")?;
    println!("== compiling for iree-cpu");
    program
        .compile(&model, "iree-cpu", &artifact)
        .context("the model could not be compiled")?;
    println!("\n== from the artifact, on IREE");
    let compiled = ask(&artifact, Backend::Iree).context("the artifact failed")?;
    println!("== verifying both against the interpreter");
    let verdicts = program
        .verify(&model)
        .context("the model could not be verified")?;

    let sides = [
        ("eager (MLX)", "mlx", &eager),
        ("artifact (IREE)", "iree", &compiled),
    ];
    let mut passed = true;
    let mut rows = vec![HEADING.map(str::to_owned).to_vec()];
    for (name, execution, reply) in sides {
        let verdict = verdicts
            .iter()
            .find(|verdict| verdict.execution.starts_with(execution))
            .with_context(|| format!("verify did not report on {execution}"))?;
        passed &= verdict.passed;
        rows.push(row(name, reply, verdict));
    }
    println!("\n{}", table::layout(&rows));
    ensure!(eager.text == compiled.text, "the two answers differ");
    ensure!(passed, "verify found a mismatch");
    Ok(())
}

const HEADING: [&str; 7] = [
    "path",
    "first token s",
    "prefill tok/s",
    "decode tok/s",
    "memory MB",
    "logits error",
    "verdict",
];

fn row(name: &str, reply: &Reply, verdict: &Verdict) -> Vec<String> {
    vec![
        name.to_owned(),
        format!("{:.2}", reply.time_to_first_token),
        format!("{:.1}", reply.prefill_speed),
        format!("{:.1}", reply.decode_speed),
        format!("{}", reply.peak_memory / 1_000_000),
        format!("{:.1e}", verdict.error),
        if verdict.passed { "pass" } else { "MISMATCH" }.to_owned(),
    ]
}
