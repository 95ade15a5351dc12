//! An artifact that was moved to a machine without a compiler and without a network, and to one that has
//! nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mlxcel_test_support::{copy_folder, demo_model};
use serde_json::Value;

use crate::program::{MLXCEL, Run, folder, mlxcel};

const PROMPT: &str = "What is a violin?";

/// The environment variable that names the one place where a compiler is looked for.
const COMPILER: &str = "IREE_COMPILER_LIB";

/// Makes a second installation of the compiler in `folder` and gives the place of its library.
fn install_compiler(folder: &Path) -> PathBuf {
    let library = mlxcel_lower::find_compiler_library().expect("the compiler is set up");
    let installed = library.parent().expect("a library is in a folder");
    fs::create_dir(folder).expect("a folder can be made");
    for entry in fs::read_dir(installed).expect("the folder can be read") {
        let from = entry.expect("the folder can be read").path();
        let to = folder.join(from.file_name().expect("an entry has a name"));
        if from.is_file() && fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).expect("a file can be copied");
        }
    }
    folder.join(library.file_name().expect("a library has a name"))
}

/// Generates with the program at `program` on a machine that has no network and no repository: nothing in the
/// environment but where a compiler would be, no network interface where the system lets one be left out, another
/// working folder.
fn isolated(program: &Path, artifact: &str, folder: &Path, compiler: &Path) -> Run {
    let unshare = ["--user", "--map-root-user", "--net"];
    let probe = Command::new("unshare").args(unshare).arg("true").output();
    let mut command = if probe.is_ok_and(|output| output.status.success()) {
        let mut command = Command::new("unshare");
        command.args(unshare).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.args(["generate", artifact, "-p", PROMPT, "-n", "16", "--json"]);
    command.current_dir(folder).env_clear();
    command.env(COMPILER, compiler);
    Run::of(&mut command)
}

#[test]
fn an_artifact_runs_elsewhere_without_a_compiler() {
    let folder = folder("moved");
    let made = folder.join("made");
    let compiler = install_compiler(&folder.join("compiler"));
    let compile = |artifact: &Path| {
        let mut command = Command::new(MLXCEL);
        command.arg("compile").arg(demo_model());
        command.args(["--target", "iree-cpu", "-o"]).arg(artifact);
        Run::of(command.env(COMPILER, &compiler).current_dir(&folder))
    };
    compile(&made).success();
    let before = mlxcel([
        "generate",
        made.to_str().expect("plain"),
        "-p",
        PROMPT,
        "-n",
        "16",
        "--json",
    ]);
    let moved = folder.join("another place");
    copy_folder(&made, &moved);
    fs::remove_dir_all(&made).expect("the first place can be removed");
    fs::rename(&compiler, compiler.with_extension("away")).expect("the library can be renamed");

    let after = isolated(Path::new(MLXCEL), "another place", &folder, &compiler);
    let tokens = |run: Run| -> Value {
        let reply: Value = serde_json::from_str(&run.success()).expect("a reply");
        reply["tokens"].clone()
    };
    let tokens_before = tokens(before);
    assert_eq!(tokens_before.as_array().map(Vec::len), Some(16));
    assert_eq!(tokens(after), tokens_before);

    // The command that just compiled now says what is missing.
    compile(Path::new("new")).failure(1, &["libIREECompiler"]);
}

/// A root folder that holds the program, the shared libraries that it is linked to and `artifact`.
#[cfg(target_os = "linux")]
fn bare_root(root: &Path, artifact: &Path) {
    let listed = Command::new("ldd").arg(MLXCEL).output();
    let listed = listed.expect("ldd tells the libraries of a program").stdout;
    let put = |from: &Path, to: &Path| {
        let to = root.join(to.strip_prefix("/").expect("absolute"));
        fs::create_dir_all(to.parent().expect("it is in the root")).expect("a folder can be made");
        fs::copy(from, to).expect("a file can be copied");
    };
    put(Path::new(MLXCEL), Path::new("/mlxcel"));
    for line in String::from_utf8_lossy(&listed).lines() {
        // `name => /path (address)`, or the loader, `/path (address)`.
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, "=>", path, ..] => put(Path::new(path), &Path::new("/lib").join(name)),
            [path, ..] if path.starts_with('/') => put(Path::new(path), Path::new(path)),
            _ => {}
        }
    }
    copy_folder(artifact, &root.join("artifact"));
}

#[test]
#[cfg(target_os = "linux")]
fn an_artifact_runs_where_nothing_else_is() {
    let unshare = ["--user", "--map-root-user", "--net", "--root"];
    let mut probe = Command::new("unshare");
    let probe = probe.args(unshare).arg("/").arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: `unshare --user --root` is not allowed here");
        return;
    }
    let folder = folder("bare");
    let (made, root) = (folder.join("made"), folder.join("root"));
    let mut compile = Command::new(MLXCEL);
    compile.arg("compile").arg(demo_model());
    compile.args(["--target", "iree-cpu", "--verify", "-o"]);
    Run::of(compile.arg(&made)).success();
    bare_root(&root, &made);

    let inside = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(unshare).arg(&root).arg("/mlxcel");
        command.args(arguments).current_dir("/").env_clear();
        Run::of(command.env("LD_LIBRARY_PATH", "/lib"))
    };
    let generate = ["generate", "/artifact", "-p", PROMPT, "-n", "16", "--json"];
    let outside = generate.map(|word| match word {
        "/artifact" => made.to_str().expect("plain"),
        word => word,
    });
    let tokens = |run: Run| -> Value {
        let reply: Value = serde_json::from_str(&run.success()).expect("a reply");
        reply["tokens"].clone()
    };
    let expect = tokens(mlxcel(outside));
    assert_eq!(expect.as_array().map(Vec::len), Some(16));
    assert_eq!(tokens(inside(&generate)), expect);
    let report = inside(&["verify", "/artifact"]).success();
    assert!(report.contains("verdict: pass"), "{report}");
    inside(&["verify", "/model"]).failure(3, &["/model"]);
}
