//! llama.cpp's own measuring program, on the same file in the same run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Phase;
use crate::command;

/// A built `llama-bench`.
#[derive(Debug)]
pub(super) struct Peer {
    program: PathBuf,
}

impl Peer {
    pub(super) fn new(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
        }
    }

    /// Tokens per second on all cores, once.
    pub(super) fn measure(&self, phase: Phase, model: &Path, tokens: usize) -> Result<f64> {
        let (prompt, generated) = match phase {
            Phase::Decode => (0, tokens),
            Phase::Prefill => (tokens, 0),
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let mut command = Command::new(&self.program);
        command.arg("-m").arg(model).args(["-r", "1", "-o", "json"]);
        command.args(["-p", &prompt.to_string(), "-n", &generated.to_string()]);
        command.args(["-t", &threads.to_string()]);
        speed(&command::capture(&mut command, "")?)
    }
}

/// The speed in what `llama-bench -o json` prints.
fn speed(output: &str) -> Result<f64> {
    let tests: Value = serde_json::from_str(output).context("llama-bench printed no JSON")?;
    tests[0]["avg_ts"]
        .as_f64()
        .context("llama-bench printed no test with `avg_ts`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_is_found() {
        assert_eq!(speed(r#"[{"n_gen": 64, "avg_ts": 77.5}]"#).unwrap(), 77.5);
        assert!(speed("[]").unwrap_err().to_string().contains("avg_ts"));
        assert!(speed("error").is_err());
    }
}
