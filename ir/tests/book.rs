//! The reference page of the ops says what the op table says. `MLXCEL_BLESS=1` rewrites it.

use mlxcel_ir::Op;
use mlxcel_ir::op::{Layer, OpInfo};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "# Ops

<!-- Written by `MLXCEL_BLESS=1 cargo test -p mlxcel-ir --test book` from the op table, ir/src/op.rs. -->

Each op is shown as it stands in the text form of a graph: its operands in parentheses, its weights
after `@`, its state after `$`, its attributes in braces. A weight in parentheses may be left out.
[How to add an op](../architecture/add-an-op.md) says what belongs to one.

A *primitive* is one basic tensor operation. A *composite* has one decomposition into primitives,
which says what it means; a runtime may have a faster form of it.
";

fn section(page: &mut String, info: &OpInfo) -> std::fmt::Result {
    write!(page, "\n### `{}`\n\n```text\n{}(", info.name, info.name)?;
    page.push_str(&info.operands.join(", "));
    page.push(')');
    for (weight, optional) in info.weights {
        match optional {
            true => write!(page, " (@{weight})")?,
            false => write!(page, " @{weight}")?,
        }
    }
    if info.state {
        page.push_str(" $state");
    }
    if !info.attributes.is_empty() {
        write!(page, " {{{}}}", info.attributes.join(", "))?;
    }
    page.push_str("\n```\n\n");
    for line in info.doc {
        writeln!(page, "{}", plain(line.trim()))?;
    }
    if !info.attributes.is_empty() {
        page.push('\n');
    }
    for (attribute, expected) in info.attributes.iter().zip(info.expected) {
        writeln!(page, "- `{attribute}`: {}", expected())?;
    }
    Ok(())
}

/// A line of documentation without the links that only rustdoc resolves.
fn plain(line: &str) -> String {
    line.replace(
        "[`crate::rope::frequencies`]",
        "`mlxcel_ir::rope::frequencies`",
    )
}

fn page() -> String {
    let mut page = HEAD.to_string();
    for (title, layer) in [
        ("Primitives", Layer::Primitive),
        ("Composites", Layer::Composite),
    ] {
        let _ = write!(page, "\n## {title}\n");
        for info in Op::TABLE.iter().filter(|info| info.layer == layer) {
            let _ = section(&mut page, info);
        }
    }
    page
}

#[test]
fn the_page_of_ops_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference/ops.md");
    let page = page();
    assert!(
        !page.contains("crate::"),
        "a link that only rustdoc resolves"
    );
    if std::env::var_os("MLXCEL_BLESS").is_some() {
        std::fs::write(&path, &page).expect("a folder that can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        page, written,
        "run this test with MLXCEL_BLESS=1 to rewrite the page"
    );
}
