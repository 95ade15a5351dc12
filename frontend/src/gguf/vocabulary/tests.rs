use crate::gguf;
use std::path::Path;

/// Published vocabularies with texts and the ids that they give (`NAME.gguf.inp` and `NAME.gguf.out`
/// beside `NAME.gguf`), as llama.cpp's sources have them in `models`; they do not travel with this
/// repository. `MLXCEL_VOCABULARIES` names the folder.
#[test]
#[ignore = "needs MLXCEL_VOCABULARIES"]
fn published_vocabularies() {
    let folder = std::env::var_os("MLXCEL_VOCABULARIES").expect("MLXCEL_VOCABULARIES");
    let read = |path: &Path| std::fs::read_to_string(path).expect("a file");
    let mut checked = 0;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|end| end != "gguf") {
            continue;
        }
        let text = gguf::text(&path).expect("a vocabulary");
        let (inputs, outputs) = (
            path.with_extension("gguf.inp"),
            path.with_extension("gguf.out"),
        );
        if !inputs.is_file() {
            continue;
        }
        let (inputs, outputs) = (read(&inputs), read(&outputs));
        let mut wrong = 0;
        for (input, output) in inputs.split("\n__ggml_vocab_test__\n").zip(outputs.lines()) {
            let expect: Vec<u32> = output
                .split_whitespace()
                .map(|id| id.parse().expect("an id"))
                .collect();
            let own = text.encode(input, false).expect("tokens");
            // BERT's ids were recorded with what stands around a text.
            let around = text.encode(input, true).expect("tokens");
            if own != expect && around != expect {
                wrong += 1;
                found.push(format!(
                    "{} {input:?}: {own:?}, expected {expect:?}",
                    path.display()
                ));
            }
            checked += 1;
        }
        println!("{}: {wrong} differ", path.display());
    }
    assert!(
        found.is_empty(),
        "{} of {checked}:\n{}",
        found.len(),
        found.join("\n")
    );
}
