//! The configurations of published models fit the tensors that Hugging Face transformers makes of them: every
//! tensor is found in its shape, and the graph uses as many numbers as the model has. No numbers are
//! needed for that; the files of weights are empty but for their headers.
//!
//! `data/published.json` has, for each model, its configuration, its parameters and its tensors.
//! Parameters are those that the language model uses, each once: without towers for images, and without the keys and
//! values of layers of Gemma 3n that use those of others. A key
//! of `tensors` that ends in a dot stands before numbers, whose ranges are the keys within; the rest
//! of a name is within those.

use libtest_mimic::{Arguments, Failed, Trial};
use mlxcel_frontend::Model;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

#[derive(Deserialize)]
struct Published {
    name: String,
    config: Value,
    parameters: u64,
    tensors: Map<String, Value>,
}

/// Adds the names and shapes that `tensors` has under `prefix`.
fn spell(prefix: &str, tensors: &Map<String, Value>, all: &mut Vec<(String, Vec<u64>)>) {
    for (name, value) in tensors {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(ranges) => {
                for (ranges, inner) in ranges {
                    let inner = inner.as_object().expect("names within a range");
                    for number in ranges.split(',').flat_map(range) {
                        spell(&format!("{name}{number}."), inner, all);
                    }
                }
            }
            _ => {
                let sizes = value.as_array().into_iter().flatten();
                all.push((name, sizes.filter_map(Value::as_u64).collect()));
            }
        }
    }
}

/// The numbers of `FIRST-LAST`.
fn range(text: &str) -> std::ops::RangeInclusive<u64> {
    let (first, last) = text.split_once('-').expect("a range");
    first.parse().expect("a number")..=last.parse().expect("a number")
}

/// Writes a file of weights whose content is a hole.
fn write(file: &Path, tensors: &[(String, Vec<u64>)]) -> std::io::Result<()> {
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += shape.iter().product::<u64>() * 2;
        let tensor = json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]});
        header.insert(name.clone(), tensor);
    }
    let mut header = Value::Object(header).to_string();
    // Tensors that do not stand where their numbers can be read in place are copied.
    header.extend(std::iter::repeat_n(
        ' ',
        header.len().next_multiple_of(8) - header.len(),
    ));
    let mut file = File::create(file)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    file.set_len(8 + header.len() as u64 + end)
}

fn check(published: &Published) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let mut tensors = Vec::new();
    spell("", &published.tensors, &mut tensors);
    write(&folder.path().join("model.safetensors"), &tensors)?;
    fs::write(
        folder.path().join("config.json"),
        published.config.to_string(),
    )?;
    let parameters = Model::load(folder.path())?.summary()?.parameters;
    match parameters == published.parameters {
        true => Ok(()),
        false => Err(format!("{parameters} parameters, not {}", published.parameters).into()),
    }
}

fn main() {
    let arguments = Arguments::from_args();
    let all: Vec<Published> =
        serde_json::from_str(include_str!("data/published.json")).expect("the data is whole");
    let trials = all
        .into_iter()
        .map(|one| Trial::test(one.name.clone(), move || check(&one)));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
