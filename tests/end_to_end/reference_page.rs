//! The book's page on the command line, made from what the program says of itself.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use mlxcel_test_support::repository;

use crate::program::{MLXCEL, Run};

const PAGE: &str = "docs/src/reference/command-line.md";

/// Set to any value, it makes the test write the page instead of comparing it.
const BLESS: &str = "MLXCEL_BLESS";

/// The help of a subcommand, or of the program for an empty one.
fn help(subcommand: &str) -> String {
    let mut command = Command::new(MLXCEL);
    command.args(subcommand.split_whitespace()).arg("--help");
    Run::of(&mut command).success().trim_end().to_owned()
}

/// The names in the list of subcommands, `help` left out.
fn subcommands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // A line that is indented further goes on with a description.
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

fn page() -> String {
    let main = help("");
    let mut page = format!(
        "# Command line\n\nWhat `mlxcel` says of itself. `{BLESS}=1 cargo test -p mlxcel` writes this page anew.\n\n\
         ```text\n{main}\n```\n"
    );
    for name in subcommands(&main) {
        let help = help(&name);
        write!(page, "\n## {name}\n\n```text\n{help}\n```\n").expect("a string can be written to");
    }
    page
}

#[test]
fn the_page_is_what_the_program_says() {
    let path = repository().join(PAGE);
    let page = page();
    if std::env::var_os(BLESS).is_some() {
        fs::write(&path, &page).expect("the page can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "{PAGE} is not current; `{BLESS}=1 cargo test -p mlxcel` writes it"
    );
}

#[test]
fn subcommands_are_found() {
    let help = "Runs.\n\nCommands:\n  run       Run a model\n              and more\n  generate  Once\n  help      Print\n\nOptions:\n  -h\n";
    assert_eq!(subcommands(help), ["run", "generate"]);
}
