//! Standard output and what stands in for it.

use std::io::{self, Write};

/// Writes text to stdout at once.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes a line to stdout.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")
}

/// Writes a value to stdout as JSON for scripts.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(line(&serde_json::to_string_pretty(value)?)?)
}

/// Bytes as people read them.
pub(crate) fn bytes(bytes: u64) -> String {
    indicatif::DecimalBytes(bytes).to_string()
}
