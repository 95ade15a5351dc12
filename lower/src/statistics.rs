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
}

/// Dispatches of all functions of a module: places in its code that start work on the device.
///
/// # Errors
/// Statistics that are missing or that read otherwise.
pub(crate) fn dispatches(path: &Path) -> std::io::Result<usize> {
    parse(&std::fs::read(path)?)
}

fn parse(text: &[u8]) -> std::io::Result<usize> {
    let statistics: Statistics = serde_json::from_slice(text)?;
    Ok(statistics.stream_aggregate.execution.dispatch_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_count() {
        let text = r#"{"stream-aggregate": {"global": {"constant-count": 1},
            "execution": {"submission-count": 2, "dispatch-count": 7}}}"#;
        assert_eq!(parse(text.as_bytes()).unwrap(), 7);
        assert!(parse(b"{}").is_err());
    }
}
