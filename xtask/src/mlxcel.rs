//! The program `mlxcel`, driven through its command line and its `--json` output.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command;
use crate::workspace::Workspace;

/// A built `mlxcel`.
#[derive(Debug)]
pub(crate) struct Program(PathBuf);

/// What executes a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Backend {
    /// MLX, from a checkpoint.
    Mlx,
    /// IREE, from an artifact.
    Iree,
}

impl Backend {
    /// How the command line calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mlx => "mlx",
            Self::Iree => "iree",
        }
    }
}

/// Something to generate, greedily.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// A checkpoint or an artifact.
    pub(crate) model: &'a Path,
    pub(crate) backend: Backend,
    pub(crate) prompt: &'a str,
    /// The most tokens.
    pub(crate) tokens: usize,
    /// Whether the prompt is text to go on with, and end tokens count as any other; else it is a user's message.
    pub(crate) raw: bool,
}

/// What was generated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) text: String,
    /// Tokens of the prompt, template included.
    pub(crate) prompt_tokens: usize,
    /// Tokens generated.
    pub(crate) tokens: usize,
    /// Tokens per second, up to the first one generated.
    pub(crate) prefill_speed: f64,
    /// Tokens per second, after the first one.
    pub(crate) decode_speed: f64,
    /// Seconds, with the model loaded.
    pub(crate) time_to_first_token: f64,
    /// Resident bytes of the process, at most.
    pub(crate) peak_memory: u64,
}

/// What `verify` says of one execution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// For instance `mlx-cpu`.
    pub(crate) execution: String,
    /// The relative RMS error of the logits.
    pub(crate) error: f64,
    /// Whether everything observed is within its budget.
    pub(crate) passed: bool,
}

impl Program {
    /// Builds it with cargo; `options` choose the profile.
    pub(crate) fn build(workspace: &Workspace, options: &[&str]) -> Result<Self> {
        eprintln!("building mlxcel");
        command::build_binary(workspace, "mlxcel", options).map(Self)
    }

    /// The one at `path`.
    pub(crate) fn at(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path)?;
        anyhow::ensure!(path.is_file(), "there is no file {}", path.display());
        Ok(Self(path))
    }

    /// Generates a reply.
    pub(crate) fn generate(&self, request: &Request<'_>) -> Result<Reply> {
        let mut command = self.command("generate");
        command.arg(request.model);
        command.args([
            "--backend",
            request.backend.name(),
            "--prompt",
            request.prompt,
        ]);
        command.args([
            "--temp",
            "0",
            "--max-tokens",
            &request.tokens.to_string(),
            "--json",
        ]);
        if request.raw {
            command.args(["--no-chat-template", "--ignore-eos"]);
        }
        let output = self.json(&mut command)?;
        Reply::read(&output)
            .with_context(|| format!("{} printed {output}", command::line(&command)))
    }

    /// Compiles `model` into the folder `artifact`, which it replaces. Progress goes to the terminal.
    pub(crate) fn compile(&self, model: &Path, target: &str, artifact: &Path) -> Result<()> {
        let mut command = self.command("compile");
        command.arg(model).args(["--target", target]);
        command.arg("--output").arg(artifact);
        command::run(&mut command)
    }

    /// Compiles `model` into the folder `artifact`, which it replaces, with nothing from the cache. Gives what the
    /// program tells.
    pub(crate) fn compile_anew(
        &self,
        model: &Path,
        target: &str,
        artifact: &Path,
    ) -> Result<Value> {
        let mut command = self.command("compile");
        command
            .arg(model)
            .args(["--target", target, "--no-cache", "--json"]);
        command.arg("--output").arg(artifact);
        self.json(&mut command)
    }

    /// Holds every execution of `model` against the interpreter.
    pub(crate) fn verify(&self, model: &Path) -> Result<Vec<Verdict>> {
        let mut command = self.command("verify");
        command.arg(model).arg("--json");
        // A mismatch ends the program with exit code 1 too, after its report.
        let ended = command::output(&mut command)?;
        serde_json::from_str(&ended.stdout)
            .map_err(anyhow::Error::from)
            .and_then(|report| Verdict::read_all(&report))
            .with_context(|| format!("`{}` printed no report", command::line(&command)))
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(subcommand);
        command
    }

    /// Runs `command` and reads its stdout as one JSON value.
    fn json(&self, command: &mut Command) -> Result<Value> {
        let ended = command::output(command)?;
        if !ended.success {
            bail!("`{}` failed", command::line(command));
        }
        serde_json::from_str(&ended.stdout)
            .with_context(|| format!("`{}` printed no JSON", command::line(command)))
    }
}

