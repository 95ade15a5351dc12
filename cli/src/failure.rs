//! Failures: how they are told, and the exit codes that they give.

use mlxcel_engine::GenerateError;
use mlxcel_frontend::TextError;
use mlxcel_lower::CompileError;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// A command line that parses but asks for something that does not exist.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A failure that was reported already, as a verdict is.
#[derive(Debug, thiserror::Error)]
#[error("failed")]
pub(crate) struct Reported;

/// Tells what failed, and gives the exit code: `failed` where it is neither wrong usage nor a failure
/// that was reported already.
pub(crate) fn exit_code(outcome: anyhow::Result<()>, failed: u8) -> ExitCode {
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    if is_broken_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    if !error.is::<Reported>() {
        anstream::eprint!("{}", Told(&error));
    }
    match is_usage(&error) {
        true => ExitCode::from(2),
        false if error.is::<Reported>() => ExitCode::FAILURE,
        false => ExitCode::from(failed),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |io: &io::Error| io.kind() == io::ErrorKind::BrokenPipe;
    error
        .chain()
        .any(|cause| cause.downcast_ref().is_some_and(broken))
}

fn is_usage(error: &anyhow::Error) -> bool {
    let unknown = |error: &CompileError| {
        use CompileError::{Option, UnknownChip, UnknownTarget};
        matches!(
            error,
            UnknownChip { .. } | UnknownTarget { .. } | Option { .. }
        )
    };
    error
        .chain()
        .any(|cause| cause.is::<Usage>() || cause.downcast_ref().is_some_and(unknown))
}

/// What to type instead, where the error itself cannot know it.
fn suggestion(error: &anyhow::Error) -> Option<&'static str> {
    use GenerateError::{EmptyPrompt, PromptTooLong};
    let of_text = error.downcast_ref().and_then(|error| match error {
        TextError::NoTemplate { .. } => Some("--no-chat-template takes the prompt as it is"),
        _ => None,
    });
    let of_generation = error.downcast_ref().and_then(|error| match error {
        EmptyPrompt => Some("give a prompt with -p, or on stdin"),
        PromptTooLong { .. } => Some("an artifact's context is set by `mlxcel compile --context`"),
        _ => None,
    });
    of_text.or(of_generation)
}

/// An error, its causes, each told once, and what to do.
struct Told<'a>(&'a anyhow::Error);

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        writeln!(f, "\x1b[1;31merror:\x1b[0m {told}")?;
        for cause in self.0.chain().skip(1) {
            let cause = cause.to_string();
            // Many errors end with their cause.
            if !told.contains(&cause) {
                writeln!(f, "  \x1b[1mcaused by:\x1b[0m {cause}")?;
            }
            told = cause;
        }
        match suggestion(self.0) {
            Some(suggestion) => writeln!(f, "  \x1b[1mhelp:\x1b[0m {suggestion}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    fn plain(error: &anyhow::Error) -> String {
        anstream::adapter::strip_str(&Told(error).to_string()).to_string()
    }

    #[test]
    fn causes_are_told_once() {
        let check = |error: anyhow::Error, expect: &str| assert_eq!(plain(&error), expect);
        check(anyhow!("it broke"), "error: it broke\n");
        let chain = Err::<(), _>(anyhow!("no disk")).context("cannot write `x`");
        check(
            chain.unwrap_err(),
            "error: cannot write `x`\n  caused by: no disk\n",
        );
        let repeated = Err::<(), _>(anyhow!("no disk")).context("cannot write `x`: no disk");
        check(repeated.unwrap_err(), "error: cannot write `x`: no disk\n");
    }

    #[test]
    fn a_remedy_is_suggested() {
        let missing = TextError::NoTemplate {
            origin: "model".into(),
        };
        assert!(
            plain(&missing.into())
                .ends_with("  help: --no-chat-template takes the prompt as it is\n")
        );
        assert!(plain(&GenerateError::EmptyPrompt.into()).contains("help: give a prompt with -p"));
    }

    #[test]
    fn usage_and_pipes_are_told_apart() {
        let usage = anyhow::Error::from(Usage("no".into())).context("above");
        assert!(is_usage(&usage) && !is_broken_pipe(&usage));
        let pipe = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(!is_usage(&pipe) && is_broken_pipe(&pipe));
    }
}
