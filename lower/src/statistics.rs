//! What the compiler says about the module that it made.

use std::path::Path;

/// The compiler's statistics as far as they are used.
#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Statistics {
    stream_aggregate: Aggregate,
}

#[derive(serde::Deserialize)]
struct Aggregate {
    execution: Execution,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Execution {
    dispatch_count: usize,
    transient_memory_size: u64,
}

/// What all functions of a module need together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Places in its code that start work on the device.
    pub(crate) dispatches: usize,
    /// Bytes for values between dispatches.
    pub(crate) transient_bytes: u64,
}

/// Reads the compiler's statistics.
///
/// # Errors
/// Statistics that are missing or that read otherwise.
pub(crate) fn read(path: &Path) -> std::io::Result<Needs> {
    parse(&std::fs::read(path)?)
}

fn parse(text: &[u8]) -> std::io::Result<Needs> {
    let statistics: Statistics = serde_json::from_slice(text)?;
    let execution = statistics.stream_aggregate.execution;
    Ok(Needs {
        dispatches: execution.dispatch_count,
        transient_bytes: execution.transient_memory_size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_count() {
        let text = r#"{"stream-aggregate": {"global": {"constant-count": 1},
            "execution": {"submission-count": 2, "transient-memory-size": 9, "dispatch-count": 7}}}"#;
        let needs = Needs {
            dispatches: 7,
            transient_bytes: 9,
        };
        assert_eq!(parse(text.as_bytes()).unwrap(), needs);
        assert!(parse(b"{}").is_err());
    }
}
