//! Holds the sources against the book's page on invariants, whose tables are the input of these tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mlxcel_test_support::repository;
use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;

const PAGE: &str = "docs/src/architecture/invariants.md";

/// The longest source file allowed, in lines.
const MOST_LINES: usize = 900;

/// The rows of the table of [`PAGE`] whose first heading is `heading`: for each row, the words in code quotes of
/// its first two cells.
fn table(heading: &str) -> Vec<[Vec<String>; 2]> {
    let page = fs::read_to_string(repository().join(PAGE)).unwrap();
    let start = format!("| {heading} |");
    let rows: Vec<_> = page
        .lines()
        .skip_while(|line| !line.starts_with(&start))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(quoted);
            [cells.next().unwrap(), cells.next().unwrap()]
        })
        .collect();
    assert!(!rows.is_empty(), "{PAGE} has no table {heading:?}");
    rows
}

/// The words of `cell` that stand in code quotes.
fn quoted(cell: &str) -> Vec<String> {
    let words = cell.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// The places that a table lists in its first column.
fn places(heading: &str) -> Vec<String> {
    let rows = table(heading).into_iter();
    rows.flat_map(|[first, _]| first).collect()
}

fn cargo_metadata(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline"])
        .args(arguments)
        .current_dir(repository())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A field of cargo's metadata that is a list.
fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// A field of cargo's metadata that is text.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

/// Whether a dependency is needed to build the crate itself, not only its tests.
fn is_needed(dependency: &Value) -> bool {
    dependency["kind"] != "dev"
}

#[test]
fn crates_depend_on_each_other_as_the_table_says() {
    let metadata = cargo_metadata(&["--no-deps"]);
    let packages = list(&metadata, "packages");
    let members: BTreeSet<&str> = packages
        .iter()
        .map(|package| text(package, "name"))
        .collect();
    let allowed: BTreeMap<String, Vec<String>> = table("crate")
        .into_iter()
        .map(|[name, dependencies]| (name.concat(), dependencies))
        .collect();
    let listed: BTreeSet<&str> = allowed.keys().map(String::as_str).collect();
    assert_eq!(
        listed, members,
        "the table's crates are not the workspace's"
    );
    for package in packages {
        let name = text(package, "name");
        for dependency in list(package, "dependencies")
            .iter()
            .filter(|d| is_needed(d))
        {
            let dependency = text(dependency, "name");
            assert!(
                !members.contains(dependency)
                    || allowed[name].iter().any(|name| name == dependency),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn meaning_needs_no_native_library() {
    // Without a platform cargo would want crates of all of them, which were never downloaded.
    let metadata = cargo_metadata(&["--filter-platform", env!("TARGET")]);
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"], "nodes")
        .iter()
        .map(|node| (text(node, "id"), node))
        .collect();
    let names: BTreeMap<&str, &str> = list(&metadata, "packages")
        .iter()
        .map(|package| (text(package, "id"), text(package, "name")))
        .collect();
    let mut open: Vec<&str> = names
        .iter()
        .filter(|(_, name)| ["mlxcel-ir", "mlxcel-frontend"].contains(name))
        .map(|(id, _)| *id)
        .collect();
    assert_eq!(open.len(), 2);
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in list(nodes[id], "deps") {
            if !list(dependency, "dep_kinds").iter().any(is_needed) {
                continue;
            }
            let dependency = text(dependency, "pkg");
            let builder = ["cc", "cmake", "bindgen", "pkg-config"].contains(&names[dependency]);
            assert!(
                !builder,
                "{} builds native code, and mlxcel-ir or mlxcel-frontend needs it",
                names[id]
            );
            open.push(dependency);
        }
    }
}

#[test]
fn every_crate_root_opens_with_documentation() {
    let metadata = cargo_metadata(&["--no-deps"]);
    for package in list(&metadata, "packages") {
        let roots = list(package, "targets").iter().filter(|target| {
            let kinds = ["lib", "bin", "proc-macro"];
            list(target, "kind")
                .iter()
                .any(|kind| kinds.iter().any(|name| kind == name))
        });
        for root in roots {
            let path = text(root, "src_path");
            let source = fs::read_to_string(path).unwrap();
            assert!(
                source.starts_with("//!"),
                "{path} has no crate documentation"
            );
        }
    }
}

/// Every file of the repository that somebody wrote, by its path from the root.
fn files() -> Vec<PathBuf> {
    let root = repository();
    let mut files = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let made = [".git", ".deps", "target", "book", "Cargo.lock"].contains(&name.as_str());
            if made {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                files.push(path.strip_prefix(&root).unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

/// The files with one of these extensions, and their text.
fn sources(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let known = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    };
    let read = |path: PathBuf| {
        let text = fs::read_to_string(repository().join(&path)).unwrap();
        (path, text)
    };
    files().into_iter().filter(known).map(read).collect()
}

#[test]
fn source_files_are_short() {
    for (path, text) in sources(&["rs", "cpp", "h", "cu", "metal", "py"]) {
        let lines = text.lines().count();
        assert!(
            lines <= MOST_LINES,
            "{} has {lines} lines; split it",
            path.display()
        );
    }
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    // Spelled in parts, so that this file does not find itself.
    let parts = [
        ["/ro", "ot/"],
        ["/ho", "me/"],
        ["/wo", "rk/"],
        ["/tm", "p/"],
        ["/Us", "ers/"],
        ["py", "pi.org"],
        ["python", "hosted"],
        ["npm", "js"],
        ["crates.io", "-index"],
    ];
    let names = parts.map(|parts| parts.concat());
    let extensions = [
        "rs", "cpp", "h", "py", "md", "toml", "txt", "json", "yml", "mxg", "html", "css", "js",
    ];
    for (path, text) in sources(&extensions) {
        for (number, line) in text.lines().enumerate() {
            for name in &names {
                assert!(
                    !line.contains(name),
                    "{}:{}: {line}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

/// What a source file has that only some places may have.
#[derive(Default, PartialEq, Debug)]
struct Found {
    /// The keyword `unsafe`.
    unsafety: bool,
    /// A block that declares foreign functions.
    foreign: bool,
}

impl Found {
    fn look(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.look(group.stream()),
                TokenTree::Ident(word) if word == "unsafe" => self.unsafety = true,
                TokenTree::Ident(word) if word == "extern" => {
                    let after = |distance| tokens.get(index + distance);
                    self.foreign |= matches!(after(1), Some(TokenTree::Literal(_)))
                        && matches!(after(2), Some(TokenTree::Group(_)));
                }
                _ => {}
            }
        }
    }
}

fn look(source: &str) -> Found {
    let mut found = Found::default();
    let tokens = source.parse();
    found.look(tokens.unwrap_or_else(|error| panic!("{error}: {source}")));
    found
}

#[test]
fn unsafety_and_foreign_functions_are_found() {
    let check = |source: &str, unsafety: bool, foreign: bool| {
        assert_eq!(look(source), Found { unsafety, foreign }, "{source}");
    };
    check("fn f() { g(\"unsafe extern\") } // unsafe", false, false);
    check("fn f() { unsafe { g() } }", true, false);
    check("unsafe extern \"C\" { fn g(); }", true, true);
    check("extern \"C\" fn callback() {}", false, false);
    check("extern crate core;", false, false);
}

#[test]
fn unsafety_and_foreign_functions_stay_where_the_tables_say() {
    let stands_in =
        |path: &Path, places: &[String]| places.iter().any(|place| path.starts_with(place));
    let (foreign, unsafety) = (places("folder"), places("place"));
    for (path, source) in sources(&["rs"]) {
        let found = look(&source);
        let name = path.display();
        assert!(
            !found.foreign || stands_in(&path, &foreign),
            "{name} declares foreign functions; {PAGE} says where that is allowed"
        );
        assert!(
            !found.unsafety || stands_in(&path, &unsafety),
            "{name} is unsafe; {PAGE} says where that is allowed"
        );
    }
}