impl Reply {
    fn read(output: &Value) -> Result<Self> {
        let number = |field: &str| {
            output[field]
                .as_f64()
                .with_context(|| format!("{field:?} is not a number"))
        };
        Ok(Self {
            text: output["text"]
                .as_str()
                .context("\"text\" is no text")?
                .to_owned(),
            prompt_tokens: number("prompt_tokens")? as usize,
            tokens: output["tokens"]
                .as_array()
                .context("\"tokens\" is no list")?
                .len(),
            prefill_speed: number("prefill_tokens_per_second")?,
            decode_speed: number("decode_tokens_per_second")?,
            time_to_first_token: number("time_to_first_token")?,
            peak_memory: number("peak_memory_bytes")? as u64,
        })
    }
}

impl Verdict {
    fn read_all(report: &Value) -> Result<Vec<Self>> {
        let list = |value: &Value, field: &str| {
            let list = value[field].as_array().cloned();
            list.with_context(|| format!("{field:?} is no list"))
        };
        let findings = list(report, "findings")?;
        let executions = list(report, "executions")?;
        executions
            .iter()
            .map(|execution| {
                let name = execution["execution"]
                    .as_str()
                    .context("an execution has no name")?;
                let measurements = list(execution, "measurements")?;
                let logits = measurements.last().context("nothing was measured")?;
                Ok(Self {
                    execution: name.to_owned(),
                    error: logits["distance"]["relative_rms"]
                        .as_f64()
                        .unwrap_or(f64::NAN),
                    passed: !findings.iter().any(|finding| finding["execution"] == name),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reply_is_read() {
        let mut output = json!({
            "text": "Paris.",
            "tokens": [7042, 30],
            "prompt_tokens": 37,
            "prefill_tokens_per_second": 150.5,
            "decode_tokens_per_second": 80.25,
            "time_to_first_token": 0.25,
            "peak_memory_bytes": 268000000,
            "finish_reason": "stop",
        });
        let reply = Reply::read(&output).unwrap();
        assert_eq!(
            (reply.text.as_str(), reply.tokens, reply.prompt_tokens),
            ("Paris.", 2, 37)
        );
        assert_eq!((reply.prefill_speed, reply.decode_speed), (150.5, 80.25));
        assert_eq!(reply.peak_memory, 268_000_000);
        output["prompt_tokens"] = json!("many");
        let error = Reply::read(&output).unwrap_err().to_string();
        assert!(error.contains("\"prompt_tokens\""), "{error}");
    }

    #[test]
    fn a_finding_is_a_miss_of_its_execution() {
        let execution = |name: &str| json!({"execution": name, "measurements": [{"name": "logits", "distance": {"relative_rms": 1e-6}}]});
        let report = json!({
            "executions": [execution("mlx-cpu"), execution("iree-cpu")],
            "findings": [{"execution": "iree-cpu"}],
        });
        let verdicts = Verdict::read_all(&report).unwrap();
        let passed: Vec<bool> = verdicts.iter().map(|verdict| verdict.passed).collect();
        assert_eq!(passed, [true, false]);
        assert!(Verdict::read_all(&json!({})).is_err());
    }
}
